//! The fold of tables that keep deleted rows: the last upsert of a key gives its values, a later delete marks it.

use datafusion::dataframe::DataFrame;
use datafusion::functions_window::expr_fn::{lag, lead};
use datafusion::logical_expr::{Expr, ExprFunctionExt, ident, lit, when};
use lake::upsert::DELETE;
use lake::{Result, columns};

use super::events::{Events, NEW, ORIGIN};
use super::truncated::COINCIDES;
use super::{APPLIED, HIDDEN, STALE, SUPERSEDED, VERDICT};

/// Where the later change of a key comes from; null for the last one.
const LATER: &str = "__later";
/// Whether the key has an earlier change.
const EARLIER: &str = "__earlier";
/// The sequence and the batch of the later change.
const MARK: &str = "__mark_";

/// The last upsert and the last delete of each key, each with what the other makes of it.
pub(super) fn timeline(winners: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let over = |call: Expr, name: String| -> Result<Expr> {
        let built = call.partition_by(events.keys()).order_by(events.newest_first()).build()?;
        Ok(built.alias(name))
    };
    let mut windows = vec![
        over(lag(ident(ORIGIN), Some(1), None), LATER.to_owned())?,
        over(lead(ident(ORIGIN), Some(1), None), EARLIER.to_owned())?,
    ];
    for (number, name) in order(events).enumerate() {
        windows.push(over(lag(ident(name), Some(1), None), format!("{MARK}{number}"))?);
    }
    let later = || ident(LATER).is_not_null();
    let verdict = when(ident(DELETE).is_false().or(ident(LATER).is_null()), lit(APPLIED))
        .when(ident(LATER).eq(lit(NEW)), lit(SUPERSEDED))
        .otherwise(lit(STALE))?;
    // A delete without a row stands nowhere else; one before the row matters where updates leave out columns.
    let is_told = match events.plan.partial.is_on() {
        true => ident(LATER).is_null().and(ident(EARLIER).is_not_null()),
        false => ident(LATER).is_not_null().or(ident(EARLIER).is_not_null()),
    };
    let hidden = ident(DELETE).and(is_told.is_false());
    let timeline = winners.window(windows)?;
    // A delete that an upsert follows puts no mark on it, which could be taken for that of a truncate.
    let is_followed = |name: &str| name == COINCIDES && !events.plan.partial.is_on();
    let column = |name: &String| match is_followed(name) {
        true => ident(name).and(ident(LATER).is_null()).alias(name),
        false => ident(name),
    };
    let columns = timeline.schema().fields().iter().map(|field| column(field.name())).collect::<Vec<_>>();
    let more = [
        verdict.alias(VERDICT),
        hidden.alias(HIDDEN),
        ident(DELETE).is_false().and(later()).alias(columns::IS_DELETED),
    ];
    Ok(timeline.select(columns.into_iter().chain(more).collect::<Vec<_>>())?)
}

/// The rows that the table should have.
pub(super) fn rows(timeline: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let mut columns: Vec<Expr> = events.names().map(ident).collect();
    columns.push(ident(columns::IS_DELETED));
    let parts = events.plan.sequence.len();
    columns.extend((0..parts).map(|number| ident(format!("{MARK}{number}")).alias(columns::deleted_sequence(number))));
    columns.push(ident(format!("{MARK}{parts}")).alias(columns::DELETED_BATCH_ID));
    Ok(timeline.filter(ident(DELETE).is_false())?.select(columns)?)
}

fn order(events: &Events<'_>) -> impl Iterator<Item = String> {
    events.plan.sequence_columns().into_iter().chain([columns::BATCH_ID.to_owned()])
}
