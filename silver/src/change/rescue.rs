//! Values that bronze could not hold in its columns, back in their places.
//!
//! A typed source may write a column in one type first and in another later. Bronze keeps its column's first type and
//! puts what does not fit into `_rescued_data`. Here such a column becomes text with those values in it, and is cast
//! like any text: a value that fits silver's type is taken, one that does not is refused, and none is ever null.

use std::collections::{HashMap, HashSet};
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
    /// Nulls that were there, by column position and row, where bronze notes them.
    nulls: HashSet<(usize, usize)>,
}

impl Restored {
    /// Puts back what a batch holds in `_rescued_data`.
    ///
    /// # Errors
    /// When a column cannot be written as text.
    pub(super) fn of(batch: &RecordBatch) -> Result<Self> {
        let (texts, nulls) = rescued(batch);
        if texts.is_empty() {
            return Ok(Self { batch: batch.clone(), texts, nulls });
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
        Ok(Self { batch, texts, nulls })
    }

    /// Whether a value was there as null, where bronze notes that.
    pub(super) fn is_explicit_null(&self, column: usize, row: usize) -> bool {
        self.nulls.contains(&(column, row))
    }

    /// The first rescued value of a row among some columns.
    pub(super) fn text(&self, row: usize, columns: &[usize]) -> Option<&str> {
        columns.iter().find_map(|column| self.texts.get(column)?.get(&row).map(String::as_str))
    }
}

type Texts = HashMap<usize, HashMap<usize, String>>;

/// Rescued values of columns that are null in the same row, by column and row, and the nulls that are noted.
fn rescued(batch: &RecordBatch) -> (Texts, HashSet<(usize, usize)>) {
    let mut texts = Texts::new();
    let mut nulls = HashSet::new();
    let Some(column) = batch.column_by_name(columns::RESCUED_DATA).and_then(|column| column.as_string_opt::<i32>())
    else {
        return (texts, nulls);
    };
    let schema = batch.schema();
    for (row, text) in column.iter().enumerate().filter_map(|(row, text)| Some((row, text?))) {
        let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) else { continue };
        for (name, value) in object {
            let position = super::resolve::find(&schema, &name).filter(|position| batch.column(*position).is_null(row));
            let Some(position) = position else { continue };
            let text = match value {
                Value::Null => {
                    nulls.insert((position, row));
                    continue;
                }
                Value::String(text) => text,
                other => other.to_string(),
            };
            texts.entry(position).or_default().insert(row, text);
        }
    }
    (texts, nulls)
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
        let rescued = StringArray::from(vec![
            None,
            Some(r#"{"Amount":"11.1250","_c9":"x"}"#),
            Some(r#"{"other":"y","amount":null}"#),
        ]);
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
        assert!(restored.is_explicit_null(1, 2) && !restored.is_explicit_null(1, 1));
        assert_eq!((restored.text(1, &[1]), restored.text(2, &[1, 2])), (Some("11.1250"), None));
    }
}
