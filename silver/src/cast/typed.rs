//! A column of a typed source into another type: only where every value survives the way there and back.

use arrow::array::{Array, ArrayRef, new_null_array};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;
use lake::schema::{ColumnType, type_name};

use super::Cast;

pub(super) fn cast(column: &ArrayRef, kind: ColumnType) -> Cast {
    let wanted = kind.arrow();
    if column.data_type() == &DataType::Null {
        return Cast { array: new_null_array(&wanted, column.len()), bad: Vec::new() };
    }
    let lenient = CastOptions { safe: true, ..CastOptions::default() };
    let there = cast_with_options(column, &wanted, &lenient);
    let back = there.as_ref().ok().and_then(|there| cast_with_options(there, column.data_type(), &lenient).ok());
    let (Ok(there), Some(back)) = (there, back) else {
        return refuse_all(column, &wanted);
    };
    // Text says all that a value is; a text of a text type is the value itself.
    let same = not_distinct(&back, column);
    let survives = |row: usize| same.as_ref().is_ok_and(|same| same.value(row));
    let bad: Vec<_> = (0..column.len())
        .filter(|row| column.is_valid(*row) && (there.is_null(*row) || !(kind == ColumnType::String || survives(*row))))
        .map(|row| (row, misfit(column, row, &wanted)))
        .collect();
    let array = if bad.is_empty() { there } else { without(&there, &bad) };
    Cast { array, bad }
}

fn refuse_all(column: &ArrayRef, wanted: &DataType) -> Cast {
    let bad = (0..column.len()).filter(|row| column.is_valid(*row)).map(|row| (row, misfit(column, row, wanted)));
    Cast { array: new_null_array(wanted, column.len()), bad: bad.collect() }
}

fn misfit(column: &ArrayRef, row: usize, wanted: &DataType) -> String {
    let value = array_value_to_string(column, row).unwrap_or_default();
    format!("{} `{value}` does not fit {} exactly", type_name(column.data_type()), type_name(wanted))
}

/// The column with the bad rows null.
fn without(column: &ArrayRef, bad: &[(usize, String)]) -> ArrayRef {
    let mut is_bad = vec![false; column.len()];
    for (row, _) in bad {
        is_bad[*row] = true;
    }
    let mask = arrow::array::BooleanArray::from(is_bad);
    arrow::compute::nullif(column, &mask).unwrap_or_else(|_| new_null_array(column.data_type(), column.len()))
}
