//! Rows put aside between two passes over them: in memory while they are few, on local disk when they are many.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::object_store::ObjectStoreUrl;
use futures::TryStreamExt;
use futures::future::try_join_all;
use object_store::ObjectStoreExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{AsyncArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use tempfile::TempDir;

use crate::error::{Context, Error, Result};
use crate::session::Session;
use crate::session::parquet::{Keeper, ParquetTable};

/// Bytes that the rows of one query may have in memory before they go to disk.
const MEMORY_BYTES_MAX: usize = 48 * 1024 * 1024;

/// The rows of a query, numbered in the order in which they were put aside. Cheap to clone; the files are gone with the
/// last clone and the last query of them.
#[derive(Debug, Clone)]
pub struct Staged(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Gone with the rows, and the files in it.
    _folder: TempDir,
    schema: SchemaRef,
    parts: Vec<Part>,
    rows: u64,
    bytes: usize,
}

impl Keeper for Inner {}

/// What one stream of the query gave.
#[derive(Debug)]
struct Part {
    rows: usize,
    bytes: usize,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Memory(Vec<RecordBatch>),
    Disk(PathBuf),
}

impl Staged {
    /// Computes a query and puts its rows aside, its partitions side by side.
    ///
    /// # Errors
    /// What the query fails with, and [`ErrorKind::Store`](crate::ErrorKind::Store) when the disk is full.
    pub async fn write(frame: DataFrame) -> Result<Self> {
        Self::write_split(frame, None).await.map(|(staged, _)| staged)
    }

    /// The same for the rows whose boolean column `wanted` is true, without that column; the others are counted.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_where(frame: DataFrame, wanted: &str) -> Result<(Self, u64)> {
        Self::write_split(frame, Some(wanted)).await
    }

    async fn write_split(frame: DataFrame, wanted: Option<&str>) -> Result<(Self, u64)> {
        let folder = folder()?;
        let all: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
        let split = wanted.map(|wanted| Split::new(&all, wanted)).transpose()?;
        let schema = split.as_ref().map_or(all, |split| Arc::clone(&split.schema));
        let streams = frame.execute_stream_partitioned().await?;
        Self::write_parts(folder, schema, streams, split).await
    }

    /// Puts the rows of streams of these columns aside, side by side.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_streams(schema: SchemaRef, streams: Vec<SendableRecordBatchStream>) -> Result<Self> {
        Self::write_parts(folder()?, schema, streams, None).await.map(|(staged, _)| staged)
    }

    async fn write_parts(
        folder: TempDir,
        schema: SchemaRef,
        streams: Vec<SendableRecordBatchStream>,
        split: Option<Split>,
    ) -> Result<(Self, u64)> {
        let memory_bytes = MEMORY_BYTES_MAX / streams.len().max(1);
        let writers = streams.into_iter().enumerate().map(|(number, stream)| {
            let path = folder.path().join(format!("part-{number:05}.parquet"));
            let drain = Drain { path, schema: Arc::clone(&schema), split: split.clone(), memory_bytes };
            async move {
                let rows = tokio::spawn(drain.run(stream)).await;
                rows.map_err(|error| Error::internal("a writer ended early").with_source(error))?
            }
        });
        let drained = try_join_all(writers).await?;
        let others = drained.iter().map(|(_, others)| others).sum();
        let parts: Vec<Part> = drained.into_iter().map(|(part, _)| part).collect();
        let rows = parts.iter().map(|part| part.rows as u64).sum();
        let bytes = parts.iter().map(|part| part.bytes).sum();
        Ok((Self(Arc::new(Inner { _folder: folder, schema, parts, rows, bytes })), others))
    }

    /// Rows put aside.
    pub fn rows(&self) -> u64 {
        self.0.rows
    }

    /// Bytes that they would have in memory, all together.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The columns of the rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }

    /// The rows again, for a query.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the files cannot be read back.
    pub async fn frame(&self, session: &Session) -> Result<DataFrame> {
        let inner = &self.0;
        let in_memory = inner.parts.iter().filter_map(|part| match &part.held {
            Held::Memory(batches) => Some(batches.clone()),
            Held::Disk(_) => None,
        });
        let mut in_memory: Vec<Vec<RecordBatch>> = in_memory.collect();
        let on_disk = inner.parts.iter().filter_map(|part| match &part.held {
            Held::Disk(path) => Some((part.rows, path)),
            Held::Memory(_) => None,
        });
        let (mut files, mut rows) = (Vec::new(), 0);
        for (more, path) in on_disk {
            let path = Path::from_absolute_path(path).map_err(object_store::Error::from)?;
            let store = LocalFileSystem::new();
            let meta = store.head(&path).await.context(|| format!("looking for `{path}`"))?;
            files.push(PartitionedFile::new_from_meta(meta));
            rows += more;
        }
        if in_memory.is_empty() {
            // A table in memory needs a partition.
            in_memory.push(Vec::new());
        }
        let memory = session.context().read_table(Arc::new(MemTable::try_new(self.schema(), in_memory)?))?;
        if files.is_empty() {
            return Ok(memory);
        }
        let store = ObjectStoreUrl::local_filesystem();
        let disk = ParquetTable::new(store, self.schema(), Vec::new(), files, rows).kept_by(Arc::clone(&self.0) as _);
        Ok(session.context().read_table(Arc::new(disk))?.union(memory)?)
    }

    /// The rows of a range of their numbers, in order, with the columns at the places `columns` (ascending).
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) when a file cannot be opened.
    pub(crate) fn batches(
        &self,
        columns: &[usize],
        rows: Range<usize>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
        let mut first = 0;
        let mut readers: Vec<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> = Vec::new();
        for part in &self.0.parts {
            let (from, to) = (rows.start.max(first), rows.end.min(first + part.rows));
            if from < to {
                readers.push(part.read(columns, from - first..to - first)?);
            }
            first += part.rows;
        }
        Ok(readers.into_iter().flatten())
    }
}

impl Part {
    fn read(
        &self,
        columns: &[usize],
        rows: Range<usize>,
    ) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> {
        match &self.held {
            Held::Memory(batches) => {
                let mut first = 0;
                let mut picked = Vec::new();
                for batch in batches {
                    let (from, to) = (rows.start.max(first), rows.end.min(first + batch.num_rows()));
                    if from < to {
                        picked.push(batch.project(columns)?.slice(from - first, to - from));
                    }
                    first += batch.num_rows();
                }
                Ok(Box::new(picked.into_iter().map(Ok)))
            }
            Held::Disk(path) => {
                let file = File::open(path).context(|| format!("reading `{}`", path.display()))?;
                let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
                let mask = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
                let builder = builder.with_projection(mask).with_offset(rows.start).with_limit(rows.len());
                Ok(Box::new(builder.build()?.map(|batch| Ok(batch?))))
            }
        }
    }
}

fn folder() -> Result<TempDir> {
    TempDir::with_prefix("lake-stage-").context(|| "making a temporary folder")
}

/// Which rows are put aside.
#[derive(Debug, Clone)]
struct Split {
    /// The place of the column that says so.
    wanted: usize,
    /// The places and the schema of the others.
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Split {
    fn new(all: &SchemaRef, wanted: &str) -> Result<Self> {
        let wanted = all.index_of(wanted)?;
        let columns: Vec<usize> = (0..all.fields().len()).filter(|column| *column != wanted).collect();
        let schema = Arc::new(all.project(&columns)?);
        Ok(Self { wanted, columns, schema })
    }

    fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let wanted = batch.column(self.wanted).as_boolean();
        Ok(filter_record_batch(&batch.project(&self.columns)?, wanted)?)
    }
}

/// Puts the rows of one stream aside.
struct Drain {
    path: PathBuf,
    schema: SchemaRef,
    split: Option<Split>,
    /// Bytes that the rows may have in memory.
    memory_bytes: usize,
}

impl Drain {
    /// The rows put aside, and how many were left out.
    async fn run(self, mut stream: SendableRecordBatchStream) -> Result<(Part, u64)> {
        let (mut held, mut bytes) = (Vec::new(), 0);
        let (mut rows, mut others) = (0, 0);
        let mut writer = None;
        while let Some(batch) = stream.try_next().await? {
            let kept = match &self.split {
                Some(split) => split.apply(&batch)?,
                None => batch.clone(),
            };
            let kept = of_schema(&kept, &self.schema)?;
            rows += kept.num_rows();
            others += (batch.num_rows() - kept.num_rows()) as u64;
            bytes += kept.get_array_memory_size();
            held.push(kept);
            if writer.is_none() {
                if bytes <= self.memory_bytes {
                    continue;
                }
                writer = Some(self.writer().await?);
            }
            if let Some(writer) = &mut writer {
                for batch in held.drain(..) {
                    writer.write(&batch).await.context(|| self.writing())?;
                }
            }
        }
        let held = match writer {
            None => Held::Memory(held),
            Some(writer) => {
                writer.close().await.context(|| self.writing())?;
                Held::Disk(self.path)
            }
        };
        Ok((Part { rows, bytes, held }, others))
    }

    async fn writer(&self) -> Result<AsyncArrowWriter<tokio::fs::File>> {
        let file = tokio::fs::File::create(&self.path).await.context(|| format!("making `{}`", self.path.display()))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // The rows are read once or twice and then gone: nothing that only pays when they are read often.
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .build();
        Ok(AsyncArrowWriter::try_new(file, Arc::clone(&self.schema), Some(properties))?)
    }

    fn writing(&self) -> String {
        format!("writing `{}`", self.path.display())
    }
}

/// The same rows under the schema of the plan: that of a stream may say otherwise what can be null.
fn of_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::stream;

    use super::*;

    /// The numbers from 0 to 99 in batches of ten, put aside in two parts of which the second may be on disk.
    async fn staged(second_bytes: usize) -> Staged {
        let folder = folder().expect("a folder");
        let fields = ["other", "number"].map(|name| Field::new(name, DataType::Int64, false));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let mut parts = Vec::new();
        for (part, memory_bytes) in [(0, usize::MAX), (1, second_bytes)] {
            let batches = (0..5).map(|batch| {
                let first = part * 50 + batch * 10;
                let numbers: Vec<_> =
                    (0..2).map(|_| Arc::new(Int64Array::from_iter_values(first..first + 10)) as _).collect();
                Ok(RecordBatch::try_new(Arc::clone(&schema), numbers).expect("a batch"))
            });
            let batches: Vec<_> = batches.collect();
            let path = folder.path().join(format!("{part}.parquet"));
            let drain = Drain { path, schema: Arc::clone(&schema), split: None, memory_bytes };
            let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), stream::iter(batches));
            parts.push(drain.run(Box::pin(stream)).await.expect("put aside").0);
        }
        let rows = parts.iter().map(|part| part.rows as u64).sum();
        Staged(Arc::new(Inner { _folder: folder, schema, parts, rows, bytes: 0 }))
    }

    #[tokio::test]
    async fn rows_are_there_as_long_as_a_query_of_them() {
        let session = Session::detached().expect("a session");
        for second_bytes in [usize::MAX, 0] {
            let frame = staged(second_bytes).await.frame(&session).await.expect("a frame");
            assert_eq!(frame.count().await.expect("a count"), 100);
            let mut rows = staged(second_bytes).await.frame(&session).await.expect("a frame");
            rows = rows.select_columns(&["number"]).expect("a column");
            let stream = rows.execute_stream().await.expect("a stream");
            let batches: Vec<_> = stream.try_collect().await.expect("rows");
            assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 100);
        }
    }

    #[tokio::test]
    async fn rows_come_back_by_their_numbers_from_memory_and_from_disk() {
        for second_bytes in [usize::MAX, 1_000, 0] {
            let staged = staged(second_bytes).await;
            let on_disk = matches!(staged.0.parts[1].held, Held::Disk(_));
            assert_eq!(on_disk, second_bytes < usize::MAX);
            for rows in [0..100, 0..0, 3..4, 45..57, 50..100, 99..100] {
                let batches = staged.batches(&[1], rows.clone()).expect("rows").map(|batch| batch.expect("a batch"));
                let numbers = batches.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
                assert!(numbers.eq(rows.map(|number| number as i64)));
            }
        }
    }
}
