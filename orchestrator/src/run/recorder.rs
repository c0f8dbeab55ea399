//! The observer that notes a run in the event log.

use std::time::Duration;

use chrono::TimeDelta;
use lake::events::{Events, Level};
use lake::report::{TaskOutcome, TaskStatus, error_json, record};
use lake::run::Meter;
use lake::{Error, Lake, Result, TableName};
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::dispatcher::Observer;

/// A task is started.
pub(crate) const TASK_STARTED: &str = "task_started";
/// An attempt failed and another follows. Details: `attempt`, `wait_seconds`, `error`.
const TASK_RETRIED: &str = "task_retried";
/// The run was asked to stop. Details: `running`, the number of tasks at work.
const RUN_STOPPING: &str = "run_stopping";

/// Between two writes of events while a run is at work, at least: a run that is killed may lose what ended since.
const APART: TimeDelta = TimeDelta::seconds(1);

/// Notes what it sees as events of the run.
pub(crate) struct Recorder {
    events: Events,
    /// Told when there is something that should outlive the process; gone when nothing more will come.
    news: Option<UnboundedSender<()>>,
    /// True once something was told: until then nothing has changed, and the end of the run is all there is to write.
    is_telling: bool,
}

impl Recorder {
    /// A recorder, and who hears that there are events to write.
    pub(crate) fn new(events: Events) -> (Self, UnboundedReceiver<()>) {
        let (tell, heard) = mpsc::unbounded_channel();
        (Self { events, news: Some(tell), is_telling: false }, heard)
    }

    /// Nothing more will come.
    pub(crate) fn close(&mut self) {
        self.news = None;
    }
}

/// Writes the events of a run while it is at work, until there are no more news. What cannot be written is tried again
/// with the next.
pub(crate) async fn write_along(events: &Events, lake: &Lake, mut news: UnboundedReceiver<()>) -> Result<()> {
    let clock = lake.clock();
    let (mut last, mut written) = (None, Ok(()));
    while news.recv().await.is_some() {
        let rest = last.map_or(TimeDelta::zero(), |last| last + APART - clock.now());
        if let Ok(rest) = rest.to_std()
            && !rest.is_zero()
        {
            tokio::select! {
                biased;
                () = until_closed(&mut news) => break,
                () = clock.sleep(rest) => {}
            }
        }
        written = events.flush(lake).await;
        last = Some(clock.now());
    }
    written
}

async fn until_closed(news: &mut UnboundedReceiver<()>) {
    while news.recv().await.is_some() {}
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
        self.is_telling |= matches!(outcome.status, TaskStatus::Succeeded | TaskStatus::Failed);
        if self.is_telling
            && let Some(tell) = &self.news
        {
            // Nobody listens any more when the run is over; its end is written then.
            let _ = tell.send(());
        }
    }

    fn stopping(&mut self, running: usize) {
        self.events.record(None, RUN_STOPPING, Level::Warning, "asked to stop", json!({"running": running}));
    }
}
