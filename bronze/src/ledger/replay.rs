//! Batches of the ledger that are no files: records of quarantine that are replayed.

use lake::{Result, RunId};

use super::write::App;
use super::{Entry, Ledger, Status};
use crate::discover::FoundFile;

impl Ledger {
    /// True for a batch of replayed records.
    pub(crate) fn is_replay(&self, batch: i64) -> bool {
        self.entries.iter().any(|entry| entry.batch == Some(batch) && entry.status == Status::Replay)
    }

    /// Plans a batch of replayed records, as [`plan`](Self::plan) plans one of files.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub(crate) async fn plan_replay(&mut self, batch: i64, run: &RunId) -> Result<bool> {
        let file = unknown("");
        let entry = Entry { batch: Some(batch), file, status: Status::Replay, reason: None, recorded_us: 0 };
        self.append(vec![entry], App::Planned, batch, "replay_planned", run).await
    }

    /// The file of a batch under a path, as it was when the batch was planned.
    pub(crate) fn file_of(&self, batch: i64, path: &str) -> FoundFile {
        let mut planned = self.entries_of(path).filter(|entry| entry.batch == Some(batch));
        planned.find(|entry| entry.status == Status::Planned).map_or_else(|| unknown(path), |entry| entry.file.clone())
    }
}

/// A file of which nothing else is known.
fn unknown(path: &str) -> FoundFile {
    FoundFile { path: path.to_owned(), size: 0, modified_us: 0, etag: None, unreadable: None }
}
