//! Truncates: the newest one of a run, and the newest one of all, which is remembered for ever. It is a delete of every
//! key, so a change that is older never comes back, whenever it arrives.

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, ident, lit};
use lake::commit::Txn;
use lake::upsert::older;
use lake::{Lake, Layer, Result, RunId, Table, columns};

use crate::facts::{Facts, Keep, Opened};
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
pub(crate) struct Truncates<'a> {
    lake: &'a Lake,
    opened: Opened<'a>,
    newest: Option<Truncate>,
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
            about: "the newest truncate remembered, so that late changes stay late, of",
            app,
            columns: fields.into_iter().chain([Field::new(TRUNCATED_AT, columns::timestamp_type(), false)]).collect(),
            point: "truncate_committed",
        };
        let opened = facts.open(table).await?;
        let mut newest = None;
        if let Some(rows) = opened.rows(&lake.session()?).await? {
            for rows in rows.collect().await? {
                newest = Truncate::newer(newest, Truncate::newest_of(&rows, sequence)?);
            }
        }
        Ok(Self { lake, opened, newest })
    }

    /// The truncate that is remembered.
    pub(crate) fn newest(&self) -> Option<&Truncate> {
        self.newest.as_ref()
    }

    /// Remembers a truncate beside those that are remembered. Returns the transaction that the commit of the rows must
    /// carry.
    pub(crate) async fn remember(self, truncate: &Truncate, run: &RunId) -> Result<Txn> {
        let now = ScalarValue::TimestampMicrosecond(Some(self.lake.clock().now_micros()), Some("UTC".into()));
        let row = self.lake.session()?.context().read_batch(truncate.row.clone())?;
        let row = row.with_column(TRUNCATED_AT, lit(now))?;
        // Older ones stay, a row each: a table that is taken back to an earlier version has the one of then.
        self.opened.add(row, Keep::All, run).await
    }
}
