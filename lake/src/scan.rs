//! Rows of a table without a query of one's own: all of a small one, or what a column holds where another is a number.

use std::collections::BTreeSet;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::logical_expr::{cast, ident, lit};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::error::{Context, Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::table::Table;

/// Files that are fetched at the same time.
const FETCHED_AHEAD: usize = 16;

impl Table {
    /// The rows of the open version, in no order of their files. It is for tables that are read as a whole and have
    /// neither partitions nor deleted rows; files may have fewer columns than the table.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when a file cannot be fetched, [`ErrorKind::Table`] when one is not what it should be.
    pub async fn all_rows(&self) -> Result<Vec<RecordBatch>> {
        let name = || format!("reading {}", self.name());
        if !self.partition_columns()?.is_empty() || self.has_deletion_vectors()? {
            let message = format!("{} has partitions or deleted rows, which no table of its kind has", self.name());
            return Err(Error::new(ErrorKind::Table, message));
        }
        let store = self.delta().object_store();
        let paths = self.file_paths()?.into_iter();
        let fetched = stream::iter(paths.map(|path| {
            let store = &store;
            async move {
                Ok::<_, Error>(store.get(&Path::parse(path).map_err(object_store::Error::from)?).await?.bytes().await?)
            }
        }));
        let mut files = fetched.buffered(FETCHED_AHEAD);
        let mut batches = Vec::new();
        while let Some(bytes) = files.try_next().await.context(name)? {
            let broken =
                |error| Error::new(ErrorKind::Table, format!("a file of {} is broken", self.name())).with_source(error);
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|builder| builder.build());
            for batch in reader.map_err(broken)? {
                batches.push(batch.context(name)?);
            }
        }
        Ok(batches)
    }
}

/// The texts that `column` holds in the rows where the column `equals.0` is the number `equals.1`.
///
/// # Errors
/// [`ErrorKind::Query`] when the table has no such columns, [`ErrorKind::Store`] when it cannot be read.
pub async fn texts_where(lake: &Lake, table: &Table, column: &str, equals: (&str, i64)) -> Result<BTreeSet<String>> {
    let session = lake.session()?;
    let rows = session.context().read_table(session.provider(table).await?)?;
    let texts = rows.filter(ident(equals.0).eq(lit(equals.1)))?.select(vec![cast(ident(column), DataType::Utf8)])?;
    let batches = texts.distinct()?.collect().await.context(|| format!("reading {}", table.name()))?;
    let texts = |batch: &RecordBatch| -> Vec<String> {
        batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect()
    };
    Ok(batches.iter().flat_map(texts).collect())
}
