//! A column of text into a typed one.

use std::sync::Arc;

use super::{Cast, Rules, bytes, number, time};
use crate::schema::ColumnType;
use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Decimal128Array, PrimitiveArray, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type};

pub(super) fn cast(column: &StringArray, kind: ColumnType, rules: Rules) -> Cast {
    match kind {
        ColumnType::Bigint => primitive::<Int64Type>(column, |text| number::integer(text, "bigint")),
        ColumnType::Int => primitive::<Int32Type>(column, |text| number::integer(text, "int")),
        ColumnType::Smallint => primitive::<Int16Type>(column, |text| number::integer(text, "smallint")),
        ColumnType::Tinyint => primitive::<Int8Type>(column, |text| number::integer(text, "tinyint")),
        ColumnType::Double => primitive::<Float64Type>(column, |text| number::float(text, "double")),
        ColumnType::Float => primitive::<Float32Type>(column, single),
        ColumnType::Date => primitive::<Date32Type>(column, time::date),
        ColumnType::Decimal(precision, scale) => {
            let Parsed { values, bad } = parse(column, |text| number::decimal(text, precision, scale));
            let typed = Decimal128Array::from(values).with_data_type(kind.arrow());
            Cast { array: Arc::new(typed), bad }
        }
        ColumnType::Timestamp => {
            let Parsed { values, bad } = parse(column, |text| time::timestamp(text, rules));
            Cast { array: Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC")), bad }
        }
        ColumnType::Boolean => {
            let Parsed { values, bad } = parse(column, number::boolean);
            Cast { array: Arc::new(BooleanArray::from(values)), bad }
        }
        ColumnType::String => Cast { array: Arc::new(column.clone()), bad: Vec::new() },
        ColumnType::Binary => {
            let bytes = column.iter().map(|value| value.map(bytes::bytes)).collect::<BinaryArray>();
            Cast { array: Arc::new(bytes), bad: Vec::new() }
        }
    }
}

/// Text into other text, where `map` gives a sentence for what does not fit.
pub fn map_text(column: &StringArray, map: fn(&str) -> Result<String, String>) -> Cast {
    let Parsed { values, bad } = parse(column, map);
    Cast { array: Arc::new(StringArray::from(values)), bad }
}

/// The value of every text, and the rows that have none with the reason.
pub(super) fn read<V>(
    column: &StringArray,
    read: impl Fn(&str) -> Result<V, String>,
) -> (Vec<Option<V>>, Vec<(usize, String)>) {
    let Parsed { values, bad } = parse(column, read);
    (values, bad)
}

fn single(text: &str) -> Result<f32, String> {
    let value = number::float(text, "float")?;
    let narrow = value as f32;
    if narrow.is_infinite() == value.is_infinite() {
        Ok(narrow)
    } else {
        Err(format!("`{text}` is out of range for float"))
    }
}

fn primitive<T: ArrowPrimitiveType>(column: &StringArray, read: impl Fn(&str) -> Result<T::Native, String>) -> Cast {
    let Parsed { values, bad } = parse(column, read);
    let array: ArrayRef = Arc::new(PrimitiveArray::<T>::from_iter(values));
    Cast { array, bad }
}

struct Parsed<V> {
    values: Vec<Option<V>>,
    bad: Vec<(usize, String)>,
}

fn parse<V>(column: &StringArray, read: impl Fn(&str) -> Result<V, String>) -> Parsed<V> {
    let mut bad = Vec::new();
    let values = column.iter().enumerate().map(|(row, text)| match read(text?) {
        Ok(value) => Some(value),
        Err(reason) => {
            bad.push((row, reason));
            None
        }
    });
    let values = values.collect();
    Parsed { values, bad }
}
