//! `gold as-of` and `gold check`: what the days of a snapshot are.

use chrono::NaiveDate;
use cli::rows::RowOutput;
use cli::{Failure, Output, Place, Printer};
use futures::TryStreamExt;
use gold::{Plan, SnapshotPlan};
use lake::{Error, ErrorKind};
use serde_json::Value;

use super::Dated;
use crate::Gold;

/// The snapshots of these names; without names all.
///
/// # Errors
/// [`ErrorKind::Spec`] for a name that is no snapshot of the spec.
pub(super) fn snapshots(plans: Vec<Dated>, names: &[String]) -> Result<Vec<SnapshotPlan>, Failure> {
    let mut snapshots = Vec::new();
    for dated in cli::chosen::<Gold>(plans, names)? {
        match dated.plan {
            Plan::Snapshot(plan) => snapshots.push(plan),
            Plan::Model(_) if names.is_empty() => {}
            Plan::Model(plan) => {
                let error = Error::spec(format!("{} is a model, not a snapshot", plan.table));
                return Err(error.hint("only a table with `snapshot_of` has days").into());
            }
        }
    }
    Ok(snapshots)
}

/// The snapshot of this name.
///
/// # Errors
/// As [`snapshots`].
pub(super) fn snapshot(plans: Vec<Dated>, name: &str) -> Result<SnapshotPlan, Failure> {
    let found = snapshots(plans, &[name.to_owned()])?.into_iter().next();
    Ok(found.ok_or_else(|| Error::internal("a name was found and is not there"))?)
}

/// Prints the state of a day.
///
/// # Errors
/// [`ErrorKind::Table`] when there is none.
pub(super) async fn as_of(
    place: &Place,
    plan: &SnapshotPlan,
    date: Option<NaiveDate>,
    output: RowOutput,
    limit: Option<usize>,
    printer: Printer,
) -> Result<(), Failure> {
    let day = date.unwrap_or_else(|| place.lake.clock().today(place.header.timezone));
    let session = place.lake.session()?;
    let state = gold::as_of(&session, &place.lake.existing(&plan.table).await?, day).await?;
    if state.recorded != day {
        printer.note(&format!("recorded on {}, the last day up to {day}\n", state.recorded));
    }
    let shown = output.limit(limit);
    let rows = state.rows.limit(0, shown.map(|shown| shown.saturating_add(1))).map_err(Error::from)?;
    let rows = rows.execute_stream().await.map_err(Error::from)?;
    let schema = rows.schema();
    let more = output.print(&schema, rows.map_err(Error::from), shown, printer).await?;
    if more && limit.is_none() {
        output.note_limit(printer);
    }
    Ok(())
}

/// Prints what the days hold.
///
/// # Errors
/// [`ErrorKind::Data`] when a key is there twice on a day.
pub(super) async fn check(
    place: &Place,
    plans: &[SnapshotPlan],
    output: Output,
    printer: Printer,
) -> Result<(), Failure> {
    let mut checks = Vec::new();
    for plan in plans {
        match place.lake.table(&plan.table).await? {
            Some(table) => checks.push(gold::check(&place.lake.session()?, &table, plan).await?),
            None => printer.note(&format!("{} does not exist yet\n", plan.table)),
        }
    }
    match output {
        Output::Json => printer.data(&format!("{}\n", checks.iter().map(gold::Check::to_json).collect::<Value>()))?,
        Output::Table => {
            let texts: Vec<String> = checks.iter().map(gold::Check::to_text).collect();
            printer.data(&texts.join("\n"))?;
        }
    }
    let broken: Vec<String> = checks.iter().filter(|one| !one.holds()).map(|one| one.table.to_string()).collect();
    if broken.is_empty() {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Data, format!("{} has a key twice on a day", broken.join(", ")));
    Err(error.hint("the source had it twice; a silver table never does").into())
}
