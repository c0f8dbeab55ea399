//! Parts become rows of data files; each lane has an encoder of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use lake::quarantine::Rejected;
use lake::write::{TableWriter, Written, discard};
use lake::{Error, ErrorKind, Result};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::{Reading, Rows, failed};
use crate::decode::{Part, Reject, refused};
use crate::spec::BadRecords;

/// Work for a lane, of the file at this index.
pub(super) enum Load {
    /// Rows as the table has them.
    Rows(usize, Rows),
    /// Rows that are not yet in columns.
    Part(usize, Part),
}

type Queue = Arc<Mutex<Receiver<Load>>>;

/// Starts the lanes; each takes what comes until the decoders have ended.
pub(super) fn start(pass: &Arc<Reading>, count: usize, receiver: mpsc::Receiver<Load>) -> JoinSet<Result<Written>> {
    let queue: Queue = Arc::new(Mutex::new(receiver));
    let mut lanes = JoinSet::new();
    for _ in 0..count {
        lanes.spawn(lane(Arc::clone(pass), Arc::clone(&queue)));
    }
    lanes
}

/// Waits for the lanes and puts together what they wrote; nothing when the reading is of no use.
pub(super) async fn join(pass: &Reading, lanes: JoinSet<Result<Written>>) -> Written {
    let mut written = Written::default();
    for lane in super::join(pass, lanes).await {
        match lane {
            Ok(more) => written = written.and(more),
            Err(error) => pass.stop(error),
        }
    }
    if pass.is_over() || pass.is_spoiled() {
        discard(&pass.job.table, &written.files).await;
        return Written::default();
    }
    written
}

async fn lane(pass: Arc<Reading>, queue: Queue) -> Result<Written> {
    let mut writer = TableWriter::new(&pass.job.table).of_raw_text();
    match fill(&pass, &queue, &mut writer).await {
        Ok(()) if pass.is_spoiled() || pass.is_over() => {
            writer.abort().await;
            Ok(Written::default())
        }
        Ok(()) => writer.close().await,
        Err(error) => {
            pass.stop(error);
            writer.abort().await;
            Ok(Written::default())
        }
    }
}

async fn fill(pass: &Reading, queue: &Queue, writer: &mut TableWriter) -> Result<()> {
    loop {
        let load = queue.lock().await.recv().await;
        pass.job.ctx.stop.check()?;
        let Some(load) = load.filter(|_| !pass.is_over()) else { return Ok(()) };
        let (index, placed) = match load {
            Load::Rows(index, rows) => (index, Ok(rows)),
            Load::Part(index, part) => (index, pass.place(index, || part.into_chunk())),
        };
        match placed {
            // Of no use any more, but every file that fails is to be found.
            Ok(_) if pass.is_spoiled() => {}
            Ok(rows) => {
                if let Err(error) = take(pass, index, rows, writer).await? {
                    fail(pass, index, error)?;
                }
            }
            Err(error) => fail(pass, index, error)?,
        }
    }
}

/// Notes that a file cannot be taken; an error that says nothing of it comes back.
fn fail(pass: &Reading, index: usize, error: Error) -> Result<()> {
    pass.end(index, Err(failed(error)?));
    pass.spoil();
    Ok(())
}

/// Passes on rows and rejects of a file; what its rows do to break the writer is the file's failure, inside.
async fn take(pass: &Reading, index: usize, rows: Rows, writer: &mut TableWriter) -> Result<Result<()>> {
    let passed = &pass.passed[index];
    let rejects = rows.rejects.len() as u64;
    passed.rejects.fetch_add(rejects, Ordering::SeqCst);
    if pass.job.plan.bad_records == BadRecords::Quarantine {
        for reject in rows.rejects {
            pass.quarantine.lock().await.push(rejected(pass, index, reject)).await?;
        }
    } else {
        pass.dropped.fetch_add(rejects, Ordering::SeqCst);
    }
    let count = rows.batch.num_rows() as u64;
    if count > 0 {
        let written = AssertUnwindSafe(writer.write(&rows.batch)).catch_unwind().await;
        match written.unwrap_or_else(|_| Err(refused("the writer broke on the content of the file"))) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::File | ErrorKind::Data) => return Ok(Err(error)),
            Err(error) => return Err(error),
        }
        passed.rows.fetch_add(count, Ordering::SeqCst);
        pass.job.ctx.meter.add_rows(count);
    }
    Ok(Ok(()))
}

fn rejected(pass: &Reading, index: usize, reject: Reject) -> Rejected {
    let origin = &pass.origins[index];
    Rejected {
        batch_id: origin.batch,
        file_path: origin.file.path.clone(),
        row_number: reject.row_number,
        refused_by: pass.job.plan.table.clone(),
        reason_kind: reject.kind,
        reason: reject.reason,
        column: None,
        value: None,
        record: Some(reject.raw),
        header: reject.header,
    }
}
