//! What becomes of the touched files: written anew, marked in a deletion vector, or removed.

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use deltalake::kernel::Action;
use futures::TryStreamExt;
use parquet::arrow::arrow_reader::RowSelection;
use roaring::RoaringTreemap;

use super::apply::Plan;
use super::feed::{ChangeType, FeedWriter};
use super::file::{Files, remove, with_vector};
use super::probe::{Hit, Touched};
use super::rewrite::{Job, Output, Replaced, rewrite as rewrite_files};
use super::{Probed, Verdict, held_bytes, rows};
use crate::error::{Error, Result};
use crate::lakehouse::Lake;
use crate::table::Table;
use crate::vectors;

/// Rows of the feed that are read at a time.
const FEED_ROWS: usize = 8192;
const NONE: u32 = u32::MAX;

/// The actions that take files away.
pub(super) fn removes(plan: &Plan<'_>) -> Vec<Action> {
    let files = plan.anew.iter().chain(&plan.gone).chain(&plan.marked);
    files.map(|touched| Action::Remove(remove(&touched.file))).collect()
}

/// Writes files anew, as many at a time as their new rows fit into memory.
pub(super) async fn rewrite(lake: &Lake, table: &Table, probed: &Probed, plan: &Plan<'_>) -> Result<Output> {
    let budget = held_bytes(lake);
    let mut output = Output::default();
    let mut files = plan.anew.as_slice();
    while !files.is_empty() {
        let (now, later) = files.split_at(fitting(probed, files, budget));
        let jobs = jobs(table, probed, now)?;
        output = output.and(rewrite_files(table, jobs, plan.with_feed, lake.engine().threads()).await?);
        files = later;
    }
    if plan.with_feed {
        output.feed.extend(before_marked(table, probed, plan).await?);
    }
    Ok(output)
}

/// How many of these files, at least one, have new rows that fit into so many bytes.
fn fitting(probed: &Probed, files: &[&Touched], budget: usize) -> usize {
    let rows = usize::try_from(probed.changes.rows()).unwrap_or(usize::MAX).max(1);
    let row_bytes = probed.changes.bytes().div_ceil(rows);
    let mut bytes = 0_usize;
    let fit = files.iter().take_while(|file| {
        bytes = bytes.saturating_add(file.hits.len().saturating_mul(row_bytes));
        bytes <= budget
    });
    fit.count().max(1)
}

fn jobs(table: &Table, probed: &Probed, files: &[&Touched]) -> Result<Vec<Job>> {
    let is_update = |hit: &Hit| probed.verdicts[hit.change as usize] == Verdict::Update;
    // Of each change its place among the new rows of these files.
    let mut places = vec![NONE; probed.verdicts.len()];
    for hit in files.iter().flat_map(|file| &file.hits).filter(|hit| is_update(hit)) {
        places[hit.change as usize] = 0;
    }
    for (place, change) in places.iter_mut().filter(|place| **place != NONE).enumerate() {
        *change = u32::try_from(place).unwrap_or(NONE);
    }
    let batches = rows::of_table(&probed.changes, 0..places.len(), |change| places[change] != NONE, table)?;
    let batches = batches.collect::<Result<Vec<RecordBatch>>>()?;
    let updates = concat_batches(&table.schema(), &batches)?;
    drop(batches);
    let job = |touched: &&Touched| {
        let rows = touched.hits.iter().map(|hit| Replaced { row: hit.row, is_update: is_update(hit) });
        let of_file = touched.hits.iter().filter(|hit| is_update(hit)).map(|hit| places[hit.change as usize]);
        Ok(Job {
            file: touched.file.clone(),
            rows: rows.collect(),
            deleted: touched.deleted.clone(),
            updates: take_record_batch(&updates, &UInt32Array::from_iter_values(of_file))?,
        })
    };
    files.iter().map(job).collect()
}

/// Marks rows as deleted: writes the vectors, and names the files that have them from now on.
pub(super) async fn mark(table: &Table, plan: &Plan<'_>) -> Result<Vec<Action>> {
    if plan.marked.is_empty() {
        return Ok(Vec::new());
    }
    let all = plan.marked.iter().map(|touched| {
        let mut deleted = touched.deleted.clone();
        deleted.extend(touched.hits.iter().map(|hit| u64::from(hit.row)));
        deleted
    });
    let all: Vec<RoaringTreemap> = all.collect();
    let files = Files::of(table)?;
    let vectors = vectors::write(files.store(), &all).await?;
    plan.marked
        .iter()
        .zip(vectors)
        .map(|(touched, vector)| Ok(Action::Add(with_vector(&touched.file, vector)?)))
        .collect()
}

/// The feed of rows that are marked as deleted, as they were.
async fn before_marked(table: &Table, probed: &Probed, plan: &Plan<'_>) -> Result<Vec<Action>> {
    let files = Files::of(table)?;
    let columns: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut feed = FeedWriter::new(table);
    for touched in plan.marked.iter().chain(&plan.gone) {
        let open = files.open(&touched.file).await?;
        let groups: Vec<usize> = (0..open.metadata().num_row_groups()).collect();
        let ranges = touched.hits.iter().map(|hit| hit.row as usize..hit.row as usize + 1);
        let selection = RowSelection::from_consecutive_ranges(ranges, open.places(&groups).rows());
        let mut batches = open.read(&columns, groups, Some(selection), FEED_ROWS)?;
        let mut hits = touched.hits.as_slice();
        while let Some(batch) = batches.try_next().await? {
            let (here, rest) = hits.split_at_checked(batch.num_rows()).ok_or_else(|| more_rows(touched))?;
            for (verdict, change_type) in [(Verdict::Update, ChangeType::Before), (Verdict::Delete, ChangeType::Delete)]
            {
                let rows = (0_u32..).zip(here).filter(|(_, hit)| probed.verdicts[hit.change as usize] == verdict);
                let rows = UInt32Array::from_iter_values(rows.map(|(row, _)| row));
                feed.write(&take_record_batch(&batch, &rows)?, change_type).await?;
            }
            hits = rest;
        }
    }
    feed.close().await
}

fn more_rows(touched: &Touched) -> Error {
    Error::internal(format!("`{}` gave more rows than were asked for", touched.file.path()))
}
