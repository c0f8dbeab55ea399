//! One data file of a table: some of its columns, some of its rows, with the number of each row in the file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use deltalake::kernel::{Add, LogicalFileView, Remove};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use roaring::RoaringTreemap;

use crate::error::{Context, Error, ErrorKind, Result};
use crate::names::TableName;
use crate::optimize::tags_of;
use crate::table::Table;
use crate::vectors;
use crate::write::conform;

/// Bytes fetched from the end of a file in the hope that all of its footer is among them.
const FOOTER_BYTES: usize = 64 * 1024;

/// The property of a table whose columns have other names in its files.
const COLUMN_MAPPING: &str = "delta.columnMapping.mode";

/// What the data files of a table have in common.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    store: Arc<dyn ObjectStore>,
    name: TableName,
    schema: SchemaRef,
    partition_by: Arc<Vec<String>>,
    by_page: bool,
}

/// A data file that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    source: Source,
    metadata: ArrowReaderMetadata,
    partition: HashMap<String, Option<String>>,
    files: Files,
}

/// True for a table whose columns have other names in its files.
///
/// # Errors
/// [`ErrorKind::Table`] when the table is not loaded.
pub(crate) fn is_mapped(table: &Table) -> Result<bool> {
    Ok(table.property(COLUMN_MAPPING)?.is_some_and(|mode| mode != "none"))
}

impl Files {
    /// # Errors
    /// [`ErrorKind::Table`] when the columns have other names in files than in the table.
    pub(crate) fn of(table: &Table) -> Result<Self> {
        if is_mapped(table)? {
            let message = format!("{} has columns that are mapped to other names in its files", table.name());
            return Err(Error::new(ErrorKind::Table, message).hint("such a table can be read, not changed"));
        }
        Ok(Self {
            store: table.delta().object_store(),
            name: table.name().clone(),
            schema: table.schema(),
            partition_by: Arc::new(table.partition_columns()?),
            by_page: false,
        })
    }

    /// The same columns, in files of the folder of another table, where any may be null.
    pub(crate) fn copied_to(self, table: &Table) -> Self {
        let fields = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { store: table.delta().object_store(), schema, ..self }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.store.as_ref()
    }

    /// The same files with one more column, which the table does not have.
    pub(crate) fn with_column(self, field: Field) -> Self {
        let fields = self.schema.fields().iter().map(|field| field.as_ref().clone()).chain([field]);
        Self { schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())), ..self }
    }

    /// The same files, opened so that of a few rows only the pages are read: that costs a look at where pages begin.
    pub(crate) fn by_page(self) -> Self {
        Self { by_page: true, ..self }
    }

    pub(crate) async fn open(&self, file: &LogicalFileView) -> Result<OpenFile> {
        let size = u64::try_from(file.size()).unwrap_or(0);
        self.open_at(file.object_store_path(), size, file.partition_values_map()).await
    }

    /// Opens a file by its place, also one that the open version does not name.
    pub(crate) async fn open_at(
        &self,
        path: Path,
        size: u64,
        partition: HashMap<String, Option<String>>,
    ) -> Result<OpenFile> {
        let mut source = Source { store: Arc::clone(&self.store), path, size };
        // The types are those of Parquet, whatever the writer called them in Arrow.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let options = if self.by_page { options.with_page_index_policy(PageIndexPolicy::Optional) } else { options };
        let metadata = ArrowReaderMetadata::load_async(&mut source, options).await;
        let metadata = metadata.context(|| format!("opening `{}` of {}", source.path, self.name))?;
        Ok(OpenFile { source, metadata, partition, files: self.clone() })
    }

    /// The rows that the log says are deleted.
    pub(crate) async fn deleted(&self, file: &LogicalFileView) -> Result<RoaringTreemap> {
        match file.deletion_vector_descriptor() {
            Some(vector) => vectors::read(self.store(), &vector)
                .await
                .context(|| format!("reading which rows of `{}` of {} are deleted", file.path(), self.name)),
            None => Ok(RoaringTreemap::new()),
        }
    }
}

impl OpenFile {
    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// The schema of the file in Arrow's types.
    pub(crate) fn arrow_schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// Where each of these row groups begins in the file, and how many rows it has.
    pub(crate) fn places(&self, groups: &[usize]) -> Places {
        let mut starts = Vec::with_capacity(self.metadata().num_row_groups());
        let mut rows = 0;
        for group in self.metadata().row_groups() {
            starts.push(rows);
            rows += usize::try_from(group.num_rows()).unwrap_or(0);
        }
        let end = |group: usize| starts.get(group + 1).copied().unwrap_or(rows);
        Places { ranges: groups.iter().map(|group| starts[*group]..end(*group)).collect() }
    }

    /// The row groups that have some of these rows, and which of their rows they are.
    pub(crate) fn select(&self, rows: &RoaringTreemap) -> (Vec<usize>, RowSelection) {
        let counts = self.metadata().row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
        select(counts, rows)
    }

    /// The rows of some row groups, of those the selected ones, with some columns of the table in its types.
    pub(crate) fn read(
        &self,
        columns: &[String],
        groups: Vec<usize>,
        selection: Option<RowSelection>,
        batch_rows: usize,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + Unpin + use<>> {
        let files = &self.files;
        let fields = columns.iter().map(|name| Ok(files.schema.field_with_name(name)?.clone()));
        let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<Field>>>()?));
        let stored = |name: &str| columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        let of_log = |name: &str| files.partition_by.iter().any(|column| column.eq_ignore_ascii_case(name));
        let held = self.arrow_schema().fields().iter().enumerate();
        let roots = held.filter(|(_, field)| stored(field.name()) && !of_log(field.name())).map(|(place, _)| place);
        let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(self.source.clone(), self.metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let mut builder = builder.with_projection(mask).with_row_groups(groups).with_batch_size(batch_rows);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        let constants = self.constants(&schema)?;
        let (name, path) = (files.name.clone(), self.source.path.clone());
        let rows = builder.build().context(|| format!("reading `{path}` of {name}"))?;
        Ok(rows.map(move |batch| {
            let batch = batch.context(|| format!("reading `{path}` of {name}"))?;
            conform(&with_constants(&batch, &constants)?, &schema, &name)
        }))
    }

    /// The partition columns of `schema` with the one value that each has in this file.
    fn constants(&self, schema: &Schema) -> Result<Vec<(Field, ArrayRef)>> {
        let fields = schema.fields().iter().filter(|field| self.files.partition_by.contains(field.name()));
        let constant = |field: &Arc<Field>| {
            let text = self.partition.get(field.name()).cloned().flatten().filter(|text| !text.is_empty());
            let strict = CastOptions { safe: false, ..CastOptions::default() };
            let value = cast_with_options(&StringArray::from(vec![text]), field.data_type(), &strict);
            let place = || format!("partition `{}` of `{}` of {}", field.name(), self.source.path, self.files.name);
            Ok((field.as_ref().clone(), value.context(place)?))
        };
        fields.map(constant).collect()
    }
}

/// The ranges of rows of a file that a stream gives, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    ranges: Vec<Range<usize>>,
}

impl Places {
    /// Rows in all ranges.
    pub(crate) fn rows(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// The numbers in the file of rows that are numbered along the stream, both ascending.
    pub(crate) fn in_file<'a>(&'a self, rows: impl Iterator<Item = usize> + 'a) -> impl Iterator<Item = usize> + 'a {
        let (mut range, mut first) = (0, 0);
        rows.map(move |row| {
            while row >= first + self.ranges[range].len() {
                first += self.ranges[range].len();
                range += 1;
            }
            self.ranges[range].start + (row - first)
        })
    }
}

/// The actions that replace the deletion vector of a file, or remove the file.
pub(super) fn remove(file: &LogicalFileView) -> Remove {
    file.remove_action(true)
}

/// The same file with other rows deleted. Its statistics hold for rows that are gone as well.
pub(super) fn with_vector(file: &LogicalFileView, vector: deltalake::kernel::DeletionVectorDescriptor) -> Result<Add> {
    let wide = |text: String| -> Result<String> {
        let broken = |error| Error::new(ErrorKind::Table, "the statistics of a file are broken").with_source(error);
        let mut stats: serde_json::Value = serde_json::from_str(&text).map_err(broken)?;
        if let Some(stats) = stats.as_object_mut() {
            stats.insert("tightBounds".to_owned(), false.into());
        }
        Ok(stats.to_string())
    };
    Ok(Add {
        path: file.path().into_owned(),
        partition_values: file.partition_values_map(),
        size: file.size(),
        modification_time: file.modification_time(),
        data_change: true,
        stats: file.stats().map(wide).transpose()?,
        tags: Some(tags_of(file)).filter(|tags| !tags.is_empty()),
        deletion_vector: Some(vector),
        base_row_id: None,
        default_row_commit_version: None,
        clustering_provider: None,
    })
}

/// A file in an object store, for the Parquet reader.
#[derive(Debug, Clone)]
struct Source {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
}

impl AsyncFileReader for Source {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        async move { Ok(self.store.get_range(&self.path, range).await?) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        async move { Ok(self.store.get_ranges(&self.path, &ranges).await?) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let pages = options.map_or(PageIndexPolicy::Skip, ArrowReaderOptions::offset_index_policy);
            let options = options.map(|options| options.metadata_options().clone());
            let reader = ParquetMetaDataReader::new().with_metadata_options(options).with_offset_index_policy(pages);
            let (reader, size) = (reader.with_prefetch_hint(Some(FOOTER_BYTES)), self.size);
            Ok(Arc::new(reader.load_and_finish(self, size).await?))
        }
        .boxed()
    }
}

/// [`OpenFile::select`], by the rows that each row group has.
fn select(counts: impl Iterator<Item = u64>, rows: &RoaringTreemap) -> (Vec<usize>, RowSelection) {
    let mut rows = rows.iter().peekable();
    let (mut groups, mut ranges) = (Vec::new(), Vec::new());
    // Rows of all groups before this one, and of the chosen ones.
    let (mut first, mut along) = (0, 0);
    for (group, count) in counts.enumerate() {
        let mut is_chosen = false;
        while let Some(row) = rows.next_if(|row| *row < first + count) {
            is_chosen = true;
            let place = usize::try_from(along + row - first).unwrap_or(usize::MAX);
            ranges.push(place..place + 1);
        }
        if is_chosen {
            groups.push(group);
            along += count;
        }
        first += count;
    }
    let all = usize::try_from(along).unwrap_or(usize::MAX);
    (groups, RowSelection::from_consecutive_ranges(ranges.into_iter(), all))
}

fn with_constants(batch: &RecordBatch, constants: &[(Field, ArrayRef)]) -> Result<RecordBatch> {
    if constants.is_empty() {
        return Ok(batch.clone());
    }
    let rows = batch.num_rows();
    let first = arrow::array::UInt32Array::from(vec![0_u32; rows]);
    let held = batch.schema();
    let fields = held.fields().iter().map(|field| field.as_ref().clone());
    let fields: Vec<Field> = fields.chain(constants.iter().map(|(field, _)| field.clone())).collect();
    let repeated = constants.iter().map(|(_, value)| Ok(arrow::compute::take(value, &first, None)?));
    let columns = batch.columns().iter().cloned().map(Ok).chain(repeated).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_row_groups_with_wanted_rows_are_read() {
        let (groups, selection) = select([10, 10, 10].into_iter(), &[3, 4, 25, 29].into_iter().collect());
        assert_eq!(groups, [0, 2]);
        let wanted: Vec<Range<usize>> = vec![3..5, 15..16, 19..20];
        assert_eq!(selection, RowSelection::from_consecutive_ranges(wanted.into_iter(), 20));
        assert_eq!(select([10].into_iter(), &RoaringTreemap::new()).0, [0; 0]);
    }

    #[test]
    fn rows_of_a_stream_have_their_numbers_in_the_file() {
        let places = Places { ranges: vec![2..4, 10..11, 20..30] };
        assert_eq!(places.rows(), 13);
        assert_eq!(places.in_file([0, 1, 2, 3, 12].into_iter()).collect::<Vec<_>>(), [2, 3, 10, 20, 29]);
    }
}
