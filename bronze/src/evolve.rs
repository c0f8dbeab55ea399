//! The data columns of the table and those of a file: matched by name, new ones added, values made to fit.
//!
//! A table column keeps its first spelling and its first type for ever. A value of another type joins it when it comes
//! through the change unharmed, and goes to the rescued data when it does not.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::util::display::array_value_to_string;
use lake::{Error, Result, columns};

use crate::decode::folded;

/// The data columns of a table, as they grow with the files of a batch.
#[derive(Debug, Clone, Default)]
pub struct Evolution {
    fields: Vec<FieldRef>,
    by_name: HashMap<String, usize>,
}

/// JSON objects by row: what a row had that its columns cannot hold.
pub type Rescued = Option<Vec<Option<String>>>;

impl Evolution {
    /// The data columns of a table with this schema.
    pub fn of(schema: &Schema) -> Self {
        let mut evolution = Self::default();
        for field in schema.fields().iter().filter(|field| !columns::is_technical(field.name())) {
            evolution.add(Arc::clone(field));
        }
        evolution
    }

    /// The data columns so far: those of the table, then new ones in the order in which they appeared.
    pub fn fields(&self) -> &[FieldRef] {
        &self.fields
    }

    /// The columns of some rows of a file, one for each of [`fields`](Evolution::fields) after the call. What does not
    /// fit is null and goes to `rescued`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when a value cannot be rendered.
    pub fn place(&mut self, batch: &RecordBatch, rescued: &mut Rescued) -> Result<Vec<ArrayRef>> {
        let mut placed: Vec<Option<ArrayRef>> = vec![None; self.fields.len()];
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let index = match self.by_name.get(&folded(field.name())) {
                Some(index) => *index,
                None => self.add(Arc::new(Field::new(field.name(), field.data_type().clone(), true))),
            };
            placed.resize(self.fields.len(), None);
            let column = fit(column, &self.fields[index], rescued)?;
            placed[index] = Some(column);
        }
        let rows = batch.num_rows();
        let absent = |field: &FieldRef| new_null_array(field.data_type(), rows);
        Ok(placed
            .into_iter()
            .zip(&self.fields)
            .map(|(column, field)| column.unwrap_or_else(|| absent(field)))
            .collect())
    }

    fn add(&mut self, field: FieldRef) -> usize {
        let index = self.fields.len();
        self.by_name.insert(folded(field.name()), index);
        self.fields.push(field);
        index
    }
}

/// A column in the type of the table's; values that the change would harm are rescued.
fn fit(column: &ArrayRef, field: &Field, rescued: &mut Rescued) -> Result<ArrayRef> {
    let target = field.data_type();
    if column.data_type() == target {
        return Ok(Arc::clone(column));
    }
    let (fitted, harmed) = changed(column, target)?;
    let rows = column.len();
    for row in harmed {
        let value = array_value_to_string(column, row)
            .map_err(|error| Error::internal("a value cannot be rendered").with_source(error))?;
        let texts = rescued.get_or_insert_with(|| vec![None; rows]);
        texts[row] = Some(with_member(texts[row].take(), field.name(), value));
    }
    Ok(fitted)
}

/// The column in another type, with nulls for the values that do not survive it, and the rows of those.
fn changed(column: &ArrayRef, target: &DataType) -> Result<(ArrayRef, Vec<usize>)> {
    let all = || (0..column.len()).filter(|row| column.is_valid(*row)).collect();
    if !can_cast_types(column.data_type(), target) || !can_cast_types(target, column.data_type()) {
        return Ok((new_null_array(target, column.len()), all()));
    }
    let failed = |error| Error::internal("a column cannot change its type").with_source(error);
    let options = CastOptions::default();
    let there = cast_with_options(column, target, &options).map_err(failed)?;
    let back = cast_with_options(&there, column.data_type(), &options).map_err(failed)?;
    let same = same_values(column, &back).map_err(failed)?;
    let harmed: Vec<usize> = (0..column.len()).filter(|row| column.is_valid(*row) && !same.value(*row)).collect();
    if harmed.is_empty() {
        return Ok((there, harmed));
    }
    let kept = BooleanArray::from_iter((0..column.len()).map(|row| Some(!same.value(row))));
    Ok((arrow::compute::nullif(&there, &kept).map_err(failed)?, harmed))
}

/// Where a value came back as it was. Texts of numbers may come back with other zeros at the end of the fraction.
fn same_values(before: &ArrayRef, after: &ArrayRef) -> std::result::Result<BooleanArray, arrow::error::ArrowError> {
    if before.data_type() != &DataType::Utf8 {
        return not_distinct(before, after);
    }
    let (before, after) = (before.as_string::<i32>(), after.as_string::<i32>());
    let same = |row: usize| match (before.is_valid(row), after.is_valid(row)) {
        (true, true) => plain_number(before.value(row)) == plain_number(after.value(row)),
        (there, back) => there == back,
    };
    Ok(BooleanArray::from_iter((0..before.len()).map(|row| Some(same(row)))))
}

fn plain_number(text: &str) -> &str {
    match text.contains('.') && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte)) {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// A JSON object, which may be there already, with one more member.
fn with_member(object: Option<String>, name: &str, value: String) -> String {
    let read = object.and_then(|text| serde_json::from_str(&text).ok());
    let mut object: serde_json::Map<String, serde_json::Value> = read.unwrap_or_default();
    object.insert(name.to_owned(), serde_json::Value::String(value));
    serde_json::Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Date32Array, Decimal128Array, Float64Array, Int64Array, StringArray};

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    fn texts(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    fn shown(column: &ArrayRef) -> Vec<String> {
        let cell =
            |row| if column.is_null(row) { "\\N".into() } else { array_value_to_string(column, row).expect("text") };
        (0..column.len()).map(cell).collect()
    }

    /// Values of one column that joins a table column of another type.
    #[track_caller]
    fn check(column: ArrayRef, target: DataType, values: &[&str], rescued: &[Option<&str>]) {
        let mut evolution = Evolution::of(&Schema::new(vec![Field::new("c", target.clone(), true)]));
        let mut held = None;
        let placed = evolution.place(&batch(vec![("c", column)]), &mut held).expect("columns");
        assert_eq!(
            (placed[0].data_type(), shown(&placed[0])),
            (&target, values.iter().map(ToString::to_string).collect())
        );
        let held: Vec<Option<String>> = held.unwrap_or_else(|| vec![None; values.len()]);
        assert_eq!(held.iter().map(Option::as_deref).collect::<Vec<_>>(), rescued);
    }

    #[test]
    fn columns_are_matched_by_name_and_new_ones_come_last() {
        let table = columns::bronze_leading().into_iter().chain([Field::new("id", DataType::Utf8, true)]);
        let mut evolution = Evolution::of(&Schema::new(table.collect::<Vec<_>>()));
        let first = batch(vec![("Status", texts(&[Some("new")])), ("ID", texts(&[Some("1")]))]);
        let placed = evolution.place(&first, &mut None).expect("columns");
        assert_eq!(placed.iter().map(shown).collect::<Vec<_>>(), [["1"], ["new"]]);
        let second = batch(vec![("status", texts(&[Some("paid")])), ("coupon", texts(&[Some("X")]))]);
        let placed = evolution.place(&second, &mut None).expect("columns");
        assert_eq!(placed.iter().map(shown).collect::<Vec<_>>(), [["\\N"], ["paid"], ["X"]]);
        assert_eq!(
            evolution.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
            ["id", "Status", "coupon"]
        );
    }

    #[test]
    fn a_value_of_another_type_joins_when_it_survives() {
        let decimal = DataType::Decimal128(38, 2);
        check(Arc::new(Int64Array::from(vec![5, -1])), decimal.clone(), &["5.00", "-1.00"], &[None, None]);
        let finer = Decimal128Array::from(vec![1230, 1234]).with_precision_and_scale(38, 3).expect("a decimal");
        check(Arc::new(finer), decimal.clone(), &["1.23", "\\N"], &[None, Some("{\"c\":\"1.234\"}")]);
        check(
            Arc::new(Float64Array::from(vec![2.0, 2.5])),
            DataType::Int64,
            &["2", "\\N"],
            &[None, Some("{\"c\":\"2.5\"}")],
        );
        check(Arc::new(Int64Array::from(vec![7])), DataType::Utf8, &["7"], &[None]);
        check(Arc::new(Date32Array::from(vec![19844])), DataType::Utf8, &["2024-05-01"], &[None]);
        let large = 9_007_199_254_740_993;
        check(
            Arc::new(Int64Array::from(vec![large])),
            DataType::Float64,
            &["\\N"],
            &[Some("{\"c\":\"9007199254740993\"}")],
        );
    }

    #[test]
    fn a_text_joins_a_typed_column_only_as_it_would_be_written() {
        check(
            texts(&[Some("2024-05-01"), Some("01.05.2024"), None]),
            DataType::Date32,
            &["2024-05-01", "\\N", "\\N"],
            &[None, Some("{\"c\":\"01.05.2024\"}"), None],
        );
        check(
            texts(&[Some("7"), Some("007"), Some("x"), Some("")]),
            DataType::Int64,
            &["7", "\\N", "\\N", "\\N"],
            &[None, Some("{\"c\":\"007\"}"), Some("{\"c\":\"x\"}"), Some("{\"c\":\"\"}")],
        );
        check(
            texts(&[Some("10.5"), Some("10.505")]),
            DataType::Decimal128(38, 2),
            &["10.50", "\\N"],
            &[None, Some("{\"c\":\"10.505\"}")],
        );
    }

    #[test]
    fn what_was_rescued_before_stays() {
        let mut evolution = Evolution::of(&Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let mut rescued = Some(vec![Some("{\"_c3\":\"y\"}".to_owned())]);
        evolution.place(&batch(vec![("n", texts(&[Some("x")]))]), &mut rescued).expect("columns");
        assert_eq!(rescued, Some(vec![Some("{\"_c3\":\"y\",\"n\":\"x\"}".to_owned())]));
    }
}
