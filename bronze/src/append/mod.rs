//! One batch, from its plan in the ledger to its one commit in the table.
//!
//! The order of the commits is what makes a batch happen once, whoever executes it and however often:
//! 1. what could not be read is noted in the ledger;
//! 2. rejected records enter the quarantine, once (`bronze:<source>` at N);
//! 3. the data enters the table in one commit (`<source>` at N), with the columns that joined.
//!
//! Whoever comes later finds the batch done, or executes it again with the same files minus those noted as failed.
//!
//! Two runs may read a batch at once and see its files differently: one has read a file that the other finds gone. The
//! rows of the table decide. Before the next batch is planned, what was noted of the files of the last one is held
//! against its rows, once (`<source>:settled` at N in the ledger).

mod open;
mod partitioned;
mod pass;
mod replay;
mod rows;
mod target;

use std::collections::BTreeMap;

use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::accounting::Figures;
use lake::columns::{BATCH_ID, FILE_PATH, FileOrder, bronze_leading};
use lake::commit::{Commit, Outcome, Txn, evolve};
use lake::quarantine::{Before, Claim, QuarantineWriter};
use lake::run::RunContext;
use lake::scan::texts_where;
use lake::write::discard;
use lake::{Error, ErrorKind, Lake, Result, Root, Table, fault};

use self::pass::{Failure, Job, Pass};
pub(crate) use self::target::Target;
use crate::discover::FoundFile;
use crate::evolve::FileNote;
use crate::ledger::{Entry, Ledger, Status};
use crate::plan::SourcePlan;
use crate::spec::Order;

/// How often a batch is read again because the table or the ledger moved meanwhile.
const READS_MAX: usize = 20;

/// What a source works with during a run.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) lake: &'a Lake,
    pub(crate) landing: &'a Root,
    pub(crate) plan: &'a SourcePlan,
    pub(crate) ctx: &'a RunContext,
    /// Claims of records to be replayed that this run has made.
    pub(crate) ours: &'a [Claim],
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// Figures of what this run committed; nothing when another run did the batch.
    pub(crate) figures: Figures,
    /// Files of the batch that could not be read, with the reason.
    pub(crate) failed: Vec<(String, String)>,
    /// Names of the columns that joined the table.
    pub(crate) new_columns: Vec<String>,
    /// What is worth a note about the columns of files, by path.
    pub(crate) column_notes: Vec<(String, FileNote)>,
    /// True when the table had data columns before.
    pub(crate) had_columns: bool,
    /// True when the batch is in the table by this run's hand.
    pub(crate) ours: bool,
}

impl Work<'_> {
    /// Executes a batch that the ledger holds and the table does not.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when a store fails, [`ErrorKind::Accounting`] when the records do not add up; the batch
    /// stays planned and a later run executes it.
    pub(crate) async fn execute(&self, target: &mut Target, ledger: &mut Ledger, batch: i64) -> Result<Executed> {
        if ledger.is_replay(batch) {
            return self.replay(target, ledger, batch).await;
        }
        for _ in 0..READS_MAX {
            if target.done().await? >= batch {
                return Ok(Executed::default());
            }
            let table = target.made().await?;
            let files = sorted(ledger.batch(batch), self.plan);
            let job = Job {
                lake: self.lake.clone(),
                landing: self.landing.clone(),
                plan: self.plan.clone(),
                ctx: self.ctx.clone(),
                table: table.clone(),
                before: self.quarantined_before(batch).await?,
                batch,
            };
            let pass = pass::read(job, files).await?;
            if let Some(pass) = self.agree(target, ledger, batch, pass).await?
                && let Some(executed) = self.commit(target, ledger, batch, pass).await?
            {
                return Ok(executed);
            }
            tracing::debug!(source = self.plan.source(), batch, "the batch is read again");
            target.refresh().await?;
        }
        Err(Error::new(ErrorKind::Conflict, format!("batch {batch} of {} could not be committed", self.plan.table)))
    }

    /// Notes the files that failed. `None` when the reading is of no use: another run finished the batch or noted
    /// other failures, or rows of a failed file are in it.
    async fn agree(&self, target: &mut Target, ledger: &mut Ledger, batch: i64, pass: Pass) -> Result<Option<Pass>> {
        let agreed = match fault::cross("bronze_data_written") {
            Ok(()) => self.note_failures(target, ledger, batch, &pass.failures).await,
            Err(error) => Err(error),
        };
        match agreed {
            Ok(true) if !pass.spoiled => Ok(Some(pass)),
            agreed => {
                discard(target.made().await?, &pass.written.files).await;
                pass.quarantine.abort().await;
                agreed.map(|_| None)
            }
        }
    }

    /// Writes what failed into the ledger. False when another run finished the batch, or noted something since the
    /// ledger was read: what it saw of the files counts.
    async fn note_failures(
        &self,
        target: &mut Target,
        ledger: &mut Ledger,
        batch: i64,
        failures: &[Failure],
    ) -> Result<bool> {
        target.refresh().await?;
        if target.done().await? >= batch {
            return Ok(false);
        }
        if failures.is_empty() {
            let seen = ledger.notes();
            ledger.reload().await?;
            return Ok(ledger.notes() == seen);
        }
        let entry = |failure: &Failure| Entry::new(Some(batch), &failure.file, failure.status, failure.reason.clone());
        ledger.note(failures.iter().map(entry).collect(), &self.ctx.run).await
    }

    /// Commits a reading. `None` when the table moved so that the batch must be read again.
    async fn commit(&self, target: &mut Target, ledger: &Ledger, batch: i64, pass: Pass) -> Result<Option<Executed>> {
        let table = target.made().await?;
        let Pass { written, quarantine, before, figures, schema, column_notes, .. } = pass;
        let known = table.schema().fields().len();
        let joined = schema.fields().iter().skip(known);
        let new_columns = joined.map(|field| field.name().clone()).collect();
        let prepared = match self.settle_rejects(&figures, quarantine, &before, batch).await {
            Ok(()) => evolve(table, &schema, &order_property(table, self.plan)?),
            Err(error) => Err(error),
        };
        let metadata = match prepared {
            Ok(metadata) => metadata,
            Err(error) => {
                discard(table, &written.files).await;
                return Err(error);
            }
        };
        let commit = Commit {
            point: "bronze_committed",
            txns: vec![Txn::new(self.plan.source(), batch)],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: metadata.into_iter().chain(written.files.iter().cloned().map(Action::Add)).collect(),
            blind_append: true,
            metrics: BTreeMap::from([("numOutputRows", written.rows), ("numSourceFiles", figures.files)]),
            run: self.ctx.run.clone(),
        };
        match table.commit(commit).await {
            Ok(Outcome::Committed { .. }) => {
                let failure = |entry: &Entry| (entry.file.path.clone(), entry.reason.clone().unwrap_or_default());
                let failed = ledger.failures(batch).map(failure).collect();
                let had_columns = known > bronze_leading().len();
                Ok(Some(Executed { figures, failed, new_columns, column_notes, had_columns, ours: true }))
            }
            Ok(Outcome::AlreadyApplied { .. }) => {
                discard(table, &written.files).await;
                Ok(Some(Executed::default()))
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                discard(table, &written.files).await;
                Ok(None)
            }
            // A store that did not answer may still do what it was asked for: the files stay, `vacuum` knows which.
            Err(error) => Err(error),
        }
    }

    /// Holds what was noted of the files of `batch`, which is in the table, against its rows: a file whose rows are
    /// there was taken, whatever another run noted of it meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when a store fails.
    pub(crate) async fn settle_notes(&self, target: &mut Target, ledger: &mut Ledger, batch: i64) -> Result<()> {
        for _ in 0..READS_MAX {
            if !ledger.is_unsettled(batch) {
                return Ok(());
            }
            let table = target.made().await?;
            let present = texts_where(self.lake, table, FILE_PATH, (BATCH_ID, batch)).await?;
            let noted = ledger.failures(batch).filter(|entry| present.contains(&entry.file.path));
            let reason = "its rows are in the table: another run had read it";
            let taken: Vec<Entry> =
                noted.map(|entry| Entry::new(Some(batch), &entry.file, Status::Taken, reason)).collect();
            ledger.settle(batch, taken, &self.ctx.run).await?;
        }
        Err(Error::new(ErrorKind::Conflict, format!("the notes on batch {batch} of {} keep changing", self.plan.table)))
    }

    /// Makes sure that every record is accounted for, then brings the rejected ones into quarantine.
    async fn settle_rejects(
        &self,
        figures: &Figures,
        quarantine: QuarantineWriter,
        before: &Before,
        batch: i64,
    ) -> Result<()> {
        if let Err(error) = figures.check_bronze(&self.plan.table) {
            quarantine.abort().await;
            return Err(error);
        }
        quarantine.commit(before, batch, "bronze_quarantine_committed").await
    }

    /// What the quarantine holds of a batch that is about to be read, perhaps again.
    async fn quarantined_before(&self, batch: i64) -> Result<Before> {
        let app = format!("bronze:{}", self.plan.source());
        Before::of(self.lake, self.plan.source(), &self.plan.table, &app, (batch - 1, batch), false).await
    }
}

/// The property that tells readers of the table in which order the files of a batch were taken, when that is not the
/// order of their paths.
fn order_property(table: &Table, plan: &SourcePlan) -> Result<Vec<(String, String)>> {
    let order = match plan.order {
        Order::Name => FileOrder::Path,
        Order::ModificationTime => FileOrder::ModificationTime,
    };
    let held = FileOrder::of(table)?;
    Ok(if held == order { Vec::new() } else { vec![order.property()] })
}

/// Files in the order in which the source takes them.
pub(crate) fn sorted(mut files: Vec<FoundFile>, plan: &SourcePlan) -> Vec<FoundFile> {
    match plan.order {
        Order::Name => files.sort_by(|a, b| a.path.cmp(&b.path)),
        Order::ModificationTime => {
            files.sort_by(|a, b| (a.modified_us, &a.path).cmp(&(b.modified_us, &b.path)));
        }
    }
    files
}
