//! A Delta table at one version: its schema, properties, files and application versions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use deltalake::DeltaTable;
use deltalake::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake::kernel::{Action, LogicalFileView};

use crate::clock::Clock;
use crate::commit;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::names::TableName;
use crate::run::Meter;

/// How a table is made.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Columns in order.
    pub schema: SchemaRef,
    /// Names of the partition columns.
    pub partition_by: Vec<String>,
    /// Delta table properties.
    pub properties: Vec<(String, String)>,
    /// What the table is for, shown by catalogs.
    pub description: Option<String>,
    /// What columns hold, by column and in words.
    pub column_descriptions: Vec<(String, String)>,
}

impl Definition {
    /// A table without partitions or properties.
    pub fn new(schema: SchemaRef) -> Self {
        let (partition_by, properties, column_descriptions) = (Vec::new(), Vec::new(), Vec::new());
        Self { schema, partition_by, properties, description: None, column_descriptions }
    }

    /// Columns whose files get statistics; decimals wider than 15 digits must not be among them, because their
    /// statistics pass through a double.
    #[must_use]
    pub fn with_stats_columns(mut self, columns: &[String]) -> Self {
        let list = columns.iter().map(|name| stats_name(name)).collect::<Vec<_>>().join(",");
        self.properties.push(("delta.dataSkippingStatsColumns".into(), list));
        self
    }
}

/// A column as `delta.dataSkippingStatsColumns` names it.
pub(crate) fn stats_name(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if plain { name.to_owned() } else { format!("`{}`", name.replace('`', "``")) }
}

/// A data file of a table.
#[derive(Debug, Clone)]
pub(crate) struct DataFile {
    /// Its path, relative to the table.
    pub(crate) path: String,
    /// The values of the partition columns, as the log writes them.
    pub(crate) partition: HashMap<String, Option<String>>,
    /// The action that removes it.
    pub(crate) remove: Action,
}

/// A data file with the least and the greatest value of a column of whole numbers in it.
#[derive(Debug, Clone)]
pub struct BoundedFile {
    /// Its path, relative to the table.
    pub path: String,
    /// The values; `None` when the log does not tell.
    pub bounds: Option<(i64, i64)>,
    /// The action that removes it.
    pub remove: Action,
}

/// What programs must know to read and write a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    /// The version that readers must know.
    pub reader: i32,
    /// The version that writers must know.
    pub writer: i32,
    /// The features by name that they must know from version 3 and 7 on.
    pub features: Vec<String>,
}

/// A table at the version that it was opened at; [`reload`](Table::reload) moves it to the newest.
#[derive(Debug, Clone)]
pub struct Table {
    name: TableName,
    delta: DeltaTable,
    schema: SchemaRef,
    clock: Clock,
    written: Meter,
    /// Its folder, where commits are synced to the disk.
    synced: Option<PathBuf>,
}

impl Table {
    /// A table whose committed bytes are counted by `written`.
    pub(crate) fn new(name: TableName, delta: DeltaTable, clock: Clock, written: Meter) -> Result<Self> {
        let schema = plain_schema(&delta)?;
        Ok(Self { name, delta, schema, clock, written, synced: None })
    }

    /// The same table, whose commits are synced to the disk where its folder is given.
    pub(crate) fn synced_in(self, folder: Option<PathBuf>) -> Self {
        Self { synced: folder, ..self }
    }

    /// The folder of the table, where commits are synced to the disk.
    pub(crate) fn synced(&self) -> Option<&Path> {
        self.synced.as_deref()
    }

    /// The name of the table.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// The version that is open.
    pub fn version(&self) -> u64 {
        self.delta.version().unwrap_or_default()
    }

    /// The columns: plain Arrow types, partition columns where the schema has them.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The names of the partition columns.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn partition_columns(&self) -> Result<Vec<String>> {
        Ok(self.delta.snapshot()?.metadata().partition_columns().to_vec())
    }

    /// The table property `key`.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn property(&self, key: &str) -> Result<Option<String>> {
        Ok(self.properties()?.get(key).cloned())
    }

    /// What the table says that it is.
    ///
    /// # Errors
    /// As [`property`](Self::property).
    pub fn description(&self) -> Result<Option<String>> {
        Ok(self.delta().snapshot()?.metadata().description().map(str::to_owned))
    }

    /// What the table says that its columns hold, of those of which it says something.
    ///
    /// # Errors
    /// As [`property`](Self::property).
    pub fn column_descriptions(&self) -> Result<BTreeMap<String, String>> {
        Ok(commit::descriptions(&self.delta.snapshot()?.snapshot().arrow_schema()))
    }

    /// All table properties.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn properties(&self) -> Result<&HashMap<String, String>> {
        Ok(self.delta.snapshot()?.metadata().configuration())
    }

    /// The last version that application `app` committed, `None` before its first commit.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the log cannot be read.
    pub async fn txn_version(&self, app: &str) -> Result<Option<i64>> {
        let log_store = self.delta.log_store();
        let snapshot = self.delta.snapshot()?;
        snapshot
            .transaction_version(log_store.as_ref(), app)
            .await
            .context(|| format!("reading the last commit of `{app}` to {}", self.name))
    }

    /// Moves to the newest version.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the log cannot be read.
    pub async fn reload(&mut self) -> Result<()> {
        self.delta.update_state().await.context(|| format!("reading the log of {}", self.name))?;
        self.schema = plain_schema(&self.delta)?;
        Ok(())
    }

    /// The id that the table got when it was made: another one means another table under the same name.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn id(&self) -> Result<String> {
        Ok(self.delta.snapshot()?.metadata().id().to_owned())
    }

    /// Rows of the open version as the log counts them; `None` when a file came without its count.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn row_count(&self) -> Result<Option<u64>> {
        let files = self.delta.snapshot()?.log_data();
        let counts = files.iter().map(|file| {
            let deleted = file.deletion_vector_descriptor().map_or(0, |vector| vector.cardinality);
            Some((file.num_records()? as u64).saturating_sub(u64::try_from(deleted).unwrap_or(0)))
        });
        Ok(counts.sum())
    }

    /// Rows of the open version by the values of partition columns, as the log counts them; files that came without their
    /// count count for nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn rows_by_partition(&self, columns: &[&str]) -> Result<BTreeMap<Vec<Option<String>>, u64>> {
        let mut rows = BTreeMap::new();
        for file in self.delta.snapshot()?.log_data().iter() {
            let values = file.partition_values_map();
            let key = columns.iter().map(|column| values.get(*column).cloned().flatten()).collect();
            let deleted = file.deletion_vector_descriptor().map_or(0, |vector| vector.cardinality);
            let count = file.num_records().unwrap_or(0) as u64;
            *rows.entry(key).or_default() += count.saturating_sub(u64::try_from(deleted).unwrap_or(0));
        }
        Ok(rows)
    }

    /// True when the statistics of every data file say that the column is null in all of its rows.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn is_all_null(&self, column: &str) -> Result<bool> {
        let files = self.delta.snapshot()?.log_data();
        Ok(files.iter().all(|file| {
            let stats = file.stats().and_then(|stats| serde_json::from_str::<serde_json::Value>(&stats).ok());
            stats.is_some_and(|stats| {
                let nulls = stats["nullCount"][column].as_u64();
                nulls.is_some() && nulls == stats["numRecords"].as_u64()
            })
        }))
    }

    /// The data files of the open version, with what their statistics say of a column of whole numbers.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn files_with_bounds(&self, column: &str) -> Result<Vec<BoundedFile>> {
        let files = self.delta.snapshot()?.log_data();
        let each = files.iter().map(|file| {
            let stats = file.stats().and_then(|stats| serde_json::from_str::<serde_json::Value>(&stats).ok());
            let bounds = stats
                .and_then(|stats| Some((stats["minValues"][column].as_i64()?, stats["maxValues"][column].as_i64()?)));
            BoundedFile { path: file.path().into_owned(), bounds, remove: Action::Remove(file.remove_action(true)) }
        });
        Ok(each.collect())
    }

    /// The values of a partition column among the data files of the open version, as the log writes them.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn partition_values(&self, column: &str) -> Result<BTreeSet<Option<String>>> {
        let files = self.delta.snapshot()?.log_data();
        Ok(files.iter().map(|file| file.partition_values_map().remove(column).flatten()).collect())
    }

    /// The paths of the data files of the open version, relative to the table.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn file_paths(&self) -> Result<Vec<String>> {
        Ok(self.delta.snapshot()?.log_data().iter().map(|file| file.path().into_owned()).collect())
    }

    /// How many data files the open version has.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn file_count(&self) -> Result<usize> {
        Ok(self.delta.snapshot()?.log_data().num_files())
    }

    /// Bytes of the data files of the open version.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn files_size(&self) -> Result<u64> {
        let files = self.delta.snapshot()?.log_data();
        Ok(files.iter().map(|file| u64::try_from(file.size()).unwrap_or(0)).sum())
    }

    /// Where the table is, as a URL.
    pub fn location(&self) -> String {
        self.delta.table_url().to_string()
    }

    /// What programs must know to read and write the table.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn protocol(&self) -> Result<Protocol> {
        let protocol = self.delta.snapshot()?.protocol();
        fn names<F: ToString>(features: Option<&[F]>) -> impl Iterator<Item = String> {
            features.into_iter().flatten().map(ToString::to_string)
        }
        let mut features: Vec<String> =
            names(protocol.reader_features()).chain(names(protocol.writer_features())).collect();
        features.sort();
        features.dedup();
        Ok(Protocol { reader: protocol.min_reader_version(), writer: protocol.min_writer_version(), features })
    }

    /// When the newest data file of the open version was written, in microseconds since the epoch; `None` without
    /// files.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn newest_file_us(&self) -> Result<Option<i64>> {
        let files = self.delta.snapshot()?.log_data();
        Ok(files.iter().map(|file| file.modification_time()).max().map(|millis| millis.saturating_mul(1_000)))
    }

    /// True when rows of data files of the open version are marked as deleted.
    pub(crate) fn has_deletion_vectors(&self) -> Result<bool> {
        Ok(self.delta.snapshot()?.log_data().iter().any(|file| file.deletion_vector_descriptor().is_some()))
    }

    /// The actions that take all data files of the open version away for others with the same rows.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn replaced_files(&self) -> Result<Vec<Action>> {
        let files = self.delta.snapshot()?.log_data();
        Ok(files.iter().map(|file| Action::Remove(file.remove_action(false))).collect())
    }

    /// The actions that remove data files of the open version: those whose partition values `select` accepts.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn removes(&self, select: impl Fn(&HashMap<String, Option<String>>) -> bool) -> Result<Vec<Action>> {
        let files = self.delta.snapshot()?.log_data();
        let chosen = files.iter().filter(|file| select(&file.partition_values_map()));
        Ok(chosen.map(|file| Action::Remove(file.remove_action(true))).collect())
    }

    /// The data files of the open version.
    pub(crate) fn files(&self) -> Result<Vec<DataFile>> {
        let files = self.delta.snapshot()?.log_data();
        let each = files.iter().map(|file| DataFile {
            path: file.path().into_owned(),
            partition: file.partition_values_map(),
            remove: Action::Remove(file.remove_action(true)),
        });
        Ok(each.collect())
    }

    pub(crate) fn delta(&self) -> &DeltaTable {
        &self.delta
    }

    /// Counts the bytes of data files that are committed.
    pub(crate) fn written(&self) -> &Meter {
        &self.written
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// A file with what is deleted of it: its path, and where its deletion vector is. A path comes again when rows of its
/// file are marked.
pub(crate) type FileId = (String, Option<(String, Option<i32>)>);

/// What tells a file of a version from all others.
pub(crate) fn file_id(file: &LogicalFileView) -> FileId {
    let vector = file.deletion_vector_descriptor().map(|vector| (vector.path_or_inline_dv, vector.offset));
    (file.path().into_owned(), vector)
}

/// The schema of a loaded table in plain Arrow types, without what is said of its columns.
fn plain_schema(delta: &DeltaTable) -> Result<SchemaRef> {
    Ok(Arc::new(commit::plain(&delta.snapshot()?.snapshot().arrow_schema())))
}

/// The Delta schema of Arrow columns.
///
/// # Errors
/// [`ErrorKind::Table`] when a type has no place in Delta.
pub(crate) fn delta_schema(schema: &Schema) -> Result<deltalake::kernel::StructType> {
    schema.try_into_kernel().map_err(|error: arrow::error::ArrowError| {
        Error::new(ErrorKind::Table, "a column has a type that Delta does not know").with_source(error)
    })
}

/// `base` with the columns of `more` that it lacks, as nullable ones, compared without regard to case.
pub fn with_new_columns(base: &Schema, more: &Schema) -> Option<SchemaRef> {
    let new: Vec<Field> = more
        .fields()
        .iter()
        .filter(|field| !base.fields().iter().any(|known| known.name().eq_ignore_ascii_case(field.name())))
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    if new.is_empty() {
        return None;
    }
    let fields: Vec<Field> = base.fields().iter().map(|field| field.as_ref().clone()).chain(new).collect();
    Some(Arc::new(Schema::new(fields)))
}
