//! Earlier runs: what is recorded of them, how they are repaired, also when they were killed; and how the tables stand.

use std::net::TcpStream;

use serde_json::Value;

use crate::processes::start_held;
use crate::support::program::{self, Running};
use crate::support::project::{Project, summary_of};
use crate::support::watching::Watching;

const SPEC: &str = "
name: small
engine: {threads: 1}
bronze:
  a_feed: {path: a/, format: csv, settle: 0s}
silver:
  a: {source: a_feed, keys: [id], columns: {id: bigint not null, n: bigint}}
gold:
  first: {query: SELECT sum(n) AS n FROM silver.a}
  second: {query: SELECT count(*) AS n FROM silver.a}
  third: {query: SELECT n FROM gold.second}
";

fn land(project: &Project, name: &str, n: &str) {
    project.land(format!("a/{name}.csv"), format!("id,n\n{name},{n}\n").as_bytes(), None);
}

/// What `runs show` says of a run.
fn shown(project: &Project, run: &str) -> Value {
    let outcome = project.orchestrator(&["runs", "show", run, "--output", "json"]).expect(0);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

fn task<'a>(run: &'a Value, name: &str) -> &'a Value {
    let found = run["tasks"].as_array().expect("tasks").iter().find(|task| task["task"] == name);
    found.unwrap_or_else(|| panic!("no task {name} in {run}"))
}

/// Starts a run that waits at a fault point, and returns it when it is there.
pub(crate) fn held(project: &Project, point: &str) -> (Running, TcpStream) {
    start_held(project, "orchestrator", &["run", "--output", "json"], &format!("{point}:hold"))
}

#[test]
fn a_run_that_was_killed_is_repaired_by_what_is_left_alone() {
    let project = Project::new(SPEC);
    land(&project, "1", "10");
    let (run, _held) = held(&project, "gold_data_written");
    // Ends are written while the run goes on.
    let is_told = || {
        let outcome = project.orchestrator(&["runs", "show", "latest", "--output", "json"]);
        outcome.code == Some(0) && task(&shown(&project, "latest"), "silver.a")["status"] == "succeeded"
    };
    assert!((0..500).any(|_| is_told()), "the end of silver.a was never written");
    let live = shown(&project, "latest");
    assert_eq!(live["status"], "at_work");
    let refused = project.orchestrator(&["repair", "latest"]).expect(2);
    assert!(refused.stderr.contains("is at work"), "{}", refused.story());
    let mut child = run.into_child();
    child.kill().expect("kill -9");
    child.wait().expect("an end");

    let killed = shown(&project, "latest");
    let id = killed["run_id"].as_str().expect("an id");
    assert_eq!(killed["status"], "unfinished");
    let text = project.orchestrator(&["runs", "show", "latest"]).expect(0).stdout;
    assert!(text.contains("gold.first: begun at") && text.contains("gold.third: not begun"), "{text}");
    assert!(text.contains(&format!("`orchestrator repair {id}` does what is left")), "{text}");
    let before = project.versions();
    let dry = project.orchestrator(&["repair", id, "--dry-run"]).expect(0).stdout;
    assert!(dry.ends_with("would run 3 tasks: gold.first, gold.second, gold.third\n"), "{dry}");
    let summary = summary_of(&project.orchestrator(&["repair", id, "--output", "json"]).expect(0));
    let tasks: Vec<&str> = summary.tasks.iter().map(|task| task.task.as_str()).collect();
    assert_eq!((summary.run_id.as_str(), tasks), (id, vec!["gold.first", "gold.second", "gold.third"]));
    let after = project.versions();
    assert_eq!((after["bronze/a_feed"], after["silver/a"]), (before["bronze/a_feed"], before["silver/a"]));
    let whole = shown(&project, id);
    assert_eq!((whole["status"].as_str(), whole["attempts"].as_u64()), (Some("succeeded"), Some(2)));
    assert_eq!(task(&whole, "silver.a")["status"], "succeeded", "what the first attempt did stands");
    assert!(project.orchestrator(&["repair", id]).expect(0).stdout.contains("needs no repair"));
    project.assert_settled();
}

#[test]
fn a_repair_runs_what_failed_and_what_depends_on_it_by_the_present_spec() {
    let strict = SPEC.replace("keys: [id], columns", "keys: [id], on_cast_error: fail, columns");
    let handler = "  told: {query: SELECT count(*) AS n FROM bronze.a_feed}\n\
                   tasks: {gold.told: {depends_on: [silver.a], run_if: at_least_one_failed}}\n";
    let project = Project::new(&format!("{strict}{handler}"));
    land(&project, "1", "many");
    let failed = summary_of(&project.run_with(None).expect(1));
    assert_eq!(failed.task("gold.told").status, "succeeded");
    assert_eq!(failed.task("gold.third").status, "skipped");
    project.respec(&format!("{SPEC}{handler}"));
    // What came meanwhile is for the next run.
    land(&project, "2", "20");
    let summary = summary_of(&project.orchestrator(&["repair", &failed.run_id[..20], "--output", "json"]).expect(0));
    let statuses: Vec<(&str, &str)> =
        summary.tasks.iter().map(|task| (task.task.as_str(), task.status.as_str())).collect();
    assert_eq!(
        statuses,
        [
            ("silver.a", "succeeded"),
            ("gold.first", "succeeded"),
            ("gold.second", "succeeded"),
            ("gold.third", "succeeded"),
            ("gold.told", "excluded"),
        ]
    );
    assert_eq!(project.count("quarantine.a_feed"), 1);
    let list = project.orchestrator(&["runs", "--output", "json"]).expect(0);
    let list: Value = serde_json::from_str(&list.stdout).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "a repair is no run of its own: {list}");
    assert_eq!((list[0]["attempts"].as_u64(), list[0]["status"].as_str()), (Some(2), Some("succeeded")));
}

#[test]
fn two_repairs_at_once_are_one_after_the_other() {
    let project = Project::new(&format!("{SPEC}max_concurrent_runs: 4\n"));
    land(&project, "1", "10");
    let (run, _held) = held(&project, "gold_data_written");
    let is_told = || project.orchestrator(&["runs", "show", "latest"]).code == Some(0);
    assert!((0..500).any(|_| is_told()), "the begin of the run was never written");
    let mut child = run.into_child();
    child.kill().expect("kill -9");
    child.wait().expect("an end");
    let id = shown(&project, "latest")["run_id"].as_str().expect("an id").to_owned();
    let args = ["repair", &id, "--output", "json"];
    let (first, hold) = start_held(&project, "orchestrator", &args, "gold_data_written:hold");
    let second = program::start("orchestrator", project.path(), &["repair", &id], None).into_child();
    let mut second = Watching::new(second);
    second.expect(&["waiting for the repair of run ", &id]);
    drop(hold);
    first.wait().expect(0);
    let second = second.over().expect(0);
    assert!(second.stdout.contains("needs no repair"), "{}", second.story());
    assert_eq!(shown(&project, &id)["attempts"], 2);
    let twice = "SELECT event_number FROM state.event_log GROUP BY run_id, event_number HAVING count(*) > 1";
    assert_eq!(project.query(twice).len(), 0, "events of two repairs are mixed");
}

#[test]
fn a_refused_file_is_told_as_one_everywhere() {
    let project = Project::new(SPEC);
    land(&project, "1", "10");
    project.land("a/2.csv", b"id,id\n1,2\n", None);
    let run = project.orchestrator(&["run"]).expect(1);
    for text in ["bronze.a_feed  refused ", ", 1 file refused, ", "`bronze reingest --files PATH`"] {
        assert!(run.stdout.contains(text), "{text}: {}", run.story());
    }
    let runs = project.orchestrator(&["runs"]).expect(0);
    assert!(runs.stdout.contains("  refused  "), "{}", runs.story());
    let status = project.orchestrator(&["status"]).expect(0);
    let line = status.stdout.lines().find(|line| line.starts_with("bronze.a_feed ")).expect("a line");
    assert!(line.contains("  1 refused  ") && line.matches("refused").count() == 2, "{line}");
    let repair = project.orchestrator(&["repair", "latest"]).expect(0);
    assert!(
        repair.stdout.contains("but it refused 1 file") && repair.stdout.contains("bronze reingest"),
        "{}",
        repair.story()
    );
    for outcome in [run, runs, status, repair] {
        assert!(outcome.stdout.lines().all(|line| line.chars().count() <= 80), "{}", outcome.story());
    }
    // A run with nothing new is well again, and says in a line that the file stays refused.
    let versions = project.versions();
    let again = project.orchestrator(&["run"]).expect(0);
    let told = "1 file stays refused: `orchestrator runs show latest` says which and why\n";
    assert!(again.stdout.starts_with(told) && again.stdout.lines().count() == 3, "{}", again.story());
    let shown = project.orchestrator(&["runs", "show", "latest"]).expect(0).stdout;
    assert!(shown.contains("bronze.a_feed: refused by earlier runs\n    a/2.csv: "), "{shown}");
    assert_eq!(project.versions(), versions);
    let summary = project.run();
    assert_eq!((summary.refused().len(), summary.task("bronze.a_feed").failed_files.len()), (0, 1));
    let runs = project.orchestrator(&["runs", "--limit", "1"]).expect(0);
    assert!(runs.stdout.contains("  up to date"), "{}", runs.story());
}

#[test]
fn the_latest_run_is_the_one_that_began_last() {
    // Read by several threads, rows come in any order that is not asked for.
    let project = Project::new(&SPEC.replace("{threads: 1}", "{threads: 4}"));
    land(&project, "1", "10");
    let ids: Vec<String> = (0..5).map(|_| project.run().run_id).collect();
    assert_eq!(shown(&project, "latest")["run_id"], ids[4].as_str());
    let list = project.orchestrator(&["runs", "--limit", "3", "--output", "json"]).expect(0);
    let list: Value = serde_json::from_str(&list.stdout).expect("JSON");
    let listed: Vec<&str> = list.as_array().expect("runs").iter().filter_map(|run| run["run_id"].as_str()).collect();
    assert_eq!(listed, [ids[4].as_str(), &ids[3], &ids[2]]);
    for (args, runs) in
        [(&["list"][..], 5), (&["list", "--limit", "2"], 2), (&["--limit", "2", "list"], 2), (&["--limit", "2"], 2)]
    {
        let args: Vec<&str> = std::iter::once("runs").chain(args.iter().copied()).collect();
        let list = project.orchestrator(&args).expect(0);
        assert_eq!(ids.iter().filter(|id| list.stdout.contains(id.as_str())).count(), runs, "{}", list.story());
    }
}

#[test]
fn a_run_is_recorded_with_versions_bytes_files_and_errors() {
    let strict = SPEC.replace("keys: [id], columns", "keys: [id], on_cast_error: fail, columns");
    let project = Project::new(&strict);
    land(&project, "1", "10");
    project.run();
    let run = shown(&project, "latest");
    let (bronze, silver) = (task(&run, "bronze.a_feed"), task(&run, "silver.a"));
    assert_eq!(bronze["files_taken"], serde_json::json!(["a/1.csv"]));
    assert_eq!(bronze["bytes_read"], 10);
    for task in [bronze, silver] {
        assert!(task["bytes_written"].as_u64().is_some_and(|bytes| bytes > 100), "{task}");
        assert!(task["started_at"].is_string(), "{task}");
    }
    assert_eq!(silver["read_versions"], serde_json::json!({"bronze.a_feed": bronze["version"]}));
    let text = project.orchestrator(&["runs", "show", "last"]).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("from bronze.a_feed") && text.contains("    a/1.csv\n"), "{text}");
    land(&project, "2", "many");
    project.run_with(None).expect(1);
    let text = project.orchestrator(&["runs", "show", "latest"]).expect(0).stdout;
    assert!(text.contains("silver.a failed\n") && text.contains("hint: "), "{text}");
    let unknown = project.orchestrator(&["runs", "show", "2019"]).expect(2);
    assert!(unknown.stderr.contains("there is no run `2019`"), "{}", unknown.story());
}

#[test]
fn the_status_tells_what_waits_and_how_tables_were_run() {
    let spec = SPEC.replace("engine: {threads: 1}", "").replace("gold:\n", "gold:\n  off: {query: SELECT 1 AS n}\n");
    let project = Project::new(&format!("{spec}tasks: {{gold.off: {{disabled: true}}}}\n"));
    let status = || -> Value {
        let outcome = project.orchestrator(&["status", "--output", "json"]).expect(0);
        serde_json::from_str(&outcome.stdout).expect("JSON")
    };
    let of = |status: &Value, name: &str| {
        let found = status["tables"].as_array().expect("tables").iter().find(|table| table["table"] == name);
        found.unwrap_or_else(|| panic!("no table {name} in {status}")).clone()
    };
    land(&project, "1", "10");
    let first = status();
    assert_eq!(
        of(&first, "bronze.a_feed")["waiting"],
        serde_json::json!({"files": 1, "bytes": 10, "refused_files": 0})
    );
    assert!(of(&first, "silver.a")["waiting"].is_null() && of(&first, "silver.a")["last_run"].is_null(), "{first}");
    land(&project, "2", "many");
    project.run();
    land(&project, "3", "30");
    project.bronze(&["run"], None).expect(0);
    land(&project, "4", "40");
    let now = status();
    assert_eq!(of(&now, "bronze.a_feed")["waiting"]["files"], 1);
    assert_eq!(of(&now, "silver.a")["waiting"], serde_json::json!({"batches": 1, "rows": 1}));
    assert_eq!(of(&now, "silver.a")["quarantine_open"], 1);
    assert_eq!(of(&now, "gold.third")["waiting"]["versions"], serde_json::json!({}));
    assert_eq!(of(&now, "silver.a")["last_run"]["status"], "succeeded");
    let before = project.versions();
    let text = project.orchestrator(&["status"]).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a line").to_owned();
    assert!(line("bronze.a_feed").contains("1 file, 10 B"), "{text}");
    assert!(line("silver.a").contains("1 row") && line("gold.off").ends_with("disabled"), "{text}");
    assert_eq!(project.versions(), before, "looking changes nothing");
}
