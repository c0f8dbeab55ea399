//! Which days a snapshot has recorded: what tells a day without rows from a day without a run.
//!
//! The days are the table property [`SNAPSHOT_DAYS`], as runs of days: `2024-05-01..2024-05-06, 2024-05-08`. It changes in the
//! commit that records a day. Days that are gone by `retention` are no longer among them.

use std::collections::BTreeSet;

use chrono::NaiveDate;
use lake::columns::{SNAPSHOT_DATE, SNAPSHOT_DAYS};
use lake::{Error, ErrorKind, Result, Table};
use serde::{Deserialize, Serialize};

const BETWEEN: &str = ", ";
const UP_TO: &str = "..";

/// Recorded days.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Days(BTreeSet<NaiveDate>);

impl Days {
    /// The days of a table; of one that came before the property, those that have rows.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the property or a partition is no day.
    pub(super) fn of(table: &Table) -> Result<Self> {
        let unreadable = |text: &str| {
            Error::new(ErrorKind::Table, format!("{} has days that cannot be read: `{text}`", table.name()))
        };
        if let Some(text) = table.property(SNAPSHOT_DAYS)? {
            return Self::parse(&text).ok_or_else(|| unreadable(&text));
        }
        let partitions = table.partition_values(SNAPSHOT_DATE)?;
        let days = partitions.iter().flatten().map(|text| text.parse().map_err(|_| unreadable(text)));
        days.collect::<Result<_>>().map(Self)
    }

    /// Adds a day.
    pub(super) fn insert(&mut self, day: NaiveDate) {
        self.0.insert(day);
    }

    /// Takes away a day.
    pub(super) fn remove(&mut self, day: NaiveDate) {
        self.0.remove(&day);
    }

    /// Takes away all other days.
    pub(super) fn retain(&mut self, stays: impl Fn(NaiveDate) -> bool) {
        self.0.retain(|day| stays(*day));
    }

    /// Takes away the days before `cut`. With `is_carried` the state of `cut` stays known, whether it was recorded or
    /// not.
    pub(super) fn cut(&mut self, cut: NaiveDate, is_carried: bool) {
        let kept = self.0.split_off(&cut);
        let had_older = !std::mem::replace(&mut self.0, kept).is_empty();
        if had_older && is_carried {
            self.0.insert(cut);
        }
    }

    /// True for a recorded day.
    pub(super) fn has(&self, day: NaiveDate) -> bool {
        self.0.contains(&day)
    }

    /// The recorded day whose state is that of `day`: itself, or the last one before it.
    pub(super) fn at(&self, day: NaiveDate) -> Option<NaiveDate> {
        self.0.range(..=day).next_back().copied()
    }

    /// The first recorded day after `day`.
    pub(super) fn after(&self, day: NaiveDate) -> Option<NaiveDate> {
        self.0.range(day..).find(|recorded| **recorded > day).copied()
    }

    /// The first recorded day.
    pub(super) fn first(&self) -> Option<NaiveDate> {
        self.0.first().copied()
    }

    /// The last recorded day.
    pub(super) fn last(&self) -> Option<NaiveDate> {
        self.0.last().copied()
    }

    /// The days, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = NaiveDate> {
        self.0.iter().copied()
    }

    /// The days between the first and the last that were not recorded, as runs.
    pub(super) fn gaps(&self) -> Vec<(NaiveDate, NaiveDate)> {
        let runs = self.runs();
        let between = runs.iter().zip(runs.iter().skip(1));
        between.filter_map(|((_, last), (next, _))| Some((last.succ_opt()?, next.pred_opt()?))).collect()
    }

    fn runs(&self) -> Vec<(NaiveDate, NaiveDate)> {
        let mut runs: Vec<(NaiveDate, NaiveDate)> = Vec::new();
        for day in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if last.succ_opt() == Some(day) => *last = day,
                _ => runs.push((day, day)),
            }
        }
        runs
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut days = BTreeSet::new();
        for run in text.split(BETWEEN).filter(|run| !run.is_empty()) {
            let (first, last) = run.split_once(UP_TO).unwrap_or((run, run));
            let (first, last): (NaiveDate, NaiveDate) = (first.parse().ok()?, last.parse().ok()?);
            days.extend(first.iter_days().take_while(|day| *day <= last));
        }
        Some(Self(days))
    }
}

impl std::fmt::Display for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, (first, last)) in self.runs().into_iter().enumerate() {
            f.write_str(if number > 0 { BETWEEN } else { "" })?;
            match first == last {
                true => write!(f, "{first}")?,
                false => write!(f, "{first}{UP_TO}{last}")?,
            }
        }
        Ok(())
    }
}

impl From<Days> for String {
    fn from(days: Days) -> Self {
        days.to_string()
    }
}

impl TryFrom<String> for Days {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("no days: `{text}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().expect("a day")
    }

    #[test]
    fn days_are_read_as_they_are_written() {
        for text in ["", "2024-05-01", "2024-02-27..2024-03-02, 2024-03-04, 2024-03-06..2024-03-07"] {
            assert_eq!(Days::parse(text).expect("days").to_string(), text);
        }
        assert_eq!(Days::parse("2024-02-30"), None);
    }

    #[test]
    fn a_day_that_was_not_recorded_has_the_state_of_the_one_before() {
        let days = Days::parse("2024-05-02..2024-05-03, 2024-05-06").expect("days");
        let at = |text: &str| days.at(day(text));
        assert_eq!((at("2024-05-01"), at("2024-05-05")), (None, Some(day("2024-05-03"))));
        assert_eq!((days.after(day("2024-05-03")), days.after(day("2024-05-06"))), (Some(day("2024-05-06")), None));
        assert_eq!(days.gaps(), [(day("2024-05-04"), day("2024-05-05"))]);
    }

    #[test]
    fn what_is_cut_away_leaves_its_state_only_where_it_is_carried() {
        let cut = |is_carried: bool| {
            let mut days = Days::parse("2024-05-01..2024-05-02, 2024-05-06").expect("days");
            days.cut(day("2024-05-04"), is_carried);
            days.to_string()
        };
        assert_eq!((cut(true).as_str(), cut(false).as_str()), ("2024-05-04, 2024-05-06", "2024-05-06"));
    }
}
