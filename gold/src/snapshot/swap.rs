//! What a snapshot that becomes what another table is says of its days, in the same commit: they are those of its new rows.

use chrono::{Datelike, NaiveDate};
use lake::columns::SNAPSHOT_DAYS;
use lake::restore::Along;
use lake::{Result, Table};

use super::day_app;
use super::days::Days;
use super::options::Others;
use super::retention::purged_app;
use super::since::options_app;
use crate::plan::Plan;
use crate::recipe::source_app;

/// Stands for a day, or a source, that the table does not hold.
const NEVER: i64 = -1;

/// What the commit says that gives `own` the rows of `other`. A day that it had and the other has not is one that was never
/// recorded: the next run records it when it is the present one.
///
/// # Errors
/// [`lake::ErrorKind::Table`] when the days of a table cannot be read.
pub async fn swapped(plan: Option<&Plan>, own: &Table, other: &Table) -> Result<Along> {
    let mut along = Along::default();
    if own.property(SNAPSHOT_DAYS)?.is_none() && other.property(SNAPSHOT_DAYS)?.is_none() {
        return Ok(along);
    }
    let (held, kept) = (Days::of(own)?, Days::of(other)?);
    along.properties.push((SNAPSHOT_DAYS.to_owned(), kept.to_string()));
    along.properties.extend(Others::of(other)?.property(Some(own))?);
    let (gone, stay): (Vec<NaiveDate>, Vec<NaiveDate>) = held.iter().partition(|day| !kept.has(*day));
    let Some(Plan::Snapshot(plan)) = plan else { return Ok(along) };
    if gone.is_empty() {
        return Ok(along);
    }
    let mut newest = NEVER;
    for day in stay {
        newest = newest.max(own.txn_version(&day_app(plan, day)).await?.unwrap_or(NEVER));
    }
    along.txns.extend(gone.into_iter().map(|day| (day_app(plan, day), NEVER)));
    along.txns.push((source_app(&plan.table, &plan.source), newest));
    along.txns.push((purged_app(&plan.table), NEVER));
    // The rows may be as no version of the source has them: the next day is compared as a whole.
    let after = kept.last().map_or(0, |day| i64::from(day.num_days_from_ce()) + 1);
    let options = options_app(&plan.table);
    let after = own.txn_version(&options).await?.map_or(after, |options| options.max(after));
    along.txns.push((options, after));
    Ok(along)
}
