//! Runs of many tasks: their order and how many work side by side, told by the event log; tasks that fail, take too long,
//! or ask for the failure of others.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::support::project::{Project, summary_of};
use crate::support::summary::Summary;

const SOURCES: usize = 10;
/// Tasks of the large spec: a source, two silver tables and one model each.
const TASKS: usize = 4 * SOURCES;
const THREADS: usize = 4;

/// Ten sources, twenty silver tables, ten models of which each reads tables of two sources; one table takes all threads.
fn large_spec() -> String {
    let mut spec = format!("name: large\nengine: {{threads: {THREADS}}}\nbronze:\n");
    for n in 0..SOURCES {
        let _ = writeln!(spec, "  s{n}: {{path: s{n}/, format: csv, settle: 0s}}");
    }
    spec.push_str("silver:\n");
    for n in 0..SOURCES {
        for table in ["a", "b"] {
            let columns = "{id: bigint not null, ts: bigint}";
            let _ = writeln!(spec, "  {table}{n}: {{source: s{n}, keys: [id], sequence_by: [ts], columns: {columns}}}");
        }
    }
    spec.push_str("gold:\n");
    for n in 0..SOURCES {
        let query = format!("SELECT count(*) AS n FROM silver.a{n} JOIN silver.b{} USING (id)", (n + 1) % SOURCES);
        let _ = writeln!(spec, "  m{n}: {{query: '{query}'}}");
    }
    let _ = writeln!(spec, "tasks:\n  silver.a3: {{threads: {THREADS}}}");
    spec
}

/// From when to when a task was at work, in microseconds.
type Span = (i64, i64);

/// When the tasks of the only run were at work, by the event log.
fn spans(project: &Project) -> BTreeMap<String, Span> {
    let sql =
        "SELECT task, kind, CAST(at AS BIGINT) AS at FROM state.event_log WHERE kind IN ('task_started', 'task_ended')";
    let mut spans: BTreeMap<String, Span> = BTreeMap::new();
    for row in project.query(sql) {
        let at = row["at"].as_i64().expect("a time");
        let span = spans.entry(row["task"].as_str().expect("a task").to_owned()).or_default();
        if row["kind"] == "task_started" { span.0 = at } else { span.1 = at }
    }
    spans
}

fn overlap(one: Span, other: Span) -> bool {
    one.0 < other.1 && other.0 < one.1
}

#[test]
fn forty_tasks_run_in_their_order_and_side_by_side_as_there_is_room() {
    let project = Project::new(&large_spec());
    for n in 0..SOURCES {
        project.land(format!("s{n}/1.csv"), b"id,ts\n1,1\n2,1\n", None);
    }
    let summary = project.run();
    assert_eq!((summary.tasks.len(), summary.status.as_str()), (TASKS, "succeeded"));
    let spans = spans(&project);
    assert_eq!(spans.len(), TASKS);
    let assert_before = |first: String, then: String| {
        assert!(spans[&first].1 <= spans[&then].0, "{then} began before {first} ended");
    };
    for n in 0..SOURCES {
        for table in ["a", "b"] {
            assert_before(format!("bronze.s{n}"), format!("silver.{table}{n}"));
        }
        assert_before(format!("silver.a{n}"), format!("gold.m{n}"));
        assert_before(format!("silver.b{}", (n + 1) % SOURCES), format!("gold.m{n}"));
    }
    let at_once = |at: i64| spans.values().filter(|span| span.0 <= at && at < span.1).count();
    let most = spans.values().map(|span| at_once(span.0)).max().expect("tasks");
    assert!((2..=THREADS).contains(&most), "{most} tasks at the same time, of {THREADS} threads");
    let alone = spans["silver.a3"];
    let beside: Vec<&String> =
        spans.iter().filter(|(_, span)| **span != alone && overlap(**span, alone)).map(|(name, _)| name).collect();
    assert!(beside.is_empty(), "beside the task that takes all threads: {beside:?}");
}

const SPEC: &str = "
name: small
bronze:
  a_feed: {path: a/, format: csv, settle: 0s}
  b_feed: {path: b/, format: csv, settle: 0s}
silver:
  a: {source: a_feed, keys: [id], columns: {id: bigint not null, n: bigint}}
  b: {source: b_feed, keys: [id], on_cast_error: fail, columns: {id: bigint not null, n: bigint}}
gold:
  sum_a: {query: SELECT sum(n) AS n FROM silver.a}
  sum_b: {query: SELECT sum(n) AS n FROM silver.b}
  top: {query: SELECT n FROM gold.sum_b}
";

fn land(project: &Project, name: &str, b: &str) {
    project.land(format!("a/{name}.csv"), format!("id,n\n{name},1\n").as_bytes(), None);
    project.land(format!("b/{name}.csv"), format!("id,n\n{name},{b}\n").as_bytes(), None);
}

fn statuses(summary: &Summary) -> BTreeMap<&str, &str> {
    summary.tasks.iter().map(|task| (task.task.as_str(), task.status.as_str())).collect()
}

#[test]
fn what_fails_twice_is_done_the_third_time() {
    let spec = format!("{SPEC}engine: {{threads: 1}}\ntasks:\n  gold.sum_a: {{min_retry_interval: 10ms}}\n");
    let project = Project::new(&spec);
    land(&project, "1", "1");
    let outcome = project.run_with(Some("gold_data_written:fail:1-2"));
    let summary = summary_of(&outcome.expect(0));
    let task = summary.task("gold.sum_a");
    assert_eq!((task.status.as_str(), task.attempts), ("succeeded", 3), "{task:#?}");
    let retried = project.query("SELECT count(*) AS n FROM state.event_log WHERE kind = 'task_retried'");
    assert_eq!(retried[0]["n"], 2);
    // The same without enough attempts.
    let once = spec.replace("min_retry_interval: 10ms", "max_retries: 1, min_retry_interval: 10ms");
    let project = Project::new(&once);
    land(&project, "1", "1");
    let outcome = project.run_with(Some("gold_data_written:fail:1-2"));
    let summary = summary_of(&outcome.expect(1));
    assert_eq!((summary.task("gold.sum_a").status.as_str(), summary.task("gold.sum_a").attempts), ("failed", 2));
    assert_eq!(summary.task("gold.sum_b").status, "succeeded", "others go on");
}

#[test]
fn what_fails_for_good_leaves_out_what_depends_on_it_and_nothing_else() {
    let project = Project::new(SPEC);
    land(&project, "1", "many");
    let outcome = project.run_with(None).expect(1);
    let summary = summary_of(&outcome);
    let expected = BTreeMap::from([
        ("bronze.a_feed", "succeeded"),
        ("bronze.b_feed", "succeeded"),
        ("silver.a", "succeeded"),
        ("silver.b", "failed"),
        ("gold.sum_a", "succeeded"),
        ("gold.sum_b", "skipped"),
        ("gold.top", "skipped"),
    ]);
    assert_eq!(statuses(&summary), expected);
    assert_eq!(summary.task("silver.b").attempts, 1, "wrong data is not tried again");
    let failed = summary.task("silver.b").error.clone().expect("an error");
    assert!(failed["hint"].is_string() && failed["message"].is_string(), "{failed}");
    assert!(outcome.stderr.contains("gold.top  skipped: gold.sum_b was skipped"), "{}", outcome.story());
}

#[test]
fn a_task_that_takes_too_long_fails_and_is_tried_again_only_when_asked_for() {
    let slow =
        "SELECT count(*) AS n FROM silver.a x CROSS JOIN silver.a y CROSS JOIN silver.a z WHERE x.id * y.id > z.id";
    let spec = SPEC.replace("SELECT sum(n) AS n FROM silver.a}", &format!("{slow}}}"));
    let tasks = "tasks: {gold.sum_a: {timeout: 500ms, max_retries: 1, min_retry_interval: 0s";
    let rows: String = (0..4_000).map(|n| format!("{n},1\n")).collect();
    for (again, attempts) in [("", 1), (", retry_on_timeout: true", 2)] {
        let project = Project::new(&format!("{spec}{tasks}{again}}}}}\n"));
        project.land("a/1.csv", format!("id,n\n{rows}").as_bytes(), None);
        let summary = summary_of(&project.run_with(None).expect(1));
        let task = summary.task("gold.sum_a");
        assert_eq!((task.status.as_str(), task.attempts), ("failed", attempts), "{task:#?}");
        let message = task.error.as_ref().expect("an error")["message"].clone();
        assert_eq!(message, "took longer than its timeout of 500ms");
        assert!(!project.exists("gold.sum_a"), "nothing half-done is there");
    }
}

#[test]
fn the_queries_of_a_task_hold_no_more_memory_than_it_asks_for() {
    let join = "SELECT count(*) AS n FROM silver.a x JOIN silver.a y ON x.id = y.id";
    let spec = SPEC.replace("SELECT sum(n) AS n FROM silver.a}", &format!("{join}}}"));
    let rows: String = (0..20_000).map(|n| format!("{n},1\n")).collect();
    let project = Project::new(&format!("{spec}tasks: {{gold.sum_a: {{memory: 64KiB}}}}\n"));
    project.land("a/1.csv", format!("id,n\n{rows}").as_bytes(), None);
    let summary = summary_of(&project.run_with(None).expect(1));
    let error = summary.task("gold.sum_a").error.clone().expect("an error").to_string();
    assert!(error.contains("Resources exhausted") && error.contains("raise `engine.memory`"), "{error}");
    project.respec(&format!("{spec}tasks: {{gold.sum_a: {{memory: 64MiB}}}}\n"));
    assert_eq!(project.run().task("gold.sum_a").status, "succeeded");
}

/// A model for each condition, which depends on a table that is right and one that may fail.
fn conditions() -> String {
    let mut spec = String::from(SPEC);
    let mut tasks = String::from("tasks:\n");
    for run_if in CONDITIONS {
        let _ = writeln!(spec, "  {run_if}: {{query: 'SELECT count(*) AS n FROM silver.a'}}");
        let _ = writeln!(tasks, "  gold.{run_if}: {{depends_on: [silver.b], run_if: {run_if}}}");
    }
    // What comes after a table that was left out because nothing failed is run.
    spec.push_str("  after: {query: SELECT count(*) AS n FROM silver.a}\n");
    tasks.push_str("  gold.after: {depends_on: [gold.all_failed]}\n");
    spec + &tasks
}

const CONDITIONS: [&str; 6] =
    ["all_success", "all_done", "none_failed", "at_least_one_success", "all_failed", "at_least_one_failed"];

#[test]
fn each_condition_lets_a_task_run_as_databricks_says() {
    let project = Project::new(&conditions());
    land(&project, "1", "many");
    let summary = summary_of(&project.run_with(None).expect(1));
    let of = |summary: &Summary| CONDITIONS.map(|name| summary.task(&format!("gold.{name}")).status.clone());
    assert_eq!(of(&summary), ["skipped", "succeeded", "skipped", "succeeded", "excluded", "succeeded"]);
    assert_eq!(summary.task("gold.after").status, "succeeded");

    let project = Project::new(&conditions());
    land(&project, "1", "1");
    let summary = summary_of(&project.run_with(None).expect(0));
    assert_eq!(of(&summary), ["succeeded", "succeeded", "succeeded", "succeeded", "excluded", "excluded"]);
    assert_eq!(summary.status, "succeeded");

    let project = Project::new(
        &conditions().replace("{source: a_feed, keys: [id],", "{source: a_feed, keys: [id], on_cast_error: fail,"),
    );
    project.land("a/1.csv", b"id,n\n1,many\n", None);
    project.land("b/1.csv", b"id,n\n1,many\n", None);
    let summary = summary_of(&project.run_with(None).expect(1));
    let is_run = of(&summary).map(|status| matches!(status.as_str(), "succeeded" | "up_to_date"));
    assert_eq!(is_run, [false, true, false, false, true, true], "{summary:#?}");
}

#[test]
fn a_task_that_asks_for_more_than_there_is_is_refused_with_its_line() {
    let spec = format!(
        "{SPEC}engine: {{memory: 1GiB, threads: 2}}\ntasks:\n  silver.a: {{memory: 2GiB}}\n  silver.b: {{threads: 3}}\n  gold.top: {{run_if: always}}\n"
    );
    let outcome = Project::new(&spec).orchestrator(&["validate", "--output", "json"]).expect(2);
    let told: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let problems: Vec<(u64, &str)> = told["problems"]
        .as_array()
        .expect("problems")
        .iter()
        .map(|problem| (problem["line"].as_u64().expect("a line"), problem["message"].as_str().expect("a message")))
        .collect();
    assert_eq!(problems.len(), 3, "{told}");
    assert_eq!(problems[0], (15, "2GiB is more than the whole engine has, 1GiB"));
    assert_eq!(problems[1], (16, "3 is more than the whole engine has, 2"));
    assert!(problems[2].0 == 17 && problems[2].1.contains("always"), "{told}");
}
