//! Runs by the clock: a cron pattern in a time zone.
//!
//! Where clocks leap, a fixed time (`30 1 * * *`) that does not exist that day is right after the gap, and one that comes
//! twice counts once, the first time; patterns with every hour (`0 * * * *`) go on by real hours. That is what cron of
//! Vixie does: <https://github.com/open-source-cron/ocps>.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use schemars::JsonSchema;
use serde::Deserialize;

use super::path::SpecPath;
use super::problems::{Problem, Problems};

/// When runs start by the clock, as written.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["cron"]))]
pub(super) struct ScheduleEntry {
    /// Minute, hour, day of the month, month, day of the week: `0 * * * *` is every hour, `30 2 * * MON-FRI` half past two on
    /// workdays. A field more in front is seconds.
    cron: String,
    /// The zone of the pattern, an IANA name. Default: `timezone` of the spec.
    timezone: Option<String>,
}

/// When runs start by the clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    cron: Cron,
    text: String,
    zone: Tz,
}

impl Schedule {
    /// A schedule by a pattern in a zone.
    ///
    /// # Errors
    /// What is wrong with the pattern, in words.
    pub fn new(pattern: &str, zone: Tz) -> std::result::Result<Self, String> {
        let cron = Cron::from_str(pattern).map_err(|_| wrong(pattern))?;
        let schedule = Self { cron, text: pattern.trim().to_owned(), zone };
        match schedule.next(DateTime::UNIX_EPOCH) {
            Some(_) => Ok(schedule),
            None => Err("it never comes".to_owned()),
        }
    }

    pub(super) fn compile(entry: ScheduleEntry, zone: Tz, problems: &mut Problems) -> Option<Self> {
        let at = SpecPath::root().key("schedule");
        let zone = match &entry.timezone {
            Some(name) => super::header::zone(name, &at.key("timezone"), problems),
            None => zone,
        };
        match Self::new(&entry.cron, zone) {
            Ok(schedule) => Some(schedule),
            // A pattern that is missing, or of another kind, is told already.
            Err(_) if entry.cron.is_empty() && problems.any_below(&at) => None,
            Err(why) => {
                let problem = Problem::at(&at.key("cron"), format!("`{}` is no cron pattern: {why}", entry.cron));
                problems.add(problem.hint(
                    "write minute, hour, day of the month, month and day of the week: `0 * * * *` is every hour",
                ));
                None
            }
        }
    }

    /// The first moment after `moment`.
    pub fn next(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let next = self.cron.find_next_occurrence(&moment.with_timezone(&self.zone), false).ok()?;
        Some(next.to_utc())
    }

    /// The last moment up to and with `moment`.
    pub fn last(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let last = self.cron.find_previous_occurrence(&moment.with_timezone(&self.zone), true).ok()?;
        Some(last.to_utc())
    }

    /// The pattern and its zone: `0 * * * * (Europe/Lisbon)`.
    pub fn describe(&self) -> String {
        format!("{} ({})", self.text, self.zone)
    }
}

/// The fields of a pattern; the first and the last may be left out.
const FIELDS: [(&str, &str); 7] = [
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of the month", "1-31"),
    ("month", "1-12 or JAN-DEC"),
    ("day of the week", "0-7 or SUN-SAT"),
    ("year", "1-9999"),
];

/// What is wrong with a pattern.
fn wrong(pattern: &str) -> String {
    let words: Vec<&str> = pattern.split_whitespace().collect();
    if let [name] = words[..]
        && name.starts_with('@')
    {
        return format!("`{name}` is none of @hourly, @daily, @weekly, @monthly and @yearly");
    }
    let fields = match words.len() {
        5 => &FIELDS[1..6],
        6 => &FIELDS[..6],
        7 => &FIELDS[..],
        0 => return "it is empty".to_owned(),
        1 => return "it has one field and needs five".to_owned(),
        others => return format!("it has {others} fields and needs five"),
    };
    // The field that is wrong also where all others are right.
    let is_wrong = |place: usize| {
        let alone = (0..words.len()).map(|other| if other == place { words[place] } else { "*" });
        Cron::from_str(&alone.collect::<Vec<_>>().join(" ")).is_err()
    };
    let wrong = (0..words.len()).filter(|place| is_wrong(*place));
    let told: Vec<String> =
        wrong.map(|place| format!("`{}` is no {} ({})", words[place], fields[place].0, fields[place].1)).collect();
    if told.is_empty() { "its fields do not go together".to_owned() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    /// The moments of a schedule in Lisbon from one time to another.
    fn moments(pattern: &str, from: &str, upto: &str) -> Vec<String> {
        let schedule = Schedule::new(pattern, Tz::Europe__Lisbon).expect("a schedule");
        let (mut now, end) = (at(from), at(upto));
        let next = std::iter::from_fn(|| {
            now = schedule.next(now)?;
            (now <= end).then(|| now.format("%d %H:%M").to_string())
        });
        next.collect()
    }

    #[test]
    fn a_time_that_does_not_exist_is_right_after_the_gap() {
        // On 31 March 2024 clocks went from 01:00 to 02:00, which is 01:00 UTC.
        assert_eq!(
            moments("30 1 * * *", "2024-03-29T12:00:00Z", "2024-04-01T12:00:00Z"),
            ["30 01:30", "31 01:00", "01 00:30"]
        );
        assert_eq!(
            moments("0 * * * *", "2024-03-30T23:30:00Z", "2024-03-31T02:30:00Z"),
            ["31 00:00", "31 01:00", "31 02:00"]
        );
    }

    #[test]
    fn a_time_that_comes_twice_counts_once() {
        // On 27 October 2024 clocks went from 02:00 back to 01:00, which is 01:00 UTC.
        assert_eq!(moments("30 1 * * *", "2024-10-26T12:00:00Z", "2024-10-28T12:00:00Z"), ["27 00:30", "28 01:30"]);
        let hours = moments("0 * * * *", "2024-10-26T23:30:00Z", "2024-10-27T03:30:00Z");
        assert_eq!(hours, ["27 00:00", "27 01:00", "27 02:00", "27 03:00"]);
    }

    #[test]
    fn every_moment_of_a_year_is_found_from_both_sides() {
        let schedule = Schedule::new("*/30 1,2 * * *", Tz::Europe__Lisbon).expect("a schedule");
        let mut now = at("2024-01-01T00:00:00Z");
        for _ in 0..1_400 {
            let next = schedule.next(now).expect("a moment");
            assert!(next > now);
            assert_eq!(schedule.last(next), Some(next));
            assert_eq!(schedule.last(next - chrono::TimeDelta::seconds(1)).filter(|last| *last > now), None, "{next}");
            now = next;
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in ["", "* * *", "61 * * * *", "every hour", "0 0 30 2 *"] {
            Schedule::new(pattern, Tz::UTC).expect_err(pattern);
        }
        for (pattern, told) in [
            ("61 * * * *", "`61` is no minute (0-59)"),
            ("0 24 * FEBRUARY *", "`24` is no hour (0-23), `FEBRUARY` is no month (1-12 or JAN-DEC)"),
            ("* * *", "it has 3 fields and needs five"),
            ("@nightly", "`@nightly` is none of @hourly, @daily, @weekly, @monthly and @yearly"),
            ("0 0 30 2 *", "it never comes"),
        ] {
            assert_eq!(Schedule::new(pattern, Tz::UTC).expect_err(pattern), told);
        }
        Schedule::new("@daily", Tz::UTC).expect("a nickname");
    }
}
