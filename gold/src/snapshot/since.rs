//! What became of the source since the day before, from the rows that changed: neither the source nor the days so far are
//! read as a whole.
//!
//! The last recorded day before has the state of a version of the source. What changed since then, old rows and new
//! ones, is that state and the present one as far as they differ: a row that comes as often old as new has not changed
//! and falls away. So it is where a commit wrote rows anew that it did not change, and where several commits touched
//! a row.
//!
//! That holds where every kept column makes a row differ and rows that are gone are recorded; else the table may hold
//! older values than the source had, and the days themselves must be asked.

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use chrono::{Datelike, NaiveDate};
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{ident, lit, when};
use lake::changes::{IS_NEW, Told, between, is_touched_since};
use lake::commit::Txn;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Lake, Result, Table, TableName};

use super::changed::shaped;
use super::day_app;
use super::days::Days;
use super::keys;
use super::layout::{Layout, field, has};
use super::state::is_current;
use crate::plan::SnapshotPlan;
use crate::spec::Strategy;

/// How often more a row came new than old.
const NET: &str = "__net";

/// The rows that differ, with the kept columns, as they were and as they are.
pub(super) struct Sides {
    pub(super) was: DataFrame,
    pub(super) now: DataFrame,
}

/// The transaction of a commit for `day` that gives a snapshot other options than before.
pub(super) fn options_of(plan: &SnapshotPlan, day: NaiveDate) -> Txn {
    Txn::new(options_app(&plan.table), i64::from(day.num_days_from_ce()))
}

pub(super) fn options_app(table: &TableName) -> String {
    format!("{table}:recipe:day")
}

/// The version of the source whose state the last day before `day` has; `None` where that cannot be told from what the
/// table holds.
///
/// # Errors
/// [`lake::ErrorKind::Store`] when the log cannot be read.
pub(super) async fn base(plan: &SnapshotPlan, table: &Table, day: NaiveDate) -> Result<Option<u64>> {
    if plan.strategy != Strategy::ChangedOnly || !plan.tells_all() {
        return Ok(None);
    }
    let days = Days::of(table)?;
    let Some(before) = day.pred_opt().and_then(|day| days.at(day)) else { return Ok(None) };
    // A day that was recorded by other options may lack columns that are kept now.
    let Some(options) = table.txn_version(&options_app(&plan.table)).await? else { return Ok(None) };
    if days.after(day).is_some() || options < 0 || options > i64::from(before.num_days_from_ce()) {
        return Ok(None);
    }
    let of_before = day_app(plan, before);
    let Some(version) = table.txn_version(&of_before).await?.and_then(|version| u64::try_from(version).ok()) else {
        return Ok(None);
    };
    // Rows that another hand changed are as no version of the source has them. What has been recorded since does not put
    // that right: a late day and a new description do not look at them, and a run of this day is replaced.
    let is_touched = is_touched_since(table, &of_before, &format!("{}:", plan.table)).await?;
    Ok((!is_touched).then_some(version))
}

/// What differs in the source since its version `base`; `None` where that cannot be told any more, or costs more than to
/// compare all.
///
/// # Errors
/// [`lake::ErrorKind::Store`] when the changes cannot be read, [`lake::ErrorKind::Data`] when a key is there twice.
pub(super) async fn since(
    lake: &Lake,
    session: &Session,
    plan: &SnapshotPlan,
    source: &Table,
    layout: &Layout,
    base: u64,
) -> Result<Option<Sides>> {
    let schema = source.schema();
    let mut names = layout.kept.clone();
    if may_have_lost(lake, plan, source, layout, base).await {
        return Ok(None);
    }
    let current = is_current(source);
    names.extend(current.iter().map(|(column, _)| column.clone()).filter(|column| !layout.kept.contains(column)));
    let fields = names.iter().map(|name| schema.field_with_name(name)).collect::<Result<Vec<_>, _>>()?;
    if fields.iter().any(|field| !can_be_grouped(field.data_type())) {
        return Ok(None);
    }
    let Told::Known(changes) = between(lake, source, base, &names).await? else { return Ok(None) };
    if changes.is_empty() {
        let kept = fields.iter().filter(|field| layout.kept.contains(field.name())).map(|field| (*field).clone());
        let none = RecordBatch::new_empty(arrow::datatypes::Schema::new(kept.collect::<Vec<_>>()).into());
        let none = shaped(session.context().read_batch(none)?, layout)?;
        return Ok(Some(Sides { was: none.clone(), now: none }));
    }
    let Told::Known(changes) = changes.locate().await? else { return Ok(None) };
    if changes.is_most()? {
        return Ok(None);
    }
    let changed = changes.read(lake, &names).await?.frame(session).await?;
    let changed = match current {
        Some((_, condition)) => changed.filter(condition)?,
        None => changed,
    };
    let kept = || layout.kept.iter().map(ident).collect::<Vec<_>>();
    let net = sum(when(ident(IS_NEW), lit(1_i64)).otherwise(lit(-1_i64))?).alias(NET);
    let net = changed.aggregate(kept(), vec![net])?.filter(ident(NET).not_eq(lit(0_i64)))?;
    let net = Staged::write(net).await?.frame(session).await?;
    keys::check_changed(session, source, layout, &plan.keys, (&net, NET)).await?;
    let side = |is_new: bool| -> Result<DataFrame> {
        let of_side = if is_new { ident(NET).gt(lit(0_i64)) } else { ident(NET).lt(lit(0_i64)) };
        shaped(net.clone().filter(of_side)?.select(kept())?, layout)
    };
    Ok(Some(Sides { was: side(false)?, now: side(true)? }))
}

/// True when the source may have lost a column since its version `base`: each row differs then that had a value in it.
async fn may_have_lost(lake: &Lake, plan: &SnapshotPlan, source: &Table, layout: &Layout, base: u64) -> bool {
    let absent: Vec<&String> =
        layout.values().map(|field| field.name()).filter(|name| !has(&layout.kept, name)).collect();
    // The source has each column that the plan lists.
    if absent.is_empty() || !plan.columns.is_empty() {
        return false;
    }
    match lake.table_at(source.name(), base).await {
        Ok(then) => absent.iter().any(|name| field(then.schema().fields(), name).is_some()),
        Err(_) => true,
    }
}

/// True for types whose values are told apart in groups as they are one by one: maps are not.
fn can_be_grouped(kind: &DataType) -> bool {
    match kind {
        DataType::Map(..) => false,
        DataType::List(item) => can_be_grouped(item.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| can_be_grouped(field.data_type())),
        _ => true,
    }
}
