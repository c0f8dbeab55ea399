//! What a `changed_only` day records: the rows of the source that differ from the last version of their key, new
//! ones, and those that are gone.

use chrono::NaiveDate;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, JoinType, Operator, ident, lit, when};
use lake::Result;
use lake::columns::{CHANGE, SNAPSHOT_DATE};

use super::layout::{Layout, field};
use super::state::{compare, date, of};
use crate::plan::SnapshotPlan;
use crate::spec::HardDeletes;

/// The row as the source has it now.
const NOW: &str = "now";
/// The row as it was before the day.
const WAS: &str = "was";
/// True on each side of the join where that side has a row.
const HERE: &str = "__here";

pub(super) const INSERT: &str = "insert";
pub(super) const UPDATE: &str = "update";
pub(super) const DELETE: &str = "delete";

/// The rows that tell how `was` became `now` on `day`, with the columns of the table. Both have the [`shaped`] columns.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when the comparison cannot be planned.
pub(super) fn changes(
    was: DataFrame,
    now: DataFrame,
    layout: &Layout,
    plan: &SnapshotPlan,
    day: NaiveDate,
) -> Result<DataFrame> {
    let join = match plan.hard_deletes {
        HardDeletes::Record => JoinType::Full,
        HardDeletes::Ignore => JoinType::Left,
    };
    let joined = beside(now, was, layout, &plan.keys, join)?;
    let appeared = of(WAS, HERE).is_null();
    let vanished = of(NOW, HERE).is_null();
    let recorded = differs(&layout.compared(plan)).fold(appeared.clone().or(vanished.clone()), Expr::or);

    let columns = layout.schema.fields().iter().map(|field| {
        let name = field.name();
        Ok(match name.as_str() {
            SNAPSHOT_DATE => date(day),
            CHANGE => when(appeared.clone(), lit(INSERT)).when(vanished.clone(), lit(DELETE)).otherwise(lit(UPDATE))?,
            _ => when(vanished.clone(), of(WAS, name)).otherwise(of(NOW, name))?,
        }
        .alias(name))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(joined.filter(recorded)?.select(columns)?)
}

/// The rows of `now` whose key is not among `was`, or is there with other values of `columns`. Both have the columns of the
/// table.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when the comparison cannot be planned.
pub(super) fn differing(
    was: DataFrame,
    now: DataFrame,
    layout: &Layout,
    keys: &[String],
    columns: &[String],
) -> Result<DataFrame> {
    let joined = beside(now, was, layout, keys, JoinType::Left)?;
    let names = layout.schema.fields().iter().map(|field| of(NOW, field.name()).alias(field.name()));
    let names: Vec<Expr> = names.collect();
    Ok(joined.filter(differs(columns).fold(of(WAS, HERE).is_null(), Expr::or))?.select(names)?)
}

/// Rows of two states, side by side where the key is the same.
fn beside(now: DataFrame, was: DataFrame, layout: &Layout, keys: &[String], join: JoinType) -> Result<DataFrame> {
    let (now, was) = (with_mark(now)?.alias(NOW)?, with_mark(was)?.alias(WAS)?);
    let keys = keys.iter().map(|key| compare(of(NOW, key), layout.same_key(), of(WAS, key)));
    Ok(now.join_on(was, join, keys)?)
}

/// For each column, that the two sides differ in it.
fn differs(columns: &[String]) -> impl Iterator<Item = Expr> {
    columns.iter().map(|column| compare(of(NOW, column), Operator::IsDistinctFrom, of(WAS, column)))
}

/// Rows with the columns of the table that come from the source, as the table spells them; those that they lack are null.
pub(super) fn shaped(rows: DataFrame, layout: &Layout) -> Result<DataFrame> {
    let columns = layout.values().map(|wanted| {
        let name = wanted.name();
        Ok(match field(rows.schema().fields(), name) {
            Some(held) => ident(held.name()).alias(name),
            None => lit(ScalarValue::try_from(wanted.data_type())?).alias(name),
        })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(rows.select(columns)?)
}

fn with_mark(rows: DataFrame) -> Result<DataFrame> {
    let mut columns: Vec<Expr> = rows.schema().fields().iter().map(|field| ident(field.name())).collect();
    columns.push(lit(true).alias(HERE));
    Ok(rows.select(columns)?)
}
