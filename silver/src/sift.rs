//! What changes come to against what the table holds, before anything is committed: their figures, and the rows to
//! write.

use lake::accounting::Figures;
use lake::commit::{Outcome, Txn};
use lake::quarantine::Rejected;
use lake::stage::Staged;
use lake::upsert::{Probed, Upsert};
use lake::{Error, Result, RunId, Table};

use crate::history::{Beside, Counts, Folded, Incoming, Side, is_needed};
use crate::read::Tally;
use crate::refine::Refinement;
use crate::settle::{Memory, Settled};
use crate::tombstones::{Covered, Tombstones};
use crate::truncates::{Found, Truncate, Truncates};

/// Changes as they were read.
pub(crate) struct Arrived<'a> {
    /// The last change at each place, and of keys with an update that did not send every column all.
    pub(crate) changes: Staged,
    pub(crate) tally: &'a Tally,
    /// Truncates that arrived beside them and are not counted.
    pub(crate) beside: Found,
    /// Whether they come from quarantine.
    pub(crate) again: bool,
}

/// Changes ready to be committed.
pub(crate) struct Sifted<'a> {
    /// What became of them.
    pub(crate) figures: Figures,
    /// Records that go to quarantine after all.
    pub(crate) incomplete: Vec<Rejected>,
    pub(crate) notes: Vec<String>,
    upsert: Upsert,
    probed: Probed,
    memory: Remember<'a>,
}

/// What is remembered of changes beside the rows.
enum Remember<'a> {
    Deletes(Box<Tombstones<'a>>, Covered, Option<Box<(Truncates<'a>, Truncate)>>),
    Changes(Box<Beside<'a>>),
}

impl Refinement<'_> {
    /// Holds changes against the table.
    pub(crate) async fn sift<'a>(
        &'a self,
        arrived: Arrived<'_>,
        table: &Table,
        side: &'a str,
        sequence: &'a [String],
    ) -> Result<Sifted<'a>> {
        let Arrived { changes, tally, beside, again } = arrived;
        if is_needed(self.plan) {
            let truncates = self.truncates(table, side, sequence).await?;
            let incoming = Incoming { changes: &changes, truncates: &tally.truncated, beside: &beside, again };
            let Folded { upsert, probed, counts, beside } =
                self.fold(incoming, table, Side { versions: side, truncates }).await?;
            let Counts { applied, superseded, stale } = counts;
            return Ok(Sifted {
                // Each truncate says something of its own, for ever.
                figures: Figures { applied: applied + tally.truncates, superseded, stale, ..Figures::default() },
                incomplete: Vec::new(),
                notes: Vec::new(),
                upsert,
                probed,
                memory: Remember::Changes(Box::new(beside)),
            });
        }
        let memory = self.memory(table, side, sequence).await?;
        let settled = self.settle(changes, tally, beside.newest, table, &memory).await?;
        let upsert = Upsert { keys: self.plan.keys.clone(), sequence: sequence.to_vec() };
        let probed = upsert.probe(self.lake, table, &settled.changes).await?.with_mode(self.plan.write_mode);
        // An extract was compared with every row, and so is a truncate.
        let is_bound = self.plan.snapshot.is_some() || settled.truncate.is_some();
        let probed = if is_bound { probed.bound() } else { probed };
        let found = probed.figures;
        let Settled { folded, mut figures, covered, truncate, incomplete, notes, .. } = settled;
        if !folded {
            figures.applied += found.applied();
            figures.stale += found.stale;
        } else if found.stale > 0 {
            // What was held against the rows already cannot be older than they are.
            return Err(Error::internal("a change that was folded into its row is older than the row"));
        }
        let Memory { tombstones, truncates } = memory;
        let memory = Remember::Deletes(Box::new(tombstones), covered, truncates.zip(truncate).map(Box::new));
        Ok(Sifted { figures, incomplete, notes, upsert, probed, memory })
    }
}

impl Sifted<'_> {
    /// Remembers beside the table what its rows will not tell: deletes and a truncate, or changes. It comes before
    /// [`commit`](Commit::commit).
    pub(crate) async fn remember(self, run: &RunId) -> Result<Commit> {
        let mut txns = Vec::new();
        match self.memory {
            Remember::Deletes(tombstones, covered, truncate) => {
                txns.extend(tombstones.remember(&self.probed, covered, run).await?);
                if let Some(truncate) = truncate {
                    let (truncates, truncate) = *truncate;
                    txns.push(truncates.remember(vec![truncate.row], run).await?);
                }
            }
            Remember::Changes(beside) => txns.extend(beside.remember(run).await?),
        }
        Ok(Commit { upsert: self.upsert, probed: self.probed, txns })
    }
}

/// The rows of changes that are remembered.
pub(crate) struct Commit {
    upsert: Upsert,
    probed: Probed,
    /// Those that make what is remembered count.
    txns: Vec<Txn>,
}

impl Commit {
    /// Makes more count by the commit.
    pub(crate) fn with(mut self, txn: Option<Txn>) -> Self {
        self.txns.extend(txn);
        self
    }

    /// Commits the rows under `txn`.
    pub(crate) async fn commit(
        &self,
        refinement: &Refinement<'_>,
        table: &mut Table,
        txn: Txn,
        point: &'static str,
    ) -> Result<Outcome> {
        let Refinement { lake, ctx, .. } = refinement;
        let txns = [txn].into_iter().chain(self.txns.iter().cloned()).collect();
        self.upsert.apply(lake, table, &self.probed, txns, &ctx.run, point).await
    }
}
