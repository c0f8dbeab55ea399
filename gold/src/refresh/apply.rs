//! Groups in the place of those that are there: in one commit, which carries the versions of the sources.

use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, JoinType, Operator, binary_expr, cast, ident, lit};
use lake::commit::Outcome;
use lake::report::counted;
use lake::session::Session;
use lake::stage::Staged;
use lake::upsert::{DELETE, Upsert};
use lake::{Context, Error, ErrorKind, Result, Table, TableName, fault};
use serde_json::json;

use super::groups::Touched;
use super::shape::Shape;
use super::touched::touched_name;
use super::{Answer, Work, frame};
use crate::about::tell;
use crate::answer;
use crate::checks::Asking;

/// The name of a group column of the rows that are there, beside those of the touched groups.
const HELD: &str = "__held_";
const TIMES: &str = "__times";

/// Replaces touched groups by `rows`, the rows of the query for these groups.
///
/// # Errors
/// [`ErrorKind::Data`] when two rows are of one group, [`ErrorKind::Conflict`] when the table has moved.
pub(super) async fn replace(
    work: Work,
    session: &Session,
    shape: &Shape,
    touched: &Touched,
    rows: Staged,
    (read_bytes, all_bytes): (u64, u64),
) -> Result<Answer> {
    let Work { lake, plan, ctx, mut held, sources, txns } = work;
    let names: Vec<String> = shape.groups.iter().map(|group| group.name.clone()).collect();
    check_once(held.name(), session, &rows, &plan.keys).await?;
    let (rows, dropped, notes) = if plan.asks_nothing() {
        (rows, 0, Vec::new())
    } else {
        let rest = rest(session, &held, touched, &names).await?;
        let asking = Asking { lake: &lake, session, plan: &plan, ctx: &ctx };
        let passed = asking.ask(&rows, Some(rest), &names).await?;
        (Staged::write(passed.rows).await?, passed.dropped, passed.notes)
    };
    let changes = Staged::write(changes(session, &held, touched, &rows, &names).await?).await?;
    ctx.meter.add_rows(rows.rows());
    fault::cross("gold_data_written")?;
    ctx.stop.check()?;

    let upsert = Upsert { keys: names.clone(), sequence: Vec::new() };
    let probed = upsert.probe(&lake, &held, &changes).await?;
    let (figures, groups) = (probed.figures, touched.len());
    let computing = || format!("refreshing {}", plan.table);
    let outcome = upsert.apply(&lake, &mut held, &probed, txns, &ctx.run, "gold_committed").await.context(computing)?;

    tell(Some(&held), &plan.about, &plan.described(), &ctx).await?;
    let mut report = answer::refreshed(&plan.table, sources.iter().map(|(source, _)| source), outcome, rows.rows());
    report.figures.dropped = dropped;
    report.notes.extend(notes);
    let mut note = format!("refreshed {} by {}", counted(groups, "group"), quoted(&names));
    if figures.deleted > 0 {
        note.push_str(&format!(", of which {} gone", is_are(figures.deleted)));
    }
    report.notes.push(note);
    if let Outcome::AlreadyApplied { .. } = outcome {
        report.notes.push("another run computed the same at the same time".to_owned());
    }
    let from: serde_json::Map<_, _> =
        sources.iter().map(|(source, from)| (source.name().to_string(), json!([from, source.version()]))).collect();
    let details = json!({
        "refresh": "incremental", "groups": groups, "by": names, "sources": from, "inserted": figures.inserted,
        "updated": figures.updated, "deleted": figures.deleted, "source_bytes": read_bytes, "all_bytes": all_bytes,
    });
    answer::record(&ctx, &plan.table, None, details);
    Ok(Answer::Done(Box::new(report)))
}

/// The rows of the table that stay.
async fn rest(session: &Session, table: &Table, touched: &Touched, names: &[String]) -> Result<DataFrame> {
    let held = session.context().read_table(session.provider(table).await?)?;
    let schema = table.schema();
    let plain =
        schema.fields().iter().map(|field| cast(ident(field.name()), field.data_type().clone()).alias(field.name()));
    let held = held.select(plain.collect::<Vec<_>>())?;
    let same = names
        .iter()
        .enumerate()
        .map(|(number, name)| binary_expr(ident(name), Operator::IsNotDistinctFrom, ident(touched_name(number))));
    Ok(held.join_on(frame(session, touched.plan()), JoinType::LeftAnti, same)?)
}

/// The rows of the groups, and the groups that are gone as deletes.
async fn changes(
    session: &Session,
    table: &Table,
    touched: &Touched,
    rows: &Staged,
    names: &[String],
) -> Result<DataFrame> {
    let schema = table.schema();
    let fields = schema.fields();
    let new = fields.iter().map(|field| cast(ident(field.name()), field.data_type().clone()).alias(field.name()));
    let new = rows.frame(session).await?.select(new.chain([lit(false).alias(DELETE)]).collect::<Vec<_>>())?;
    let held = |name: &str| format!("{HELD}{name}");
    let known = rows.frame(session).await?;
    let known = known.select(names.iter().map(|name| ident(name).alias(held(name))).collect::<Vec<_>>())?;
    let same = names
        .iter()
        .enumerate()
        .map(|(number, name)| binary_expr(ident(touched_name(number)), Operator::IsNotDistinctFrom, ident(held(name))));
    let gone = frame(session, touched.plan()).join_on(known, JoinType::LeftAnti, same)?;
    let columns = fields.iter().map(|field| {
        let value = match names.iter().position(|name| name == field.name()) {
            Some(number) => cast(ident(touched_name(number)), field.data_type().clone()),
            None => lit(ScalarValue::try_from(field.data_type())?),
        };
        Ok(value.alias(field.name()))
    });
    let columns = columns.collect::<Result<Vec<Expr>>>()?.into_iter().chain([lit(true).alias(DELETE)]);
    Ok(new.union(gone.select(columns.collect::<Vec<_>>())?)?)
}

/// A row has a key of its own. Where that follows from the query it holds; where `keys` say so it is seen.
///
/// # Errors
/// [`ErrorKind::Data`] when two rows have the same.
pub(crate) async fn check_once(table: &TableName, session: &Session, rows: &Staged, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let groups: Vec<Expr> = names.iter().map(ident).collect();
    let counted = rows.frame(session).await?.aggregate(groups, vec![count(lit(1_i64)).alias(TIMES)])?;
    let twice = counted.filter(ident(TIMES).gt(lit(1_i64)))?.limit(0, Some(1))?.count().await?;
    if twice == 0 {
        return Ok(());
    }
    let message = format!("the query of {} has several rows with the same {}", table, quoted(names));
    Err(Error::new(ErrorKind::Data, message).hint("`keys` must identify a row"))
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn is_are(number: u64) -> String {
    format!("{number} {}", if number == 1 { "is" } else { "are" })
}
