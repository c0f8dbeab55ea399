//! Rows that could not go on: one Delta table per bronze source, every row with its reason and where it came from.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};

use crate::columns;
use crate::commit::{Commit, Outcome, Txn};
use crate::error::Result;
use crate::lakehouse::Lake;
use crate::names::{RunId, TableName};
use crate::table::{Definition, Table};
use crate::write::TableWriter;

/// Rows kept in memory before they are encoded.
const BUFFERED_ROWS_MAX: usize = 4096;

/// One row that could not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The bronze batch it arrived in.
    pub batch_id: i64,
    /// The file it came from, relative to the landing root.
    pub file_path: String,
    /// Its 1-based record number in the file.
    pub row_number: i64,
    /// The table that refused it: `bronze.orders_cdc`, `silver.orders`.
    pub refused_by: TableName,
    /// A short word for the kind of reason: `malformed`, `cast`, `null_key`, `expectation`, `unknown_op`.
    pub reason_kind: &'static str,
    /// The reason as a sentence.
    pub reason: String,
    /// The column at fault, where one is.
    pub column: Option<String>,
    /// Its value as it came.
    pub value: Option<String>,
    /// The whole record as it came: text of a line, or a JSON object of the columns.
    pub record: Option<String>,
}

/// Collects rejected rows of one source and appends them once. Nothing is made while there is no row.
pub struct QuarantineWriter {
    lake: Lake,
    source: String,
    run: RunId,
    waiting: Vec<Rejected>,
    open: Option<(Table, TableWriter)>,
    rows: u64,
}

impl QuarantineWriter {
    /// A writer for the quarantine of `source`.
    pub fn new(lake: &Lake, source: &str, run: &RunId) -> Self {
        let (lake, source, run) = (lake.clone(), source.to_owned(), run.clone());
        Self { lake, source, run, waiting: Vec::new(), open: None, rows: 0 }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) when the store fails.
    pub async fn push(&mut self, row: Rejected) -> Result<()> {
        self.waiting.push(row);
        self.rows += 1;
        if self.waiting.len() >= BUFFERED_ROWS_MAX { self.encode().await } else { Ok(()) }
    }

    /// Rows added so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Makes the rows visible, once: `txn` says which work they belong to. Without rows nothing is committed.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn commit(mut self, txn: Txn, point: &'static str) -> Result<Option<Outcome>> {
        self.encode().await?;
        let Some((mut table, writer)) = self.open.take() else { return Ok(None) };
        let written = writer.close().await?;
        let commit = Commit {
            point,
            txns: vec![txn],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: written.files.into_iter().map(Action::Add).collect(),
            blind_append: true,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: self.run.clone(),
        };
        table.commit(commit).await.map(Some)
    }

    /// Gives up; the files are removed as far as possible.
    pub async fn abort(mut self) {
        if let Some((_, writer)) = self.open.take() {
            writer.abort().await;
        }
    }

    async fn encode(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.waiting);
        let batch = batch(&rows, &self.run, self.lake.clock().now_micros())?;
        let (_, writer) = match self.open.take() {
            Some(open) => self.open.insert(open),
            None => {
                let table = self.lake.create_or_open(&TableName::quarantine(&self.source), &definition()).await?;
                let writer = TableWriter::new(&table);
                self.open.insert((table, writer))
            }
        };
        writer.write(&batch).await
    }
}

/// How far `app` has come in the quarantine of `source`; `None` before its first rows.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when the log cannot be read.
pub async fn txn_version(lake: &Lake, source: &str, app: &str) -> Result<Option<i64>> {
    match lake.table(&TableName::quarantine(source)).await? {
        Some(table) => table.txn_version(app).await,
        None => Ok(None),
    }
}

/// The columns of a quarantine table.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(columns::BATCH_ID, DataType::Int64, false),
        Field::new(columns::FILE_PATH, DataType::Utf8, false),
        Field::new(columns::ROW_NUMBER, DataType::Int64, false),
        Field::new("refused_by", DataType::Utf8, false),
        Field::new("reason_kind", DataType::Utf8, false),
        Field::new("reason", DataType::Utf8, false),
        Field::new("column", DataType::Utf8, true),
        Field::new("value", DataType::Utf8, true),
        Field::new("record", DataType::Utf8, true),
        Field::new("first_seen", columns::timestamp_type(), false),
        Field::new("run_id", DataType::Utf8, false),
        Field::new("status", DataType::Utf8, false),
    ]))
}

fn definition() -> Definition {
    Definition { description: Some("rows that could not go on, with the reason".into()), ..Definition::new(schema()) }
}

fn batch(rows: &[Rejected], run: &RunId, now_us: i64) -> Result<RecordBatch> {
    let text = |of: &dyn Fn(&Rejected) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringArray>())
    };
    let numbers = |of: &dyn Fn(&Rejected) -> i64| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<Int64Array>()) };
    let seen = TimestampMicrosecondArray::from(vec![now_us; rows.len()]).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![
        numbers(&|row| row.batch_id),
        text(&|row| Some(row.file_path.clone())),
        numbers(&|row| row.row_number),
        text(&|row| Some(row.refused_by.to_string())),
        text(&|row| Some(row.reason_kind.to_owned())),
        text(&|row| Some(row.reason.clone())),
        text(&|row| row.column.clone()),
        text(&|row| row.value.clone()),
        text(&|row| row.record.clone()),
        Arc::new(seen),
        text(&|_| Some(run.to_string())),
        text(&|_| Some("open".to_owned())),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}
