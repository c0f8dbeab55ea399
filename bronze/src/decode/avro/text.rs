//! A value of any Avro type as text: scalars as they read, everything that holds other values as JSON.

use std::fmt::Write;

use arrow::array::types::Decimal128Type;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DecimalType};
use chrono::{DateTime, NaiveDate, NaiveTime, SecondsFormat, TimeDelta};
use lake::cast::{bytes_text, widened};

use super::super::{NESTING_MAX, RECORD_BYTES_MAX};
use super::cursor::{Cursor, Damage};
use super::schema::{Schema, Type, TypeId, Unit};

/// How a text stands in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is: a number, a truth value, null, an object, an array.
    Json,
    /// In quotes.
    Text,
}

/// Writes the next value to `out`: a text without quotes, everything else as JSON. False for a null, which writes
/// nothing.
///
/// # Errors
/// What is wrong with the bytes, or that a limit is passed.
pub(super) fn plain(schema: &Schema, id: TypeId, cursor: &mut Cursor<'_>, out: &mut String) -> Result<bool, Damage> {
    let Some(id) = branch(schema, id, cursor)? else { return Ok(false) };
    value(schema, id, cursor, out, 0).map(|_| true)
}

/// The type that the next value really has: of a union the branch that it names. `None` for a null.
///
/// # Errors
/// When the union has no such branch.
pub(super) fn branch(schema: &Schema, mut id: TypeId, cursor: &mut Cursor<'_>) -> Result<Option<TypeId>, Damage> {
    for _ in 0..=NESTING_MAX {
        match schema.get(id) {
            Type::Null => return Ok(None),
            Type::Union(branches) => {
                let chosen = cursor.length()?;
                id = *branches.get(chosen).ok_or_else(|| format!("a union has no branch {chosen}"))?;
            }
            _ => return Ok(Some(id)),
        }
    }
    Err(deep())
}

fn deep() -> Damage {
    format!("values are nested deeper than {NESTING_MAX} levels, the limit")
}

fn json(schema: &Schema, id: TypeId, cursor: &mut Cursor<'_>, out: &mut String, depth: usize) -> Result<(), Damage> {
    if depth > NESTING_MAX {
        return Err(deep());
    }
    if out.len() > RECORD_BYTES_MAX {
        return Err(format!("a nested value is larger than {} MiB as text, the limit", RECORD_BYTES_MAX >> 20));
    }
    let Some(id) = branch(schema, id, cursor)? else {
        out.push_str("null");
        return Ok(());
    };
    let start = out.len();
    if value(schema, id, cursor, out, depth)? == Form::Text {
        let text = out.split_off(start);
        quote(out, &text);
    }
    Ok(())
}

/// Writes a value that is neither null nor a union.
fn value(schema: &Schema, id: TypeId, cursor: &mut Cursor<'_>, out: &mut String, depth: usize) -> Result<Form, Damage> {
    let form = match schema.get(id) {
        Type::Null | Type::Union(_) => return Err("a union in a union".to_owned()),
        Type::Boolean => written(out, cursor.boolean()?),
        Type::Int => written(out, cursor.int()?),
        Type::Long => written(out, cursor.long()?),
        Type::Float => float(out, widened(cursor.float()?)),
        Type::Double => float(out, cursor.double()?),
        Type::String => raw(out, cursor.text()?),
        Type::Bytes => raw(out, &bytes_text(cursor.bytes()?)),
        Type::Fixed(size) => raw(out, &bytes_text(cursor.take(*size)?)),
        Type::Enum(symbols) => raw(out, symbol(symbols, cursor)?),
        Type::Decimal { size, scale } => {
            let digits = unscaled(cursor, *size)?;
            raw(out, &decimal_text(digits, *scale)?);
            Form::Json
        }
        Type::Date => date(out, cursor.int()?),
        Type::TimeMillis => time(out, i64::from(cursor.int()?).checked_mul(1_000)),
        Type::TimeMicros => time(out, Some(cursor.long()?)),
        Type::Timestamp(unit) => moment(out, cursor.long()?, *unit),
        Type::Uuid => uuid(out, cursor.array()?),
        Type::Duration => duration(out, cursor.array()?),
        Type::Array(_) | Type::Map(_) | Type::Record(_) => {
            nested(schema, id, cursor, out, depth)?;
            Form::Json
        }
    };
    Ok(form)
}

fn nested(schema: &Schema, id: TypeId, cursor: &mut Cursor<'_>, out: &mut String, depth: usize) -> Result<(), Damage> {
    let (open, close) = if matches!(schema.get(id), Type::Array(_)) { ('[', ']') } else { ('{', '}') };
    out.push(open);
    let start = out.len();
    match schema.get(id) {
        Type::Record(fields) => {
            for (name, id) in fields {
                separate(out, start);
                quote(out, name);
                out.push(':');
                json(schema, *id, cursor, out, depth + 1)?;
            }
        }
        Type::Array(items) => loop {
            let run = cursor.run()?;
            if run == 0 {
                break;
            }
            for _ in 0..run {
                separate(out, start);
                json(schema, *items, cursor, out, depth + 1)?;
            }
        },
        Type::Map(values) => loop {
            let run = cursor.run()?;
            if run == 0 {
                break;
            }
            for _ in 0..run {
                separate(out, start);
                quote(out, cursor.text()?);
                out.push(':');
                json(schema, *values, cursor, out, depth + 1)?;
            }
        },
        _ => {}
    }
    out.push(close);
    Ok(())
}

/// The symbol that the next value names.
///
/// # Errors
/// When there is no such symbol.
pub(super) fn symbol<'s>(symbols: &'s [String], cursor: &mut Cursor<'_>) -> Result<&'s str, Damage> {
    let index = cursor.length()?;
    symbols.get(index).map(String::as_str).ok_or_else(|| format!("an enum has no symbol {index}"))
}

/// The bytes of a decimal: an unscaled number, the highest byte first, in two's complement.
///
/// # Errors
/// When they go beyond the block.
pub(super) fn unscaled<'b>(cursor: &mut Cursor<'b>, size: Option<usize>) -> Result<&'b [u8], Damage> {
    match size {
        Some(size) => cursor.take(size),
        None => cursor.bytes(),
    }
}

/// The unscaled number of a decimal, when it has at most 38 digits.
pub(super) fn narrow(bytes: &[u8]) -> Option<i128> {
    let fill = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let extra = bytes.len().saturating_sub(16);
    let (head, tail) = bytes.split_at(extra);
    let mut wide = [fill; 16];
    wide[16 - tail.len()..].copy_from_slice(tail);
    let value = i128::from_be_bytes(wide);
    let fits = head.iter().all(|byte| *byte == fill) && (value < 0) == (fill == 0xff);
    let digits = Decimal128Type::validate_decimal_precision(value, DECIMAL128_MAX_PRECISION, 0);
    (fits && digits.is_ok()).then_some(value)
}

/// A decimal of any size as text.
///
/// # Errors
/// When it is too long to be a number that anybody wrote.
pub(super) fn decimal_text(bytes: &[u8], scale: usize) -> Result<String, Damage> {
    /// 4,096 bytes are 9,864 digits.
    const BYTES_MAX: usize = 4_096;
    if bytes.len() > BYTES_MAX || scale > BYTES_MAX {
        return Err(format!("a decimal has {} bytes, the limit is {BYTES_MAX}", bytes.len().max(scale)));
    }
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let mut magnitude: Vec<u8> = bytes.to_vec();
    if negative {
        magnitude.iter_mut().for_each(|byte| *byte = !*byte);
        for byte in magnitude.iter_mut().rev() {
            let (next, carried) = byte.overflowing_add(1);
            *byte = next;
            if !carried {
                break;
            }
        }
        if magnitude.iter().all(|byte| *byte == 0) {
            magnitude.insert(0, 1);
        }
    }
    let mut digits = decimal_digits(&mut magnitude);
    while digits.len() <= scale {
        digits.push(b'0');
    }
    let mut text = String::with_capacity(digits.len() + 2);
    if negative {
        text.push('-');
    }
    for (index, digit) in digits.iter().enumerate().rev() {
        text.push(char::from(*digit));
        if index == scale && scale > 0 {
            text.push('.');
        }
    }
    Ok(text)
}

/// The decimal digits of a number of big-endian bytes, the lowest first; the number is 0 afterwards.
fn decimal_digits(number: &mut [u8]) -> Vec<u8> {
    let mut digits = Vec::new();
    let mut start = 0;
    loop {
        while number.get(start) == Some(&0) {
            start += 1;
        }
        if start == number.len() {
            return digits;
        }
        let mut rest = 0_u16;
        for byte in &mut number[start..] {
            let value = rest * 256 + u16::from(*byte);
            *byte = (value / 10) as u8;
            rest = value % 10;
        }
        digits.push(b'0' + rest as u8);
    }
}

fn raw(out: &mut String, text: &str) -> Form {
    out.push_str(text);
    Form::Text
}

/// Writes what JSON writes the same.
fn written(out: &mut String, value: impl std::fmt::Display) -> Form {
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
    Form::Json
}

/// The shortest digits that give the same number back; what is no number is a text.
fn float(out: &mut String, value: f64) -> Form {
    match serde_json::Number::from_f64(value) {
        Some(number) => written(out, number),
        None => raw(out, &value.to_string()),
    }
}

fn date(out: &mut String, days: i32) -> Form {
    match NaiveDate::default().checked_add_signed(TimeDelta::days(i64::from(days))) {
        Some(date) => raw(out, &date.to_string()),
        None => written(out, days),
    }
}

/// A time of day in microseconds after midnight.
fn time(out: &mut String, micros: Option<i64>) -> Form {
    let parts = micros.and_then(|micros| {
        let seconds = u32::try_from(micros.div_euclid(1_000_000)).ok()?;
        NaiveTime::from_num_seconds_from_midnight_opt(seconds, micros.rem_euclid(1_000_000) as u32 * 1_000)
    });
    match parts {
        Some(time) => raw(out, &time.to_string()),
        None => raw(out, &micros.map_or_else(String::new, |micros| format!("{micros} µs"))),
    }
}

fn moment(out: &mut String, value: i64, unit: Unit) -> Form {
    let exact = match unit {
        Unit::Nanos => Some(DateTime::from_timestamp_nanos(value)),
        _ => micros(value, unit).and_then(DateTime::from_timestamp_micros),
    };
    match exact {
        Some(moment) => raw(out, &moment.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
        None => written(out, value),
    }
}

/// Microseconds of a moment, nanoseconds floored; `None` when it is too far away.
pub(super) fn micros(value: i64, unit: Unit) -> Option<i64> {
    match unit {
        Unit::Millis => value.checked_mul(1_000),
        Unit::Micros => Some(value),
        Unit::Nanos => Some(value.div_euclid(1_000)),
    }
}

fn uuid(out: &mut String, bytes: [u8; 16]) -> Form {
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        written(out, format_args!("{byte:02x}"));
    }
    Form::Text
}

/// `{"months":1,"days":2,"milliseconds":3}`: none of them can be told in the others.
fn duration(out: &mut String, bytes: [u8; 12]) -> Form {
    let [m0, m1, m2, m3, d0, d1, d2, d3, s0, s1, s2, s3] = bytes;
    let (months, days) = (u32::from_le_bytes([m0, m1, m2, m3]), u32::from_le_bytes([d0, d1, d2, d3]));
    let millis = u32::from_le_bytes([s0, s1, s2, s3]);
    written(out, format_args!("{{\"months\":{months},\"days\":{days},\"milliseconds\":{millis}}}"))
}

fn quote(out: &mut String, text: &str) {
    written(out, serde_json::Value::from(text));
}

fn separate(out: &mut String, start: usize) {
    if out.len() > start {
        out.push(',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_any_size_are_read_to_the_last_digit() {
        let text = |bytes: &[u8], scale| decimal_text(bytes, scale).expect("a decimal");
        assert_eq!(text(&[0x03, 0xed], 2), "10.05");
        assert_eq!(text(&[0xff], 2), "-0.01");
        assert_eq!(text(&[0x80], 0), "-128");
        assert_eq!(text(&[], 2), "0.00");
        let large = (1_i128 << 126).to_be_bytes();
        assert_eq!(text(&large, 0), (1_i128 << 126).to_string());
        assert_eq!(
            text(&[&[0, 0][..], &i128::MAX.to_be_bytes()].concat(), 1),
            "17014118346046923173168730371588410572.7"
        );
        assert_eq!(narrow(&[0xff, 0x38]), Some(-200));
        assert_eq!(narrow(&[]), Some(0));
        assert_eq!(narrow(&i128::MAX.to_be_bytes()), None, "39 digits");
        assert_eq!(narrow(&[&[0xff; 4][..], &(-5_i128).to_be_bytes()].concat()), Some(-5));
        assert_eq!(narrow(&[&[1][..], &[0; 16]].concat()), None);
    }
}
