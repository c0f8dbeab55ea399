//! Files that are full extracts: each is compared with what was there before it, and what differs are the changes.
//!
//! A file is an extract. Its place among the others is its sequence, which must be the same in all its records, then
//! its arrival. `files` says which files came as a whole, `extracts` puts them in order and refuses those that cannot
//! be right, `compare` makes changes of them. An extract that is older than the newest that was applied is stale as a
//! whole where the table keeps current rows; one that keeps more would need it between the two, so it is refused. One that records were kept out of (they are in quarantine) deletes nothing: what is missing in it may have
//! been among them.

mod applied;
mod compare;
mod extracts;
mod files;

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use lake::quarantine::QuarantineWriter;
use lake::report::FailedFile;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Result, Table};

pub(crate) use self::applied::Applied;
use self::extracts::{Extracts, Fate};
use self::files::Files;
use crate::change::Decoder;
use crate::dedup;
use crate::read::{Changes, Range, Read, Rejects, Tally, Wanted, changes};
use crate::refine::Refinement;

/// What new extracts come to.
pub(crate) struct Extracted<'a> {
    /// The changes, of which only the last at each place is there.
    pub(crate) last: Staged,
    pub(crate) tally: Tally,
    pub(crate) writer: QuarantineWriter,
    pub(crate) counts: Counts,
    pub(crate) refused: Vec<FailedFile>,
    pub(crate) notes: Vec<String>,
    /// Where the extracts stand, to be remembered before the rows are committed.
    pub(crate) applied: Option<Applied<'a>>,
}

/// What became of the records of extracts, and of the changes that they come to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Deletes of keys that an extract does not have.
    pub(crate) absent: u64,
    /// Records that say what was there already.
    pub(crate) unchanged: u64,
    pub(crate) superseded: u64,
    /// Records of extracts that came too late.
    pub(crate) stale: u64,
    /// Records of extracts that were refused.
    pub(crate) refused: u64,
    /// Records that came after the extract to which they belong.
    pub(crate) parts: u64,
}

impl Refinement<'_> {
    /// The changes that records are, or that the extracts come to which they are of.
    pub(crate) async fn taken<'a>(
        &'a self,
        (bronze, range, wanted, rejects): (&Table, Range, Wanted, Rejects),
        decoder: &Arc<Decoder>,
        table: &Table,
        side: &'a str,
        session: &Session,
    ) -> Result<Extracted<'a>> {
        if self.plan.snapshot.is_some() {
            let changes = changes(bronze, wanted, decoder, rejects, session, self.ctx).await?;
            return self.extracted(changes, (bronze, range), decoder, table, side).await;
        }
        let (last, superseded, Read { tally, writer, .. }) =
            self.deciding(bronze, wanted, decoder, rejects, session).await?;
        let counts = Counts { superseded, ..Counts::default() };
        Ok(Extracted { last, tally, writer, counts, refused: Vec::new(), notes: Vec::new(), applied: None })
    }

    /// Compares the extracts of some batches with the table.
    async fn extracted<'a>(
        &'a self,
        changes: Changes,
        (bronze, range): (&Table, Range),
        decoder: &Decoder,
        table: &Table,
        side: &'a str,
    ) -> Result<Extracted<'a>> {
        let session = self.lake.session()?;
        let staged = Staged::write(changes.frame.clone()).await;
        let (records, Read { tally, mut writer, .. }) = self.finished(staged, changes).await?;
        let files = Files::of(self, (bronze, range), &tally, &session).await?;
        let applied = Applied::open(self, decoder, table, side).await?;
        let places = applied.places(&session).await?;
        let extracts = Extracts::of(self.plan, decoder, &records, &files, &places, &session).await?;
        let refused = extracts.refuse(bronze, decoder, &records, &session).await?;
        let mut counts = Counts {
            stale: extracts.rows(|fate| matches!(fate, Fate::Late)),
            parts: extracts.rows(|fate| matches!(fate, Fate::Part)),
            refused: refused.len() as u64,
            ..Counts::default()
        };
        for record in refused {
            writer.push(record).await?;
        }
        let compared = compare::Compared::of(self.plan, decoder, table, &records, &extracts, &session).await?;
        counts.absent = compared.deletes;
        counts.unchanged = extracts.rows(|fate| matches!(fate, Fate::Taken)).saturating_sub(compared.upserts);
        let memory = self.lake.engine().memory_bytes;
        let events: DataFrame = compared.events(&session).await?;
        let (last, superseded) =
            dedup::last(events, &self.plan.once_per(), &self.plan.sequence_columns(), memory).await?;
        counts.superseded = superseded;
        let (refused, notes) = (extracts.failed(), extracts.notes(counts.parts));
        let applied = applied.with(extracts.taken())?;
        Ok(Extracted { last, tally, writer, counts, refused, notes, applied })
    }
}
