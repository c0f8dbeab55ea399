//! What must be written for a table to have the rows that it should have.

use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, ident, lit, when};
use lake::Result;
use lake::upsert::{DELETE, differs, same_key};

use super::events::Events;
use super::or_all;

const WANTED: &str = "__wanted";
const HELD: &str = "__held";
const OLD: &str = "__old_";

/// Rows that are new or differ, and deletes of those that should not be there: changes for an upsert by row keys.
pub(super) fn difference(wanted: DataFrame, held: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let target = events.target();
    let names: Vec<&str> = target.fields().iter().map(|field| field.name().as_str()).collect();
    let old = |name: &str| ident(format!("{OLD}{}", names.iter().position(|other| *other == name).unwrap_or_default()));
    let wanted =
        wanted.select(names.iter().map(|name| ident(*name)).chain([lit(true).alias(WANTED)]).collect::<Vec<_>>())?;
    let held_columns = names.iter().enumerate().map(|(number, name)| ident(*name).alias(format!("{OLD}{number}")));
    let held = held.select(held_columns.chain([lit(true).alias(HELD)]).collect::<Vec<_>>())?;
    let keys = events.plan.kept.row_keys(events.plan);
    let on: Vec<Expr> = keys.iter().map(|key| same_key(target, key, ident(key), old(key))).collect();
    let differs = or_all(names.iter().map(|name| differs(ident(*name), old(name)))).unwrap_or_else(|| lit(true));
    let is_new = ident(HELD).is_null();
    let is_gone = ident(WANTED).is_null();
    let columns =
        names.iter().map(|name| Ok(when(ident(WANTED).is_null(), old(name)).otherwise(ident(*name))?.alias(*name)));
    let columns: Vec<Expr> = columns.collect::<Result<_>>()?;
    let delete = is_gone.clone().alias(DELETE);
    let joined = wanted.join_on(held, JoinType::Full, on)?.filter(is_new.or(is_gone).or(differs))?;
    Ok(joined.select(columns.into_iter().chain([delete]).collect::<Vec<_>>())?)
}
