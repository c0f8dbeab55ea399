//! The records of a quarantine, for those who look at them and those who send them on.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use datafusion::logical_expr::ident;
use futures::{Stream, StreamExt, stream};

use super::filter::{column, text};
use super::standing::partition;
use super::{FIRST_SEEN, Filter, Quarantine, REASON_KIND, REFUSED_BY, REPLAY, STATUS, STATUS_AT, STATUS_BY, Status};
use crate::columns::{BATCH_ID, FILE_PATH, ROW_NUMBER};
use crate::error::{Error, Result};

/// A record as its quarantine holds it. Times are microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The bronze batch it arrived in.
    pub batch_id: i64,
    /// Its file, relative to the landing root.
    pub file_path: String,
    /// Its 1-based record number in the file.
    pub row_number: i64,
    /// The table that refused it.
    pub refused_by: String,
    /// The kind of reason.
    pub reason_kind: String,
    /// The reason as a sentence.
    pub reason: String,
    /// The column at fault.
    pub column: Option<String>,
    /// Its value as it came.
    pub value: Option<String>,
    /// The record as it came.
    pub record: Option<String>,
    /// A JSON array of the columns of its file, where the record does not name them.
    pub header: Option<String>,
    /// When it was first refused.
    pub first_seen_us: i64,
    /// The run that first refused it, or that refused it again.
    pub run_id: String,
    /// What was decided about it.
    pub status: Status,
    /// When that was.
    pub status_at_us: Option<i64>,
    /// The run that did so.
    pub status_by: Option<String>,
    /// The number of its last replay.
    pub replay: Option<i64>,
}

impl Quarantine {
    /// How many records nothing was decided about yet, by the table that refused them; told by the log alone.
    ///
    /// # Errors
    /// [`ErrorKind::Table`](crate::ErrorKind::Table) when the table is not loaded.
    pub fn open_records(&self) -> Result<BTreeMap<String, u64>> {
        let rows = self.table.rows_by_partition(&[REFUSED_BY, STATUS])?.into_iter();
        let open = rows.filter_map(|(values, rows)| match &values[..] {
            [Some(table), Some(status)] if status == Status::Open.as_str() => Some((table.clone(), rows)),
            _ => None,
        });
        Ok(open.filter(|(_, rows)| *rows > 0).collect())
    }

    /// The records that a filter means, by arrival, some at a time.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) and [`ErrorKind::Store`](crate::ErrorKind::Store) when the table
    /// cannot be read.
    pub async fn records(&self, filter: &Filter) -> Result<impl Stream<Item = Result<Vec<Record>>> + use<>> {
        let names: Vec<String> = self.table.schema().fields().iter().map(|field| field.name().clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(self.rows(filter, &names).await?.map(|rows| of_batch(&rows?)))
    }

    /// Some columns of the rows that a filter means, by arrival.
    pub(super) async fn rows(
        &self,
        filter: &Filter,
        columns: &[&str],
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + use<>> {
        let files = self.table.files()?;
        let meant =
            files.iter().filter(|file| partition(file).is_some_and(|(table, status)| filter.takes(table, status)));
        let paths: Vec<String> = meant.map(|file| file.path.clone()).collect();
        if paths.is_empty() {
            return Ok(stream::empty().left_stream());
        }
        let session = self.lake.session()?;
        let mut wanted = columns.to_vec();
        wanted.extend(Filter::COLUMNS.into_iter().filter(|name| !columns.contains(name)));
        let arrival = [BATCH_ID, FILE_PATH, ROW_NUMBER].map(|name| ident(name).sort(true, false));
        let frame = session.context().read_table(session.files(&self.table, paths).await?)?.sort(arrival.to_vec())?;
        let frame = frame.select(wanted.into_iter().map(ident).collect::<Vec<_>>())?;
        let (rows, filter) = (frame.execute_stream().await?, filter.clone());
        Ok(rows
            .map(move |rows| {
                let rows = rows?;
                Ok(filter_record_batch(&rows, &filter.mask(&rows)?)?)
            })
            .right_stream())
    }
}

fn of_batch(rows: &RecordBatch) -> Result<Vec<Record>> {
    let numbers = |name: &str| -> Result<Int64Array> {
        column(rows, name)?.as_primitive_opt::<Int64Type>().cloned().ok_or_else(|| Error::internal("a number"))
    };
    let times = |name: &str| -> Result<TimestampMicrosecondArray> {
        let column = column(rows, name)?.as_primitive_opt::<TimestampMicrosecondType>().cloned();
        column.ok_or_else(|| Error::internal("a time"))
    };
    let some = |texts: &StringArray, row: usize| texts.is_valid(row).then(|| texts.value(row).to_owned());
    let (batches, places, replays) = (numbers(BATCH_ID)?, numbers(ROW_NUMBER)?, numbers(REPLAY)?);
    let (seen, decided) = (times(FIRST_SEEN)?, times(STATUS_AT)?);
    let (files, tables, kinds) = (text(rows, FILE_PATH)?, text(rows, REFUSED_BY)?, text(rows, REASON_KIND)?);
    let (reasons, at, values) = (text(rows, "reason")?, text(rows, "column")?, text(rows, "value")?);
    let (records, headers, runs) = (text(rows, "record")?, text(rows, "header")?, text(rows, "run_id")?);
    let (statuses, by) = (text(rows, STATUS)?, text(rows, STATUS_BY)?);
    let record = |row: usize| -> Result<Record> {
        Ok(Record {
            batch_id: batches.value(row),
            file_path: files.value(row).to_owned(),
            row_number: places.value(row),
            refused_by: tables.value(row).to_owned(),
            reason_kind: kinds.value(row).to_owned(),
            reason: reasons.value(row).to_owned(),
            column: some(&at, row),
            value: some(&values, row),
            record: some(&records, row),
            header: some(&headers, row),
            first_seen_us: seen.value(row),
            run_id: runs.value(row).to_owned(),
            status: Status::parse(statuses.value(row)).ok_or_else(|| Error::internal("a status"))?,
            status_at_us: decided.is_valid(row).then(|| decided.value(row)),
            status_by: some(&by, row),
            replay: replays.is_valid(row).then(|| replays.value(row)),
        })
    };
    (0..rows.num_rows()).map(record).collect()
}

/// The rows of a batch whose last replay has this number.
pub(super) fn of_replay(rows: &RecordBatch, number: i64) -> Result<BooleanArray> {
    let replays = column(rows, REPLAY)?.as_primitive_opt::<Int64Type>().cloned();
    let replays = replays.ok_or_else(|| Error::internal("a number"))?;
    Ok((0..rows.num_rows()).map(|row| Some(replays.is_valid(row) && replays.value(row) == number)).collect())
}
