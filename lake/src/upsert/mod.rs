//! Changes into a table by key, in two steps: [`Upsert::probe`] finds out what each change meets and counts it, so
//! that the caller can check its figures; [`Upsert::apply`] then commits, once.
//!
//! The changes hold at most one row per key. A change that is older than the row it meets, by the sequence columns
//! compared part by part and then by `_batch_id`, is stale and changes nothing; a null part is older than any value.
//! Keys are compared so that null meets null.
//!
//! The cost follows the changes: `prune` leaves out files that cannot hold a key, `probe` reads key columns of the
//! others to find the very rows (`part` holds the changes, `index` looks keys up, `file` reads), and `apply` replaces
//! those rows file by file, either by writing the file anew (`rewrite`) or by marking them as deleted
//! (`crate::vectors`), as `mode` decides. [`remove`](mod@remove) takes away rows that meet a condition by the same means.

mod apply;
mod compare;
mod constraints;
pub(crate) mod feed;
pub(crate) mod file;
mod fresh;
mod index;
mod mode;
mod part;
mod probe;
pub(crate) mod prune;
mod recommit;
pub mod remove;
mod replace;
mod rewrite;
mod rows;

use arrow::datatypes::Schema;
use datafusion::dataframe::DataFrame;

pub use self::compare::{differs, older, same_key};
pub use self::mode::WriteMode;
use self::probe::Touched;
use crate::columns;
use crate::commit::{Outcome, Txn};
use crate::error::Result;
use crate::lakehouse::Lake;
use crate::names::RunId;
use crate::session::Session;
use crate::stage::Staged;
use crate::table::Table;

/// The boolean column of a change that says whether it deletes its key.
pub const DELETE: &str = "__delete";

/// Bytes of changes that are held at a time where the engine sets no limit.
const HELD_BYTES: usize = 256 * 1024 * 1024;
/// Bytes of changes that are held at a time at most: the places of texts in a column have 32 bits.
const HELD_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// What a change does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nothing: the row is newer.
    Stale,
    Insert,
    Update,
    Delete,
    /// Nothing: it deletes a key that the table does not hold.
    Absent,
}

/// How changes meet rows.
#[derive(Debug, Clone)]
pub struct Upsert {
    /// The key columns.
    pub keys: Vec<String>,
    /// The sequence columns, the first part first; may be empty (the batch alone decides).
    pub sequence: Vec<String>,
}

/// Counts of what the changes met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpsertFigures {
    /// New keys.
    pub inserted: u64,
    /// Keys whose row is replaced.
    pub updated: u64,
    /// Keys whose row is removed.
    pub deleted: u64,
    /// Deletes of keys that the table does not hold.
    pub absent: u64,
    /// Changes older than the row they met.
    pub stale: u64,
}

impl UpsertFigures {
    /// Changes that are not stale.
    pub fn applied(&self) -> u64 {
        self.inserted + self.updated + self.deleted + self.absent
    }
}

/// Changes with what each of them meets in one version of a table.
#[derive(Debug)]
pub struct Probed {
    changes: Staged,
    /// Of each change, by its number.
    verdicts: Vec<Verdict>,
    touched: Vec<Touched>,
    /// Files whose keys were read, and files that could not hold a key.
    scanned: (usize, usize),
    mode: WriteMode,
    is_bound: bool,
    /// The counts.
    pub figures: UpsertFigures,
}

impl Probed {
    fn new(
        changes: Staged,
        verdicts: Vec<Verdict>,
        touched: Vec<Touched>,
        scanned: (usize, usize),
        figures: UpsertFigures,
    ) -> Self {
        Self { changes, verdicts, touched, scanned, mode: WriteMode::default(), is_bound: false, figures }
    }

    /// Asks for another way to replace rows than [`WriteMode::Auto`].
    #[must_use]
    pub fn with_mode(self, mode: WriteMode) -> Self {
        Self { mode, ..self }
    }

    /// Binds the changes to the version that they were probed against: they follow from more of it than the rows that
    /// they meet, so they are not committed to a newer one.
    #[must_use]
    pub fn bound(self) -> Self {
        Self { is_bound: true, ..self }
    }

    /// The deletes among the changes that are not stale, with all their columns.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the rows cannot be read back.
    pub async fn deletes(&self, session: &Session) -> Result<DataFrame> {
        rows::frame(self, session, &[Verdict::Delete, Verdict::Absent])
    }
}

impl Upsert {
    /// Compares changes with the open version of `table`. `changes` has the columns of the table and
    /// [`DELETE`]; at most one row per key. New rows are held to the rules of the table here, before the caller commits
    /// anything beside it.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) when a file cannot be read, [`ErrorKind::Data`](crate::ErrorKind::Data)
    /// when a row breaks a rule.
    pub async fn probe(&self, lake: &Lake, table: &Table, changes: &Staged) -> Result<Probed> {
        let probed = probe::probe(self, lake, table, changes).await?;
        constraints::check(self, lake, table, &probed).await?;
        Ok(probed)
    }

    /// Commits probed changes to the version of `table` that they were probed against, and moves the table to the
    /// version that holds them. Without a row to touch only the transactions are committed. When the table has moved
    /// since, and nothing that the changes meet has, the same files are committed to the newer version.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) when the changes may meet other rows by now: probe again.
    pub async fn apply(
        &self,
        lake: &Lake,
        table: &mut Table,
        probed: &Probed,
        txns: Vec<Txn>,
        run: &RunId,
        point: &'static str,
    ) -> Result<Outcome> {
        apply::apply(self, lake, table, probed, apply::Target { txns, run: run.clone(), point }).await
    }

    /// The columns of a table that decide which of two changes of a key is newer.
    fn order_in<'a>(&'a self, schema: &'a Schema) -> impl Iterator<Item = &'a str> {
        let batch = schema.field_with_name(columns::BATCH_ID).is_ok().then_some(columns::BATCH_ID);
        self.sequence.iter().map(String::as_str).chain(batch)
    }
}

/// Bytes of changes that may be held at a time.
fn held_bytes(lake: &Lake) -> usize {
    lake.engine().memory_bytes.map_or(HELD_BYTES, |bytes| bytes / 4).min(HELD_BYTES_MAX)
}
