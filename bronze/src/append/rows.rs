//! Decoded rows with their technical columns, as the table has them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow::datatypes::{DataType, FieldRef, Schema};
use lake::columns::bronze_leading;
use lake::{Error, Result};

use crate::decode::Chunk;
use crate::discover::{FolderValue, FoundFile};
use crate::evolve::{Evolution, FileColumns};

/// What all rows of one file in one batch have in common.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) batch: i64,
    pub(super) file: FoundFile,
    /// What the folders of the file say.
    pub(super) folders: Vec<(String, FolderValue)>,
    pub(super) ingested_us: i64,
}

/// The rows of a chunk as rows of the table: technical columns first, then the data columns.
///
/// # Errors
/// As [`Evolution::place`].
pub(super) fn table_rows(
    chunk: Chunk,
    origin: &Origin,
    evolution: &mut Evolution,
    columns: &mut FileColumns,
) -> Result<RecordBatch> {
    let rows = chunk.columns.num_rows();
    let mut rescued = chunk.rescued;
    let data = evolution.place(columns, &chunk.columns, &mut rescued)?;
    let file = &origin.file;
    let number = |value: i64| -> ArrayRef { Arc::new(Int64Array::from_value(value, rows)) };
    let time =
        |value: i64| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from_value(value, rows).with_timezone("UTC")) };
    let size = i64::try_from(file.size).unwrap_or(i64::MAX);
    let mut columns = vec![
        number(origin.batch),
        Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&file.path, rows))),
        Arc::new(Int64Array::from(chunk.row_numbers)),
        number(size),
        time(file.modified_us),
        time(origin.ingested_us),
        match rescued {
            Some(rescued) => Arc::new(StringArray::from(rescued)),
            None => new_null_array(&DataType::Utf8, rows),
        },
    ];
    columns.extend(data);
    let schema = Schema::new(leading().chain(evolution.fields().iter().cloned()).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns)
        .map_err(|error| Error::internal("rows of a file do not make a batch").with_source(error))
}

fn leading() -> impl Iterator<Item = FieldRef> {
    bronze_leading().into_iter().map(Arc::new)
}
