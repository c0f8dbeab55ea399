//! Where a record came from, and the record itself as text, for those who mend it.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;
use lake::{Result, columns};

use super::{missing, numbers};

/// The place of a record in what has landed.
pub(super) struct Arrival<'a> {
    pub(super) batch_id: i64,
    pub(super) file_path: &'a str,
    pub(super) row_number: i64,
}

impl<'a> Arrival<'a> {
    pub(super) fn of(batch: &'a RecordBatch, row: usize) -> Result<Self> {
        let paths = batch.column_by_name(columns::FILE_PATH).ok_or_else(|| missing(columns::FILE_PATH))?;
        let paths = paths.as_string_opt::<i32>().ok_or_else(|| missing(columns::FILE_PATH))?;
        Ok(Self {
            batch_id: numbers(batch, columns::BATCH_ID)?.value(row),
            file_path: paths.value(row),
            row_number: numbers(batch, columns::ROW_NUMBER)?.value(row),
        })
    }
}

/// A value as text; `None` for null.
pub(super) fn value(column: &ArrayRef, row: usize) -> Option<String> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().value(row).to_owned()),
        _ => array_value_to_string(column, row).ok(),
    }
}

/// The columns of the record, without those of the program, as a JSON object of texts and nulls.
pub(super) fn as_json(batch: &RecordBatch, row: usize) -> String {
    let schema = batch.schema();
    let named = schema.fields().iter().zip(batch.columns());
    let object: serde_json::Map<String, serde_json::Value> = named
        .filter(|(field, _)| !columns::is_technical(field.name()) || field.name() == columns::RESCUED_DATA)
        .filter(|(field, column)| field.name() != columns::RESCUED_DATA || column.is_valid(row))
        .map(|(field, column)| (field.name().clone(), value(column, row).into()))
        .collect();
    serde_json::Value::Object(object).to_string()
}
