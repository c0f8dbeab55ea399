//! Tells people and programs how a run ended, as `notifications` of the spec asks for. A receiver that cannot be told is
//! reported, and changes nothing about the run.

mod command;
mod webhook;

use lake::events::{Events, Level};
use lake::report::{RunSummary, TaskStatus, many};
use lake::spec::{Notification, Notifications};
use lake::{Clock, secrets};
use serde_json::{Value, json};

use crate::spec::Project;

/// A receiver was told. Details: `event`, `receiver`, `attempts`.
const SENT: &str = "notification_sent";
/// A receiver could not be told. Details: the same, and `error`.
const FAILED: &str = "notification_failed";

/// What happened, as receivers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Failure,
    Success,
    Quarantine,
}

/// What came of telling one receiver.
struct Told {
    attempts: u32,
    /// Why it could not be told.
    error: Option<String>,
}

impl Event {
    fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Success => "success",
            Self::Quarantine => "quarantine",
        }
    }
}

/// Tells all receivers of what a run came to, and notes in `events` whether they were; true when there were any.
pub(crate) async fn tell(project: &Project, summary: &RunSummary, events: &Events, clock: &Clock) -> bool {
    let due = due(&project.header.notifications, summary);
    for (event, index, receiver) in &due {
        let body = body(project, summary, *event).to_string();
        let told = match &receiver.webhook {
            Some(url) => webhook::post(url, receiver, *event, summary, &body, clock).await,
            None => command::run(receiver, &project.folder, *event, &body, clock).await,
        };
        let kind = if receiver.webhook.is_some() { "webhook" } else { "command" };
        let name = format!("notifications.on_{}[{index}]", event.as_str());
        let details = json!({
            "event": event.as_str(),
            "receiver": name,
            "by": kind,
            "attempts": told.attempts,
            "error": told.error,
        });
        match told.error {
            None => events.record(None, SENT, Level::Info, format!("{name}: told by {kind}"), details),
            Some(error) => {
                let error = secrets::redacted(&error).into_owned();
                tracing::error!("{name} could not be told by its {kind}: {error}");
                let message = format!("{name} could not be told by its {kind}: {error}");
                events.record(None, FAILED, Level::Warning, message, details);
            }
        }
    }
    !due.is_empty()
}

/// The receivers that want to know of a run. A run with nothing to do tells nobody.
fn due<'n>(notifications: &'n Notifications, summary: &RunSummary) -> Vec<(Event, usize, &'n Notification)> {
    let status = summary.status();
    let lists = [
        (Event::Failure, &notifications.on_failure, status == TaskStatus::Failed),
        (Event::Success, &notifications.on_success, status == TaskStatus::Succeeded),
        (Event::Quarantine, &notifications.on_quarantine, summary.quarantined() > 0),
    ];
    let due = lists.into_iter().filter(|(_, _, is_due)| *is_due);
    due.flat_map(|(event, list, _)| list.iter().enumerate().map(move |(index, one)| (event, index, one))).collect()
}

/// What receivers get. `text` is what chat programs show.
fn body(project: &Project, summary: &RunSummary, event: Event) -> Value {
    let failed: Vec<String> = summary
        .tasks
        .iter()
        .filter(|task| task.status == TaskStatus::Failed)
        .map(|task| match &task.error {
            Some(error) => format!("{}: {error}", task.task),
            None => task.task.to_string(),
        })
        .collect();
    let run = &summary.run;
    let name = &project.header.name;
    let text = match event {
        Event::Failure if failed.is_empty() => format!("{name}: run {run} did not do everything"),
        Event::Failure => format!("{name}: run {run} failed: {}", failed.join("; ")),
        Event::Success => format!("{name}: run {run} is done, {} in", many(summary.rows_in(), "row")),
        Event::Quarantine => {
            format!("{name}: {} of run {run} went to quarantine", many(summary.quarantined(), "record"))
        }
    };
    let mut told = summary.to_json();
    if let Some(told) = told.as_object_mut() {
        told.insert("rows_in".to_owned(), json!(summary.rows_in()));
        told.insert("quarantined".to_owned(), json!(summary.quarantined()));
    }
    json!({"event": event.as_str(), "pipeline": name, "text": secrets::redacted(&text), "run": told})
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::DateTime;
    use lake::report::{TaskOutcome, TaskReport};
    use lake::{Error, TableName};

    use super::*;

    fn summary(tasks: Vec<TaskOutcome>) -> RunSummary {
        RunSummary {
            run: "20240501T000000-1".to_owned(),
            spec: "pipelines.yaml".to_owned(),
            started_at: DateTime::UNIX_EPOCH,
            elapsed: Duration::ZERO,
            tasks,
        }
    }

    fn events(summary: &RunSummary) -> Vec<&'static str> {
        let one = || vec![Notification::default()];
        let all = Notifications { on_failure: one(), on_success: one(), on_quarantine: one() };
        due(&all, summary).into_iter().map(|(event, ..)| event.as_str()).collect()
    }

    #[test]
    fn receivers_are_told_of_what_they_asked_for() {
        let table = || TableName::silver("orders");
        let idle = TaskOutcome::done(TaskReport::up_to_date(table(), Some(1)), 1, Duration::ZERO);
        assert_eq!(events(&summary(vec![idle])), Vec::<&str>::new());
        let failed = TaskOutcome::failed(table(), Error::internal("x"), 1, Duration::ZERO);
        assert_eq!(events(&summary(vec![failed])), ["failure"]);
        let mut report = TaskReport::up_to_date(table(), Some(1));
        report.state = lake::report::TaskState::Changed;
        report.figures.quarantined = 2;
        let changed = TaskOutcome::done(report, 1, Duration::ZERO);
        assert_eq!(events(&summary(vec![changed])), ["success", "quarantine"]);
    }
}
