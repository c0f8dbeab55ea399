//! Days and moments from text (ISO 8601) and from numbers.

use std::sync::Arc;

use arrow::array::{AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
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
    i32::try_from(days).map_err(|_| not_a_date())
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
    match reading.offset_seconds {
        Some(offset_seconds) => Ok(reading.local.and_utc().timestamp_micros() - offset_seconds * 1_000_000),
        None => in_zone(reading.local, rules).ok_or_else(|| format!("`{text}` does not exist in {}", rules.zone)),
    }
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
        let micros = value?.checked_mul(unit_micros);
        if micros.is_none() {
            bad.push((row, format!("`{}` is out of range for a timestamp", values.value(row))));
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
        // What a date can show, so that every reader can: the years that chrono has.
        let days = i32::try_from(value).ok().filter(|days| NaiveDate::from_epoch_days(*days).is_some());
        if days.is_none() {
            bad.push((row, format!("`{value}` is out of range for a date")));
        }
        days
    });
    let array = days.collect::<Date32Array>();
    bad.sort_by_key(|(row, _)| *row);
    Cast { array: Arc::new(array), bad }
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
