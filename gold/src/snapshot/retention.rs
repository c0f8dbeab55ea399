//! What older days still give to those that are kept.
//!
//! Of days before `cut` a `changed_only` snapshot keeps what the day `cut` and all later ones need: the last version of
//! each key as of `cut`, under its own day. What nobody needs goes in two ways, so that a day costs what it changes and not
//! what the table holds:
//! - **Days that expire** keep the last version of each key among themselves. A delete is one too: an older version of its
//!   key may still be there.
//! - **All rows before `cut`** are looked at when the rows recorded since that was last done are more than one in
//!   [`LEFT_SHARE`] of those that were kept then, for each of these can have made one of those needless, or when it is
//!   [`LEFT_DAYS_MAX`] days ago. Then needless versions go, and deletes with them.
//!
//! Either way only days with needless rows are written again. When all was looked at last is told by a transaction,
//! `gold.x:purged` = the `cut` of then.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::{Date32Type, Int64Type};
use chrono::{Datelike, NaiveDate};
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{ident, lit};
use lake::columns::{CHANGE, SNAPSHOT_DATE};
use lake::commit::Txn;
use lake::session::{Session, reference};
use lake::{Result, Table, TableName};

use super::changed::DELETE;
use super::days::Days;
use super::layout::Layout;
use super::state::{date, last_versions};

/// Of so many rows that are kept of days that are gone, one may be needless.
const LEFT_SHARE: u64 = 4;
/// So many days at most stays what no day needs.
const LEFT_DAYS_MAX: i64 = 30;

/// What becomes of the rows of days that are gone.
#[derive(Debug, Default)]
pub(super) struct Expired {
    /// The days whose rows go.
    pub(super) days: BTreeSet<NaiveDate>,
    /// So many of them come again.
    pub(super) kept: u64,
    /// The transaction of a look at all that is kept.
    pub(super) txn: Option<Txn>,
}

/// Which rows of days before `cut` go from a `changed_only` snapshot, and those that come again.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when the rows cannot be read.
pub(super) async fn expired(
    session: &Session,
    table: &Table,
    layout: &Layout,
    keys: &[String],
    known: &Days,
    cut: NaiveDate,
) -> Result<(Expired, Option<DataFrame>)> {
    let is_whole = is_due(table, purged(table).await?, cut)?;
    let mut rows = session.context().table(reference(table.name())).await?;
    if let Some(first) = known.first().filter(|_| !is_whole) {
        rows = rows.filter(ident(SNAPSHOT_DATE).gt_eq(date(first)))?;
    }
    let is_old = || ident(SNAPSHOT_DATE).lt(date(cut));
    let last = last_versions(rows.clone().filter(ident(SNAPSHOT_DATE).lt_eq(date(cut)))?, keys, layout.same_key())?;
    let needed = match is_whole {
        true => last.filter(is_old().and(ident(CHANGE).not_eq(lit(DELETE))))?,
        false => last.filter(is_old())?,
    };
    let (held, left) = (per_day(rows.filter(is_old())?).await?, per_day(needed.clone()).await?);
    let days: BTreeSet<NaiveDate> =
        held.iter().filter(|(day, rows)| left.get(day) != Some(rows)).map(|(day, _)| *day).collect();
    let kept = left.iter().filter(|(day, _)| days.contains(day)).map(|(_, rows)| rows).sum();
    let again = match kept {
        0 => None,
        _ => {
            let of_days = ident(SNAPSHOT_DATE).in_list(days.iter().map(|day| date(*day)).collect(), false);
            Some(layout.like(needed.filter(of_days)?)?)
        }
    };
    let txn = is_whole.then(|| Txn::new(purged_app(table.name()), i64::from(cut.num_days_from_ce())));
    Ok((Expired { days, kept, txn }, again))
}

/// The application that tells up to which day all needless rows have gone.
pub(super) fn purged_app(table: &TableName) -> String {
    format!("{table}:purged")
}

/// The `cut` of the last look at all rows.
async fn purged(table: &Table) -> Result<Option<NaiveDate>> {
    let held = table.txn_version(&purged_app(table.name())).await?;
    let days = held.and_then(|days| i32::try_from(days).ok()).filter(|days| *days > 0);
    Ok(days.and_then(NaiveDate::from_num_days_from_ce_opt))
}

/// True when all that is kept of days that are gone is to be looked at.
fn is_due(table: &Table, purged: Option<NaiveDate>, cut: NaiveDate) -> Result<bool> {
    let Some(purged) = purged else { return Ok(true) };
    let (mut kept, mut since) = (0, 0);
    for (day, rows) in table.rows_by_partition(&[SNAPSHOT_DATE])? {
        match day.into_iter().flatten().find_map(|day| day.parse::<NaiveDate>().ok()) {
            Some(day) if day < purged => kept += rows,
            Some(day) if day <= cut => since += rows,
            _ => {}
        }
    }
    Ok((cut - purged).num_days() >= LEFT_DAYS_MAX || since * LEFT_SHARE > kept)
}

/// Rows of each day.
async fn per_day(rows: DataFrame) -> Result<BTreeMap<NaiveDate, u64>> {
    let counted = rows.aggregate(vec![ident(SNAPSHOT_DATE)], vec![count(lit(1_i64)).alias("rows")])?.collect().await?;
    let mut days = BTreeMap::new();
    for batch in &counted {
        let (dates, rows) = (batch.column(0).as_primitive::<Date32Type>(), batch.column(1).as_primitive::<Int64Type>());
        let each = dates.values().iter().zip(rows.values());
        days.extend(
            each.filter_map(|(day, rows)| Some((Date32Type::to_naive_date_opt(*day)?, u64::try_from(*rows).ok()?))),
        );
    }
    Ok(days)
}
