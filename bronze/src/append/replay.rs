//! A batch that is no files: records of quarantine that are claimed, decoded by the options of today.
//!
//! The ledger plans such a batch like any other, and whoever comes first executes it. A record keeps its file and its
//! number there; it gets a new batch, so that silver takes it as one that has just arrived.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use futures::TryStreamExt;
use lake::accounting::Figures;
use lake::commit::{Commit, Outcome, Txn, evolve};
use lake::quarantine::{Again, Claim, Places, Quarantine, QuarantineWriter, Record, Rejected};
use lake::write::{TableWriter, discard};
use lake::{Error, ErrorKind, Result, Retry};

use super::partitioned::add_folders;
use super::rows::{Origin, table_rows};
use super::{Executed, Target, Work};
use crate::decode;
use crate::discover::folder_values;
use crate::evolve::Evolution;
use crate::ledger::Ledger;
use crate::plan::Format;

/// How often claimed records are looked at again before the replay gives up.
const ROUNDS_MAX: usize = 50;

impl Work<'_> {
    /// Executes a batch of replayed records. Without claimed records it is empty.
    ///
    /// # Errors
    /// As [`execute`](Self::execute). After an error that another try cannot mend the records are open again.
    pub(super) async fn replay(&self, target: &mut Target, ledger: &Ledger, batch: i64) -> Result<Executed> {
        let mut ours: Vec<i64> = self.ours.iter().map(|claim| claim.number).collect();
        let Some(mut quarantine) = Quarantine::open(self.lake, self.plan.source()).await? else {
            return self.commit_replayed(target, batch, None, Replayed::default()).await;
        };
        let mut reopened = 0;
        for _ in 0..ROUNDS_MAX {
            self.ctx.stop.check()?;
            target.refresh().await?;
            if target.done().await? >= batch {
                return Ok(Executed::default());
            }
            let Some((claim, places)) = quarantine.claimed(&self.plan.table).await? else {
                return self.commit_replayed(target, batch, None, Replayed::default()).await;
            };
            if !ours.contains(&claim.number) {
                let waits = !ours.is_empty();
                let taken_over = quarantine.take_over(&claim, target.made().await?, waits, &self.ctx.run).await?;
                ours.extend(taken_over.map(|claim| claim.number));
                continue;
            }
            match self.send(&mut quarantine, target, ledger, batch, (&claim, &places), &mut reopened).await {
                Ok(executed) => {
                    quarantine.finish(&claim, &self.ctx.run).await?;
                    return Ok(executed);
                }
                Err(error) if error.retry() == Retry::Redo => {
                    tracing::debug!(source = self.plan.source(), batch, %error, "the records are decoded again");
                }
                Err(error) if error.retry() == Retry::Never => {
                    return Err(quarantine.give_up(&claim, target.made().await?, error, &self.ctx.run).await);
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Conflict, format!("batch {batch} of {} could not be committed", self.plan.table)))
    }

    async fn send(
        &self,
        quarantine: &mut Quarantine,
        target: &mut Target,
        ledger: &Ledger,
        batch: i64,
        (claim, places): (&Claim, &Places),
        reopened: &mut u64,
    ) -> Result<Executed> {
        let decoding = Decoding::new(self, target, ledger, batch, claim.number).await?;
        let mut replayed = decoding.all(quarantine, claim).await?;
        let (refused, writer) = (std::mem::take(&mut replayed.refused), replayed.writer.take());
        replayed.figures.read += *reopened;
        replayed.figures.quarantined += *reopened;
        let checked = match replayed.figures.read == places.len() + *reopened {
            true => replayed.figures.check_bronze(&self.plan.table),
            false => Err(Error::new(ErrorKind::Conflict, "the claimed records changed while they were read")),
        };
        let done = match (checked, writer) {
            (Ok(()), Some(writer)) => quarantine.reopen(claim, &refused, writer, &self.ctx.run).await,
            (checked, _) => checked,
        };
        if let Err(error) = done {
            discard(target.made().await?, &replayed.files).await;
            return Err(error);
        }
        *reopened += refused.len();
        self.commit_replayed(target, batch, Some(claim), replayed).await
    }

    /// Commits what went through, as the batch and as the claim's.
    async fn commit_replayed(
        &self,
        target: &mut Target,
        batch: i64,
        claim: Option<&Claim>,
        replayed: Replayed,
    ) -> Result<Executed> {
        let table = target.made().await?;
        let Replayed { files, figures, schema, .. } = replayed;
        let known = table.schema().fields().len();
        let schema = schema.unwrap_or_else(|| table.schema());
        let new_columns = schema.fields().iter().skip(known).map(|field| field.name().clone()).collect();
        let metadata = evolve(table, &schema, &[])?;
        let commit = Commit {
            point: "bronze_replayed",
            txns: [Txn::new(self.plan.source(), batch)].into_iter().chain(claim.map(Claim::txn)).collect(),
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: metadata.into_iter().chain(files.iter().cloned().map(Action::Add)).collect(),
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", figures.appended)]),
            run: self.ctx.run.clone(),
        };
        match table.commit(commit).await {
            Ok(Outcome::Committed { .. }) => {
                Ok(Executed { figures, new_columns, had_columns: true, ours: true, ..Executed::default() })
            }
            Ok(Outcome::AlreadyApplied { .. }) => {
                let taken = match claim {
                    Some(claim) => claim.is_taken(table).await?,
                    None => true,
                };
                // Without files it cannot be told whose hand it was; the figures are ours when the claim is.
                if taken && claim.is_some() {
                    return Ok(Executed { figures, ours: true, ..Executed::default() });
                }
                discard(table, &files).await;
                match taken {
                    true => Ok(Executed::default()),
                    false => Err(Error::new(ErrorKind::Conflict, "the replay was taken over by another run")),
                }
            }
            Err(error) => {
                if error.kind() == ErrorKind::Conflict {
                    discard(table, &files).await;
                }
                Err(error)
            }
        }
    }
}

/// What decoding came to. Nothing of it is visible.
#[derive(Default)]
struct Replayed {
    files: Vec<deltalake::kernel::Add>,
    figures: Figures,
    schema: Option<Arc<Schema>>,
    refused: Places,
    writer: Option<QuarantineWriter>,
}

struct Decoding<'a> {
    work: &'a Work<'a>,
    ledger: &'a Ledger,
    batch: i64,
    number: i64,
    ingested_us: i64,
    table: lake::Table,
    evolution: Evolution,
    writer: TableWriter,
    quarantine: QuarantineWriter,
    refused: Places,
    figures: Figures,
}

impl<'a> Decoding<'a> {
    async fn new(work: &'a Work<'_>, target: &mut Target, ledger: &'a Ledger, batch: i64, number: i64) -> Result<Self> {
        let table = target.made().await?.clone();
        Ok(Self {
            work,
            ledger,
            batch,
            number,
            ingested_us: work.lake.clock().now_micros(),
            evolution: Evolution::with_rules(&table.schema(), &work.plan.schema),
            writer: TableWriter::new(&table).of_raw_text(),
            table,
            quarantine: QuarantineWriter::new(work.lake, work.plan.source(), &work.ctx.run),
            refused: Places::default(),
            figures: Figures::default(),
        })
    }

    async fn all(mut self, quarantine: &Quarantine, claim: &Claim) -> Result<Replayed> {
        match self.read(quarantine, claim).await {
            Ok(()) => self.finish().await,
            Err(error) => {
                self.writer.abort().await;
                self.quarantine.abort().await;
                Err(error)
            }
        }
    }

    async fn read(&mut self, quarantine: &Quarantine, claim: &Claim) -> Result<()> {
        let mut records = std::pin::pin!(quarantine.records(&claim.filter()).await?);
        while let Some(some) = records.try_next().await? {
            self.work.ctx.stop.check()?;
            let number = Some(self.number);
            for record in some.into_iter().filter(|record| record.replay == number) {
                self.one(record).await?;
            }
        }
        Ok(())
    }

    async fn one(&mut self, record: Record) -> Result<()> {
        self.figures.read += 1;
        self.work.ctx.meter.add_rows(1);
        let decoded = match (&self.work.plan.format, &record.record) {
            (Format::Text(format, _), Some(raw)) => {
                decode::again(format, record.header.as_deref(), &record.reason_kind, raw)?
            }
            _ => decode::Again::Refused(decode::Reject::MALFORMED, "the source is of another format now".to_owned()),
        };
        let (reason_kind, reason) = match decoded {
            decode::Again::Nothing => {
                self.figures.skipped += 1;
                return Ok(());
            }
            decode::Again::Row(mut chunk) => {
                let file = self.ledger.file_of(record.batch_id, &record.file_path);
                let folders = folder_values(self.work.plan, &record.file_path);
                add_folders(&mut chunk, &folders)?;
                let origin = Origin { batch: self.batch, file, folders, ingested_us: self.ingested_us };
                let mut columns = self.evolution.begin_file();
                let chunk = decode::Chunk { row_numbers: vec![record.row_number], ..chunk };
                match table_rows(chunk, &origin, &mut self.evolution, &mut columns) {
                    Ok(rows) => return self.writer.write(&rows).await,
                    Err(error) if error.kind() == ErrorKind::File => (decode::Reject::MALFORMED, error.to_string()),
                    Err(error) => return Err(error),
                }
            }
            decode::Again::Refused(kind, reason) => (kind, reason),
        };
        self.refuse(record, reason_kind, reason).await
    }

    async fn refuse(&mut self, record: Record, reason_kind: &'static str, reason: String) -> Result<()> {
        self.figures.quarantined += 1;
        self.refused.add(record.batch_id, &record.file_path, record.row_number, 0);
        // The first reason knew the place in the file as well.
        let reason = if record.reason.ends_with(&reason) { record.reason } else { reason };
        let again = Again { first_seen_us: record.first_seen_us, replay: self.number };
        let row = Rejected {
            batch_id: record.batch_id,
            file_path: record.file_path,
            row_number: record.row_number,
            refused_by: self.work.plan.table.clone(),
            reason_kind,
            reason,
            column: None,
            value: None,
            record: record.record,
            header: record.header.map(Arc::from),
        };
        self.quarantine.push_again(row, again).await
    }

    async fn finish(mut self) -> Result<Replayed> {
        let written = match self.writer.close().await {
            Ok(written) => written,
            Err(error) => {
                self.quarantine.abort().await;
                return Err(error);
            }
        };
        self.figures.appended = written.rows;
        let known = Evolution::of(&self.table.schema()).fields().len();
        let joined = self.evolution.fields().iter().skip(known).cloned();
        let fields: Vec<_> = self.table.schema().fields().iter().cloned().chain(joined).collect();
        Ok(Replayed {
            files: written.files,
            figures: self.figures,
            schema: Some(Arc::new(Schema::new(fields))),
            refused: self.refused,
            writer: Some(self.quarantine),
        })
    }
}
