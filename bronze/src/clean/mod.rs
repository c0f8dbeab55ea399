//! Files whose records are in the table are moved away or deleted, when the spec says so (`clean_source`).
//!
//! A file is a candidate when the ledger says that this very content was taken, its batch is in the table, and the
//! retention has passed since that commit. A failed, ignored or changed file never is. Right before it goes, it is
//! looked at again. The ledger is not touched: it goes on knowing the file, so that a crash at any point leaves at
//! most a file that the next run cleans.

mod local;
mod remote;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use lake::Result;

use crate::append::{Target, Work};
use crate::discover::{Discovery, FoundFile, below};
use crate::ledger::Ledger;
use crate::plan::{Clean, SourcePlan};

/// Names that are tried for a file whose name is taken at its destination.
const NAMES_MAX: usize = 1_000;

/// What was cleaned.
#[derive(Debug, Default)]
pub(crate) struct Cleaned {
    /// Paths of the files, and where they are now unless they were deleted.
    pub(crate) done: Vec<(String, Option<String>)>,
    /// Paths of files that could not be cleaned, with the reason.
    pub(crate) failed: Vec<(String, String)>,
}

/// What became of one file.
#[derive(Debug, PartialEq, Eq)]
enum Gone {
    /// It was deleted.
    Deleted,
    /// It is at this path below the landing root.
    Moved(String),
    /// It is not what was taken any more, or was gone before; nothing was done.
    NotOurs,
}

/// Cleans what a run has found and what is due. A file that cannot be cleaned fails nothing.
///
/// # Errors
/// [`ErrorKind::Table`](lake::ErrorKind::Table) when the table cannot be asked, [`ErrorKind::Store`](lake::ErrorKind::Store)
/// when the ledger cannot be read.
pub(crate) async fn clean(work: Work<'_>, target: &Target, ledger: &mut Ledger, found: &Discovery) -> Result<Cleaned> {
    let (retention, to) = match &work.plan.clean {
        Clean::Off => return Ok(Cleaned::default()),
        Clean::Delete { retention } => (*retention, None),
        Clean::Move { retention, to } => (*retention, Some(to.as_str())),
    };
    let (done, newest_us) = (target.done().await?, target.newest_file_us()?);
    // Read after the table: that a batch went without a file is noted before the batch is in the table.
    ledger.reload().await?;
    let now = work.lake.clock().now();
    let mut cleaned = Cleaned::default();
    let mut files: Vec<_> = found.known.iter().chain(&found.ready).filter(|file| file.unreadable.is_none()).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    for file in files {
        let Some((batch, _)) = ledger.taken(file).filter(|(batch, _)| *batch <= done) else { continue };
        if work.ctx.stop.is_raised() || !is_due(ledger, batch, newest_us, retention, now) {
            continue;
        }
        let gone = match (work.landing.local_path(), to) {
            (Some(root), to) => local::clean(root, file, to.map(|to| destination(work.plan, to, file))).await,
            (None, to) => {
                remote::clean(work.landing.store(), file, to.map(|to| destination(work.plan, to, file))).await
            }
        };
        match gone {
            Ok(Gone::Deleted) => cleaned.done.push((file.path.clone(), None)),
            Ok(Gone::Moved(to)) => cleaned.done.push((file.path.clone(), Some(to))),
            Ok(Gone::NotOurs) => {}
            Err(error) => cleaned.failed.push((file.path.clone(), error.to_string())),
        }
    }
    Ok(cleaned)
}

/// True when the retention of a batch that is in the table has passed. A batch is in the table before the next one is
/// planned; of the last one the newest data file tells.
fn is_due(ledger: &Ledger, batch: i64, newest_us: Option<i64>, retention: Duration, now: DateTime<Utc>) -> bool {
    let planned_us = ledger.planned_at_us(batch).unwrap_or_default();
    let committed_us = ledger.planned_at_us(batch + 1).unwrap_or_else(|| newest_us.unwrap_or_default().max(planned_us));
    let committed = DateTime::from_timestamp_micros(committed_us);
    let due = TimeDelta::from_std(retention).ok().and_then(|retention| committed?.checked_add_signed(retention));
    due.is_some_and(|due| due <= now)
}

/// Where a file goes: its path below the folder of the source, below the destination.
fn destination(plan: &SourcePlan, to: &str, file: &FoundFile) -> String {
    format!("{to}/{}", below(&plan.folder, &file.path).unwrap_or(&file.path))
}

/// The names to try at a destination: the name itself, then numbered ones.
fn names(to: &str) -> impl Iterator<Item = String> + '_ {
    std::iter::once(to.to_owned()).chain((2..=NAMES_MAX).map(move |number| format!("{to}.{number}")))
}
