//! One earlier run as its events tell it: printed as the run itself printed its summary.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use lake::TableName;
use lake::report::record::{RUN_ENDED, RUN_STARTED, TASK_ENDED};
use lake::report::{FailedFile, RunSummary, TaskReport, TaskStatus, counted, size, wrapped};
use serde_json::{Value, json};

use super::history::Event;
use super::outcome::{duration, outcome, refused, text};
use crate::run::TASK_STARTED;

/// Bronze has appended a batch. Details: `files`, those that it took, and more.
const BATCH_APPENDED: &str = "batch_appended";
/// Files that are listed for one task.
const FILES_MAX: usize = 5;

/// The events of one run, with its repairs.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Its id.
    pub(crate) run: String,
    /// True when it holds a lease: it has not ended because it goes on.
    pub(crate) is_at_work: bool,
    /// The number of its last event.
    pub(crate) events: i64,
    /// The run itself, and its repairs.
    pub(crate) attempts: u64,
    /// What it was started as: `orchestrator`, a layer, `backfill`.
    pub(crate) program: String,
    /// The day that snapshots were to record, where it was not that of the run.
    pub(crate) date: Option<NaiveDate>,
    started_at: Option<DateTime<Utc>>,
    spec: String,
    end: Option<Value>,
    seconds: f64,
    /// Tasks that were to run, in the order of the first attempt.
    planned: Vec<String>,
    /// Those that were to make their tables anew.
    anew: BTreeSet<String>,
    /// How each task ended last; nothing of one that is to be run again and has not ended since.
    ended: BTreeMap<String, Value>,
    started: BTreeMap<String, DateTime<Utc>>,
    files: BTreeMap<String, Vec<String>>,
}

impl Recorded {
    /// A run of which nothing is known yet.
    pub(super) fn new(run: &str) -> Self {
        Self {
            run: run.to_owned(),
            is_at_work: false,
            events: 0,
            attempts: 0,
            program: String::new(),
            date: None,
            started_at: None,
            spec: String::new(),
            end: None,
            seconds: 0.0,
            planned: Vec::new(),
            anew: BTreeSet::new(),
            ended: BTreeMap::new(),
            started: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Takes the next event of the run.
    pub(super) fn add(&mut self, event: Event) {
        self.events = self.events.max(event.number);
        match (event.kind.as_str(), event.task) {
            (RUN_STARTED, _) => self.begins(event.at, &event.details),
            (RUN_ENDED, _) => {
                self.seconds += event.details["seconds"].as_f64().unwrap_or(0.0);
                self.end = Some(event.details);
            }
            (TASK_STARTED, Some(task)) => self.started.extend(event.at.map(|at| (task, at))),
            (TASK_ENDED, Some(task)) => {
                self.plan(&task);
                self.ended.insert(task, event.details);
            }
            (BATCH_APPENDED, Some(task)) => self.files.entry(task).or_default().extend(texts(&event.details["files"])),
            _ => {}
        }
    }

    fn begins(&mut self, at: Option<DateTime<Utc>>, details: &Value) {
        self.attempts += 1;
        self.end = None;
        if self.attempts == 1 {
            self.started_at = at;
            self.program = text(&details["program"]);
        }
        self.spec = text(&details["spec"]);
        self.date = details["date"].as_str().and_then(|date| date.parse().ok());
        self.anew.extend(texts(&details["full_refresh"]));
        for task in texts(&details["tasks"]) {
            self.ended.remove(&task);
            self.started.remove(&task);
            self.plan(&task);
        }
    }

    /// Adds a task; what a program names otherwise is none.
    fn plan(&mut self, task: &str) {
        if TableName::parse(task).is_some() && !self.planned.iter().any(|planned| planned == task) {
            self.planned.push(task.to_owned());
        }
    }

    /// True when the last attempt has come to its end.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// All its tasks.
    pub(crate) fn tasks(&self) -> BTreeSet<TableName> {
        self.planned.iter().filter_map(|name| TableName::parse(name)).collect()
    }

    /// The tasks that failed, were skipped for that, or never ended.
    pub(crate) fn unfinished(&self) -> BTreeSet<TableName> {
        let is_done = |name: &TableName| {
            let status = self.ended.get(&name.to_string()).and_then(|details| details["status"].as_str());
            let status = status.and_then(TaskStatus::parse);
            matches!(status, Some(TaskStatus::Succeeded | TaskStatus::UpToDate | TaskStatus::Excluded))
        };
        self.tasks().into_iter().filter(|name| !is_done(name)).collect()
    }

    /// How many files it refused.
    pub(crate) fn refused(&self) -> usize {
        self.ended.values().map(refused).sum()
    }

    /// True for a task that was to make its table anew.
    pub(crate) fn is_anew(&self, task: &TableName) -> bool {
        self.anew.contains(&task.to_string())
    }

    /// The run for a program: what `run --output json` printed, and what is known beside it.
    pub(crate) fn to_json(&self) -> Value {
        let end = self.end.clone().unwrap_or_default();
        let status =
            end.get("status").cloned().unwrap_or(json!(if self.is_at_work { "at_work" } else { "unfinished" }));
        json!({
            "run_id": self.run,
            "spec": self.spec,
            "status": status,
            "exit_code": end.get("exit_code"),
            "attempts": self.attempts,
            "started_at": self.started_at.map(time),
            "seconds": self.end.as_ref().map(|_| self.seconds),
            "tasks": self.planned.iter().map(|task| self.task_json(task)).collect::<Vec<_>>(),
        })
    }

    fn task_json(&self, task: &str) -> Value {
        let mut details = self.ended.get(task).cloned().unwrap_or(json!({"task": task, "status": "unfinished"}));
        if let Some(object) = details.as_object_mut() {
            object.insert("started_at".to_owned(), json!(self.started.get(task).copied().map(time)));
            object.insert("files_taken".to_owned(), json!(self.files.get(task).cloned().unwrap_or_default()));
        }
        details
    }

    /// The run for a person.
    pub(crate) fn to_text(&self) -> String {
        let mut out = self.summary().to_text();
        let details: Vec<String> = self.planned.iter().filter_map(|task| self.detail(task)).collect();
        if !details.is_empty() {
            out.push_str(&format!("\n{}", details.concat()));
        }
        for task in self.summary().tasks.iter().filter_map(|task| task.report.as_ref()) {
            out.push_str(&still_refused(task));
        }
        if self.attempts > 1 {
            out.push_str(&format!("{} so far; what is shown of a task is its last\n", counted_attempts(self.attempts)));
        }
        match (&self.end, self.is_at_work) {
            (Some(_), _) => {}
            (None, true) => out.push_str("the run is at work\n"),
            (None, false) => out.push_str(&format!(
                "the run has not ended: it was killed, or works without a lease\n\
                 `orchestrator repair {}` does what is left\n",
                self.run
            )),
        }
        out
    }

    fn summary(&self) -> RunSummary {
        RunSummary {
            run: self.run.clone(),
            spec: self.spec.clone(),
            started_at: self.started_at.unwrap_or_default(),
            elapsed: duration(Some(self.seconds)),
            tasks: self.planned.iter().filter_map(|task| outcome(self.ended.get(task)?)).collect(),
        }
    }

    /// What the tables of the summary do not tell of a task: when it began, the versions, bytes and files.
    fn detail(&self, task: &str) -> Option<String> {
        let at = self.started.get(task).map(|at| format!(" at {}", at.format("%H:%M:%S"))).unwrap_or_default();
        let Some(details) = self.ended.get(task) else {
            let begun = self.started.contains_key(task);
            return Some(format!(
                "{task}: {}\n",
                if begun { format!("begun{at}, not ended") } else { "not begun".into() }
            ));
        };
        if !matches!(details["status"].as_str(), Some("succeeded" | "failed")) {
            return None;
        }
        let mut parts = Vec::new();
        if let Some(version) = details["version"].as_u64() {
            parts.push(format!("version {version}"));
        }
        let read = details["read_versions"].as_object().into_iter().flatten();
        let read: Vec<String> = read.map(|(table, version)| format!("{table} {version}")).collect();
        if !read.is_empty() {
            parts.push(format!("from {}", read.join(", ")));
        }
        if let Some(attempts) = details["attempts"].as_u64().filter(|attempts| *attempts > 1) {
            parts.push(counted_attempts(attempts));
        }
        for (key, what) in [("bytes_read", "read"), ("bytes_written", "written")] {
            parts.extend(
                details[key].as_u64().filter(|bytes| *bytes > 0).map(|bytes| format!("{} {what}", size(bytes))),
            );
        }
        if parts.is_empty() {
            parts.push("nothing was committed".to_owned());
        }
        let mut lines = wrapped("", 4, &format!("{task}{at}: {}", parts.join("; "))) + "\n";
        let files = self.files.get(task).map(Vec::as_slice).unwrap_or_default();
        for file in files.iter().take(FILES_MAX) {
            lines.push_str(&format!("    {file}\n"));
        }
        if files.len() > FILES_MAX {
            lines.push_str(&format!("    and {}\n", counted(files.len() - FILES_MAX, "more file")));
        }
        Some(lines)
    }
}

/// The files of a task that earlier runs refused, and why.
fn still_refused(report: &TaskReport) -> String {
    let files: Vec<&FailedFile> = report.failed_files.iter().filter(|file| !file.new).collect();
    if files.is_empty() {
        return String::new();
    }
    let mut text = format!("{}: refused by earlier runs\n", report.table);
    for file in files.iter().take(FILES_MAX) {
        let reason = file.reason.lines().next().unwrap_or_default();
        text.push_str(&(wrapped("    ", 6, &format!("{}: {reason}", file.path)) + "\n"));
    }
    if files.len() > FILES_MAX {
        text.push_str(&format!("    and {}\n", counted(files.len() - FILES_MAX, "more file")));
    }
    text
}

fn counted_attempts(attempts: u64) -> String {
    counted(usize::try_from(attempts).unwrap_or(usize::MAX), "attempt")
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lake::report::{Figures, TaskOutcome, TaskState};
    use lake::{Error, ErrorKind};

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
        let mut recorded = Recorded::new(&summary.run);
        let mut number = 0;
        let mut event = |kind: &str, task: Option<String>, details: Value| {
            number += 1;
            let (run, kind, at) = (summary.run.clone(), kind.to_owned(), Some(summary.started_at));
            Event { run, kind, at, task, number, details }
        };
        let planned: Vec<String> = summary.tasks.iter().map(|task| task.task.to_string()).collect();
        let begin = json!({"spec": "pipelines.yaml", "tasks": planned, "program": "orchestrator"});
        recorded.add(event(RUN_STARTED, None, begin));
        for task in summary.tasks.iter().rev() {
            recorded.add(event(TASK_ENDED, Some(task.task.to_string()), task.to_json()));
        }
        let unfinished = recorded.to_text();
        assert!(
            unfinished.ends_with("`orchestrator repair 20240501T101500-1f2e3d4c` does what is left\n"),
            "{unfinished}"
        );
        let mut end = summary.to_json();
        end.as_object_mut().expect("an object").remove("tasks");
        recorded.add(event(RUN_ENDED, None, end));
        assert!(recorded.to_text().starts_with(&summary.to_text()), "{}", recorded.to_text());
        let mut json = recorded.to_json();
        json.as_object_mut().expect("an object").remove("attempts");
        for task in json["tasks"].as_array_mut().expect("tasks") {
            for key in ["started_at", "files_taken"] {
                task.as_object_mut().expect("an object").remove(key);
            }
        }
        assert_eq!(json, summary.to_json());
        let unfinished: Vec<String> = recorded.unfinished().iter().map(ToString::to_string).collect();
        assert_eq!(unfinished, ["silver.web", "gold.sales"]);
        recorded.add(event(RUN_STARTED, None, json!({"spec": "p.yaml", "tasks": ["silver.web", "gold.sales"]})));
        assert!(recorded.to_text().contains("silver.web: not begun\n"), "{}", recorded.to_text());
        assert_eq!((recorded.attempts, recorded.events, recorded.tasks().len()), (2, 6, 3));
    }
}
