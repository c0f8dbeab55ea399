//! The commits of a ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::columns::{BATCH_ID, timestamp_type};
use lake::commit::{Commit, Outcome, Txn};
use lake::table::Definition;
use lake::write::{TableWriter, discard};
use lake::{Error, ErrorKind, Result, RunId};

use super::{Entry, Ledger, Marks, Status};
use crate::discover::FoundFile;

/// Data files of a ledger at which they are made one: each batch and each note adds a small one.
const FILES_MAX: usize = 32;

/// The applications of a ledger.
#[derive(Debug, Clone, Copy)]
pub(super) enum App {
    Planned,
    Notes,
    Settled,
    Packed,
}

impl App {
    pub(super) const ALL: [Self; 4] = [Self::Planned, Self::Notes, Self::Settled, Self::Packed];

    /// Its name in the transactions of the table.
    pub(super) fn name(self, source: &str) -> String {
        match self {
            Self::Planned => source.to_owned(),
            Self::Notes => format!("{source}:notes"),
            Self::Settled => format!("{source}:settled"),
            Self::Packed => format!("{source}:packed"),
        }
    }
}

impl Marks {
    pub(super) fn of(&mut self, app: App) -> &mut i64 {
        match app {
            App::Planned => &mut self.planned,
            App::Notes => &mut self.notes,
            App::Settled => &mut self.settled,
            App::Packed => &mut self.packed,
        }
    }
}

impl Ledger {
    /// Plans `batch`, which must be above all that are planned. False when another run planned it first: the ledger
    /// then holds what that run did.
    ///
    /// # Errors
    /// As [`Table::commit`](lake::Table::commit), except a lost race.
    pub async fn plan(&mut self, batch: i64, files: &[FoundFile], run: &RunId) -> Result<bool> {
        debug_assert!(batch > self.marks.planned);
        let entry = |file: &FoundFile| Entry {
            batch: Some(batch),
            file: file.clone(),
            status: Status::Planned,
            reason: None,
            recorded_us: 0,
        };
        self.append(files.iter().map(entry).collect(), App::Planned, batch, "ledger_committed", run).await
    }

    /// Notes what became of files. False when the ledger moved on since it was read: it then holds what another run
    /// wrote, from which the decision must be made again.
    ///
    /// # Errors
    /// As [`Table::commit`](lake::Table::commit), except a lost race.
    pub async fn note(&mut self, entries: Vec<Entry>, run: &RunId) -> Result<bool> {
        let next = self.marks.notes + 1;
        self.append(entries, App::Notes, next, "files_failed_committed", run).await
    }

    /// Says that the notes about the files of `batch` have been held against its rows: those of `taken` are there.
    /// False as for [`note`](Ledger::note).
    ///
    /// # Errors
    /// As [`Table::commit`](lake::Table::commit), except a lost race.
    pub async fn settle(&mut self, batch: i64, taken: Vec<Entry>, run: &RunId) -> Result<bool> {
        self.append(taken, App::Settled, batch, "files_settled_committed", run).await
    }

    pub(super) async fn append(
        &mut self,
        mut entries: Vec<Entry>,
        app: App,
        version: i64,
        point: &'static str,
        run: &RunId,
    ) -> Result<bool> {
        let table = match self.table.take() {
            Some(table) => table,
            None => self.lake.create_or_open(&self.name, &definition()).await?,
        };
        let table = self.table.insert(table);
        let before = table.version();
        let now_us = self.lake.clock().now_micros();
        entries.iter_mut().for_each(|entry| entry.recorded_us = now_us);
        let mut writer = TableWriter::new(table);
        writer.write(&rows(&entries, run)?).await?;
        let written = writer.close().await?;
        let commit = Commit {
            point,
            txns: vec![Txn::new(app.name(&self.name.name), version)],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: written.files.iter().cloned().map(Action::Add).collect(),
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: run.clone(),
        };
        let ours = match table.commit(commit).await {
            Ok(Outcome::Committed { version: reached }) if reached == before + 1 => {
                self.add(entries, app, version);
                return Ok(true);
            }
            Ok(Outcome::Committed { .. }) => true,
            Ok(Outcome::AlreadyApplied { .. }) => false,
            Err(error) if error.kind() == ErrorKind::Conflict => false,
            Err(error) => return Err(error),
        };
        if !ours {
            discard(table, &written.files).await;
            table.reload().await?;
        }
        self.read().await?;
        Ok(ours)
    }

    /// Makes one file of many, when there are many: the same rows in a commit of their own. Another run that commits
    /// meanwhile comes first, and this is left for later.
    ///
    /// # Errors
    /// As [`Table::commit`](lake::Table::commit), except a lost race.
    pub async fn pack(&mut self, run: &RunId) -> Result<()> {
        let Some(table) = &mut self.table else { return Ok(()) };
        if table.file_count()? < FILES_MAX {
            return Ok(());
        }
        let mut writer = TableWriter::new(table);
        for batch in table.all_rows().await? {
            writer.write(&batch).await?;
        }
        let written = writer.close().await?;
        let added = written.files.iter().cloned().map(|mut file| {
            file.data_change = false;
            Action::Add(file)
        });
        let next = self.marks.packed + 1;
        let commit = Commit {
            point: "ledger_packed",
            txns: vec![Txn::new(App::Packed.name(&self.name.name), next)],
            operation: DeltaOperation::Optimize { predicate: None, target_size: 0 },
            actions: table.replaced_files()?.into_iter().chain(added).collect(),
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: run.clone(),
        };
        match table.commit(commit).await {
            Ok(Outcome::Committed { .. }) => self.marks.packed = next,
            Ok(Outcome::AlreadyApplied { .. }) => discard(table, &written.files).await,
            Err(error) if error.kind() == ErrorKind::Conflict => discard(table, &written.files).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes over what was committed just now, without reading the table again.
    pub(super) fn add(&mut self, entries: Vec<Entry>, app: App, version: i64) {
        *self.marks.of(app) = version;
        entries.into_iter().for_each(|entry| self.put(entry));
    }
}

/// The columns of a ledger.
fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(BATCH_ID, DataType::Int64, true),
        Field::new("path", DataType::Utf8, false),
        Field::new("size", DataType::Int64, false),
        Field::new("modification_time", timestamp_type(), false),
        Field::new("etag", DataType::Utf8, true),
        Field::new("status", DataType::Utf8, false),
        Field::new("reason", DataType::Utf8, true),
        Field::new("recorded_at", timestamp_type(), false),
        Field::new("run_id", DataType::Utf8, false),
    ]))
}

fn definition() -> Definition {
    Definition {
        description: Some("which files are which batch, and what became of them".into()),
        ..Definition::new(schema())
    }
}

pub(super) fn rows(entries: &[Entry], run: &RunId) -> Result<RecordBatch> {
    let times = |of: &dyn Fn(&Entry) -> i64| -> ArrayRef {
        let times = entries.iter().map(of).collect::<Vec<_>>();
        Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"))
    };
    let texts = |of: &dyn Fn(&Entry) -> Option<String>| -> ArrayRef {
        Arc::new(entries.iter().map(of).collect::<StringArray>())
    };
    let size = |entry: &Entry| i64::try_from(entry.file.size).unwrap_or(i64::MAX);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(entries.iter().map(|entry| entry.batch).collect::<Int64Array>()),
        texts(&|entry| Some(entry.file.path.clone())),
        Arc::new(entries.iter().map(size).collect::<Int64Array>()),
        times(&|entry| entry.file.modified_us),
        texts(&|entry| entry.file.etag.clone()),
        texts(&|entry| Some(entry.status.as_str().to_owned())),
        texts(&|entry| entry.reason.clone()),
        times(&|entry| entry.recorded_us),
        texts(&|_| Some(run.to_string())),
    ];
    RecordBatch::try_new(schema(), columns).map_err(|error| Error::internal("ledger rows").with_source(error))
}
