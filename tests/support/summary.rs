//! What `run --output json` prints, as the tests read it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

/// The summary of a run. Fields that the tests do not look at are left out.
#[derive(Debug, Deserialize)]
pub(crate) struct Summary {
    pub(crate) run_id: String,
    pub(crate) status: String,
    pub(crate) exit_code: i32,
    pub(crate) seconds: f64,
    pub(crate) tasks: Vec<Task>,
}

/// One task of a run.
#[derive(Debug, Deserialize)]
pub(crate) struct Task {
    pub(crate) task: String,
    pub(crate) status: String,
    pub(crate) attempts: u64,
    pub(crate) files: u64,
    pub(crate) read: u64,
    pub(crate) appended: u64,
    pub(crate) applied: u64,
    pub(crate) superseded: u64,
    pub(crate) stale: u64,
    pub(crate) quarantined: u64,
    pub(crate) dropped: u64,
    pub(crate) ignored: u64,
    pub(crate) skipped: u64,
    pub(crate) written: u64,
    pub(crate) version: Option<u64>,
    pub(crate) read_versions: BTreeMap<String, u64>,
    pub(crate) seconds: f64,
    pub(crate) failed_files: Vec<FailedFile>,
    pub(crate) error: Option<Value>,
}

/// A file that was left out as a whole.
#[derive(Debug, Deserialize)]
pub(crate) struct FailedFile {
    pub(crate) path: String,
    pub(crate) reason: String,
    /// Whether this run found it, or only remembers it.
    pub(crate) new: bool,
}

impl Summary {
    /// The task of a table.
    pub(crate) fn task(&self, table: &str) -> &Task {
        let found = self.tasks.iter().find(|task| task.task == table);
        found.unwrap_or_else(|| panic!("no task `{table}` in the summary: {self:#?}"))
    }

    /// Files that this run refused, below landing.
    pub(crate) fn refused(&self) -> BTreeSet<String> {
        let files = self.tasks.iter().flat_map(|task| &task.failed_files);
        files.filter(|file| file.new).map(|file| file.path.clone()).collect()
    }

    /// Fails unless every task's rows are accounted for.
    pub(crate) fn assert_accounted(&self) {
        assert!(!self.run_id.is_empty() && self.seconds >= 0.0, "{self:#?}");
        for task in self.tasks.iter().filter(|task| task.status != "failed" && task.status != "skipped") {
            assert!(task.attempts >= 1 && task.seconds >= 0.0 && task.error.is_none(), "{task:#?}");
            assert!(task.failed_files.iter().all(|file| !file.reason.is_empty()), "a file without a reason: {task:#?}");
            let is_new = task.status == "succeeded";
            assert!(!is_new || task.version.is_some(), "a change without a version: {task:#?}");
            assert!(!is_new || task.task.starts_with("bronze") || !task.read_versions.is_empty(), "{task:#?}");
            let ended = match task.task.split('.').next() {
                Some("bronze") => task.appended + task.quarantined + task.skipped,
                Some("silver") => {
                    task.applied + task.superseded + task.stale + task.quarantined + task.dropped + task.ignored
                }
                _ => continue,
            };
            assert_eq!(task.read, ended, "rows of `{}` are not accounted for: {task:#?}", task.task);
        }
    }
}
