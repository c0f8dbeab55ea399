//! Several runs on one storage: they take turns, or work at the same time and make the same tables; and runs that are
//! asked to stop.

use std::collections::BTreeMap;
use std::process::Command;

use lake::Clock;
use serde_json::Value;

use crate::runs::held;
use crate::support::program;
use crate::support::project::{Project, summary_of};
use crate::support::watching::Watching;

const SPEC: &str = "
name: small
bronze:
  a_feed: {path: a/, format: csv, settle: 0s}
silver:
  a: {source: a_feed, keys: [id], sequence_by: [ts], columns: {id: bigint not null, ts: bigint, n: bigint}}
gold:
  first: {query: 'SELECT count(*) AS rows, sum(n) AS n FROM silver.a'}
  second: {query: SELECT n FROM gold.first}
";

fn project(more: &str) -> Project {
    let project = Project::new(&format!("{SPEC}{more}"));
    project.land("a/1.csv", b"id,ts,n\n1,1,10\n", None);
    project
}

fn terminate(id: u32) {
    let asked = Command::new("kill").args(["-TERM", &id.to_string()]).status();
    assert!(asked.expect("kill starts").success(), "the process is not there");
}

#[test]
fn a_run_waits_for_its_turn_and_says_for_whom() {
    let project = project("");
    let (first, hold) = held(&project, "gold_data_written");
    let second = program::start("orchestrator", project.path(), &["run", "--output", "json"], None).into_child();
    let mut second = Watching::new(second);
    let told = second.expect(&["waiting for run ", " (process ", " on "]);
    // Who only looks does not wait.
    for looks in [&["status"][..], &["dry-run"], &["runs"], &["query", "SELECT * FROM silver.a"]] {
        project.orchestrator(looks).expect(0);
    }
    // Who is stopped while it waits has done nothing.
    let third = program::start("orchestrator", project.path(), &["run", "--output", "json"], None).into_child();
    let mut third = Watching::new(third);
    third.expect(&["waiting for run "]);
    let third = summary_of(&third.end().expect(1));
    assert!(third.tasks.iter().all(|task| task.status == "skipped"), "{third:#?}");
    drop(hold);
    let first = summary_of(&first.wait().expect(0));
    assert!(told.contains(&first.run_id), "{told}");
    let second = second.over();
    let second = summary_of(&second.expect(0));
    assert_eq!(second.status, "up_to_date", "the first has done it all");
    let waited = project.query("SELECT run_id, message FROM state.event_log WHERE kind = 'run_waited'");
    let of_second = waited.iter().find(|event| event["run_id"] == second.run_id.as_str()).expect("an event");
    assert!(of_second["message"].as_str().is_some_and(|text| text.contains(&first.run_id)), "{waited:?}");
}

#[test]
fn a_backfill_waits_for_its_turn_as_well() {
    let project = project("  days: {snapshot_of: silver.a}\n");
    let (first, hold) = held(&project, "silver_committed");
    let today = Clock::system().today(chrono_tz::UTC).to_string();
    let args = ["backfill", "gold.days", "--start", &today, "--end", &today];
    let mut backfill = Watching::new(program::start("orchestrator", project.path(), &args, None).into_child());
    backfill.expect(&["waiting for run "]);
    drop(hold);
    first.wait().expect(0);
    let backfill = backfill.over().expect(0);
    assert!(backfill.stdout.starts_with(&format!("{today}  is there")), "{}", backfill.story());
}

#[test]
fn without_a_queue_a_run_that_finds_another_does_nothing() {
    let project = project("queue: false\n");
    let (first, hold) = held(&project, "gold_data_written");
    let outcome = project.orchestrator(&["run", "--output", "json"]).expect(1);
    let summary: Value = serde_json::from_str(&outcome.stdout).expect("a summary");
    assert!(summary["tasks"].as_array().expect("tasks").iter().all(|task| task["status"] == "skipped"), "{summary}");
    let because = summary["tasks"][0]["skipped_because"].as_str().expect("a reason");
    drop(hold);
    let first = summary_of(&first.wait().expect(0));
    assert!(because.contains(&first.run_id) && because.ends_with("is at work, and `queue` is false"), "{because}");
    project.run();
}

#[test]
fn a_lease_of_a_process_that_was_killed_holds_up_nobody() {
    let project = project("");
    let (first, _hold) = held(&project, "silver_staged");
    let mut child = first.into_child();
    child.kill().expect("kill -9");
    child.wait().expect("an end");
    let began = Clock::system().now();
    project.run();
    assert!((Clock::system().now() - began).num_seconds() < 50, "the lease was waited for");
}

#[test]
fn a_stop_ends_what_is_at_work_and_begins_nothing_else() {
    // At its commit a task comes to its end; before that it is left for later.
    for (point, status, left) in [("gold_committed", "succeeded", 1), ("gold_data_written", "skipped", 2)] {
        let project = project("");
        let (run, hold) = held(&project, point);
        let mut run = Watching::new(run.into_child());
        terminate(run.id());
        run.expect(&["stopping: 1 task ends first"]);
        drop(hold);
        let summary = summary_of(&run.over().expect(1));
        assert_eq!(summary.task("gold.first").status, status, "{summary:#?}");
        assert_eq!(project.count("gold.first") == 1, status == "succeeded");
        assert_eq!((summary.task("gold.second").status.as_str(), project.exists("gold.second")), ("skipped", false));
        let text = project.orchestrator(&["runs", "show", "latest"]).expect(0).stdout;
        assert!(text.contains("skipped: the run was stopped"), "{text}");
        let repaired = summary_of(&project.orchestrator(&["repair", "latest", "--output", "json"]).expect(0));
        assert_eq!(repaired.tasks.len(), left, "{repaired:#?}");
        project.assert_settled();
    }
}

#[test]
fn a_second_stop_ends_the_process_at_once() {
    let project = project("");
    let (run, _hold) = held(&project, "gold_data_written");
    let mut run = Watching::new(run.into_child());
    terminate(run.id());
    run.expect(&["stopping: 1 task ends first"]);
    terminate(run.id());
    let outcome = run.over().expect(1);
    assert_eq!(outcome.stdout, "");
    project.run();
    project.assert_settled();
}

/// For how long two watches work on one storage, in seconds: `SOAK_SECONDS=600` for ten minutes.
fn soak_seconds() -> i64 {
    std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

#[test]
fn two_watches_on_one_storage_make_exact_tables() {
    for more in ["max_concurrent_runs: 2\n", ""] {
        let project = project(more);
        let mut watches = [project.start_watch(&[]), project.start_watch(&[])].map(Watching::new);
        watches.iter_mut().for_each(|watch| drop(watch.expect(&["watching"])));
        let mut rows: BTreeMap<i64, (i64, i64)> = BTreeMap::from([(1, (1, 10))]);
        let began = Clock::system().now();
        let mut file = 1;
        while (Clock::system().now() - began).num_seconds() < soak_seconds() {
            file += 1;
            let mut text = String::from("id,ts,n\n");
            for change in 0..20 {
                // Keys come again, and not always with a newer change.
                let (id, ts) = ((file * 7 + change * 3) % 101, (file * 13 + change * 5) % 997);
                let n = file * 100 + change;
                text.push_str(&format!("{id},{ts},{n}\n"));
                let held = rows.entry(id).or_insert((ts, n));
                if ts >= held.0 {
                    *held = (ts, n);
                }
            }
            // Renamed into place, as a good writer does; names rise, so that equal times are ordered as here.
            let name = format!("{file:06}.csv");
            project.land(format!("a/.{name}"), text.as_bytes(), None);
            let folder = project.landing().join("a");
            std::fs::rename(folder.join(format!(".{name}")), folder.join(name)).expect("a rename");
            std::thread::park_timeout(std::time::Duration::from_millis(100));
        }
        for watch in watches {
            watch.end().expect(0);
        }
        project.run();
        let held: BTreeMap<i64, (i64, i64)> = project
            .query("SELECT id, ts, n FROM silver.a")
            .iter()
            .map(|row| {
                (row["id"].as_i64().expect("id"), (row["ts"].as_i64().expect("ts"), row["n"].as_i64().expect("n")))
            })
            .collect();
        assert_eq!(held, rows, "after {file} files, {more:?}");
        assert_eq!(project.count("bronze.a_feed"), 1 + 20 * (file - 1));
        let gold = &project.query("SELECT rows, n FROM gold.first")[0];
        let sum: i64 = rows.values().map(|(_, n)| n).sum();
        assert_eq!((gold["rows"].as_i64(), gold["n"].as_i64()), (Some(rows.len() as i64), Some(sum)));
        project.assert_settled();
    }
}
