//! A column of any Parquet type in the widest type of its kind.

use std::sync::Arc;

use arrow::array::types::Decimal128Type;
use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, Decimal256Array, Int64Array, StringBuilder,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Date32Type, Date64Type, DecimalType, Float32Type, Float64Type, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use lake::Result;
use lake::cast::{is_day, is_moment, widened};

use super::super::{Unfit, nanos_text, refused};
use super::far::{far_text, shown};
use super::json::json_text;

const DAY_MILLIS: i64 = 86_400_000;

/// A column in the widest type of its kind.
pub(super) struct Wide {
    /// The values; those that do not fit are null, or a time floored.
    pub(super) array: ArrayRef,
    /// The values that do not fit, exactly.
    pub(super) unfit: Vec<Unfit>,
}

/// Makes a column as wide as its kind goes: integers 64 bit, floats double (of the same digits), decimals 38 digits of
/// their scale, times microseconds UTC (nanoseconds floored, a time without a zone taken as UTC), texts and binaries
/// plain, nested values and what has no kind of ours as text. Days and times out of the years 0001 to 9999 do not fit.
///
/// # Errors
/// [`ErrorKind::File`](lake::ErrorKind::File) when a value cannot be rendered.
pub(super) fn widen(column: &ArrayRef) -> Result<Wide> {
    use DataType as T;
    let kind = column.data_type();
    let target = match kind {
        T::Int64 | T::Float64 | T::Utf8 | T::Boolean | T::Binary => return Ok(exact(Arc::clone(column))),
        T::Int8 | T::Int16 | T::Int32 | T::UInt8 | T::UInt16 | T::UInt32 => T::Int64,
        T::Float16 => return widen(&cast(column, &T::Float32).map_err(unreadable)?),
        T::Float32 => return Ok(exact(float(column))),
        T::Date32 => {
            return Ok(date(column, column.as_primitive::<Date32Type>().iter().map(|days| days.map(i64::from))));
        }
        T::Date64 => {
            let millis = column.as_primitive::<Date64Type>();
            return Ok(date(column, millis.iter().map(|millis| millis.map(|millis| millis.div_euclid(DAY_MILLIS)))));
        }
        T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        T::Decimal32(_, scale) | T::Decimal64(_, scale) | T::Decimal128(_, scale) if *scale >= 0 => {
            T::Decimal128(DECIMAL128_MAX_PRECISION, *scale)
        }
        T::Dictionary(_, values) => return widen(&cast(column, values).map_err(unreadable)?),
        T::Null => return Ok(exact(new_null_array(&T::Utf8, column.len()))),
        T::UInt64 => return Ok(unsigned(column)),
        T::Decimal256(_, scale) if (0..=38).contains(scale) => return decimal(column.as_primitive(), *scale),
        T::Timestamp(unit, _) => return Ok(timestamp(column, *unit)),
        T::Struct(_) | T::List(_) | T::LargeList(_) | T::FixedSizeList(_, _) | T::Map(_, _) => {
            return text(column, |row| json_text(column, row)).map(exact);
        }
        _ => return text(column, |row| shown(column, row).map_err(unreadable)).map(exact),
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, &target, &options).map(exact).map_err(unreadable)
}

fn exact(array: ArrayRef) -> Wide {
    Wide { array, unfit: Vec::new() }
}

fn unsigned(column: &ArrayRef) -> Wide {
    let values = column.as_primitive::<UInt64Type>();
    let array = Int64Array::from_iter(values.iter().map(|value| i64::try_from(value?).ok()));
    wide(column, Arc::new(array), |row| values.value(row).to_string())
}

/// Single precision as the double of the same digits.
fn float(column: &ArrayRef) -> ArrayRef {
    Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float64Type>(widened))
}

/// Days; those that no date can be do not fit.
fn date(column: &ArrayRef, days: impl Iterator<Item = Option<i64>>) -> Wide {
    let near = |days: i64| i32::try_from(days).ok().filter(|_| is_day(days));
    let array: Date32Array = days.map(|days| near(days?)).collect();
    wide(column, Arc::new(array), |row| far_text(column, row))
}

fn timestamp(column: &ArrayRef, unit: TimeUnit) -> Wide {
    let scaled = |factor: i64| move |value: i64| value.checked_mul(factor).filter(|micros| is_moment(*micros));
    let array: TimestampMicrosecondArray = match unit {
        TimeUnit::Second => column.as_primitive::<TimestampSecondType>().unary_opt(scaled(1_000_000)),
        TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().unary_opt(scaled(1_000)),
        TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().unary_opt(scaled(1)),
        TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().unary(|value| value.div_euclid(1_000)),
    };
    let wide = wide(column, Arc::new(array.with_timezone("UTC")), |row| far_text(column, row));
    if unit != TimeUnit::Nanosecond {
        return wide;
    }
    let exact = column.as_primitive::<TimestampNanosecondType>().iter().enumerate();
    let finer = exact.filter_map(|(row, value)| Some((row, value.filter(|value| value.rem_euclid(1_000) != 0)?)));
    Wide { unfit: finer.map(|(row, value)| Unfit { row, text: nanos_text(value) }).collect(), ..wide }
}

fn decimal(values: &Decimal256Array, scale: i8) -> Result<Wide> {
    let fits = |value: arrow::datatypes::i256| {
        let value = value.to_i128()?;
        Decimal128Type::validate_decimal_precision(value, DECIMAL128_MAX_PRECISION, scale).is_ok().then_some(value)
    };
    let array = Decimal128Array::from_iter(values.iter().map(|value| fits(value?)));
    let array = array.with_precision_and_scale(DECIMAL128_MAX_PRECISION, scale).map_err(unreadable)?;
    let column: ArrayRef = Arc::new(values.clone());
    Ok(wide(&column, Arc::new(array), |row| values.value_as_string(row)))
}

/// Finds the values that became null on the way.
fn wide(before: &ArrayRef, after: ArrayRef, text: impl Fn(usize) -> String) -> Wide {
    if before.null_count() == after.null_count() {
        return exact(after);
    }
    let lost = (0..before.len()).filter(|row| before.is_valid(*row) && after.is_null(*row));
    let unfit = lost.map(|row| Unfit { row, text: text(row) }).collect();
    Wide { array: after, unfit }
}

fn text(column: &ArrayRef, value: impl Fn(usize) -> Result<String>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for row in 0..column.len() {
        match column.is_null(row) {
            true => builder.append_null(),
            false => builder.append_value(value(row)?),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn unreadable(error: arrow::error::ArrowError) -> lake::Error {
    refused(format!("a value cannot be read: {error}")).with_source(error)
}
