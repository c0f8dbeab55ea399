//! How the source writes the values of a column: as the type says, in a format of its own, or in a number or code that
//! stands for the value.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, new_null_array};
use lake::cast::{Cast, Rules, TextFormat, cast, cast_format, from_days, from_epoch};
use lake::schema::{Column, ColumnType};

/// How the source writes a value.
#[derive(Debug, Clone)]
pub enum Written {
    /// As a text or a value of the type.
    Plain,
    /// A date or timestamp as text in this format.
    Format(TextFormat),
    /// A timestamp as a number since the epoch, in units of so many microseconds.
    Epoch(i64),
    /// A date as a number of days since the epoch.
    Days,
    /// A decimal as the base64 of its digits without the point, a big-endian number in two's complement.
    Base64Decimal,
}

/// The names of such types beside those of columns, for hints.
pub const WRITTEN_TYPE_NAMES: &[&str] = &["timestamp_ms", "timestamp_us", "date_days", "decimal_base64(p,s)"];

impl Written {
    /// Reads the declaration of a column: `timestamp_ms not null` is a timestamp that is written in milliseconds.
    ///
    /// # Errors
    /// A sentence about what is wrong with the declaration.
    pub fn parse(name: &str, declaration: &str) -> Result<(Column, Self), String> {
        let lower = declaration.trim().to_ascii_lowercase();
        let end = lower.find([' ', '(']).unwrap_or(lower.len());
        let (word, rest) = lower.split_at(end);
        let (kind, written) = match word {
            "timestamp_ms" => ("timestamp", Self::Epoch(1_000)),
            "timestamp_us" => ("timestamp", Self::Epoch(1)),
            "date_days" => ("date", Self::Days),
            "decimal_base64" => ("decimal", Self::Base64Decimal),
            _ => return Ok((Column::parse(name, declaration)?, Self::Plain)),
        };
        Ok((Column::parse(name, &format!("{kind}{rest}"))?, written))
    }

    /// The type of a sequence that is such a column.
    pub(crate) fn sequence_type(&self, kind: ColumnType) -> String {
        match self {
            Self::Epoch(1_000) => "timestamp_ms".to_owned(),
            Self::Epoch(_) => "timestamp_us".to_owned(),
            Self::Plain | Self::Format(_) | Self::Days | Self::Base64Decimal => kind.to_string(),
        }
    }

    /// Casts values that are written so.
    pub(crate) fn cast(&self, column: &ArrayRef, kind: ColumnType, rules: Rules) -> Cast {
        match self {
            Self::Plain => cast(column, kind, rules),
            Self::Format(format) => cast_format(column, kind, format, rules),
            // A typed source that has moments and days needs no numbers for them.
            _ if *column.data_type() == kind.arrow() => cast(column, kind, rules),
            Self::Epoch(unit) => from_epoch(&cast(column, ColumnType::Bigint, rules), *unit),
            Self::Days => from_days(&cast(column, ColumnType::Bigint, rules)),
            // A number of a typed source is no base64, whatever its digits.
            Self::Base64Decimal if column.data_type().is_numeric() => no_base64(column, kind, rules),
            Self::Base64Decimal => base64_decimals(&cast(column, ColumnType::String, rules), kind),
        }
    }
}

fn no_base64(column: &ArrayRef, kind: ColumnType, rules: Rules) -> Cast {
    let texts = cast(column, ColumnType::String, rules);
    let texts = texts.array.as_string::<i32>().iter().enumerate();
    let bad = texts.filter_map(|(row, text)| Some((row, format!("`{}` is a number, and no base64", text?))));
    Cast { array: new_null_array(&kind.arrow(), column.len()), bad: bad.collect() }
}

fn base64_decimals(texts: &Cast, kind: ColumnType) -> Cast {
    let precision = match kind {
        ColumnType::Decimal(precision, _) => u32::from(precision),
        _ => 0,
    };
    let mut bad = texts.bad.clone();
    let column = texts.array.as_string::<i32>();
    let values = column.iter().enumerate().map(|(row, text)| {
        let text = text?;
        let read = match unscaled(text) {
            Ok(value) if value.unsigned_abs() < 10_u128.pow(precision.min(38)) => return Some(value),
            Ok(value) => format!("`{text}` is {value} without its point, which does not fit {kind}"),
            Err(reason) => reason,
        };
        bad.push((row, read));
        None
    });
    let values: Decimal128Array = values.collect();
    bad.sort_by_key(|(row, _)| *row);
    Cast { array: Arc::new(values.with_data_type(kind.arrow())), bad }
}

/// The whole number behind the base64 of its bytes: big-endian, two's complement.
///
/// # Errors
/// A sentence when the text is no such number, or has more than 38 digits.
pub(crate) fn unscaled(text: &str) -> Result<i128, String> {
    let bytes = base64(text).ok_or_else(|| format!("`{text}` is not base64"))?;
    let mut bytes = bytes.as_slice();
    // Bytes that only repeat the sign say nothing.
    while let [0x00, next, ..] | [0xff, next, ..] = bytes
        && (*next >= 0x80) == (bytes[0] >= 0x80)
    {
        bytes = &bytes[1..];
    }
    let first = bytes.first().ok_or_else(|| "an empty text is not the base64 of a number".to_owned())?;
    if bytes.len() > 16 {
        return Err(format!("`{text}` has more than 38 digits"));
    }
    let start = if *first >= 0x80 { -1 } else { 0 };
    Ok(bytes.iter().fold(start, |value: i128, byte| (value << 8) | i128::from(*byte)))
}

/// The bytes of a base64 text of the standard alphabet as every encoder writes it: padded, without bits that mean
/// nothing. `None` when it is none.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut held, mut bits) = (0_u32, 0);
    for byte in digits.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6) | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xff).unwrap_or_default());
        }
    }
    (base64_of(&bytes) == text).then_some(bytes)
}

/// The base64 text of bytes, padded.
pub(crate) fn base64_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let held = three.iter().chain(&[0, 0]).take(3).fold(0_u32, |held, byte| (held << 8) | u32::from(*byte));
        for digit in 0..4_usize {
            let at = (held >> (18 - 6 * digit)) & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[at as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;
    use arrow::datatypes::Decimal128Type;
    use chrono_tz::Tz;

    use super::*;

    const UTC: Rules = Rules { zone: Tz::UTC };

    #[test]
    fn a_declaration_may_say_how_the_source_writes() {
        let (column, written) = Written::parse("paid", " Timestamp_MS  not null").expect("a column");
        assert_eq!((column.kind, column.nullable), (ColumnType::Timestamp, false));
        assert!(matches!(written, Written::Epoch(1_000)));
        let (column, written) = Written::parse("amount", "decimal_base64(12,2)").expect("a column");
        assert_eq!(column.kind, ColumnType::Decimal(12, 2));
        assert!(matches!(written, Written::Base64Decimal));
        assert!(Written::parse("amount", "decimal_base64(39,2)").is_err());
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
            assert_eq!(base64_of(bytes.as_bytes()), text);
        }
        for wrong in ["Z", "Zg=", "Zg===", "Z?==", "Zm9v=", "Zm8", "Zh==", "====", "MTI=\n"] {
            assert_eq!(base64(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn unscaled_numbers_have_a_sign_and_a_limit() {
        assert_eq!(unscaled("AeJA"), Ok(123_456));
        assert_eq!(unscaled("/w=="), Ok(-1));
        assert_eq!(unscaled("AA=="), Ok(0));
        assert_eq!(unscaled("AIA="), Ok(128));
        // Seventeen bytes, of which the first only repeat the sign.
        assert_eq!(unscaled("AAAAAAAAAAAAAAAAAAAAAAE="), Ok(1));
        assert!(unscaled("AQAAAAAAAAAAAAAAAAAAAAA=").is_err());
        assert!(unscaled("").is_err() && unscaled("10.00").is_err());
    }

    #[test]
    fn a_decimal_that_does_not_fit_is_named() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("AeJA"), Some("10.00"), None, Some("D0JA")]));
        let cast = Written::Base64Decimal.cast(&texts, ColumnType::Decimal(6, 2), UTC);
        assert_eq!(cast.array.as_primitive::<Decimal128Type>().value_as_string(0), "1234.56");
        assert_eq!(cast.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 3], "no base64, and seven digits");
        let numbers: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![Some(1250), None]));
        let cast = Written::Base64Decimal.cast(&numbers, ColumnType::Decimal(12, 2), UTC);
        assert_eq!((cast.array.null_count(), cast.bad.len()), (2, 1), "a number is no base64");
    }

    #[test]
    fn numbers_are_days_and_moments() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["19844", "99999999999", "x", "2932897"]));
        let cast = Written::Days.cast(&texts, ColumnType::Date, UTC);
        assert_eq!(cast.array.as_primitive::<arrow::datatypes::Date32Type>().value(0), 19_844);
        assert_eq!(cast.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 2, 3]);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["9223372036825200000", "-62135596800000001", "0"]));
        let cast = Written::Epoch(1).cast(&texts, ColumnType::Timestamp, UTC);
        assert_eq!(cast.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0, 1]);
        let typed: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![i32::MAX, 0]));
        let cast = Written::Days.cast(&typed, ColumnType::Date, UTC);
        assert_eq!((cast.array.null_count(), cast.bad.len()), (1, 1), "also where the source has days");
    }
}
