//! Work that is done once a period, by whichever run comes first in it. The event log remembers the last period of each kind
//! as a transaction, so that it is neither forgotten nor grows.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use deltalake::protocol::{DeltaOperation, SaveMode};

use crate::commit::{Commit, Outcome, Txn, redoing};
use crate::error::Result;
use crate::lakehouse::Lake;
use crate::names::{RunId, TableName};

/// True when the work of a kind was not done in the period that has begun at `begin`. Without an event log it is due, and so
/// it is when a later period was remembered by a clock that was wrong.
///
/// # Errors
/// As [`Lake::table`] and [`Table::txn_version`](crate::Table::txn_version).
pub async fn is_due(lake: &Lake, kind: &str, begin: DateTime<Utc>) -> Result<bool> {
    let Some(log) = lake.table(&TableName::event_log()).await? else { return Ok(true) };
    Ok(log.txn_version(&app(kind)).await? != Some(begin.timestamp()))
}

/// Remembers that the work of a kind was done in the period that has begun then. Nothing happens without an event log.
///
/// # Errors
/// As [`Table::commit`](crate::Table::commit).
pub async fn done(lake: &Lake, kind: &str, begin: DateTime<Utc>, run: &RunId) -> Result<()> {
    let done = async || {
        let Some(mut log) = lake.table(&TableName::event_log()).await? else { return Ok(()) };
        let commit = Commit {
            point: "round_committed",
            txns: vec![Txn::new(app(kind), begin.timestamp())],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: Vec::new(),
            blind_append: true,
            metrics: BTreeMap::new(),
            run: run.clone(),
        };
        log.commit(commit).await.map(|_: Outcome| ())
    };
    redoing(lake.clock(), done).await
}

fn app(kind: &str) -> String {
    format!("round:{kind}")
}
