//! The state of a table on a day: of a source as it is now, of a snapshot as of any day that it has.

use arrow::datatypes::DataType;
use chrono::NaiveDate;
use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::max;
use datafusion::logical_expr::{BinaryExpr, Expr, JoinType, Operator, cast, ident, lit};
use lake::columns::{CHANGE, DELETED_BATCH_ID, END_AT, IS_DELETED, SNAPSHOT_DATE};
use lake::session::{Session, reference};
use lake::{Error, ErrorKind, Layer, Result, Table};

use super::changed::DELETE;
use super::days::Days;
use crate::recipe::Recipe;
use crate::spec::Strategy;

/// The state of a table on a day, from a snapshot of it.
#[derive(Debug)]
pub struct AsOf {
    /// The rows: the columns of the snapshot that come from its source, the same for both strategies.
    pub rows: DataFrame,
    /// The day that was recorded last up to the one that was asked for.
    pub recorded: NaiveDate,
}

/// The state of the source of a snapshot at `day`, from what the snapshot holds. Both strategies give the same. A day
/// without a run has the state of the last one before it.
///
/// # Errors
/// [`ErrorKind::Table`] when `table` is no snapshot or has no day up to then.
pub async fn as_of(session: &Session, table: &Table, day: NaiveDate) -> Result<AsOf> {
    let no_snapshot = || {
        let error = Error::new(ErrorKind::Table, format!("{} is not a snapshot", table.name()));
        error.hint("only a table with `snapshot_of` in the spec has the state of a day")
    };
    let recipe = Recipe::of(table)?.ok_or_else(no_snapshot)?;
    let strategy = recipe.strategy.ok_or_else(no_snapshot)?;
    let days = Days::of(table)?;
    let Some(recorded) = days.at(day) else {
        let error = Error::new(ErrorKind::Table, format!("{} has no state of {day}", table.name()));
        return Err(match (days.first(), days.last()) {
            (Some(first), Some(last)) if first == last => error.hint(format!("its only day is {first}")),
            (Some(first), Some(last)) => error.hint(format!("it has the days from {first} to {last}")),
            _ => error.hint("it has no day yet"),
        });
    };
    session.register(table).await?;
    let rows = session.context().table(reference(table.name())).await?;
    let rows = match strategy {
        Strategy::Full => rows.filter(ident(SNAPSHOT_DATE).eq(date(recorded)))?,
        Strategy::ChangedOnly => living(rows.filter(ident(SNAPSHOT_DATE).lt_eq(date(recorded)))?, &recipe.keys)?,
    };
    let own = |name: &str| name == SNAPSHOT_DATE || (strategy == Strategy::ChangedOnly && name == CHANGE);
    let schema = table.schema();
    let names = schema.fields().iter().map(|field| field.name()).filter(|name| !own(name));
    let rows = rows.select(names.map(ident).collect::<Vec<_>>())?;
    Ok(AsOf { rows, recorded })
}

/// The current rows of the source: of a silver table that keeps deleted rows or history, those alone.
pub(super) async fn current(session: &Session, source: &Table) -> Result<DataFrame> {
    let rows = session.context().table(reference(source.name())).await?;
    Ok(match is_current(source) {
        Some((_, condition)) => rows.filter(condition)?,
        None => rows,
    })
}

/// The column of a table that tells its current rows from others, and what holds for them; `None` where all are.
pub(super) fn is_current(source: &Table) -> Option<(String, Expr)> {
    let has = |name: &str| source.name().layer == Layer::Silver && source.schema().field_with_name(name).is_ok();
    match (has(END_AT), has(IS_DELETED) && has(DELETED_BATCH_ID)) {
        (true, _) => Some((END_AT.to_owned(), ident(END_AT).is_null())),
        (false, true) => Some((IS_DELETED.to_owned(), ident(IS_DELETED).is_not_true())),
        (false, false) => None,
    }
}

/// The newest row of each key that is not a delete, of rows of a `changed_only` snapshot.
pub(super) fn living(rows: DataFrame, keys: &[String]) -> Result<DataFrame> {
    Ok(last_versions(rows, keys, Operator::IsNotDistinctFrom)?.filter(ident(CHANGE).not_eq(lit(DELETE)))?)
}

/// The newest row of each key, compared by `same`. A day has each key at most once.
pub(super) fn last_versions(rows: DataFrame, keys: &[String], same: Operator) -> Result<DataFrame> {
    const ALL: &str = "all";
    const LAST: &str = "last";
    let all = rows.clone().alias(ALL)?;
    let newest = vec![max(ident(SNAPSHOT_DATE)).alias(SNAPSHOT_DATE)];
    let last = rows.aggregate(keys.iter().map(ident).collect(), newest)?.alias(LAST)?;
    // One operator for all parts: a mix of them would not be joined by hash.
    let parts = keys.iter().map(String::as_str).chain([SNAPSHOT_DATE]);
    let met = parts.map(|part| compare(of(ALL, part), same, of(LAST, part)));
    Ok(all.join_on(last, JoinType::LeftSemi, met)?)
}

/// A day as a literal.
pub(super) fn date(day: NaiveDate) -> Expr {
    cast(lit(day.to_string()), DataType::Date32)
}

pub(super) fn of(side: &str, column: &str) -> Expr {
    Expr::Column(Column::new(Some(side), column))
}

pub(super) fn compare(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}
