//! One value of a result as JSON: numbers as numbers, decimals and times as text that loses nothing.

use arrow::array::{Array, AsArray, StructArray};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::DateTime;
use lake::Result;
use serde_json::{Map, Number, Value};

/// The value of `array` in `row`.
///
/// # Errors
/// [`lake::ErrorKind::Query`] when a value has no text, such as a date out of range.
pub(super) fn json(array: &dyn Array, row: usize) -> Result<Value> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float32 => single(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Timestamp(unit, zone) => timestamp(array, row, unit, zone.is_some())?,
        DataType::List(_) => list(array.as_list::<i32>().value(row).as_ref())?,
        DataType::LargeList(_) => list(array.as_list::<i64>().value(row).as_ref())?,
        DataType::FixedSizeList(_, _) => list(array.as_fixed_size_list().value(row).as_ref())?,
        DataType::Struct(_) => fields(array.as_struct(), row)?,
        DataType::Map(_, _) => entries(&array.as_map().value(row))?,
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[row];
            json(dictionary.values().as_ref(), key)?
        }
        _ => text(array, row)?.into(),
    })
}

/// A text as a person or a CSV file has it: JSON without the quotes of texts.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn text(array: &dyn Array, row: usize) -> Result<String> {
    let options = FormatOptions::new();
    Ok(ArrayFormatter::try_new(array, &options)?.value(row).try_to_string()?)
}

/// JSON has no NaN and no infinities: they are text.
fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number)
}

/// The digits that a single-precision number has, and no more.
fn single(value: f32) -> Value {
    value.to_string().parse().map_or_else(|_| Value::String(value.to_string()), float)
}

/// `2024-05-01T10:00:00.000000Z`, without the `Z` where the type has no zone.
fn timestamp(array: &dyn Array, row: usize, unit: &TimeUnit, zoned: bool) -> Result<Value> {
    let moment = match unit {
        TimeUnit::Second => DateTime::from_timestamp(array.as_primitive::<TimestampSecondType>().value(row), 0),
        TimeUnit::Millisecond => {
            DateTime::from_timestamp_millis(array.as_primitive::<TimestampMillisecondType>().value(row))
        }
        TimeUnit::Microsecond => {
            DateTime::from_timestamp_micros(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        TimeUnit::Nanosecond => {
            let nanos = array.as_primitive::<TimestampNanosecondType>().value(row);
            let moment = DateTime::from_timestamp_nanos(nanos);
            if nanos % 1_000 != 0 {
                let zone = if zoned { "Z" } else { "" };
                return Ok(format!("{}{zone}", moment.format("%Y-%m-%dT%H:%M:%S%.9f")).into());
            }
            Some(moment)
        }
    };
    match moment {
        Some(moment) => {
            let zone = if zoned { "Z" } else { "" };
            Ok(format!("{}{zone}", moment.format("%Y-%m-%dT%H:%M:%S%.6f")).into())
        }
        None => Ok(text(array, row)?.into()),
    }
}

fn list(items: &dyn Array) -> Result<Value> {
    (0..items.len()).map(|index| json(items, index)).collect::<Result<Vec<_>>>().map(Value::Array)
}

fn fields(array: &StructArray, row: usize) -> Result<Value> {
    let mut object = Map::new();
    for (name, column) in array.column_names().into_iter().zip(array.columns()) {
        object.insert(name.to_owned(), json(column.as_ref(), row)?);
    }
    Ok(Value::Object(object))
}

fn entries(map: &StructArray) -> Result<Value> {
    let mut object = Map::new();
    for row in 0..map.len() {
        let key = plain(&json(map.column(0).as_ref(), row)?);
        object.insert(key, json(map.column(1).as_ref(), row)?);
    }
    Ok(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array,
        Int64Array, ListArray, StringViewArray, TimestampMicrosecondArray, TimestampNanosecondArray, UInt64Array,
    };
    use arrow::datatypes::Int32Type;
    use serde_json::json as expected;

    use super::*;

    #[test]
    fn values_lose_nothing() {
        let micros = TimestampMicrosecondArray::from(vec![1_714_557_600_000_001]);
        let cases: Vec<(ArrayRef, Value)> = vec![
            (Arc::new(Int64Array::from(vec![9_007_199_254_740_993])), expected!(9_007_199_254_740_993_i64)),
            (Arc::new(UInt64Array::from(vec![u64::MAX])), expected!(u64::MAX)),
            (Arc::new(Int64Array::from(vec![None::<i64>])), Value::Null),
            (Arc::new(Float64Array::from(vec![0.1])), expected!(0.1)),
            (Arc::new(Float64Array::from(vec![f64::NAN])), expected!("NaN")),
            (Arc::new(Float32Array::from(vec![0.1_f32])), expected!(0.1)),
            (Arc::new(BooleanArray::from(vec![true])), expected!(true)),
            (Arc::new(StringViewArray::from(vec!["a\"b"])), expected!("a\"b")),
            (Arc::new(DictionaryArray::<Int32Type>::from_iter(["x"])), expected!("x")),
            (Arc::new(micros.clone().with_timezone("UTC")), expected!("2024-05-01T10:00:00.000001Z")),
            (Arc::new(micros), expected!("2024-05-01T10:00:00.000001")),
            (
                Arc::new(TimestampNanosecondArray::from(vec![1_000_000_001]).with_timezone("UTC")),
                expected!("1970-01-01T00:00:01.000000001Z"),
            ),
            (Arc::new(Date32Array::from(vec![19_844])), expected!("2024-05-01")),
            (Arc::new(BinaryArray::from_vec(vec![b"\x01\xff"])), expected!("01ff")),
            (
                Arc::new(Decimal128Array::from(vec![-5]).with_precision_and_scale(18, 2).expect("a decimal")),
                expected!("-0.05"),
            ),
            (
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])])),
                expected!([1, null]),
            ),
        ];
        for (array, value) in cases {
            assert_eq!(json(array.as_ref(), 0).expect("a value"), value, "{:?}", array.data_type());
        }
    }
}
