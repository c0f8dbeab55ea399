//! What a run of a table would take, without taking it.

use std::ops::RangeInclusive;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::functions_aggregate::expr_fn::count;
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

/// Looks at the bronze table and the silver table, and changes nothing. With `more_comes` a run would write another batch to
/// bronze first.
///
/// # Errors
/// [`ErrorKind::Store`](lake::ErrorKind::Store) or [`ErrorKind::Table`](lake::ErrorKind::Table) when one of them cannot be
/// read.
pub async fn waiting(lake: &Lake, plan: &TablePlan, more_comes: bool) -> Result<Waiting> {
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
    let mut waiting = Waiting { applied, is_made: table.is_some(), no_source: newest.is_none(), ..Waiting::default() };
    if let (Some(bronze), Some(newest)) = (bronze, newest) {
        waiting = above(lake, plan, &bronze, newest, waiting).await?;
    }
    let takes = waiting.batches.is_some() || more_comes;
    waiting.unfit = match &table {
        Some(table) => check(plan, table, applied, newest, takes).err(),
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
    let told = rows.aggregate(vec![batch()], vec![count(lit(1))])?.collect().await?;
    let mut batches: Vec<i64> = Vec::new();
    let mut rows = 0;
    for told in &told {
        batches.extend(told.column(0).as_primitive::<Int64Type>().values());
        rows += told.column(1).as_primitive::<Int64Type>().values().iter().sum::<i64>();
    }
    if let (Some(first), Some(last)) = (batches.iter().min(), batches.iter().max()) {
        let (batch_count, rows) = (batches.len() as u64, rows.unsigned_abs());
        return Ok(Waiting { batches: Some(*first..=*last), batch_count, rows, ..waiting });
    }
    // Where files are full extracts one without records says something.
    if plan.snapshot.is_none() {
        return Ok(waiting);
    }
    let first = waiting.applied.unwrap_or(0) + 1;
    let batch_count = u64::try_from(newest - first + 1).unwrap_or(0);
    Ok(Waiting { batches: Some(first..=newest), batch_count, ..waiting })
}

/// Refuses what a run would refuse that `takes` something, or nothing.
fn check(plan: &TablePlan, table: &Table, applied: Option<i64>, newest: Option<i64>, takes: bool) -> Result<()> {
    plan.check_made_alike(table)?;
    if let (Some(applied), Some(newest)) = (applied, newest)
        && applied > newest
    {
        return Err(plan.ahead_of_source(applied, newest));
    }
    if takes {
        plan.check_partitions(table)?;
    }
    Ok(())
}
