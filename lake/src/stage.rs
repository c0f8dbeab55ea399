//! Rows put aside on local disk between two passes over them, so that no pass holds them in memory.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::ParquetReadOptions;
use futures::TryStreamExt;
use futures::future::try_join_all;
use parquet::arrow::AsyncArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use crate::error::{Context, Error, Result};
use crate::session::Session;

/// The rows of a query in temporary Parquet files; they are gone with this value.
#[derive(Debug)]
pub struct Staged {
    folder: TempDir,
    schema: SchemaRef,
    rows: u64,
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
        let writers = streams.into_iter().enumerate().map(|(number, stream)| {
            let path = folder.path().join(format!("part-{number:05}.parquet"));
            let (schema, split) = (Arc::clone(&schema), split.clone());
            async move {
                let rows = tokio::spawn(async move { drain(&path, stream, schema, split).await }).await;
                rows.map_err(|error| Error::internal("a writer ended early").with_source(error))?
            }
        });
        let parts = try_join_all(writers).await?;
        let (rows, others) = parts.into_iter().fold((0, 0), |(rows, others), part| (rows + part.0, others + part.1));
        Ok((Self { folder, schema, rows }, others))
    }

    /// Rows put aside.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The columns of the rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The rows again.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the files cannot be read back.
    pub async fn frame(&self, session: &Session) -> Result<DataFrame> {
        let folder = self.folder.path().display().to_string();
        let options = ParquetReadOptions::default().schema(&self.schema);
        Ok(session.context().read_parquet(format!("{folder}/"), options).await?)
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

/// Rows put aside, and rows left out.
async fn drain(
    path: &Path,
    mut stream: SendableRecordBatchStream,
    schema: SchemaRef,
    split: Option<Split>,
) -> Result<(u64, u64)> {
    let file = tokio::fs::File::create(path).await.context(|| format!("making `{}`", path.display()))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = AsyncArrowWriter::try_new(file, schema, Some(properties))?;
    let (mut rows, mut others) = (0, 0);
    while let Some(batch) = stream.try_next().await? {
        let kept = match &split {
            Some(split) => split.apply(&batch)?,
            None => batch.clone(),
        };
        rows += kept.num_rows() as u64;
        others += (batch.num_rows() - kept.num_rows()) as u64;
        writer.write(&kept).await.context(|| format!("writing `{}`", path.display()))?;
    }
    writer.close().await.context(|| format!("writing `{}`", path.display()))?;
    Ok((rows, others))
}
