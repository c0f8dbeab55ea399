//! The outcome of a task as its event tells it.

use std::time::Duration;

use lake::report::{FailedFile, Figures, TaskOutcome, TaskReport, TaskState, TaskStatus};
use lake::{Error, ErrorKind, TableName};
use serde_json::Value;

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

/// A task from the JSON that its end left in the event log.
pub(super) fn outcome(details: &Value) -> Option<TaskOutcome> {
    let task = TableName::parse(details["task"].as_str()?)?;
    let status = TaskStatus::parse(details["status"].as_str()?)?;
    let report = matches!(status, TaskStatus::Succeeded | TaskStatus::UpToDate).then(|| report(&task, details));
    let bytes = |key: &str| details[key].as_u64().unwrap_or(0);
    Some(TaskOutcome {
        attempts: details["attempts"].as_u64().and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(0),
        elapsed: duration(details["seconds"].as_f64()),
        report,
        error: error(&details["error"]),
        skipped_because: details["skipped_because"].as_str().map(str::to_owned),
        bytes_read: bytes("bytes_read"),
        bytes_written: bytes("bytes_written"),
        ..TaskOutcome::bare(task, status)
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

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn duration(seconds: Option<f64>) -> Duration {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

/// How many files a task refused, by what the event log says of its end.
pub(super) fn refused(details: &Value) -> usize {
    let files = details["failed_files"].as_array().into_iter().flatten();
    files.filter(|file| file["new"] == true).count()
}
