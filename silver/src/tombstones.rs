//! Deletes remembered: keys with the sequence of their delete, so that a late older change does not bring a row back.
//!
//! The table only grows; of several tombstones of a key the newest counts. They are appended before the upsert that
//! deletes, under the same transaction, so a crash between the two leaves tombstones of deletes that the next run
//! applies: a change is stale only when it is older than the tombstone, and a delete is as old as its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinType, ScalarValue};
use datafusion::logical_expr::{Expr, ident, lit};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::commit::{Commit, Txn};
use lake::stage::Staged;
use lake::table::Definition;
use lake::upsert::{Probed, older, same_key};
use lake::write::write_streams;
use lake::{Lake, Result, RunId, TableName, columns};

const DELETED_AT: &str = "deleted_at";
const REMEMBERED: &str = "__remembered_";

/// The tombstones of one silver table.
pub struct Tombstones<'a> {
    /// The lake.
    pub lake: &'a Lake,
    /// The silver table.
    pub table: &'a TableName,
    /// The columns of the silver table.
    pub target: SchemaRef,
    /// Its keys.
    pub keys: &'a [String],
    /// Its sequence columns.
    pub sequence: &'a [String],
    /// How long deletes are remembered.
    pub retention_millis: u64,
}

impl Tombstones<'_> {
    /// The changes that no remembered delete has made stale.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](lake::ErrorKind::Query) when the comparison cannot be computed.
    pub async fn without_stale(&self, changes: Staged) -> Result<Staged> {
        let Some(table) = self.lake.table(&self.name()).await? else { return Ok(changes) };
        let session = self.lake.session()?;
        let names = self.keys.iter().map(String::as_str).chain(self.order());
        let renamed = names.enumerate().map(|(number, name)| ident(name).alias(format!("{REMEMBERED}{number}")));
        let remembered = session
            .context()
            .read_table(session.provider(&table).await?)?
            .filter(ident(DELETED_AT).gt_eq(lit(self.oldest())))?
            .select(renamed.collect::<Vec<_>>())?;
        let keys = self.keys.iter().enumerate();
        let keys = keys.map(|(number, key)| same_key(&self.target, key, ident(key), remembered_at(number)));
        let parts = self.order().enumerate();
        let parts = parts.map(|(number, name)| (ident(name), remembered_at(self.keys.len() + number)));
        let parts: Vec<(Expr, Expr)> = parts.collect();
        let on = keys.chain([older(&parts)]).collect::<Vec<_>>();
        Staged::write(changes.frame(&session).await?.join_on(remembered, JoinType::LeftAnti, on)?).await
    }

    /// Remembers the deletes among probed changes. `txn` is that of the upsert that follows.
    ///
    /// # Errors
    /// As [`Table::commit`](lake::Table::commit).
    pub async fn remember(&self, probed: &Probed, txn: Txn, run: &RunId) -> Result<()> {
        if probed.figures.deleted + probed.figures.absent == 0 {
            return Ok(());
        }
        let mut table = self.lake.create_or_open(&self.name(), &self.definition()).await?;
        let session = self.lake.session()?;
        let names = self.keys.iter().map(String::as_str).chain(self.order());
        let now = lit(timestamp(self.lake.clock().now_micros())).alias(DELETED_AT);
        let rows = probed.deletes(&session).await?.select(names.map(ident).chain([now]).collect::<Vec<_>>())?;
        let written = write_streams(&table, &table.schema(), rows.execute_stream_partitioned().await?).await?;
        let commit = Commit {
            point: "tombstones_committed",
            txns: vec![txn],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: written.files.into_iter().map(Action::Add).collect(),
            blind_append: true,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: run.clone(),
        };
        table.commit(commit).await?;
        Ok(())
    }

    fn name(&self) -> TableName {
        TableName::tombstones(&self.table.name)
    }

    fn order(&self) -> impl Iterator<Item = &str> {
        self.sequence.iter().map(String::as_str).chain([columns::BATCH_ID])
    }

    fn oldest(&self) -> ScalarValue {
        let kept_micros = i64::try_from(self.retention_millis).unwrap_or(i64::MAX).saturating_mul(1_000);
        timestamp(self.lake.clock().now_micros().saturating_sub(kept_micros))
    }

    fn definition(&self) -> Definition {
        let names = self.keys.iter().map(String::as_str).chain(self.order());
        let fields = names.filter_map(|name| self.target.field_with_name(name).ok()).cloned();
        let deleted_at = Field::new(DELETED_AT, columns::timestamp_type(), false);
        Definition {
            description: Some(format!("deletes of {} remembered, so that late changes stay late", self.table)),
            ..Definition::new(Arc::new(Schema::new(fields.chain([deleted_at]).collect::<Vec<_>>())))
        }
    }
}

fn remembered_at(number: usize) -> Expr {
    ident(format!("{REMEMBERED}{number}"))
}

fn timestamp(micros: i64) -> ScalarValue {
    match columns::timestamp_type() {
        DataType::Timestamp(_, zone) => ScalarValue::TimestampMicrosecond(Some(micros), zone),
        _ => ScalarValue::TimestampMicrosecond(Some(micros), None),
    }
}
