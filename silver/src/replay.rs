//! Records that this table refused, sent through the present plan again: as if it had been right when they arrived.
//!
//! A record keeps its place of arrival. Where it ties with a change that arrived in the same batch, which of them is
//! the later is asked of bronze: all changes of its key in that batch are ordered again, and a record that another one
//! follows is superseded by it. The module [`lake::quarantine`] says which step comes after which.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, ident, lit};
use lake::accounting::Figures;
use lake::columns::FileOrder;
use lake::commit::redoing;
use lake::quarantine::{Again, Claim, Filter, Places, Quarantine, QuarantineWriter, Status};
use lake::report::{TaskReport, TaskState, many};
use lake::run::RunContext;
use lake::stage::Staged;
use lake::upsert::same_key;
use lake::{Error, ErrorKind, Lake, Result, Retry, Table, TableName};

use crate::change::Decoder;
use crate::dedup;
use crate::history::COUNTED;
use crate::plan::{Kept, TablePlan};
use crate::read::{Read, Rejects, Wanted, changes};
use crate::refine::Refinement;
use crate::sift::Arrived;
use crate::truncates::Found;

const KEY: &str = "__claimed_";
/// How often claimed records are looked at again before the replay gives up.
const ROUNDS_MAX: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// The last bronze batch that the table of a plan has applied: what it refused up to there can be replayed. `None`
/// when there is no table.
///
/// # Errors
/// [`ErrorKind::Store`] when the table cannot be read.
pub async fn reach(lake: &Lake, plan: &TablePlan) -> Result<Option<i64>> {
    let plan = &Arc::new(plan.clone());
    let ctx = &RunContext::new(lake);
    match lake.table(&plan.table).await? {
        Some(table) => table.txn_version(&Refinement { lake, plan, ctx, limit: None }.app()).await,
        None => Ok(None),
    }
}

/// Sends the claimed records of a table through its plan. `ours` are claims that the caller has made; records that
/// another run has claimed are taken over.
///
/// # Errors
/// As [`run`](crate::run). After an error that another try cannot mend the records are open again; else they stay
/// claimed, and the next run or replay goes on with them.
pub async fn replay(lake: &Lake, plan: &TablePlan, ctx: &RunContext, ours: &[Claim]) -> Result<TaskReport> {
    let plan = Arc::new(plan.clone());
    let refinement = Refinement { lake, plan: &plan, ctx, limit: None };
    refinement.end_rebuild_first().await?;
    let Some(quarantine) = Quarantine::open(lake, &plan.source).await? else {
        return Ok(TaskReport::up_to_date(plan.table.clone(), None));
    };
    let ours = ours.iter().filter(|claim| claim.table == plan.table).map(|claim| claim.number).collect();
    let report = Replay { refinement, quarantine, ours, reopened: 0 }.run().await?;
    if let Some(version) = report.version {
        ctx.pins.set(&plan.table, version);
    }
    Ok(report)
}

impl Refinement<'_> {
    /// Finishes a replay that was begun and not ended, if there is one.
    pub(crate) async fn unfinished(&self) -> Result<Option<TaskReport>> {
        let Some(mut quarantine) = Quarantine::open(self.lake, &self.plan.source).await? else { return Ok(None) };
        if !quarantine.is_replaying(&self.plan.table)? || !self.end_rebuild_first().await? {
            return Ok(None);
        }
        if quarantine.claimed(&self.plan.table).await?.is_none() {
            return Ok(None);
        }
        let mut replay = Replay { refinement: *self, quarantine, ours: BTreeSet::new(), reopened: 0 };
        match replay.run().await {
            // The records are open again; what is new need not wait for them.
            Err(error) if error.retry() == Retry::Never => {
                let mut report = TaskReport::up_to_date(self.plan.table.clone(), None);
                report.notes.push(format!("an unfinished replay was given up, its records are open again: {error}"));
                Ok(Some(report))
            }
            Err(error) => Err(error),
            Ok(mut report) => {
                let read = many(report.figures.read, "record");
                report.notes.push(format!("finished a replay of {read} that an earlier run began"));
                Ok(Some(report))
            }
        }
    }
}

impl Refinement<'_> {
    /// What a rebuild refused takes the place of what was claimed, so it comes first. False without a table.
    async fn end_rebuild_first(&self) -> Result<bool> {
        redoing(self.lake.clock(), async || {
            let Some(table) = self.lake.table(&self.plan.table).await? else { return Ok(false) };
            self.end_rebuild(&table).await?;
            Ok(true)
        })
        .await
    }
}

struct Replay<'a> {
    refinement: Refinement<'a>,
    quarantine: Quarantine,
    /// Numbers that this run has claimed records under.
    ours: BTreeSet<i64>,
    /// Records that were refused again by a pass that could not be committed.
    reopened: u64,
}

impl Replay<'_> {
    async fn run(&mut self) -> Result<TaskReport> {
        let Refinement { lake, plan, ctx, .. } = self.refinement;
        let mut report = TaskReport::up_to_date(plan.table.clone(), None);
        for _ in 0..ROUNDS_MAX {
            ctx.stop.check()?;
            let Some((claim, places)) = self.quarantine.claimed(&plan.table).await? else { return Ok(report) };
            let Some(mut table) = lake.table(&plan.table).await? else {
                self.quarantine.release(&claim, &ctx.run).await?;
                report.notes.push("the table is not there: `orchestrator run` makes it, from every record".to_owned());
                return Ok(report);
            };
            if claim.is_taken(&table).await? {
                self.quarantine.finish(&claim, &ctx.run).await?;
            } else if self.ours.contains(&claim.number) {
                let places = Arc::new(places);
                match self.send(&claim, &places).await {
                    Ok((figures, bronze)) => {
                        self.quarantine.finish(&claim, &ctx.run).await?;
                        report.figures = report.figures.and(figures);
                        report.state = TaskState::Changed;
                        report.read.insert(TableName::bronze(&plan.source), bronze);
                    }
                    Err(error) if error.retry() == Retry::Redo => {
                        tracing::debug!(table = %plan.table, %error, "the replay looks at its records again");
                        lake.clock().sleep(PAUSE).await;
                    }
                    Err(error) => return Err(self.quarantine.give_up(&claim, &mut table, error, &ctx.run).await),
                }
            } else {
                let waits = !self.ours.is_empty();
                let claim = self.quarantine.take_over(&claim, &mut table, waits, &ctx.run).await?;
                self.ours.extend(claim.map(|claim| claim.number));
            }
            report.version = lake.table(&plan.table).await?.map(|table| table.version());
        }
        let message = format!("the replay of {} met other runs all the time", plan.table);
        Err(Error::new(ErrorKind::Conflict, message).hint("its records are claimed; the next run goes on with them"))
    }

    /// Reads the records again and applies what passes; says what became of them, and the version of bronze.
    async fn send(&mut self, claim: &Claim, places: &Arc<Places>) -> Result<(Figures, u64)> {
        let Refinement { lake, plan, ctx, .. } = self.refinement;
        if plan.snapshot.is_some() {
            let message =
                format!("records of {} are parts of full extracts, and mean nothing without the rest", plan.table);
            return Err(Error::data(message)
                .hint("deliver the extract again, make the table anew with `silver rebuild`, or discard the records"));
        }
        let source = TableName::bronze(&plan.source);
        let bronze = lake.existing(&source).await?;
        let session = lake.session()?;
        let decoder = Arc::new(Decoder::new(Arc::clone(plan), &bronze.schema(), FileOrder::of(&bronze)?, &session)?);
        let mut table = self.refinement.table(&decoder).await?;
        let side = self.refinement.side_app(&table)?;

        let writer = QuarantineWriter::new(lake, &plan.source, &ctx.run);
        let rejects = Rejects::Again(writer, Arc::clone(places), claim.number);
        let changes = changes(&bronze, Wanted::Only(Arc::clone(places)), &decoder, rejects, &session, ctx).await?;
        let staged = Staged::write(changes.frame.clone()).await;
        let (claimed, Read { tally, mut writer, mut refused }) = self.refinement.finished(staged, changes).await?;
        if tally.read != places.len() {
            writer.abort().await;
            let message =
                format!("{} of {} records are not in {source} any more", places.len() - tally.read, places.len());
            let hint = format!("{source} was made anew: make {} anew as well, or discard the records", plan.table);
            return Err(Error::new(ErrorKind::Table, message).hint(hint));
        }
        let sequence = plan.sequence_columns();
        let (kept, superseded, beside) =
            self.last((&claimed, &tally.truncated), &bronze, &decoder, places, &sequence).await?;
        let arrived = Arrived { changes: kept, tally: &tally, beside, again: true };
        let sifted = self.refinement.sift(arrived, &table, &side, &sequence).await?;
        let figures = Figures {
            read: places.len() + tally.added + self.reopened,
            superseded,
            quarantined: tally.rejected + self.reopened,
            dropped: tally.dropped,
            ignored: tally.ignored,
            ..Figures::default()
        };
        let figures = figures.and(sifted.figures);
        figures.check_silver(&plan.table)?;
        for row in sifted.incomplete.clone() {
            let first_seen_us = places.get(row.batch_id, &row.file_path, row.row_number).unwrap_or_default();
            refused.add(row.batch_id, &row.file_path, row.row_number, 0);
            writer.push_again(row, Again { first_seen_us, replay: claim.number }).await?;
        }
        ctx.stop.check()?;

        self.quarantine.reopen(claim, &refused, writer, &ctx.run).await?;
        self.reopened += refused.len();
        let rows = sifted.remember(&ctx.run).await?;
        rows.commit(&self.refinement, &mut table, claim.txn(), "silver_replayed").await?;
        if !claim.is_taken(&table).await? {
            let message = format!("replay {} of {} was taken over by another run", claim.number, plan.table);
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        self.reopened = 0;
        Ok((figures, bronze.version()))
    }

    /// The replayed changes that are the last at their place among all that arrived in the same batches, how many
    /// others there were, and the truncates that arrived there. Where upserts and deletes have places of their own, the
    /// others of the key come along: which of the two is the later must be seen. Where more than the last change of a
    /// key may decide, all of them come; beside a replayed truncate of a table that keeps more than current rows those of
    /// all keys.
    async fn last(
        &self,
        (claimed, truncated): (&Staged, &Found),
        bronze: &Table,
        decoder: &Arc<Decoder>,
        places: &Arc<Places>,
        sequence: &[String],
    ) -> Result<(Staged, u64, Found)> {
        let Refinement { lake, plan, ctx, .. } = self.refinement;
        let session = lake.session()?;
        let names: Vec<String> = claimed.schema().fields().iter().map(|field| field.name().clone()).collect();
        let marked_as = |frame: DataFrame, claimed: bool| -> Result<DataFrame> {
            let columns = names.iter().map(ident).chain([lit(claimed).alias(COUNTED)]);
            Ok(frame.select(columns.collect::<Vec<_>>())?)
        };
        // Records that were never applied are not what a replayed one ties with.
        let status = vec![Status::Open, Status::Discarded, Status::Replaying];
        let refused = Filter { refused_by: Some(plan.table.clone()), status, ..Filter::default() };
        let these = Arc::clone(places);
        let except = Arc::new(self.quarantine.places_of(&refused).await?);
        let wanted = Wanted::Beside { these, except };
        let rejects = Rejects::Refused(QuarantineWriter::new(lake, &plan.source, &ctx.run));
        let others = changes(bronze, wanted, decoder, rejects, &session, ctx).await?;
        let target = decoder.target();
        let keys = plan.keys.iter().enumerate();
        let on: Vec<Expr> = keys
            .clone()
            .map(|(number, key)| same_key(&target, key, ident(key), ident(format!("{KEY}{number}"))))
            .collect();
        let keys: Vec<Expr> = keys.map(|(number, key)| ident(key).alias(format!("{KEY}{number}"))).collect();
        let ours = claimed.frame(&session).await?.select(keys)?.distinct()?;
        // A truncate that tells of the past is of every key.
        let beside = match truncated.all.is_empty() {
            true => others.frame.clone().join_on(ours, JoinType::LeftSemi, on)?,
            false => others.frame.clone(),
        };
        let all = marked_as(claimed.frame(&session).await?, true)?.union(marked_as(beside, false)?)?;
        let is_current = plan.kept == Kept::Current;
        if plan.partial.is_on() || (plan.can_truncate() && is_current) || !truncated.all.is_empty() {
            let (all, read) = self.refinement.finished(Staged::write(all).await, others).await?;
            return Ok((all, 0, read.tally.truncated));
        }
        let last = dedup::last(all, &plan.once_per(), sequence, lake.engine().memory_bytes).await;
        let ((last, _), read) = self.refinement.finished(last, others).await?;
        let beside = read.tally.truncated;
        let (ours, _) = Staged::write_where(last.frame(&session).await?, COUNTED).await?;
        let superseded = claimed.rows() - ours.rows();
        Ok(match plan.kept {
            Kept::Marked => (last, superseded, beside),
            Kept::Current | Kept::History(_) => (ours, superseded, beside),
        })
    }
}
