//! Rows that meet a condition removed from a table, by the means of the upsert: files are written anew without them, or
//! they are marked as deleted, and files of which nothing is left go.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::ExprSchemable;
use datafusion::physical_expr::PhysicalExpr;
use deltalake::kernel::{Action, LogicalFileView};
use deltalake::protocol::DeltaOperation;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::RowSelection;
use roaring::RoaringTreemap;

use super::feed::{ChangeType, FeedWriter, is_enabled};
use super::file::{Files, remove, with_vector};
use super::mode::is_better_rewritten;
use super::rewrite::{Job, Output, Replaced, rewrite};
use crate::commit::{ByHand, Outcome, evolve, is_void};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::expression::{Values, by_row, planned, strict};
use crate::lakehouse::Lake;
use crate::names::RunId;
use crate::table::Table;
use crate::vectors;
use crate::write::discard_paths;

/// Rows that are asked at a time.
const BATCH_ROWS: usize = 8192;

/// The rows of one version of a table that meet a condition.
pub struct Doomed {
    condition: String,
    files: Vec<DoomedFile>,
}

/// A file with such rows.
struct DoomedFile {
    file: LogicalFileView,
    /// The rows that meet the condition.
    rows: RoaringTreemap,
    /// Those that were deleted before.
    deleted: RoaringTreemap,
    /// All rows of the file.
    all: u64,
}

impl DoomedFile {
    fn is_gone(&self) -> bool {
        self.rows.len() + self.deleted.len() == self.all
    }
}

/// What is asked of each row.
struct Condition {
    physical: Arc<dyn PhysicalExpr>,
    /// The columns that it looks at.
    columns: Vec<String>,
}

/// Finds the rows of the open version that meet a condition: those for which it is true.
///
/// # Errors
/// [`ErrorKind::Query`] when it is no condition on the columns, [`ErrorKind::Data`] when it cannot be computed for a row.
pub async fn doomed(lake: &Lake, table: &Table, condition: &str) -> Result<Doomed> {
    let asked = Arc::new(ready(lake, table, condition)?);
    let files = Files::of(table)?;
    let log = table.delta().snapshot()?.log_data();
    let looks = log.iter().collect::<Vec<_>>().into_iter().map(|file| {
        let (files, asked) = (files.clone(), Arc::clone(&asked));
        async move {
            let looked = tokio::spawn(async move { asked.of(file, &files).await }).await;
            looked.map_err(|error| Error::internal("a reader ended early").with_source(error))?
        }
    });
    let found: Vec<DoomedFile> = stream::iter(looks).buffered(lake.engine().threads()).try_collect().await?;
    let files = found.into_iter().filter(|file| !file.rows.is_empty()).collect();
    Ok(Doomed { condition: condition.to_owned(), files })
}

fn ready(lake: &Lake, table: &Table, condition: &str) -> Result<Condition> {
    let place = || format!("the condition `{condition}` on {}", table.name());
    let (schema, session) = (table.schema(), lake.session()?);
    let (state, frame) = (session.context().state(), DFSchema::try_from(table.schema())?);
    let wrong = |error: datafusion::error::DataFusionError| Error::new(ErrorKind::Query, error.strip_backtrace());
    let logical = state.create_logical_expr(condition, &frame).map_err(wrong).context(place)?;
    let mut columns: Vec<String> = logical.column_refs().into_iter().map(|column| column.name.clone()).collect();
    columns.sort();
    // The rows have these columns alone.
    let places = columns.iter().map(|name| Ok(schema.index_of(name)?)).collect::<Result<Vec<_>>>().context(place)?;
    let asked = Arc::new(schema.project(&places)?);
    let kind = logical.get_type(&frame).map_err(wrong).context(place)?;
    if kind != DataType::Boolean {
        let message = format!("`{condition}` is {kind} and no condition");
        return Err(Error::new(ErrorKind::Query, message).hint("write one like `status = 'cancelled'`"));
    }
    let physical = planned(logical, &asked, &state).and_then(|physical| strict(physical, &asked));
    Ok(Condition { physical: physical.map_err(wrong).context(place)?, columns })
}

impl Condition {
    async fn of(&self, file: LogicalFileView, files: &Files) -> Result<DoomedFile> {
        let open = files.open(&file).await?;
        let deleted = files.deleted(&file).await?;
        let groups: Vec<usize> = (0..open.metadata().num_row_groups()).collect();
        let all = open.places(&groups).rows() as u64;
        let mut batches = open.read(&self.columns, groups, None, BATCH_ROWS)?;
        let (mut rows, mut first) = (RoaringTreemap::new(), 0_u64);
        while let Some(batch) = batches.try_next().await? {
            let Values { array, failed } = by_row(&self.physical, &DataType::Boolean, &batch)?;
            if let Some((row, why)) = failed.into_iter().find(|(row, _)| !deleted.contains(first + *row as u64)) {
                let message = format!(
                    "the condition cannot be computed for row {} of `{}`: {why}",
                    first + row as u64,
                    file.path()
                );
                return Err(Error::new(ErrorKind::Data, message));
            }
            let met = array.as_boolean().iter().enumerate().filter(|(_, met)| *met == Some(true));
            rows.extend(met.map(|(row, _)| first + row as u64));
            first += batch.num_rows() as u64;
        }
        rows -= &deleted;
        Ok(DoomedFile { file, rows, deleted, all })
    }
}

impl Doomed {
    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows.len()).sum()
    }

    /// In how many files, and of how many of these nothing is left.
    pub fn files(&self) -> (usize, usize) {
        (self.files.len(), self.files.iter().filter(|file| file.is_gone()).count())
    }

    /// Removes the rows from the version that they were found in, and sets properties in the same commit.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another writer came first: find them again. As [`Table::commit`].
    pub async fn remove(
        &self,
        lake: &Lake,
        table: &mut Table,
        properties: &[(String, String)],
        run: &RunId,
    ) -> Result<Outcome> {
        let (gone, left): (Vec<&DoomedFile>, Vec<&DoomedFile>) = self.files.iter().partition(|file| file.is_gone());
        let vectors = table.allows_deletion_vectors()?;
        let is_anew = |file: &&DoomedFile| {
            !vectors || is_better_rewritten(&file.file, file.rows.len() + file.deleted.len(), file.all)
        };
        let (anew, marked): (Vec<&DoomedFile>, Vec<&DoomedFile>) = left.into_iter().partition(is_anew);
        // Of a file that goes with a vector, delta-rs takes the rows that were deleted before for those that go now.
        let is_misread = gone.iter().any(|file| !file.deleted.is_empty());
        let with_feed = (!anew.is_empty() || is_misread) && is_enabled(table)?;
        let mut output = rewrite(table, jobs(table, &anew)?, with_feed, lake.engine().threads()).await?;
        let kept: u64 = anew.iter().map(|file| file.all - file.rows.len() - file.deleted.len()).sum();
        if output.copied != kept || output.written.rows != kept {
            let message = format!("{kept} rows were to be kept and {} were written", output.written.rows);
            return Err(Error::internal(message));
        }
        let mut vectors = Vec::new();
        if !marked.is_empty() {
            vectors = mark(table, &marked).await?;
        }
        if with_feed {
            output.feed.extend(feed(table, &[marked.as_slice(), &gone].concat()).await?);
        }
        let metrics = BTreeMap::from([
            ("numDeletedRows", self.rows()),
            ("numCopiedRows", output.copied),
            ("numRemovedFiles", (anew.len() + gone.len()) as u64),
            ("numAddedFiles", output.written.files.len() as u64),
            ("numDeletionVectorsAdded", marked.len() as u64),
            ("numAddedChangeFiles", output.feed.len() as u64),
        ]);
        let files = new_files(&output, &vectors)?;
        let removes = self.files.iter().map(|file| Action::Remove(remove(&file.file)));
        let adds = output.written.files.into_iter().map(Action::Add);
        let metadata = evolve(table, &table.schema(), properties)?;
        let actions = metadata.into_iter().chain(removes).chain(vectors).chain(adds).chain(output.feed).collect();
        let operation = DeltaOperation::Delete { predicate: Some(self.condition.clone()) };
        let asked = ByHand { point: "delete_committed", operation, actions, metrics };
        let outcome = table.commit_by_hand(asked, run).await;
        if is_void(&outcome) {
            discard_paths(table, files.into_iter()).await;
        }
        outcome
    }
}

fn jobs(table: &Table, files: &[&DoomedFile]) -> Result<Vec<Job>> {
    let job = |file: &&DoomedFile| {
        let row = |row: u64| Ok(Replaced { row: number(row)?, is_update: false });
        Ok(Job {
            file: file.file.clone(),
            rows: file.rows.iter().map(row).collect::<Result<Vec<_>>>()?,
            deleted: file.deleted.clone(),
            updates: RecordBatch::new_empty(table.schema()),
        })
    };
    files.iter().map(job).collect()
}

fn number(row: u64) -> Result<u32> {
    u32::try_from(row).map_err(|_| Error::internal("a file has more rows than can be told apart"))
}

async fn mark(table: &Table, files: &[&DoomedFile]) -> Result<Vec<Action>> {
    let all: Vec<RoaringTreemap> = files.iter().map(|file| &file.deleted | &file.rows).collect();
    let written = vectors::write(Files::of(table)?.store(), &all).await?;
    let named = files.iter().zip(written);
    named.map(|(file, vector)| Ok(Action::Add(with_vector(&file.file, vector)?))).collect()
}

/// The feed of rows whose files are not written anew.
async fn feed(table: &Table, doomed: &[&DoomedFile]) -> Result<Vec<Action>> {
    let files = Files::of(table)?;
    let columns: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut feed = FeedWriter::new(table);
    for file in doomed {
        let open = files.open(&file.file).await?;
        let groups: Vec<usize> = (0..open.metadata().num_row_groups()).collect();
        let rows = file.rows.iter().map(|row| Ok(number(row)? as usize)).collect::<Result<Vec<_>>>()?;
        let ranges = rows.into_iter().map(|row| row..row + 1);
        let selection = RowSelection::from_consecutive_ranges(ranges, open.places(&groups).rows());
        let mut batches = open.read(&columns, groups, Some(selection), BATCH_ROWS)?;
        while let Some(batch) = batches.try_next().await? {
            feed.write(&batch, ChangeType::Delete).await?;
        }
    }
    feed.close().await
}

/// The paths of all files that the commit brings.
fn new_files(output: &Output, vectors: &[Action]) -> Result<Vec<String>> {
    let mut files: Vec<String> = output.written.files.iter().map(|file| file.path.clone()).collect();
    for action in output.feed.iter().chain(vectors) {
        match action {
            Action::Cdc(file) => files.push(file.path.clone()),
            Action::Add(file) => {
                if let Some(vector) = &file.deletion_vector {
                    files.push(vectors::path_of(&vector.path_or_inline_dv)?.to_string());
                }
            }
            _ => {}
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}
