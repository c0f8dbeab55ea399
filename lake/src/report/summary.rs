//! The answer of a whole run: what became of each task, as a program reads it and as the exit code says it.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::{Figures, TaskReport, TaskState};
use crate::error::Error;
use crate::names::TableName;
use crate::secrets;

/// Everything was done, or there was nothing to do.
pub const EXIT_DONE: u8 = 0;
/// A task failed, or a file was refused; all else was done.
pub const EXIT_FAILED: u8 = 1;
/// The request or the spec is wrong; nothing was run.
pub const EXIT_USAGE: u8 = 2;

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// It changed its table.
    Succeeded,
    /// There was nothing new for it.
    UpToDate,
    /// It failed, after all its attempts.
    Failed,
    /// It was not started: a task that it needs failed, or the run was stopped.
    Skipped,
    /// It was not started, and that is right: its `run_if` asks for something that did not happen.
    Excluded,
}

/// One task of a run.
#[derive(Debug)]
pub struct TaskOutcome {
    /// The table that the task writes, and the name of the task.
    pub task: TableName,
    /// What became of it.
    pub status: TaskStatus,
    /// How often it was started.
    pub attempts: u32,
    /// From its first start to its end.
    pub elapsed: Duration,
    /// What it answered, when it ended well; what it had done until then, when it failed and knows.
    pub report: Option<TaskReport>,
    /// Why it failed.
    pub error: Option<Error>,
    /// Why it was not started: `silver.orders failed`.
    pub skipped_because: Option<String>,
    /// Bytes of the files that it read from the landing zone.
    pub bytes_read: u64,
    /// Bytes of the data files that it committed.
    pub bytes_written: u64,
}

/// A run with its tasks, in the order in which they are shown.
#[derive(Debug)]
pub struct RunSummary {
    /// The id of the run.
    pub run: String,
    /// The spec, as the user named it.
    pub spec: String,
    /// When the run began.
    pub started_at: DateTime<Utc>,
    /// From its begin to its end.
    pub elapsed: Duration,
    /// Its tasks.
    pub tasks: Vec<TaskOutcome>,
}

impl TaskStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Succeeded, Self::UpToDate, Self::Failed, Self::Skipped, Self::Excluded];

    /// The word for JSON and the event log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::UpToDate => "up_to_date",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Excluded => "excluded",
        }
    }

    /// Reads the word of [`as_str`](Self::as_str).
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

impl TaskOutcome {
    /// The outcome of a task that ended well.
    pub fn done(report: TaskReport, attempts: u32, elapsed: Duration) -> Self {
        let status = match report.state {
            TaskState::Changed => TaskStatus::Succeeded,
            TaskState::UpToDate => TaskStatus::UpToDate,
        };
        let task = report.table.clone();
        Self { attempts, elapsed, report: Some(report), ..Self::bare(task, status) }
    }

    /// The outcome of a task that failed.
    pub fn failed(task: TableName, error: Error, attempts: u32, elapsed: Duration) -> Self {
        Self { attempts, elapsed, error: Some(error), ..Self::bare(task, TaskStatus::Failed) }
    }

    /// The outcome of a task that was not started.
    pub fn skipped(task: TableName, because: impl Into<String>) -> Self {
        Self { skipped_because: Some(because.into()), ..Self::bare(task, TaskStatus::Skipped) }
    }

    /// The outcome of a task that was not started because its condition is not met, which is no failure.
    pub fn excluded(task: TableName, because: impl Into<String>) -> Self {
        Self { skipped_because: Some(because.into()), ..Self::bare(task, TaskStatus::Excluded) }
    }

    /// An outcome that tells nothing but the status.
    pub fn bare(task: TableName, status: TaskStatus) -> Self {
        let (attempts, elapsed, bytes_read, bytes_written) = (0, Duration::ZERO, 0, 0);
        let (report, error, skipped_because) = (None, None, None);
        Self { task, status, attempts, elapsed, report, error, skipped_because, bytes_read, bytes_written }
    }

    /// What became of its rows; zeros when it did not end well and does not know.
    pub fn figures(&self) -> Figures {
        self.report.as_ref().map(|report| report.figures).unwrap_or_default()
    }

    /// True when this run refused a file of it.
    pub fn refused_files(&self) -> bool {
        self.refused() > 0
    }

    /// How many files of it this run refused.
    pub fn refused(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.failed_files.iter().filter(|file| file.new).count())
    }

    /// The task as JSON, with a key for each figure.
    pub fn to_json(&self) -> Value {
        let report = self.report.as_ref();
        let mut object = Map::new();
        object.insert("task".into(), json!(self.task.to_string()));
        object.insert("status".into(), json!(self.status.as_str()));
        object.insert("attempts".into(), json!(self.attempts));
        if let Ok(Value::Object(figures)) = serde_json::to_value(self.figures()) {
            object.extend(figures);
        }
        let read: Map<String, Value> = report
            .map(|report| report.read.iter().map(|(table, version)| (table.to_string(), json!(version))).collect())
            .unwrap_or_default();
        object.insert("version".into(), json!(report.and_then(|report| report.version)));
        object.insert("read_versions".into(), Value::Object(read));
        object.insert("bytes_read".into(), json!(self.bytes_read));
        object.insert("bytes_written".into(), json!(self.bytes_written));
        object.insert("seconds".into(), json!(seconds(self.elapsed)));
        object.insert("failed_files".into(), json!(report.map(|report| &report.failed_files[..]).unwrap_or_default()));
        object.insert("notes".into(), json!(report.map(|report| &report.notes[..]).unwrap_or_default()));
        object.insert("skipped_because".into(), json!(self.skipped_because));
        object.insert("error".into(), self.error.as_ref().map_or(Value::Null, error_json));
        let mut told = Value::Object(object);
        secrets::redact_json(&mut told);
        told
    }
}

impl RunSummary {
    /// `failed` when the exit code is not 0, `up_to_date` when no task changed anything, else `succeeded`.
    pub fn status(&self) -> TaskStatus {
        if self.exit_code() != EXIT_DONE {
            TaskStatus::Failed
        } else if !self.tasks.iter().any(|task| task.status == TaskStatus::Succeeded) {
            TaskStatus::UpToDate
        } else {
            TaskStatus::Succeeded
        }
    }

    /// [`EXIT_FAILED`] when a task failed or was skipped, or this run refused a file; else [`EXIT_DONE`].
    pub fn exit_code(&self) -> u8 {
        let failed = |task: &TaskOutcome| {
            matches!(task.status, TaskStatus::Failed | TaskStatus::Skipped) || task.refused_files()
        };
        if self.tasks.iter().any(failed) { EXIT_FAILED } else { EXIT_DONE }
    }

    /// How many tasks ended so.
    pub fn count(&self, status: TaskStatus) -> usize {
        self.tasks.iter().filter(|task| task.status == status).count()
    }

    /// How many files this run refused.
    pub fn refused(&self) -> usize {
        self.tasks.iter().map(TaskOutcome::refused).sum()
    }

    /// How many files stay refused that an earlier run refused.
    pub fn still_refused(&self) -> usize {
        let files = self.tasks.iter().filter_map(|task| task.report.as_ref()).flat_map(|report| &report.failed_files);
        files.filter(|file| !file.new).count()
    }

    /// Rows that came into the first layer of the run: what the others read are the same rows again.
    pub fn rows_in(&self) -> u64 {
        let first = self.tasks.iter().map(|task| task.task.layer).min();
        self.tasks.iter().filter(|task| Some(task.task.layer) == first).map(|task| task.figures().read).sum()
    }

    /// Rows that went into quarantine, from any layer.
    pub fn quarantined(&self) -> u64 {
        self.tasks.iter().map(|task| task.figures().quarantined).sum()
    }

    /// The whole run as one JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "run_id": self.run,
            "spec": self.spec,
            "status": self.status().as_str(),
            "exit_code": self.exit_code(),
            "started_at": self.started_at.to_rfc3339_opts(SecondsFormat::Micros, true),
            "seconds": seconds(self.elapsed),
            "tasks": self.tasks.iter().map(TaskOutcome::to_json).collect::<Vec<_>>(),
        })
    }
}

/// An error as JSON: `{"kind", "message", "causes", "hint"}`.
pub fn error_json(error: &Error) -> Value {
    let mut told = json!({
        "kind": error.kind().as_str(),
        "message": error.to_string(),
        "causes": error.causes(),
        "hint": error.hint_text(),
    });
    secrets::redact_json(&mut told);
    told
}

/// Seconds to the millisecond.
fn seconds(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 1_000.0).round() / 1_000.0
}
