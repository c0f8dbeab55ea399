//! One run of a silver table, from the records that it has not seen to the commit that says so.
//!
//! The table's transaction `silver.orders:bronze.orders_cdc` holds the last bronze batch that was applied. A run reads
//! the batches above it, and commits the rejected rows under the same transaction in their own table, what is remembered
//! beside the rows, and at last the rows: a crash between them leaves nothing that the next run would do twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use lake::accounting::Figures;
use lake::changes::lost_rows;
use lake::columns::FileOrder;
use lake::commit::{Outcome, Txn, redoing};
use lake::quarantine::{Before, QuarantineWriter};
use lake::report::{TaskReport, TaskState, many};
use lake::run::RunContext;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Error, ErrorKind, Lake, Result, Table, TableName, fault};

use crate::change::Decoder;
use crate::dedup;
use crate::expect::{Tested, check_fractions};
use crate::facts::rebuilt;
use crate::plan::{ExpectationPlan, Kept, TablePlan};
use crate::read::{Changes, Range, Read, Rejects, Wanted, changes, count};
use crate::sift::Arrived;
use crate::snapshot::Extracted;
use crate::spec::Action;
use crate::truncates::Found;

/// Applies what bronze has and the table has not seen.
///
/// # Errors
/// [`ErrorKind::Data`] when a record breaks a rule that the spec says must stop the run, [`ErrorKind::Accounting`]
/// when the rows do not add up, [`ErrorKind::Spec`] and [`ErrorKind::Table`] when plan, records and table do not fit
/// each other. Nothing is committed to the table then.
pub async fn run(lake: &Lake, plan: &TablePlan, ctx: &RunContext) -> Result<TaskReport> {
    run_upto(lake, plan, ctx, None).await
}

/// [`run`], with bronze up to a batch only.
pub(crate) async fn run_upto(
    lake: &Lake,
    plan: &TablePlan,
    ctx: &RunContext,
    limit: Option<i64>,
) -> Result<TaskReport> {
    let plan = Arc::new(plan.clone());
    let refinement = Refinement { lake, plan: &plan, ctx, limit };
    let replayed = refinement.unfinished().await?;
    let mut is_first = true;
    let report = redoing(lake.clock(), async || {
        if !std::mem::take(&mut is_first) {
            refinement.check_source_kept().await?;
        }
        refinement.once().await
    })
    .await?;
    let report = match replayed {
        Some(replayed) => replayed.and(report),
        None => report,
    };
    if let Some(version) = report.version {
        ctx.pins.set(&plan.table, version);
    }
    Ok(report)
}

/// What a table is refined with.
#[derive(Clone, Copy)]
pub(crate) struct Refinement<'a> {
    pub(crate) lake: &'a Lake,
    pub(crate) plan: &'a Arc<TablePlan>,
    pub(crate) ctx: &'a RunContext,
    /// The last batch of bronze to apply; `None` is the last that there is.
    pub(crate) limit: Option<i64>,
}

impl Refinement<'_> {
    async fn once(&self) -> Result<TaskReport> {
        let source = TableName::bronze(&self.plan.source);
        let Some(bronze) = self.ctx.pins.open(self.lake, &source).await? else {
            return self.nothing(None, Some(format!("{source} does not exist yet: nothing has landed"))).await;
        };
        let Some(upto) = bronze.txn_version(&self.plan.source).await? else {
            return self.nothing(Some(&bronze), Some(format!("{source} is empty"))).await;
        };
        let upto = self.limit.map_or(upto, |limit| limit.min(upto));
        let table = self.lake.table(&self.plan.table).await?;
        let before = table.as_ref().map(rebuilt).transpose()?.flatten();
        let answer = self.refine(&bronze, table, upto).await;
        self.unless_made_anew(before, answer).await
    }

    /// Fails with a conflict instead when the table was made anew meanwhile, which takes away what lay beside the old one.
    pub(crate) async fn unless_made_anew<T>(&self, before: Option<i64>, answer: Result<T>) -> Result<T> {
        let Err(error) = answer else { return answer };
        let now = self.lake.table(&self.plan.table).await?;
        if error.kind() == ErrorKind::Conflict || now.as_ref().map(rebuilt).transpose()?.flatten() == before {
            return Err(error);
        }
        let message = format!("{} was made anew meanwhile", self.plan.table);
        Err(Error::new(ErrorKind::Conflict, message).with_source(error))
    }

    async fn refine(&self, bronze: &Table, table: Option<Table>, upto: i64) -> Result<TaskReport> {
        let after = match &table {
            Some(table) => {
                self.end_rebuild(table).await?;
                self.plan.check_made_alike(table)?;
                table.txn_version(&self.app()).await?
            }
            None => None,
        };
        if after.is_some_and(|after| after >= upto) {
            self.check_source(after.unwrap_or_default(), upto).await?;
            // Rules may be about columns that the next rows bring.
            if let Some(mut table) = table.filter(|table| !self.plan.lacks_columns(table)) {
                self.set_rules(&mut table).await?;
            }
            return self.nothing(Some(bronze), None).await;
        }
        let held = table.map(|table| table.schema());
        self.apply(bronze, Range { after: after.unwrap_or(i64::MIN), upto }, held).await
    }

    /// `held` are the columns of the table, when there is one.
    async fn apply(&self, bronze: &Table, range: Range, held: Option<SchemaRef>) -> Result<TaskReport> {
        let session = self.lake.session()?;
        let landed = count(bronze, range, &session).await?;
        // Where files are full extracts one without records says something.
        if landed == 0 && self.plan.snapshot.is_none() {
            let note = (range.after == i64::MIN).then(|| format!("{} has no rows yet", bronze.name()));
            return self.nothing(Some(bronze), note).await;
        }
        let decoder =
            Arc::new(Decoder::new(Arc::clone(self.plan), &bronze.schema(), FileOrder::of(bronze)?, &session)?);
        let mut table = self.table(&decoder).await?;
        let side = self.side_app(&table)?;
        let reach = (range.after, range.upto);
        let before = Before::of(self.lake, &self.plan.source, &self.plan.table, &side, reach, true).await?;
        let writer = QuarantineWriter::after(self.lake, &before, &self.ctx.run);
        let wanted = Wanted::Range { range, except: Arc::new(before.discarded().clone()) };
        let rejects = Rejects::Refused(writer);
        let sequence = self.plan.sequence_columns();
        let arrival = (bronze, range, wanted, rejects);
        let taken = self.taken(arrival, &decoder, &table, &side, &session).await?;
        let Extracted { last, tally, mut writer, counts, refused, notes, applied } = taken;
        let arrived = Arrived { changes: last, tally: &tally, beside: Found::default(), again: false };
        let sifted = self.sift(arrived, &table, &side, &sequence).await?;
        let figures = Figures {
            read: landed + tally.added + counts.absent,
            applied: counts.unchanged,
            superseded: counts.superseded,
            stale: counts.stale,
            quarantined: tally.rejected + counts.refused,
            dropped: tally.dropped,
            ignored: tally.ignored + counts.parts,
            ..Figures::default()
        };
        let figures = figures.and(sifted.figures);
        figures.check_silver(&self.plan.table)?;
        check_fractions(&self.plan.table, &self.plan.expectations, &tally.held)?;
        for row in sifted.incomplete.clone() {
            writer.push(row).await?;
        }
        let more = sifted.notes.clone();
        self.ctx.stop.check()?;
        fault::cross("silver_staged")?;

        let point = "silver_quarantine_committed";
        writer.commit(&before, range.upto, point).await?;
        let applied = match applied {
            Some(applied) => applied.remember(&self.ctx.run).await?,
            None => None,
        };
        let rows = sifted.remember(&self.ctx.run).await?.with(applied);
        let outcome = rows.commit(self, &mut table, Txn::new(self.app(), range.upto), "silver_committed").await?;
        let mut report = self.report(bronze, &decoder, outcome, figures, &tally.held);
        let joined =
            decoder.joined().iter().filter(|name| held.as_ref().is_some_and(|held| held.index_of(name).is_err()));
        report.failed_files = refused;
        report.notes.extend(notes.into_iter().chain(more));
        report.notes.extend(joined.map(|name| format!("column `{name}` joined: rows applied before stay null in it")));
        Ok(report)
    }

    /// The changes that decide about each key, how many others there were, and what became of the records that are no
    /// change. Updates that may not send every column are rare with some producers: their records are read once more
    /// when there is one.
    pub(crate) async fn deciding(
        &self,
        bronze: &Table,
        wanted: Wanted,
        decoder: &Arc<Decoder>,
        rejects: Rejects,
        session: &Session,
    ) -> Result<(Staged, u64, Read)> {
        let (keys, sequence, partial) = (&self.plan.keys, decoder.sequence(), &self.plan.partial);
        // Where more than current rows are kept every change may say something.
        let deciding = async |all: DataFrame| match self.plan.kept {
            Kept::Current => dedup::deciding(all, keys, sequence).await,
            Kept::Marked | Kept::History(_) => Ok((Staged::write(all).await?, 0)),
        };
        let first = changes(bronze, wanted.clone(), decoder, rejects, session, self.ctx).await?;
        if partial.is_on() && (partial.absent || partial.null) {
            let made = deciding(first.frame.clone()).await;
            let ((kept, superseded), read) = self.finished(made, first).await?;
            return Ok((kept, superseded, read));
        }
        let memory = self.lake.engine().memory_bytes;
        let made = dedup::last(first.frame.clone(), &self.plan.once_per(), sequence, memory).await;
        let ((kept, superseded), read) = self.finished(made, first).await?;
        if read.tally.partial == 0 {
            return Ok((kept, superseded, read));
        }
        let all = kept.rows() + superseded;
        let passed_over = Rejects::Refused(QuarantineWriter::new(self.lake, &self.plan.source, &self.ctx.run));
        let again = changes(bronze, wanted.again(), decoder, passed_over, session, self.ctx).await?;
        let made = deciding(again.frame.clone()).await;
        let ((kept, superseded), _) = self.finished(made, again).await?;
        if kept.rows() + superseded != all {
            let message =
                format!("{all} changes of {} were {} when they were read again", self.plan.table, kept.rows());
            return Err(Error::new(ErrorKind::Accounting, message));
        }
        Ok((kept, superseded, read))
    }

    /// What was made of changes, and what became of the records that are none.
    pub(crate) async fn finished<T>(&self, made: Result<T>, changes: Changes) -> Result<(T, Read)> {
        match (made, changes.finish().await) {
            (Ok(made), Ok(read)) => Ok((made, read)),
            // When the quarantine fails the changes fail for want of it: its own error is the cause.
            (_, Err(error)) => Err(error),
            (Err(error), Ok(read)) => {
                read.writer.abort().await;
                Err(error.context(format!("reading the changes of {}", self.plan.table)))
            }
        }
    }

    /// Refuses to go on with a bronze table as it was at the begin of the run when rows were taken out of it since: the table
    /// may have been taken back as well.
    async fn check_source_kept(&self) -> Result<()> {
        let source = TableName::bronze(&self.plan.source);
        let (Some(pinned), Some(bronze)) = (self.ctx.pins.get(&source), self.lake.table(&source).await?) else {
            return Ok(());
        };
        if bronze.version() <= pinned || !lost_rows(&bronze, pinned).await? {
            return Ok(());
        }
        let message = format!("rows of {source} were taken away while {} was brought up to date", self.plan.table);
        Err(Error::new(ErrorKind::Table, message).hint("run again: the next run takes what is there now"))
    }

    /// Refuses a bronze table that was made anew and counts its batches from the start.
    async fn check_source(&self, after: i64, upto: i64) -> Result<()> {
        let source = TableName::bronze(&self.plan.source);
        if after == upto {
            return Ok(());
        }
        let newest = match self.lake.table(&source).await? {
            Some(bronze) => bronze.txn_version(&self.plan.source).await?.unwrap_or(0),
            None => 0,
        };
        if newest >= after {
            return Ok(());
        }
        Err(self.plan.ahead_of_source(after, newest))
    }

    async fn nothing(&self, bronze: Option<&Table>, note: Option<String>) -> Result<TaskReport> {
        let version = self.lake.table(&self.plan.table).await?.map(|table| table.version());
        let mut report = TaskReport::up_to_date(self.plan.table.clone(), version);
        report.read = bronze.map(|bronze| (bronze.name().clone(), bronze.version())).into_iter().collect();
        report.notes.extend(note);
        Ok(report)
    }

    fn report(
        &self,
        bronze: &Table,
        decoder: &Decoder,
        outcome: Outcome,
        figures: Figures,
        held: &[Tested],
    ) -> TaskReport {
        let mut notes: Vec<String> = decoder.notes().to_vec();
        let missing = decoder
            .missing()
            .iter()
            .map(|column| format!("column {column} is not in {} yet and stays null", bronze.name()));
        notes.extend(missing);
        let warns = |expectation: &ExpectationPlan| expectation.action == Action::Warn;
        let warnings = self.plan.expectations.iter().zip(held);
        let warnings = warnings.filter(|(expectation, held)| warns(expectation) && held.missed > 0);
        notes.extend(warnings.map(|(expectation, held)| {
            let missed = many(held.missed, "row");
            format!("expectation `{}` ({}) is not met by {missed}", expectation.name, expectation.check)
        }));
        if let Outcome::AlreadyApplied { .. } = outcome {
            notes.push("another run applied the same changes".to_owned());
        }
        TaskReport {
            table: self.plan.table.clone(),
            state: TaskState::Changed,
            figures,
            version: Some(outcome.version()),
            read: BTreeMap::from([(bronze.name().clone(), bronze.version())]),
            failed_files: Vec::new(),
            notes,
        }
    }
}
