//! What a task answers: the state of its table, its figures, and what a person should know.

pub mod grid;
pub mod record;
mod render;
mod summary;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::render::{WIDTH, counted, duration, error_text, indented_error, many, size, thousands, wrapped};
pub use self::summary::{EXIT_DONE, EXIT_FAILED, EXIT_USAGE, RunSummary, TaskOutcome, TaskStatus, error_json};
pub use crate::accounting::Figures;
use crate::names::TableName;

/// What a task did to its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// A new version was committed, by this run or by another at the same time.
    Changed,
    /// There was nothing new.
    UpToDate,
}

/// A file that was refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedFile {
    /// Its path, relative to the landing root.
    pub path: String,
    /// Why, and what can be done.
    pub reason: String,
    /// True in the run that refused it; later runs only mention it.
    pub new: bool,
}

/// The answer of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskReport {
    /// The table that the task writes.
    pub table: TableName,
    /// What became of it.
    pub state: TaskState,
    /// What became of the rows.
    pub figures: Figures,
    /// The version of the table after the task; `None` when it does not exist.
    pub version: Option<u64>,
    /// The versions of the tables that the task read.
    pub read: BTreeMap<TableName, u64>,
    /// Files that were refused, now or before.
    pub failed_files: Vec<FailedFile>,
    /// Sentences for a person: what was noted, skipped, changed.
    pub notes: Vec<String>,
}

impl TaskReport {
    /// The report of a task that found nothing to do.
    pub fn up_to_date(table: TableName, version: Option<u64>) -> Self {
        Self {
            table,
            state: TaskState::UpToDate,
            figures: Figures::default(),
            version,
            read: BTreeMap::new(),
            failed_files: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// This and what was done after it, as one.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let changed = self.state == TaskState::Changed || later.state == TaskState::Changed;
        Self {
            table: later.table,
            state: if changed { TaskState::Changed } else { TaskState::UpToDate },
            figures: self.figures.and(later.figures),
            version: later.version.or(self.version),
            read: self.read.into_iter().chain(later.read).collect(),
            failed_files: self.failed_files.into_iter().chain(later.failed_files).collect(),
            notes: self.notes.into_iter().chain(later.notes).collect(),
        }
    }

    /// True when this run refused a file.
    pub fn refused_files(&self) -> bool {
        self.failed_files.iter().any(|file| file.new)
    }
}
