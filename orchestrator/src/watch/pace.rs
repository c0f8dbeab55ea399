//! Runs of everything that follow one another: at an interval, or one as soon as the other has ended.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use lake::report::{RunSummary, TaskStatus};
use lake::spec::Trigger;

use super::agenda::delta;
use super::because::Because;

/// How long a continuous watch rests after a run that found nothing new; it doubles with each further one.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The same after a run that failed.
const REST_FAILED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// When the next run of everything begins by itself.
#[derive(Debug)]
pub(super) struct Pace {
    kind: Option<Kind>,
    next: DateTime<Utc>,
    /// Runs in a row after which it rested.
    rests: u32,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Every(TimeDelta),
    Continuous,
}

impl Pace {
    /// What the spec asks for; the first run is that by which the watch begins.
    pub(super) fn new(trigger: &Trigger, now: DateTime<Utc>) -> Self {
        let every = trigger.periodic.map(|every| Kind::Every(delta(every.as_std())));
        let kind = every.or(trigger.continuous.then_some(Kind::Continuous));
        Self { kind, next: now, rests: 0 }
    }

    /// True when the spec asks for runs that follow one another.
    pub(super) fn is_asked_for(&self) -> bool {
        self.kind.is_some()
    }

    /// True when each run follows the one before.
    pub(super) fn is_continuous(&self) -> bool {
        matches!(self.kind, Some(Kind::Continuous))
    }

    /// The moment of the next run.
    pub(super) fn next(&self) -> Option<DateTime<Utc>> {
        self.kind.map(|_| self.next)
    }

    /// What starts a run now, if its moment has come.
    pub(super) fn take(&self, now: DateTime<Utc>) -> Option<Because> {
        let kind = self.kind.filter(|_| self.next <= now)?;
        Some(match kind {
            Kind::Every(_) => Because::Periodic,
            Kind::Continuous => Because::Continuous,
        })
    }

    /// A run of everything is over.
    pub(super) fn ended(&mut self, started: DateTime<Utc>, now: DateTime<Utc>, summary: &RunSummary) {
        match self.kind {
            None => {}
            Some(Kind::Every(interval)) => self.next = (started + interval).max(now),
            Some(Kind::Continuous) => self.next = now + self.rest(summary),
        }
    }

    /// The clock went back to `now`: the next run begins no later than was meant.
    pub(super) fn clock_went_back(&mut self, now: DateTime<Utc>) {
        let longest = match self.kind {
            Some(Kind::Every(interval)) => interval,
            _ => delta(REST_FAILED.1),
        };
        self.next = self.next.min(now + longest);
    }

    fn rest(&mut self, summary: &RunSummary) -> TimeDelta {
        let failed = summary.count(TaskStatus::Failed) > 0;
        if !failed && summary.count(TaskStatus::Succeeded) > 0 {
            self.rests = 0;
            return TimeDelta::zero();
        }
        let (first, longest) = if failed { REST_FAILED } else { REST };
        let rest = first.saturating_mul(1 << self.rests.min(16)).min(longest);
        self.rests += 1;
        delta(rest)
    }
}

#[cfg(test)]
mod tests {
    use lake::report::{TaskOutcome, TaskReport, TaskState};
    use lake::{Error, TableName};

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn summary(outcome: TaskOutcome) -> RunSummary {
        let (run, spec) = ("r".to_owned(), "p.yaml".to_owned());
        RunSummary { run, spec, started_at: at(0), elapsed: Duration::ZERO, tasks: vec![outcome] }
    }

    fn idle() -> RunSummary {
        summary(TaskOutcome::done(TaskReport::up_to_date(TableName::silver("t"), Some(1)), 1, Duration::ZERO))
    }

    fn busy() -> RunSummary {
        let report =
            TaskReport { state: TaskState::Changed, ..TaskReport::up_to_date(TableName::silver("t"), Some(1)) };
        summary(TaskOutcome::done(report, 1, Duration::ZERO))
    }

    #[test]
    fn a_continuous_watch_runs_at_once_and_rests_when_nothing_is_new() {
        let mut pace = Pace::new(&Trigger { continuous: true, ..Trigger::default() }, at(0));
        assert_eq!(pace.take(at(0)), Some(Because::Continuous));
        let rest = |pace: &mut Pace, summary: &RunSummary| {
            pace.ended(at(0), at(10), summary);
            (pace.next().expect("a moment") - at(10)).num_seconds()
        };
        assert_eq!(rest(&mut pace, &busy()), 0);
        let rests: Vec<i64> = (0..8).map(|_| rest(&mut pace, &idle())).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((rest(&mut pace, &busy()), rest(&mut pace, &idle())), (0, 1));
        let failed = summary(TaskOutcome::failed(TableName::silver("t"), Error::internal("x"), 1, Duration::ZERO));
        assert_eq!(rest(&mut pace, &failed), 10, "a failure after a rest is the second in a row");
    }

    #[test]
    fn a_period_goes_from_start_to_start() {
        let every = Some(lake::spec::Duration::from_secs(60));
        let mut pace = Pace::new(&Trigger { periodic: every, ..Trigger::default() }, at(0));
        pace.ended(at(0), at(20), &busy());
        assert_eq!((pace.next(), pace.take(at(59)), pace.take(at(60))), (Some(at(60)), None, Some(Because::Periodic)));
        pace.ended(at(60), at(200), &busy());
        assert_eq!(pace.next(), Some(at(200)), "a run that takes longer is followed by the next");
        assert_eq!(Pace::new(&Trigger::default(), at(0)).next(), None);
        pace.clock_went_back(at(10));
        assert_eq!(pace.next(), Some(at(70)));
    }
}
