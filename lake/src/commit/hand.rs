//! Commits of what a person asked for: each happens once, whatever else was done by hand at the same time.

use std::collections::BTreeMap;

use deltalake::kernel::Action;
use deltalake::protocol::DeltaOperation;

use super::{Commit, Outcome, Txn, actions_of};
use crate::error::{Error, ErrorKind, Result};
use crate::names::RunId;
use crate::table::Table;

/// The application that counts what was done by hand to a table. Its name begins otherwise than those of the tasks that
/// write the table, which so see that another has written there.
pub(crate) const BY_HAND: &str = "hand:";

/// What was asked for.
pub(crate) struct ByHand {
    /// The fault point of the commit.
    pub(crate) point: &'static str,
    /// What `history` shows.
    pub(crate) operation: DeltaOperation,
    /// Files and metadata.
    pub(crate) actions: Vec<Action>,
    /// Figures that `history` shows.
    pub(crate) metrics: BTreeMap<&'static str, u64>,
}

impl Table {
    /// Commits what a person asked for to the version that is open.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another writer came first, also by hand; as [`Table::commit`].
    pub(crate) async fn commit_by_hand(&mut self, asked: ByHand, run: &RunId) -> Result<Outcome> {
        let before = self.version();
        let app = format!("{BY_HAND}{}", self.name());
        let txns = vec![Txn::new(&app, self.txn_version(&app).await?.unwrap_or(0) + 1)];
        let ByHand { point, operation, actions, metrics } = asked;
        let commit = Commit { point, txns, operation, actions, blind_append: false, metrics, run: run.clone() };
        match self.commit(commit).await? {
            // Another's commit has the same number; ours, whose answer was lost, is of our run.
            Outcome::AlreadyApplied { version } if !is_of_run(self, before, run).await? => {
                let message = format!("another writer has changed {} meanwhile (version {version})", self.name());
                Err(Error::new(ErrorKind::Conflict, message))
            }
            outcome => Ok(Outcome::Committed { version: outcome.version() }),
        }
    }
}

/// True when a version above `before` is of a run.
async fn is_of_run(table: &Table, before: u64, run: &RunId) -> Result<bool> {
    for number in before + 1..=table.version() {
        let actions = actions_of(table, number).await?;
        let is_of_run = actions.iter().any(|action| match action {
            Action::CommitInfo(info) => info.info.get("runId").is_some_and(|held| held == run.as_str()),
            _ => false,
        });
        if is_of_run {
            return Ok(true);
        }
    }
    Ok(false)
}
