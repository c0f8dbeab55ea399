//! `orchestrator watch` beside writers as they are: slow ones, those that rename, those that overwrite or break off.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lake::Clock;

use crate::support::project::Project;
use crate::support::watching::{IDLE, Watching};

const SPEC: &str = "
name: watched
storage: ./lakehouse
landing: ./landing
bronze:
  orders_cdc: {path: orders/, format: csv, settle: 1s}
  notes_feed: {path: deep/notes/, format: json, settle: 0s}
silver:
  orders:
    source: orders_cdc
    cdc: plain
    keys: [order_id]
    sequence_by: [ts bigint]
    columns: {order_id: bigint not null, status: string}
gold:
  totals: {query: 'SELECT status, count(*) AS n FROM silver.orders GROUP BY status'}
tasks:
  bronze.orders_cdc: {min_retry_interval: 0s}
";

fn pause(milliseconds: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(Clock::system().sleep(Duration::from_millis(milliseconds)));
}

fn gzipped(folder: &Path, text: &str) -> Vec<u8> {
    let plain = folder.join("plain.txt");
    fs::write(&plain, text).expect("a file");
    let output = Command::new("gzip").arg("-c").arg(&plain).output().expect("gzip starts");
    assert!(output.status.success(), "gzip failed");
    output.stdout
}

fn rename_in(project: &Project, to: &str, content: &[u8]) {
    let outside = project.path().join("outside");
    fs::write(&outside, content).expect("a file");
    fs::rename(&outside, project.landing().join(to)).expect("renamed");
}

fn orders(project: &Project) -> Vec<String> {
    project.content(&[("silver.orders", &["order_id", "status"])])
}

#[test]
fn tables_are_right_whatever_writers_do() {
    let project = Project::new(SPEC);
    project.land("orders/before.csv", b"order_id,status,ts\n1,before,1\n", None);
    let mut watch = Watching::new(project.start_watch(&[]));
    watch.expect(&["watching", "bronze.orders_cdc (orders/)"]);
    watch.expect(&["run", "done", "bronze.orders_cdc 1 file, 1 row", "silver.orders 1 row"]);
    watch.expect(&[IDLE]);

    // Written slowly: every line within `settle` of the one before, for longer than `settle`.
    let path = project.landing().join("orders/slow.csv");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("a file");
    file.write_all(b"order_id,status,ts\n").expect("a header");
    for number in 0..24 {
        file.write_all(format!("{},slow,2\n", 100 + number).as_bytes()).expect("a line");
        pause(60);
    }
    drop(file);
    watch.expect(&["orders/slow.csv arrived", "waiting until it has not changed for 1.00 s"]);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 24 rows", "silver.orders 24 rows"]);
    watch.expect(&[IDLE]);
    assert_eq!(project.count("bronze.orders_cdc"), 25, "a growing file is never read");

    // Renamed into place, and overwritten later.
    rename_in(&project, "orders/whole.csv", b"order_id,status,ts\n30,whole,3\n");
    watch.expect(&["orders/whole.csv arrived", "complete: it was renamed into place"]);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 1 row"]);
    watch.expect(&[IDLE]);
    project.land("orders/whole.csv", b"order_id,status,ts\n30,whole again,4\n31,whole again,4\n", None);
    watch.expect(&["orders/whole.csv came again with other content"]);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 2 rows"]);
    watch.expect(&[IDLE]);

    // A stream that breaks off is refused, and taken when it is sent again as a whole.
    let lines: String = (0..5_000).map(|number| format!("{},zipped {number},5\n", 1_000 + number)).collect();
    let zipped = gzipped(project.path(), &format!("order_id,status,ts\n{lines}"));
    rename_in(&project, "orders/big.csv.gz", &zipped[..zipped.len() / 2]);
    watch.expect(&["orders/big.csv.gz is refused"]);
    watch.expect(&[IDLE]);
    assert_eq!(orders(&project).len(), 27, "nothing of a broken file is taken");
    project.land("orders/big.csv.gz", &zipped, None);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 5,000 rows"]);
    watch.expect(&[IDLE]);

    // Folders that were not there are watched when they are; markers start nothing.
    project.land("orders/2024/05/new.csv", b"order_id,status,ts\n40,new folder,6\n", None);
    watch.expect(&["orders/2024/05/new.csv arrived"]);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 1 row"]);
    watch.expect(&[IDLE]);
    project.land("orders/_SUCCESS", b"x", None);
    project.land("orders/late.csv.tmp", b"x", None);
    project.land("deep/notes/a.jsonl", b"{\"id\":1}\n", None);
    watch.expect(&["deep/notes/a.jsonl arrived"]);
    let ran = watch.expect(&["run started", "bronze.notes_feed"]);
    assert!(!ran.contains("orders_cdc"), "only what is touched is run: {ran}");
    watch.expect(&[IDLE]);

    let outcome = watch.end().expect(0);
    assert!(outcome.stderr.ends_with("runs"), "{}", outcome.story());
    assert!(!outcome.stderr.contains("_SUCCESS") && !outcome.stderr.contains(".tmp"), "{}", outcome.story());
    assert_eq!(orders(&project).len(), 5_028);
    assert_eq!(project.count("bronze.orders_cdc"), 5_029);
    let totals = project.content(&[("gold.totals", &["status", "n"])]);
    assert!(totals.contains(&"gold.totals: whole again | 2".to_owned()), "{totals:#?}");
    project.assert_settled();
}

#[test]
fn without_events_folders_are_listed() {
    let project = Project::new(SPEC);
    let mut watch = Watching::new(project.start_watch(&["--poll", "200ms", "--output", "json"]));
    watch.expect(&["bronze.orders_cdc", "listed", "as asked for"]);
    watch.expect(&[IDLE]);
    project.land("orders/a.csv", b"order_id,status,ts\n1,polled,1\n", None);
    watch.expect(&["orders/a.csv arrived"]);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 1 row"]);
    watch.expect(&[IDLE]);
    let outcome = watch.end().expect(0);
    let runs: Vec<serde_json::Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("a summary")).collect();
    assert!(runs.len() >= 2 && runs.iter().all(|run| run["exit_code"] == 0), "{}", outcome.story());
    assert_eq!(project.count("silver.orders"), 1);
}

#[test]
fn what_fails_ends_no_watch() {
    // Silver refuses the table that is there; bronze goes on, and files go on arriving.
    let project = Project::new(SPEC);
    project.land("orders/a.csv", b"order_id,status,ts\n1,a,1\n", None);
    project.run();
    project.respec(&SPEC.replace("status: string", "status: bigint"));
    let mut watch = Watching::new(project.start_watch(&[]));
    watch.expect(&["failed in", "silver.orders failed"]);
    watch.expect(&[IDLE]);
    project.land("orders/b.csv", b"order_id,status,ts\n2,b,1\n", None);
    watch.expect(&["orders/b.csv arrived"]);
    watch.expect(&["failed in", "bronze.orders_cdc 1 file, 1 row", "silver.orders failed"]);
    watch.expect(&[IDLE]);
    watch.end().expect(0);
    project.respec(SPEC);
    project.run();
    assert_eq!(orders(&project).len(), 2);
}

#[test]
fn a_source_that_cannot_run_waits_for_the_next_file() {
    let project = Project::new(SPEC);
    project.land("orders/a.csv", b"order_id,status,ts\n1,a,1\n", None);
    project.run();
    project.respec(&SPEC.replace("settle: 1s", "settle: 1s, schema_hints: {status: bigint}"));
    let mut watch = Watching::new(project.start_watch(&[]));
    watch.expect(&["failed in", "bronze.orders_cdc failed"]);
    watch.expect(&[IDLE]);
    project.land("orders/b.csv", b"order_id,status,ts\n2,b,1\n", None);
    watch.expect(&["orders/b.csv arrived"]);
    watch.expect(&["failed in", "bronze.orders_cdc failed"]);
    watch.expect(&[IDLE]);
    watch.end().expect(0);
    project.respec(SPEC);
    project.run();
    assert_eq!(orders(&project).len(), 2);
}

#[test]
fn a_store_that_fails_for_a_while_is_tried_again() {
    let spec = SPEC.replace("min_retry_interval: 0s", "max_retries: 0");
    let project = Project::new(&spec);
    project.land("orders/a.csv", b"order_id,status,ts\n1,a,1\n", None);
    let mut watch = Watching::new(project.start_watch_with("bronze_data_written:fail", &[]));
    watch.expect(&["failed in", "bronze.orders_cdc failed"]);
    watch.expect(&["again in 5.00 s"]);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 1 row"]);
    watch.expect(&[IDLE]);
    watch.end().expect(0);
    assert_eq!(project.count("silver.orders"), 1);
}

#[test]
fn a_schedule_runs_and_a_spec_that_changes_is_taken_when_it_is_right() {
    // Every second, and files start nothing.
    let timed = SPEC.replace("bronze:\n", "schedule: {cron: '* * * * * *'}\nbronze:\n");
    let project = Project::new(&timed);
    project.land("orders/1.csv", b"order_id,status,ts\n1,new,1\n", None);
    let mut watch = Watching::new(project.start_watch(&[]));
    watch.expect(&["runs by the schedule * * * * * * (UTC)"]);
    watch.expect(&["run started (the schedule, "]);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 1 row"]);
    assert!(!watch.lines().iter().any(|line| line.contains("arrived")), "{:?}", watch.lines());

    project.respec(&timed.replace("format: csv", "format: cvs"));
    watch.expect(&["the spec has changed and cannot be used: the watch goes on with the old one"]);
    watch.expect(&["did you mean `csv`?"]);
    // Right as a spec, but no place to watch.
    project.respec(&SPEC.replace("landing: ./landing", "landing: ./lakehouse"));
    watch.expect(&["the spec has changed and cannot be used: the watch goes on with the old one"]);
    watch.expect(&["are the same folder"]);
    project.land("orders/2.csv", b"order_id,status,ts\n2,new,1\n", None);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 1 row"]);

    project.respec(&SPEC.replace("silver:\n", "  more_cdc: {path: more/, format: csv, settle: 0s}\nsilver:\n"));
    watch.expect(&["the spec has changed: the watch goes on with the new one"]);
    watch.expect(&["watching", "bronze.more_cdc (more/)"]);
    watch.expect(&[IDLE]);
    project.land("more/1.csv", b"id\n1\n2\n", None);
    watch.expect(&["more/1.csv arrived"]);
    watch.expect(&["done", "bronze.more_cdc 1 file, 2 rows"]);
    assert_eq!(watch.end().code, Some(0));
    assert_eq!(orders(&project).len(), 2);
}

#[test]
fn a_new_version_of_a_table_starts_a_run_and_the_event_log_says_so() {
    // One process fills bronze, another one follows its table.
    let spec = SPEC.replace(
        "bronze:\n  orders",
        "trigger: {table_update: {table_names: [bronze.orders_cdc], wait_after_last_change: 1s}}\nbronze:\n  orders",
    );
    let project = Project::new(&spec);
    let mut watch = Watching::new(project.start_watch(&["--select", "silver,gold", "--poll", "200ms"]));
    watch.expect(&["runs when bronze.orders_cdc has a new version"]);
    watch.expect(&["waiting for new versions of tables"]);
    project.land("orders/1.csv", b"order_id,status,ts\n1,new,1\n", None);
    project.run_layer("bronze");
    watch.expect(&["run started (new versions of bronze.orders_cdc)"]);
    watch.expect(&["done", "silver.orders 1 row"]);
    watch.expect(&["waiting for new versions of tables"]);
    watch.end().expect(0);
    assert_eq!(orders(&project).len(), 1);
    let started = project
        .query("SELECT details FROM state.event_log WHERE kind = 'run_started' AND details LIKE '%table_update%'");
    assert_eq!(started.len(), 1, "{started:?}");
    let details: serde_json::Value =
        serde_json::from_str(started[0]["details"].as_str().expect("a text")).expect("JSON");
    assert_eq!(details["trigger"]["table_names"], serde_json::json!(["bronze.orders_cdc"]));
}

#[test]
fn a_continuous_watch_runs_again_and_again_and_tells_what_it_did() {
    let project = Project::new(&SPEC.replace("name: watched", "name: watched\ncontinuous: true").replace("1s", "0s"));
    let mut watch = Watching::new(project.start_watch(&[]));
    watch.expect(&["runs one after the other"]);
    for number in 1..4 {
        let content = format!("order_id,status,ts\n{number},new,1\n");
        project.land(format!("orders/{number}.csv"), content.as_bytes(), None);
        watch.expect(&["done", "silver.orders 1 row"]);
    }
    let outcome = watch.end().expect(0);
    assert_eq!(orders(&project).len(), 3);
    // Runs with nothing new are recorded, and told by nothing.
    assert_eq!(outcome.stderr.matches("nothing new").count(), 0, "{}", outcome.story());
}

#[test]
fn what_may_pass_is_tried_again_before_the_next_moment_of_a_schedule() {
    let spec = SPEC
        .replace("min_retry_interval: 0s", "max_retries: 0")
        .replace("bronze:\n  orders", "trigger: {periodic: {interval: 1h}}\nbronze:\n  orders");
    let project = Project::new(&spec);
    project.land("orders/a.csv", b"order_id,status,ts\n1,a,1\n", None);
    let mut watch = Watching::new(project.start_watch_with("bronze_data_written:fail", &[]));
    watch.expect(&["runs every 1h"]);
    watch.expect(&["failed in", "bronze.orders_cdc failed"]);
    watch.expect(&["again in 5.00 s"]);
    watch.expect(&["run started (what failed): bronze.orders_cdc and what reads it"]);
    watch.expect(&["done", "bronze.orders_cdc 1 file, 1 row"]);
    watch.end().expect(0);
    assert_eq!(project.count("silver.orders"), 1);
    let kinds = project.query("SELECT details FROM state.event_log WHERE kind = 'run_started' ORDER BY at");
    let last = kinds.last().and_then(|row| row["details"].as_str()).expect("a run");
    assert!(last.contains("\"kind\":\"retry\""), "{last}");
}
