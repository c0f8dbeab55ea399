//! Probed changes into files and actions of one commit.

use std::collections::BTreeMap;

use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, MergePredicate, SaveMode};

use super::probe::Touched;
use super::rewrite::Output;
use super::{Probed, Upsert, Verdict, feed, fresh, mode, recommit, replace};
use crate::commit::{Commit, Outcome, Txn, is_void};
use crate::error::{Error, Result};
use crate::lakehouse::Lake;
use crate::names::RunId;
use crate::table::Table;
use crate::vectors::path_of;
use crate::write::discard_paths;

/// What the commit carries.
pub(super) struct Target {
    pub(super) txns: Vec<Txn>,
    pub(super) run: RunId,
    pub(super) point: &'static str,
}

/// How the rows of the touched files are replaced.
pub(super) struct Plan<'a> {
    /// Files that are written anew.
    pub(super) anew: Vec<&'a Touched>,
    /// Files whose rows are marked as deleted.
    pub(super) marked: Vec<&'a Touched>,
    /// Files of which no row is left.
    pub(super) gone: Vec<&'a Touched>,
    /// Whether the commit brings a feed of its own.
    pub(super) with_feed: bool,
}

impl<'a> Plan<'a> {
    fn new(table: &Table, probed: &'a Probed) -> Result<Self> {
        let rewritten = mode::rewritten(probed.mode, table, &probed.touched)?;
        let mut plan = Self { anew: Vec::new(), marked: Vec::new(), gone: Vec::new(), with_feed: false };
        for (file, is_anew) in probed.touched.iter().zip(rewritten) {
            if is_anew {
                plan.anew.push(file);
            } else if file.deleted.len() + file.hits.len() as u64 == file.rows {
                plan.gone.push(file);
            } else {
                plan.marked.push(file);
            }
        }
        // Of a file that goes with a vector, delta-rs takes the rows that were deleted before for those that go now.
        let is_misread = plan.gone.iter().any(|file| !file.deleted.is_empty());
        plan.with_feed = (!plan.anew.is_empty() || is_misread) && feed::is_enabled(table)?;
        Ok(plan)
    }
}

pub(super) async fn apply(
    upsert: &Upsert,
    lake: &Lake,
    table: &mut Table,
    probed: &Probed,
    target: Target,
) -> Result<Outcome> {
    let started = lake.clock().now_micros();
    let plan = Plan::new(table, probed)?;
    // The new rows, the files written anew and the vectors have nothing to do with each other.
    let (fresh, anew, vectors) = futures::try_join!(
        fresh::write(lake, table, probed, &plan),
        replace::rewrite(lake, table, probed, &plan),
        replace::mark(table, &plan),
    )?;
    let output = fresh.and(anew);
    check(probed, &output)?;
    let millis = (lake.clock().now_micros() - started) / 1_000;
    let metrics = metrics(probed, &plan, &output, u64::try_from(millis).unwrap_or(0));
    let files = new_files(&output, &vectors)?;
    let adds = output.written.files.into_iter().map(Action::Add);
    let actions = replace::removes(&plan).into_iter().chain(vectors).chain(adds).chain(output.feed).collect();
    let Target { txns, run, point } = target;
    let operation = operation(upsert, probed);
    let commit = Commit { point, txns, operation, actions, blind_append: false, metrics, run };
    let outcome = recommit::commit(upsert, lake, table, probed, commit).await;
    if is_void(&outcome) {
        discard_paths(table, files.into_iter()).await;
    }
    outcome
}

/// The paths of all files that the commit brings: of rows, of the feed, and of vectors.
fn new_files(output: &Output, vectors: &[Action]) -> Result<Vec<String>> {
    let rows = output.written.files.iter().map(|file| Ok(file.path.clone()));
    let feed = output.feed.iter().filter_map(|action| match action {
        Action::Cdc(file) => Some(Ok(file.path.clone())),
        _ => None,
    });
    let vectors = vectors.iter().filter_map(|action| match action {
        Action::Add(file) => file.deletion_vector.as_ref(),
        _ => None,
    });
    let vectors = vectors.map(|vector| Ok(path_of(&vector.path_or_inline_dv)?.to_string()));
    let mut files = rows.chain(feed).chain(vectors).collect::<Result<Vec<_>>>()?;
    files.sort();
    files.dedup();
    Ok(files)
}

/// Every change that is to be in the table was written, and every row of a file was accounted for.
fn check(probed: &Probed, output: &Output) -> Result<()> {
    let figures = probed.figures;
    let expected = figures.inserted + figures.updated + output.copied;
    if output.written.rows != expected {
        let message = format!("{expected} rows were to be written and {} were", output.written.rows);
        return Err(Error::internal(message));
    }
    Ok(())
}

fn operation(upsert: &Upsert, probed: &Probed) -> DeltaOperation {
    if probed.figures.updated + probed.figures.deleted == 0 {
        return DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None };
    }
    let keys = upsert.keys.iter().map(|key| format!("target.`{key}` = source.`{key}`"));
    let keys = keys.collect::<Vec<_>>().join(" AND ");
    let predicate = |action: &str, rows: u64| {
        (rows > 0).then(|| MergePredicate { action_type: action.to_owned(), predicate: None })
    };
    let figures = probed.figures;
    let matched = [predicate("update", figures.updated), predicate("delete", figures.deleted)];
    DeltaOperation::Merge {
        predicate: Some(keys.clone()),
        merge_predicate: Some(keys),
        matched_predicates: matched.into_iter().flatten().collect(),
        not_matched_predicates: predicate("insert", figures.inserted).into_iter().collect(),
        not_matched_by_source_predicates: Vec::new(),
    }
}

/// The figures that `history` shows, by the names that Delta gives to those of a MERGE.
fn metrics(probed: &Probed, plan: &Plan<'_>, output: &Output, millis: u64) -> BTreeMap<&'static str, u64> {
    let figures = probed.figures;
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let updated = plan.marked.iter().filter(|file| !file.deleted.is_empty()).count();
    let dropped = plan.anew.iter().chain(&plan.gone).filter(|file| !file.deleted.is_empty()).count();
    BTreeMap::from([
        ("numSourceRows", probed.changes.rows()),
        ("numOutputRows", output.written.rows),
        ("numTargetRowsInserted", figures.inserted),
        ("numTargetRowsUpdated", figures.updated),
        ("numTargetRowsDeleted", figures.deleted),
        ("numTargetRowsCopied", output.copied),
        ("numTargetFilesAdded", count(output.written.files.len())),
        ("numTargetFilesRemoved", count(plan.anew.len() + plan.gone.len())),
        ("numTargetFilesScanned", count(probed.scanned.0)),
        ("numTargetFilesSkippedDuringScan", count(probed.scanned.1)),
        ("numTargetDeletionVectorsAdded", count(plan.marked.len() - updated)),
        ("numTargetDeletionVectorsUpdated", count(updated)),
        ("numTargetDeletionVectorsRemoved", count(dropped)),
        ("numTargetChangeFilesAdded", count(output.feed.len())),
        ("executionTimeMs", millis),
        ("rewriteTimeMs", millis),
    ])
}

/// Which changes become rows of new files: new keys, and new values of rows whose files stay.
pub(super) fn is_fresh(probed: &Probed, plan: &Plan<'_>) -> Vec<bool> {
    let mut fresh: Vec<bool> =
        probed.verdicts.iter().map(|verdict| matches!(verdict, Verdict::Insert | Verdict::Update)).collect();
    for hit in plan.anew.iter().flat_map(|file| &file.hits) {
        fresh[hit.change as usize] = false;
    }
    fresh
}
