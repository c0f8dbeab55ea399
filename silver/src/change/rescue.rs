//! Values that bronze could not hold in its columns, back in their places.
//!
//! A typed source may write a column in one type first and in another later. Bronze keeps its column's first type and
//! puts what does not fit into `_rescued_data`. Here such a column becomes text with those values in it: one that fits
//! silver's type is taken, one that does not is refused, and none is ever null. Values that bronze does hold are cast as
//! they are, so that what becomes of them does not depend on their neighbours.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::cast;
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::{DataType, Field, Schema};
use lake::cast::Cast;
use lake::{Result, columns};
use serde_json::{Map, Value};

/// Records with the rescued values in their columns.
pub(super) struct Restored {
    /// The records; columns that had rescued values are text.
    pub(super) batch: RecordBatch,
    /// The texts by column position and row.
    texts: HashMap<usize, HashMap<usize, String>>,
    /// The columns that are text now as bronze holds them, by position.
    held: HashMap<usize, ArrayRef>,
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
            return Ok(Self { batch: batch.clone(), texts, held: HashMap::new(), nulls });
        }
        let schema = batch.schema();
        let mut fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        let mut arrays: Vec<ArrayRef> = batch.columns().to_vec();
        let mut all_held = HashMap::new();
        for (position, texts) in &texts {
            all_held.insert(*position, Arc::clone(batch.column(*position)));
            let held = cast(batch.column(*position), &DataType::Utf8)?;
            let held = held.as_string::<i32>();
            let value =
                |row: usize| texts.get(&row).map(String::as_str).or(held.is_valid(row).then(|| held.value(row)));
            arrays[*position] = Arc::new((0..batch.num_rows()).map(value).collect::<StringArray>());
            fields[*position] = fields[*position].clone().with_data_type(DataType::Utf8).with_nullable(true);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        Ok(Self { batch, texts, held: all_held, nulls })
    }

    /// A column cast by `cast`, its values as bronze holds them and the rescued ones as texts. `texts` is the column as it
    /// is in [`batch`](Self::batch), maybe without some values.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when both are of different types.
    pub(super) fn cast(
        &self,
        column: Option<usize>,
        texts: &ArrayRef,
        cast: impl Fn(&ArrayRef) -> Cast,
    ) -> Result<Cast> {
        let of_texts = cast(texts);
        let Some((rescued, held)) = column.and_then(|column| Some((self.texts.get(&column)?, self.held.get(&column)?)))
        else {
            return Ok(of_texts);
        };
        if held.data_type() == &DataType::Utf8 {
            return Ok(of_texts);
        }
        let of_held = cast(held);
        let is_rescued = |row: &usize| rescued.contains_key(row);
        let mask: BooleanArray = (0..texts.len()).map(|row| Some(is_rescued(&row))).collect();
        let array = zip(&mask, &of_texts.array, &of_held.array)?;
        let mut bad: Vec<(usize, String)> = of_texts.bad.into_iter().filter(|(row, _)| is_rescued(row)).collect();
        bad.extend(of_held.bad.into_iter().filter(|(row, _)| !is_rescued(row)));
        bad.sort_by_key(|(row, _)| *row);
        Ok(Cast { array, bad })
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

    #[test]
    fn what_bronze_holds_is_cast_as_it_is_beside_a_rescued_value() {
        let schema = Schema::new(vec![
            Field::new(columns::RESCUED_DATA, DataType::Utf8, true),
            Field::new("v", DataType::Binary, true),
        ]);
        let rescued = StringArray::from(vec![None, Some(r#"{"v":"x"}"#)]);
        let held: ArrayRef = Arc::new(arrow::array::BinaryArray::from_opt_vec(vec![Some(&b"\xff\x00"[..]), None]));
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(rescued), held]).expect("a batch");
        let restored = Restored::of(&batch).expect("restored");
        let rules = lake::cast::Rules { zone: chrono_tz::Tz::UTC };
        let texts = restored.batch.column(1);
        let to = |kind: lake::schema::ColumnType| {
            restored.cast(Some(1), texts, |values| lake::cast::cast(values, kind, rules)).expect("a cast")
        };
        let binary = to(lake::schema::ColumnType::Binary);
        assert_eq!(binary.array.as_binary::<i32>().value(0), b"\xff\x00");
        assert_eq!(binary.array.as_binary::<i32>().value(1), b"x");
    }
}
