//! Parquet files: columns in the widest type of their kind, since a table cannot be widened later.

mod far;
mod json;
mod remote;
mod widen;

use std::fs::File;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::error::ArrowError;
use futures::StreamExt;
use lake::{Error, Result};
use object_store::ObjectStore;
use object_store::path::Path;
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use tokio::runtime::Handle;

use self::remote::RemoteFile;
use self::widen::widen;
use super::names::column_names;
use super::{
    CHUNK_BYTES, CHUNK_ROWS_MAX, Chunk, Counts, Decoder, DuplicateColumns, NESTING_MAX, batch, refused, rescued_by_row,
};

type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Decodes one Parquet file.
pub struct ParquetDecoder {
    batches: Batches,
    names: Vec<String>,
    counts: Counts,
}

impl ParquetDecoder {
    /// Reads a file of this machine, page by page.
    ///
    /// # Errors
    /// [`File`](lake::ErrorKind::File) when it is not Parquet or its columns are refused.
    pub fn local(file: File, duplicates: DuplicateColumns) -> Result<Self> {
        let metadata = ArrowReaderMetadata::load(&file, reader_options()).map_err(explain)?;
        let metadata = with_wide_int96(&metadata)?;
        let names = names(metadata.schema(), duplicates)?;
        let rows = rows_at_once(&metadata);
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
        let reader = builder.with_batch_size(rows).build().map_err(explain)?;
        let batches = reader.map(|batch| batch.map_err(explain_arrow));
        Ok(Self { batches: Box::new(batches), names, counts: Counts::default() })
    }

    /// Reads a file of a store, a row group at a time. Must be called, and used, on a thread that may block.
    ///
    /// # Errors
    /// [`File`](lake::ErrorKind::File) when it is not Parquet or its columns are refused, [`Store`](lake::ErrorKind::Store)
    /// when the store fails.
    pub fn remote(
        store: Arc<dyn ObjectStore>,
        path: Path,
        size: u64,
        handle: Handle,
        duplicates: DuplicateColumns,
    ) -> Result<Self> {
        let mut reader = RemoteFile { store, path, size };
        let metadata =
            handle.block_on(ArrowReaderMetadata::load_async(&mut reader, reader_options())).map_err(explain)?;
        let metadata = with_wide_int96(&metadata)?;
        let names = names(metadata.schema(), duplicates)?;
        let rows = rows_at_once(&metadata);
        let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, metadata);
        let mut stream = builder.with_batch_size(rows).build().map_err(explain)?;
        let batches = std::iter::from_fn(move || handle.block_on(stream.next()).map(|batch| batch.map_err(explain)));
        Ok(Self { batches: Box::new(batches), names, counts: Counts::default() })
    }
}

impl Decoder for ParquetDecoder {
    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        let Some(read) = self.batches.next().transpose()? else { return Ok(None) };
        let rows = read.num_rows();
        let first = self.counts.records + 1;
        self.counts.records += rows as u64;
        let (mut fields, mut columns, mut unfit) = (Vec::new(), Vec::new(), Vec::new());
        for (name, column) in self.names.iter().zip(read.columns()) {
            let wide = widen(column)?;
            fields.push(Field::new(name, wide.array.data_type().clone(), true));
            columns.push(wide.array);
            unfit.extend(wide.unfit.into_iter().map(|unfit| (name.as_str(), unfit)));
        }
        let row_numbers = (first..).take(rows).map(|record| i64::try_from(record).unwrap_or(i64::MAX)).collect();
        let columns = batch(fields, columns, rows)?;
        let rescued = rescued_by_row(unfit.iter().map(|(name, unfit)| (*name, unfit)), rows);
        Ok(Some(Chunk { columns, row_numbers, rescued, rejects: Vec::new() }))
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

/// How Parquet files are opened: by their own types, not by the Arrow schema that a writer may have left in them.
pub fn reader_options() -> ArrowReaderOptions {
    ArrowReaderOptions::new().with_skip_arrow_metadata(true)
}

/// INT96 times are read as microseconds: as nanoseconds the years before 1677 and after 2262 do not fit.
fn with_wide_int96(metadata: &ArrowReaderMetadata) -> Result<ArrowReaderMetadata> {
    let roots = metadata.parquet_schema().root_schema().get_fields();
    let is_int96 = |index: usize| {
        roots.get(index).is_some_and(|root| root.is_primitive() && root.get_physical_type() == PhysicalType::INT96)
    };
    if !(0..roots.len()).any(is_int96) {
        return Ok(metadata.clone());
    }
    let fields = metadata.schema().fields().iter().enumerate().map(|(index, field)| match is_int96(index) {
        true => Arc::new(field.as_ref().clone().with_data_type(DataType::Timestamp(TimeUnit::Microsecond, None))),
        false => Arc::clone(field),
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), reader_options().with_schema(schema)).map_err(explain)
}

/// Rows of one chunk: fewer where they are large.
fn rows_at_once(metadata: &ArrowReaderMetadata) -> usize {
    let bytes = |group: &RowGroupMetaData| group.total_byte_size() / group.num_rows().max(1);
    let row = metadata.metadata().row_groups().iter().map(bytes).max().unwrap_or(0).max(1);
    (CHUNK_BYTES / usize::try_from(row).unwrap_or(usize::MAX)).clamp(1, CHUNK_ROWS_MAX)
}

/// How deep a type is nested.
fn depth(kind: &DataType) -> usize {
    match kind {
        DataType::Struct(fields) => 1 + fields.iter().map(|field| depth(field.data_type())).max().unwrap_or(0),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            1 + depth(item.data_type())
        }
        // The entries of a map are a struct, which is no level of its own.
        DataType::Map(entries, _) => depth(entries.data_type()),
        _ => 0,
    }
}

fn names(schema: &Schema, duplicates: DuplicateColumns) -> Result<Vec<String>> {
    if let Some(field) = schema.fields().iter().find(|field| depth(field.data_type()) > NESTING_MAX) {
        let name = field.name();
        return Err(refused(format!("the column `{name}` is nested deeper than {NESTING_MAX} levels, the limit")));
    }
    column_names(schema.fields().iter().map(|field| field.name().clone()).collect(), duplicates)
}

/// Tells a failure of the store from a file that is broken.
fn explain(error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<object_store::Error>() {
            Ok(error) => Error::from(*error),
            Err(inner) => refused(format!("the file cannot be read as Parquet: {inner}")).with_source(inner),
        },
        error => refused(format!("the file cannot be read as Parquet: {error}")).with_source(error),
    }
}

fn explain_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(inner) => match inner.downcast::<ParquetError>() {
            Ok(error) => explain(*error),
            Err(inner) => refused(format!("the file cannot be read as Parquet: {inner}")).with_source(inner),
        },
        error => refused(format!("the file cannot be read as Parquet: {error}")).with_source(error),
    }
}

#[cfg(test)]
mod tests;
