//! Refused records: what a user sees of them, and that a replay makes the tables that a right spec would have made from
//! the start, exactly once, whatever happens to it half way.

use std::collections::BTreeSet;
use std::fmt::Write;

use lake::fault::REPLAY_POINTS;

use crate::support::parallel;
use crate::support::program::{self, Outcome};
use crate::support::project::{Project, files_below, summary_of};

/// A spec that refuses records of every kind; [`mended`] takes more of them.
const WRONG: &str = "
name: refused
storage: ./lakehouse
landing: ./landing
bronze:
  orders_cdc: {path: orders/, format: csv, settle: 0s}
  ticks: {path: ticks/, format: json, settle: 0s}
silver:
  orders:
    source: orders_cdc
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [id]
    sequence_by: [ts]
    columns: {id: bigint not null, name: string, amount: 'decimal(12,2)', ts: timestamp}
    expectations:
      small: {check: 'amount < 50', action: quarantine}
  orders_kept:
    source: orders_cdc
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [id]
    sequence_by: [ts]
    columns: {id: bigint not null, name: string, amount: 'decimal(12,2)', ts: timestamp}
    delete_mode: soft
    expectations:
      small: {check: 'amount < 50', action: quarantine}
  orders_history:
    source: orders_cdc
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [id]
    sequence_by: [ts]
    columns: {id: bigint not null, name: string, amount: 'decimal(12,2)', ts: timestamp}
    stored_as_scd_type: 2
    track_history_column_list: [name]
    expectations:
      small: {check: 'amount < 50', action: quarantine}
  ticks:
    source: ticks
    keys: [id, part]
    sequence_by: []
    columns: {id: bigint, part: string, n: int}
    expectations:
      even: {check: 'n % 2 = 0', action: quarantine}
tasks:
  bronze.orders_cdc: {min_retry_interval: 0s}
  silver.orders: {min_retry_interval: 0s}
  bronze.ticks: {min_retry_interval: 0s}
  silver.orders_kept: {min_retry_interval: 0s}
  silver.orders_history: {min_retry_interval: 0s}
  silver.ticks: {min_retry_interval: 0s}
";

/// The spec that should have been there from the start. It refuses less, and still some.
fn mended() -> String {
    WRONG
        .replace("orders/, format: csv,", "orders/, format: csv, csv: {quote: null},")
        .replace("keys: [id]", "keys: [id]\n    on_cast_error: \"null\"\n    on_unknown_op: ignore")
        .replace("amount < 50", "amount < 90 OR amount IS NULL")
        .replace("n % 2 = 0", "n % 2 = 0 OR n % 7 <> 0")
}

/// Tables and the columns that a replay must get right. A record that bronze reads later has a later batch.
const TABLES: [(&str, &[&str]); 6] = [
    ("bronze.orders_cdc", &["op", "id", "name", "amount", "ts", "_file_path", "_row_number"]),
    ("silver.orders", &["id", "name", "amount", "ts"]),
    ("silver.orders_kept", &["id", "name", "amount", "ts", "_is_deleted", "_deleted_sequence_1"]),
    ("silver.orders_history", &["id", "name", "amount", "ts", "__START_AT", "__END_AT"]),
    ("bronze.ticks", &["id", "part", "n", "_file_path", "_row_number", "_batch_id"]),
    ("silver.ticks", &["id", "part", "n", "_batch_id"]),
];

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Files of one day: few keys, so that changes meet; every kind of record that is refused, by one spec or by both.
fn land(project: &Project, seed: u64, day: u64) {
    let mut dice = Dice(seed * 100 + day);
    let mut orders = "op,id,name,amount,ts\n".to_owned();
    let mut ticks = String::new();
    for row in 0..40 {
        let op = ["I", "U", "U", "U", "D", "X"][dice.roll(6) as usize];
        let id = match dice.roll(12) {
            0 => String::new(),
            id => id.to_string(),
        };
        let name = match dice.roll(8) {
            // Text after a closing quote: no record for who knows quotes.
            0 => format!("\"n\"{row}"),
            _ => format!("n{row}"),
        };
        let amount = match dice.roll(8) {
            0 => "1O".to_owned(),
            _ => dice.roll(100).to_string(),
        };
        // The same moment twice in a file is a tie; those of bronze's refused records are unlike all others.
        let hour = if name.starts_with('"') { row % 24 } else { dice.roll(24) };
        let minute = if name.starts_with('"') { 30 } else { 0 };
        let _ = writeln!(
            orders,
            "{op},{id},{name},{amount},2024-05-{:02}T{hour:02}:{minute:02}:{row:02}Z",
            1 + dice.roll(4)
        );
        let part = ["\"a\"", "\"b\"", "null"][dice.roll(3) as usize];
        let _ = writeln!(ticks, "{{\"id\":{},\"part\":{part},\"n\":{}}}", dice.roll(6), dice.roll(100));
    }
    project.land(format!("orders/{day}.csv"), orders.as_bytes(), None);
    project.land(format!("ticks/{day}.jsonl"), ticks.as_bytes(), None);
}

fn replay(project: &Project) -> Outcome {
    replayed(project.orchestrator(&["quarantine", "replay", "--output", "json"]))
}

/// A replay that ended well; where every record was refused again, its exit code says so.
fn replayed(outcome: Outcome) -> Outcome {
    let tasks = summary_of(&outcome).tasks;
    let (read, again): (u64, u64) =
        (tasks.iter().map(|task| task.read).sum(), tasks.iter().map(|task| task.quarantined).sum());
    outcome.expect(i32::from(read > 0 && read == again))
}

/// Three days, each run by the wrong spec.
fn refused(seed: u64) -> Project {
    let project = Project::new(WRONG);
    for day in 0..3 {
        land(&project, seed, day);
        project.run();
    }
    project
}

/// The same days, each run by the right spec.
fn right(seed: u64) -> Project {
    let project = Project::new(&mended());
    for day in 0..3 {
        land(&project, seed, day);
        project.run();
    }
    project
}

/// Fails with the lines that only one of two has.
fn assert_same<T: Ord + std::fmt::Debug>(made: &[T], right: &[T], when: &str) {
    let only = |these: &[T], others: &[T]| {
        format!("{:#?}", these.iter().filter(|line| !others.contains(line)).collect::<Vec<_>>())
    };
    assert!(made == right, "{when}: wrong {}\nmissing {}", only(made, right), only(right, made));
}

/// Open records by place.
const OPEN: &str =
    "SELECT refused_by || ' ' || _file_path || ' ' || CAST(_row_number AS VARCHAR) || ' ' || reason AS line";

fn open_records(project: &Project) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for source in ["orders_cdc", "ticks"].iter().filter(|source| project.exists(&format!("quarantine.{source}"))) {
        for row in project.query(&format!("{OPEN} FROM quarantine.{source} WHERE status = 'open'")) {
            assert!(lines.insert(row["line"].as_str().expect("a line").to_owned()), "{row:?} is there twice");
        }
    }
    lines.into_iter().collect()
}

#[test]
fn a_replay_makes_what_a_right_spec_would_have_made() {
    for seed in 1..=3 {
        let (project, right) = (refused(seed), right(seed));
        let before = open_records(&project).len();
        assert_ne!(project.content(&TABLES), right.content(&TABLES), "the wrong spec does no harm");
        assert_every_record_is_somewhere(&project);
        project.respec(&mended());
        let outcome = replay(&project);
        let summary = summary_of(&outcome);
        summary.assert_accounted();
        let read: u64 = summary.tasks.iter().map(|task| task.read).sum();
        assert_eq!(read as usize, before, "each record is read once: {}", outcome.story());
        project.run();
        assert_same(&project.content(&TABLES), &right.content(&TABLES), &format!("seed {seed}"));
        assert_same(&open_records(&project), &open_records(&right), &format!("seed {seed}, open"));
        assert_every_record_is_somewhere(&project);

        // Nothing happens twice.
        let versions = project.versions();
        let again = summary_of(&replay(&project));
        assert_eq!(again.tasks.iter().map(|task| task.applied + task.appended).sum::<u64>(), 0);
        project.assert_settled();
        assert_same(&project.content(&TABLES), &right.content(&TABLES), &format!("seed {seed}, replayed twice"));
        assert_eq!(project.versions()["bronze/orders_cdc"], versions["bronze/orders_cdc"]);

        // A table that is made anew says the same.
        std::fs::remove_dir_all(project.table_folder("silver.orders")).expect("the table goes");
        project.run();
        assert_same(&project.content(&TABLES), &right.content(&TABLES), &format!("seed {seed}, made anew"));
        assert_same(&open_records(&project), &open_records(&right), &format!("seed {seed}, open anew"));
    }
}

/// Every record of the files is in bronze once, or in quarantine as what bronze refused.
fn assert_every_record_is_somewhere(project: &Project) {
    for (source, folder, header) in [("orders_cdc", "orders", 1), ("ticks", "ticks", 0)] {
        let files = files_below(&project.landing().join(folder));
        let lines = files.iter().map(|file| std::fs::read_to_string(file).expect("text").lines().count() - header);
        let mut sql = format!("SELECT _file_path, _row_number FROM bronze.{source}");
        if project.exists(&format!("quarantine.{source}")) {
            let _ = write!(
                sql,
                " UNION ALL SELECT _file_path, _row_number FROM quarantine.{source} \
                 WHERE refused_by = 'bronze.{source}' AND status <> 'replayed'"
            );
        }
        let told = project.query(&format!("SELECT count(*) AS n, count(DISTINCT _file_path || CAST(_row_number AS VARCHAR)) AS places FROM ({sql}) AS t"));
        let records: usize = lines.sum();
        assert_eq!((told[0]["n"].as_u64(), told[0]["places"].as_u64()), (Some(records as u64), Some(records as u64)));
    }
}

/// A copy of a project with all its tables.
fn copy(project: &Project) -> Project {
    let copy = Project::new(&mended());
    for file in files_below(project.path()) {
        let to = copy.path().join(file.strip_prefix(project.path()).expect("a file of the project"));
        if to.file_name().is_some_and(|name| name != "pipelines.yaml") {
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            std::fs::copy(&file, &to).expect("a copy");
            let modified = std::fs::metadata(&file).and_then(|data| data.modified()).expect("a time");
            let opened = std::fs::File::options().write(true).open(&to).expect("the copy");
            opened.set_modified(modified).expect("the time of the original");
        }
    }
    copy
}

/// What a replay and a run make, whatever was done before.
fn settled(project: &Project) -> Vec<String> {
    replay(project);
    project.run();
    assert_eq!(replaying(project), 0);
    [project.content(&TABLES), open_records(project)].concat()
}

#[test]
fn a_replay_that_dies_anywhere_is_finished_by_the_next_run() {
    let project = refused(4);
    let right = settled(&copy(&project));
    let crossed = REPLAY_POINTS.iter().filter(|point| !["replay_released", "quarantine_discarded"].contains(*point));
    // Several tables cross these points; the second time is another one's.
    let ends = ["kill:1", "kill:2", "lost:1", "fail:1"];
    let faults: Vec<String> = crossed
        .flat_map(|point| ends.iter().map(move |end| format!("{point}:{end}")))
        .filter(|fault| fault.starts_with(&std::env::var("FAULT").unwrap_or_default()))
        .collect();
    let faults: Vec<(usize, String)> = faults.into_iter().enumerate().collect();
    parallel::all(
        "fault",
        &faults,
        |(_, fault)| fault.clone(),
        |(number, fault)| {
            let project = copy(&project);
            if fault.starts_with("replay_fenced") {
                die(&project, "replay_claimed:kill:1");
            }
            die(&project, fault);
            assert_every_record_once(&project);
            if number % 2 == 0 {
                // Whatever was begun is finished by a run alone.
                program::run("orchestrator", project.path(), &["run", "--output", "json"], None).expect(0);
                assert_eq!(replaying(&project), 0, "a run leaves a replay unfinished after {fault}");
            }
            assert_same(&settled(&project), &right, fault);
            assert_every_record_is_somewhere(&project);
        },
    );
}

/// Records whose replay is not finished.
fn replaying(project: &Project) -> i64 {
    let count = |source: &str| {
        let sql = format!("SELECT count(*) AS n FROM quarantine.{source} WHERE status = 'replaying'");
        project.query(&sql)[0]["n"].as_i64().expect("a number")
    };
    count("orders_cdc") + count("ticks")
}

fn die(project: &Project, fault: &str) {
    let args = ["quarantine", "replay", "--output", "json"];
    let outcome = program::run("orchestrator", project.path(), &args, Some(fault));
    if fault.ends_with(":kill:1") {
        outcome.expect_killed();
    }
}

/// No place is in bronze twice.
fn assert_every_record_once(project: &Project) {
    let sql = "SELECT count(*) AS n FROM bronze.orders_cdc GROUP BY _file_path, _row_number HAVING count(*) > 1";
    assert_eq!(project.query(sql).len(), 0, "a record is in bronze twice");
}

#[test]
fn replays_at_once_and_beside_a_run_are_one() {
    let project = refused(5);
    let right = copy(&project);
    land(&right, 5, 3);
    let right = settled(&right);
    for round in 0..3 {
        let project = copy(&project);
        land(&project, 5, 3);
        let start = |args: &[&str]| program::start("orchestrator", project.path(), args, None);
        let args = ["quarantine", "replay", "--output", "json"];
        let running = [start(&args), start(&["run", "--output", "json"]), start(&args)];
        let [one, run, other] = running.map(|running| running.wait());
        for outcome in [replayed(one), run.expect(0), replayed(other)] {
            summary_of(&outcome).assert_accounted();
        }
        assert_every_record_once(&project);
        assert_every_record_is_somewhere(&project);
        assert_same(&settled(&project), &right, &format!("round {round}"));
    }
}

/// One file, whose records are refused for one reason each; the last is fine.
fn one_file(expectations: &str) -> Project {
    let spec = "
name: one
storage: ./lakehouse
landing: ./landing
bronze:
  feed: {path: feed/, format: csv, settle: 0s}
silver:
  t:
    source: feed
    keys: [id]
    sequence_by: []
    columns: {id: bigint not null, a: bigint, b: date}
    expectations: {EXPECTATIONS}
";
    let project = Project::new(&spec.replace("{EXPECTATIONS}", expectations));
    project.land("feed/1.csv", b"id,a,b\n1,0,2024-01-01\n2,x,2024-13-01\n3,\"q\"r,2024-01-01\n4,4,2024-01-01\n", None);
    project
}

#[test]
fn a_row_that_a_condition_cannot_be_asked_of_is_refused_alone() {
    let project = one_file("{share: {check: '100 / a > 5', action: quarantine}}");
    let summary = project.run();
    assert_eq!((summary.task("silver.t").applied, summary.task("silver.t").quarantined), (1, 2));
    let rows = project.query("SELECT reason_kind, reason, \"column\", value FROM quarantine.feed WHERE refused_by = 'silver.t' ORDER BY _row_number");
    assert_eq!(rows[0]["reason_kind"], "evaluation");
    let reason = rows[0]["reason"].as_str().expect("a reason");
    assert!(
        reason.starts_with("expectation `share` cannot be checked: ") && reason.contains("ivide by zero"),
        "{reason}"
    );
    // The reason names every bad value, the columns name the first.
    assert_eq!((&rows[1]["column"], &rows[1]["value"]), (&"a".into(), &"x".into()));
    let reason = rows[1]["reason"].as_str().expect("a reason");
    assert!(reason.contains("`x`") && reason.contains("; `b`: `2024-13-01`"), "{reason}");
    let warns = one_file("{share: {check: '100 / a > 5', action: warn}}");
    assert_eq!(warns.run().task("silver.t").applied, 2, "a condition that only warns refuses nothing");
}

#[test]
fn a_mistyped_operation_is_told_with_the_nearest_column() {
    let project = one_file("{}");
    let spec = std::fs::read_to_string(project.path().join("pipelines.yaml")).expect("a spec");
    project.respec(&spec.replace("    keys: [id]", "    op: {column: aa, insert: [I], delete: [D]}\n    keys: [id]"));
    let outcome = project.run_with(None).expect(1);
    for text in ["no column `aa`", "did you mean `a`?"] {
        assert!(outcome.stdout.contains(text), "{text}: {}", outcome.story());
    }
}

#[test]
fn records_are_listed_shown_and_discarded() {
    let project = one_file("{}");
    let command = |args: &[&str], code| project.orchestrator(&[&["quarantine"], args].concat()).expect(code);
    assert!(command(&["list"], 0).stdout.starts_with("nothing is in quarantine"));
    assert_eq!(command(&["list", "--output", "json"], 0).stdout, "[]\n");
    project.run();
    let listed = command(&["list"], 0).stdout;
    for text in ["bronze.feed", "malformed", "silver.t", "cast", "feed/1.csv, record 3", "next: ", "2 records: 2 open"]
    {
        assert!(listed.contains(text), "{text}: {listed}");
    }
    let shown = command(&["show", "feed", "--reason", "malformed", "--output", "json"], 0).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((&shown[0]["record"], &shown[0]["_row_number"]), (&"3,\"q\"r,2024-01-01".into(), &3.into()));
    assert_eq!(shown[0]["header"], r#"["id","a","b"]"#);
    assert!(command(&["show", "--file", "2.csv"], 0).stdout.contains("no record meets the conditions"));
    assert!(command(&["show", "--since", "1h", "--output", "csv"], 0).stdout.lines().count() == 3);

    // A wrong name and a missing choice are the request's fault.
    assert!(command(&["list", "fead"], 2).stderr.contains("did you mean `feed`?"));
    assert!(command(&["list", "--table", "silver.tt"], 2).stderr.contains("did you mean `silver.t`?"));
    assert!(command(&["discard"], 2).stderr.contains("--all"));

    let told = command(&["discard", "--table", "silver.t", "--output", "json"], 0).stdout;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["discarded"], &told["tables"]["silver.t"]), (&1.into(), &1.into()));
    assert!(command(&["show", "--status", "discarded"], 0).stdout.contains("2024-13-01"), "it can still be shown");
    project.assert_settled();

    // What is discarded stays out, also of a table that is made anew and would take it.
    let spec = std::fs::read_to_string(project.path().join("pipelines.yaml")).expect("a spec");
    project.respec(&spec.replace("    keys: [id]", "    on_cast_error: \"null\"\n    keys: [id]"));
    std::fs::remove_dir_all(project.table_folder("silver.t")).expect("the table goes");
    let summary = project.run();
    let task = summary.task("silver.t");
    assert_eq!((task.read, task.applied, task.dropped), (3, 2, 1));
    let rows = project.query("SELECT status, count(*) AS n FROM quarantine.feed GROUP BY 1 ORDER BY 1");
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["status"], &rows[1]["status"]), (&"discarded".into(), &"open".into()));
}
