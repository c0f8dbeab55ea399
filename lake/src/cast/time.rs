//! Days and moments from text (ISO 8601) and from numbers.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Date32Array, TimestampMicrosecondArray, new_null_array};
use arrow::compute::{max, min, nullif};
use arrow::datatypes::{DataType, Date32Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use chrono::{LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeZone};

use super::{Cast, Rules, number};

/// What a text says: the reading of a clock, and seconds east of UTC where it has an offset.
struct Reading {
    local: NaiveDateTime,
    offset_seconds: Option<i64>,
}

/// Why a text is no moment.
enum Misfit {
    NotATimestamp,
    Finer,
}

/// Days since the epoch of the first and the last day that a date can be: those of the years 0001 to 9999.
const DAYS: RangeInclusive<i32> = -719_162..=2_932_896;
/// Microseconds since the epoch of the first and the last moment of those years.
const MICROS: RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// Whether a date can be this day, counted from the epoch: one of the years 0001 to 9999, which every reader can show.
/// What sources write for "never" (the infinity of PostgreSQL and DuckDB) is none.
pub fn is_day(days: i64) -> bool {
    i32::try_from(days).is_ok_and(|days| DAYS.contains(&days))
}

/// Whether a timestamp can be this moment, in microseconds since the epoch: one of the years 0001 to 9999 in UTC.
pub fn is_moment(micros: i64) -> bool {
    MICROS.contains(&micros)
}

/// Reads a day: `2024-05-01`, or a moment at midnight. With an offset it is the day as it is written, at midnight by
/// its own clock. The result is days since the epoch.
///
/// # Errors
/// A sentence when the text is no such day.
pub(super) fn date(text: &str) -> Result<i32, String> {
    let not_a_date = || format!("`{text}` is not a date (year-month-day)");
    let bytes = number::trimmed(text).as_bytes();
    let day = match bytes.len() {
        10 => day(bytes).ok_or_else(not_a_date)?,
        _ => {
            let has_time = || format!("`{text}` is not a date: it has a time of day");
            let local = match reading(bytes) {
                Ok(reading) => reading.local,
                Err(Misfit::Finer) => return Err(has_time()),
                Err(Misfit::NotATimestamp) => return Err(not_a_date()),
            };
            if local.time() != NaiveTime::MIN {
                return Err(has_time());
            }
            local.date()
        }
    };
    let days = day.signed_duration_since(NaiveDate::default()).num_days();
    in_days(days).ok_or_else(|| no_day(text))
}

/// The day, where a date can be it.
pub(super) fn in_days(days: i64) -> Option<i32> {
    i32::try_from(days).ok().filter(|days| DAYS.contains(days))
}

/// The sentence about a day that no date can be.
pub(super) fn no_day(value: impl std::fmt::Display) -> String {
    format!("`{value}` is out of range for a date (years 0001 to 9999)")
}

/// The sentence about a moment that no timestamp can be.
pub(super) fn no_moment(value: impl std::fmt::Display) -> String {
    format!("`{value}` is out of range for a timestamp (years 0001 to 9999)")
}

/// Reads a moment: `2024-05-01 10:00:00.123456+02:00`; `T` for the space, any fraction length, `Z`; seconds, fraction
/// and offset may be absent, and so may the time of day. Without an offset the text is in the zone of `rules`; of an
/// hour that comes twice it means the first. The result is microseconds since the epoch.
///
/// # Errors
/// A sentence when the text is no moment, falls into a gap of the zone, or is finer than a microsecond.
pub(super) fn timestamp(text: &str, rules: Rules) -> Result<i64, String> {
    let reading = reading(number::trimmed(text).as_bytes()).map_err(|misfit| match misfit {
        Misfit::NotATimestamp => format!("`{text}` is not a timestamp (ISO 8601)"),
        Misfit::Finer => format!("`{text}` is finer than a microsecond"),
    })?;
    let micros = match reading.offset_seconds {
        Some(offset_seconds) => reading.local.and_utc().timestamp_micros() - offset_seconds * 1_000_000,
        None => in_zone(reading.local, rules).ok_or_else(|| format!("`{text}` does not exist in {}", rules.zone))?,
    };
    if is_moment(micros) { Ok(micros) } else { Err(no_moment(text)) }
}

fn reading(bytes: &[u8]) -> Result<Reading, Misfit> {
    let day = day(bytes).ok_or(Misfit::NotATimestamp)?;
    let mut rest = &bytes[10..];
    let (mut seconds, mut micros) = (0, 0);
    if let [b' ' | b'T' | b't', clock @ ..] = rest {
        let (time, length) = time_of_day(clock).ok_or(Misfit::NotATimestamp)?;
        seconds = time;
        rest = &clock[length..];
        if let [b'.' | b',', digits @ ..] = rest {
            let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if length == 0 {
                return Err(Misfit::NotATimestamp);
            }
            micros = fraction(&digits[..length]).ok_or(Misfit::Finer)?;
            rest = &digits[length..];
        }
    }
    let midnight = day.and_hms_opt(0, 0, 0).ok_or(Misfit::NotATimestamp)?;
    let local = midnight + chrono::Duration::seconds(seconds) + chrono::Duration::microseconds(micros);
    let offset_seconds = match rest {
        [] => None,
        rest => Some(offset(rest.trim_ascii_start()).ok_or(Misfit::NotATimestamp)?),
    };
    Ok(Reading { local, offset_seconds })
}

/// Moments from whole numbers (a `bigint` column) of `unit_micros` microseconds since the epoch.
pub fn from_epoch(numbers: &Cast, unit_micros: i64) -> Cast {
    let values = numbers.array.as_primitive::<Int64Type>();
    let mut bad = numbers.bad.clone();
    let moments = values.iter().enumerate().map(|(row, value)| {
        let micros = value?.checked_mul(unit_micros).filter(|micros| is_moment(*micros));
        if micros.is_none() {
            bad.push((row, no_moment(values.value(row))));
        }
        micros
    });
    let array = moments.collect::<TimestampMicrosecondArray>().with_timezone("UTC");
    bad.sort_by_key(|(row, _)| *row);
    Cast { array: Arc::new(array), bad }
}

/// Days from whole numbers (a `bigint` column) of days since the epoch.
pub fn from_days(numbers: &Cast) -> Cast {
    let values = numbers.array.as_primitive::<Int64Type>();
    let mut bad = numbers.bad.clone();
    let days = values.iter().enumerate().map(|(row, value)| {
        let value = value?;
        let days = in_days(value);
        if days.is_none() {
            bad.push((row, no_day(value)));
        }
        days
    });
    let array = days.collect::<Date32Array>();
    bad.sort_by_key(|(row, _)| *row);
    Cast { array: Arc::new(array), bad }
}

/// Dates and timestamps as they are, without those that none can be; columns of other types as they are.
pub(super) fn within(column: &ArrayRef) -> Cast {
    let far: Vec<(usize, String)> = match column.data_type() {
        DataType::Date32 => {
            let days = column.as_primitive::<Date32Type>();
            match min(days).zip(max(days)).is_none_or(|(min, max)| DAYS.contains(&min) && DAYS.contains(&max)) {
                true => Vec::new(),
                false => far(days.iter().map(|days| days.filter(|days| !DAYS.contains(days))), no_day),
            }
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = column.as_primitive::<TimestampMicrosecondType>();
            match min(micros).zip(max(micros)).is_none_or(|(min, max)| is_moment(min) && is_moment(max)) {
                true => Vec::new(),
                false => far(micros.iter().map(|micros| micros.filter(|micros| !is_moment(*micros))), no_moment),
            }
        }
        _ => Vec::new(),
    };
    if far.is_empty() {
        return Cast { array: Arc::clone(column), bad: far };
    }
    let mut is_far = vec![false; column.len()];
    far.iter().for_each(|(row, _)| is_far[*row] = true);
    let near = nullif(column, &BooleanArray::from(is_far));
    Cast { array: near.unwrap_or_else(|_| new_null_array(column.data_type(), column.len())), bad: far }
}

fn far<V>(values: impl Iterator<Item = Option<V>>, reason: fn(V) -> String) -> Vec<(usize, String)> {
    values.enumerate().filter_map(|(row, value)| Some((row, reason(value?)))).collect()
}

fn day(bytes: &[u8]) -> Option<NaiveDate> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, ..] = bytes else { return None };
    let year = number(&[*y0, *y1, *y2, *y3])?;
    NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, number(&[*m0, *m1])?, number(&[*d0, *d1])?)
}

/// Seconds of `hh:mm[:ss]` and how many bytes it took.
fn time_of_day(bytes: &[u8]) -> Option<(i64, usize)> {
    let [h0, h1, b':', m0, m1, rest @ ..] = bytes else { return None };
    let (hours, minutes) = (number(&[*h0, *h1])?, number(&[*m0, *m1])?);
    let (seconds, length) = match rest {
        [b':', s0, s1, ..] => (number(&[*s0, *s1])?, 8),
        [b':', ..] => return None,
        _ => (0, 5),
    };
    (hours < 24 && minutes < 60 && seconds < 60).then(|| (i64::from(hours * 3600 + minutes * 60 + seconds), length))
}

/// Microseconds of the digits after the point; `None` when they are finer.
fn fraction(digits: &[u8]) -> Option<i64> {
    let (kept, finer) = digits.split_at(digits.len().min(6));
    if finer.iter().any(|digit| *digit != b'0') {
        return None;
    }
    let micros = kept.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    Some(micros * 10_i64.pow(6 - u32::try_from(kept.len()).unwrap_or(6)))
}

/// Seconds east of UTC of `Z`, `UTC`, `+hh`, `+hhmm` or `+hh:mm`.
fn offset(bytes: &[u8]) -> Option<i64> {
    if matches!(bytes, b"Z" | b"z" | b"UTC") {
        return Some(0);
    }
    let (sign, digits) = match bytes {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [h0, h1] => (number(&[*h0, *h1])?, 0),
        [h0, h1, m0, m1] | [h0, h1, b':', m0, m1] => (number(&[*h0, *h1])?, number(&[*m0, *m1])?),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then(|| sign * i64::from(hours * 3600 + minutes * 60))
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u32::from(digit - b'0')))
}

pub(super) fn in_zone(local: NaiveDateTime, rules: Rules) -> Option<i64> {
    match rules.zone.from_local_datetime(&local) {
        LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => Some(moment.timestamp_micros()),
        LocalResult::None => None,
    }
}
