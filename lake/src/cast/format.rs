//! Days and moments from text in a format of the producer's own.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::datatypes::DataType;
use chrono::format::{Item, Parsed, StrftimeItems, parse};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Timelike};

use super::text::read;
use super::{Cast, Rules, cast, time};
use crate::schema::ColumnType;

/// A format of dates or timestamps, in the letters of `strftime`: `%d-%b-%y %I.%M.%S%.f %p`.
#[derive(Debug, Clone)]
pub struct TextFormat {
    pattern: String,
    items: Vec<Item<'static>>,
}

/// What a text says: a moment, or the reading of a clock somewhere.
enum Reading {
    Moment(DateTime<chrono::FixedOffset>),
    Clock(NaiveDateTime),
}

impl FromStr for TextFormat {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, Self::Err> {
        let wrong = |_| format!("`{pattern}` is not a format: it has a letter that means nothing");
        let items = StrftimeItems::new(pattern).parse_to_owned().map_err(wrong)?;
        let format = Self { pattern: pattern.to_owned(), items };
        // 25 November 2003, 13:47:58: no part of it can be taken for another.
        let sample = DateTime::from_timestamp(1_069_768_078, 0).unwrap_or_default();
        let mut text = String::new();
        write!(text, "{}", sample.format_with_items(format.items.iter()))
            .map_err(|_| format!("`{pattern}` has a letter that cannot be used here"))?;
        let back = format.reading(&text).map(|reading| match reading {
            Reading::Moment(moment) => moment.naive_utc().date(),
            Reading::Clock(clock) => clock.date(),
        });
        if back != Ok(sample.date_naive()) {
            return Err(format!("`{pattern}` does not say which day it is, or has an hour without minutes"));
        }
        Ok(format)
    }
}

impl fmt::Display for TextFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

impl TextFormat {
    fn reading(&self, text: &str) -> Result<Reading, String> {
        let other = || format!("`{text}` is not written as `{}`", self.pattern);
        let mut parsed = Parsed::new();
        parse(&mut parsed, text.trim_ascii(), self.items.iter()).map_err(|_| other())?;
        // The library takes `26` for the year 26 where four digits are meant.
        if parsed.year().is_some_and(|year| (0..1_000).contains(&year) && !text.contains(&format!("{year:04}"))) {
            return Err(other());
        }
        if let Ok(moment) = parsed.to_datetime() {
            return Ok(Reading::Moment(moment));
        }
        let day = parsed.to_naive_date().map_err(|_| other())?;
        let clock = match parsed.to_naive_time() {
            Ok(clock) => clock,
            Err(_) if parsed.hour_div_12().is_none() && parsed.hour_mod_12().is_none() => NaiveTime::MIN,
            Err(_) => return Err(other()),
        };
        Ok(Reading::Clock(day.and_time(clock)))
    }

    /// Microseconds since the epoch.
    fn timestamp(&self, text: &str, rules: Rules) -> Result<i64, String> {
        let reading = self.reading(text)?;
        let nanos = match &reading {
            Reading::Moment(moment) => moment.nanosecond(),
            Reading::Clock(clock) => clock.nanosecond(),
        };
        if nanos % 1_000 != 0 {
            return Err(format!("`{text}` is finer than a microsecond"));
        }
        if nanos >= 1_000_000_000 {
            return Err(format!("`{text}` is a leap second, which a timestamp cannot be"));
        }
        let micros = match reading {
            Reading::Moment(moment) => moment.timestamp_micros(),
            Reading::Clock(clock) => {
                time::in_zone(clock, rules).ok_or_else(|| format!("`{text}` does not exist in {}", rules.zone))?
            }
        };
        if time::is_moment(micros) { Ok(micros) } else { Err(time::no_moment(text)) }
    }

    /// Days since the epoch.
    fn date(&self, text: &str) -> Result<i32, String> {
        let clock = match self.reading(text)? {
            Reading::Moment(moment) => moment.naive_local(),
            Reading::Clock(clock) => clock,
        };
        if clock.time() != NaiveTime::MIN {
            return Err(format!("`{text}` is not a date: it has a time of day"));
        }
        let days = clock.date().signed_duration_since(NaiveDate::default()).num_days();
        time::in_days(days).ok_or_else(|| time::no_day(text))
    }
}

/// Casts text in a format of its own to `date` or `timestamp`; what is not text, and other types, as [`cast`] does.
pub fn cast_format(column: &ArrayRef, kind: ColumnType, format: &TextFormat, rules: Rules) -> Cast {
    if column.data_type() != &DataType::Utf8 {
        return cast(column, kind, rules);
    }
    match kind {
        ColumnType::Date => {
            let (values, bad) = read(column.as_string(), |text| format.date(text));
            Cast { array: Arc::new(Date32Array::from(values)), bad }
        }
        ColumnType::Timestamp => {
            let (values, bad) = read(column.as_string(), |text| format.timestamp(text, rules));
            Cast { array: Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC")), bad }
        }
        _ => cast(column, kind, rules),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;
    use arrow::datatypes::{Date32Type, TimestampMicrosecondType};
    use chrono_tz::Tz;

    use super::*;

    const LISBON: Rules = Rules { zone: Tz::Europe__Lisbon };

    fn format(pattern: &str) -> TextFormat {
        pattern.parse().expect("a format")
    }

    #[test]
    fn a_year_has_four_digits_unless_the_format_says_two() {
        let days = |pattern: &str, text: &str| {
            let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
            let cast = cast_format(&texts, ColumnType::Date, &format(pattern), LISBON);
            cast.bad.is_empty().then(|| cast.array.as_primitive::<Date32Type>().value_as_date(0).expect("a day"))
        };
        assert_eq!(days("%d/%m/%Y", "01/11/26"), None);
        assert_eq!(days("%d/%m/%Y", "01/11/2026").map(|day| day.to_string()), Some("2026-11-01".to_owned()));
        assert_eq!(days("%d/%m/%y", "01/11/26").map(|day| day.to_string()), Some("2026-11-01".to_owned()));
        assert_eq!(days("%d/%m/%Y", "01/11/0026").map(|day| day.to_string()), Some("0026-11-01".to_owned()));
    }

    #[test]
    fn a_format_must_say_a_day_and_have_letters_that_mean_something() {
        for wrong in ["%H:%M", "%Y-%m", "%Y-%m-%d %H", "%Q", "day"] {
            assert!(wrong.parse::<TextFormat>().is_err(), "{wrong}");
        }
        for right in ["%d/%m/%Y", "%d-%b-%y %I.%M.%S%.f %p", "%Y%m%d", "%s", "%Y-%m-%d %H:%M %z", "%Y-%j"] {
            assert!(right.parse::<TextFormat>().is_ok(), "{right}");
        }
    }

    #[test]
    fn a_clock_without_an_offset_is_in_the_zone() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("01-MAY-24 10.00.00.123456 AM"),
            Some("31-MAR-24 01.30.00 AM"),
            Some("2024-05-01"),
            Some("01-MAY-24 10.00.00.1234567 PM"),
            None,
        ]));
        let cast = cast_format(&texts, ColumnType::Timestamp, &format("%d-%b-%y %I.%M.%S%.f %p"), LISBON);
        let moments = cast.array.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(moments.iter().collect::<Vec<_>>(), [Some(1_714_554_000_123_456), None, None, None, None]);
        let reasons: Vec<&str> = cast.bad.iter().map(|(_, reason)| reason.as_str()).collect();
        assert!(reasons[0].contains("does not exist in Europe/Lisbon"), "{reasons:?}");
        assert!(reasons[1].contains("is not written as") && reasons[2].contains("finer"), "{reasons:?}");
        assert_eq!(reasons.len(), 3);
    }

    #[test]
    fn an_offset_in_the_text_wins() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["2024/05/01 10:00 +0200"]));
        let cast = cast_format(&texts, ColumnType::Timestamp, &format("%Y/%m/%d %H:%M %z"), LISBON);
        assert_eq!(cast.array.as_primitive::<TimestampMicrosecondType>().value(0), 1_714_550_400_000_000);
    }

    #[test]
    fn a_date_has_no_time_of_day() {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec!["01/05/2024 00:00", "01/05/2024 10:00", "31/02/2024 00:00"]));
        let cast = cast_format(&texts, ColumnType::Date, &format("%d/%m/%Y %H:%M"), LISBON);
        assert_eq!(cast.array.as_primitive::<Date32Type>().value(0), 19_844);
        assert_eq!(cast.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 2]);
    }
}
