//! Rows that could not go on: one Delta table per bronze source, every row with its reason and where it came from.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};

use crate::columns;
use crate::commit::{Commit, Outcome, Txn, redoing};
use crate::error::{Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::names::{RunId, TableName};
use crate::table::{Definition, Table};
use crate::write::{TableWriter, Written, discard};

/// The column that names the table that refused a row; the tables are partitioned by it.
const REFUSED_BY: &str = "refused_by";
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
    /// [`ErrorKind::Store`] when the store fails.
    pub async fn push(&mut self, row: Rejected) -> Result<()> {
        self.waiting.push(row);
        self.rows += 1;
        if self.waiting.len() >= BUFFERED_ROWS_MAX { self.encode().await } else { Ok(()) }
    }

    /// Rows added so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Makes the rows visible, once: `txn` is the one unit of work that they belong to. Without rows nothing is
    /// committed.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn commit(mut self, txn: Txn, point: &'static str) -> Result<Option<Outcome>> {
        let Some((mut table, written)) = self.close().await? else { return Ok(None) };
        let commit = Commit { blind_append: true, ..self.change(txn, point, &written) };
        let outcome = table.commit(commit).await?;
        clear_up(&table, &written, outcome).await;
        Ok(Some(outcome))
    }

    /// Makes the rows visible, once, where they were chosen by how far the work had come: `held` is the version of
    /// `txn.app` that they follow on. At the first commit of an application (`held` is `None`) they take the place of
    /// all rows that `refused_by` has left there before.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the application has come further meanwhile, and as [`Table::commit`].
    pub async fn commit_after(
        mut self,
        held: Option<i64>,
        txn: Txn,
        refused_by: &TableName,
        point: &'static str,
    ) -> Result<Option<Outcome>> {
        let (mut table, written) = match self.close().await? {
            Some(closed) => closed,
            None if held.is_some() => return Ok(None),
            None => match self.lake.table(&TableName::quarantine(&self.source)).await? {
                Some(table) => (table, Written::default()),
                None => return Ok(None),
            },
        };
        let outcome = redoing(&self.lake.clock().clone(), async || {
            let now = table.txn_version(&txn.app).await?;
            if now != held && now.is_none_or(|now| now < txn.version) {
                let message = format!("{} was written to by another run of {refused_by}", table.name());
                return Ok(Err(Error::new(ErrorKind::Conflict, message)));
            }
            let mut commit = self.change(txn.clone(), point, &written);
            if held.is_none() {
                let theirs = Some(refused_by.to_string());
                commit.actions.extend(table.removes(|values| values.get(REFUSED_BY) == Some(&theirs))?);
            }
            if commit.actions.is_empty() {
                return Ok(Ok(None));
            }
            table.commit(commit).await.map(|outcome| Ok(Some(outcome)))
        })
        .await?;
        match outcome {
            Ok(Some(outcome)) => clear_up(&table, &written, outcome).await,
            Ok(None) => {}
            Err(_) => discard(&table, &written.files).await,
        }
        outcome
    }

    fn change(&self, txn: Txn, point: &'static str, written: &Written) -> Commit {
        Commit {
            point,
            txns: vec![txn],
            operation: DeltaOperation::Write {
                mode: SaveMode::Append,
                partition_by: Some(vec![REFUSED_BY.to_owned()]),
                predicate: None,
            },
            actions: written.files.iter().cloned().map(Action::Add).collect(),
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: self.run.clone(),
        }
    }

    /// The table and the files with every row that was added; `None` without rows.
    async fn close(&mut self) -> Result<Option<(Table, Written)>> {
        self.encode().await?;
        let Some((table, writer)) = self.open.take() else { return Ok(None) };
        let written = writer.close().await?;
        if written.rows != self.rows {
            let message =
                format!("{} rows were refused and {} were written to {}", self.rows, written.rows, table.name());
            return Err(Error::new(ErrorKind::Accounting, message));
        }
        Ok(Some((table, written)))
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

/// What another run has brought in already is not wanted twice.
async fn clear_up(table: &Table, written: &Written, outcome: Outcome) {
    if let Outcome::AlreadyApplied { .. } = outcome {
        discard(table, &written.files).await;
    }
}

/// How far `app` has come in the quarantine of `source`; `None` before its first rows.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read.
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
        Field::new(REFUSED_BY, DataType::Utf8, false),
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
    Definition {
        // What one table refused can be taken back as a whole when that table is made anew.
        partition_by: vec![REFUSED_BY.to_owned()],
        description: Some("rows that could not go on, with the reason".into()),
        ..Definition::new(schema())
    }
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
