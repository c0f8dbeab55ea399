//! A time of the day in which something may be done: `01:00-05:00`, `22:00-04:00 Europe/Lisbon`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveTime, Utc};
use chrono_tz::Tz;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

/// From one time of the day up to another, which may be that of the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    from: NaiveTime,
    upto: NaiveTime,
    /// `None` for that of the pipeline.
    zone: Option<Tz>,
}

impl Window {
    /// True at a moment that is in the window; its times are those of `zone` unless it names one.
    pub fn is_open(&self, at: DateTime<Utc>, zone: Tz) -> bool {
        let time = at.with_timezone(&self.zone.unwrap_or(zone)).time();
        match self.from < self.upto {
            true => self.from <= time && time < self.upto,
            false => self.from <= time || time < self.upto,
        }
    }
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no window such as `01:00-05:00` or `22:00-04:00 Europe/Lisbon`");
        let (times, zone) = match text.trim().split_once(' ') {
            Some((times, zone)) => (times, Some(zone.trim())),
            None => (text.trim(), None),
        };
        let time = |text: &str| NaiveTime::parse_from_str(text, "%H:%M").map_err(|_| wrong());
        let (from, upto) = times.split_once('-').ok_or_else(wrong)?;
        let (from, upto) = (time(from)?, time(upto)?);
        if from == upto {
            return Err(format!("`{text}` ends when it begins: leave the window out for the whole day"));
        }
        let zone = zone.map(|zone| zone.parse().map_err(|_| format!("`{zone}` is not a time zone: `Europe/Lisbon`")));
        Ok(Self { from, upto, zone: zone.transpose()? })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from.format("%H:%M"), self.upto.format("%H:%M"))?;
        self.zone.map_or(Ok(()), |zone| write!(f, " {zone}"))
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Window {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Window".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "examples": ["01:00-05:00", "22:00-04:00 Europe/Lisbon"]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_open_from_its_begin_up_to_its_end() {
        let open = |text: &str, at: &str| {
            let window: Window = text.parse().expect("a window");
            assert_eq!(window.to_string(), text);
            window.is_open(format!("2024-07-01T{at}:00Z").parse().expect("a time"), Tz::UTC)
        };
        let times = ["00:59", "01:00", "04:59", "05:00", "23:00"];
        assert_eq!(times.map(|at| open("01:00-05:00", at)), [false, true, true, false, false]);
        assert_eq!(times.map(|at| open("22:00-05:00", at)), [true, true, true, false, true]);
        // Lisbon is an hour ahead in summer.
        assert_eq!(times.map(|at| open("02:00-06:00 Europe/Lisbon", at)), [false, true, true, false, false]);
    }

    #[test]
    fn what_is_no_window_is_told() {
        let wrong = |text: &str| text.parse::<Window>().expect_err("no window");
        assert!(wrong("0 2 * * *").contains("is no window such as `01:00-05:00`"));
        assert!(wrong("01:00").contains("is no window") && wrong("25:00-01:00").contains("is no window"));
        assert!(wrong("01:00-01:00").contains("ends when it begins"));
        assert_eq!(wrong("01:00-05:00 Lisbon"), "`Lisbon` is not a time zone: `Europe/Lisbon`");
    }
}
