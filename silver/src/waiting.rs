//! What a run of a table would take, without taking it.

use std::ops::RangeInclusive;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::functions_aggregate::expr_fn::{count, count_distinct, max, min};
use datafusion::logical_expr::{ident, lit};
use lake::{Error, Lake, Result, Table, TableName, columns};

use crate::plan::TablePlan;

/// What a run of a table would take.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Batches of bronze that the table has not applied and that hold something for it: the first and the last. Those
    /// whose files were all refused, or whose rows were taken back, are none.
    pub batches: Option<RangeInclusive<i64>>,
    /// How many they are.
    pub batch_count: u64,
    /// The records in them.
    pub rows: u64,
    /// True when no batch of bronze is there yet.
    pub no_source: bool,
    /// The last batch that the table has applied; `None` before the first.
    pub applied: Option<i64>,
    /// True when the table is there.
    pub is_made: bool,
    /// Why a run would fail before it took anything.
    pub unfit: Option<Error>,
}

/// Looks at the bronze table and the silver table, and changes nothing.
///
/// # Errors
/// [`ErrorKind::Store`](lake::ErrorKind::Store) or [`ErrorKind::Table`](lake::ErrorKind::Table) when one of them cannot be
/// read.
pub async fn waiting(lake: &Lake, plan: &TablePlan) -> Result<Waiting> {
    let source = TableName::bronze(&plan.source);
    let bronze = lake.table(&source).await?;
    let newest = match &bronze {
        Some(bronze) => bronze.txn_version(&plan.source).await?,
        None => None,
    };
    let table = lake.table(&plan.table).await?;
    let applied = match &table {
        Some(table) => table.txn_version(&format!("{}:{source}", plan.table)).await?,
        None => None,
    };
    let waiting = Waiting { applied, is_made: table.is_some(), no_source: newest.is_none(), ..Waiting::default() };
    let (Some(bronze), Some(newest)) = (bronze, newest) else { return Ok(waiting) };
    let mut waiting = above(lake, plan, &bronze, newest, waiting).await?;
    waiting.unfit = match &table {
        Some(table) => check(plan, table, &waiting, newest).err(),
        None => None,
    };
    Ok(waiting)
}

/// The batches above the one that is applied.
async fn above(lake: &Lake, plan: &TablePlan, bronze: &Table, newest: i64, waiting: Waiting) -> Result<Waiting> {
    if waiting.applied.is_some_and(|applied| applied >= newest) {
        return Ok(waiting);
    }
    let session = lake.session()?;
    let batch = || ident(columns::BATCH_ID);
    let rows = session.context().read_table(session.provider(bronze).await?)?;
    let rows = match waiting.applied {
        Some(applied) => rows.filter(batch().gt(lit(applied)))?,
        None => rows,
    };
    let figures = vec![count(lit(1)), count_distinct(batch()), min(batch()), max(batch())];
    let told = rows.aggregate(Vec::new(), figures)?.collect().await?;
    let Some(told) = told.first().filter(|told| told.num_rows() > 0) else { return Ok(waiting) };
    let figure = |place: usize| told.column(place).as_primitive::<Int64Type>().value(0);
    let (rows, batch_count) = (u64::try_from(figure(0)).unwrap_or(0), u64::try_from(figure(1)).unwrap_or(0));
    if rows > 0 {
        return Ok(Waiting { batches: Some(figure(2)..=figure(3)), batch_count, rows, ..waiting });
    }
    // Where files are full extracts one without records says something.
    if plan.snapshot.is_none() {
        return Ok(waiting);
    }
    let first = waiting.applied.unwrap_or(0) + 1;
    let batch_count = u64::try_from(newest - first + 1).unwrap_or(0);
    Ok(Waiting { batches: Some(first..=newest), batch_count, ..waiting })
}

/// Refuses what a run would refuse.
fn check(plan: &TablePlan, table: &Table, waiting: &Waiting, newest: i64) -> Result<()> {
    plan.check_made_alike(table)?;
    if let Some(applied) = waiting.applied.filter(|applied| *applied > newest) {
        return Err(plan.ahead_of_source(applied, newest));
    }
    if waiting.batches.is_some() {
        plan.check_no_new_generated(table)?;
        plan.check_partitions(table)?;
    }
    Ok(())
}
