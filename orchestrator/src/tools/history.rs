//! Earlier runs, read from the event log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use chrono::{DateTime, SecondsFormat, Utc};
use lake::lease::Lease;
use lake::report::grid::{Align, Grid};
use lake::report::record::{RUN_ENDED, RUN_STARTED, TASK_ENDED};
use lake::report::{WIDTH, duration, thousands};
use lake::{Lake, Result, TableName};
use serde_json::{Value, json};

use super::record::Recorded;

/// Events of runs by a schedule that are looked through for the last good one.
const TICKS_LOOKED_AT: usize = 400;

/// One line of the list of runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    run: String,
    started_at: Option<DateTime<Utc>>,
    /// What the last attempt said of itself at its end; nothing when it has not ended.
    end: Option<Value>,
    is_at_work: bool,
    /// The run itself, and its repairs.
    attempts: u64,
    tasks: u64,
    rows_in: u64,
    seconds: f64,
}

/// The newest runs by their begin, newest first.
///
/// # Errors
/// [`lake::ErrorKind::Store`] or [`lake::ErrorKind::Table`] when the event log cannot be read.
pub(crate) async fn runs(lake: &Lake, limit: usize) -> Result<Vec<Line>> {
    let newest = newest_runs(limit);
    let sql = format!(
        "SELECT {EVENT} FROM event_log \
         WHERE kind IN ('{RUN_STARTED}', '{RUN_ENDED}') AND run_id IN ({newest}) ORDER BY run_id, event_number"
    );
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for batch in select(lake, &sql).await? {
        for event in events(&batch) {
            let line = lines.entry(event.run.clone()).or_insert_with(|| Line::new(&event.run));
            if event.kind == RUN_STARTED { line.starts(&event) } else { line.ends(event.details) }
        }
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    if lines.iter().any(|line| line.end.is_none()) {
        let at_work = at_work(lake).await;
        lines.iter_mut().for_each(|line| line.is_at_work = at_work.contains(&line.run));
    }
    lines.sort_by(|a, b| b.started_at.cmp(&a.started_at).then_with(|| b.run.cmp(&a.run)));
    Ok(lines)
}

/// One run by its id, the beginning of it, or `latest`. `None` when there is no such run.
///
/// # Errors
/// As [`runs`], and [`lake::ErrorKind::Spec`] when several runs begin so.
pub(crate) async fn run(lake: &Lake, wanted: &str) -> Result<Option<Recorded>> {
    let text = wanted.replace('\'', "''");
    let chosen = match wanted {
        "latest" | "last" => newest_runs(1),
        _ => format!("SELECT DISTINCT run_id FROM event_log WHERE starts_with(run_id, '{text}') LIMIT 2"),
    };
    let mut ids: Vec<String> = Vec::new();
    for batch in select(lake, &chosen).await? {
        ids.extend(batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
    }
    let id = match &ids[..] {
        [] => return Ok(None),
        [one] => one.replace('\'', "''"),
        _ => return Err(lake::Error::spec(format!("several runs begin with `{wanted}`")).hint("give more of the id")),
    };
    let sql = format!("SELECT {EVENT} FROM event_log WHERE run_id = '{id}' ORDER BY event_number");
    let mut recorded = Recorded::new(&ids[0]);
    for batch in select(lake, &sql).await? {
        events(&batch).for_each(|event| recorded.add(event));
    }
    if !recorded.has_ended() {
        recorded.is_at_work = at_work(lake).await.contains(&ids[0]);
    }
    Ok(Some(recorded))
}

/// The last moment of the schedule of a pipeline that started a run, or that the start of a watch made good. A run that did
/// not end, or failed, has made nothing good.
///
/// # Errors
/// As [`runs`].
pub(crate) async fn last_tick(lake: &Lake, pipeline: &str) -> Result<Option<DateTime<Utc>>> {
    let ticks = format!("SELECT run_id FROM event_log WHERE kind = '{RUN_STARTED}' AND details LIKE '%\"tick\":\"%'");
    let sql = format!(
        "SELECT {EVENT} FROM event_log WHERE kind IN ('{RUN_STARTED}', '{RUN_ENDED}') AND run_id IN ({ticks}) \
         ORDER BY at DESC LIMIT {TICKS_LOOKED_AT}"
    );
    let (mut ticks, mut done) = (Vec::new(), BTreeSet::new());
    for batch in select(lake, &sql).await? {
        for event in events(&batch) {
            if event.kind == RUN_ENDED {
                if event.details["exit_code"] == 0 {
                    done.insert(event.run);
                }
            } else if event.details["name"] == pipeline {
                let tick = event.details["trigger"]["tick"].as_str().and_then(|tick| tick.parse().ok());
                ticks.extend(tick.map(|tick: DateTime<Utc>| (event.run, tick)));
            }
        }
    }
    Ok(ticks.into_iter().filter(|(run, _)| done.contains(run)).map(|(_, tick)| tick).max())
}

/// The last end of each task, by its name.
///
/// # Errors
/// As [`runs`].
pub(crate) async fn last_of_tasks(lake: &Lake) -> Result<BTreeMap<String, Event>> {
    let ranked = format!(
        "SELECT *, row_number() OVER (PARTITION BY task ORDER BY at DESC, event_number DESC) AS place FROM event_log \
         WHERE kind = '{TASK_ENDED}'"
    );
    let mut last = BTreeMap::new();
    for batch in select(lake, &format!("SELECT {EVENT} FROM ({ranked}) WHERE place = 1")).await? {
        last.extend(events(&batch).filter_map(|event| Some((event.task.clone()?, event))));
    }
    Ok(last)
}

/// When files of a table were last removed that nothing needed: by `vacuum`, which tells of all tables at once, or by the
/// upkeep of one.
///
/// # Errors
/// As [`runs`].
pub(crate) async fn last_upkeep(lake: &Lake, table: &str) -> Result<Option<DateTime<Utc>>> {
    let table = table.replace('\'', "''");
    let sql = format!(
        "SELECT {EVENT} FROM event_log WHERE (kind = 'vacuum' AND details LIKE '%\"{table}\":%') \
         OR (kind = 'maintenance' AND task = '{table}' AND message LIKE '%removed,%') ORDER BY at DESC LIMIT 1"
    );
    let batches = select(lake, &sql).await?;
    Ok(batches.iter().flat_map(events).next().and_then(|event| event.at))
}

/// The runs that began last, the last one first.
fn newest_runs(limit: usize) -> String {
    let begins = format!("SELECT run_id, min(at) AS began FROM event_log WHERE kind = '{RUN_STARTED}' GROUP BY run_id");
    // The order stands beside the limit: that of a subquery is none.
    format!("SELECT run_id FROM ({begins}) ORDER BY began DESC, run_id DESC LIMIT {limit}")
}

/// The runs that hold a lease. Where that cannot be known, none.
async fn at_work(lake: &Lake) -> BTreeSet<String> {
    let holders = Lease::holders(lake).await.unwrap_or_default();
    holders.into_iter().map(|holder| holder.run).collect()
}

/// The list for a person.
pub(crate) fn list_text(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "no runs yet\n".to_owned();
    }
    let mut grid = Grid::new();
    grid.column("run", None, Align::Left, lines.iter().map(|line| line.run.clone()));
    let started = |line: &Line| line.started_at.map(|at| at.format("%m-%d %H:%M").to_string()).unwrap_or_default();
    // The year stands in the name of the run.
    grid.column("start (UTC)", None, Align::Left, lines.iter().map(started));
    grid.column("status", None, Align::Left, lines.iter().map(Line::word));
    if lines.iter().any(|line| line.attempts > 1) {
        grid.column("attempts", Some("att."), Align::Right, lines.iter().map(|line| line.attempts.to_string()));
    }
    grid.column("tasks", None, Align::Right, lines.iter().map(|line| line.tasks.to_string()));
    grid.column("rows in", None, Align::Right, lines.iter().map(|line| thousands(line.rows_in)));
    let time = |line: &Line| line.seconds().map_or("-".to_owned(), |s| duration(Duration::from_secs_f64(s)));
    grid.column("time", None, Align::Right, lines.iter().map(time));
    grid.render(WIDTH)
}

/// The list for a program: an array of objects.
pub(crate) fn list_json(lines: &[Line]) -> Value {
    let object = |line: &Line| {
        json!({
            "run_id": line.run,
            "started_at": line.started_at.map(|at| at.to_rfc3339_opts(SecondsFormat::Micros, true)),
            "status": line.status(),
            "seconds": line.seconds(),
            "attempts": line.attempts,
            "tasks": line.tasks,
            "rows_in": line.rows_in,
            "quarantined": line.end.as_ref().map(|end| end["quarantined"].clone()),
            "refused_files": line.end.as_ref().map(|end| end["refused_files"].clone()),
        })
    };
    lines.iter().map(object).collect()
}

impl Line {
    fn new(run: &str) -> Self {
        let (started_at, end) = (None, None);
        Self {
            run: run.to_owned(),
            started_at,
            end,
            is_at_work: false,
            attempts: 0,
            tasks: 0,
            rows_in: 0,
            seconds: 0.0,
        }
    }

    fn starts(&mut self, event: &Event) {
        self.attempts += 1;
        self.end = None;
        if self.attempts == 1 {
            self.started_at = event.at;
            self.tasks = event.details["tasks"].as_array().map_or(0, |tasks| tasks.len() as u64);
        }
    }

    fn ends(&mut self, details: Value) {
        self.rows_in += details["rows_in"].as_u64().unwrap_or(0);
        self.seconds += details["seconds"].as_f64().filter(|seconds| *seconds >= 0.0).unwrap_or(0.0);
        self.end = Some(details);
    }

    /// The status for a person: a run of which only files were refused did not fail.
    fn word(&self) -> String {
        let count = |key: &str| self.end.as_ref().and_then(|end| end[key].as_u64()).unwrap_or(0);
        match (self.status(), count("tasks_failed") + count("tasks_skipped"), count("refused_files")) {
            ("failed", 0, 1..) => "refused".to_owned(),
            (status, ..) => status.replace('_', " "),
        }
    }

    /// A run without an end is still at work, or was killed.
    fn status(&self) -> &str {
        let ended = self.end.as_ref().and_then(|end| end["status"].as_str());
        ended.unwrap_or(if self.is_at_work { "at_work" } else { "unfinished" })
    }

    fn seconds(&self) -> Option<f64> {
        self.end.as_ref().map(|_| self.seconds)
    }
}

/// One event of the event log.
#[derive(Debug)]
pub(crate) struct Event {
    /// Its run.
    pub(crate) run: String,
    /// What it is.
    pub(crate) kind: String,
    /// When it was.
    pub(crate) at: Option<DateTime<Utc>>,
    /// The task that it is about.
    pub(crate) task: Option<String>,
    /// Its number in the run, from 1 on.
    pub(crate) number: i64,
    /// What goes with its kind.
    pub(crate) details: Value,
}

/// The columns that [`events`] reads.
const EVENT: &str = "run_id, kind, at, details, task, event_number";

/// The rows of a query over the event log as `event_log`; none when there is no event log.
async fn select(lake: &Lake, sql: &str) -> Result<Vec<RecordBatch>> {
    let Some(log) = lake.table(&TableName::event_log()).await? else { return Ok(Vec::new()) };
    let session = lake.session()?;
    session.register_as("event_log", session.provider(&log).await?)?;
    Ok(session.sql(sql).await?.collect().await?)
}

/// The rows of [`EVENT`].
fn events(batch: &RecordBatch) -> impl Iterator<Item = Event> {
    let text = |column: usize, row: usize| batch.column(column).as_string::<i32>().value(row).to_owned();
    let times = batch.column(2).as_primitive::<TimestampMicrosecondType>();
    (0..batch.num_rows()).map(move |row| Event {
        run: text(0, row),
        kind: text(1, row),
        at: times.is_valid(row).then(|| DateTime::from_timestamp_micros(times.value(row))).flatten(),
        details: serde_json::from_str(&text(3, row)).unwrap_or(Value::Null),
        task: batch.column(4).is_valid(row).then(|| text(4, row)),
        number: batch.column(5).as_primitive::<Int64Type>().value(row),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_tells_runs_that_never_ended() {
        let at = "2024-05-01T10:15:00Z".parse().ok();
        let end = json!({"status": "up_to_date", "seconds": 0.12, "quarantined": 0});
        let line = |run: &str, end: Option<Value>| {
            let (seconds, rows_in) = (0.12, 5_104);
            Line { started_at: at, end, attempts: 1, tasks: 6, rows_in, seconds, ..Line::new(run) }
        };
        let mut lines = [line("20240501T101500-1f2e3d4c", Some(end)), line("20240501T101500-0a0b0c0d", None)];
        assert_eq!(
            list_text(&lines),
            "\
run                       start (UTC)  status      tasks  rows in    time
20240501T101500-1f2e3d4c  05-01 10:15  up to date      6    5,104  0.12 s
20240501T101500-0a0b0c0d  05-01 10:15  unfinished      6    5,104       -
"
        );
        lines[1].is_at_work = true;
        lines[1].attempts = 2;
        assert!(list_text(&lines).contains("at work        2      6    5,104       -\n"), "{}", list_text(&lines));
        let json = list_json(&lines);
        assert_eq!((json[0]["status"].as_str(), json[1]["seconds"].is_null()), (Some("up_to_date"), true));
        let ended = json!({"status": "failed", "seconds": 1.0, "tasks_failed": 0, "refused_files": 1});
        let refused = [line("20240501T101500-1f2e3d4c", Some(ended))];
        assert!(list_text(&refused).contains("  refused  "), "{}", list_text(&refused));
        assert_eq!(list_json(&refused)[0]["status"], "failed", "as the exit code says");
        assert_eq!(list_text(&[]), "no runs yet\n");
    }
}
