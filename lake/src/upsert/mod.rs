//! Changes into a table by key, in two steps: [`Upsert::probe`] finds out what each change meets and counts it, so
//! that the caller can check its figures; [`Upsert::apply`] then commits, once.
//!
//! The changes hold at most one row per key. A change that is older than the row it meets, by the sequence columns
//! compared part by part and then by `_batch_id`, is stale and changes nothing; a null part is older than any value.
//! Keys are compared so that null meets null.

mod compare;
mod merge;
mod probe;

use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{ident, lit};

pub use self::compare::{differs, older, same_key};
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
/// What the probe found for a change; one of the constants below.
const VERDICT: &str = "__verdict";

const STALE: i32 = 0;
const INSERT: i32 = 1;
const UPDATE: i32 = 2;
const DELETED: i32 = 3;
/// A delete of a key that the table does not hold.
const ABSENT: i32 = 4;

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
    rows: Staged,
    /// The counts.
    pub figures: UpsertFigures,
}

impl Probed {
    /// The deletes among the changes that are not stale, with all their columns.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the rows cannot be read back.
    pub async fn deletes(&self, session: &Session) -> Result<DataFrame> {
        let deletes = ident(VERDICT).in_list(vec![lit(DELETED), lit(ABSENT)], false);
        Ok(self.rows.frame(session).await?.filter(deletes)?)
    }
}

impl Upsert {
    /// Compares changes with the open version of `table`. `changes` has the columns of the table and
    /// [`DELETE`]; at most one row per key.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the comparison cannot be computed.
    pub async fn probe(&self, lake: &Lake, table: &Table, changes: &Staged) -> Result<Probed> {
        probe::probe(self, lake, table, changes).await
    }

    /// Commits probed changes to the version of `table` that they were probed against, and moves the table to the
    /// version that holds them. Without a row to touch only the transactions are committed.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) when the table has moved since: probe again.
    pub async fn apply(
        &self,
        lake: &Lake,
        table: &mut Table,
        probed: &Probed,
        txns: Vec<Txn>,
        run: &RunId,
        point: &'static str,
    ) -> Result<Outcome> {
        merge::apply(self, lake, table, probed, merge::Target { txns, run: run.clone(), point }).await
    }

    /// The columns that decide which of two changes of a key is newer.
    fn order(&self) -> impl Iterator<Item = &str> {
        self.sequence.iter().map(String::as_str).chain([columns::BATCH_ID])
    }
}
