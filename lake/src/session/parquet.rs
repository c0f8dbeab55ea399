//! Parquet files as a table, of each maybe some rows only.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::DefaultParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::ParquetMetaData;

/// Parquet files of one store.
#[derive(Debug)]
pub(crate) struct ParquetTable {
    store: ObjectStoreUrl,
    schema: TableSchema,
    files: Vec<PartitionedFile>,
    rows: usize,
    keeper: Option<Arc<dyn Keeper>>,
}

/// What keeps files from being removed while it is there.
pub(crate) trait Keeper: fmt::Debug + Send + Sync {}

impl ParquetTable {
    /// Files with these columns, then those whose values each file has as its partition values; `rows` are all that are
    /// read of them. Columns that a file lacks are null.
    pub(crate) fn new(
        store: ObjectStoreUrl,
        columns: SchemaRef,
        partition_by: Vec<FieldRef>,
        files: Vec<PartitionedFile>,
        rows: usize,
    ) -> Self {
        let schema = TableSchema::builder(columns).with_table_partition_cols(partition_by).build();
        Self { store, schema, files, rows, keeper: None }
    }

    /// The same files, kept as long as a query reads them.
    pub(crate) fn kept_by(self, keeper: Arc<dyn Keeper>) -> Self {
        Self { keeper: Some(keeper), ..self }
    }
}

#[async_trait]
impl TableProvider for ParquetTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options =
            TableParquetOptions { global: state.config_options().execution.parquet.clone(), ..Default::default() };
        let mut source = ParquetSource::new(self.schema.clone()).with_table_parquet_options(options);
        if let Some(keeper) = &self.keeper {
            let readers = DefaultParquetFileReaderFactory::new(state.runtime_env().object_store(&self.store)?);
            source =
                source.with_parquet_file_reader_factory(Arc::new(Kept { it: readers, keeper: Arc::clone(keeper) }));
        }
        let groups = dealt(self.files.clone(), |file| file.object_meta.size, state.config().target_partitions());
        let groups = groups.into_iter().map(FileGroup::new).collect();
        let statistics =
            Statistics { num_rows: Precision::Exact(self.rows), ..Statistics::new_unknown(&self.schema()) };
        let config = FileScanConfigBuilder::new(self.store.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// Readers, or a reader, with what keeps their files: a plan may be gone before its last rows are read.
#[derive(Debug)]
struct Kept<T> {
    it: T,
    keeper: Arc<dyn Keeper>,
}

impl ParquetFileReaderFactory for Kept<DefaultParquetFileReaderFactory> {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let it = self.it.create_reader(partition, file, metadata_size_hint, metrics)?;
        Ok(Box::new(Kept { it, keeper: Arc::clone(&self.keeper) }))
    }
}

impl AsyncFileReader for Kept<Box<dyn AsyncFileReader + Send>> {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.it.get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        self.it.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        self.it.get_metadata(options)
    }
}

/// Files in so many groups of about the same size, the largest first into the smallest group; groups without any are left
/// out.
pub(super) fn dealt<T>(mut files: Vec<T>, size_of: impl Fn(&T) -> u64, groups: usize) -> Vec<Vec<T>> {
    files.sort_by_key(|file| std::cmp::Reverse(size_of(file)));
    let mut dealt: Vec<(u64, Vec<T>)> = (0..groups.max(1)).map(|_| (0, Vec::new())).collect();
    for file in files {
        if let Some((size, group)) = dealt.iter_mut().min_by_key(|(size, _)| *size) {
            *size += size_of(&file);
            group.push(file);
        }
    }
    dealt.into_iter().map(|(_, files)| files).filter(|files| !files.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_of_about_the_same_size() {
        assert_eq!(dealt(vec![1, 9, 3, 5], |size| *size, 2), [vec![9], vec![5, 3, 1]]);
        assert_eq!(dealt(vec![1], |size| *size, 3), [[1]]);
    }
}
