//! Truncates: the newest one of a run, and the newest one of all, which is remembered for ever. It is a delete of every
//! key, so a change that is older never comes back, whenever it arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, ident, lit};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::commit::{Commit, Outcome, Txn, redefine};
use lake::table::Definition;
use lake::upsert::older;
use lake::write::{TableWriter, discard};
use lake::{Lake, Result, RunId, Table, TableName, columns};

use crate::position::{Position, Positions};

const TRUNCATED_AT: &str = "truncated_at";

/// A truncate: where it stands, and one row that holds its sequence and its batch.
#[derive(Debug, Clone)]
pub(crate) struct Truncate {
    pub(crate) at: Position,
    pub(crate) row: RecordBatch,
}

impl Truncate {
    /// The newest of the truncates that rows stand for.
    pub(crate) fn newest_of(rows: &RecordBatch, sequence: &[String]) -> Result<Option<Self>> {
        let positions = Positions::of(rows, sequence)?;
        let newest = (0..rows.num_rows()).map(|row| (positions.at(row), row)).max();
        Ok(newest.map(|(at, row)| Self { at, row: rows.slice(row, 1) }))
    }

    /// The newer of two.
    pub(crate) fn newer(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if one.at > other.at { one } else { other }),
            (one, other) => one.or(other),
        }
    }

    /// True for rows that come before the truncate.
    pub(crate) fn outdates(&self, sequence: &[String]) -> Result<Expr> {
        Ok(older(&self.beside(sequence)?))
    }

    /// True for rows that come after the truncate.
    pub(crate) fn precedes(&self, sequence: &[String]) -> Result<Expr> {
        let turned: Vec<(Expr, Expr)> = self.beside(sequence)?.into_iter().map(|(row, own)| (own, row)).collect();
        Ok(older(&turned))
    }

    /// The columns of the order of rows, each beside the value of the truncate.
    fn beside(&self, sequence: &[String]) -> Result<Vec<(Expr, Expr)>> {
        let names = sequence.iter().map(String::as_str).chain([columns::BATCH_ID]);
        let pairs = names.map(|name| {
            let index = self.row.schema().index_of(name)?;
            Ok((ident(name), lit(ScalarValue::try_from_array(self.row.column(index), 0)?)))
        });
        pairs.collect()
    }
}

/// The truncate that is remembered of one silver table, as it stood when it was opened.
pub(crate) struct Truncates {
    lake: Lake,
    name: TableName,
    definition: Definition,
    table: Option<Table>,
    held: Option<i64>,
    newest: Option<Truncate>,
}

impl Truncates {
    /// Opens what is remembered of `table`, whose columns are `target`. What another application than `app` has left
    /// is not its own.
    pub(crate) async fn of(
        lake: &Lake,
        table: &TableName,
        app: &str,
        target: &SchemaRef,
        sequence: &[String],
    ) -> Result<Self> {
        let name = TableName::truncates(&table.name);
        let order = sequence.iter().map(String::as_str).chain([columns::BATCH_ID]);
        let fields = order.map(|name| Ok(target.field_with_name(name)?.clone())).collect::<Result<Vec<_>>>()?;
        let at = Field::new(TRUNCATED_AT, columns::timestamp_type(), false);
        let schema = Arc::new(Schema::new(fields.into_iter().chain([at]).collect::<Vec<_>>()));
        let definition = Definition {
            description: Some(format!("the newest truncate of {table} remembered, so that late changes stay late")),
            ..Definition::new(Arc::clone(&schema))
        };
        let mut opened = Self { lake: lake.clone(), name, definition, table: None, held: None, newest: None };
        let Some(table) = lake.table(&opened.name).await? else { return Ok(opened) };
        opened.held = table.txn_version(app).await?;
        if opened.held.is_some() {
            let session = lake.session()?;
            let all = schema.fields().iter().map(|field| ident(field.name())).collect::<Vec<_>>();
            let rows = session.context().read_table(session.provider(&table).await?)?.select(all)?.collect().await?;
            for rows in rows {
                opened.newest = Truncate::newer(opened.newest, Truncate::newest_of(&rows, sequence)?);
            }
        }
        opened.table = Some(table);
        Ok(opened)
    }

    /// The truncate that is remembered.
    pub(crate) fn newest(&self) -> Option<&Truncate> {
        self.newest.as_ref()
    }

    /// How far the owner's work has come here.
    pub(crate) fn held(&self) -> Option<i64> {
        self.held
    }

    /// Remembers a truncate in place of what was remembered. `txns` are of the owner's application.
    pub(crate) async fn remember(self, truncate: &Truncate, txns: Vec<Txn>, run: &RunId) -> Result<()> {
        let mut table = match self.table {
            Some(table) => table,
            None => self.lake.create_or_open(&self.name, &self.definition).await?,
        };
        let mut columns = Vec::new();
        for field in self.definition.schema.fields() {
            columns.push(match field.name().as_str() {
                TRUNCATED_AT => {
                    let now =
                        ScalarValue::TimestampMicrosecond(Some(self.lake.clock().now_micros()), Some("UTC".into()));
                    now.to_array()?
                }
                name => Arc::clone(truncate.row.column(truncate.row.schema().index_of(name)?)),
            });
        }
        let row = RecordBatch::try_new(Arc::clone(&self.definition.schema), columns)?;
        let mut writer = match self.held {
            Some(_) => TableWriter::new(&table),
            None => TableWriter::redefined(&table, &self.definition),
        };
        writer.write(&row).await?;
        let written = writer.close().await?;
        let mut actions: Vec<Action> = Vec::new();
        if self.held.is_none() {
            actions.extend(redefine(&table, &self.definition)?);
        }
        actions.extend(table.removes(|_| true)?);
        actions.extend(written.files.iter().cloned().map(Action::Add));
        let commit = Commit {
            point: "truncate_committed",
            txns,
            operation: DeltaOperation::Write { mode: SaveMode::Overwrite, partition_by: None, predicate: None },
            actions,
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: run.clone(),
        };
        match table.commit(commit).await {
            Ok(Outcome::Committed { .. }) => Ok(()),
            Ok(Outcome::AlreadyApplied { .. }) => {
                discard(&table, &written.files).await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
