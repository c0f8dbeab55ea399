//! The fold of tables that keep every version (SCD type 2): an upsert whose tracked columns differ from those before
//! begins a version, which holds until the next one or a delete; upserts between change its other columns in place.

use datafusion::dataframe::DataFrame;
use datafusion::functions::core::expr_fn::named_struct;
use datafusion::functions_window::expr_fn::{lag, lead};
use datafusion::logical_expr::{Expr, ExprFunctionExt, ident, lit, when};
use lake::upsert::{DELETE, differs};
use lake::{Result, columns};

use super::events::{Events, ORIGIN, ROW};
use super::{APPLIED, HIDDEN, VERDICT, or_all};
use crate::plan::{Kept, Tracked, position_names};

/// Whether a change begins a version, or is a delete.
const BEGINS: &str = "__begins";
/// Whether it is a delete that the end of a version tells.
const TOLD: &str = "__told";
/// Whether no other change follows it in its version.
const ENDS: &str = "__ends";
const BEFORE: &str = "__before_";
const WAS_DELETE: &str = "__was_delete";
const NEXT: &str = "__next_";
const AFTER_NEXT: &str = "__after_next_";
const LAST: &str = "__last_";

/// Every change of each key in its order, with its part in a version.
pub(super) fn timeline(winners: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let over = |call: Expr, name: String| over(call, name, events);
    let tracked: Vec<&str> = events.values().filter(|name| is_tracked(events, name)).collect();
    let mut windows = vec![over(lag(ident(DELETE), Some(1), None), WAS_DELETE.to_owned())?];
    for (number, name) in tracked.iter().enumerate() {
        windows.push(over(lag(ident(*name), Some(1), None), format!("{BEFORE}{number}"))?);
    }
    let names: Vec<String> = winners.schema().fields().iter().map(|field| field.name().clone()).collect();
    let differs =
        tracked.iter().enumerate().map(|(number, name)| differs(ident(*name), ident(format!("{BEFORE}{number}"))));
    let begins = ident(DELETE).or(ident(WAS_DELETE).is_not_false());
    let begins = or_all(differs).into_iter().fold(begins, Expr::or).alias(BEGINS);
    // The end of a version tells of a delete, for as long as it is one.
    let told = ident(ORIGIN).eq(lit(ROW)).and(ident(DELETE)).and(ident(WAS_DELETE).is_false()).alias(TOLD);
    let columns = names.iter().map(ident).chain([begins, told]).collect::<Vec<_>>();
    let changes = winners.window(windows)?.select(columns)?;
    let changes = changes.window(vec![over(lead(ident(BEGINS), Some(1), None), ENDS.to_owned())?])?;
    let ends = ident(ENDS).is_not_false().alias(ENDS);
    // A row tells a change that began its version, unless a later one has changed it in place.
    let whole = match events.values().all(|name| is_tracked(events, name)) {
        true => lit(true),
        false => ident(ENDS).is_not_false(),
    };
    let hidden = ident(DELETE).or(ident(BEGINS).is_false()).or(whole.is_false());
    let hidden = hidden.and(ident(TOLD).is_false()).alias(HIDDEN);
    let columns = names.iter().map(ident).chain([ident(BEGINS), ends, hidden, lit(APPLIED).alias(VERDICT)]);
    Ok(changes.select(columns.collect::<Vec<_>>())?)
}

/// The rows that the table should have.
pub(super) fn rows(timeline: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let sequence = events.plan.sequence_columns();
    let mut windows = Vec::new();
    for (number, part) in sequence.iter().enumerate() {
        windows.push(over(lead(ident(part), Some(1), None), format!("{NEXT}{number}"), events)?);
        windows.push(over(lead(ident(part), Some(2), None), format!("{AFTER_NEXT}{number}"), events)?);
    }
    windows.push(over(lead(lit(true), Some(1), None), NEXT.to_owned(), events)?);
    windows.push(over(lead(lit(true), Some(2), None), AFTER_NEXT.to_owned(), events)?);
    let updated: Vec<&str> = events.values().filter(|name| !is_tracked(events, name)).collect();
    for (number, name) in updated.iter().enumerate() {
        windows.push(over(lead(ident(*name), Some(1), None), format!("{LAST}{number}"), events)?);
    }
    // Of a version only the first and the last change are left, so the next one is the end of it or of the next.
    let edges = timeline.filter(ident(BEGINS).or(ident(ENDS)))?.window(windows)?;
    let edges = edges.filter(ident(BEGINS).and(ident(DELETE).is_false()))?;
    let either = |single: Expr, longer: Expr| when(ident(ENDS), single).otherwise(longer);
    let mut columns = Vec::new();
    for name in events.names() {
        columns.push(match updated.iter().position(|other| *other == name) {
            Some(number) => either(ident(name), ident(format!("{LAST}{number}")))?.alias(name),
            None => ident(name),
        });
    }
    let start: Vec<Expr> = sequence.iter().map(ident).collect();
    let end: Vec<Expr> = (0..sequence.len())
        .map(|number| Ok(either(ident(format!("{NEXT}{number}")), ident(format!("{AFTER_NEXT}{number}")))?))
        .collect::<Result<_>>()?;
    columns.push(position(start, events).alias(columns::START_AT));
    let has_end = either(ident(NEXT), ident(AFTER_NEXT))?.is_not_null();
    let end = when(has_end, position(end, events)).end()?;
    columns.push(end.alias(columns::END_AT));
    Ok(edges.select(columns)?)
}

/// A position in the sequence as users see it.
fn position(mut parts: Vec<Expr>, events: &Events<'_>) -> Expr {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let names = position_names(&events.plan.sequence);
    named_struct(names.into_iter().zip(parts).flat_map(|(name, part)| [lit(name), part]).collect())
}

fn is_tracked(events: &Events<'_>, name: &str) -> bool {
    match &events.plan.kept {
        Kept::History(tracked) => tracked.has(name),
        Kept::Current | Kept::Marked => Tracked::All.has(name),
    }
}

fn over(call: Expr, name: String, events: &Events<'_>) -> Result<Expr> {
    Ok(call.partition_by(events.keys()).order_by(events.oldest_first()).build()?.alias(name))
}
