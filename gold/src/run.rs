//! One run of one gold table.

use std::sync::Arc;

use chrono::NaiveDate;
use chrono_tz::Tz;
use futures::FutureExt;
use futures::future::BoxFuture;
use lake::commit::redoing;
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::{Lake, Result};

use crate::plan::Plan;
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
    let day = lake.clock().today(zone);
    let (work, clock) = (Arc::new((lake.clone(), plan.clone(), ctx.clone())), lake.clock());
    let report = redoing(clock, move || once(Arc::clone(&work), day)).await?;
    if let Some(version) = report.version {
        ctx.pins.set(plan.table(), version);
    }
    Ok(report)
}

/// Boxed, and without a borrow, so that the future of [`run`] can be seen to be `Send` by those who spawn it.
fn once(work: Arc<(Lake, Plan, RunContext)>, day: NaiveDate) -> BoxFuture<'static, Result<TaskReport>> {
    let once = async move {
        let (lake, plan, ctx) = work.as_ref();
        match plan {
            Plan::Model(plan) => model::refresh(lake, plan, ctx).await,
            Plan::Snapshot(plan) => snapshot::take(lake, plan, ctx, day).await,
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
