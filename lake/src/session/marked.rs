//! Data files with deleted rows, scanned like any others: in parallel, with filters that skip row groups and pages.
//!
//! The library scans a set of files with a deletion vector among them in one partition and reads all of their rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use chrono::{DateTime, Utc};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::ident;
use deltalake::kernel::LogicalFileView;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;
use parquet::arrow::arrow_reader::RowSelection;
use roaring::RoaringTreemap;

use super::Session;
use super::parquet::ParquetTable;
use crate::error::{Context, Error, Result};
use crate::table::Table;
use crate::upsert::file::Files;

/// Deletion vectors that are read at the same time.
const VECTORS_AT_ONCE: usize = 16;

/// True for a file of which the log tells all that a scan must know.
pub(super) fn can_be_scanned(file: &LogicalFileView) -> bool {
    file.num_records().is_some()
}

/// True for columns with parts that must not be null: other engines write them as ones that may be, and only the library's
/// scan lets that pass.
pub(super) fn has_required_parts(schema: &Schema) -> bool {
    fn of(kind: &DataType) -> bool {
        match kind {
            DataType::Struct(fields) => fields.iter().any(|field| !field.is_nullable() || of(field.data_type())),
            DataType::List(item) => !item.is_nullable() || of(item.data_type()),
            // The key of a map is never null; its value is the second part of an entry.
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(entry) => {
                    entry.iter().skip(1).any(|value| !value.is_nullable() || of(value.data_type()))
                }
                _ => true,
            },
            _ => false,
        }
    }
    schema.fields().iter().any(|field| of(field.data_type()))
}

impl Session {
    /// The rows that are left of data files with deleted ones, with the columns of `schema`, which are those of the
    /// table.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) when a deletion vector cannot be read.
    pub(super) async fn marked(
        &self,
        table: &Table,
        marked: Vec<LogicalFileView>,
        schema: &SchemaRef,
    ) -> Result<Arc<dyn TableProvider>> {
        let files = Files::of(table)?;
        let partition_by = table.partition_columns()?;
        let is_of_log = |field: &&Arc<Field>| partition_by.contains(field.name());
        let of_log = partition_by.iter().map(|name| Ok(Arc::new(schema.field_with_name(name)?.clone())));
        let of_log = of_log.collect::<Result<Vec<_>>>()?;
        let stored = schema.fields().iter().filter(|field| !is_of_log(field)).cloned().collect::<Vec<_>>();

        let vectors = marked.iter().map(|file| files.deleted(file).boxed()).collect::<Vec<_>>();
        let vectors: Vec<RoaringTreemap> = stream::iter(vectors).buffered(VECTORS_AT_ONCE).try_collect().await?;
        let mut rows = 0;
        let mut scanned = Vec::with_capacity(marked.len());
        for (file, deleted) in marked.iter().zip(vectors) {
            let values = of_log.iter().map(|field| partition_value(file, field)).collect::<Result<Vec<_>>>();
            let values =
                values.context(|| format!("reading the partition of `{}` of {}", file.path(), table.name()))?;
            let all =
                file.num_records().ok_or_else(|| Error::internal("a file without a number of rows is scanned"))?;
            rows += all.saturating_sub(usize::try_from(deleted.len()).unwrap_or(usize::MAX));
            let left = RowSelection::from_consecutive_ranges(left(&deleted, all), all);
            let file = PartitionedFile::new_from_meta(meta(file)).with_partition_values(values);
            scanned.push(file.with_extension(ParquetRowSelection::new(left)));
        }
        let store = self.store_of(table)?;
        let scan = ParquetTable::new(store, Arc::new(Schema::new(stored)), of_log, scanned, rows);
        let ordered = schema.fields().iter().map(|field| ident(field.name())).collect::<Vec<_>>();
        Ok(self.ctx.read_table(Arc::new(scan))?.select(ordered)?.into_view())
    }

    /// The store of a table's files, known to this session.
    fn store_of(&self, table: &Table) -> Result<ObjectStoreUrl> {
        let url = ObjectStoreUrl::parse(format!("files-of://{}", table.id()?))?;
        self.ctx.register_object_store(url.as_ref(), table.delta().object_store());
        Ok(url)
    }
}

fn meta(file: &LogicalFileView) -> ObjectMeta {
    ObjectMeta {
        location: file.object_store_path(),
        last_modified: DateTime::<Utc>::from_timestamp_millis(file.modification_time()).unwrap_or_default(),
        size: u64::try_from(file.size()).unwrap_or(0),
        e_tag: None,
        version: None,
    }
}

/// The value of a partition column in a file: null when there is none or the empty text.
fn partition_value(file: &LogicalFileView, field: &Field) -> Result<ScalarValue> {
    let text = file.partition_values_map().remove(field.name()).flatten().filter(|text| !text.is_empty());
    Ok(ScalarValue::Utf8(text).cast_to(field.data_type())?)
}

/// The runs of rows of a file with so many that are not deleted.
fn left(deleted: &RoaringTreemap, all: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let deleted = deleted.iter().filter_map(|row| usize::try_from(row).ok()).filter(move |row| *row < all);
    let mut first = 0;
    let runs = deleted.chain([all]).map(move |row| std::mem::replace(&mut first, row + 1)..row);
    runs.filter(|run| !run.is_empty()).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_are_the_runs_between_deleted_rows() {
        let runs = |deleted: &[u64], all| left(&deleted.iter().copied().collect(), all).collect::<Vec<_>>();
        assert_eq!(runs(&[0, 1, 4, 9], 10), [2..4, 5..9]);
        assert_eq!(runs(&[], 3), [std::ops::Range { start: 0, end: 3 }]);
        assert!(runs(&[0, 1], 2).is_empty());
    }
}
