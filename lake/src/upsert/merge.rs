//! Probed changes into a table by the library's MERGE; new keys alone are added without reading the table.

use std::collections::BTreeMap;

use datafusion::common::{Column, TableReference};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, ident, lit};
use deltalake::kernel::Action;
use deltalake::kernel::transaction::CommitProperties;
use deltalake::protocol::{DeltaOperation, SaveMode};

use super::compare::same_key;
use super::{DELETED, INSERT, Probed, UPDATE, Upsert, VERDICT};
use crate::commit::{self, Commit, Outcome, Txn};
use crate::error::{Error, Result};
use crate::lakehouse::Lake;
use crate::names::RunId;
use crate::session::{Engine, Session};
use crate::table::Table;
use crate::write::write_streams;

const TARGET: &str = "target";
const SOURCE: &str = "source";

/// What the commit carries.
pub(super) struct Target {
    pub(super) txns: Vec<Txn>,
    pub(super) run: RunId,
    pub(super) point: &'static str,
}

pub(super) async fn apply(
    upsert: &Upsert,
    lake: &Lake,
    table: &mut Table,
    probed: &Probed,
    target: Target,
) -> Result<Outcome> {
    let figures = probed.figures;
    if figures.updated + figures.deleted == 0 {
        return append(lake, table, probed, target).await;
    }
    // The library's join cannot spill and may wait for ever in a bounded pool.
    let session = Session::new(&Engine { memory_bytes: None, threads: lake.engine().threads })?;
    let changes = rows(probed, &session, &[INSERT, UPDATE, DELETED]).await?;
    let (outcome, _) = commit::guarded(table, target.point, &target.txns, &target.run, async |table, properties| {
        merge(upsert, &session, table, changes, properties).await
    })
    .await?;
    Ok(outcome)
}

/// New keys only, or nothing but the transactions.
async fn append(lake: &Lake, table: &mut Table, probed: &Probed, target: Target) -> Result<Outcome> {
    let session = lake.session()?;
    let mut actions = Vec::new();
    if probed.figures.inserted > 0 {
        let columns: Vec<Expr> = table.schema().fields().iter().map(|field| ident(field.name())).collect();
        let streams = rows(probed, &session, &[INSERT]).await?.select(columns)?.execute_stream_partitioned().await?;
        let written = write_streams(table, &table.schema(), streams).await?;
        if written.rows != probed.figures.inserted {
            return Err(Error::internal(format!(
                "{} rows were to be inserted into {} and {} were written",
                probed.figures.inserted,
                table.name(),
                written.rows
            )));
        }
        actions.extend(written.files.into_iter().map(Action::Add));
    }
    let commit = Commit {
        point: target.point,
        txns: target.txns,
        operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
        actions,
        blind_append: false,
        metrics: BTreeMap::from([("numTargetRowsInserted", probed.figures.inserted)]),
        run: target.run,
    };
    table.commit(commit).await
}

async fn rows(probed: &Probed, session: &Session, verdicts: &[i32]) -> Result<DataFrame> {
    let wanted = verdicts.iter().map(|verdict| lit(*verdict)).collect();
    Ok(probed.rows.frame(session).await?.filter(ident(VERDICT).in_list(wanted, false))?)
}

async fn merge(
    upsert: &Upsert,
    session: &Session,
    table: &Table,
    changes: DataFrame,
    properties: CommitProperties,
) -> Result<()> {
    let schema = table.schema();
    let keys = upsert
        .keys
        .iter()
        .map(|key| same_key(&schema, key, qualified(TARGET, key), qualified(SOURCE, key)))
        .reduce(Expr::and)
        .ok_or_else(|| Error::internal("an upsert needs keys"))?;
    let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let is = |verdict: i32| qualified(SOURCE, VERDICT).eq(lit(verdict));
    table
        .delta()
        .clone()
        .merge(changes, keys)
        .with_source_alias(SOURCE)
        .with_target_alias(TARGET)
        .with_session_state(std::sync::Arc::new(session.context().state()))
        .with_commit_properties(properties)
        .with_safe_cast(false)
        .when_matched_delete(|delete| delete.predicate(is(DELETED)))?
        .when_matched_update(|update| {
            columns.iter().fold(update.predicate(is(UPDATE)), |update, name| {
                update.update(Column::from_name(*name), qualified(SOURCE, name))
            })
        })?
        .when_not_matched_insert(|insert| {
            columns.iter().fold(insert.predicate(is(INSERT)), |insert, name| {
                insert.set(Column::from_name(*name), qualified(SOURCE, name))
            })
        })?
        .await?;
    Ok(())
}

fn qualified(table: &'static str, name: &str) -> Expr {
    Expr::Column(Column::new(Some(TableReference::bare(table)), name))
}
