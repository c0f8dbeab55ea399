//! The run in the event log: its begin and end, and each task's start, retries and end.

use std::time::Duration;

use lake::events::{Events, Level};
use lake::report::{RunSummary, TaskOutcome, TaskStatus, error_json};
use lake::run::Meter;
use lake::{Error, TableName};
use serde_json::json;
use tokio::sync::oneshot;

use super::dispatcher::Observer;

/// A run begins. Details: `spec`, `name`, `tasks`, `selected`, `program`.
pub(crate) const RUN_STARTED: &str = "run_started";
/// A run ends. Details: those of the summary without the tasks, and how many tasks ended how.
pub(crate) const RUN_ENDED: &str = "run_ended";
/// A task is started.
pub(crate) const TASK_STARTED: &str = "task_started";
/// An attempt failed and another follows. Details: `attempt`, `wait_seconds`, `error`.
pub(crate) const TASK_RETRIED: &str = "task_retried";
/// A task ended or was skipped. Details: the task as in the JSON summary.
pub(crate) const TASK_ENDED: &str = "task_ended";
/// The run was asked to stop.
pub(crate) const RUN_STOPPING: &str = "run_stopping";

/// Notes what it sees as events of the run.
pub(crate) struct Recorder {
    events: Events,
    /// Told once when there is something that should outlive the process: a table was changed.
    changed: Option<oneshot::Sender<()>>,
}

impl Recorder {
    /// A recorder, and who hears when the first task has changed its table.
    pub(crate) fn new(events: Events) -> (Self, oneshot::Receiver<()>) {
        let (tell, heard) = oneshot::channel();
        (Self { events, changed: Some(tell) }, heard)
    }

    /// Nothing more will change.
    pub(crate) fn close(&mut self) {
        self.changed = None;
    }

    /// Notes the begin of the run.
    pub(crate) fn begin(&self, name: &str, spec: &str, tasks: &[String], selected: bool) {
        let details = json!({
            "name": name,
            "spec": spec,
            "tasks": tasks,
            "selected": selected,
            "program": env!("CARGO_PKG_VERSION"),
        });
        self.events.record(None, RUN_STARTED, Level::Info, format!("run of {} tasks", tasks.len()), details);
    }

    /// Notes the end of the run.
    pub(crate) fn end(&self, summary: &RunSummary) {
        let mut details = summary.to_json();
        if let Some(object) = details.as_object_mut() {
            object.remove("tasks");
            object.insert("rows_in".into(), json!(summary.rows_in()));
            object.insert("quarantined".into(), json!(summary.quarantined()));
            object.insert("task_count".into(), json!(summary.tasks.len()));
            for status in [TaskStatus::Succeeded, TaskStatus::UpToDate, TaskStatus::Failed, TaskStatus::Skipped] {
                object.insert(format!("tasks_{}", status.as_str()), json!(summary.count(status)));
            }
        }
        let level = if summary.exit_code() == lake::report::EXIT_DONE { Level::Info } else { Level::Error };
        self.events.record(None, RUN_ENDED, level, summary.status().as_str(), details);
    }
}

impl Observer for Recorder {
    fn started(&mut self, task: &TableName, _: &Meter) {
        self.events.record(Some(&task.to_string()), TASK_STARTED, Level::Info, "started", json!({}));
    }

    fn retrying(&mut self, task: &TableName, attempt: u32, wait: Duration, error: &Error) {
        let details = json!({"attempt": attempt, "wait_seconds": wait.as_secs_f64(), "error": error_json(error)});
        self.events.record(Some(&task.to_string()), TASK_RETRIED, Level::Warning, error.to_string(), details);
    }

    fn ended(&mut self, outcome: &TaskOutcome) {
        if outcome.status == TaskStatus::Succeeded
            && let Some(tell) = self.changed.take()
        {
            // Nobody listens any more when the run is over; its end is recorded then.
            let _ = tell.send(());
        }
        let (level, message) = match (&outcome.error, &outcome.skipped_because) {
            (Some(error), _) => (Level::Error, error.to_string()),
            (None, Some(because)) => (Level::Warning, format!("skipped: {because}")),
            (None, None) if outcome.refused_files() => (Level::Warning, outcome.status.as_str().to_owned()),
            (None, None) => (Level::Info, outcome.status.as_str().to_owned()),
        };
        self.events.record(Some(&outcome.task.to_string()), TASK_ENDED, level, message, outcome.to_json());
    }

    fn stopping(&mut self, running: usize) {
        self.events.record(None, RUN_STOPPING, Level::Warning, "asked to stop", json!({"running": running}));
    }
}
