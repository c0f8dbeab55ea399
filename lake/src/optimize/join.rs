//! The rows of files, one file after the other, without those that are marked as deleted.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use deltalake::kernel::LogicalFileView;
use futures::{Stream, TryStreamExt, stream};
use roaring::RoaringTreemap;

use crate::error::{Error, Result};
use crate::table::Table;
use crate::upsert::file::Files;
use crate::write::{TableWriter, Written};

/// Rows that are read and written at a time.
const BATCH_ROWS: usize = 8192;

/// Writes the rows of files, in this order, to files of about `file_size` bytes.
pub(super) async fn write(table: &Table, files: &[LogicalFileView], file_size: u64) -> Result<Written> {
    let columns: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut rows = std::pin::pin!(rows(Files::of(table)?, files.to_vec(), columns));
    let mut writer = TableWriter::new(table).with_file_size(file_size);
    loop {
        let written = match rows.try_next().await {
            Ok(Some(batch)) => writer.write(&batch).await,
            Ok(None) => return writer.close().await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            writer.abort().await;
            return Err(error);
        }
    }
}

/// Some columns of the live rows of files, one file after the other.
pub(super) fn rows(
    files: Files,
    chosen: Vec<LogicalFileView>,
    columns: Vec<String>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let each = stream::iter(chosen.into_iter().map(Ok::<_, Error>)).and_then(move |file| {
        let (files, columns) = (files.clone(), columns.clone());
        async move {
            let open = files.open(&file).await?;
            let deleted = files.deleted(&file).await?;
            let groups = (0..open.metadata().num_row_groups()).collect();
            let mut first = 0;
            let batches = open.read(&columns, groups, None, BATCH_ROWS)?;
            Ok(batches.and_then(move |batch| {
                let live = live(&batch, first, &deleted);
                first += batch.num_rows() as u64;
                std::future::ready(live)
            }))
        }
    });
    each.try_flatten()
}

/// The rows of a batch that are not deleted; its first row has the number `first` in its file.
fn live(batch: &RecordBatch, first: u64, deleted: &RoaringTreemap) -> Result<RecordBatch> {
    let end = first + batch.num_rows() as u64;
    if deleted.range_cardinality(first..end) == 0 {
        return Ok(batch.clone());
    }
    let live: BooleanArray = (first..end).map(|row| Some(!deleted.contains(row))).collect();
    Ok(filter_record_batch(batch, &live)?)
}
