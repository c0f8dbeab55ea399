//! What a run of a source would take, without taking it.

use std::time::Duration;

use lake::{Error, Lake, Result, Root};

use crate::append::{Target, sorted};
use crate::discover::{FoundFile, discover};
use crate::ledger::Ledger;
use crate::plan::SourcePlan;
use crate::run::{gone, storage_inside};

/// What a run of a source would take.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Files of batches that are planned and not in the table: a run was interrupted, or is at work.
    pub planned: Vec<FoundFile>,
    /// Files that no run has seen, in the order in which they would be taken. Some may still be written.
    pub new: Vec<FoundFile>,
    /// Paths among `new` under which other content was taken before.
    pub overwritten: Vec<String>,
    /// Paths of files that an earlier run refused and that are still there, unchanged.
    pub refused: Vec<String>,
    /// True when the folder of the source is not there.
    pub missing: bool,
    /// Why a run would fail before it takes anything: the table cannot be what the spec asks for.
    pub unfit: Option<Error>,
    /// Why a run would fail that reads where the spec says: the folder had files and is gone.
    pub gone: Option<Error>,
}

/// Looks at the landing zone and the ledger, and changes nothing. Files that are still settling are not waited for.
///
/// # Errors
/// [`ErrorKind::Store`](lake::ErrorKind::Store) when a store fails.
pub async fn waiting(lake: &Lake, landing: &Root, plan: &SourcePlan) -> Result<Waiting> {
    let ledger = Ledger::open(lake, plan.source()).await?;
    let target = Target::open(lake, &plan.table).await?;
    let done = target.done().await?;
    let at_once = SourcePlan { settle: Duration::ZERO, ..plan.clone() };
    let skip = storage_inside(lake.root(), landing)?;
    let found = discover(landing, &at_once, skip.as_deref(), lake.clock(), None, |file| ledger.knows(file)).await?;
    // What is there at the start of a source that takes only what comes later is not taken.
    let leaves_all = !plan.include_existing_files && ledger.is_new();
    let new = if leaves_all { Vec::new() } else { sorted(found.ready, plan) };
    let paths = |files: &[FoundFile], of: &dyn Fn(&FoundFile) -> bool| {
        files.iter().filter(|file| of(file)).map(|file| file.path.clone()).collect()
    };
    Ok(Waiting {
        planned: (done + 1..=ledger.planned()).flat_map(|batch| ledger.batch(batch)).collect(),
        overwritten: paths(&new, &|file| ledger.is_overwritten_by(file)),
        refused: paths(&found.known, &|file| ledger.failure(file).is_some()),
        new,
        missing: found.missing,
        unfit: target.check(&plan.schema).err(),
        gone: (found.missing && ledger.planned() > 0).then(|| gone(plan)),
    })
}
