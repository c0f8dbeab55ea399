//! A table made anew in its place: from the whole of bronze by the present spec, whatever it was before.
//!
//! 1. The table is made aside, where nobody sees it, by an ordinary run from the first batch (`made`); what it promises is
//!    asked of it.
//! 2. What is to be known beside it (deletes, truncates, its past) and what it refused are copied into the lake under
//!    names of their own: the table's with the number of the rebuild. Nobody reads them yet.
//! 3. One commit makes the table what the new one is: its columns, properties and files, the batch of bronze that it
//!    has come to, and the number of the rebuild, by which what lies beside it is found from then on.
//! 4. What the table refused takes the place of what it had refused before (`refused`).
//!
//! A rebuild that dies before the third step has changed nothing. After it the fourth is all that is missing: the next
//! run, replay or rebuild takes it. A run that began on the old table cannot commit to the new one, so it begins again
//! from there; of two rebuilds the one that was started later stays.

mod difference;
mod made;
mod refused;

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use lake::commit::{Outcome, Swap, Txn, redoing};
use lake::quarantine::Quarantine;
use lake::report::{TaskReport, TaskState, counted, thousands};
use lake::run::RunContext;
use lake::{Error, ErrorKind, Lake, Layer, Result, Table, TableName, fault};

pub use self::difference::Difference;
use self::made::{Made, make};
use crate::facts::{LAYERS, REBUILT, REBUILT_BEFORE, beside, counting, rebuilt};
use crate::plan::TablePlan;
use crate::refine::Refinement;

/// Up to where bronze is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsOf {
    /// A batch.
    Batch(i64),
    /// A version of the bronze table.
    Version(u64),
    /// What was the newest version of the bronze table at a moment.
    Moment(DateTime<Utc>),
}

/// Makes a table anew. With `as_of` it comes to what it was then, by the present spec, and the next run goes on from there.
///
/// # Errors
/// [`ErrorKind::Table`] when there is no table, or nothing to make it from; [`ErrorKind::Data`] when the new one does not
/// keep its promises; as [`run`](crate::run). The table is as it was then.
pub async fn rebuild(lake: &Lake, plan: &TablePlan, as_of: Option<AsOf>, ctx: &RunContext) -> Result<TaskReport> {
    let plan = Arc::new(plan.clone());
    let refinement = Refinement { lake, plan: &plan, ctx, limit: None };
    // The number is of the moment when it began, however often it is done again: a rebuild that began later stays.
    let number = number(lake, &plan).await?;
    redoing(lake.clock(), async || refinement.rebuilt(number, as_of).await).await
}

/// Says what a rebuild would change, and changes nothing.
///
/// # Errors
/// As [`rebuild`].
pub async fn preview(lake: &Lake, plan: &TablePlan, as_of: Option<AsOf>, ctx: &RunContext) -> Result<Difference> {
    let plan = Arc::new(plan.clone());
    let refinement = Refinement { lake, plan: &plan, ctx, limit: None };
    let made = make(refinement, number(lake, &plan).await?, as_of).await?;
    Difference::of(lake, &plan, &made).await
}

impl Refinement<'_> {
    async fn rebuilt(&self, number: i64, as_of: Option<AsOf>) -> Result<TaskReport> {
        let Refinement { lake, plan, .. } = self;
        let held = lake.existing(&plan.table).await?;
        let before = rebuilt(&held)?;
        let answer = self.replace(held, number, as_of).await;
        self.unless_made_anew(before, answer).await
    }

    async fn replace(&self, held: Table, number: i64, as_of: Option<AsOf>) -> Result<TaskReport> {
        let Refinement { lake, plan, ctx, .. } = self;
        self.end_rebuild(&held).await?;
        if rebuilt(&held)? >= Some(number) {
            return Ok(self.came_later(held.version()));
        }
        self.forget_older(&held).await?;
        let made = make(*self, number, as_of).await?;
        fault::cross("rebuild_made")?;
        ctx.stop.check()?;
        self.publish(&made).await?;
        fault::cross("rebuild_published")?;
        if decided(lake, plan).await? != made.decided {
            let message = format!("somebody decided about records of {} meanwhile", plan.table);
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let outcome = self.swap(&made).await?;
        if let Outcome::AlreadyApplied { version } = outcome {
            self.withdraw(made.number).await?;
            return Ok(self.came_later(version));
        }
        let table = lake.existing(&plan.table).await?;
        self.end_rebuild(&table).await?;
        let version = table.version();
        ctx.pins.set(&plan.table, version);
        Ok(self.rebuild_report(made, version))
    }

    /// The report of a rebuild that leaves the table to a later one.
    fn came_later(&self, version: u64) -> TaskReport {
        let mut report = TaskReport::up_to_date(self.plan.table.clone(), Some(version));
        report.notes.push("a rebuild that was started later came first: it stays".to_owned());
        report
    }

    fn rebuild_report(&self, made: Made, version: u64) -> TaskReport {
        let source = TableName::bronze(&self.plan.source);
        let rows = counted(usize::try_from(made.rows).unwrap_or(usize::MAX), "row");
        let mut notes = vec![format!("made anew up to batch {} of {source}: {rows}", thousands_of(made.upto))];
        notes.extend(made.report.notes);
        TaskReport {
            table: self.plan.table.clone(),
            state: TaskState::Changed,
            figures: made.report.figures,
            version: Some(version),
            read: BTreeMap::from([(source, made.bronze)]),
            failed_files: made.report.failed_files,
            notes,
        }
    }

    /// Copies what goes with the new table into the lake. Nobody reads it before the swap.
    async fn publish(&self, made: &Made) -> Result<()> {
        // What another try of this rebuild has left.
        self.withdraw(made.number).await?;
        for layer in LAYERS {
            let name = beside(&made.table, layer)?;
            if made.aside.table(&name).await?.is_some() {
                made.aside.copy_table(&name, self.lake, &name).await?;
            }
        }
        let (quarantine, refused) = (TableName::quarantine(&self.plan.source), beside(&made.table, Layer::Refused)?);
        if made.aside.table(&quarantine).await?.is_some() {
            made.aside.copy_table(&quarantine, self.lake, &refused).await?;
        }
        Ok(())
    }

    async fn swap(&self, made: &Made) -> Result<Outcome> {
        let (plan, columns) = (self.plan, made.table.schema().fields().len());
        let mut table = self.lake.existing(&plan.table).await?;
        let once = Txn::new(format!("{}:rebuilt", plan.table), made.number);
        let mut txns = vec![
            Txn::new(self.app(), made.upto),
            Txn::new(format!("{}:columns", plan.table), i64::try_from(columns).unwrap_or(i64::MAX)),
        ];
        txns.extend(counting(&made.table).await?);
        let run = self.ctx.run.clone();
        let (replaced, bound, rows) = ((REBUILT, REBUILT_BEFORE), made.bound.clone(), made.rows);
        let swap = Swap { with: &made.table, once, txns, replaced, bound, rows, point: "rebuild_committed", run };
        table.become_like(swap).await
    }

    /// Removes what goes with a rebuild that came to nothing.
    async fn withdraw(&self, number: i64) -> Result<()> {
        let name = format!("{}@{number}", self.plan.table.name);
        for layer in LAYERS.into_iter().chain([Layer::Refused]) {
            self.lake.remove_table(&TableName::new(layer, &name)).await?;
        }
        Ok(())
    }

    /// Removes what goes with tables that an earlier rebuild has replaced, or that came to nothing before it.
    async fn forget_older(&self, table: &Table) -> Result<()> {
        let Some(newest) = rebuilt(table)? else { return Ok(()) };
        for layer in LAYERS.into_iter().chain([Layer::Refused]) {
            for name in self.lake.folders_of(layer).await? {
                let number = match name.name.split_once('@') {
                    Some((of, number)) if of == self.plan.table.name => number.parse().ok(),
                    None if name.name == self.plan.table.name => Some(0),
                    _ => None,
                };
                if number.is_some_and(|number: i64| number < newest) {
                    self.lake.remove_table(&name).await?;
                }
            }
        }
        Ok(())
    }
}

/// The number of a rebuild that begins now.
async fn number(lake: &Lake, plan: &TablePlan) -> Result<i64> {
    let held = lake.existing(&plan.table).await?;
    Ok(lake.clock().now_micros().max(rebuilt(&held)?.unwrap_or(0) + 1))
}

/// How many decisions there were about records of the source.
async fn decided(lake: &Lake, plan: &TablePlan) -> Result<Option<i64>> {
    match Quarantine::open(lake, &plan.source).await? {
        Some(quarantine) => quarantine.decided().await.map(Some),
        None => Ok(None),
    }
}

fn thousands_of(batch: i64) -> String {
    u64::try_from(batch).map_or_else(|_| batch.to_string(), thousands)
}
