//! The rows of files in the order of some columns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, UInt32Array, new_empty_array};
use arrow::compute::{concat, take};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::TableProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ScalarUDF, SortExpr, ident};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use deltalake::kernel::LogicalFileView;
use futures::TryStreamExt;

use super::Optimize;
use super::curve::Curve;
use super::join::rows;
use crate::error::Result;
use crate::lakehouse::Lake;
use crate::session::{Engine, Session, Texts};
use crate::table::Table;
use crate::upsert::file::Files;
use crate::write::{TableWriter, Written};

/// Bytes that sorting holds before it goes to disk, where the engine sets no limit.
const SORTED_BYTES: usize = 512 * 1024 * 1024;
/// Values of a column that tell how its values lie.
const SAMPLE_VALUES: usize = 64 * 1024;

/// Writes the rows of files in the order of `asked.zorder_by`, with tags that say so.
pub(super) async fn write(lake: &Lake, table: &Table, files: &[LogicalFileView], asked: &Optimize) -> Result<Written> {
    let engine = lake.engine();
    let memory_bytes = Some(engine.memory_bytes.unwrap_or(SORTED_BYTES));
    let session = Session::new(&Engine { memory_bytes, ..engine.clone() }, None, Texts::Plain)?;
    let order = match asked.zorder_by.as_slice() {
        [column] => ident(column),
        columns => {
            let samples = samples(table, files, columns).await?;
            ScalarUDF::from(Curve::new(&samples)?).call(columns.iter().map(ident).collect())
        }
    };
    let source = source(table, files, engine.threads())?;
    let sorted = session.context().read_table(source)?.sort(vec![SortExpr::new(order, true, true)])?;
    let mut sorted = sorted.execute_stream().await?;
    let mut writer = TableWriter::new(table).with_file_size(asked.file_size);
    let written = loop {
        let written = match sorted.try_next().await {
            Ok(Some(batch)) => writer.write(&batch).await,
            Ok(None) => break writer.close().await?,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            writer.abort().await;
            return Err(error);
        }
    };
    let tags = asked.tags();
    let tagged = written.files.into_iter().map(|file| {
        let tags = tags.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        deltalake::kernel::Add { tags: Some(tags.collect()), ..file }
    });
    Ok(Written { files: tagged.collect(), ..written })
}

/// Values of each of these columns, evenly taken from all rows.
async fn samples(table: &Table, files: &[LogicalFileView], columns: &[String]) -> Result<Vec<ArrayRef>> {
    let all: usize = files.iter().map(|file| file.num_records().unwrap_or(0)).sum();
    let step = all.div_ceil(SAMPLE_VALUES).max(1);
    let mut rows = std::pin::pin!(rows(Files::of(table)?, files.to_vec(), columns.to_vec()));
    let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); columns.len()];
    let mut next = 0;
    while let Some(batch) = rows.try_next().await? {
        let here = UInt32Array::from_iter_values((next..batch.num_rows()).step_by(step).map(|row| row as u32));
        next = (next + here.len() * step).saturating_sub(batch.num_rows());
        for (parts, column) in parts.iter_mut().zip(batch.columns()) {
            parts.push(take(column, &here, None)?);
        }
    }
    let schema = table.schema();
    let whole = parts.iter().zip(columns).map(|(parts, column)| {
        let parts: Vec<&dyn arrow::array::Array> = parts.iter().map(AsRef::as_ref).collect();
        match parts.is_empty() {
            true => Ok(new_empty_array(schema.field_with_name(column)?.data_type())),
            false => Ok(concat(&parts)?),
        }
    });
    whole.collect()
}

/// The rows of files as a table, which `threads` read side by side.
fn source(table: &Table, files: &[LogicalFileView], threads: usize) -> Result<Arc<dyn TableProvider>> {
    // The rows are those of the log, whatever it says of nulls.
    let schema: SchemaRef = table.schema();
    let queue = Arc::new(Mutex::new(files.iter().cloned().collect::<VecDeque<_>>()));
    let part = |_| -> Result<Arc<dyn PartitionStream>> {
        Ok(Arc::new(Part { files: Files::of(table)?, queue: Arc::clone(&queue), schema: Arc::clone(&schema) }))
    };
    let parts = (0..threads.min(files.len()).max(1)).map(part).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StreamingTable::try_new(Arc::clone(&schema), parts)?))
}

/// Some of the files, for one thread: it takes the next one when it is done with the last.
struct Part {
    files: Files,
    queue: Arc<Mutex<VecDeque<LogicalFileView>>>,
    schema: Arc<Schema>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("files", &self.files).finish_non_exhaustive()
    }
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let columns: Vec<String> = self.schema.fields().iter().map(|field| field.name().clone()).collect();
        let (files, queue) = (self.files.clone(), Arc::clone(&self.queue));
        let next = move || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let each = futures::stream::iter(std::iter::from_fn(next).map(Ok::<_, crate::Error>));
        let batches = each.map_ok(move |file| rows(files.clone(), vec![file], columns.clone())).try_flatten();
        let batches = batches.map_err(DataFusionError::from);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}
