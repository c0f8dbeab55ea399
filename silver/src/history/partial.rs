//! Updates that did not send every column: what they left out is what the changes before them say, back to the last
//! delete of the key.
//!
//! A row tells the change that made it and, in `_not_sent`, which columns that change left out; the row holds whole
//! values. A late change may put others in their place, so every change stays known that may still say something: those
//! that no row tells are remembered.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::functions::core::expr_fn::{get_field, named_struct};
use datafusion::functions::unicode::expr_fn::strpos;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::functions_window::nth_value::last_value_udwf;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, SortExpr, WindowFrame, WindowFrameBound, WindowFrameUnits, cast, ident, lit, when,
};
use lake::session::Session;
use lake::stage::Staged;
use lake::upsert::DELETE;
use lake::{Result, columns};

use super::events::{COUNTED, Events, NEW, ORIGIN, REMEMBERED, ROW};
use super::{APPLIED, Counts, STALE, SUPERSEDED, VERDICT, by_verdict};
use crate::plan::Kept;

/// Whether a change stands for its place: the last one there, as it is without such updates.
const STANDS: &str = "__stands";
/// The place of a change among those of one key, sequence and batch; null where it is alone.
pub(super) const RANK: &str = "__rank";
/// Whether a change says nothing any more, for there are newer ones that say all that it does.
const SETTLED: &str = "__settled";
const NEWER: &str = "__newer";
const NEWER_NEW: &str = "__newer_new";
const ALIKE: &str = "__alike";
/// Of a delete how many upserts of the key are older.
const UPSERTS: &str = "__upserts";
const ALIKE_NEW: &str = "__alike_new";
/// How many newer changes there are at the place of a change.
const NEWER_HERE: &str = "__newer_here";
/// How many changes there are of one key, sequence and batch.
const TOGETHER: &str = "__together";
/// How many changes of its sequence and batch are remembered.
const KNOWN: &str = "__known";
const SINCE: &str = "__since";
const SENDERS: &str = "__senders_";
const FILLED: &str = "__filled_";
const VALUE: &str = "value";

/// The changes of the touched keys, with whole values.
pub(super) struct Whole {
    /// Those that stand for their places.
    pub(super) standing: DataFrame,
    /// Those that only say something about the columns of others.
    pub(super) others: Option<DataFrame>,
    /// What became of those that are neither.
    pub(super) counts: Counts,
}

impl Whole {
    /// Changes that all sent every column.
    pub(super) fn standing(standing: DataFrame) -> Self {
        Self { standing, others: None, counts: Counts::default() }
    }
}

/// Fills the changes of the touched keys.
pub(super) async fn whole(all: DataFrame, events: &Events<'_>, session: &Session) -> Result<Whole> {
    let told = Staged::write(told(all, events)?).await?;
    let left_out = told.frame(session).await?.filter(ident(columns::NOT_SENT).is_not_null())?;
    let is_partial = left_out.limit(0, Some(1))?.count().await? > 0;
    let told = told.frame(session).await?;
    let judged = Staged::write(judged(if is_partial { filled(told, events)? } else { told }, events)?).await?;
    let gone = ident(SETTLED).and(ident(ORIGIN).eq(lit(NEW))).and(ident(COUNTED));
    let counts = by_verdict(judged.frame(session).await?.filter(gone)?).await?;
    let left = judged.frame(session).await?.filter(ident(SETTLED).is_false())?;
    let ranked = Staged::write(ranked(left, events)?).await?;
    let standing = ranked.frame(session).await?.filter(ident(STANDS))?;
    let others = ranked.frame(session).await?.filter(ident(STANDS).is_false())?.with_column(VERDICT, lit(APPLIED))?;
    Ok(Whole { standing, others: Some(others), counts })
}

/// The changes without what rows tell twice: the end of a version is a delete only where nothing else stands, and a mark
/// is one that may be remembered as well.
fn told(all: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let names = names(&all);
    let within: Vec<Expr> = match events.plan.kept {
        Kept::History(_) => events.plan.kept.row_keys(events.plan).iter().map(ident).collect(),
        Kept::Current | Kept::Marked => events.keys().into_iter().chain(order(events)).chain([ident(DELETE)]).collect(),
    };
    let newer = counted(lit(true), &within, &events.newest_first(), before(), NEWER_HERE)?;
    let twice = ident(DELETE).and(ident(ORIGIN).eq(lit(ROW))).and(ident(NEWER_HERE).gt(lit(0_i64)));
    Ok(all.window(vec![newer])?.filter(twice.is_false())?.select(names.iter().map(ident).collect::<Vec<_>>())?)
}

/// The changes with the columns that they did not send taken over from those before them.
fn filled(told: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let names = names(&told);
    let values: Vec<&str> = events.values().collect();
    let oldest = oldest_first(events);
    let batch: Vec<Expr> = events.keys().into_iter().chain(order(events)).collect();
    let is_remembered = ident(ORIGIN).eq(lit(REMEMBERED));
    let beside = counted(is_remembered, &batch, &events.newest_first(), before(), KNOWN)?;
    let mut windows = vec![counted(ident(DELETE), &events.keys(), &oldest, so_far(), SINCE)?];
    for (number, name) in values.iter().enumerate() {
        windows.push(counted(is_sent(name), &events.keys(), &oldest, before(), &format!("{SENDERS}{number}"))?);
    }
    let parted = told.window(vec![beside])?.window(windows)?;
    // What was taken over from a change that is forgotten since is only there where it was put. Of a row whose change is
    // remembered as well it may be what a later change said.
    let is_told = ident(ORIGIN).not_eq(lit(ROW)).or(ident(KNOWN).eq(lit(0_i64)));
    let is_old = ident(ORIGIN).not_eq(lit(NEW)).and(ident(DELETE).is_false()).and(is_told);
    let within: Vec<Expr> = events.keys().into_iter().chain([ident(SINCE)]).collect();
    let mut windows = Vec::new();
    for (number, name) in values.iter().enumerate() {
        let is_kept = is_old.clone().and(ident(format!("{SENDERS}{number}")).eq(lit(0_i64)));
        let own = when(is_sent(name).or(is_kept), named_struct(vec![lit(VALUE), ident(*name)])).end()?;
        let last = WindowFunction::new(WindowFunctionDefinition::WindowUDF(last_value_udwf()), vec![own]);
        let last = Expr::from(last)
            .partition_by(within.clone())
            .order_by(oldest.clone())
            .window_frame(so_far())
            .null_treatment(NullTreatment::IgnoreNulls)
            .build()?;
        windows.push(last.alias(format!("{FILLED}{number}")));
    }
    let columns = names.iter().map(|name| match values.iter().position(|value| value == name) {
        Some(number) => get_field(ident(format!("{FILLED}{number}")), VALUE).alias(name),
        None => ident(name),
    });
    Ok(parted.window(windows)?.select(columns.collect::<Vec<_>>())?)
}

/// The changes with whether they still say something. Where versions are kept, one does not when a newer one at its place
/// is whole, a delete, or sends the same columns; else when a newer one of its key is whole or sends the same.
fn judged(filled: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let (names, plan) = (names(&filled), events.plan);
    let is_history = matches!(plan.kept, Kept::History(_));
    let is_whole = ident(DELETE).is_false().and(ident(columns::NOT_SENT).is_null());
    let closes = if is_history { is_whole.or(ident(DELETE)) } else { is_whole };
    let within: Vec<Expr> = plan.kept.row_keys(plan).iter().map(ident).collect();
    let mut alike = within.clone();
    alike.extend([ident(DELETE), ident(columns::NOT_SENT)]);
    if !is_history {
        // A delete parts what is before it from what is after: each is one of its own, but for those of one sequence with no
        // upsert between.
        for part in plan.sequence_columns() {
            alike.push(when(ident(DELETE), ident(part)).end()?);
        }
        alike.push(ident(UPSERTS));
    }
    let filled = if is_history { filled } else { with_upserts(filled, events)? };
    let newest = events.newest_first();
    let newer = |condition: Expr, within: &[Expr], name: &str| counted(condition, within, &newest, before(), name);
    let is_new = || ident(ORIGIN).eq(lit(NEW));
    let of_place = vec![newer(closes.clone(), &within, NEWER)?, newer(closes.and(is_new()), &within, NEWER_NEW)?];
    let of_alike = vec![newer(lit(true), &alike, ALIKE)?, newer(is_new(), &alike, ALIKE_NEW)?];
    let is_any = |name: &str| ident(name).gt(lit(0_i64));
    let settled = is_any(NEWER).or(is_any(ALIKE)).alias(SETTLED);
    let verdict = when(is_any(NEWER_NEW).or(is_any(ALIKE_NEW)), lit(SUPERSEDED)).otherwise(lit(STALE))?.alias(VERDICT);
    let columns = names.iter().map(ident).chain([settled, verdict]);
    Ok(filled.window(of_place)?.window(of_alike)?.select(columns.collect::<Vec<_>>())?)
}

/// The changes, of them the deletes with how many upserts of the key are older.
fn with_upserts(filled: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let names = names(&filled);
    let upserts = counted(ident(DELETE).is_false(), &events.keys(), &oldest_first(events), before(), UPSERTS)?;
    let upserts_of_delete = when(ident(DELETE), ident(UPSERTS)).end()?.alias(UPSERTS);
    let columns = names.iter().map(ident).chain([upserts_of_delete]).collect::<Vec<_>>();
    Ok(filled.window(vec![upserts])?.select(columns)?)
}

/// The changes with whether they stand for their place, and their number among those of one sequence and batch.
fn ranked(left: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let mut names = names(&left);
    names.retain(|name| ![SETTLED, VERDICT].contains(&name.as_str()));
    let batch: Vec<Expr> = events.keys().into_iter().chain(order(events)).collect();
    let stands = row_number()
        .partition_by(events.plan.stands_per().iter().map(ident).collect())
        .order_by(events.newest_first())
        .build()?
        .alias(STANDS);
    let rank = row_number().partition_by(batch.clone()).order_by(oldest_first(events)).build()?.alias(RANK);
    let together = counted(lit(true), &batch, &[], WindowFrame::new(None), TOGETHER)?;
    let rank_of = when(ident(TOGETHER).gt(lit(1_i64)), cast(ident(RANK), DataType::Int32)).end()?.alias(RANK);
    let columns = names.iter().map(ident).chain([ident(STANDS).eq(lit(1_u64)).alias(STANDS), rank_of]);
    let ranked = left.window(vec![stands])?.window(vec![rank])?.window(vec![together])?;
    Ok(ranked.select(columns.collect::<Vec<_>>())?)
}

fn names(frame: &DataFrame) -> Vec<String> {
    frame.schema().fields().iter().map(|field| field.name().clone()).collect()
}

/// Whether a change sent a column.
fn is_sent(name: &str) -> Expr {
    let text = serde_json::Value::from(name).to_string();
    let has = |start: char| strpos(ident(columns::NOT_SENT), lit(format!("{start}{text}"))).gt(lit(0));
    let is_left_out = ident(columns::NOT_SENT).is_not_null().and(has('[').or(has(',')));
    ident(DELETE).is_false().and(is_left_out.is_not_true())
}

/// How many changes of a frame meet a condition.
pub(super) fn counted(
    condition: Expr,
    within: &[Expr],
    order: &[SortExpr],
    frame: WindowFrame,
    name: &str,
) -> Result<Expr> {
    let one = when(condition, lit(1_i32)).end()?;
    let count = WindowFunction::new(WindowFunctionDefinition::AggregateUDF(count_udaf()), vec![one]);
    let count = Expr::from(count).partition_by(within.to_vec()).order_by(order.to_vec()).window_frame(frame);
    Ok(count.build()?.alias(name))
}

/// All changes before this one.
fn before() -> WindowFrame {
    let first = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
    WindowFrame::new_bounds(WindowFrameUnits::Rows, first, WindowFrameBound::Preceding(ScalarValue::UInt64(Some(1))))
}

/// All changes up to this one.
fn so_far() -> WindowFrame {
    let first = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
    WindowFrame::new_bounds(WindowFrameUnits::Rows, first, WindowFrameBound::CurrentRow)
}

/// The sequence and the batch.
fn order(events: &Events<'_>) -> impl Iterator<Item = Expr> {
    events.plan.sequence_columns().into_iter().chain([columns::BATCH_ID.to_owned()]).map(ident)
}

/// The whole order of changes, the first first.
fn oldest_first(events: &Events<'_>) -> Vec<SortExpr> {
    events.newest_first().into_iter().map(|sort| sort.expr.sort(true, true)).collect()
}
