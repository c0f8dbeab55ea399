//! Values that bronze could not hold in its columns, back in their places.
//!
//! A typed source may write a column in one type first and in another later. Bronze keeps its column's first type and
//! puts what does not fit into `_rescued_data`. Here such a column becomes text with those values in it, and is cast
//! like any text: a value that fits silver's type is taken, one that does not is refused, and none is ever null.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use lake::{Result, columns};
use serde_json::{Map, Value};

/// Records with the rescued values in their columns.
pub(super) struct Restored {
    /// The records; columns that had rescued values are text.
    pub(super) batch: RecordBatch,
    /// The texts by column position and row.
    texts: HashMap<usize, HashMap<usize, String>>,
}

impl Restored {
    /// Puts back what a batch holds in `_rescued_data`.
    ///
    /// # Errors
    /// When a column cannot be written as text.
    pub(super) fn of(batch: &RecordBatch) -> Result<Self> {
        let texts = rescued(batch);
        if texts.is_empty() {
            return Ok(Self { batch: batch.clone(), texts });
        }
        let schema = batch.schema();
        let mut fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        let mut arrays: Vec<ArrayRef> = batch.columns().to_vec();
        for (position, texts) in &texts {
            let held = cast(batch.column(*position), &DataType::Utf8)?;
            let held = held.as_string::<i32>();
            let value =
                |row: usize| texts.get(&row).map(String::as_str).or(held.is_valid(row).then(|| held.value(row)));
            arrays[*position] = Arc::new((0..batch.num_rows()).map(value).collect::<StringArray>());
            fields[*position] = fields[*position].clone().with_data_type(DataType::Utf8).with_nullable(true);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        Ok(Self { batch, texts })
    }

    /// The first rescued value of a row among some columns.
    pub(super) fn text(&self, row: usize, columns: &[usize]) -> Option<&str> {
        columns.iter().find_map(|column| self.texts.get(column)?.get(&row).map(String::as_str))
    }
}

/// Rescued values of columns that are null in the same row, by column and row.
fn rescued(batch: &RecordBatch) -> HashMap<usize, HashMap<usize, String>> {
    let mut texts: HashMap<usize, HashMap<usize, String>> = HashMap::new();
    let Some(column) = batch.column_by_name(columns::RESCUED_DATA).and_then(|column| column.as_string_opt::<i32>())
    else {
        return texts;
    };
    let schema = batch.schema();
    for (row, text) in column.iter().enumerate().filter_map(|(row, text)| Some((row, text?))) {
        let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) else { continue };
        for (name, value) in object {
            let position = super::resolve::find(&schema, &name).filter(|position| batch.column(*position).is_null(row));
            let value = match value {
                Value::Null => None,
                Value::String(text) => Some(text),
                other => Some(other.to_string()),
            };
            if let (Some(position), Some(value)) = (position, value) {
                texts.entry(position).or_default().insert(row, value);
            }
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    fn batch() -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new(columns::RESCUED_DATA, DataType::Utf8, true),
            Field::new("amount", DataType::Int64, true),
            Field::new("other", DataType::Int64, true),
        ]);
        let rescued =
            StringArray::from(vec![None, Some(r#"{"Amount":"11.1250","_c9":"x"}"#), Some(r#"{"other":"y"}"#)]);
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(rescued),
            Arc::new(Int64Array::from(vec![Some(10), None, None])),
            Arc::new(Int64Array::from(vec![1, 2, 3])),
        ];
        RecordBatch::try_new(Arc::new(schema), arrays).expect("a batch")
    }

    #[test]
    fn a_rescued_value_is_back_in_its_column_as_text() {
        let restored = Restored::of(&batch()).expect("restored");
        let amounts = restored.batch.column(1).as_string::<i32>();
        assert_eq!(amounts.iter().collect::<Vec<_>>(), [Some("10"), Some("11.1250"), None]);
        assert_eq!(restored.batch.column(2).data_type(), &DataType::Int64, "a value that is there stays");
        assert_eq!((restored.text(1, &[1]), restored.text(2, &[1, 2])), (Some("11.1250"), None));
    }
}
