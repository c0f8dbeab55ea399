//! Files written anew, row by row in their order: replaced rows in their old places, deleted ones left out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use deltalake::kernel::{Action, LogicalFileView};
use futures::TryStreamExt;
use futures::future::try_join_all;
use roaring::RoaringTreemap;

use super::feed::{ChangeType, FeedWriter};
use super::file::Files;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::write::{TableWriter, Written};

/// Rows that are read and written at a time.
const BATCH_ROWS: usize = 8192;
/// Files smaller than this together become one.
const JOINED_BYTES: i64 = 8 * 1024 * 1024;

/// A file to be written anew.
pub(super) struct Job {
    pub(super) file: LogicalFileView,
    /// The rows that are replaced or deleted, ascending.
    pub(super) rows: Vec<Replaced>,
    /// The rows that were deleted before.
    pub(super) deleted: RoaringTreemap,
    /// The rows that take the place of others, in the order of [`Job::rows`].
    pub(super) updates: RecordBatch,
}

/// A row that does not stay as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replaced {
    /// The number of the row in its file.
    pub(super) row: u32,
    /// False when it is deleted.
    pub(super) is_update: bool,
}

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) written: Written,
    pub(super) feed: Vec<Action>,
    /// Rows that were written as they were.
    pub(super) copied: u64,
}

impl Output {
    pub(super) fn and(self, more: Self) -> Self {
        let feed = self.feed.into_iter().chain(more.feed).collect();
        Self { written: self.written.and(more.written), feed, copied: self.copied + more.copied }
    }
}

/// Writes files anew, `workers` of them at a time.
pub(super) async fn rewrite(table: &Table, jobs: Vec<Job>, with_feed: bool, workers: usize) -> Result<Output> {
    let (workers, files) = (workers.min(jobs.len()), Files::of(table)?);
    let jobs = Arc::new(Mutex::new(VecDeque::from(jobs)));
    let work = (0..workers).map(|_| {
        let worker = Worker {
            files: files.clone(),
            columns: table.schema().fields().iter().map(|field| field.name().clone()).collect(),
            writer: TableWriter::new(table),
            feed: with_feed.then(|| FeedWriter::new(table)),
            small_bytes: 0,
            copied: 0,
        };
        let jobs = Arc::clone(&jobs);
        async move {
            let output = tokio::spawn(worker.run(jobs)).await;
            output.map_err(|error| Error::internal("a writer ended early").with_source(error))?
        }
    });
    Ok(try_join_all(work).await?.into_iter().fold(Output::default(), Output::and))
}

struct Worker {
    files: Files,
    columns: Vec<String>,
    writer: TableWriter,
    feed: Option<FeedWriter>,
    /// Bytes of small files that went into the file that is being written.
    small_bytes: i64,
    copied: u64,
}

impl Worker {
    async fn run(mut self, jobs: Arc<Mutex<VecDeque<Job>>>) -> Result<Output> {
        loop {
            let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(job) = next else { break };
            if let Err(error) = self.rewrite(&job).await {
                self.writer.abort().await;
                if let Some(feed) = self.feed {
                    feed.abort().await;
                }
                return Err(error);
            }
        }
        let feed = match self.feed {
            Some(feed) => feed.close().await?,
            None => Vec::new(),
        };
        Ok(Output { written: self.writer.close().await?, feed, copied: self.copied })
    }

    async fn rewrite(&mut self, job: &Job) -> Result<()> {
        let open = self.files.open(&job.file).await?;
        let groups = (0..open.metadata().num_row_groups()).collect();
        let mut batches = open.read(&self.columns, groups, None, BATCH_ROWS)?;
        let (mut first, mut rows, mut update) = (0_usize, job.rows.as_slice(), 0_usize);
        while let Some(batch) = batches.try_next().await? {
            let end = first + batch.num_rows();
            let split = rows.partition_point(|replaced| (replaced.row as usize) < end);
            let (here, rest) = rows.split_at(split);
            let plan = Plan::new(here, first..end, &job.deleted, update);
            self.write(&batch, &plan, job).await?;
            update += plan.updates.len();
            (first, rows) = (end, rest);
        }
        if !rows.is_empty() || update != job.updates.num_rows() {
            return Err(Error::internal(format!("rows of `{}` that were found are not there", job.file.path())));
        }
        self.small_bytes += job.file.size();
        if self.small_bytes >= JOINED_BYTES {
            self.writer.roll().await?;
            self.small_bytes = 0;
        }
        Ok(())
    }

    async fn write(&mut self, batch: &RecordBatch, plan: &Plan, job: &Job) -> Result<()> {
        self.copied += plan.kept;
        match &plan.order {
            None => self.writer.write(batch).await?,
            Some(order) => self.writer.write(&interleave_record_batch(&[batch, &job.updates], order)?).await?,
        }
        let Some(feed) = &mut self.feed else { return Ok(()) };
        if let (Some(first), Some(last)) = (plan.updates.first(), plan.updates.last()) {
            let before = take_record_batch(batch, &UInt32Array::from(plan.replaced.clone()))?;
            feed.write(&before, ChangeType::Before).await?;
            feed.write(&job.updates.slice(*first, last - first + 1), ChangeType::After).await?;
        }
        if !plan.gone.is_empty() {
            let gone = take_record_batch(batch, &UInt32Array::from(plan.gone.clone()))?;
            feed.write(&gone, ChangeType::Delete).await?;
        }
        Ok(())
    }
}

/// What is written of one batch of a file.
#[derive(Debug, Default)]
struct Plan {
    /// The rows as pairs of source (0: the batch, 1: the updates) and place; `None` for the batch as it is.
    order: Option<Vec<(usize, usize)>>,
    /// Rows of the batch that stay.
    kept: u64,
    /// The places of the updates, which follow each other.
    updates: Vec<usize>,
    /// The rows of the batch that they replace.
    replaced: Vec<u32>,
    /// The rows of the batch that are deleted now.
    gone: Vec<u32>,
}

impl Plan {
    /// `rows` are those of the batch alone, `at` is the range of the batch in its file, `update` the next update.
    fn new(rows: &[Replaced], at: std::ops::Range<usize>, deleted: &RoaringTreemap, mut update: usize) -> Self {
        let mut before = deleted.iter();
        before.advance_to(at.start as u64);
        let mut before = before.take_while(|row| *row < at.end as u64).peekable();
        if rows.is_empty() && before.peek().is_none() {
            return Self { kept: at.len() as u64, ..Self::default() };
        }
        let mut plan = Self::default();
        let mut order = Vec::with_capacity(at.len());
        let mut rows = rows.iter().peekable();
        for row in at.clone() {
            let place = row - at.start;
            if before.next_if(|deleted| *deleted == row as u64).is_some() {
                continue;
            }
            match rows.next_if(|replaced| replaced.row as usize == row) {
                Some(Replaced { is_update: true, .. }) => {
                    order.push((1, update));
                    plan.replaced.push(u32::try_from(place).unwrap_or(u32::MAX));
                    plan.updates.push(update);
                    update += 1;
                }
                Some(_) => plan.gone.push(u32::try_from(place).unwrap_or(u32::MAX)),
                None => {
                    plan.kept += 1;
                    order.push((0, place));
                }
            }
        }
        plan.order = Some(order);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_rows_keep_their_places_and_deleted_ones_go() {
        let rows = [Replaced { row: 11, is_update: true }, Replaced { row: 13, is_update: false }];
        let deleted = RoaringTreemap::from_iter([10, 40]);
        let plan = Plan::new(&rows, 10..15, &deleted, 7);
        assert_eq!(plan.order, Some(vec![(1, 7), (0, 2), (0, 4)]));
        assert_eq!((plan.kept, plan.updates, plan.replaced, plan.gone), (2, vec![7], vec![1], vec![3]));
    }

    #[test]
    fn a_batch_without_changes_stays_as_it_is() {
        let plan = Plan::new(&[], 10..15, &RoaringTreemap::from_iter([9, 15]), 0);
        assert_eq!((plan.order, plan.kept), (None, 5));
    }
}
