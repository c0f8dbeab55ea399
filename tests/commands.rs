//! What a user meets on the command line: wrong specs told as a whole, exit codes, looking without touching.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::program;
use crate::support::project::{Project, files_below, summary_of};

const SPEC: &str = "
name: small
storage: ./lakehouse
landing: ./landing
bronze:
  a_feed: {path: a/, format: csv, settle: 0s}
  b_feed: {path: b/, format: json, settle: 0s}
silver:
  a:
    source: a_feed
    cdc: plain
    keys: [id]
    sequence_by: [ts]
    columns: {id: bigint not null, name: string, amount: 'decimal(18,2)', ts: timestamp}
  b:
    source: b_feed
    cdc: plain
    keys: [id]
    sequence_by: [ts]
    on_cast_error: fail
    columns: {id: bigint not null, ts: timestamp}
gold:
  a_total: {query: 'SELECT count(*) AS n, sum(amount) AS total FROM silver.a'}
  b_count: {query: SELECT count(*) AS n FROM silver.b}
  both: {query: SELECT n FROM gold.a_total UNION ALL SELECT n FROM gold.b_count}
";

/// A project of two chains that meet in one table.
fn two_chains() -> Project {
    let project = Project::new(SPEC);
    let a = b"id,name,amount,ts\n1,\"\",10.50,2024-05-01T12:00:00+02:00\n2,,9007199254740993.01,2024-05-01T10:00:00Z\n";
    project.land("a/1.csv", a, None);
    project.land("b/1.jsonl", b"{\"id\":9007199254740993,\"ts\":\"2024-05-01T10:00:00.000001Z\"}\n", None);
    project
}

#[test]
fn a_wrong_spec_is_told_as_a_whole_and_nothing_is_run() {
    let wrong = SPEC
        .replace("sequence_by: [ts]\n    on_cast", "sequence_bye: [ts]\n    on_cast")
        .replace("source: a_feed", "source: a_fed");
    let wrong = wrong.replace("name: small", "name: small\nstorrage: x");
    for command in ["validate", "run", "dry-run"] {
        let project = Project::new(&wrong);
        let outcome = project.orchestrator(&[command]).expect(2);
        for text in ["sequence_bye", "sequence_by", "a_fed", "a_feed", "storrage", "storage"] {
            assert!(outcome.stderr.contains(text), "`{text}` is not told: {}", outcome.story());
        }
        assert!(!project.path().join("lakehouse").exists(), "`{command}` made tables of a wrong spec");
    }
}

#[test]
fn duplicate_keys_and_cycles_are_refused_by_name() {
    let twice = SPEC.replace("  b_count:", "  a_total: {query: SELECT 1 AS n}\n  b_count:");
    let outcome = Project::new(&twice).orchestrator(&["validate"]).expect(2);
    assert!(outcome.stderr.contains("a_total"), "{}", outcome.story());
    let cycle = SPEC.replace("FROM silver.b}", "FROM gold.both}");
    let outcome = Project::new(&cycle).orchestrator(&["validate"]).expect(2);
    for name in ["gold.b_count", "gold.both"] {
        assert!(outcome.stderr.contains(name), "{}", outcome.story());
    }
    Project::new(SPEC).orchestrator(&["validate"]).expect(0);
}

#[test]
fn looking_changes_nothing() {
    let project = two_chains();
    for command in [&["dry-run"][..], &["graph"], &["graph", "--format", "mermaid"], &["graph", "--format", "dot"]] {
        let outcome = project.orchestrator(command).expect(0);
        for table in ["bronze.a_feed", "silver.b", "gold.both"] {
            assert!(outcome.stdout.contains(table), "`{table}` is not shown: {}", outcome.story());
        }
    }
    assert_eq!(project.versions().len(), 0, "looking made tables");
    let before = project.run();
    let versions = project.versions();
    project.orchestrator(&["dry-run"]).expect(0);
    assert_eq!(project.versions(), versions);
    let runs = project.orchestrator(&["runs", "--output", "json"]).expect(0);
    assert!(runs.stdout.contains(&before.run_id), "{}", runs.story());
}

#[test]
fn a_query_prints_values_as_they_are() {
    let project = two_chains();
    project.run();
    let sql = "SELECT id, name, amount, ts FROM silver.a ORDER BY id";
    let rows = project.query(sql);
    let expected: Vec<Value> = serde_json::from_str(
        r#"[{"id":1,"name":"","amount":"10.50","ts":"2024-05-01T10:00:00.000000Z"},
            {"id":2,"name":null,"amount":"9007199254740993.01","ts":"2024-05-01T10:00:00.000000Z"}]"#,
    )
    .expect("JSON");
    assert_eq!(rows.into_iter().map(Value::Object).collect::<Vec<_>>(), expected);
    let csv = project.orchestrator(&["query", "SELECT id, name, amount FROM silver.a ORDER BY id", "--output", "csv"]);
    assert_eq!(csv.expect(0).stdout, "id,name,amount\n1,\"\",10.50\n2,,9007199254740993.01\n");
    let limited =
        project.orchestrator(&["query", "SELECT id FROM silver.b", "--output", "csv", "--limit", "1"]).expect(0);
    assert_eq!(limited.stdout, "id\n9007199254740993\n");
    assert_ne!(project.orchestrator(&["query", "SELECT * FROM silver.nothing"]).code, Some(0));
}

#[test]
fn one_failure_skips_what_needs_it_and_nothing_else() {
    let project = two_chains();
    project.land("b/2.jsonl", b"{\"id\":\"x\",\"ts\":\"2024-05-01T10:00:00Z\"}\n", None);
    let outcome = project.run_with(None).expect(1);
    let summary = summary_of(&outcome);
    let with = |status: &str| -> BTreeSet<&str> {
        summary.tasks.iter().filter(|task| task.status == status).map(|task| task.task.as_str()).collect()
    };
    assert_eq!(summary.status, "failed");
    assert_eq!(with("failed"), BTreeSet::from(["silver.b"]), "{}", outcome.story());
    assert_eq!(with("skipped"), BTreeSet::from(["gold.b_count", "gold.both"]), "{}", outcome.story());
    assert_eq!(with("succeeded"), BTreeSet::from(["bronze.a_feed", "bronze.b_feed", "silver.a", "gold.a_total"]));
    assert!(summary.task("silver.b").error.is_some());
    assert_eq!((project.count("silver.a"), project.count("silver.b")), (2, 0));
}

#[test]
fn selected_tasks_run_alone() {
    let project = two_chains();
    let args = ["run", "--select", "bronze.a_feed", "--output", "json"];
    let summary = summary_of(&project.orchestrator(&args).expect(0));
    assert_eq!(summary.tasks.iter().map(|task| task.task.as_str()).collect::<Vec<_>>(), ["bronze.a_feed"]);
    assert!(project.exists("bronze.a_feed") && !project.exists("bronze.b_feed") && !project.exists("silver.a"));
    let unknown = project.orchestrator(&["run", "--select", "silver.c"]).expect(2);
    assert!(unknown.stderr.contains("silver.c"), "{}", unknown.story());
}

#[test]
fn a_landing_zone_named_for_one_run_is_read_instead() {
    let project = two_chains();
    let elsewhere = project.path().join("elsewhere");
    fs::rename(project.landing(), &elsewhere).expect("the landing zone moves");
    let landing = elsewhere.to_str().expect("UTF-8");
    let summary = summary_of(&project.orchestrator(&["run", "--landing", landing, "--output", "json"]).expect(0));
    assert_eq!((summary.status.as_str(), project.count("silver.a")), ("succeeded", 2));
    let paths = project.rows("bronze.a_feed", &["_file_path"]);
    assert_eq!(paths.rows, [[Some("a/1.csv".to_owned())], [Some("a/1.csv".to_owned())]]);
}

#[test]
fn parquet_files_land_as_well() {
    let from = two_chains();
    from.run();
    let spec = "
name: parquet
storage: ./lakehouse
landing: ./landing
bronze:
  totals: {path: ./, format: parquet, settle: 0s}
silver:
  totals:
    source: totals
    cdc: plain
    keys: [n]
    sequence_by: []
    columns: {n: bigint not null, total: 'decimal(38,2)'}
";
    let project = Project::new(spec);
    let files = files_below(&from.table_folder("gold.a_total"));
    let parquet = files.iter().find(|file| file.extension().is_some_and(|end| end == "parquet")).expect("a data file");
    project.land_file(parquet, "totals.parquet".as_ref(), None);
    project.run();
    let rows = project.query("SELECT n, total FROM silver.totals");
    assert_eq!((&rows[0]["n"], &rows[0]["total"]), (&Value::from(2), &Value::from("9007199254741003.51")));
    project.assert_settled();
}

#[test]
fn the_table_of_a_run_names_every_task_and_keeps_stdout_clean() {
    let project = two_chains();
    let outcome = project.orchestrator(&["run"]).expect(0);
    for task in ["bronze.a_feed", "bronze.b_feed", "silver.a", "silver.b", "gold.a_total", "gold.b_count", "gold.both"]
    {
        assert!(outcome.stdout.contains(task), "`{task}` is not shown: {}", outcome.story());
    }
    let again = project.orchestrator(&["run"]).expect(0);
    assert!(again.stdout.to_lowercase().contains("nothing"), "{}", again.story());
}

#[test]
fn commands_of_a_layer_are_told_with_their_program() {
    let project = two_chains();
    for (command, program) in
        [("account", "`silver account`"), ("rebuild", "`gold rebuild`"), ("explain", "`gold explain`")]
    {
        let outcome = project.orchestrator(&[command]).expect(2);
        assert!(
            outcome.stderr.contains("unrecognized subcommand") && outcome.stderr.contains("hint: "),
            "{}",
            outcome.story()
        );
        assert!(outcome.stderr.contains(program), "{}", outcome.story());
    }
    let unknown = project.orchestrator(&["wtach"]).expect(2);
    assert!(unknown.stderr.contains("'watch'") && !unknown.stderr.contains("hint: `"), "{}", unknown.story());
}

#[test]
fn a_quarantine_that_was_never_needed_is_empty() {
    let project = two_chains();
    project.run();
    assert!(!project.exists("quarantine.a_feed"));
    let rows = project.query("SELECT refused_by, reason FROM quarantine.a_feed");
    assert_eq!(rows.len(), 0);
    let unknown = project.orchestrator(&["query", "SELECT * FROM quarantine.a"]).expect(2);
    assert!(unknown.stderr.contains("there is no table `quarantine.a`"), "{}", unknown.story());
}

#[test]
fn a_date_is_for_snapshots() {
    let project = two_chains();
    let none = project.orchestrator(&["run", "--date", "2024-05-01"]).expect(2);
    assert!(none.stderr.contains("no snapshot is among the chosen tasks"), "{}", none.story());
    project.respec(&format!("{SPEC}  days: {{snapshot_of: silver.a}}\n"));
    let later = project.orchestrator(&["run", "--date", "2999-01-01"]).expect(2);
    assert!(later.stderr.contains("2999-01-01 is to come"), "{}", later.story());
    project.orchestrator(&["run", "--date", "yesterday"]).expect(2);
    assert!(!project.exists("bronze.a_feed"), "nothing was run");
}

/// Lines that are wider than a terminal.
fn wide(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.chars().count() > 80).collect()
}

#[test]
fn help_fits_a_terminal() {
    let project = two_chains();
    let commands: [(&str, &[&str]); 4] = [
        ("bronze", &["", "run", "reingest"]),
        ("silver", &["", "run", "account", "verify", "rebuild"]),
        ("gold", &["", "run", "snapshot", "as-of", "check", "explain", "verify", "rebuild"]),
        ("orchestrator", &["", "run", "runs", "table", "table diff", "dry-run", "quarantine", "init"]),
    ];
    for (program, commands) in commands {
        for command in commands {
            let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
            let help = program::run(program, project.path(), &args, None).expect(0).stdout;
            assert_eq!(wide(&help), [""; 0], "{program} {command}");
        }
    }
}

#[test]
fn hints_fit_a_terminal() {
    let project = two_chains();
    project.land("a/2.csv", b"id,name,amount,ts\nx,,1,2024-05-01T10:00:00Z\n", None);
    project.run();
    project.respec(
        &SPEC.replace("id: bigint not null, name: string, amount", "id: string not null, name: bigint, amount"),
    );
    let run = project.orchestrator(&["run"]).expect(1);
    assert!(run.stdout.contains("\n  hint: ") && run.stdout.contains("`silver rebuild a`"), "{}", run.story());
    assert_eq!(wide(&run.stdout), [""; 0], "{}", run.story());
    let list = project.orchestrator(&["quarantine", "list"]).expect(0);
    assert!(list.stdout.contains("\n  next: "), "{}", list.story());
    assert_eq!(wide(&list.stdout), [""; 0], "{}", list.story());
    let none = project.orchestrator(&["quarantine", "show", "--file", "nothing.csv"]).expect(0);
    assert_eq!(wide(&none.stdout), [""; 0], "{}", none.story());
}
