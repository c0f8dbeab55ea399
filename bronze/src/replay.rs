//! Records that bronze could not read, sent through the options of today: planned in the ledger as a batch of their
//! own, and executed like any batch that is planned and not in the table.

use lake::quarantine::{Claim, Quarantine};
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::{Error, ErrorKind, Lake, Result, Root};

use crate::append::{Target, Work};
use crate::ledger::Ledger;
use crate::plan::SourcePlan;
use crate::progress::Progress;
use crate::run::catch_up;

/// How often claimed records are planned before the replay gives up.
const ROUNDS_MAX: usize = 20;

/// Sends the claimed records of a source through its options. `ours` are claims that the caller has made; records that
/// another run has claimed are taken over.
///
/// # Errors
/// As [`run`](crate::run). Records that stay claimed are gone on with by the next run.
pub async fn replay(
    lake: &Lake,
    landing: &Root,
    plan: &SourcePlan,
    ctx: &RunContext,
    ours: &[Claim],
) -> Result<TaskReport> {
    let ours: Vec<Claim> = ours.iter().filter(|claim| claim.table == plan.table).cloned().collect();
    let work = Work { lake, landing, plan, ctx, ours: &ours };
    let mut target = Target::open(lake, &plan.table).await?;
    let mut ledger = Ledger::open(lake, plan.source()).await?;
    let mut progress = Progress::new(plan, ctx);
    match finish(work, &mut target, &mut ledger, &mut progress).await {
        Ok(()) => Ok(progress.report(target.version())),
        Err(error) => {
            progress.leave();
            Err(error)
        }
    }
}

/// Brings every claimed record of a source to its end; does nothing when there is none.
pub(crate) async fn finish(
    work: Work<'_>,
    target: &mut Target,
    ledger: &mut Ledger,
    progress: &mut Progress<'_>,
) -> Result<()> {
    let Some(mut quarantine) = Quarantine::open(work.lake, work.plan.source()).await? else { return Ok(()) };
    for _ in 0..ROUNDS_MAX {
        if !quarantine.is_replaying(&work.plan.table)? {
            return Ok(());
        }
        let Some((claim, _)) = quarantine.claimed(&work.plan.table).await? else { return Ok(()) };
        target.refresh().await?;
        if claim.is_taken(target.made().await?).await? {
            quarantine.finish(&claim, &work.ctx.run).await?;
            continue;
        }
        let done = catch_up(work, target, ledger, progress).await?;
        let Some((claim, _)) = quarantine.claimed(&work.plan.table).await? else { return Ok(()) };
        if !claim.is_taken(target.made().await?).await? {
            ledger.plan_replay(done.max(ledger.planned()) + 1, &work.ctx.run).await?;
        }
    }
    let message = format!("the replay of {} met other runs all the time", work.plan.table);
    Err(Error::new(ErrorKind::Conflict, message).hint("its records are claimed; the next run goes on with them"))
}
