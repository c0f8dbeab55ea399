//! What changed in a table between two versions, as the files that its log names: read without a look at the rest.
//!
//! Where a commit brings a change data feed, that says it. Where it does not, files that came are new rows and files
//! that went are old ones, each without what their deletion vectors leave out, and of a file whose vector alone changed
//! it is the rows by which the vectors differ. A file that was written anew without a feed so tells rows that did not
//! change at all: once as old, once as new. Who asks what a change touches gets too much then, never too little.

mod feed;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use deltalake::kernel::{Action, DeletionVectorDescriptor, Metadata};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use roaring::RoaringTreemap;
use serde_json::Value;

use crate::commit::actions_of;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::history::check_readable;
use crate::lakehouse::Lake;
use crate::stage::Staged;
use crate::table::Table;
use crate::upsert::feed::CHANGE_TYPE;
use crate::upsert::file::Files;
use crate::vectors;

pub use self::feed::{Feed, feed};

/// The boolean column of a changed row that says whether it is as the newer version has it, or as the older one had it.
pub const IS_NEW: &str = "__is_new";

/// Rows that are read at a time.
const BATCH_ROWS: usize = 8192;
/// Files that are looked for at the same time.
const LOOKED_AHEAD: usize = 16;

/// An answer that the log may not be able to give any more.
#[derive(Debug)]
pub enum Told<T> {
    /// The answer.
    Known(T),
    /// Why there is none, in words: `version 7 of silver.orders is gone`.
    Broken(String),
}

/// What changed in a table.
#[derive(Debug)]
pub struct Changes {
    table: Table,
    files: Vec<Changed>,
}

/// A file with changed rows.
#[derive(Debug, Clone)]
struct Changed {
    path: String,
    size: u64,
    partition: HashMap<String, Option<String>>,
    rows: Rows,
}

/// Which rows of a file changed, and how.
#[derive(Debug, Clone)]
enum Rows {
    /// All; a column says how.
    Feed,
    /// Those that `left` does not delete and, where it is given, `only` does.
    These { is_new: bool, left: Option<DeletionVectorDescriptor>, only: Option<DeletionVectorDescriptor> },
}

/// What changed in `table`, which is open at the newer version, since its version `from`, as far as it concerns these
/// columns.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read.
pub async fn between(table: &Table, from: u64, columns: &[String]) -> Result<Told<Changes>> {
    let mut files = Vec::new();
    let types = types(table.delta().snapshot()?.metadata())?;
    for version in from + 1..=table.version() {
        let Some(actions) = actions(table, version).await? else {
            return Ok(Told::Broken(format!("version {version} of {} is gone from its log", table.name())));
        };
        if let Some(what) = broken_by(&actions, &types, columns)? {
            return Ok(Told::Broken(format!("{} {what} in version {version}", table.name())));
        }
        match of_commit(actions) {
            Some(changed) => files.extend(changed),
            None => {
                let message = format!("version {version} of {} does not tell what it removed", table.name());
                return Ok(Told::Broken(message));
            }
        }
    }
    Ok(Told::Known(Changes { table: table.clone(), files }))
}

/// A table as it was at an older version than the one that it is open at, with all of its files still there.
///
/// # Errors
/// [`ErrorKind::Store`] when that cannot be found out.
pub async fn before(lake: &Lake, table: &Table, version: u64) -> Result<Told<Table>> {
    let old = match lake.table_at(table.name(), version).await {
        Ok(old) => old,
        // A log that begins later was cleaned; one that is whole may be read another time.
        Err(_) if actions(table, 0).await?.is_none() => {
            return Ok(Told::Broken(format!("version {version} of {} is gone", table.name())));
        }
        Err(error) => return Err(error),
    };
    match check_readable(&old, table).await {
        Ok(()) => Ok(Told::Known(old)),
        Err(error) if error.kind() == ErrorKind::Table => Ok(Told::Broken(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The newest version of a table that changed its rows after the last one of an application whose name begins with
/// `app`; `None` where there is none, as far as the log goes back.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read.
pub async fn last_foreign(table: &Table, app: &str) -> Result<Option<u64>> {
    for version in (0..=table.version()).rev() {
        let Some(actions) = actions(table, version).await? else { break };
        if actions.iter().any(|action| matches!(action, Action::Txn(txn) if txn.app_id.starts_with(app))) {
            break;
        }
        let is_change = |action: &Action| match action {
            Action::Add(file) => file.data_change,
            Action::Remove(file) => file.data_change,
            _ => false,
        };
        if actions.iter().any(is_change) {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

impl Changes {
    /// True when no row changed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes of the files with changed rows.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// The changed rows, with these columns and [`IS_NEW`].
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when a file cannot be read.
    pub async fn read(&self, lake: &Lake, columns: &[String]) -> Result<Told<Staged>> {
        let files = match Files::of(&self.table) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::Table => return Ok(Told::Broken(error.to_string())),
            Err(error) => return Err(error),
        };
        if let Some(gone) = self.gone(&files).await? {
            return Ok(Told::Broken(format!("`{gone}` of {} is gone, which tells what changed", self.table.name())));
        }
        let schema = self.schema(columns)?;
        let threads = lake.engine().threads().min(self.files.len()).max(1);
        let of_thread = |thread| {
            let mine: Vec<Changed> = self.files.iter().skip(thread).step_by(threads).cloned().collect();
            let reader = Reader { files: files.clone(), columns: columns.to_vec(), schema: Arc::clone(&schema) };
            reader.stream(mine)
        };
        let streams = (0..threads).map(of_thread).collect();
        Ok(Told::Known(Staged::write_streams(schema, streams).await?))
    }

    fn schema(&self, columns: &[String]) -> Result<SchemaRef> {
        let held = self.table.schema();
        let fields = columns.iter().map(|name| Ok(held.field_with_name(name)?.clone().with_nullable(true)));
        let mut fields = fields.collect::<Result<Vec<Field>>>()?;
        fields.push(Field::new(IS_NEW, DataType::Boolean, false));
        Ok(Arc::new(Schema::new(fields)))
    }

    /// The first file that is not there any more.
    async fn gone(&self, files: &Files) -> Result<Option<String>> {
        let mut wanted = BTreeSet::new();
        for file in &self.files {
            wanted.insert(place(&file.path));
            if let Rows::These { left, only, .. } = &file.rows {
                for vector in [left, only].into_iter().flatten() {
                    wanted.extend(vectors::file_of(vector)?);
                }
            }
        }
        let looks = wanted.into_iter().map(|path| is_gone(files.clone(), path).boxed()).collect::<Vec<_>>();
        let looked: Vec<Option<String>> = stream::iter(looks).buffered(LOOKED_AHEAD).try_collect().await?;
        Ok(looked.into_iter().flatten().next())
    }
}

/// The path of a file that is not there any more.
async fn is_gone(files: Files, path: Path) -> Result<Option<String>> {
    match files.store().head(&path).await {
        Ok(_) => Ok(None),
        Err(object_store::Error::NotFound { .. }) => Ok(Some(path.to_string())),
        Err(error) => Err(Error::from(error).context(format!("looking for `{path}`"))),
    }
}

/// Reads changed rows.
#[derive(Debug, Clone)]
struct Reader {
    files: Files,
    columns: Vec<String>,
    schema: SchemaRef,
}

impl Reader {
    fn stream(self, mine: Vec<Changed>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batches = stream::iter(mine).then(move |file| {
            let reader = self.clone();
            async move { reader.file(file).await }
        });
        let batches = batches.try_flatten().map_err(DataFusionError::from);
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    async fn file(self, file: Changed) -> Result<stream::BoxStream<'static, Result<RecordBatch>>> {
        let (mut files, mut columns) = (self.files.clone(), self.columns);
        if matches!(file.rows, Rows::Feed) {
            files = files.with_column(Field::new(CHANGE_TYPE, DataType::Utf8, true));
            columns.push(CHANGE_TYPE.to_owned());
        }
        let open = files.open_at(place(&file.path), file.size, file.partition.clone()).await?;
        let groups = (0..open.metadata().num_row_groups()).collect();
        let batches = open.read(&columns, groups, None, BATCH_ROWS)?;
        let schema = self.schema;
        let kept = match file.rows {
            Rows::Feed => None,
            Rows::These { is_new, left, only } => Some(Kept {
                is_new,
                left: vector(&self.files, left).await?.unwrap_or_default(),
                only: vector(&self.files, only).await?,
            }),
        };
        let mut first = 0_u64;
        let rows = batches.map(move |batch| {
            let batch = batch?;
            let rows = batch.num_rows() as u64;
            let told = match &kept {
                None => of_feed(&batch, &schema)?,
                Some(kept) => kept.of(&batch, first, &schema)?,
            };
            first += rows;
            Ok(told)
        });
        Ok(rows.boxed())
    }
}

/// Which rows of a file to keep, by their numbers.
struct Kept {
    is_new: bool,
    left: RoaringTreemap,
    only: Option<RoaringTreemap>,
}

impl Kept {
    fn of(&self, batch: &RecordBatch, first: u64, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let is_new: ArrayRef = Arc::new(BooleanArray::from(vec![self.is_new; rows]));
        let columns = batch.columns().iter().cloned().chain([is_new]).collect();
        let told = RecordBatch::try_new(Arc::clone(schema), columns)?;
        if self.left.is_empty() && self.only.is_none() {
            return Ok(told);
        }
        let mask: BooleanArray = (first..first + rows as u64).map(|row| Some(self.has(row))).collect();
        Ok(filter_record_batch(&told, &mask)?)
    }

    fn has(&self, row: u64) -> bool {
        !self.left.contains(row) && self.only.as_ref().is_none_or(|only| only.contains(row))
    }
}

/// Rows of a feed, with how they are told.
fn of_feed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let kinds = batch.column(batch.num_columns() - 1).as_string::<i32>();
    let is_new: BooleanArray = kinds
        .iter()
        .map(|kind| match kind {
            Some("insert" | "update_postimage") => Ok(Some(true)),
            Some("delete" | "update_preimage") => Ok(Some(false)),
            other => Err(Error::internal(format!("a change data feed has the type `{}`", other.unwrap_or("null")))),
        })
        .collect::<Result<_>>()?;
    let columns = batch.columns()[..batch.num_columns() - 1].iter().cloned();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.chain([Arc::new(is_new) as ArrayRef]).collect())?)
}

async fn vector(files: &Files, vector: Option<DeletionVectorDescriptor>) -> Result<Option<RoaringTreemap>> {
    match vector {
        Some(vector) => vectors::read(files.store(), &vector).await.map(Some),
        None => Ok(None),
    }
}

/// What version `version` did; `None` when the log does not have it any more.
async fn actions(table: &Table, version: u64) -> Result<Option<Vec<Action>>> {
    let held = table.delta().log_store().read_commit_entry(version).await;
    let held = held.context(|| format!("reading version {version} of {}", table.name()))?;
    match held {
        Some(_) => actions_of(table, version).await.map(Some),
        None => Ok(None),
    }
}

/// What in a commit breaks the thread of changes.
fn broken_by(actions: &[Action], types: &HashMap<String, Value>, columns: &[String]) -> Result<Option<&'static str>> {
    for action in actions {
        match action {
            Action::CommitInfo(info) if info.operation.as_deref() == Some("RESTORE") => {
                return Ok(Some("was restored"));
            }
            Action::Metadata(metadata) => {
                let then = self::types(metadata)?;
                if columns.iter().any(|column| then.get(column) != types.get(column)) {
                    return Ok(Some("got other columns"));
                }
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The types of the columns, as the log writes them.
fn types(metadata: &Metadata) -> Result<HashMap<String, Value>> {
    let broken = |error| Error::internal("the metadata of a table cannot be read").with_source(error);
    let metadata = serde_json::to_value(metadata).map_err(broken)?;
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap_or("{}")).map_err(broken)?;
    let fields = schema["fields"].as_array().into_iter().flatten();
    Ok(fields.filter_map(|field| Some((field["name"].as_str()?.to_owned(), field["type"].clone()))).collect())
}

/// The changed files of a commit; `None` when one is not told well enough to be read.
fn of_commit(actions: Vec<Action>) -> Option<Vec<Changed>> {
    let (mut feed, mut came, mut went) = (Vec::new(), Vec::new(), HashMap::new());
    for action in actions {
        match action {
            Action::Cdc(file) => feed.push(Changed {
                path: file.path,
                size: u64::try_from(file.size).ok()?,
                partition: file.partition_values,
                rows: Rows::Feed,
            }),
            Action::Add(file) if file.data_change => came.push(file),
            Action::Remove(file) if file.data_change => {
                went.insert(file.path.clone(), file);
            }
            _ => {}
        }
    }
    if !feed.is_empty() {
        return Some(feed);
    }
    let mut changed = Vec::new();
    for file in came {
        let size = u64::try_from(file.size).ok()?;
        let mut add = |rows| {
            changed.push(Changed { path: file.path.clone(), size, partition: file.partition_values.clone(), rows });
        };
        let now = file.deletion_vector.clone();
        match went.remove(&file.path) {
            None => add(Rows::These { is_new: true, left: now, only: None }),
            Some(was) if was.deletion_vector == now => {}
            Some(was) => {
                let was = was.deletion_vector;
                if now.is_some() {
                    add(Rows::These { is_new: false, left: was.clone(), only: now.clone() });
                }
                if was.is_some() {
                    add(Rows::These { is_new: true, left: now, only: was });
                }
            }
        }
    }
    for (path, file) in went {
        let (size, partition) = (u64::try_from(file.size?).ok()?, file.partition_values?);
        let rows = Rows::These { is_new: false, left: file.deletion_vector, only: None };
        changed.push(Changed { path, size, partition, rows });
    }
    Some(changed)
}

fn place(path: &str) -> Path {
    Path::parse(path).unwrap_or_else(|_| Path::from(path))
}

#[cfg(test)]
mod tests {
    use deltalake::kernel::{Add, AddCDCFile, Remove, StorageType};

    use super::*;

    fn add(path: &str, vector: Option<&str>) -> Action {
        let deletion_vector = vector.map(|name| DeletionVectorDescriptor {
            storage_type: StorageType::Inline,
            path_or_inline_dv: name.to_owned(),
            offset: None,
            size_in_bytes: 1,
            cardinality: 1,
        });
        let (path, partition_values) = (path.to_owned(), HashMap::new());
        Action::Add(Add {
            path,
            partition_values,
            size: 1,
            modification_time: 0,
            data_change: true,
            stats: None,
            tags: None,
            deletion_vector,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
        })
    }

    fn remove(path: &str, vector: Option<&str>) -> Action {
        let Action::Add(add) = add(path, vector) else { unreachable!() };
        Action::Remove(Remove {
            path: add.path,
            data_change: true,
            size: Some(1),
            partition_values: Some(HashMap::new()),
            deletion_vector: add.deletion_vector,
            ..Remove::default()
        })
    }

    /// Each changed file: its path and how its rows are told.
    fn told(actions: Vec<Action>) -> Vec<String> {
        let name = |vector: Option<DeletionVectorDescriptor>| vector.map_or("-".into(), |one| one.path_or_inline_dv);
        let files = of_commit(actions).expect("files").into_iter();
        let mut told: Vec<String> = files
            .map(|file| match file.rows {
                Rows::Feed => format!("{} feed", file.path),
                Rows::These { is_new, left, only } => {
                    format!("{} {} without {} only {}", file.path, is_new, name(left), name(only))
                }
            })
            .collect();
        told.sort();
        told
    }

    #[test]
    fn files_that_came_are_new_rows_and_those_that_went_are_old_ones() {
        let both = vec![add("a", None), remove("b", Some("v")), Action::Txn(Default::default())];
        assert_eq!(told(both), ["a true without - only -", "b false without v only -"]);
    }

    #[test]
    fn of_a_file_with_another_vector_the_rows_between_the_two_changed() {
        let more = vec![remove("a", None), add("a", Some("v"))];
        assert_eq!(told(more), ["a false without - only v"]);
        let again = vec![remove("a", Some("v")), add("a", Some("w"))];
        assert_eq!(told(again), ["a false without v only w", "a true without w only v"]);
        assert_eq!(told(vec![remove("a", Some("v")), add("a", Some("v"))]), [""; 0]);
    }

    #[test]
    fn a_feed_says_it_all_and_upkeep_changes_nothing() {
        let feed = Action::Cdc(AddCDCFile { path: "_change_data/c".into(), size: 1, ..AddCDCFile::default() });
        assert_eq!(told(vec![add("a", None), remove("b", None), feed]), ["_change_data/c feed"]);
        let Action::Add(moved) = add("a", None) else { unreachable!() };
        assert_eq!(told(vec![Action::Add(Add { data_change: false, ..moved })]), [""; 0]);
    }
}
