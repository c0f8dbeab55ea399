//! Days and times as text, also those that are too far away to be shown: as the number that is in the file.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// A value as it is shown; one that cannot be shown as its number.
///
/// # Errors
/// When it is no number either.
pub(super) fn shown(array: &dyn Array, row: usize) -> Result<String, ArrowError> {
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(array, &options)?;
    formatter.value(row).try_to_string().or_else(|error| counted(array, row).ok_or(error))
}

/// A day or time that does not fit its column: as it is shown, `+20000-01-01`, or as its number, `2147483647 days`.
pub(super) fn far_text(array: &dyn Array, row: usize) -> String {
    shown(array, row).unwrap_or_default()
}

/// The count behind a day or a time, with its unit, so that it is taken for no other number.
fn counted(array: &dyn Array, row: usize) -> Option<String> {
    use DataType as T;
    let count = match array.data_type() {
        T::Date32 => i64::from(array.as_primitive::<Date32Type>().value(row)),
        T::Date64 => array.as_primitive::<Date64Type>().value(row),
        T::Time32(TimeUnit::Second) => i64::from(array.as_primitive::<Time32SecondType>().value(row)),
        T::Time32(_) => i64::from(array.as_primitive::<Time32MillisecondType>().value(row)),
        T::Time64(TimeUnit::Microsecond) => array.as_primitive::<Time64MicrosecondType>().value(row),
        T::Time64(_) => array.as_primitive::<Time64NanosecondType>().value(row),
        T::Timestamp(TimeUnit::Second, _) => array.as_primitive::<TimestampSecondType>().value(row),
        T::Timestamp(TimeUnit::Millisecond, _) => array.as_primitive::<TimestampMillisecondType>().value(row),
        T::Timestamp(TimeUnit::Microsecond, _) => array.as_primitive::<TimestampMicrosecondType>().value(row),
        T::Timestamp(TimeUnit::Nanosecond, _) => array.as_primitive::<TimestampNanosecondType>().value(row),
        _ => return None,
    };
    let unit = match array.data_type() {
        T::Date32 => "days",
        T::Time32(unit) | T::Time64(unit) | T::Timestamp(unit, _) => match unit {
            TimeUnit::Second => "s",
            TimeUnit::Millisecond => "ms",
            TimeUnit::Microsecond => "µs",
            TimeUnit::Nanosecond => "ns",
        },
        _ => "ms",
    };
    Some(format!("{count} {unit}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Date32Array, Time64MicrosecondArray, TimestampMillisecondArray};

    use super::*;

    #[test]
    fn what_cannot_be_shown_is_its_number() {
        let text = |array: ArrayRef| shown(&array, 0).expect("a text");
        assert_eq!(text(Arc::new(Date32Array::from(vec![19_844]))), "2024-05-01");
        assert_eq!(text(Arc::new(Date32Array::from(vec![i32::MAX]))), "2147483647 days");
        assert_eq!(text(Arc::new(TimestampMillisecondArray::from(vec![i64::MIN]))), "-9223372036854775808 ms");
        assert_eq!(text(Arc::new(Time64MicrosecondArray::from(vec![36_000_000_000]))), "10:00:00");
        assert_eq!(text(Arc::new(Time64MicrosecondArray::from(vec![86_400_000_000]))), "86400000000 µs");
    }
}
