//! What a watch tells a person, a line for each thing that happens.

use std::collections::BTreeSet;
use std::time::Duration;

use bronze::watch::Notice;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use cli::Failure;
use lake::report::{RunSummary, TaskOutcome, TaskState, TaskStatus, counted, duration, many, thousands};
use lake::spec::{Header, UpdateCondition};
use lake::{Error, Layer, TableName};

use super::because::Because;
use crate::spec::{Job, Task};

/// What is wrong with a spec, or with what it names.
pub(super) fn why(failure: &Failure) -> String {
    let text = match failure {
        Failure::Problems(problems) => problems.to_string(),
        Failure::Error(error) => lake::report::error_text(error),
        Failure::Closed => String::new(),
    };
    text.trim_end().to_owned()
}

/// Lines about a watch.
pub(super) struct Story {
    /// The zone of the pipeline.
    pub(super) zone: Tz,
    /// Whether lines begin with the time of day in that zone.
    pub(super) has_times: bool,
}

impl Story {
    fn line(&self, now: DateTime<Utc>, text: &str) -> String {
        if !self.has_times {
            return format!("{text}\n");
        }
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

    /// What starts runs beside files.
    pub(super) fn starts(&self, now: DateTime<Utc>, header: &Header) -> Vec<String> {
        let trigger = &header.trigger;
        let schedule = header.schedule.as_ref().map(|schedule| format!("by the schedule {}", schedule.describe()));
        let tables = trigger.table_update.as_ref().map(|update| {
            let names: Vec<String> = update.tables.iter().map(ToString::to_string).collect();
            let word = if update.condition == UpdateCondition::AllUpdated { "all" } else { "any" };
            match &names[..] {
                [name] => format!("when {name} has a new version"),
                _ => format!("when {word} of {} have a new version", names.join(", ")),
            }
        });
        let every = trigger.periodic.map(|every| format!("every {every}"));
        let continuous = trigger.continuous.then(|| "one after the other".to_owned());
        let all = [schedule, tables, every, continuous].into_iter().flatten();
        all.map(|text| self.line(now, &format!("runs {text}; Ctrl-C ends the watch"))).collect()
    }

    /// Something could not be looked at.
    pub(super) fn trouble(&self, now: DateTime<Utc>, text: &str) -> String {
        self.line(now, text)
    }

    /// The spec has changed.
    pub(super) fn reloaded(&self, now: DateTime<Utc>) -> String {
        self.line(now, "the spec has changed: the watch goes on with the new one")
    }

    /// The clock went back.
    pub(super) fn clock_went_back(&self, now: DateTime<Utc>) -> String {
        self.line(now, "the clock of this machine went back: what is waited for counts from now on")
    }

    /// The spec has changed, and is wrong or cannot be watched.
    pub(super) fn not_reloaded(&self, now: DateTime<Utc>, why: &str, is_tried_again: bool) -> String {
        let again = if is_tried_again { ", and tries the new one again" } else { "" };
        let text = format!("the spec has changed and cannot be used: the watch goes on with the old one{again}");
        format!("{}{why}\n", self.line(now, &text))
    }

    /// A run starts.
    pub(super) fn run_starts(&self, now: DateTime<Utc>, because: &Because) -> String {
        let of = |sources: &BTreeSet<TableName>| {
            let names: Vec<String> = sources.iter().map(ToString::to_string).collect();
            format!("{} and what reads it", names.join(", "))
        };
        let text = match because {
            Because::Start(None) => "(what is there)".to_owned(),
            Because::Start(Some(missed)) => format!("(what is there, and the missed {})", self.moment(*missed)),
            Because::Tick(tick) => format!("(the schedule, {})", self.moment(*tick)),
            Because::Files(sources) => format!("(files): {}", of(sources)),
            Because::Tables(tables) => format!("(new versions of {})", tables.join(", ")),
            Because::Periodic => "(the time has come)".to_owned(),
            Because::Continuous => "(the run before has ended)".to_owned(),
            Because::Again(tasks, _) => format!("(what failed): {}", of(tasks)),
            Because::Cleaning(source) => format!("(files that may go): {}", of(&[source.clone()].into())),
        };
        self.line(now, &format!("run started {text}"))
    }

    /// A moment of the schedule.
    fn moment(&self, at: DateTime<Utc>) -> String {
        at.with_timezone(&self.zone).format("%Y-%m-%d %H:%M").to_string()
    }

    /// What a run did.
    pub(super) fn run_ends(&self, now: DateTime<Utc>, summary: &RunSummary, stopped: bool) -> String {
        let mut text = String::new();
        // What a stop has ended is not news: the next run does it.
        let is_told = |task: &&TaskOutcome| !stopped || task.status == TaskStatus::Succeeded;
        let news: Vec<String> = summary.tasks.iter().filter(is_told).filter_map(task_news).collect();
        let (failed, skipped) = (summary.count(TaskStatus::Failed), summary.count(TaskStatus::Skipped));
        let word = match (stopped, failed) {
            (true, _) if failed + skipped > 0 => "stopped",
            (_, 0) => "done",
            _ => "failed",
        };
        let what = match (news.is_empty(), word) {
            (true, "stopped") => "what is left is for the next run".to_owned(),
            (true, _) => "nothing new".to_owned(),
            (false, _) => news.join("; "),
        };
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
    pub(super) fn idle(
        &self,
        now: DateTime<Utc>,
        for_files: bool,
        for_tables: bool,
        next: Option<DateTime<Utc>>,
    ) -> String {
        let files = for_files.then(|| "files".to_owned());
        let tables = for_tables.then(|| "new versions of tables".to_owned());
        let next = next.map(|next| self.moment(next));
        let waits: Vec<String> = [files, tables, next].into_iter().flatten().collect();
        self.line(now, &format!("waiting for {}", waits.join(", or ")))
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
        TaskStatus::UpToDate | TaskStatus::Excluded => None,
        TaskStatus::Succeeded if figures.files > 0 => {
            let files = many(figures.files, "file");
            Some(format!("{name} {files}, {}{refused}", many(figures.appended, "row")))
        }
        TaskStatus::Succeeded => {
            let rows = figures.applied + figures.written;
            Some(format!("{name} {}{refused}", many(rows, "row")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use lake::ErrorKind;
    use lake::report::{FailedFile, Figures, TaskReport};

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(seconds)
    }

    fn summary(tasks: Vec<TaskOutcome>) -> RunSummary {
        let (run, spec, elapsed) = ("r1".to_owned(), "p.yaml".to_owned(), Duration::from_millis(300));
        RunSummary { run, spec, started_at: at(0), elapsed, tasks }
    }

    #[test]
    fn arrivals_say_what_they_wait_for() {
        let story = Story { zone: Tz::Europe__Lisbon, has_times: true };
        let file = |again, whole| Notice::File {
            table: TableName::bronze("s"),
            path: "in/a.csv".into(),
            size: 1_234,
            again,
            whole,
        };
        let told = |notice, settle| story.notice(at(3_600), &notice, |_| Duration::from_secs(settle));
        assert_eq!(
            told(file(false, false), 2),
            "02:00:00  in/a.csv arrived (1,234 bytes so far), waiting until it has not changed for 2.00 s\n"
        );
        assert!(
            told(file(true, true), 2)
                .ends_with("came again with other content (1,234 bytes), complete: it was renamed into place\n")
        );
        assert!(told(file(false, false), 0).contains("taken as it is"));
    }

    #[test]
    fn a_run_is_told_by_what_it_did() {
        let story = Story { zone: Tz::UTC, has_times: true };
        let table = TableName::bronze("s");
        let report = TaskReport {
            state: TaskState::Changed,
            figures: Figures { files: 1, appended: 2_000, quarantined: 3, ..Figures::default() },
            failed_files: vec![FailedFile {
                path: "in/b.csv".into(),
                reason: "cut\nhint: send it again".into(),
                new: true,
            }],
            ..TaskReport::up_to_date(table.clone(), Some(1))
        };
        let waits = TaskReport { notes: vec!["waits".into()], ..TaskReport::up_to_date(TableName::gold("g"), None) };
        let done =
            summary(vec![TaskOutcome::done(report, 1, Duration::ZERO), TaskOutcome::done(waits, 1, Duration::ZERO)]);
        assert_eq!(
            story.run_ends(at(0), &done, false),
            "00:00:00  run r1 done in 0.30 s: bronze.s 1 file, 2,000 rows, 3 in quarantine\n\
             00:00:00  in/b.csv is refused: cut; hint: send it again\n"
        );
        let error = Error::new(ErrorKind::Store, "no answer");
        let failed = || summary(vec![TaskOutcome::failed(table.clone(), error.clone(), 1, Duration::ZERO)]);
        assert!(story.run_ends(at(0), &failed(), false).contains("failed in 0.30 s: bronze.s failed: no answer"));
        assert!(story.run_ends(at(0), &failed(), true).contains("stopped in 0.30 s: what is left is for the next run"));
        assert!(story.run_ends(at(0), &summary(Vec::new()), false).contains("nothing new"));
    }
}
