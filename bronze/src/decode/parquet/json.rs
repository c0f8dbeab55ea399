//! A nested value as JSON text. Numbers keep every digit; times, dates and binaries are texts.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use lake::cast::bytes_text;
use lake::{Error, Result};

use super::super::refused;

/// The value at `row` as JSON text: structs are objects (absent members are null), lists arrays, maps with text keys
/// objects and other maps arrays of pairs, decimals numbers, binaries texts of hexadecimal digits behind `\x`.
///
/// # Errors
/// [`ErrorKind::File`](lake::ErrorKind::File) when a value cannot be rendered.
pub(super) fn json_text(array: &dyn Array, row: usize) -> Result<String> {
    let mut text = String::new();
    value(&mut text, array, row)?;
    Ok(text)
}

fn value(out: &mut String, array: &dyn Array, row: usize) -> Result<()> {
    use DataType as T;
    if array.is_null(row) {
        out.push_str("null");
        return Ok(());
    }
    match array.data_type() {
        T::Null => out.push_str("null"),
        T::Boolean => {
            let values: &BooleanArray = array.as_boolean();
            out.push_str(if values.value(row) { "true" } else { "false" });
        }
        T::Int8 => number(out, array.as_primitive::<Int8Type>().value(row))?,
        T::Int16 => number(out, array.as_primitive::<Int16Type>().value(row))?,
        T::Int32 => number(out, array.as_primitive::<Int32Type>().value(row))?,
        T::Int64 => number(out, array.as_primitive::<Int64Type>().value(row))?,
        T::UInt8 => number(out, array.as_primitive::<UInt8Type>().value(row))?,
        T::UInt16 => number(out, array.as_primitive::<UInt16Type>().value(row))?,
        T::UInt32 => number(out, array.as_primitive::<UInt32Type>().value(row))?,
        T::UInt64 => number(out, array.as_primitive::<UInt64Type>().value(row))?,
        T::Float16 => float(out, f64::from(array.as_primitive::<Float16Type>().value(row))),
        T::Float32 => match array.as_primitive::<Float32Type>().value(row) {
            finite if finite.is_finite() => {
                number(out, serde_json::Value::from(finite.to_string().parse::<f64>().unwrap_or(0.0)))?
            }
            other => quoted(out, &other.to_string()),
        },
        T::Float64 => float(out, array.as_primitive::<Float64Type>().value(row)),
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => {
            out.push_str(&shown(array, row)?)
        }
        T::Utf8 => quoted(out, array.as_string::<i32>().value(row)),
        T::LargeUtf8 => quoted(out, array.as_string::<i64>().value(row)),
        T::Utf8View => quoted(out, array.as_string_view().value(row)),
        T::Binary => quoted(out, &bytes_text(array.as_binary::<i32>().value(row))),
        T::LargeBinary => quoted(out, &bytes_text(array.as_binary::<i64>().value(row))),
        T::BinaryView => quoted(out, &bytes_text(array.as_binary_view().value(row))),
        T::FixedSizeBinary(_) => quoted(out, &bytes_text(array.as_fixed_size_binary().value(row))),
        T::List(_) => items(out, &array.as_list::<i32>().value(row))?,
        T::LargeList(_) => items(out, &array.as_list::<i64>().value(row))?,
        T::FixedSizeList(..) => items(out, &array.as_fixed_size_list().value(row))?,
        T::Struct(_) => object(out, array, row)?,
        T::Map(..) => map(out, array, row)?,
        _ => quoted(out, &shown(array, row)?),
    }
    Ok(())
}

fn number(out: &mut String, value: impl std::fmt::Display) -> Result<()> {
    write!(out, "{value}").map_err(|error| Error::internal("writing to memory").with_source(error))
}

/// The shortest digits that give the same number back; what is no number is a text.
fn float(out: &mut String, value: f64) {
    match serde_json::Number::from_f64(value) {
        Some(number) => out.push_str(&number.to_string()),
        None => quoted(out, &value.to_string()),
    }
}

fn quoted(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

fn shown(array: &dyn Array, row: usize) -> Result<String> {
    let unreadable =
        |error: arrow::error::ArrowError| refused(format!("a nested value cannot be read: {error}")).with_source(error);
    super::far::shown(array, row).map_err(unreadable)
}

fn items(out: &mut String, items: &ArrayRef) -> Result<()> {
    out.push('[');
    for row in 0..items.len() {
        separate(out, row);
        value(out, items, row)?;
    }
    out.push(']');
    Ok(())
}

fn object(out: &mut String, array: &dyn Array, row: usize) -> Result<()> {
    let members = array.as_struct();
    out.push('{');
    for (index, (field, column)) in members.fields().iter().zip(members.columns()).enumerate() {
        separate(out, index);
        quoted(out, field.name());
        out.push(':');
        value(out, column, row)?;
    }
    out.push('}');
    Ok(())
}

fn map(out: &mut String, array: &dyn Array, row: usize) -> Result<()> {
    let entries = array.as_map().value(row);
    let (keys, values) = (entries.column(0), entries.column(1));
    let as_object = matches!(keys.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    out.push(if as_object { '{' } else { '[' });
    for entry in 0..entries.len() {
        separate(out, entry);
        if !as_object {
            out.push('[');
        }
        value(out, keys, entry)?;
        out.push(if as_object { ':' } else { ',' });
        value(out, values, entry)?;
        if !as_object {
            out.push(']');
        }
    }
    out.push(if as_object { '}' } else { ']' });
    Ok(())
}

fn separate(out: &mut String, index: usize) {
    if index > 0 {
        out.push(',');
    }
}
