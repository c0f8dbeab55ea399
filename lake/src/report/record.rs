//! A run in the event log: its begin, its end, and what its tasks came to. Every program that runs tasks notes these.

use chrono::NaiveDate;
use serde_json::{Value, json};

use super::render::counted;
use super::summary::{EXIT_DONE, RunSummary, TaskOutcome, TaskStatus};
use crate::events::{Events, Level};

/// A run, or another attempt of it, begins. Details: `name`, `spec`, `tasks`, `program`, `attempt` from 1 on,
/// `full_refresh`, the tasks whose tables are made anew, `date`, the day that snapshots record, and `trigger`.
pub const RUN_STARTED: &str = "run_started";
/// A run ends. Details: those of the summary without the tasks, and how many tasks ended how.
pub const RUN_ENDED: &str = "run_ended";
/// A task ended or was skipped. Details: the task as in the JSON summary.
pub const TASK_ENDED: &str = "task_ended";

/// A run, or an attempt of one, that begins.
#[derive(Debug, Clone)]
pub struct Attempt<'a> {
    /// The program that runs it.
    pub program: &'a str,
    /// The name of the pipeline.
    pub name: &'a str,
    /// Its spec.
    pub spec: &'a str,
    /// The tasks that are to run.
    pub tasks: &'a [String],
    /// The run itself is the first, its repairs are more.
    pub number: u64,
    /// The tasks whose tables are made anew.
    pub anew: &'a [String],
    /// The day that snapshots record, where it is not the present one.
    pub date: Option<NaiveDate>,
    /// What started it; null for a person.
    pub trigger: Value,
}

/// Notes the begin of a run of a pipeline by `program`, with the tasks that are to run.
pub fn run_started(events: &Events, program: &str, name: &str, spec: &str, tasks: &[String]) {
    let (anew, date, trigger) = (&[][..], None, Value::Null);
    attempt_started(events, &Attempt { program, name, spec, tasks, number: 1, anew, date, trigger });
}

/// The same of an attempt of a run.
pub fn attempt_started(events: &Events, attempt: &Attempt<'_>) {
    let Attempt { program, name, spec, tasks, number, anew, date, trigger } = attempt;
    let what = if *number > 1 { "repair" } else { "run" };
    let message = format!("{what} of {}", counted(tasks.len(), "task"));
    let details = json!({
        "name": name, "spec": spec, "tasks": tasks, "program": program, "attempt": number, "full_refresh": anew,
        "date": date.map(|date| date.to_string()), "trigger": trigger,
    });
    events.record(None, RUN_STARTED, Level::Info, message, details);
}

/// Notes the end of a task, or that it was skipped.
pub fn task_ended(events: &Events, outcome: &TaskOutcome) {
    let (level, message) = match (&outcome.error, &outcome.skipped_because) {
        (Some(error), _) => (Level::Error, error.to_string()),
        (None, Some(because)) if outcome.status == TaskStatus::Excluded => {
            (Level::Info, format!("excluded: {because}"))
        }
        (None, Some(because)) => (Level::Warning, format!("skipped: {because}")),
        (None, None) if outcome.refused_files() => (Level::Warning, outcome.status.as_str().to_owned()),
        (None, None) => (Level::Info, outcome.status.as_str().to_owned()),
    };
    events.record(Some(&outcome.task.to_string()), TASK_ENDED, level, message, outcome.to_json());
}

/// Notes the end of a run.
pub fn run_ended(events: &Events, summary: &RunSummary) {
    let mut details = summary.to_json();
    if let Some(object) = details.as_object_mut() {
        object.remove("tasks");
        object.insert("rows_in".into(), json!(summary.rows_in()));
        object.insert("quarantined".into(), json!(summary.quarantined()));
        object.insert("refused_files".into(), json!(summary.refused()));
        object.insert("task_count".into(), json!(summary.tasks.len()));
        for status in TaskStatus::ALL {
            object.insert(format!("tasks_{}", status.as_str()), json!(summary.count(status)));
        }
    }
    let level = if summary.exit_code() == EXIT_DONE { Level::Info } else { Level::Error };
    events.record(None, RUN_ENDED, level, summary.status().as_str(), details);
}
