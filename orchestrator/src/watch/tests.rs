//! Watches over weeks of a manual clock, with the real engine.

use std::fs;
use std::path::Path;

use bronze::watch::Intervals;
use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use lake::report::RunSummary;
use lake::report::record::RUN_STARTED;
use lake::spec::Schedule;
use lake::{Clock, TableName};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Listener, Outside, Over, Prepared, SpecFile, Wanted, watch};
use crate::health::Health;
use crate::spec::Project;

const CRON: &str = "30 1,7,19 * * *";
const SPEC: &str = "
name: weeks
storage: ./lakehouse
landing: ./landing
timezone: Europe/Lisbon
schedule: {cron: '30 1,7,19 * * *'}
bronze:
  s: {path: ./, format: csv, settle: 0s}
";

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a time")
}

/// Lands two files before every third run, and stops the watch once `end` has come.
struct Life<'a> {
    landing: &'a Path,
    clock: Clock,
    end: DateTime<Utc>,
    stop: UnboundedSender<()>,
    runs: usize,
    rows: usize,
    lines: Vec<String>,
}

impl Listener for Life<'_> {
    fn say(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    fn ran(&mut self, summary: &RunSummary) {
        assert_eq!(summary.exit_code(), 0, "{}", summary.to_json());
        self.runs += 1;
        if self.runs.is_multiple_of(3) {
            for file in 0..2 {
                let name = format!("{}-{file}.csv", self.clock.now().timestamp());
                fs::write(self.landing.join(name), "id\n1\n2\n").expect("a file");
                self.rows += 2;
            }
        }
        if self.clock.now() >= self.end {
            self.stop.send(()).expect("a watch");
        }
    }
}

/// Watches until `end`; what it told, and how many rows landed meanwhile.
async fn until(folder: &Path, clock: &Clock, end: DateTime<Utc>) -> (Vec<String>, usize) {
    let file = folder.join("pipelines.yaml");
    let mut spec = SpecFile::of(&file);
    let project = Project::load(&file).expect("a spec");
    let wanted = Wanted { select: Vec::new(), landing: None, intervals: Intervals::default() };
    let prepared = Prepared::new(project, &wanted, clock.clone()).await.expect("a watch");
    let (stop, mut heard): (_, UnboundedReceiver<()>) = unbounded_channel();
    let landing = folder.join("landing");
    let mut life = Life { landing: &landing, clock: clock.clone(), end, stop, runs: 0, rows: 0, lines: Vec::new() };
    let health = Health::new(clock.clone());
    let stop = &mut heard;
    let outside = Outside { wanted: &wanted, spec: &mut spec, health: &health, stop, listener: &mut life };
    let over = watch(prepared, outside).await;
    assert!(matches!(over, Over::Stopped));
    (life.lines, life.rows)
}

/// The moments that started runs, and those that a start made good, as the event log has them.
async fn ticks(folder: &Path, clock: &Clock) -> Vec<DateTime<Utc>> {
    let project = Project::load(&folder.join("pipelines.yaml")).expect("a spec");
    let lake = project.header.lake(&project.folder, clock.clone()).expect("a lake");
    let session = lake.session().expect("a session");
    let log = lake.table(&TableName::new(lake::Layer::State, "event_log")).await.expect("a lake").expect("a log");
    session.register(&log).await.expect("registered");
    let sql = format!("SELECT details FROM state.event_log WHERE kind = '{RUN_STARTED}' ORDER BY at, event_number");
    let batches = session.sql(&sql).await.expect("a query").collect().await.expect("rows");
    let mut ticks = Vec::new();
    for batch in batches {
        let details = arrow::array::AsArray::as_string::<i32>(batch.column(0)).clone();
        for text in details.iter().flatten() {
            let details: Value = serde_json::from_str(text).expect("JSON");
            ticks.extend(details["trigger"]["tick"].as_str().map(at));
        }
    }
    ticks
}

#[tokio::test(flavor = "multi_thread")]
async fn weeks_over_both_changes_of_the_clock_miss_no_moment_and_double_none() {
    for (start, down, up, end) in [
        ("2024-03-18T12:00:00Z", "2024-03-25T00:00:00Z", "2024-03-27T10:00:00Z", "2024-04-05T00:00:00Z"),
        ("2024-10-14T12:00:00Z", "2024-10-21T00:00:00Z", "2024-10-23T10:00:00Z", "2024-11-01T00:00:00Z"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("landing")).expect("a landing zone");
        fs::write(folder.path().join("pipelines.yaml"), SPEC).expect("a spec");
        let clock = Clock::manual(at(start));
        let (_, first) = until(folder.path(), &clock, at(down)).await;
        // Nobody watches for two days.
        let stopped = clock.now();
        clock.sleep((at(up) - stopped).to_std().expect("some days")).await;
        let (told, more) = until(folder.path(), &clock, at(end)).await;
        assert!(told.iter().any(|line| line.contains("what is there, and the missed")), "{told:?}");
        let schedule = Schedule::new(CRON, Tz::Europe__Lisbon).expect("a schedule");
        let mut expected = Vec::new();
        let mut moment = at(start);
        while let Some(next) = schedule.next(moment).filter(|next| *next <= clock.now()) {
            // Of those that were missed the last one is made good.
            let was_missed = next > stopped && next <= at(up);
            if !was_missed || schedule.next(next).is_some_and(|after| after > at(up)) {
                expected.push(next);
            }
            moment = next;
        }
        assert_eq!(ticks(folder.path(), &clock).await, expected);
        assert!(expected.len() > 40, "{expected:?}");
        // All that landed is in bronze, but for what landed after the last run.
        let project = Project::load(&folder.path().join("pipelines.yaml")).expect("a spec");
        let lake = project.header.lake(&project.folder, clock.clone()).expect("a lake");
        let bronze = lake.existing(&TableName::bronze("s")).await.expect("a table");
        let rows = bronze.row_count().expect("loaded").expect("statistics");
        assert!(first + more - rows as usize <= 4, "{rows} of {first} + {more}");
    }
}

/// Sets the clock back by a day after the third run, and stops the watch after the fifth.
struct Back {
    clock: Clock,
    stop: UnboundedSender<()>,
    ran: Vec<DateTime<Utc>>,
    lines: Vec<String>,
}

impl Listener for Back {
    fn say(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    fn ran(&mut self, _: &RunSummary) {
        self.ran.push(self.clock.now());
        match self.ran.len() {
            3 => self.clock.set(self.clock.now() - TimeDelta::days(1)),
            5 => self.stop.send(()).expect("a watch"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_back_holds_up_no_run() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("landing")).expect("a landing zone");
    let file = folder.path().join("pipelines.yaml");
    fs::write(&file, SPEC.replace("schedule: {cron: '30 1,7,19 * * *'}", "trigger: {periodic: {interval: 1h}}"))
        .expect("a spec");
    let clock = Clock::manual(at("2024-05-01T00:30:00Z"));
    let mut spec = SpecFile::of(&file);
    let wanted = Wanted { select: Vec::new(), landing: None, intervals: Intervals::default() };
    let project = Project::load(&file).expect("a spec");
    let prepared = Prepared::new(project, &wanted, clock.clone()).await.expect("a watch");
    let (stop, mut heard) = unbounded_channel();
    let mut back = Back { clock: clock.clone(), stop, ran: Vec::new(), lines: Vec::new() };
    let health = Health::new(clock.clone());
    let outside = Outside { wanted: &wanted, spec: &mut spec, health: &health, stop: &mut heard, listener: &mut back };
    assert!(matches!(watch(prepared, outside).await, Over::Stopped));
    assert!(back.lines.iter().any(|line| line.contains("went back")), "{:?}", back.lines);
    let waited = back.ran[3] - (back.ran[2] - TimeDelta::days(1));
    assert!(waited <= TimeDelta::hours(1), "{waited} after the clock went back");
}
