//! Times in which something may be done: every day (`01:00-05:00`, `22:00-04:00 Europe/Lisbon`), or for a while from each
//! moment of a cron pattern on (`{cron: '0 2 * * SUN', duration: 4h}`).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use chrono_tz::Tz;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use super::scalars::Duration;
use super::schedule::Schedule;

const DAY_MINUTES: i64 = 24 * 60;

/// When something may be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    times: Times,
    /// `None` for that of the pipeline.
    zone: Option<Tz>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Times {
    /// From one time of the day up to another, which may be that of the next day.
    Daily { from: NaiveTime, upto: NaiveTime },
    /// For so long from each moment of a pattern on.
    Cron { pattern: String, duration: Duration },
}

/// The second kind, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CronEntry {
    cron: String,
    duration: Duration,
    timezone: Option<String>,
}

impl Window {
    /// True at a moment that is in the window; its times are those of `zone` unless it names one.
    pub fn is_open(&self, at: DateTime<Utc>, zone: Tz) -> bool {
        self.opened(at, zone).is_some()
    }

    /// Since when it is open, at a moment that is in the window.
    pub fn opened(&self, at: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        let zone = self.zone.unwrap_or(zone);
        match &self.times {
            Times::Daily { from, upto } => {
                let local = at.with_timezone(&zone);
                let (day, time) = (local.date_naive(), local.time());
                let is_after_begin = *from <= time;
                let is_before_end = time < *upto;
                let begin = match from < upto {
                    true => (is_after_begin && is_before_end).then_some(day),
                    false if is_after_begin => Some(day),
                    false => day.pred_opt().filter(|_| is_before_end),
                };
                // A clock that is put forward over the begin: it is open from the end of the gap on.
                let begin = begin?.and_time(*from);
                let mut minutes = (0..=DAY_MINUTES).map(|minute| begin + TimeDelta::minutes(minute));
                let begin = minutes.find_map(|minute| minute.and_local_timezone(zone).earliest());
                Some(begin.map_or(at, |begin| begin.with_timezone(&Utc).min(at)))
            }
            Times::Cron { pattern, duration } => {
                let begin = Schedule::new(pattern, zone).ok().and_then(|schedule| schedule.last(at))?;
                let duration = TimeDelta::from_std(duration.as_std()).unwrap_or(TimeDelta::MAX);
                (at - begin < duration).then_some(begin)
            }
        }
    }
}

fn zone(name: &str) -> Result<Tz, String> {
    name.parse().map_err(|_| format!("`{name}` is not a time zone: `Europe/Lisbon`"))
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no window such as `01:00-05:00` or `22:00-04:00 Europe/Lisbon`");
        if Schedule::new(text, Tz::UTC).is_ok() {
            return Err(format!("a window by cron says how long it is: `{{cron: '{text}', duration: 4h}}`"));
        }
        let (times, named) = match text.trim().split_once(' ') {
            Some((times, zone)) => (times, Some(zone.trim())),
            None => (text.trim(), None),
        };
        let time = |text: &str| NaiveTime::parse_from_str(text, "%H:%M").map_err(|_| wrong());
        let (from, upto) = times.split_once('-').ok_or_else(wrong)?;
        let (from, upto) = (time(from)?, time(upto)?);
        if from == upto {
            return Err(format!("`{text}` ends when it begins: leave the window out for the whole day"));
        }
        Ok(Self { times: Times::Daily { from, upto }, zone: named.map(zone).transpose()? })
    }
}

impl TryFrom<CronEntry> for Window {
    type Error = String;

    fn try_from(CronEntry { cron, duration, timezone }: CronEntry) -> Result<Self, String> {
        if let Err(why) = Schedule::new(&cron, Tz::UTC) {
            return Err(format!("`{cron}` is no cron pattern: {why}"));
        }
        if duration.as_std().is_zero() {
            return Err("a window needs some time, `duration: 4h` for instance".to_owned());
        }
        Ok(Self { times: Times::Cron { pattern: cron, duration }, zone: timezone.as_deref().map(zone).transpose()? })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.times {
            Times::Daily { from, upto } => write!(f, "{}-{}", from.format("%H:%M"), upto.format("%H:%M"))?,
            Times::Cron { pattern, duration } => write!(f, "{pattern} for {duration}")?,
        }
        self.zone.map_or(Ok(()), |zone| write!(f, " {zone}"))
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

struct Written;

impl<'de> de::Visitor<'de> for Written {
    type Value = Window;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a window such as `01:00-05:00`, or `{cron: '0 2 * * SUN', duration: 4h}`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Window, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Window, A::Error> {
        CronEntry::deserialize(MapAccessDeserializer::new(map))?.try_into().map_err(de::Error::custom)
    }
}

impl JsonSchema for Window {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Window".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let duration = generator.subschema_for::<Duration>();
        json_schema!({"anyOf": [
            {"type": "string", "examples": ["01:00-05:00", "22:00-04:00 Europe/Lisbon"]},
            {
                "type": "object",
                "properties": {
                    "cron": {"type": "string", "examples": ["0 2 * * SUN"]},
                    "duration": duration,
                    "timezone": {"type": "string"},
                },
                "required": ["cron", "duration"],
                "additionalProperties": false,
            },
        ]})
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
    fn a_window_by_cron_is_open_for_its_duration() {
        let window: Window = serde_json::from_str(r#"{"cron": "0 22 * * SAT", "duration": "4h"}"#).expect("a window");
        assert_eq!(window.to_string(), "0 22 * * SAT for 4h");
        let open = |at: &str, zone| window.is_open(at.parse().expect("a time"), zone);
        // A Saturday, and the Sunday after it.
        let times = ["2024-07-06T21:59:59Z", "2024-07-06T22:00:00Z", "2024-07-07T01:59:59Z", "2024-07-07T02:00:00Z"];
        assert_eq!(times.map(|at| open(at, Tz::UTC)), [false, true, true, false]);
        assert!(open("2024-07-06T21:00:00Z", Tz::Europe__Lisbon) && !open("2024-07-07T01:00:00Z", Tz::Europe__Lisbon));
        let wrong = |text: &str| serde_json::from_str::<Window>(text).expect_err("no window").to_string();
        assert!(wrong(r#"{"cron": "0 22 * *", "duration": "4h"}"#).contains("is no cron pattern"));
        assert!(wrong(r#"{"cron": "0 22 * * *", "duration": "0s"}"#).contains("needs some time"));
        assert!(wrong(r#"{"cron": "0 22 * * *"}"#).contains("duration") && wrong("7").contains("a window such as"));
    }

    #[test]
    fn a_window_tells_since_when_it_is_open() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().expect("a time");
        let since = |text: &str, moment: &str| text.parse::<Window>().expect("a window").opened(at(moment), Tz::UTC);
        assert_eq!(since("01:00-05:00", "2024-07-01T04:59:00Z"), Some(at("2024-07-01T01:00:00Z")));
        assert_eq!(since("01:00-05:00", "2024-07-01T05:00:00Z"), None);
        for moment in ["2024-06-30T23:00:00Z", "2024-07-01T04:00:00Z"] {
            assert_eq!(since("22:00-05:00", moment), Some(at("2024-06-30T22:00:00Z")), "{moment}");
        }
        assert_eq!(since("22:00-05:00", "2024-07-01T22:00:00Z"), Some(at("2024-07-01T22:00:00Z")));
        let lisbon = "02:00-06:00 Europe/Lisbon";
        assert_eq!(since(lisbon, "2024-07-01T03:00:00Z"), Some(at("2024-07-01T01:00:00Z")));
        // There was no half past one that night: at one it was two.
        for moment in ["2024-03-31T01:15:00Z", "2024-03-31T01:45:00Z"] {
            assert_eq!(since("01:30-03:00 Europe/Lisbon", moment), Some(at("2024-03-31T01:00:00Z")), "{moment}");
        }
        let window: Window = serde_json::from_str(r#"{"cron": "0 22 * * SAT", "duration": "4h"}"#).expect("a window");
        assert_eq!(window.opened(at("2024-07-07T01:59:59Z"), Tz::UTC), Some(at("2024-07-06T22:00:00Z")));
    }

    #[test]
    fn what_is_no_window_is_told() {
        let wrong = |text: &str| text.parse::<Window>().expect_err("no window");
        assert!(wrong("0 2 * * *").contains("says how long it is: `{cron: '0 2 * * *', duration: 4h}`"));
        assert!(wrong("01:00").contains("is no window") && wrong("25:00-01:00").contains("is no window"));
        assert!(wrong("01:00-01:00").contains("ends when it begins"));
        assert_eq!(wrong("01:00-05:00 Lisbon"), "`Lisbon` is not a time zone: `Europe/Lisbon`");
    }
}
