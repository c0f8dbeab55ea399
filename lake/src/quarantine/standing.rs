//! Decisions about records: the one way in which what a quarantine holds is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::{filter_record_batch, not};
use datafusion::logical_expr::ident;
use deltalake::kernel::{Action, Add};
use deltalake::protocol::{DeltaOperation, SaveMode};
use futures::TryStreamExt;

use super::{Filter, REFUSED_BY, REPLAY, STATUS, STATUS_AT, STATUS_BY, Status};
use crate::commit::{Commit, Outcome, Redo, Txn};
use crate::error::{Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::names::{RunId, TableName};
use crate::table::{DataFile, Table};
use crate::write::{TableWriter, Written, conform};

/// The application that counts decisions.
const DECISIONS: &str = "decisions";

/// The quarantine of one source, at the version that was read last.
#[derive(Debug, Clone)]
pub struct Quarantine {
    pub(super) lake: Lake,
    pub(super) source: String,
    pub(super) table: Table,
}

/// Which rows are changed, and how.
pub(super) struct Change<'a> {
    /// The partitions that hold them.
    pub(super) takes: &'a (dyn Fn(&str, Status) -> bool + Sync),
    /// The columns that `mask` asks.
    pub(super) asks: &'a [&'a str],
    /// Which rows of a batch.
    pub(super) mask: &'a (dyn Fn(&RecordBatch) -> Result<BooleanArray> + Sync),
    /// What they become; `None` when they go.
    pub(super) becomes: Option<Standing<'a>>,
}

/// What is noted of a record when it is decided about.
#[derive(Clone, Copy)]
pub(super) struct Standing<'a> {
    pub(super) status: Status,
    pub(super) by: &'a RunId,
    /// The number of its replay; `None` leaves what is there.
    pub(super) replay: Option<i64>,
}

/// What a decision brings along.
#[derive(Default)]
pub(super) struct More<'a> {
    /// Files with rows of the caller's, who keeps them when the decision does not come about.
    pub(super) files: &'a [Add],
    /// Transactions.
    pub(super) txns: &'a [Txn],
    /// Transactions that are worth a commit by themselves.
    pub(super) fences: &'a [Txn],
}

/// Files that take the place of others.
#[derive(Default)]
pub(super) struct Rewritten {
    pub(super) removed: Vec<Action>,
    pub(super) written: Written,
    /// Rows that changed, by the table that refused them.
    pub(super) changed: BTreeMap<TableName, u64>,
}

impl Rewritten {
    pub(super) fn rows(&self) -> u64 {
        self.changed.values().sum()
    }
}

impl Quarantine {
    /// Opens the quarantine of a source; `None` when nothing was ever refused there.
    ///
    /// # Errors
    /// As [`Lake::table`].
    pub async fn open(lake: &Lake, source: &str) -> Result<Option<Self>> {
        let table = lake.table(&TableName::quarantine(source)).await?;
        Ok(table.map(|table| Self { lake: lake.clone(), source: source.to_owned(), table }))
    }

    /// A quarantine of a source that is kept elsewhere.
    pub fn elsewhere(lake: &Lake, source: &str, table: Table) -> Self {
        Self { lake: lake.clone(), source: source.to_owned(), table }
    }

    /// How many decisions there were.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the log cannot be read.
    pub async fn decided(&self) -> Result<i64> {
        self.decisions().await
    }

    /// The tables that have records in a state, by the log alone.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn tables(&self, status: Status) -> Result<BTreeSet<TableName>> {
        let files = self.table.files()?;
        let partitions = files.iter().filter_map(partition).filter(|(_, held)| *held == status);
        Ok(partitions.filter_map(|(table, _)| TableName::parse(table)).collect())
    }

    /// True when a replay of records that `table` refused is not finished, by the log alone.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn is_replaying(&self, table: &TableName) -> Result<bool> {
        Ok(self.tables(Status::Replaying)?.contains(table))
    }

    /// Decides that open records are to stay out; says how many, by the table that refused them.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn discard(&mut self, filter: &Filter, run: &RunId) -> Result<BTreeMap<TableName, u64>> {
        let (clock, mut redo) = (self.lake.clock().clone(), Redo::default());
        loop {
            let attempt = async {
                self.table.reload().await?;
                let number = self.decisions().await? + 1;
                let change = Change {
                    takes: &|table, status| status == Status::Open && filter.takes(table, status),
                    asks: &Filter::COLUMNS,
                    mask: &|rows| filter.mask(rows),
                    becomes: Some(Standing { status: Status::Discarded, by: run, replay: None }),
                };
                let rewritten = self.rewrite(&change).await?;
                let changed = rewritten.changed.clone();
                self.decide(number, rewritten, More::default(), "quarantine_discarded", run).await?;
                Ok(changed)
            }
            .await;
            match attempt {
                Err(error) if redo.again(&clock, &error).await => {}
                answer => break answer,
            }
        }
    }

    /// The number of the last decision; 0 before the first.
    pub(super) async fn decisions(&self) -> Result<i64> {
        Ok(self.table.txn_version(DECISIONS).await?.unwrap_or(0))
    }

    /// Writes the files anew that hold rows to be changed. Nothing is visible yet.
    pub(super) async fn rewrite(&self, change: &Change<'_>) -> Result<Rewritten> {
        let mut writer = TableWriter::new(&self.table);
        let (mut removed, mut changed) = (Vec::new(), BTreeMap::new());
        for file in self.table.files()? {
            let Some((table, status)) = partition(&file).filter(|(table, status)| (change.takes)(table, *status))
            else {
                continue;
            };
            let rows = match self.rewrite_file(&file, change, &mut writer).await {
                Ok(rows) => rows,
                Err(error) => {
                    writer.abort().await;
                    return Err(error);
                }
            };
            if rows > 0 {
                tracing::debug!(%table, %status, rows, "records are decided about");
                let table = TableName::parse(table).ok_or_else(|| Error::internal("a quarantine of no table"))?;
                *changed.entry(table).or_default() += rows;
                removed.push(file.remove.clone());
            }
        }
        Ok(Rewritten { removed, written: writer.close().await?, changed })
    }

    /// Copies a file with its changes, unless nothing in it changes; says how many rows do.
    async fn rewrite_file(&self, file: &DataFile, change: &Change<'_>, writer: &mut TableWriter) -> Result<u64> {
        let session = self.lake.session()?;
        let provider = session.files(&self.table, vec![file.path.clone()]).await?;
        let frame = session.context().read_table(provider)?;
        let asked = frame.clone().select(change.asks.iter().map(|name| ident(*name)).collect::<Vec<_>>())?;
        let mut stream = asked.execute_stream().await?;
        let mut rows = 0;
        while let Some(batch) = stream.try_next().await? {
            rows += (change.mask)(&batch)?.true_count() as u64;
        }
        if rows == 0 {
            return Ok(0);
        }
        let mut stream = frame.execute_stream().await?;
        while let Some(batch) = stream.try_next().await? {
            let batch = conform(&batch, &self.table.schema(), self.table.name())?;
            let mask = (change.mask)(&batch)?;
            writer.write(&filter_record_batch(&batch, &not(&mask)?)?).await?;
            if let Some(standing) = change.becomes {
                let chosen = filter_record_batch(&batch, &mask)?;
                writer.write(&standing.of(&chosen, self.lake.clock().now_micros())?).await?;
            }
        }
        Ok(rows)
    }

    /// Commits a decision. Without a row that changes there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another decision came first, or the table moved: decide again.
    pub(super) async fn decide(
        &mut self,
        number: i64,
        rewritten: Rewritten,
        more: More<'_>,
        point: &'static str,
        run: &RunId,
    ) -> Result<()> {
        let Rewritten { removed, written, .. } = rewritten;
        let added = written.files.iter().chain(more.files).cloned().map(Action::Add);
        let actions: Vec<Action> = removed.into_iter().chain(added).collect();
        if actions.is_empty() && more.fences.is_empty() {
            return Ok(());
        }
        let rows = more.files.iter().filter_map(|file| file.get_stats().ok().flatten()).map(|stats| stats.num_records);
        let rows = rows.map(|rows| u64::try_from(rows).unwrap_or(0)).sum::<u64>() + written.rows;
        let commit = Commit {
            point,
            txns: more.txns.iter().chain(more.fences).cloned().chain([Txn::new(DECISIONS, number)]).collect(),
            operation: DeltaOperation::Write {
                mode: SaveMode::Append,
                partition_by: Some(vec![REFUSED_BY.to_owned(), STATUS.to_owned()]),
                predicate: None,
            },
            actions,
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", rows)]),
            run: run.clone(),
        };
        match self.table.commit_files(commit, &written.files).await? {
            Outcome::Committed { .. } => Ok(()),
            Outcome::AlreadyApplied { .. } => {
                let message = format!("another decision about {} came first", self.table.name());
                Err(Error::new(ErrorKind::Conflict, message))
            }
        }
    }
}

impl Standing<'_> {
    /// Rows with this standing.
    fn of(self, rows: &RecordBatch, now_us: i64) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        let mut set = |name: &str, column: ArrayRef| -> Result<()> {
            columns[rows.schema().index_of(name)?] = column;
            Ok(())
        };
        let count = rows.num_rows();
        set(STATUS, Arc::new(StringArray::from_iter_values(std::iter::repeat_n(self.status.as_str(), count))))?;
        set(STATUS_BY, Arc::new(StringArray::from_iter_values(std::iter::repeat_n(self.by.as_str(), count))))?;
        set(STATUS_AT, Arc::new(TimestampMicrosecondArray::from_value(now_us, count).with_timezone("UTC")))?;
        if let Some(replay) = self.replay {
            set(REPLAY, Arc::new(Int64Array::from_value(replay, count)))?;
        }
        Ok(RecordBatch::try_new(rows.schema(), columns)?)
    }
}

/// The table that refused the records of a file, and their state.
pub(super) fn partition(file: &DataFile) -> Option<(&str, Status)> {
    let value = |name: &str| file.partition.get(name)?.as_deref();
    Some((value(REFUSED_BY)?, Status::parse(value(STATUS)?)?))
}
