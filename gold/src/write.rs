//! The rows of a query into data files: parts of a large result side by side, a small result in one file.
//!
//! A query answers in as many parts as there are threads. A part is held until it shows to be large; only then does it
//! get a file of its own. What is left of the others goes into one file at the end, so that a table of eight rows is
//! one file on any machine. When nothing was large and the query does not order its result itself, the rows are sorted
//! by their columns from left to right: the same rows make the same file in every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::row::{RowConverter, SortField};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use lake::run::RunContext;
use lake::table::Definition;
use lake::write::{TableWriter, Written, conform, discard};
use lake::{Error, Result};
use tokio::task::JoinSet;

use crate::publish::Target;

/// A part is large from so many bytes in memory on.
const LARGE_PART_BYTES: usize = 8 * 1024 * 1024;

/// The parts of a result.
pub(crate) struct Rows {
    /// The parts, each read by a task of its own.
    pub(crate) parts: Vec<SendableRecordBatchStream>,
    /// True when the query itself says in which order the rows come.
    pub(crate) ordered: bool,
}

/// What became of one part.
struct Drained {
    files: Written,
    left: Vec<RecordBatch>,
}

/// Writes the rows into files of the table; no commit names them yet. When that fails, those that are written go again.
///
/// # Errors
/// What the query fails with; [`ErrorKind::Data`](lake::ErrorKind::Data) when a value does not fit its column;
/// [`ErrorKind::Store`](lake::ErrorKind::Store) when the store fails or the run is asked to stop.
pub(crate) async fn write(rows: Rows, target: &Arc<Target>, ctx: &RunContext) -> Result<Written> {
    let mut tasks = JoinSet::new();
    let given_up = Arc::new(AtomicBool::new(false));
    for (number, part) in rows.parts.into_iter().enumerate() {
        let (target, ctx, given_up) = (Arc::clone(target), ctx.clone(), Arc::clone(&given_up));
        tasks.spawn(async move { drain(part, &target, &ctx, &given_up).await.map(|drained| (number, drained)) });
    }
    let mut drained = Vec::new();
    let mut failed = None;
    while let Some(part) = tasks.join_next().await {
        match part.map_err(|error| Error::internal("a writer ended early").with_source(error)).flatten() {
            Ok(part) => drained.push(part),
            Err(error) => {
                given_up.store(true, Ordering::Relaxed);
                failed.get_or_insert(error);
            }
        }
    }
    drained.sort_by_key(|(number, _)| *number);

    let mut written = Written::default();
    let mut left = Vec::new();
    for (_, part) in drained {
        written = written.and(part.files);
        left.extend(part.left);
    }
    let rest = match failed {
        None => write_rest(left, written.files.is_empty() && !rows.ordered, target).await,
        Some(error) => Err(error),
    };
    match rest {
        Ok(rest) => Ok(written.and(rest)),
        Err(error) => {
            if !written.files.is_empty() {
                discard(target.table().await?, &written.files).await;
            }
            Err(error)
        }
    }
}

/// What no part has written, in one file.
async fn write_rest(mut left: Vec<RecordBatch>, sorts: bool, target: &Target) -> Result<Written> {
    if sorts {
        left = sorted(left, target.definition())?;
    }
    let mut writer = TableWriter::redefined(target.table().await?, target.definition());
    for batch in &left {
        if let Err(error) = writer.write(batch).await {
            writer.abort().await;
            return Err(error);
        }
    }
    writer.close().await
}

/// Takes a part to its end, or until another one has failed.
async fn drain(
    part: SendableRecordBatchStream,
    target: &Target,
    ctx: &RunContext,
    given_up: &AtomicBool,
) -> Result<Drained> {
    let mut writer = None;
    let left = take(part, target, ctx, given_up, &mut writer).await;
    match (left, writer) {
        (Ok(left), Some(writer)) if !given_up.load(Ordering::Relaxed) => {
            Ok(Drained { files: writer.close().await?, left })
        }
        (left, writer) => {
            if let Some(writer) = writer {
                writer.abort().await;
            }
            left.map(|left| Drained { files: Written::default(), left })
        }
    }
}

/// The rows of a part that are too few for a file of their own; others go to `writer`.
async fn take(
    mut part: SendableRecordBatchStream,
    target: &Target,
    ctx: &RunContext,
    given_up: &AtomicBool,
    writer: &mut Option<TableWriter>,
) -> Result<Vec<RecordBatch>> {
    let definition = target.definition();
    let mut held = Vec::new();
    let mut held_bytes = 0;
    while let Some(batch) = part.try_next().await? {
        ctx.stop.check()?;
        if given_up.load(Ordering::Relaxed) {
            break;
        }
        ctx.meter.add_rows(batch.num_rows() as u64);
        let batch = conform(&batch, &definition.schema, target.name())?;
        if let Some(writer) = writer {
            writer.write(&batch).await?;
            continue;
        }
        held_bytes += batch.get_array_memory_size();
        held.push(batch);
        if held_bytes >= LARGE_PART_BYTES {
            let writer = writer.insert(TableWriter::redefined(target.table().await?, definition));
            for batch in held.drain(..) {
                writer.write(&batch).await?;
            }
        }
    }
    Ok(held)
}

/// The rows in the order of their columns, where the types have one.
fn sorted(batches: Vec<RecordBatch>, definition: &Definition) -> Result<Vec<RecordBatch>> {
    let fields: Vec<SortField> =
        definition.schema.fields().iter().map(|field| SortField::new(field.data_type().clone())).collect();
    if batches.is_empty() || !RowConverter::supports_fields(&fields) {
        return Ok(batches);
    }
    let all = concat_batches(&definition.schema, &batches)?;
    let columns: Vec<ArrayRef> = all.columns().to_vec();
    let keys = RowConverter::new(fields)?.convert_columns(&columns)?;
    let count = u32::try_from(all.num_rows()).map_err(|_| Error::internal("a small result has too many rows"))?;
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_unstable_by(|left, right| keys.row(*left as usize).cmp(&keys.row(*right as usize)));
    Ok(vec![take_record_batch(&all, &UInt32Array::from(order))?])
}
