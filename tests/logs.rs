//! What the programs log: JSON lines that say which run and which task they are about, and nothing that is secret.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::support::program::{self, Outcome, path_of};
use crate::support::project::Project;
use crate::support::watching::Watching;

const SPEC: &str = r#"name: logged
landing: ./landing
bronze:
  orders_cdc: {path: orders/, format: csv, settle: 0s}
silver:
  orders:
    source: orders_cdc
    keys: [id]
    sequence_by: [id]
    columns: {id: bigint not null, amount: "decimal(18,2)"}
gold:
  totals: {query: "SELECT count(*) AS orders, sum(amount) AS amount FROM silver.orders"}
tasks:
  bronze.orders_cdc: {min_retry_interval: 0s}
"#;

/// A secret that no other text holds.
const SECRET: &str = "pla17ed-5ecret-0f-10gs-x";

fn project(spec: &str) -> Project {
    let project = Project::new(spec);
    project.land("orders/1.csv", b"id,amount\n1,10.00\n2,much\n", None);
    project
}

/// The lines of stderr, each of which must be an object with what every line has.
fn lines(outcome: &Outcome) -> Vec<Value> {
    let parse = |line: &str| -> Value {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("`{line}`: {error}: {}", outcome.story()));
        for member in ["timestamp", "level", "target", "message"] {
            assert!(value[member].is_string(), "`{member}` of {line}");
        }
        value
    };
    outcome.stderr.lines().map(parse).collect()
}

fn texts<'a>(lines: &'a [Value], member: &str) -> BTreeSet<&'a str> {
    lines.iter().filter_map(|line| line[member].as_str()).collect()
}

#[test]
fn json_lines_tell_a_run_with_its_id_and_its_tasks() {
    let project = project(SPEC);
    let args = ["--log-format", "json", "run", "--output", "json"];
    let outcome = program::run("orchestrator", project.path(), &args, Some("bronze_data_written:fail")).expect(0);
    let summary: Value = serde_json::from_str(&outcome.stdout).expect("a summary");
    let lines = lines(&outcome);
    // Every line of the run names it.
    assert!(lines.iter().all(|line| line["run_id"] == summary["run_id"]), "{}", outcome.story());
    let kinds = texts(&lines, "kind");
    for kind in ["run_started", "task_started", "task_retried", "task_ended", "run_ended"] {
        assert!(kinds.contains(kind), "{kind} is not in {kinds:?}");
    }
    assert_eq!(texts(&lines, "task"), ["bronze.orders_cdc", "gold.totals", "silver.orders"].into());
    let retried = lines.iter().find(|line| line["kind"] == "task_retried").expect("a line");
    assert_eq!((&retried["level"], &retried["task"]), (&"warn".into(), &"bronze.orders_cdc".into()));
    let ended = lines.iter().find(|line| line["kind"] == "task_ended" && line["task"] == "silver.orders");
    assert_eq!(ended.expect("a line")["details"]["quarantined"], 1);
    // Nothing of the libraries.
    let ours = ["lake::", "bronze::", "silver::", "gold::", "cli::", "orchestrator::"];
    for target in texts(&lines, "target") {
        assert!(target == "told" || ours.iter().any(|name| target.starts_with(name)), "{target}");
    }
}

#[test]
fn what_a_task_logs_names_it_whatever_the_level() {
    let project = project(SPEC);
    let args = ["--log-format", "json", "--log-level", "debug", "run", "--output", "json"];
    let outcome = program::run("orchestrator", project.path(), &args, Some("bronze_data_written:fail")).expect(0);
    let lines = lines(&outcome);
    let place = |kind: &str| lines.iter().position(|line| line["kind"] == kind).expect("a line");
    let run = &lines[place("run_started")..=place("run_ended")];
    assert!(run.iter().all(|line| line["run_id"].is_string()), "{}", outcome.story());
    // Libraries do not know what they work for.
    let ours = ["lake::", "bronze::", "silver::", "gold::", "orchestrator::"];
    let theirs =
        run.iter().filter(|line| !ours.iter().any(|name| line["target"].as_str().expect("one").starts_with(name)));
    let tasks: BTreeSet<&str> = theirs.filter_map(|line| line["task"].as_str()).collect();
    assert_eq!(tasks, ["bronze.orders_cdc", "gold.totals", "silver.orders"].into());
}

#[test]
fn the_programs_of_the_layers_log_alike() {
    let project = project(SPEC);
    for (layer, task) in [("bronze", "bronze.orders_cdc"), ("silver", "silver.orders"), ("gold", "gold.totals")] {
        let args = ["run", "--log-format", "json", "--output", "json"];
        let outcome = program::run(layer, project.path(), &args, None).expect(0);
        let lines = lines(&outcome);
        assert_eq!(texts(&lines, "run_id").len(), 1, "{}", outcome.story());
        assert_eq!(texts(&lines, "task"), [task].into(), "{}", outcome.story());
    }
    // An error is a line as well, and a level is taken from the environment. What was begun beside it says nothing when the
    // process ends before it is done.
    for _ in 0..40 {
        let wrong = Command::new(path_of("silver"))
            .current_dir(project.path())
            .args(["run", "--select", "nothing"])
            .env("PIPELINES_LOG_FORMAT", "json")
            .env("PIPELINES_LOG_LEVEL", "off")
            .output();
        let wrong = Outcome::of(wrong.expect("a program")).expect(2);
        let lines = lines(&wrong);
        assert_eq!((lines.len(), &lines[0]["level"]), (1, &"error".into()), "{}", wrong.story());
        assert!(lines[0]["message"].as_str().expect("a text").contains("has no table `silver.nothing`"));
    }
}

#[test]
fn people_read_no_log_unless_they_ask_for_it() {
    let project = project(SPEC);
    project.land("orders/2.csv", b"id,id\n1,2\n", None);
    let quiet = project.orchestrator(&["run"]).expect(1);
    assert!(!quiet.stderr.contains("lake::") && !quiet.stderr.contains("run_id"), "{}", quiet.story());
    project.land("orders/3.csv", b"id,amount\n3,1.00\n", None);
    let told = project.orchestrator(&["--log-level", "info", "run"]).expect(0);
    let line = told.stderr.lines().find(|line| line.contains("task=silver.orders")).expect("a line");
    assert!(line.contains("  INFO run_id=") && line.contains(" lake::events: "), "{line}");
    assert!(!told.stderr.contains("details="), "{}", told.story());
}

#[test]
fn a_watch_tells_in_json_lines() {
    let project = project(SPEC);
    let child = program::start("orchestrator", project.path(), &["watch", "--log-format", "json"], None).into_child();
    let mut watch = Watching::new(child);
    let done = watch.expect(&["\"target\":\"told\"", "silver.orders 1 row, 1 in quarantine"]);
    let done: Value = serde_json::from_str(&done).expect("JSON");
    assert!(done["message"].as_str().expect("a text").starts_with("run "), "without a time of day: {done}");
    watch.expect(&["waiting for files"]);
    let outcome = watch.end().expect(0);
    let lines = lines(&outcome);
    let run = lines.iter().find(|line| line["kind"] == "run_ended").expect("a run");
    assert_eq!(run["run_id"], done["run_id"]);
    let started = lines.iter().find(|line| line["kind"] == "run_started").expect("a run");
    assert_eq!(started["details"]["trigger"]["kind"], "start");
}

#[test]
fn secrets_are_in_no_line() {
    let spec = format!(
        "{SPEC}notifications:\n  on_quarantine:\n    \
         - webhook: \"http://127.0.0.1:1/${{HOOK_TOKEN}}\"\n      max_retries: 0\n"
    );
    let project = project(&spec);
    for (format, level) in [("json", "trace"), ("text", "trace"), ("json", "info")] {
        let output = Command::new(path_of("orchestrator"))
            .current_dir(project.path())
            .args(["--log-format", format, "--log-level", level, "run", "--full-refresh", "silver.orders"])
            .env("HOOK_TOKEN", SECRET)
            .env("NO_PROXY", "127.0.0.1")
            .output();
        let outcome = Outcome::of(output.expect("a program"));
        assert!(outcome.stderr.contains("on_quarantine"), "the receiver is not there: {}", outcome.story());
        assert!(!outcome.stderr.contains("pla17ed-5ecret"), "{format} {level} shows the secret");
    }
}
