//! The new table, where nobody sees it.

use lake::report::TaskReport;
use lake::rules::Rule;
use lake::run::{Pins, RunContext};
use lake::{Error, ErrorKind, Lake, Layer, Result, Table, TableName};

use super::{AsOf, decided};
use crate::facts::REBUILT;
use crate::plan::TablePlan;
use crate::refine::{Refinement, run_upto};
use crate::verify;

/// A table that was made aside.
pub(super) struct Made {
    /// Where it is. The folder goes with this.
    pub(super) aside: Lake,
    _folder: tempfile::TempDir,
    pub(super) table: Table,
    pub(super) rows: u64,
    /// The constraints of other programs that they meet.
    pub(super) bound: Vec<Rule>,
    /// The number of the rebuild.
    pub(super) number: i64,
    /// The last batch of bronze in it, and the version of bronze that was read.
    pub(super) upto: i64,
    pub(super) bronze: u64,
    /// How many decisions there were about refused records before it was made.
    pub(super) decided: Option<i64>,
    pub(super) report: TaskReport,
}

/// Makes the table of a plan aside, and asks it for its promises.
pub(super) async fn make(refinement: Refinement<'_>, number: i64, as_of: Option<AsOf>) -> Result<Made> {
    let Refinement { lake, plan, ctx, .. } = refinement;
    let source = TableName::bronze(&plan.source);
    let (bronze, limit) = bronze(lake, &source, as_of).await?;
    let layers = Layer::ALL.into_iter().filter(|layer| !matches!(layer, Layer::Bronze | Layer::Files));
    let (aside, folder) = lake.with_aside(layers.collect())?;
    let decided = decided(lake, plan).await?;
    if decided.is_some() {
        // What was discarded there stays discarded.
        let quarantine = TableName::quarantine(&plan.source);
        lake.copy_table(&quarantine, &aside, &quarantine).await?;
    }
    let mut own = TablePlan::clone(plan);
    own.properties.push((REBUILT.to_owned(), number.to_string()));
    let context = RunContext { pins: Pins::default(), ..ctx.clone() };
    context.pins.set(&source, bronze);
    let report = run_upto(&aside, &own, &context, limit).await?;
    let upto = match aside.table(&plan.table).await? {
        Some(table) => table.txn_version(&refinement.app()).await?.map(|upto| (table, upto)),
        None => None,
    };
    let Some((table, upto)) = upto else {
        let message = format!("{source} has nothing to make {} from", plan.table);
        return Err(Error::new(ErrorKind::Table, message));
    };
    let session = aside.session()?;
    let rows = session.context().read_table(session.provider(&table).await?)?;
    let bound = lake.existing(&plan.table).await?.bind(&table, &rows, &plan.kept.row_keys(plan)).await?;
    let (rows, checks) = verify::promises(plan, rows).await?;
    if let Some(broken) = checks.iter().find(|check| check.offenders > 0) {
        let message = format!("the new rows of {} break a rule: {}: {}", plan.table, broken.rule, broken.offenders);
        return Err(Error::data(message).hint(broken.examples.join("; ")));
    }
    Ok(Made { aside, _folder: folder, table, rows, bound, number, upto, bronze, decided, report })
}

/// The version of bronze to read, and the last batch to apply.
async fn bronze(lake: &Lake, source: &TableName, as_of: Option<AsOf>) -> Result<(u64, Option<i64>)> {
    let newest = lake.existing(source).await?;
    let version = match as_of {
        None | Some(AsOf::Batch(_)) => newest.version(),
        Some(AsOf::Version(version)) => version,
        Some(AsOf::Moment(at)) => lake::history::version_at(&newest, at).await?,
    };
    if version > newest.version() {
        let message = format!("{source} has no version {version}");
        return Err(Error::new(ErrorKind::Table, message).hint(format!("its newest is {}", newest.version())));
    }
    let limit = match as_of {
        Some(AsOf::Batch(batch)) => Some(batch),
        _ => None,
    };
    Ok((version, limit))
}
