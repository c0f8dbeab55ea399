//! What each change meets: nothing, an older row, or a newer one; and where that row is.
//!
//! Of the files that may hold a key of the changes only the key columns are read, and of the rows that are hit the
//! columns that decide which is newer. Files are read side by side. Changes whose keys are too many to be held at once
//! are looked for in parts, one after the other; what is kept of all is a few bytes a change.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use deltalake::kernel::LogicalFileView;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::RowSelection;
use roaring::RoaringTreemap;

use super::file::{Files, OpenFile};
use super::index::{Comparison, Index};
use super::part::Part;
use super::prune::Pruning;
use super::{DELETE, Probed, Upsert, UpsertFigures, Verdict};
use crate::error::{Error, Result};
use crate::lakehouse::Lake;
use crate::stage::Staged;
use crate::table::Table;

/// Rows of a file that are looked up at a time.
const LOOKUP_ROWS: usize = 16 * 1024;

/// A row of a file that a change replaces or deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    /// The number of the row in its file.
    pub(super) row: u32,
    /// The number of the change.
    pub(super) change: u32,
}

/// A file with rows that are replaced or deleted.
pub(super) struct Touched {
    pub(super) file: LogicalFileView,
    /// The rows, ascending.
    pub(super) hits: Vec<Hit>,
    /// The rows of the file that are deleted already.
    pub(super) deleted: RoaringTreemap,
    /// All rows of the file, deleted ones among them.
    pub(super) rows: u64,
}

impl std::fmt::Debug for Touched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Touched").field("file", &self.file.path()).field("hits", &self.hits.len()).finish()
    }
}

/// A row that has the key of a change.
struct Met {
    hit: Hit,
    is_newer: bool,
}

/// A file that was read, with the rows that were met.
struct Seen {
    file: LogicalFileView,
    met: Vec<Met>,
    deleted: RoaringTreemap,
    rows: u64,
}

/// The files that may hold keys, and what tells so.
struct Candidates {
    files: Vec<LogicalFileView>,
    pruning: Pruning,
}

/// What the changes are looked for with.
struct Search {
    files: Files,
    index: Index,
    pruning: Pruning,
    keys: Vec<String>,
    order: Vec<String>,
    /// The order columns of the changes.
    parts: Vec<ArrayRef>,
    /// The number of the first change.
    first: usize,
}

pub(super) async fn probe(upsert: &Upsert, lake: &Lake, table: &Table, changes: &Staged) -> Result<Probed> {
    if table.file_count()? == 0 {
        // A first load: nothing can be met, whatever the keys are.
        let verdicts = initial(&delete_of(changes)?);
        let figures = figures(&verdicts);
        return Ok(Probed::new(changes.clone(), verdicts, Vec::new(), (0, 0), figures));
    }
    let snapshot = table.delta().snapshot()?;
    let mut verdicts = Vec::new();
    let mut scanned = HashSet::new();
    let (mut seen, mut places) = (Vec::<Seen>::new(), HashMap::new());
    for part in Part::all(upsert, lake, table, changes)? {
        let part = part?;
        verdicts.extend(initial(&part.delete));
        let candidates = candidates(upsert, table, &part, |_| true)?;
        scanned.extend(candidates.files.iter().map(|file| file.path().into_owned()));
        for file in search(upsert, lake, table, part, candidates).await? {
            match places.entry(file.file.path().into_owned()) {
                Entry::Vacant(place) => {
                    place.insert(seen.len());
                    seen.push(file);
                }
                Entry::Occupied(place) => seen[*place.get()].met.extend(file.met),
            }
        }
    }
    let files = snapshot.log_data().num_files();
    let touched = judged(seen, &mut verdicts)?;
    let figures = figures(&verdicts);
    Ok(Probed::new(changes.clone(), verdicts, touched, (scanned.len(), files - scanned.len()), figures))
}

/// The files of which rows are replaced or deleted; what each change does is told by `verdicts`.
fn judged(seen: Vec<Seen>, verdicts: &mut [Verdict]) -> Result<Vec<Touched>> {
    let mut touched = Vec::new();
    for seen in seen {
        let mut hits = Vec::new();
        for Met { hit, is_newer } in seen.met {
            let verdict = &mut verdicts[hit.change as usize];
            *verdict = match (*verdict, is_newer) {
                (Verdict::Insert | Verdict::Absent, true) => Verdict::Stale,
                (Verdict::Insert, false) => Verdict::Update,
                (Verdict::Absent, false) => Verdict::Delete,
                _ => return Err(Error::internal("a change met more than one row: the table holds a key twice")),
            };
            if !is_newer {
                hits.push(hit);
            }
        }
        // Each part of the changes came upon the rows in their order.
        hits.sort_unstable_by_key(|hit| hit.row);
        if hits.windows(2).any(|pair| pair[0].row == pair[1].row) {
            return Err(Error::internal("two changes of one upsert have the same key"));
        }
        if !hits.is_empty() {
            touched.push(Touched { file: seen.file, hits, deleted: seen.deleted, rows: seen.rows });
        }
    }
    Ok(touched)
}

/// True when one of these files of the table, told by their paths, holds the key of a change.
pub(super) async fn meets(
    upsert: &Upsert,
    lake: &Lake,
    table: &Table,
    changes: &Staged,
    is_new: impl Fn(&LogicalFileView) -> bool,
) -> Result<bool> {
    for part in Part::all(upsert, lake, table, changes)? {
        let part = part?;
        let candidates = candidates(upsert, table, &part, &is_new)?;
        let seen = search(upsert, lake, table, part, candidates).await?;
        if seen.iter().any(|seen| !seen.met.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether each change deletes.
fn delete_of(changes: &Staged) -> Result<ArrayRef> {
    let place = changes.schema().index_of(DELETE)?;
    let rows = usize::try_from(changes.rows()).unwrap_or(usize::MAX);
    let batches = changes.batches(&[place], 0..rows)?.collect::<Result<Vec<RecordBatch>>>()?;
    let parts: Vec<&dyn arrow::array::Array> = batches.iter().map(|batch| batch.column(0).as_ref()).collect();
    Ok(if parts.is_empty() { new_empty_array(&DataType::Boolean) } else { concat(&parts)? })
}

/// The files that may hold a key, by what the log knows of them.
fn candidates(
    upsert: &Upsert,
    table: &Table,
    changes: &Part,
    wanted: impl Fn(&LogicalFileView) -> bool,
) -> Result<Candidates> {
    if upsert.keys.is_empty() {
        return Err(Error::internal("an upsert needs keys"));
    }
    let log = table.delta().snapshot()?.log_data();
    let pruning = Pruning::new(&upsert.keys, &changes.keys, &table.partition_columns()?)?;
    let may = if changes.delete.is_empty() { vec![false; log.num_files()] } else { pruning.files(&log)? };
    let files = log.iter().zip(may).filter(|(file, may)| *may && wanted(file)).map(|(file, _)| file);
    Ok(Candidates { files: files.collect(), pruning })
}

/// The rows of these files that have the key of a change.
async fn search(
    upsert: &Upsert,
    lake: &Lake,
    table: &Table,
    changes: Part,
    Candidates { files, pruning }: Candidates,
) -> Result<Vec<Seen>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let search = Arc::new(Search {
        files: Files::of(table)?,
        pruning,
        index: Index::new(changes.keys)?,
        keys: upsert.keys.clone(),
        order: upsert.order_in(&table.schema()).map(str::to_owned).collect(),
        parts: changes.order,
        first: changes.first,
    });
    let tasks = stream::iter(files.into_iter().map(|file| {
        let search = Arc::clone(&search);
        async move {
            let seen = tokio::spawn(async move { search.look(file).await }).await;
            seen.map_err(|error| Error::internal("a reader ended early").with_source(error))?
        }
    }));
    // One more than there are cores: while one file is fetched another is looked through.
    tasks.buffered(lake.engine().threads() + 1).try_collect().await
}

impl Search {
    async fn look(&self, file: LogicalFileView) -> Result<Seen> {
        let open = self.files.open(&file).await?;
        let rows: i64 = open.metadata().row_groups().iter().map(|group| group.num_rows()).sum();
        if u32::try_from(rows).is_err() {
            return Err(Error::internal(format!("`{}` has {rows} rows, more than an upsert can take", file.path())));
        }
        let groups = self.pruning.row_groups(&open)?;
        let deleted = self.files.deleted(&file).await?;
        let found = if groups.is_empty() { Vec::new() } else { self.find(&open, &groups, &deleted).await? };
        let mut met = self.judge(&open, &groups, found).await?;
        let first = u32::try_from(self.first).unwrap_or(u32::MAX);
        met.iter_mut().for_each(|met| met.hit.change += first);
        Ok(Seen { file, met, deleted, rows: u64::try_from(rows).unwrap_or(0) })
    }

    /// The rows that have the key of a change: their numbers along the row groups, and themselves.
    async fn find(&self, open: &OpenFile, groups: &[usize], deleted: &RoaringTreemap) -> Result<Vec<(usize, Hit)>> {
        let mut batches = open.read(&self.keys, groups.to_vec(), None, LOOKUP_ROWS)?;
        let (mut found, mut first) = (Vec::new(), 0);
        while let Some(batch) = batches.try_next().await? {
            let matches = self.index.matches(batch.columns())?;
            found.extend(matches.into_iter().map(|found| (first + found.row as usize, found.change)));
            first += batch.num_rows();
        }
        let places = open.places(groups);
        if places.rows() != first {
            return Err(Error::internal("a file has another number of rows than its footer says"));
        }
        let in_file = places.in_file(found.iter().map(|(along, _)| *along));
        let hits = in_file.zip(&found).map(|(row, (along, change))| {
            (*along, Hit { row: u32::try_from(row).unwrap_or(u32::MAX), change: *change })
        });
        Ok(hits.filter(|(_, hit)| deleted.is_empty() || !deleted.contains(u64::from(hit.row))).collect())
    }

    /// Whether each row is newer than the change that met it.
    async fn judge(&self, open: &OpenFile, groups: &[usize], found: Vec<(usize, Hit)>) -> Result<Vec<Met>> {
        if found.is_empty() || self.order.is_empty() {
            return Ok(found.into_iter().map(|(_, hit)| Met { hit, is_newer: false }).collect());
        }
        let all = open.places(groups).rows();
        let selection =
            RowSelection::from_consecutive_ranges(runs(found.iter().map(|(along, _)| *along)).into_iter(), all);
        let mut batches = open.read(&self.order, groups.to_vec(), Some(selection), LOOKUP_ROWS)?;
        let mut met = Vec::with_capacity(found.len());
        let mut hits = found.into_iter().map(|(_, hit)| hit);
        while let Some(batch) = batches.try_next().await? {
            let order = Comparison::new(&self.parts, batch.columns())?;
            for (row, hit) in hits.by_ref().take(batch.num_rows()).enumerate() {
                met.push(Met { hit, is_newer: order.of(hit.change as usize, row).is_lt() });
            }
        }
        if hits.next().is_some() {
            return Err(Error::internal("a file has fewer rows than its footer says"));
        }
        Ok(met)
    }
}

/// Ascending numbers as ranges of consecutive ones.
fn runs(numbers: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// What the changes do where they meet nothing.
fn initial(delete: &ArrayRef) -> Vec<Verdict> {
    delete
        .as_boolean()
        .iter()
        .map(|delete| if delete == Some(true) { Verdict::Absent } else { Verdict::Insert })
        .collect()
}

fn figures(verdicts: &[Verdict]) -> UpsertFigures {
    let mut figures = UpsertFigures::default();
    for verdict in verdicts {
        *match verdict {
            Verdict::Stale => &mut figures.stale,
            Verdict::Insert => &mut figures.inserted,
            Verdict::Update => &mut figures.updated,
            Verdict::Delete => &mut figures.deleted,
            Verdict::Absent => &mut figures.absent,
        } += 1;
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_one_range() {
        assert_eq!(runs([1, 2, 3, 7, 9, 10].into_iter()), [1..4, 7..8, 9..11]);
        assert!(runs(std::iter::empty()).is_empty());
    }
}
