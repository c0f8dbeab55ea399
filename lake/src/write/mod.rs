//! Rows into Parquet files of a table. The files are nobody's until a commit names them.

mod encoding;
mod folders;
mod limits;

use std::num::NonZeroU64;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use deltalake::datafile::writer::{DeltaWriter, WriterConfig};
use deltalake::kernel::Add;
use deltalake::operations::get_num_idx_cols_and_stats_columns;
use futures::TryStreamExt;
use futures::future::try_join_all;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use object_store::prefix::PrefixStore;

use self::folders::ShortFolders;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::names::TableName;
use crate::schema::ColumnType;
use crate::table::{Definition, Table, stats_name, with_new_columns};

/// The size in bytes at which a data file is closed and the next begun.
const FILE_SIZE_BYTES: u64 = 128 * 1024 * 1024;
/// Rows handed to the Parquet encoder at a time.
const ENCODE_ROWS: usize = 8192;
/// How many columns get file statistics by default, as Delta has it.
const INDEXED_COLUMNS: usize = 32;

/// Files that were written and not yet committed.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// The files, as a commit adds them.
    pub files: Vec<Add>,
    /// Rows in them.
    pub rows: u64,
    /// The widest schema that was written, when columns joined on the way; else the table's.
    pub schema: Option<SchemaRef>,
}

impl Written {
    /// Bytes in the files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| u64::try_from(file.size).unwrap_or(0)).sum()
    }

    /// This and more, as one.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.files.extend(more.files);
        self.rows += more.rows;
        self.schema = match (self.schema, more.schema) {
            (Some(ours), Some(theirs)) => Some(with_new_columns(&ours, &theirs).unwrap_or(ours)),
            (ours, theirs) => ours.or(theirs),
        };
        self
    }
}

/// Which columns have statistics in a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statistics {
    All,
    NoRawText,
}

/// Encodes batches into files of one table, one encoder; several writers may work on one table side by side.
pub struct TableWriter {
    table: Table,
    schema: SchemaRef,
    /// `None` for those of the table.
    partition_by: Option<Vec<String>>,
    statistics: Statistics,
    grown: bool,
    /// Below the table's, where it is not the table's own.
    folder: Option<&'static str>,
    file_size: u64,
    current: Option<DeltaWriter>,
    done: Vec<Add>,
    rows: u64,
}

impl TableWriter {
    /// A writer of files with the columns of `table`.
    pub fn new(table: &Table) -> Self {
        Self::with_schema(table, table.schema())
    }

    /// A writer of files with other columns than the table has at present; the commit must bring its schema along.
    pub fn with_schema(table: &Table, schema: SchemaRef) -> Self {
        let table = table.clone();
        let (done, statistics) = (Vec::new(), Statistics::All);
        Self {
            table,
            schema,
            partition_by: None,
            statistics,
            grown: false,
            folder: None,
            file_size: FILE_SIZE_BYTES,
            current: None,
            done,
            rows: 0,
        }
    }

    /// Closes files at another size in bytes than 128 MiB.
    pub(crate) fn with_file_size(self, file_size: u64) -> Self {
        Self { file_size, ..self }
    }

    /// A writer of files for what the table will be: the commit must bring the definition along, with
    /// [`redefine`](crate::commit::redefine), and remove every file of another partitioning.
    pub fn redefined(table: &Table, definition: &Definition) -> Self {
        let writer = Self::with_schema(table, Arc::clone(&definition.schema));
        Self { partition_by: Some(definition.partition_by.clone()), ..writer }
    }

    /// Leaves the text of data columns without statistics. What a source wrote is kept as text whatever it means, so
    /// its least and greatest say little (`9` is after `10`) and cost a comparison of every value.
    #[must_use]
    pub fn of_raw_text(self) -> Self {
        Self { statistics: Statistics::NoRawText, ..self }
    }

    /// A writer of files in a folder of their own below the table's; their paths are relative to that folder.
    pub(crate) fn in_folder(table: &Table, schema: SchemaRef, folder: &'static str) -> Self {
        Self { folder: Some(folder), ..Self::with_schema(table, schema) }
    }

    /// Divides the files by other columns than the table has at present.
    pub(crate) fn partitioned_by(self, columns: Vec<String>) -> Self {
        Self { partition_by: Some(columns), ..self }
    }

    /// Writes a batch. Columns are matched by name; those that the batch lacks are null, those that are new join the
    /// schema as nullable columns and begin a new file.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] when a value does not fit its column, [`ErrorKind::Store`] when the store fails.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if let Some(wider) = with_new_columns(&self.schema, &batch.schema()) {
            self.roll().await?;
            self.schema = wider;
            self.grown = true;
        }
        let batch = conform(batch, &self.schema, self.table.name())?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        limits::check(&batch, self.table.name())?;
        let writer = match self.current.take() {
            Some(writer) => self.current.insert(writer),
            None => {
                let writer = self.encoder(&batch)?;
                self.current.insert(writer)
            }
        };
        let name = self.table.name();
        writer.write(&batch).await.context(|| format!("writing a data file of {name}"))?;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Closes the last file and names all.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the store fails.
    pub async fn close(mut self) -> Result<Written> {
        self.roll().await?;
        Ok(Written { files: self.done, rows: self.rows, schema: self.grown.then_some(self.schema) })
    }

    /// Gives up: what was written is removed as far as the store lets us; `vacuum` finds the rest.
    pub async fn abort(mut self) {
        if let Some(writer) = self.current.take()
            && let Err(error) = writer.abort().await
        {
            tracing::debug!(table = %self.table.name(), %error, "an unfinished file was left behind");
        }
        let folder = self.folder.map(|folder| format!("{folder}/")).unwrap_or_default();
        discard_paths(&self.table, self.done.iter().map(|file| format!("{folder}{}", file.path))).await;
    }

    /// Closes the file that is being written: the next rows begin another.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the store fails.
    pub(crate) async fn roll(&mut self) -> Result<()> {
        if let Some(writer) = self.current.take() {
            let name = self.table.name();
            let files = writer.close().await.context(|| format!("closing a data file of {name}"))?;
            self.done.extend(files.into_iter().map(|file| Add { path: folders::short(&file.path), ..file }));
        }
        Ok(())
    }

    fn encoder(&self, first: &RecordBatch) -> Result<DeltaWriter> {
        let snapshot = self.table.delta().snapshot()?;
        let (indexed, stats_columns) =
            get_num_idx_cols_and_stats_columns(Some(snapshot.table_config()), Default::default());
        let partition_by = match &self.partition_by {
            Some(columns) => columns.clone(),
            None => self.table.partition_columns()?,
        };
        let stats_columns = sound_stats(&self.schema, &partition_by, self.indexed_columns()?, stats_columns);
        let config = WriterConfig::new(
            Arc::clone(&self.schema),
            partition_by,
            Some(encoding::properties(first, self.statistics)),
            NonZeroU64::new(self.file_size),
            Some(ENCODE_ROWS),
            indexed,
            stats_columns,
        );
        let store = self.table.delta().object_store();
        Ok(DeltaWriter::new(
            match self.folder {
                Some(folder) => Arc::new(ShortFolders(PrefixStore::new(store, folder))),
                None => Arc::new(ShortFolders(store)),
            },
            config,
        ))
    }

    /// How many columns of a file get statistics, where the table does not list them.
    fn indexed_columns(&self) -> Result<usize> {
        let asked = self.table.property("delta.dataSkippingNumIndexedCols")?.and_then(|text| text.parse::<i64>().ok());
        Ok(asked.map_or(INDEXED_COLUMNS, |count| usize::try_from(count).unwrap_or(usize::MAX)))
    }
}

/// Writes the partitions of a query side by side, with `schema` for the files.
///
/// # Errors
/// What the query fails with, and as [`TableWriter::write`].
pub async fn write_streams(
    table: &Table,
    schema: &SchemaRef,
    streams: Vec<SendableRecordBatchStream>,
) -> Result<Written> {
    let writers = streams.into_iter().map(|stream| {
        let writer = TableWriter::with_schema(table, Arc::clone(schema));
        async move {
            let written = tokio::spawn(drain(writer, stream)).await;
            written.map_err(|error| Error::internal("a writer ended early").with_source(error))?
        }
    });
    let parts = try_join_all(writers).await?;
    Ok(parts.into_iter().fold(Written::default(), Written::and))
}

async fn drain(mut writer: TableWriter, mut stream: SendableRecordBatchStream) -> Result<Written> {
    while let Some(batch) = stream.try_next().await? {
        writer.write(&batch).await?;
    }
    writer.close().await
}

/// Removes files that no commit names, as far as the store lets us; `vacuum` finds the rest.
pub async fn discard(table: &Table, files: &[Add]) {
    discard_paths(table, files.iter().map(|file| file.path.clone())).await;
}

/// The same for files of any kind, by their paths below the table's folder.
pub(crate) async fn discard_paths(table: &Table, paths: impl Iterator<Item = String>) {
    let store = table.delta().object_store();
    for path in paths {
        if let Err(error) = store.delete(&Path::from(path.as_str())).await {
            tracing::debug!(table = %table.name(), path, %error, "a file without a commit was left behind");
        }
    }
}

/// A batch with exactly the columns of `schema`: matched by name without regard to case, missing ones null, encodings
/// and view types made plain.
///
/// # Errors
/// [`ErrorKind::Data`] when a value does not fit or a column that must not be null is.
pub fn conform(batch: &RecordBatch, schema: &SchemaRef, table: &TableName) -> Result<RecordBatch> {
    if batch.schema().fields() == schema.fields() {
        return Ok(batch.clone());
    }
    let columns = schema.fields().iter().map(|field| {
        let held = position(&batch.schema(), field.name());
        let column = match held {
            Some(index) => plain(batch.column(index), field.data_type())
                .map_err(|error| error.context(format!("column `{}` of {table}", field.name())))?,
            None => new_null_array(field.data_type(), batch.num_rows()),
        };
        if !field.is_nullable() && column.null_count() > 0 {
            return Err(Error::data(format!("column `{}` of {table} must not be null and is", field.name())));
        }
        Ok(column)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// The columns that get file statistics: as the table asks for, without those whose statistics cannot be trusted.
fn sound_stats(
    schema: &Schema,
    partition_by: &[String],
    limit: usize,
    listed: Option<Vec<String>>,
) -> Option<Vec<String>> {
    let unsound: Vec<&str> = schema
        .fields()
        .iter()
        .filter(|field| ColumnType::of(field.data_type()).is_some_and(|kind| !kind.has_sound_stats()))
        .map(|field| field.name().as_str())
        .collect();
    if unsound.is_empty() {
        return listed;
    }
    if let Some(mut listed) = listed {
        listed.retain(|column| !unsound.iter().any(|name| name == column || stats_name(name) == *column));
        return Some(listed);
    }
    let columns = schema.fields().iter().filter(|field| !partition_by.contains(field.name())).take(limit);
    let sound = columns.filter(|field| !field.data_type().is_nested() && !unsound.contains(&field.name().as_str()));
    Some(sound.map(|field| stats_name(field.name())).collect())
}

fn position(schema: &Schema, name: &str) -> Option<usize> {
    let exact = schema.fields().iter().position(|field| field.name() == name);
    exact.or_else(|| schema.fields().iter().position(|field| field.name().eq_ignore_ascii_case(name)))
}

fn plain(column: &ArrayRef, wanted: &arrow::datatypes::DataType) -> Result<ArrayRef> {
    if column.data_type() == wanted {
        return Ok(Arc::clone(column));
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, wanted, &strict)
        .map_err(|error| Error::new(ErrorKind::Data, "a value does not fit the column's type").with_source(error))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field};

    use super::*;

    fn batch() -> RecordBatch {
        let schema =
            Schema::new(vec![Field::new("Name", DataType::Utf8, true), Field::new("id", DataType::Int64, true)]);
        let columns: Vec<ArrayRef> =
            vec![Arc::new(StringArray::from(vec![Some("a"), None])), Arc::new(Int64Array::from(vec![1, 2]))];
        RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")
    }

    #[test]
    fn columns_are_matched_by_name_and_missing_ones_are_null() {
        let wanted = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, true),
            Field::new("more", DataType::Utf8, true),
        ]));
        let got = conform(&batch(), &wanted, &TableName::silver("t")).expect("a batch");
        assert_eq!(got.schema(), wanted);
        assert_eq!(got.column(2).null_count(), 2);
        assert_eq!(got.column(1).null_count(), 1);
    }

    #[test]
    fn a_null_in_a_column_that_must_not_be_null_is_named() {
        let wanted = Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, false)]));
        let error = conform(&batch(), &wanted, &TableName::silver("t")).expect_err("an error");
        assert_eq!(error.to_string(), "column `name` of silver.t must not be null and is");
    }

    #[test]
    fn wide_decimals_get_no_file_statistics() {
        let schema = Schema::new(vec![
            Field::new("day", DataType::Date32, true),
            Field::new("net total", DataType::Decimal128(28, 2), true),
            Field::new("price", DataType::Decimal128(12, 2), true),
        ]);
        let stats = |listed| sound_stats(&schema, &[], 32, listed);
        assert_eq!(stats(None), Some(vec!["day".to_owned(), "price".to_owned()]));
        let listed = vec!["`net total`".to_owned(), "day".to_owned()];
        assert_eq!(stats(Some(listed)), Some(vec!["day".to_owned()]));
    }
}
