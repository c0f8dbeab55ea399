//! One run of a silver table, from the records that it has not seen to the commit that says so.
//!
//! The table's transaction `silver.orders:bronze.orders_cdc` holds the last bronze batch that was applied. A run reads
//! the batches above it, and commits the rejected rows, the tombstones and at last the upsert, each under that same
//! transaction in its own table: a crash between them leaves nothing that the next run would do twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use lake::accounting::Figures;
use lake::columns::FileOrder;
use lake::commit::{Outcome, Txn, redoing};
use lake::quarantine::{QuarantineWriter, txn_version};
use lake::report::{TaskReport, TaskState};
use lake::run::RunContext;
use lake::schema::{Evolution, evolution};
use lake::stage::Staged;
use lake::table::Definition;
use lake::upsert::{Probed, Upsert};
use lake::{Context, Error, ErrorKind, Lake, Result, Table, TableName, columns, fault};

use crate::change::Decoder;
use crate::dedup::{LAST, marked};
use crate::plan::{Columns, TablePlan};
use crate::read::{Changes, Range, Rejects, Tally, changes, count};
use crate::tombstones::{Owner, Tombstones};

/// The table property that holds keys and sequence.
const IDENTITY: &str = "lakehouse.changes";
/// What to do when a table cannot become what the spec asks for.
const REBUILD: &str = "columns can be added; for any other change delete the table's folder and run `silver run`: bronze has every record";
/// The columns at most that get file statistics, as Delta has it by default.
const STATS_COLUMNS_MAX: usize = 32;

/// Applies what bronze has and the table has not seen.
///
/// # Errors
/// [`ErrorKind::Data`] when a record breaks a rule that the spec says must stop the run, [`ErrorKind::Accounting`]
/// when the rows do not add up, [`ErrorKind::Spec`] and [`ErrorKind::Table`] when plan, records and table do not fit
/// each other. Nothing is committed to the table then.
pub async fn run(lake: &Lake, plan: &TablePlan, ctx: &RunContext) -> Result<TaskReport> {
    let plan = Arc::new(plan.clone());
    let report = redoing(lake.clock(), async || Refinement { lake, plan: &plan, ctx }.once().await).await?;
    if let Some(version) = report.version {
        ctx.pins.set(&plan.table, version);
    }
    Ok(report)
}

struct Refinement<'a> {
    lake: &'a Lake,
    plan: &'a Arc<TablePlan>,
    ctx: &'a RunContext,
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
        let table = self.lake.table(&self.plan.table).await?;
        let after = match &table {
            Some(table) => {
                self.check_made_alike(table)?;
                table.txn_version(&self.app()).await?
            }
            None => None,
        };
        if after.is_some_and(|after| after >= upto) {
            self.check_source(after.unwrap_or_default(), upto).await?;
            return self.nothing(Some(&bronze), None).await;
        }
        self.apply(&bronze, Range { after: after.unwrap_or(i64::MIN), upto }).await
    }

    async fn apply(&self, bronze: &Table, range: Range) -> Result<TaskReport> {
        let session = self.lake.session()?;
        let landed = count(bronze, range, &session).await?;
        if landed == 0 {
            let note = format!("{} has no rows yet", bronze.name());
            return self.nothing(Some(bronze), Some(note)).await;
        }
        let decoder =
            Arc::new(Decoder::new(Arc::clone(self.plan), &bronze.schema(), FileOrder::of(bronze)?, &session)?);
        let mut table = self.table(&decoder).await?;
        let side = self.side_app(&table)?;
        let quarantined = txn_version(self.lake, &self.plan.source, &side).await?;
        let writer = QuarantineWriter::new(self.lake, &self.plan.source, &self.ctx.run);
        let rejects = Rejects { writer, written_upto: quarantined.unwrap_or(i64::MIN) };
        let changes = changes(bronze, range, &decoder, rejects, &session, self.ctx).await?;

        let sequence: Vec<String> = (0..self.plan.sequence.len()).map(columns::sequence).collect();
        let (last, superseded, tally, writer) = self.last(changes, &sequence).await?;
        let tombstones = self.tombstones(&decoder, &side, &sequence).await?;
        let (living, buried) = tombstones.without_stale(last).await?;
        let upsert = Upsert { keys: self.plan.keys.clone(), sequence: sequence.clone() };
        let probed = upsert.probe(self.lake, &table, &living).await?;
        let figures = Figures {
            read: landed,
            applied: probed.figures.applied(),
            superseded,
            stale: buried + probed.figures.stale,
            quarantined: tally.rejected,
            dropped: tally.dropped,
            ignored: tally.ignored,
            ..Figures::default()
        };
        figures.check_silver(&self.plan.table)?;
        self.ctx.stop.check()?;
        fault::cross("silver_staged")?;

        let side_txn = Txn::new(&side, range.upto);
        let point = "silver_quarantine_committed";
        writer.commit_after(quarantined, side_txn.clone(), &self.plan.table, point).await?;
        tombstones.remember(&probed, side_txn, &self.ctx.run).await?;
        let outcome = self.commit(&upsert, &mut table, &probed, Txn::new(self.app(), range.upto)).await?;
        Ok(self.report(bronze, &decoder, outcome, figures, &tally.warned))
    }

    /// The last change of each key, how many others there were, and what became of the records that are no change.
    async fn last(&self, changes: Changes, sequence: &[String]) -> Result<(Staged, u64, Tally, QuarantineWriter)> {
        let marked = marked(changes.frame.clone(), &self.plan.keys, sequence)?;
        let last = Staged::write_where(marked, LAST).await;
        let finished = changes.finish().await;
        match (last, finished) {
            (Ok((last, superseded)), Ok((tally, writer))) => Ok((last, superseded, tally, writer)),
            // When the quarantine fails the changes fail for want of it: its own error is the cause.
            (_, Err(error)) => Err(error),
            (Err(error), Ok((_, writer))) => {
                writer.abort().await;
                Err(error.context(format!("reading the changes of {}", self.plan.table)))
            }
        }
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
        let message =
            format!("{} has applied batch {after} of {source}, which ends with batch {newest}", self.plan.table);
        Err(Error::new(ErrorKind::Table, message).hint(format!(
            "{source} was made anew: delete the folder of {} as well and run again, to build it from what is there now",
            self.plan.table
        )))
    }

    async fn commit(&self, upsert: &Upsert, table: &mut Table, probed: &Probed, txn: Txn) -> Result<Outcome> {
        upsert.apply(self.lake, table, probed, vec![txn], &self.ctx.run, "silver_committed").await
    }

    fn app(&self) -> String {
        format!("{}:{}", self.plan.table, TableName::bronze(&self.plan.source))
    }

    /// The application in the quarantine and in the tombstones. It names the table by its id: what those hold of a
    /// table that was deleted and made anew belongs to the deleted one.
    fn side_app(&self, table: &Table) -> Result<String> {
        Ok(format!("{}:{}", self.app(), table.id()?))
    }

    async fn tombstones<'a>(
        &'a self,
        decoder: &Decoder,
        side: &'a str,
        sequence: &'a [String],
    ) -> Result<Tombstones<'a>> {
        let owner = Owner {
            lake: self.lake,
            table: &self.plan.table,
            app: side,
            target: decoder.target(),
            keys: &self.plan.keys,
            sequence,
            retention_millis: self.plan.tombstone_retention_millis,
        };
        Tombstones::of(owner).await
    }

    /// The silver table with the columns that the plan asks for.
    async fn table(&self, decoder: &Decoder) -> Result<Table> {
        let wanted = decoder.target();
        let mut properties = vec![(IDENTITY.to_owned(), self.plan.identity())];
        if self.plan.change_data_feed {
            properties.push(("delta.enableChangeDataFeed".to_owned(), "true".to_owned()));
        }
        let definition = Definition {
            partition_by: self.plan.partition_by.clone(),
            properties,
            ..Definition::new(Arc::clone(&wanted))
        };
        let definition = definition.with_stats_columns(&self.stats_columns(decoder));
        let mut table = self.lake.create_or_open(&self.plan.table, &definition).await?;
        self.check_made_alike(&table)?;
        match evolution(&table.schema(), &wanted) {
            Evolution::Same => {}
            Evolution::Add(schema) => {
                let txn = Txn::new(
                    format!("{}:columns", self.plan.table),
                    i64::try_from(schema.fields().len()).unwrap_or(i64::MAX),
                );
                table.add_columns(&schema, txn, &self.ctx.run).await.context(|| "adding declared columns")?;
            }
            Evolution::Refused(problems) => {
                let message =
                    format!("{} cannot take the columns of the spec: {}", self.plan.table, problems.join("; "));
                return Err(Error::new(ErrorKind::Table, message).hint(REBUILD));
            }
        }
        if table.partition_columns()? != self.plan.partition_by {
            let message = format!(
                "{} is partitioned by {:?} and the spec says {:?}",
                self.plan.table,
                table.partition_columns()?,
                self.plan.partition_by
            );
            return Err(Error::new(ErrorKind::Table, message).hint(REBUILD));
        }
        Ok(table)
    }

    /// Refuses a table that was made by another plan, whether there is something new for it or not.
    fn check_made_alike(&self, table: &Table) -> Result<()> {
        let (held, wanted) = (table.property(IDENTITY)?, self.plan.identity());
        if let Some(held) = held.filter(|held| *held != wanted) {
            let message = format!("{} was made with `{held}` and the spec has `{wanted}`", self.plan.table);
            return Err(Error::new(ErrorKind::Table, message).hint(REBUILD));
        }
        let Columns::Declared(declared) = &self.plan.columns else { return Ok(()) };
        let held = table.schema();
        let technical = held.fields().iter().filter(|field| columns::is_silver_technical(field.name()));
        let technical = technical.map(|field| field.as_ref().clone());
        let fields = declared.iter().map(|plan| plan.column.field()).chain(technical);
        match evolution(&held, &Schema::new(fields.collect::<Vec<_>>())) {
            Evolution::Refused(problems) => {
                let message =
                    format!("{} cannot take the columns of the spec: {}", self.plan.table, problems.join("; "));
                Err(Error::new(ErrorKind::Table, message).hint(REBUILD))
            }
            Evolution::Same | Evolution::Add(_) => Ok(()),
        }
    }

    /// Keys, sequence and batch first, then the other columns whose statistics can be trusted.
    fn stats_columns(&self, decoder: &Decoder) -> Vec<String> {
        let target = decoder.target();
        let technical = |name: &&String| columns::is_silver_technical(name);
        let names: Vec<&String> = target.fields().iter().map(|field| field.name()).collect();
        let first = self.plan.keys.iter().chain(names.iter().copied().filter(technical));
        let mut chosen: Vec<String> = Vec::new();
        for name in first.chain(names.iter().copied()) {
            let sound =
                target.field_with_name(name).ok().and_then(|field| lake::schema::ColumnType::of(field.data_type()));
            let sound = sound.is_some_and(lake::schema::ColumnType::has_sound_stats);
            let taken = chosen.contains(name) || self.plan.partition_by.contains(name);
            if sound && !taken && chosen.len() < STATS_COLUMNS_MAX {
                chosen.push(name.clone());
            }
        }
        chosen
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
        warned: &[u64],
    ) -> TaskReport {
        let mut notes: Vec<String> = decoder.notes().to_vec();
        let missing = decoder
            .missing()
            .iter()
            .map(|column| format!("column {column} is not in {} yet and stays null", bronze.name()));
        notes.extend(missing);
        let warnings = self.plan.expectations.iter().zip(warned).filter(|(_, rows)| **rows > 0);
        notes.extend(warnings.map(|(expectation, rows)| {
            format!("expectation `{}` ({}) is not met by {rows} rows", expectation.name, expectation.check)
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
