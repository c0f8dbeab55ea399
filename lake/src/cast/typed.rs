//! A column of a typed source into another type: only where every value survives the way there and back, and never by
//! the count behind a date or a timestamp (days, microseconds), which the source's own number need not mean.

use std::sync::Arc;

use super::{Cast, number, time};
use crate::schema::{ColumnType, type_name};
use arrow::array::types::{Decimal128Type, Float64Type};
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float32Array, Float64Array, new_null_array};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;

/// A single-precision number as the double of its own shortest digits: 19.99 stays 19.99, where the double of the same
/// binary fraction is 19.989999771118164.
pub fn widened(value: f32) -> f64 {
    let exact = f64::from(value);
    if !exact.is_finite() || exact.fract() == 0.0 && exact.abs() < 16_777_216.0 {
        return exact;
    }
    // A decimal of six digits at most is the only one of so few that is this number, and so the shortest.
    for scale in [100.0, 10_000.0] {
        let digits = (exact * scale).round();
        let wide = digits / scale;
        if digits.abs() < 1_000_000.0 && (wide as f32).to_bits() == value.to_bits() {
            return wide;
        }
    }
    value.to_string().parse().ok().filter(|wide| (*wide as f32).to_bits() == value.to_bits()).unwrap_or(exact)
}

pub(super) fn cast(column: &ArrayRef, kind: ColumnType) -> Cast {
    let wanted = kind.arrow();
    if column.data_type() == &DataType::Null {
        return Cast { array: new_null_array(&wanted, column.len()), bad: Vec::new() };
    }
    match (column.data_type(), kind) {
        (DataType::Float64, ColumnType::Decimal(precision, scale)) => return to_decimal(column, precision, scale),
        (DataType::Float64, ColumnType::Float) => return to_float(column),
        (DataType::Decimal128(_, scale), ColumnType::Double) if *scale >= 0 => return to_double(column),
        (held, _) if (held.is_numeric() && wanted.is_temporal()) || (held.is_temporal() && wanted.is_numeric()) => {
            return refuse_all(column, &wanted, |row| another_kind(column, row, &wanted));
        }
        _ => {}
    }
    let lenient = CastOptions { safe: true, ..CastOptions::default() };
    let there = cast_with_options(column, &wanted, &lenient);
    let back = there.as_ref().ok().and_then(|there| cast_with_options(there, column.data_type(), &lenient).ok());
    let (Ok(there), Some(back)) = (there, back) else {
        return refuse_all(column, &wanted, |row| misfit(column, row, &wanted));
    };
    // Text says all that a value is; a text of a text type is the value itself.
    let same = not_distinct(&back, column);
    let survives = |row: usize| same.as_ref().is_ok_and(|same| same.value(row));
    let bad: Vec<_> = (0..column.len())
        .filter(|row| column.is_valid(*row) && (there.is_null(*row) || !(kind == ColumnType::String || survives(*row))))
        .map(|row| (row, misfit(column, row, &wanted)))
        .collect();
    let array = if bad.is_empty() { there } else { without(&there, &bad) };
    let Cast { array, bad: far } = time::within(&array);
    Cast { array, bad: joined(bad, far) }
}

/// Two lists of rows as one, rising.
fn joined(mut bad: Vec<(usize, String)>, more: Vec<(usize, String)>) -> Vec<(usize, String)> {
    bad.extend(more);
    bad.sort_by_key(|(row, _)| *row);
    bad
}

/// A double means the shortest digits that stand for it, not the binary fraction behind them: 1.1 is 1.1.
fn to_decimal(column: &ArrayRef, precision: u8, scale: i8) -> Cast {
    let kind = ColumnType::Decimal(precision, scale).arrow();
    let values = column.as_primitive::<Float64Type>();
    let there = values.iter().map(|value| number::decimal(&value?.to_string(), precision, scale).ok());
    let there: ArrayRef = Arc::new(there.collect::<Decimal128Array>().with_data_type(kind.clone()));
    named(column, there, &kind)
}

/// A double becomes the single of the same value, or of the same shortest digits.
fn to_float(column: &ArrayRef) -> Cast {
    let single = |wide: f64| {
        let value = wide as f32;
        (f64::from(value) == wide || wide.is_nan() || widened(value) == wide).then_some(value)
    };
    let values = column.as_primitive::<Float64Type>();
    let there: ArrayRef = Arc::new(values.iter().map(|value| single(value?)).collect::<Float32Array>());
    named(column, there, &DataType::Float32)
}

/// A decimal becomes the double whose shortest digits are its own, if there is one.
fn to_double(column: &ArrayRef) -> Cast {
    let values = column.as_primitive::<Decimal128Type>();
    let (precision, scale) = (values.precision(), values.scale());
    let double = |row: usize| {
        let double = values.value_as_string(row).parse::<f64>().ok().filter(|_| values.is_valid(row))?;
        (number::decimal(&double.to_string(), precision, scale) == Ok(values.value(row))).then_some(double)
    };
    let there: ArrayRef = Arc::new((0..values.len()).map(double).collect::<Float64Array>());
    named(column, there, &DataType::Float64)
}

/// A cast whose misfits are the values that became null.
fn named(column: &ArrayRef, array: ArrayRef, wanted: &DataType) -> Cast {
    let lost = (0..column.len()).filter(|row| column.is_valid(*row) && array.is_null(*row));
    let bad = lost.map(|row| (row, misfit(column, row, wanted))).collect();
    Cast { array, bad }
}

fn refuse_all(column: &ArrayRef, wanted: &DataType, reason: impl Fn(usize) -> String) -> Cast {
    let bad = (0..column.len()).filter(|row| column.is_valid(*row)).map(|row| (row, reason(row)));
    Cast { array: new_null_array(wanted, column.len()), bad: bad.collect() }
}

fn another_kind(column: &ArrayRef, row: usize, wanted: &DataType) -> String {
    let misfit = misfit(column, row, wanted);
    match wanted {
        DataType::Date32 => format!("{misfit}: a count of days is `date_days`"),
        DataType::Timestamp(..) => format!("{misfit}: a count is `timestamp_ms` or `timestamp_us`"),
        _ => misfit,
    }
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
