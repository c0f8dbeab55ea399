//! The observer that notes a run in the event log.

use std::time::Duration;

use lake::events::{Events, Level};
use lake::report::{TaskOutcome, TaskStatus, error_json, record};
use lake::run::Meter;
use lake::{Error, TableName};
use serde_json::json;
use tokio::sync::oneshot;

use super::dispatcher::Observer;

/// A task is started.
const TASK_STARTED: &str = "task_started";
/// An attempt failed and another follows. Details: `attempt`, `wait_seconds`, `error`.
const TASK_RETRIED: &str = "task_retried";
/// The run was asked to stop. Details: `running`, the number of tasks at work.
const RUN_STOPPING: &str = "run_stopping";

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
        record::task_ended(&self.events, outcome);
        if outcome.status == TaskStatus::Succeeded
            && let Some(tell) = self.changed.take()
        {
            // Nobody listens any more when the run is over; its end is recorded then.
            let _ = tell.send(());
        }
    }

    fn stopping(&mut self, running: usize) {
        self.events.record(None, RUN_STOPPING, Level::Warning, "asked to stop", json!({"running": running}));
    }
}
