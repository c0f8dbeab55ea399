//! One earlier run as its events tell it: printed as the run itself printed its summary.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use lake::report::{FailedFile, Figures, RunSummary, TaskOutcome, TaskReport, TaskState, TaskStatus};
use lake::{Error, ErrorKind, TableName};
use serde_json::{Value, json};

/// The kinds that an event can name.
const KINDS: [ErrorKind; 9] = [
    ErrorKind::Spec,
    ErrorKind::Data,
    ErrorKind::File,
    ErrorKind::Accounting,
    ErrorKind::Conflict,
    ErrorKind::Store,
    ErrorKind::Table,
    ErrorKind::Query,
    ErrorKind::Internal,
];

/// The events of one run.
#[derive(Debug)]
pub(crate) struct Recorded {
    run: String,
    started_at: Option<DateTime<Utc>>,
    spec: String,
    end: Option<Value>,
    tasks: Vec<Value>,
    /// Tasks that were to run, by the first event.
    planned: Vec<String>,
}

impl Recorded {
    /// A run of which nothing is known yet.
    pub(super) fn new(run: &str) -> Self {
        let (spec, tasks, planned) = (String::new(), Vec::new(), Vec::new());
        Self { run: run.to_owned(), started_at: None, spec, end: None, tasks, planned }
    }

    pub(super) fn started(&mut self, at: Option<DateTime<Utc>>, details: Value) {
        self.started_at = at;
        self.spec = text(&details["spec"]);
        self.planned = details["tasks"].as_array().into_iter().flatten().map(text).collect();
    }

    pub(super) fn task(&mut self, details: Value) {
        self.tasks.push(details);
    }

    pub(super) fn ended(&mut self, details: Value) {
        self.end = Some(details);
    }

    /// The run for a program: what `run --output json` printed.
    pub(crate) fn to_json(&self) -> Value {
        let end = self.end.clone().unwrap_or_default();
        json!({
            "run_id": self.run,
            "spec": self.spec,
            "status": end.get("status").cloned().unwrap_or(json!("unfinished")),
            "exit_code": end.get("exit_code"),
            "started_at": self.started_at.map(|at| at.to_rfc3339_opts(SecondsFormat::Micros, true)),
            "seconds": end.get("seconds"),
            "tasks": self.tasks,
        })
    }

    /// The run for a person.
    pub(crate) fn to_text(&self) -> String {
        let seconds = self.end.as_ref().and_then(|end| end["seconds"].as_f64());
        let mut tasks: Vec<TaskOutcome> = self.tasks.iter().filter_map(outcome).collect();
        let position = |task: &TaskOutcome| self.planned.iter().position(|name| *name == task.task.to_string());
        tasks.sort_by_key(position);
        let summary = RunSummary {
            run: self.run.clone(),
            spec: self.spec.clone(),
            started_at: self.started_at.unwrap_or_default(),
            elapsed: duration(seconds),
            tasks,
        };
        match self.end {
            Some(_) => summary.to_text(),
            None => format!("{}the run has not ended: it is at work, or was killed\n", summary.to_text()),
        }
    }
}

/// A task from the JSON that its end left in the event log.
fn outcome(details: &Value) -> Option<TaskOutcome> {
    let task = TableName::parse(details["task"].as_str()?)?;
    let status = TaskStatus::parse(details["status"].as_str()?)?;
    let report = matches!(status, TaskStatus::Succeeded | TaskStatus::UpToDate).then(|| report(&task, details));
    Some(TaskOutcome {
        task,
        status,
        attempts: details["attempts"].as_u64().and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(0),
        elapsed: duration(details["seconds"].as_f64()),
        report,
        error: error(&details["error"]),
        skipped_because: details["skipped_because"].as_str().map(str::to_owned),
    })
}

fn report(task: &TableName, details: &Value) -> TaskReport {
    let read = details["read_versions"].as_object().into_iter().flatten();
    TaskReport {
        state: TaskState::Changed,
        figures: serde_json::from_value::<Figures>(details.clone()).unwrap_or_default(),
        read: read.filter_map(|(name, version)| Some((TableName::parse(name)?, version.as_u64()?))).collect(),
        failed_files: serde_json::from_value::<Vec<FailedFile>>(details["failed_files"].clone()).unwrap_or_default(),
        notes: details["notes"].as_array().into_iter().flatten().map(text).collect(),
        ..TaskReport::up_to_date(task.clone(), details["version"].as_u64())
    }
}

/// The error with the same words; its causes are texts now.
fn error(details: &Value) -> Option<Error> {
    let message = details["message"].as_str()?;
    let kind = KINDS.into_iter().find(|kind| Some(kind.as_str()) == details["kind"].as_str())?;
    let causes: Vec<String> = details["causes"].as_array().into_iter().flatten().map(text).collect();
    let cause = causes.into_iter().rev().fold(None, |below, text| Some(Box::new(Cause { text, below })));
    let error = Error::new(kind, message);
    let error = match cause {
        Some(cause) => error.with_source(*cause),
        None => error,
    };
    Some(match details["hint"].as_str() {
        Some(hint) => error.hint(hint),
        None => error,
    })
}

#[derive(Debug)]
struct Cause {
    text: String,
    below: Option<Box<Cause>>,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.below.as_deref().map(|below| below as _)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn duration(seconds: Option<f64>) -> Duration {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_reads_back_as_it_was_printed() {
        let figures = Figures { read: 3, applied: 2, stale: 1, ..Figures::default() };
        let orders = TableName::silver("orders");
        let report = TaskReport {
            state: TaskState::Changed,
            figures,
            notes: vec!["a note".to_owned()],
            failed_files: vec![FailedFile { path: "a.csv".to_owned(), reason: "cut".to_owned(), new: true }],
            ..TaskReport::up_to_date(orders.clone(), Some(4))
        };
        let cause = Error::new(ErrorKind::Store, "no answer").with_source(std::io::Error::other("reset"));
        let failed = cause.context("committing silver.web").hint("try again");
        let elapsed = Duration::from_millis(250);
        let summary = RunSummary {
            run: "20240501T101500-1f2e3d4c".to_owned(),
            spec: "pipelines.yaml".to_owned(),
            started_at: "2024-05-01T10:15:00Z".parse().expect("a time"),
            elapsed,
            tasks: vec![
                TaskOutcome::done(report, 2, elapsed),
                TaskOutcome::failed(TableName::silver("web"), failed, 1, elapsed),
                TaskOutcome::skipped(TableName::gold("sales"), "silver.web failed"),
            ],
        };
        let mut recorded = Recorded::new("20240501T101500-1f2e3d4c");
        let planned: Vec<String> = summary.tasks.iter().map(|task| task.task.to_string()).collect();
        recorded.started(Some(summary.started_at), json!({"spec": "pipelines.yaml", "tasks": planned}));
        for task in summary.tasks.iter().rev() {
            recorded.task(task.to_json());
        }
        let unfinished = recorded.to_text();
        assert!(unfinished.ends_with("the run has not ended: it is at work, or was killed\n"), "{unfinished}");
        let mut end = summary.to_json();
        end.as_object_mut().expect("an object").remove("tasks");
        recorded.ended(end);
        assert_eq!(recorded.to_text(), summary.to_text());
        recorded.tasks.reverse();
        assert_eq!(recorded.to_json(), summary.to_json());
    }
}
