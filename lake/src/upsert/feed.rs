//! The change data feed of a commit: files below `_change_data` with the rows as they were and as they are.
//!
//! A commit that only adds files needs none: its rows are inserts. Neither does one that only marks rows as deleted and
//! adds files: readers tell deletes from the vectors and inserts from the files, so that an update reads as both. Where
//! a file is written anew, what changed cannot be told from the files, and the feed is written for the whole commit.
//! <https://github.com/delta-io/delta/blob/master/PROTOCOL.md#change-data-files>

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::kernel::{Action, AddCDCFile};

use crate::error::Result;
use crate::table::Table;
use crate::write::TableWriter;

const FOLDER: &str = "_change_data";
/// The column of the feed that says what became of a row.
pub(crate) const CHANGE_TYPE: &str = "_change_type";
/// The property of a table that asks for a feed.
const ENABLED: &str = "delta.enableChangeDataFeed";

/// What became of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChangeType {
    Insert,
    Before,
    After,
    Delete,
}

impl ChangeType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Before => "update_preimage",
            Self::After => "update_postimage",
            Self::Delete => "delete",
        }
    }
}

/// True when the table asks for a feed.
pub(crate) fn is_enabled(table: &Table) -> Result<bool> {
    Ok(table.property(ENABLED)?.is_some_and(|value| value.eq_ignore_ascii_case("true")))
}

/// Writes files of the feed.
pub(crate) struct FeedWriter {
    writer: TableWriter,
    schema: SchemaRef,
}

impl FeedWriter {
    pub(super) fn new(table: &Table) -> Self {
        let schema = of_feed(&table.schema());
        Self { writer: TableWriter::in_folder(table, Arc::clone(&schema), FOLDER), schema }
    }

    /// A writer for a table that gets other columns and partitions by the commit.
    pub(crate) fn becoming(table: &Table, columns: &Schema, partition_by: Vec<String>) -> Self {
        let schema = of_feed(columns);
        let writer = TableWriter::in_folder(table, Arc::clone(&schema), FOLDER).partitioned_by(partition_by);
        Self { writer, schema }
    }

    /// Writes rows of the table as what became of them.
    pub(crate) async fn write(&mut self, rows: &RecordBatch, change_type: ChangeType) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let types = StringArray::from(vec![change_type.as_str(); rows.num_rows()]);
        let columns = rows.columns().iter().cloned().chain([Arc::new(types) as _]).collect();
        self.writer.write(&RecordBatch::try_new(Arc::clone(&self.schema), columns)?).await
    }

    /// The actions that name the files.
    pub(crate) async fn close(self) -> Result<Vec<Action>> {
        let files = self.writer.close().await?.files.into_iter();
        let named = files.map(|file| AddCDCFile {
            path: format!("{FOLDER}/{}", file.path),
            size: file.size,
            partition_values: file.partition_values,
            data_change: false,
            tags: None,
        });
        Ok(named.map(Action::Cdc).collect())
    }

    pub(crate) async fn abort(self) {
        self.writer.abort().await;
    }
}

/// The columns of a table and how a row has changed.
fn of_feed(columns: &Schema) -> SchemaRef {
    let fields = columns.fields().iter().map(|field| field.as_ref().clone());
    Arc::new(Schema::new(fields.chain([Field::new(CHANGE_TYPE, DataType::Utf8, true)]).collect::<Vec<_>>()))
}
