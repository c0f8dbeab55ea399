//! One run of one gold table.

use std::ops::RangeInclusive;
use std::sync::Arc;

use chrono::NaiveDate;
use chrono_tz::Tz;
use futures::FutureExt;
use futures::future::BoxFuture;
use lake::commit::redoing;
use lake::history::Timeline;
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::{Error, Lake, Result};

use crate::plan::{Plan, SnapshotPlan};
use crate::snapshot::{Past, Which};
use crate::{model, snapshot};

/// Brings a gold table up to date with its sources, at the versions that the run has settled on. `zone` says which day
/// it is.
///
/// A source that does not exist yet is waited for: the report says so and nothing is done.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when a query cannot be planned or computed,
/// [`ErrorKind::Spec`](lake::ErrorKind::Spec), [`ErrorKind::Data`](lake::ErrorKind::Data) and
/// [`ErrorKind::Table`](lake::ErrorKind::Table) when plan, rows and table do not fit each other,
/// [`ErrorKind::Store`](lake::ErrorKind::Store) when the store keeps failing. Nothing of the change is in the table
/// then.
pub async fn run(lake: &Lake, plan: &Plan, ctx: &RunContext, zone: Tz) -> Result<TaskReport> {
    done(lake, plan.clone(), ctx, Which::Today(lake.clock().today(zone))).await
}

/// Records one day of a snapshot: today as [`run`] does, an earlier one from the source as it was at the end of that day
/// in `zone`. A day that holds that version is left alone.
///
/// # Errors
/// As [`run`], [`ErrorKind::Spec`](lake::ErrorKind::Spec) for a day to come or one that `retention` does not keep, and
/// [`ErrorKind::Table`](lake::ErrorKind::Table) when the source cannot be read as it was then.
pub async fn record(
    lake: &Lake,
    plan: &SnapshotPlan,
    ctx: &RunContext,
    zone: Tz,
    day: NaiveDate,
) -> Result<TaskReport> {
    let today = lake.clock().today(zone);
    let which = if day == today { Which::Today(day) } else { Which::Past(Past::new(plan, day, today, zone)?) };
    done(lake, Plan::Snapshot(plan.clone()), ctx, which).await
}

/// Records the days of a range as [`record`] does, oldest first, and tells of each when it is done. A day that is done
/// stays so when a later one fails: the same range again goes on there.
///
/// # Errors
/// As [`record`], for the first day that cannot be recorded.
pub async fn backfill(
    lake: &Lake,
    plan: &SnapshotPlan,
    ctx: &RunContext,
    zone: Tz,
    days: RangeInclusive<NaiveDate>,
    mut told: impl FnMut(NaiveDate, &TaskReport),
) -> Result<()> {
    let today = lake.clock().today(zone);
    let (first, last) = (*days.start(), *days.end());
    if last > today {
        let error = Error::spec(format!("{last} is to come: in {zone} today is {today}"));
        return Err(error.hint("end with a day that is over, or with today"));
    }
    // What cannot be is told before anything is done.
    let mut earlier = Vec::new();
    for day in first.iter_days().take_while(|day| *day <= last && *day != today) {
        earlier.push(Past::new(plan, day, today, zone)?);
    }
    if let Some(oldest) = earlier.first() {
        let timeline = Timeline::since(&lake.existing(&plan.source).await?, oldest.end()).await?;
        for past in earlier.iter().cloned() {
            let day = past.day();
            let which = Which::Past(past.with_timeline(timeline.clone()));
            told(day, &done(lake, Plan::Snapshot(plan.clone()), ctx, which).await?);
        }
    }
    if last == today {
        // The day may have ended meanwhile.
        told(today, &record(lake, plan, ctx, zone, today).await?);
    }
    Ok(())
}

async fn done(lake: &Lake, plan: Plan, ctx: &RunContext, which: Which) -> Result<TaskReport> {
    let table = plan.table().clone();
    let work = Arc::new((lake.clone(), plan, ctx.clone(), which));
    let report = redoing(lake.clock(), move || once(Arc::clone(&work))).await?;
    if let Some(version) = report.version {
        ctx.pins.set(&table, version);
    }
    Ok(report)
}

/// Boxed, and without a borrow, so that the future of [`run`] can be seen to be `Send` by those who spawn it.
fn once(work: Arc<(Lake, Plan, RunContext, Which)>) -> BoxFuture<'static, Result<TaskReport>> {
    let once = async move {
        let (lake, plan, ctx, which) = work.as_ref();
        match plan {
            Plan::Model(plan) => model::refresh(lake, plan, ctx).await,
            Plan::Snapshot(plan) => snapshot::take(lake, plan, ctx, which).await,
        }
    };
    once.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawnable(_: impl Future + Send) {}

    #[expect(dead_code, reason = "it compiles only while a run can be spawned, and that is the test")]
    fn a_run_can_be_spawned(lake: Lake, plan: Plan, ctx: RunContext) {
        spawnable(async move { run(&lake, &plan, &ctx, Tz::UTC).await });
    }
}
