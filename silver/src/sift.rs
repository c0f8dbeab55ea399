//! What changes come to against what the table holds, before anything is committed: their figures, and the rows to
//! write.

use lake::commit::{Outcome, Txn};
use lake::stage::Staged;
use lake::upsert::{Probed, Upsert};
use lake::{Result, RunId, Table};

use crate::history::{Beside, Counts, Folded, is_needed};
use crate::refine::Refinement;
use crate::tombstones::Tombstones;

/// Changes ready to be committed.
pub(crate) struct Sifted<'a> {
    /// What became of them.
    pub(crate) counts: Counts,
    upsert: Upsert,
    probed: Probed,
    memory: Memory<'a>,
}

/// What is remembered of changes beside the rows.
enum Memory<'a> {
    Tombstones(Box<Tombstones<'a>>),
    Changes(Box<Beside<'a>>),
}

impl Refinement<'_> {
    /// Holds changes, of which only the last at each place is there, against the table. `after` is the last batch that
    /// the table has applied; `again` is true for changes from quarantine.
    pub(crate) async fn sift<'a>(
        &'a self,
        last: Staged,
        table: &Table,
        side: &'a str,
        sequence: &'a [String],
        (after, again): (i64, bool),
    ) -> Result<Sifted<'a>> {
        if is_needed(self.plan) {
            let Folded { upsert, probed, counts, beside } = self.fold(&last, table, side, after, again).await?;
            return Ok(Sifted { counts, upsert, probed, memory: Memory::Changes(Box::new(beside)) });
        }
        let tombstones = self.tombstones(table.schema(), side, sequence).await?;
        let (living, buried) = tombstones.without_stale(last).await?;
        let upsert = Upsert { keys: self.plan.keys.clone(), sequence: sequence.to_vec() };
        let probed = upsert.probe(self.lake, table, &living).await?.with_mode(self.plan.write_mode);
        // An extract was compared with every row.
        let probed = if self.plan.snapshot.is_some() { probed.bound() } else { probed };
        let counts = Counts { applied: probed.figures.applied(), superseded: 0, stale: buried + probed.figures.stale };
        Ok(Sifted { counts, upsert, probed, memory: Memory::Tombstones(Box::new(tombstones)) })
    }
}

impl Sifted<'_> {
    /// Remembers beside the table what its rows will not tell: deletes, under `txns`, or changes. It comes before
    /// [`commit`](Commit::commit).
    pub(crate) async fn remember(self, txns: impl FnOnce(Option<i64>) -> Vec<Txn>, run: &RunId) -> Result<Commit> {
        match self.memory {
            Memory::Tombstones(tombstones) => {
                let txns = txns(tombstones.held());
                tombstones.remember(&self.probed, txns, run).await?;
            }
            Memory::Changes(beside) => beside.remember(run).await?,
        }
        Ok(Commit { upsert: self.upsert, probed: self.probed })
    }
}

/// The rows of changes that are remembered.
pub(crate) struct Commit {
    upsert: Upsert,
    probed: Probed,
}

impl Commit {
    /// Commits the rows under `txn`.
    pub(crate) async fn commit(
        &self,
        refinement: &Refinement<'_>,
        table: &mut Table,
        txn: Txn,
        point: &'static str,
    ) -> Result<Outcome> {
        let Refinement { lake, ctx, .. } = refinement;
        self.upsert.apply(lake, table, &self.probed, vec![txn], &ctx.run, point).await
    }
}
