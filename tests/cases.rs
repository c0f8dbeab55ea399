//! Public failures of other programs, driven through ours: every folder of `tests/cases/` is a test.
//!
//! `CASE=39` in the environment runs the cases whose name starts so. What this harness does otherwise than
//! `tests/cases/README.md` says, as long as the program cannot do it: `table@stepN` is read at the end of that step
//! and not by time travel, and the cases of `WAITING` are not driven. It checks more in three places: a step without an
//! `expect` must end with 0 or as the case ends, a `kill_after` must really have killed the run, and a watch must end
//! with 0.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use chrono::Timelike;
use lake::Clock;

use crate::support::case::{self, Action, Case, Expect, Land, Mtime, Step};
use crate::support::program::{Outcome, workspace};
use crate::support::project::{Project, files_below, summary_of};
use crate::support::rows::Rows;
use crate::support::watching::{IDLE, Watching};
use crate::support::{csv, parallel};

/// Cases that ask for an option that the program refuses as not supported yet. They only check that it says so; once it
/// can do it, they fail here until they are taken off.
const WAITING: [(&str, &str); 0] = [];

#[test]
fn cases() {
    let wanted = std::env::var("CASE").unwrap_or_default();
    let root = workspace().join("tests/cases");
    let mut folders: Vec<PathBuf> =
        fs::read_dir(root).expect("cases").map(|entry| entry.expect("a case").path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    let mut cases: Vec<Case> = folders.iter().flat_map(|folder| case::load(folder)).collect();
    cases.retain(|case| case.name.starts_with(&wanted));
    parallel::all("case", &cases, |case| case.name.clone(), drive);
}

/// Goes through the steps of a case and checks what it expects.
fn drive(case: &Case) {
    let inputs = Inputs::of(case);
    let project = Project::new(&serde_yaml::to_string(&case.spec).expect("a spec"));
    if let Some((_, option)) = WAITING.iter().find(|(name, _)| *name == case.name) {
        let refused = project.run_with(None);
        let says = refused.stderr.contains(&format!("`{option}` is not supported yet"));
        assert!(refused.code == Some(2) && says, "`{option}` waits no more: take it off\n{}", refused.story());
        return;
    }
    let mut past = BTreeMap::new();
    let mut last = None;
    let mut watch: Option<Watching> = None;
    for (index, step) in case.steps.iter().enumerate() {
        if is_watched(step) && watch.is_none() {
            watch = Some(begin_watch(&project));
        }
        land(&project, &inputs.folder, step);
        if !case.steps.get(index + 1).is_some_and(is_watched)
            && let Some(mut watch) = watch.take()
        {
            watch.expect(&["run started"]);
            watch.expect(&[IDLE]);
            watch.end().expect(0);
        }
        let outcome = if step.run { act(&project, step, case) } else { None };
        remember(&project, case, index + 1, &mut past);
        if let Some(expect) = &step.expect {
            check(&project, case, expect, outcome.as_ref(), &past, &format!("step {}", index + 1));
        }
        last = outcome.or(last);
    }
    let mut whole = case.expect.clone();
    whole.exit.get_or_insert(0);
    whole.quarantined.get_or_insert_default();
    whole.file_errors.get_or_insert_default();
    check(&project, case, &whole, last.as_ref(), &past, "at the end");
    // What came about run by run is what bronze as a whole makes.
    if last.is_none_or(|outcome| outcome.code == Some(0)) {
        project.silver(&["verify", "--rebuild"]).expect(0);
    }
}

/// The inputs of a case: its folder, or a copy in which `make.sh` has run.
struct Inputs {
    folder: PathBuf,
    _copy: Option<tempfile::TempDir>,
}

impl Inputs {
    fn of(case: &Case) -> Self {
        let script = case.folder.join("make.sh");
        if !script.is_file() {
            return Self { folder: case.folder.clone(), _copy: None };
        }
        let copy = tempfile::tempdir().expect("a temporary folder");
        let ended = Command::new("sh").arg(&script).current_dir(copy.path()).status().expect("sh starts");
        assert!(ended.success(), "make.sh failed");
        Self { folder: copy.path().to_owned(), _copy: Some(copy) }
    }
}

fn land(project: &Project, folder: &Path, step: &Step) {
    let moves: Vec<(PathBuf, String)> = match &step.land {
        Land::Folder(name) => {
            let source = folder.join(name);
            let below =
                |file: &PathBuf| file.strip_prefix(&source).expect("a file").to_str().expect("UTF-8").to_owned();
            files_below(&source).into_iter().map(|file| (file.clone(), below(&file))).collect()
        }
        Land::Files(moves) => moves.iter().map(|one| (folder.join(&one.from), one.to.clone())).collect(),
    };
    for (from, to) in moves {
        let at = step.mtime.as_ref().and_then(|mtime: &Mtime| mtime.of(&to));
        project.land_file(&from, Path::new(&to), at);
    }
}

fn is_watched(step: &Step) -> bool {
    matches!(step.action, Some(Action::Watch))
}

/// A watch that has seen what is there.
fn begin_watch(project: &Project) -> Watching {
    let mut watch = Watching::new(project.start_watch(&[]));
    watch.expect(&[IDLE]);
    watch
}

/// What the step does; its outcome, when there is one that can be checked.
fn act(project: &Project, step: &Step, case: &Case) -> Option<Outcome> {
    stay_clear_of_midnight(case);
    let outcome = match step.action.as_ref() {
        None | Some(Action::Watch) => project.run_with(None),
        Some(Action::KillAfter(point)) => {
            project.run_with(Some(&format!("{point}:kill"))).expect_killed();
            return None;
        }
        Some(Action::ConcurrentRuns(runs)) => together(project, *runs),
        Some(Action::Commands(commands)) => {
            let words = |command: &String| command.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            for command in commands.iter().map(words) {
                project.orchestrator(&command.iter().map(String::as_str).collect::<Vec<_>>()).expect(0);
            }
            return None;
        }
    };
    let of_step = step.expect.as_ref().and_then(|expect| expect.exit);
    let allowed = BTreeSet::from([0, of_step.or(case.expect.exit).unwrap_or(0)]);
    assert!(outcome.code.is_some_and(|code| allowed.contains(&code)), "{}", outcome.story());
    Some(outcome)
}

/// Starts runs at the same time; the outcome of one that ended with 0.
fn together(project: &Project, runs: usize) -> Outcome {
    let running: Vec<_> = (0..runs).map(|_| project.start_run()).collect();
    let outcomes: Vec<Outcome> = running.into_iter().map(|one| one.wait()).collect();
    for outcome in &outcomes {
        let told = outcome.code == Some(1) && !(outcome.stdout.is_empty() && outcome.stderr.is_empty());
        assert!(outcome.code == Some(0) || told, "{}", outcome.story());
    }
    let done = outcomes.into_iter().find(|outcome| outcome.code == Some(0));
    done.unwrap_or_else(|| panic!("none of {runs} runs ended with 0"))
}

/// The runs of a case with snapshots belong to one day: none starts in the last minute before midnight UTC.
fn stay_clear_of_midnight(case: &Case) {
    let has_snapshots = serde_yaml::to_string(&case.spec).expect("a spec").contains("snapshot_of");
    let clock = Clock::system();
    let is_late = |at: chrono::DateTime<chrono::Utc>| at.hour() == 23 && at.minute() == 59;
    if has_snapshots && is_late(clock.now()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(clock.sleep(Duration::from_secs(61)));
    }
}

/// Keeps the tables that the case wants to see as they are at the end of this step.
fn remember(project: &Project, case: &Case, step: usize, past: &mut BTreeMap<String, Rows>) {
    let of_steps = case.steps.iter().filter_map(|step| step.expect.as_ref()).flat_map(|expect| &expect.tables);
    for (name, file) in case.expect.tables.iter().chain(of_steps) {
        let Some((table, at)) = name.split_once('@') else { continue };
        if at == format!("step{step}") {
            let columns = columns_of(&case.folder.join(file));
            past.insert(name.clone(), actual(project, table, &columns));
        }
    }
}

fn check(
    project: &Project,
    case: &Case,
    expect: &Expect,
    outcome: Option<&Outcome>,
    past: &BTreeMap<String, Rows>,
    when: &str,
) {
    let mut wrong = Vec::new();
    if let Some(code) = expect.exit
        && let Some(outcome) = outcome.filter(|outcome| outcome.code != Some(code))
    {
        wrong.push(format!("exit {:?} where {code} is right", outcome.code));
    }
    for (name, file) in &expect.tables {
        let table = name.split('@').next().unwrap_or(name);
        let file = case.folder.join(file);
        let columns = columns_of(&file);
        let rows = past.get(name).cloned().unwrap_or_else(|| actual(project, table, &columns));
        wrong.extend(rows.difference(&expected(project, table, &file)).map(|text| format!("{name}: {text}")));
    }
    for (table, count) in &expect.counts {
        let rows = project.count(table);
        if rows != *count {
            wrong.push(format!("{table} has {rows} rows where {count} are right"));
        }
    }
    if let Some(quarantined) = &expect.quarantined {
        for source in case.spec["bronze"].as_mapping().expect("sources").keys().filter_map(|key| key.as_str()) {
            let (rows, right) =
                (project.count(&format!("quarantine.{source}")), *quarantined.get(source).unwrap_or(&0));
            if rows != right {
                wrong.push(format!("{rows} rows of {source} are in quarantine where {right} are right"));
            }
        }
    }
    for (table, columns) in &expect.absent_columns {
        let types = project.types(table);
        wrong.extend(columns.iter().filter(|c| types.contains_key(*c)).map(|c| format!("{table} has the column {c}")));
    }
    if let Some(outcome) = outcome {
        wrong.extend(told(expect, outcome));
    }
    let story = outcome.map(Outcome::story).unwrap_or_default();
    assert!(wrong.is_empty(), "{when}: {}\n{story}", wrong.join("\n  "));
}

/// What is wrong with the messages of a run and the files that it refused.
fn told(expect: &Expect, outcome: &Outcome) -> Vec<String> {
    let output = format!("{}\n{}", outcome.stdout, outcome.stderr).to_lowercase();
    let missing = expect.message.iter().filter(|text| !output.contains(&text.to_lowercase()));
    let mut wrong: Vec<String> = missing.map(|text| format!("the run does not say `{text}`")).collect();
    if let Some(files) = &expect.file_errors {
        let (refused, right) = (summary_of(outcome).refused(), files.iter().cloned().collect::<BTreeSet<_>>());
        if refused != right {
            wrong.push(format!("refused files {refused:?} where {right:?} are right"));
        }
    }
    wrong
}

fn columns_of(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let header = csv::records(&text).into_iter().next().expect("a header");
    header.into_iter().map(|field| field.text).collect()
}

fn actual(project: &Project, table: &str, columns: &[String]) -> Rows {
    project.rows(table, &columns.iter().map(String::as_str).collect::<Vec<_>>())
}

fn expected(project: &Project, table: &str, file: &Path) -> Rows {
    let columns = columns_of(file);
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let records = csv::records(&fs::read_to_string(file).expect("an expected file"));
    let rows = records.iter().skip(1).map(|record| {
        assert_eq!(record.len(), columns.len(), "{} is not rectangular", file.display());
        record.iter().map(csv::Field::expected).collect()
    });
    Rows::new(&columns, rows.collect::<Vec<_>>(), &project.types(table))
}
