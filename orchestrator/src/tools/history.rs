//! Earlier runs, read from the event log.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use chrono::{DateTime, SecondsFormat, Utc};
use lake::report::grid::{Align, Grid};
use lake::report::record::{RUN_ENDED, RUN_STARTED, TASK_ENDED};
use lake::report::{WIDTH, duration, thousands};
use lake::{Lake, Result, TableName};
use serde_json::{Value, json};

use super::record::Recorded;

/// One line of the list of runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    run: String,
    started_at: Option<DateTime<Utc>>,
    /// What the run said of itself at its end; nothing when it has not ended.
    end: Option<Value>,
    tasks: u64,
    rows_in: u64,
}

/// The newest runs, newest first.
///
/// # Errors
/// [`lake::ErrorKind::Store`] or [`lake::ErrorKind::Table`] when the event log cannot be read.
pub(crate) async fn runs(lake: &Lake, limit: usize) -> Result<Vec<Line>> {
    let newest = format!(
        "SELECT run_id FROM event_log WHERE kind = '{RUN_STARTED}' ORDER BY at DESC, run_id DESC LIMIT {limit}"
    );
    let sql = format!(
        "SELECT run_id, kind, at, details FROM event_log \
         WHERE kind IN ('{RUN_STARTED}', '{RUN_ENDED}') AND run_id IN ({newest})"
    );
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for batch in select(lake, &sql).await? {
        for event in events(&batch) {
            let line = lines.entry(event.run.clone()).or_insert_with(|| Line {
                run: event.run.clone(),
                started_at: None,
                end: None,
                tasks: 0,
                rows_in: 0,
            });
            if event.kind == RUN_STARTED {
                line.started_at = event.at;
                line.tasks = event.details["tasks"].as_array().map_or(0, |tasks| tasks.len() as u64);
            } else {
                line.rows_in = event.details["rows_in"].as_u64().unwrap_or(0);
                line.end = Some(event.details);
            }
        }
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    lines.sort_by(|a, b| b.started_at.cmp(&a.started_at).then_with(|| b.run.cmp(&a.run)));
    Ok(lines)
}

/// One run by its id, the beginning of it, or `last`. `None` when there is no such run.
///
/// # Errors
/// As [`runs`], and [`lake::ErrorKind::Spec`] when several runs begin so.
pub(crate) async fn run(lake: &Lake, wanted: &str) -> Result<Option<Recorded>> {
    let text = wanted.replace('\'', "''");
    let chosen = match wanted {
        "last" => {
            format!("SELECT run_id FROM event_log WHERE kind = '{RUN_STARTED}' ORDER BY at DESC, run_id DESC LIMIT 1")
        }
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
    let sql = format!(
        "SELECT run_id, kind, at, details FROM event_log \
         WHERE kind IN ('{RUN_STARTED}', '{RUN_ENDED}', '{TASK_ENDED}') AND run_id = '{id}' ORDER BY event_number"
    );
    let mut recorded = Recorded::new(&ids[0]);
    for batch in select(lake, &sql).await? {
        for event in events(&batch) {
            match event.kind.as_str() {
                RUN_STARTED => recorded.started(event.at, event.details),
                TASK_ENDED => recorded.task(event.details),
                _ => recorded.ended(event.details),
            }
        }
    }
    Ok(Some(recorded))
}

/// The list for a person.
pub(crate) fn list_text(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "no runs yet\n".to_owned();
    }
    let mut grid = Grid::new();
    grid.column("run", None, Align::Left, lines.iter().map(|line| line.run.clone()));
    let started = |line: &Line| line.started_at.map(|at| at.format("%Y-%m-%d %H:%M").to_string()).unwrap_or_default();
    grid.column("started (UTC)", None, Align::Left, lines.iter().map(started));
    grid.column("status", None, Align::Left, lines.iter().map(|line| line.status().replace('_', " ")));
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
            "tasks": line.tasks,
            "rows_in": line.rows_in,
            "quarantined": line.end.as_ref().map(|end| end["quarantined"].clone()),
        })
    };
    lines.iter().map(object).collect()
}

impl Line {
    /// A run without an end is still at work, or was killed.
    fn status(&self) -> &str {
        self.end.as_ref().and_then(|end| end["status"].as_str()).unwrap_or("unfinished")
    }

    fn seconds(&self) -> Option<f64> {
        self.end.as_ref()?["seconds"].as_f64().filter(|seconds| *seconds >= 0.0)
    }
}

struct Event {
    run: String,
    kind: String,
    at: Option<DateTime<Utc>>,
    details: Value,
}

/// The rows of a query over the event log as `event_log`; none when there is no event log.
async fn select(lake: &Lake, sql: &str) -> Result<Vec<RecordBatch>> {
    let Some(log) = lake.table(&TableName::event_log()).await? else { return Ok(Vec::new()) };
    let session = lake.session()?;
    session.register_as("event_log", session.provider(&log).await?)?;
    Ok(session.sql(sql).await?.collect().await?)
}

/// The rows of `run_id, kind, at, details`.
fn events(batch: &RecordBatch) -> impl Iterator<Item = Event> {
    let text = |column: usize, row: usize| batch.column(column).as_string::<i32>().value(row).to_owned();
    let times = batch.column(2).as_primitive::<TimestampMicrosecondType>();
    (0..batch.num_rows()).map(move |row| Event {
        run: text(0, row),
        kind: text(1, row),
        at: times.is_valid(row).then(|| DateTime::from_timestamp_micros(times.value(row))).flatten(),
        details: serde_json::from_str(&text(3, row)).unwrap_or(Value::Null),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_tells_runs_that_never_ended() {
        let at = "2024-05-01T10:15:00Z".parse().ok();
        let end = json!({"status": "up_to_date", "seconds": 0.12, "quarantined": 0});
        let line = |run: &str, end| Line { run: run.to_owned(), started_at: at, end, tasks: 6, rows_in: 5_104 };
        let lines = [line("20240501T101500-1f2e3d4c", Some(end)), line("20240501T101500-0a0b0c0d", None)];
        assert_eq!(
            list_text(&lines),
            "\
run                       started (UTC)     status      tasks  rows in    time
20240501T101500-1f2e3d4c  2024-05-01 10:15  up to date      6    5,104  0.12 s
20240501T101500-0a0b0c0d  2024-05-01 10:15  unfinished      6    5,104       -
"
        );
        let json = list_json(&lines);
        assert_eq!((json[0]["status"].as_str(), json[1]["seconds"].is_null()), (Some("up_to_date"), true));
        assert_eq!(list_text(&[]), "no runs yet\n");
    }
}
