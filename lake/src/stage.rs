//! Rows put aside on local disk between two passes over them, so that no pass holds them in memory.

use std::path::Path;
use std::sync::Arc;

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
        let folder = TempDir::with_prefix("lake-stage-").context(|| "making a temporary folder")?;
        let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
        let streams = frame.execute_stream_partitioned().await?;
        let writers = streams.into_iter().enumerate().map(|(number, stream)| {
            let path = folder.path().join(format!("part-{number:05}.parquet"));
            async move {
                let rows = tokio::spawn(async move { drain(&path, stream).await }).await;
                rows.map_err(|error| Error::internal("a writer ended early").with_source(error))?
            }
        });
        let rows = try_join_all(writers).await?.into_iter().sum();
        Ok(Self { folder, schema, rows })
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

async fn drain(path: &Path, mut stream: SendableRecordBatchStream) -> Result<u64> {
    let file = tokio::fs::File::create(path).await.context(|| format!("making `{}`", path.display()))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = AsyncArrowWriter::try_new(file, stream.schema(), Some(properties))?;
    let mut rows = 0;
    while let Some(batch) = stream.try_next().await? {
        rows += batch.num_rows() as u64;
        writer.write(&batch).await.context(|| format!("writing `{}`", path.display()))?;
    }
    writer.close().await.context(|| format!("writing `{}`", path.display()))?;
    Ok(rows)
}
