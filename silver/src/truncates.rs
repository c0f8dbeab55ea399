//! Truncates: those of a run, and those of all runs, which are remembered for ever. Each is a delete of every key, whenever
//! what is older arrives. A table that keeps current rows only needs to know of the newest, others of all.

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, ident, lit};
use lake::commit::Txn;
use lake::upsert::older;
use lake::{Lake, Layer, Result, RunId, Table, columns};

use crate::facts::{Facts, Keep, Opened};
use crate::plan::{Kept, TablePlan};
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
        Ok(older(&self.turned(sequence, true)?))
    }

    /// The values of the truncate, each beside the column of the order of rows; the batch if that counts.
    pub(crate) fn turned(&self, sequence: &[String], with_batch: bool) -> Result<Vec<(Expr, Expr)>> {
        let mut turned: Vec<(Expr, Expr)> = self.beside(sequence)?.into_iter().map(|(row, own)| (own, row)).collect();
        turned.truncate(sequence.len() + usize::from(with_batch));
        Ok(turned)
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

/// The truncates among the records of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// The newest.
    pub(crate) newest: Option<Truncate>,
    /// Where a table keeps more than current rows all of them, with what orders arrivals.
    pub(crate) all: Vec<RecordBatch>,
}

impl Found {
    /// Takes those that rows stand for.
    pub(crate) fn add(&mut self, rows: RecordBatch, plan: &TablePlan) -> Result<()> {
        if rows.num_rows() > 0 {
            let newest = Truncate::newest_of(&rows, &plan.sequence_columns())?;
            self.newest = Truncate::newer(self.newest.take(), newest);
            if plan.kept != Kept::Current {
                self.all.push(rows);
            }
        }
        Ok(())
    }
}

/// The truncates that are remembered of one silver table, as they stood when it was opened.
pub(crate) struct Truncates<'a> {
    lake: &'a Lake,
    opened: Opened<'a>,
    newest: Option<Truncate>,
    all: Vec<RecordBatch>,
}

impl<'a> Truncates<'a> {
    /// Opens what is remembered of a table. What another application than `app` has left is not its own.
    pub(crate) async fn of(lake: &'a Lake, table: &Table, app: &'a str, sequence: &'a [String]) -> Result<Self> {
        let target: SchemaRef = table.schema();
        let order = sequence.iter().map(String::as_str).chain([columns::BATCH_ID]);
        let fields = order.map(|name| Ok(target.field_with_name(name)?.clone())).collect::<Result<Vec<_>>>()?;
        let facts = Facts {
            lake,
            layer: Layer::Truncates,
            about: "truncates remembered, so that late changes stay late, of",
            app,
            columns: fields.into_iter().chain([Field::new(TRUNCATED_AT, columns::timestamp_type(), false)]).collect(),
            point: "truncate_committed",
        };
        let opened = facts.open(table).await?;
        let (mut newest, mut all) = (None, Vec::new());
        if let Some(rows) = opened.rows(&lake.session()?).await? {
            for rows in rows.collect().await? {
                newest = Truncate::newer(newest, Truncate::newest_of(&rows, sequence)?);
                all.push(rows);
            }
        }
        Ok(Self { lake, opened, newest, all })
    }

    /// The newest that is remembered.
    pub(crate) fn newest(&self) -> Option<&Truncate> {
        self.newest.as_ref()
    }

    /// All that are remembered: their sequences and batches.
    pub(crate) fn all(&self) -> &[RecordBatch] {
        &self.all
    }

    /// Remembers truncates beside those that are remembered. Returns the transaction that the commit of the rows must
    /// carry.
    pub(crate) async fn remember(self, truncates: Vec<RecordBatch>, run: &RunId) -> Result<Txn> {
        let now = ScalarValue::TimestampMicrosecond(Some(self.lake.clock().now_micros()), Some("UTC".into()));
        let rows = self.lake.session()?.context().read_batches(truncates)?;
        let rows = rows.with_column(TRUNCATED_AT, lit(now))?;
        // Older ones stay, a row each: a table that is taken back to an earlier version has the one of then.
        self.opened.add(rows, Keep::All, run).await
    }
}
