//! The moments of a schedule that are still to come, or were missed.

use chrono::{DateTime, Utc};
use lake::spec::Schedule;

/// A schedule as a watch follows it. Each moment starts one run; those that pass during a run, or while nobody watches,
/// start one together.
#[derive(Debug)]
pub(super) struct Ticks {
    schedule: Option<Schedule>,
    /// Moments up to this one are done.
    done: DateTime<Utc>,
}

impl Ticks {
    /// A schedule of which the moment `last` is done, and everything before it. Without one it begins now.
    pub(super) fn new(schedule: Option<Schedule>, last: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Self {
        Self { schedule, done: last.map_or(now, |last| last.min(now)) }
    }

    /// The next moment, which may be past.
    pub(super) fn next(&self) -> Option<DateTime<Utc>> {
        self.schedule.as_ref()?.next(self.done)
    }

    /// The newest moment up to `now`, if one is due; with it all before it are done.
    pub(super) fn take(&mut self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let next = self.next().filter(|next| *next <= now)?;
        let newest = self.schedule.as_ref()?.last(now).unwrap_or(next).max(next);
        self.done = newest;
        Some(newest)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use chrono_tz::Tz;

    use super::*;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes)
    }

    fn hourly(last: Option<i64>, now: i64) -> Ticks {
        Ticks::new(Some(Schedule::new("0 * * * *", Tz::UTC).expect("a schedule")), last.map(at), at(now))
    }

    #[test]
    fn each_moment_is_taken_once() {
        let mut ticks = hourly(None, 30);
        assert_eq!((ticks.next(), ticks.take(at(59))), (Some(at(60)), None));
        assert_eq!((ticks.take(at(60)), ticks.take(at(60)), ticks.next()), (Some(at(60)), None, Some(at(120))));
    }

    #[test]
    fn missed_moments_are_one() {
        let mut ticks = hourly(Some(60), 400);
        assert_eq!((ticks.take(at(400)), ticks.take(at(400)), ticks.next()), (Some(at(360)), None, Some(at(420))));
        assert_eq!(hourly(None, 400).take(at(400)), None, "nothing was missed before the first watch");
        assert_eq!(hourly(Some(420), 400).next(), Some(at(420)), "a clock that went back");
    }
}
