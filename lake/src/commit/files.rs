//! Commits of files that were written for them: when nothing of a commit comes about, its files are removed.

use deltalake::kernel::{Action, Add};

use super::{Commit, Outcome};
use crate::error::{ErrorKind, Result};
use crate::table::Table;
use crate::write::discard;

impl Table {
    /// [`commit`](Self::commit) of files that were written for it and are named in it. They are removed when another
    /// writer has done the same work or came in between: no commit will name them then.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn commit_files(&mut self, commit: Commit, files: &[Add]) -> Result<Outcome> {
        let outcome = self.commit(commit).await;
        if is_void(&outcome) {
            discard(self, files).await;
        }
        outcome
    }

    /// [`commit_files`](Self::commit_files) of all files that the commit adds.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn commit_written(&mut self, commit: Commit) -> Result<Outcome> {
        let added = commit.actions.iter().filter_map(|action| match action {
            Action::Add(file) => Some(file.clone()),
            _ => None,
        });
        let files: Vec<Add> = added.collect();
        self.commit_files(commit, &files).await
    }
}

/// True when nothing of a commit is in the table, and nothing will be: after other failures than a conflict a commit may
/// yet name its files.
pub(crate) fn is_void(outcome: &Result<Outcome>) -> bool {
    match outcome {
        Ok(Outcome::Committed { .. }) => false,
        Ok(Outcome::AlreadyApplied { .. }) => true,
        Err(error) => error.kind() == ErrorKind::Conflict,
    }
}
