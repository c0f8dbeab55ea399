//! Rejected records on their way into quarantine: collected while a batch is read, made visible once.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::{filter_record_batch, not};
use deltalake::kernel::{Action, Add};
use deltalake::protocol::{DeltaOperation, SaveMode};
use futures::TryStreamExt;

use super::places::each;
use super::standing::{Change, More, Quarantine, Rewritten};
use super::{Filter, Places, REFUSED_BY, Rejected, STATUS, Status, definition, schema};
use crate::columns::{BATCH_ID, FILE_PATH, ROW_NUMBER};
use crate::commit::{Commit, Redo, Txn};
use crate::error::{Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::names::{RunId, TableName};
use crate::table::Table;
use crate::write::{TableWriter, Written, discard};

/// Rows kept in memory before they are encoded.
const BUFFERED_ROWS_MAX: usize = 4096;
/// Bytes of their texts kept in memory before they are encoded; one record may be larger.
const BUFFERED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Collects rejected records of one source. Nothing is made while there is none.
pub struct QuarantineWriter {
    lake: Lake,
    source: String,
    run: RunId,
    /// Records that are there already and stay as they are.
    kept: Places,
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
    open: Option<(Table, TableWriter)>,
    /// Records that were pushed, and those of them that are to be written.
    pushed: u64,
    written: u64,
}

struct Waiting {
    row: Rejected,
    again: Option<Again>,
}

/// A record that is refused again.
#[derive(Debug, Clone, Copy)]
pub struct Again {
    /// When it was first seen, in microseconds since 1970.
    pub first_seen_us: i64,
    /// The number of the replay.
    pub replay: i64,
}

/// What a quarantine holds of some work that is about to be done, perhaps again.
///
/// When it has been done before — the run was killed before it came further, or the table was deleted and is made
/// anew — what it refused then makes room for what it refuses now. Records that were discarded stay as they are.
#[derive(Debug, Clone)]
pub struct Before {
    source: String,
    refused_by: TableName,
    app: String,
    held: Option<i64>,
    decisions: i64,
    /// Records of the batches above the first and up to the second make room.
    makes_room: Option<(i64, i64)>,
    discarded: Places,
    /// Applications that end with this work, and the batch up to which they then are done.
    ends: Vec<Txn>,
}

impl Before {
    /// Looks at what `refused_by` has left in the quarantine of `source`, before batches above `after` and up to
    /// `upto` are worked on. `app` counts the batches there; with `is_anew`, an application that has none yet makes
    /// room of all that the table has left.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the table cannot be read.
    pub async fn of(
        lake: &Lake,
        source: &str,
        refused_by: &TableName,
        app: &str,
        range: (i64, i64),
        is_anew: bool,
    ) -> Result<Self> {
        let mut before = Self {
            source: source.to_owned(),
            refused_by: refused_by.clone(),
            app: app.to_owned(),
            held: None,
            decisions: 0,
            makes_room: None,
            discarded: Places::default(),
            ends: Vec::new(),
        };
        let Some(quarantine) = Quarantine::open(lake, source).await? else { return Ok(before) };
        before.held = quarantine.table.txn_version(app).await?;
        before.decisions = quarantine.decisions().await?;
        before.makes_room = match before.held {
            None if is_anew => Some((i64::MIN, i64::MAX)),
            Some(held) if held > range.0 => Some(range),
            _ => None,
        };
        if before.makes_room.is_some() {
            let status = vec![Status::Discarded];
            let filter = Filter { refused_by: Some(refused_by.clone()), status, ..Filter::default() };
            before.discarded = quarantine.places_of(&filter).await?;
        }
        Ok(before)
    }

    /// Ends other applications with this work: what a run still brings under one of them, up to a batch, is taken for
    /// done.
    #[must_use]
    pub fn ending(self, apps: impl IntoIterator<Item = String>, upto: i64) -> Self {
        Self { ends: apps.into_iter().map(|app| Txn::new(app, upto)).collect(), ..self }
    }

    /// Records that were refused before, are read again, and are to stay out.
    pub fn discarded(&self) -> &Places {
        &self.discarded
    }

    /// True when the application has worked here before.
    pub fn is_known(&self) -> bool {
        self.held.is_some()
    }

    fn has_room(&self, refused_by: &str, status: Status) -> bool {
        self.refused_by.to_string() == refused_by && status != Status::Discarded
    }
}

impl QuarantineWriter {
    /// A writer for the quarantine of `source`.
    pub fn new(lake: &Lake, source: &str, run: &RunId) -> Self {
        Self {
            lake: lake.clone(),
            source: source.to_owned(),
            run: run.clone(),
            kept: Places::default(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            open: None,
            pushed: 0,
            written: 0,
        }
    }

    /// The same, for work that may have been done before: what was discarded then is not written again.
    pub fn after(lake: &Lake, before: &Before, run: &RunId) -> Self {
        Self { kept: before.discarded.clone(), ..Self::new(lake, &before.source, run) }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the store fails.
    pub async fn push(&mut self, row: Rejected) -> Result<()> {
        self.add(row, None).await
    }

    /// Adds a record that is refused again.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the store fails.
    pub async fn push_again(&mut self, row: Rejected, again: Again) -> Result<()> {
        self.add(row, Some(again)).await
    }

    /// Adds the open records that a table has refused elsewhere, as they are.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the store fails.
    pub async fn push_all(&mut self, elsewhere: &Quarantine, refused_by: &TableName) -> Result<()> {
        let status = vec![Status::Open];
        let filter = Filter { refused_by: Some(refused_by.clone()), status, ..Filter::default() };
        let schema = schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut rows = std::pin::pin!(elsewhere.rows(&filter, &names).await?);
        while let Some(batch) = rows.try_next().await? {
            let batch = filter_record_batch(&batch, &not(&self.kept.mask(&batch)?)?)?;
            self.pushed += batch.num_rows() as u64;
            self.written += batch.num_rows() as u64;
            self.writer().await?.write(&batch).await?;
        }
        Ok(())
    }

    /// Records added so far.
    pub fn rows(&self) -> u64 {
        self.pushed
    }

    /// Makes the records visible, once, under `version` of the application that `before` was asked for.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the application has come further meanwhile, or somebody decided about records that
    /// make room; and as [`Table::commit`].
    pub async fn commit(mut self, before: &Before, version: i64, point: &'static str) -> Result<()> {
        let (table, written) = match self.close_open().await? {
            Some(closed) => closed,
            None if before.makes_room.is_none() => return Ok(()),
            None => match self.lake.table(&TableName::quarantine(&self.source)).await? {
                Some(table) => (table, Written::default()),
                None => return Ok(()),
            },
        };
        let run = self.run.clone();
        let mut quarantine = Quarantine { lake: self.lake.clone(), source: self.source.clone(), table };
        let txn = Txn::new(&before.app, before.held.map_or(version, |held| held.max(version)));
        match before.makes_room {
            Some(range) => quarantine.replace(before, range, txn, &written.files, (point, &run)).await,
            None => quarantine.append(before, txn, &written, (point, &run)).await,
        }
    }

    /// Gives up; the files are removed as far as possible.
    pub async fn abort(mut self) {
        if let Some((_, writer)) = self.open.take() {
            writer.abort().await;
        }
    }

    /// The table and the files with every record that was added; `None` without any.
    pub(super) async fn close(mut self) -> Result<Option<(Table, Written)>> {
        self.close_open().await
    }

    async fn close_open(&mut self) -> Result<Option<(Table, Written)>> {
        self.encode().await?;
        let Some((table, writer)) = self.open.take() else { return Ok(None) };
        let written = writer.close().await?;
        if written.rows != self.written {
            let message =
                format!("{} rows were refused and {} were written to {}", self.written, written.rows, table.name());
            return Err(Error::new(ErrorKind::Accounting, message));
        }
        Ok(Some((table, written)))
    }

    async fn add(&mut self, row: Rejected, again: Option<Again>) -> Result<()> {
        self.pushed += 1;
        if self.kept.get(row.batch_id, &row.file_path, row.row_number).is_some() {
            return Ok(());
        }
        self.written += 1;
        self.waiting_bytes += bytes_of(&row);
        self.waiting.push(Waiting { row, again });
        let full = self.waiting.len() >= BUFFERED_ROWS_MAX || self.waiting_bytes >= BUFFERED_BYTES_MAX;
        if full { self.encode().await } else { Ok(()) }
    }

    async fn encode(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let batch = batch(&rows, &self.run, self.lake.clock().now_micros())?;
        self.writer().await?.write(&batch).await
    }

    async fn writer(&mut self) -> Result<&mut TableWriter> {
        let (_, writer) = match self.open.take() {
            Some(open) => self.open.insert(open),
            None => {
                let table = self.lake.create_or_open(&TableName::quarantine(&self.source), &definition()).await?;
                let writer = TableWriter::new(&table);
                self.open.insert((table, writer))
            }
        };
        Ok(writer)
    }
}

impl Quarantine {
    /// Adds the files, whatever else happens in the table.
    async fn append(
        &mut self,
        before: &Before,
        txn: Txn,
        written: &Written,
        (point, run): (&'static str, &RunId),
    ) -> Result<()> {
        let table = &mut self.table;
        let now = table.txn_version(&txn.app).await?;
        if now != before.held && now.is_none_or(|now| now < txn.version) {
            discard(table, &written.files).await;
            return Err(moved(table, &before.refused_by));
        }
        let commit = Commit {
            point,
            txns: vec![txn],
            operation: DeltaOperation::Write {
                mode: SaveMode::Append,
                partition_by: Some(vec![REFUSED_BY.to_owned(), STATUS.to_owned()]),
                predicate: None,
            },
            actions: written.files.iter().cloned().map(Action::Add).collect(),
            blind_append: true,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: run.clone(),
        };
        // What another run has brought in already is not wanted twice.
        table.commit_files(commit, &written.files).await.map(drop)
    }

    /// Puts the files in the place of what the same work refused before.
    async fn replace(
        &mut self,
        before: &Before,
        (after, upto): (i64, i64),
        txn: Txn,
        files: &[Add],
        (point, run): (&'static str, &RunId),
    ) -> Result<()> {
        let (clock, mut redo) = (self.lake.clock().clone(), Redo::default());
        let answer = loop {
            let attempt = async {
                self.table.reload().await?;
                let held = self.table.txn_version(&before.app).await?;
                if held != before.held || self.decisions().await? != before.decisions {
                    return Ok(false);
                }
                let change = Change {
                    takes: &|table, status| before.has_room(table, status),
                    asks: &[BATCH_ID, FILE_PATH, ROW_NUMBER],
                    mask: &|rows| each(rows, |batch, _, _| batch > after && batch <= upto),
                    becomes: None,
                };
                let rewritten: Rewritten = self.rewrite(&change).await?;
                let more = More { files, txns: std::slice::from_ref(&txn), fences: &before.ends };
                self.decide(before.decisions + 1, rewritten, more, point, run).await?;
                Ok(true)
            }
            .await;
            match attempt {
                Err(error) if redo.again(&clock, &error).await => {}
                answer => break answer,
            }
        };
        match answer {
            Ok(true) => Ok(()),
            Ok(false) => {
                discard(&self.table, files).await;
                Err(moved(&self.table, &before.refused_by))
            }
            Err(error) => Err(error),
        }
    }
}

fn moved(table: &Table, refused_by: &TableName) -> Error {
    Error::new(ErrorKind::Conflict, format!("{} was written to by another run of {refused_by}", table.name()))
}

fn bytes_of(row: &Rejected) -> usize {
    let texts = [&row.column, &row.value, &row.record].map(|text| text.as_ref().map_or(0, String::len));
    row.file_path.len() + row.reason.len() + texts.iter().sum::<usize>()
}

fn batch(rows: &[Waiting], run: &RunId, now_us: i64) -> Result<RecordBatch> {
    let text = |of: fn(&Rejected) -> Option<&str>| -> ArrayRef {
        Arc::new(rows.iter().map(|waiting| of(&waiting.row)).collect::<StringArray>())
    };
    let same =
        |text: &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows.len()))) };
    let numbers = |of: &dyn Fn(&Waiting) -> Option<i64>| -> Int64Array { rows.iter().map(of).collect() };
    let times = |of: &dyn Fn(&Waiting) -> Option<i64>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
    };
    let tables: Vec<String> = rows.iter().map(|waiting| waiting.row.refused_by.to_string()).collect();
    let by = |waiting: &Waiting| waiting.again.map(|_| run.as_str());
    let columns: Vec<ArrayRef> = vec![
        Arc::new(numbers(&|waiting| Some(waiting.row.batch_id))),
        text(|row| Some(&row.file_path)),
        Arc::new(numbers(&|waiting| Some(waiting.row.row_number))),
        Arc::new(StringArray::from_iter_values(&tables)),
        text(|row| Some(row.reason_kind)),
        text(|row| Some(&row.reason)),
        text(|row| row.column.as_deref()),
        text(|row| row.value.as_deref()),
        text(|row| row.record.as_deref()),
        text(|row| row.header.as_deref()),
        times(&|waiting| Some(waiting.again.map_or(now_us, |again| again.first_seen_us))),
        same(run.as_str()),
        same(Status::Open.as_str()),
        times(&|waiting| waiting.again.map(|_| now_us)),
        Arc::new(rows.iter().map(by).collect::<StringArray>()),
        Arc::new(numbers(&|waiting| waiting.again.map(|again| again.replay))),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}
