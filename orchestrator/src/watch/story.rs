//! What a watch tells a person, a line for each thing that happens.

use std::collections::BTreeSet;
use std::time::Duration;

use bronze::watch::Notice;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use lake::report::{RunSummary, TaskOutcome, TaskState, TaskStatus, counted, duration, thousands};
use lake::{Error, Layer, TableName};

use crate::spec::{Job, Task};

/// Lines about a watch, each with the time of day in the zone of the pipeline.
pub(super) struct Story {
    pub(super) zone: Tz,
}

impl Story {
    fn line(&self, now: DateTime<Utc>, text: &str) -> String {
        format!("{}  {text}\n", now.with_timezone(&self.zone).format("%H:%M:%S"))
    }

    /// What is watched.
    pub(super) fn begins(&self, now: DateTime<Utc>, landing: &str, tasks: &[&Task]) -> String {
        let folder = |task: &&Task| match &task.job {
            Job::Bronze(plan) if plan.folder.is_empty() => Some(format!("{} (all of it)", task.name)),
            Job::Bronze(plan) => Some(format!("{} ({}/)", task.name, plan.folder)),
            _ => None,
        };
        let folders: Vec<String> = tasks.iter().filter_map(folder).collect();
        self.line(now, &format!("watching {landing} for {}; Ctrl-C ends the watch", folders.join(", ")))
    }

    /// What a watcher saw; `settle` is how long files of a source must stand still.
    pub(super) fn notice(
        &self,
        now: DateTime<Utc>,
        notice: &Notice,
        settle: impl Fn(&TableName) -> Duration,
    ) -> String {
        let text = match notice {
            Notice::File { table, path, size, again, whole } => {
                let verb = if *again { "came again with other content" } else { "arrived" };
                let so_far = if *whole { "" } else { " so far" };
                let next = match (whole, settle(table)) {
                    (true, _) => "complete: it was renamed into place".to_owned(),
                    (false, settle) if settle.is_zero() => "taken as it is (`settle: 0s`)".to_owned(),
                    (false, settle) => format!("waiting until it has not changed for {}", duration(settle)),
                };
                format!("{path} {verb} ({} bytes{so_far}), {next}", thousands(*size))
            }
            Notice::Polled { table, because } => format!("{table}: its folder is listed every few seconds: {because}"),
            Notice::Rescan(because) => format!("the folders are listed again: {because}"),
            Notice::Trouble { table, error } => {
                let causes: String = error.causes().iter().map(|cause| format!(": {cause}")).collect();
                format!("{table}: {error}{causes}; it is tried again")
            }
        };
        self.line(now, &text)
    }

    /// A run starts, for these sources.
    pub(super) fn run_starts(&self, now: DateTime<Utc>, because: &str, sources: &BTreeSet<TableName>) -> String {
        let names: Vec<String> = sources.iter().map(ToString::to_string).collect();
        self.line(now, &format!("run started ({because}): {} and what reads it", names.join(", ")))
    }

    /// What a run did.
    pub(super) fn run_ends(&self, now: DateTime<Utc>, summary: &RunSummary) -> String {
        let mut text = String::new();
        let news: Vec<String> = summary.tasks.iter().filter_map(task_news).collect();
        let word = if summary.count(TaskStatus::Failed) > 0 { "failed" } else { "done" };
        let what = if news.is_empty() { "nothing new".to_owned() } else { news.join("; ") };
        let elapsed = duration(summary.elapsed);
        text.push_str(&self.line(now, &format!("run {} {word} in {elapsed}: {what}", summary.run)));
        for report in summary.tasks.iter().filter_map(|task| task.report.as_ref()) {
            for file in report.failed_files.iter().filter(|file| file.new) {
                let reason = file.reason.replace('\n', "; ");
                text.push_str(&self.line(now, &format!("{} is refused: {reason}", file.path)));
            }
            // What a table waits for is the same after every run, until there is something to tell.
            let has_news = report.state == TaskState::Changed || report.table.layer == Layer::Bronze;
            for note in report.notes.iter().filter(|_| has_news) {
                text.push_str(&self.line(now, &format!("{}: {note}", report.table)));
            }
        }
        text
    }

    /// A run failed in a way that may pass.
    pub(super) fn again_in(&self, now: DateTime<Utc>, wait: Duration) -> String {
        self.line(now, &format!("again in {}", duration(wait)))
    }

    /// The events of a run are not in the event log.
    pub(super) fn not_recorded(&self, now: DateTime<Utc>, error: &Error) -> String {
        self.line(now, &format!("the events of the run were not recorded: {error}"))
    }

    /// Nothing is on its way.
    pub(super) fn idle(&self, now: DateTime<Utc>) -> String {
        self.line(now, "waiting for files")
    }

    /// The watch is over.
    pub(super) fn ends(&self, now: DateTime<Utc>, runs: u64) -> String {
        let runs = usize::try_from(runs).unwrap_or(usize::MAX);
        self.line(now, &format!("the watch is over after {}", counted(runs, "run")))
    }
}

/// What became of a task, when there is something to say.
fn task_news(task: &TaskOutcome) -> Option<String> {
    let figures = task.figures();
    let name = &task.task;
    let refused = if figures.quarantined > 0 {
        format!(", {} in quarantine", thousands(figures.quarantined))
    } else {
        String::new()
    };
    match task.status {
        TaskStatus::UpToDate => None,
        TaskStatus::Succeeded if figures.files > 0 => {
            let files = counted(usize::try_from(figures.files).unwrap_or(usize::MAX), "file");
            Some(format!("{name} {files}, {} rows{refused}", thousands(figures.appended)))
        }
        TaskStatus::Succeeded => {
            let rows = figures.applied + figures.written;
            Some(format!("{name} {} rows{refused}", thousands(rows)))
        }
        TaskStatus::Failed => {
            let error = task.error.as_ref().map(|error| {
                let causes: String = error.causes().iter().map(|cause| format!(": {cause}")).collect();
                let hint = error.hint_text().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
                format!(": {error}{causes}{hint}")
            });
            Some(format!("{name} failed{}", error.unwrap_or_default()))
        }
        TaskStatus::Skipped => {
            Some(format!("{name} skipped: {}", task.skipped_because.as_deref().unwrap_or("not started")))
        }
    }
}
