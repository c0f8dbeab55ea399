//! The summary of a run as people and programs see it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::names::RunId;

fn outcome(table: TableName, figures: Figures, version: u64, millis: u64) -> TaskOutcome {
    let state = if figures == Figures::default() { TaskState::UpToDate } else { TaskState::Changed };
    let report = TaskReport { state, figures, version: Some(version), ..TaskReport::up_to_date(table, None) };
    TaskOutcome::done(report, 1, Duration::from_millis(millis))
}

fn summary(tasks: Vec<TaskOutcome>) -> RunSummary {
    let clock = Clock::manual("2024-05-01T10:15:00Z".parse().expect("a time"));
    let (spec, elapsed) = ("pipelines.yaml".to_owned(), Duration::from_millis(1_912));
    RunSummary { run: RunId::new(&clock).to_string(), spec, started_at: clock.now(), elapsed, tasks }
}

/// The text with the random part of the run id replaced.
fn text(summary: &RunSummary) -> String {
    summary.to_text().replace(&summary.run, "20240501T101500-1f2e3d4c")
}

fn busy() -> RunSummary {
    let bronze = Figures { files: 24, read: 3_100, appended: 3_088, quarantined: 12, ..Figures::default() };
    let silver =
        Figures { read: 3_088, applied: 2_880, superseded: 160, stale: 38, quarantined: 10, ..Figures::default() };
    let gold = Figures { read: 812, written: 11, ..Figures::default() };
    let mut orders_cdc = outcome(TableName::bronze("orders_cdc"), bronze, 4, 310);
    if let Some(report) = &mut orders_cdc.report {
        report.notes.push("column `channel` was added".to_owned());
        let failed = |path: &str, new| FailedFile { path: path.to_owned(), reason: "not UTF-8".to_owned(), new };
        report.failed_files = vec![failed("orders/b.csv", true), failed("orders/a.csv", false)];
    }
    let error = Error::new(ErrorKind::Store, "the disk is full")
        .context("committing silver.web_orders")
        .hint("make room and run again");
    summary(vec![
        orders_cdc,
        outcome(TableName::bronze("products_feed"), Figures::default(), 2, 12),
        outcome(TableName::silver("orders"), silver, 3, 12_345),
        TaskOutcome::failed(TableName::silver("web_orders"), error, 3, Duration::from_secs(185)),
        outcome(TableName::gold("order_volume_by_status"), gold, 2, 100),
        TaskOutcome::skipped(TableName::gold("daily_sales"), "silver.web_orders failed"),
    ])
}

#[test]
fn a_busy_run_fits_eighty_columns() {
    let text = text(&busy());
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert_eq!(
        text,
        "\
task                  status   files  rows in  appended  quar.  ver.    time
bronze.orders_cdc     refused     24    3,100     3,088     12     4  0.31 s
bronze.products_feed  current      -        -         -      -     2  0.01 s

task               status   rows in  applied  super.  stale  quar.  ver.    time
silver.orders      changed    3,088    2,880     160     38     10     3  12.3 s
silver.web_orders  failed         -        -       -      -      -     -  3m 05s

task                         status   rows in  written  version    time
gold.order_volume_by_status  changed      812       11        2  0.10 s
gold.daily_sales             skipped        -        -        -       -

bronze.orders_cdc refused the file orders/b.csv
  not UTF-8
bronze.orders_cdc: column `channel` was added
silver.web_orders failed after 3 attempts
  error: committing silver.web_orders
  Caused by: the disk is full
  hint: make room and run again
gold.daily_sales skipped: silver.web_orders failed
hint: land a mended file in its place, or mend the spec and run
      `bronze reingest --files PATH`
1 file stays refused: `orchestrator runs show latest` says which and why

run 20240501T101500-1f2e3d4c:
  6 tasks, 3 changed, 1 failed, 1 skipped, 1 file refused, 3,100 rows in,
  22 quarantined, 1.91 s
"
    );
}

#[test]
fn a_reason_of_several_tasks_is_said_once() {
    let skipped = |name: &str, because: &str| TaskOutcome::skipped(TableName::gold(name), because);
    let text = text(&summary(vec![skipped("a", "silver.x failed"), skipped("b", "stop"), skipped("c", "stop")]));
    assert!(text.contains("\ngold.a skipped: silver.x failed\n2 tasks skipped: stop\n\nrun "), "{text}");
}

#[test]
fn a_run_without_news_is_one_line() {
    let idle = || outcome(TableName::bronze("a"), Figures::default(), 2, 12);
    assert_eq!(
        text(&summary(vec![idle(), idle()])),
        "run 20240501T101500-1f2e3d4c: nothing to do, 2 tasks up to date, 1.91 s\n"
    );
    assert_eq!(summary(vec![idle()]).status(), TaskStatus::UpToDate);
}

#[test]
fn a_refused_file_fails_the_run_once() {
    let mut task = outcome(TableName::bronze("a"), Figures::default(), 2, 12);
    let file = FailedFile { path: "a.csv".to_owned(), reason: "cut".to_owned(), new: false };
    if let Some(report) = &mut task.report {
        report.failed_files = vec![file.clone()];
    }
    let mut run = summary(vec![task]);
    assert_eq!((run.exit_code(), run.status()), (EXIT_DONE, TaskStatus::UpToDate));
    if let Some(report) = &mut run.tasks[0].report {
        report.failed_files = vec![FailedFile { new: true, ..file }];
    }
    assert_eq!((run.exit_code(), run.status()), (EXIT_FAILED, TaskStatus::Failed));
}

#[test]
fn the_json_has_every_figure() {
    let mut run = busy();
    if let Some(report) = &mut run.tasks[2].report {
        report.read = BTreeMap::from([(TableName::bronze("orders_cdc"), 4)]);
    }
    let json = run.to_json();
    assert_eq!((json["status"].as_str(), json["exit_code"].as_u64()), (Some("failed"), Some(1)));
    assert_eq!(json["started_at"], "2024-05-01T10:15:00.000000Z");
    let orders = &json["tasks"][2];
    assert_eq!((orders["read"].as_u64(), orders["superseded"].as_u64()), (Some(3_088), Some(160)));
    assert_eq!(orders["read_versions"]["bronze.orders_cdc"], 4);
    assert_eq!(orders["error"], serde_json::Value::Null);
    assert_eq!(json["tasks"][0]["failed_files"][0]["path"], "orders/b.csv");
    let error = &json["tasks"][3]["error"];
    assert_eq!(error["message"], "committing silver.web_orders");
    assert_eq!(error["causes"][0], "the disk is full");
    assert_eq!(json["tasks"][5]["skipped_because"], "silver.web_orders failed");
}

#[test]
fn lengths_of_time_are_short() {
    let text = |millis| duration(Duration::from_millis(millis));
    assert_eq!(text(4), "0.00 s");
    assert_eq!(text(9_994), "9.99 s");
    assert_eq!(text(9_996), "10.0 s");
    assert_eq!(text(59_960), "0m 59s");
    assert_eq!(text(185_000), "3m 05s");
    assert_eq!(text(7_800_000), "2h 10m");
    assert_eq!(thousands(1_234_567), "1,234,567");
    assert_eq!(counted(1, "task"), "1 task");
}

#[test]
fn sizes_are_short() {
    assert_eq!(size(812), "812 B");
    assert_eq!(size(12_700), "12.4 KiB");
    assert_eq!(size(5 << 30), "5.0 GiB");
}

#[test]
fn long_lines_are_wrapped_behind_their_word() {
    let text = wrapped("  then        ", 14, &"word ".repeat(20));
    assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("              word")), "{text}");
    assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 20);
    let long = "x".repeat(100);
    assert_eq!(wrapped("", 2, &format!("a {long}")), format!("a\n  {long}"), "a word is never cut");
}

#[test]
fn a_command_stays_on_one_line() {
    let command = "`silver rebuild orders --dry-run`";
    let text = wrapped("hint: ", 6, &format!("{}then {command} says what would change", "word ".repeat(11)));
    assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    assert!(text.contains(&format!("\n      {command} says")), "{text}");
    let long = format!("a `{}`", "many words ".repeat(10));
    assert!(wrapped("", 2, &long).lines().all(|line| line.len() <= WIDTH), "a long one is cut");
    assert_eq!(wrapped("", 2, "an odd ` is no command"), "an odd ` is no command");
}
