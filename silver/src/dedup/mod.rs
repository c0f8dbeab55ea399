//! The last change at each place, in most tables of each key: `row_number() = 1` in the total order of its key.
//!
//! A sort of all changes would do it, and would put most of them in order only to throw them away. So the changes are
//! dealt out to workers by the hash of their key; each keeps the newest change of every key that it has met, in
//! memory, and beyond a budget on disk.

mod cells;
mod deciding;
mod newest;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use lake::stage::Staged;
use lake::{Error, ErrorKind, Result};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::cells::Columns;
pub use self::deciding::deciding;
use self::newest::{Newest, Piece};
use crate::order;

/// Batches that wait for one worker, and batches of its answer that wait for their encoder.
const WAITING_MAX: usize = 4;
/// Bytes of changes that are held where the engine has no limit.
const HELD_BYTES: usize = 512 << 20;
/// Of the hashes of keys.
const SEED: u64 = 0;

type Answer = datafusion::error::Result<RecordBatch>;

/// The changes that are the largest of their key in the total order, put aside, and how many others there were. Null
/// keys are a key. `memory_bytes` is what the engine may use.
///
/// # Errors
/// What the changes fail with, [`ErrorKind::Store`] when the disk is full, and [`ErrorKind::Accounting`] when a change was
/// lost.
pub async fn last(
    changes: DataFrame,
    keys: &[String],
    sequence: &[String],
    memory_bytes: Option<usize>,
) -> Result<(Staged, u64)> {
    let schema: SchemaRef = Arc::new(changes.schema().as_arrow().clone());
    let columns = Arc::new(Columns::new(&schema, keys, &order::names(sequence))?);
    let streams = changes.execute_stream_partitioned().await?;
    let workers = streams.len().max(1);
    // A quarter of what the engine has: the changes are decoded and encoded at the same time.
    let budget = memory_bytes.map_or(HELD_BYTES, |bytes| bytes / 4) / workers;
    let mut desks = Vec::with_capacity(workers);
    let mut at_work = JoinSet::new();
    let mut answers: Vec<SendableRecordBatchStream> = Vec::with_capacity(workers);
    for _ in 0..workers {
        let (desk, pieces) = mpsc::channel(WAITING_MAX);
        let (answer, rows) = mpsc::channel(WAITING_MAX);
        let newest = Newest::new(Arc::clone(&columns), budget, workers);
        at_work.spawn_blocking(move || work(newest, pieces, &answer));
        desks.push(desk);
        let rows = futures::stream::unfold(rows, async |mut rows| Some((rows.recv().await?, rows)));
        answers.push(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), Box::pin(rows))));
    }
    let dealt = async {
        // When one stream fails the others are dropped, and the workers with them.
        let mut dealers: JoinSet<Result<u64>> =
            streams.into_iter().map(|stream| deal(stream, Arc::clone(&columns), desks.clone())).collect();
        let mut all = 0;
        while let Some(dealer) = dealers.join_next().await {
            all += dealer.map_err(|error| Error::internal("reading changes ended early").with_source(error))??;
        }
        for desk in desks {
            desk.send(Work::Done).await.ok();
        }
        Ok(all)
    };
    let (all, staged) = tokio::try_join!(dealt, Staged::write_streams(Arc::clone(&schema), answers))?;
    let mut others = 0;
    while let Some(worker) = at_work.join_next().await {
        others += worker.map_err(|error| Error::internal("a worker ended early").with_source(error))?;
    }
    if staged.rows() + others != all {
        let message = format!("of {all} changes {} are the last of their key and {others} are not", staged.rows());
        return Err(Error::new(ErrorKind::Accounting, message));
    }
    Ok((staged, others))
}

/// What a worker is told.
enum Work {
    Piece(Piece),
    /// Every stream has ended well. Without this nothing is answered.
    Done,
}

/// Hands the changes of a stream to the workers; their count.
async fn deal(
    mut stream: SendableRecordBatchStream,
    columns: Arc<Columns>,
    desks: Vec<mpsc::Sender<Work>>,
) -> Result<u64> {
    // All dealers must send a key to the same worker.
    let seed = RandomState::with_seed(SEED);
    let mut all = 0;
    while let Some(batch) = stream.try_next().await? {
        all += batch.num_rows() as u64;
        let mut hashes = vec![0; batch.num_rows()];
        create_hashes(columns.keys_of(&batch), &seed, &mut hashes)?;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); desks.len()];
        for (row, hash) in (0..).zip(&hashes) {
            rows[(*hash >> 48) as usize % desks.len()].push(row);
        }
        let (held, hashes) = (Arc::new(columns.hold(batch)?), Arc::new(hashes));
        for (desk, rows) in desks.iter().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            let piece = Piece { held: Arc::clone(&held), hashes: Arc::clone(&hashes), rows };
            if desk.send(Work::Piece(piece)).await.is_err() {
                // The worker has failed and its answer says why.
                return Ok(all);
            }
        }
    }
    Ok(all)
}

/// Until all is dealt out; the count of changes that are not the last of their key. A failure is the answer.
fn work(mut newest: Newest, mut pieces: mpsc::Receiver<Work>, answer: &mpsc::Sender<Answer>) -> u64 {
    let mut result = Ok(());
    while result.is_ok() {
        result = match pieces.blocking_recv() {
            Some(Work::Piece(piece)) => newest.add(&piece),
            Some(Work::Done) => {
                result = newest.drain(|batch| answer.blocking_send(Ok(batch)).is_ok());
                break;
            }
            None => break,
        }
    }
    if let Err(error) = result {
        answer.blocking_send(Err(error.into())).ok();
    }
    newest.superseded()
}
