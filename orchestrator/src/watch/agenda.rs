//! What is to be run, when and why. Whatever starts runs asks here: a file that arrives, a failure that may pass.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use lake::TableName;

/// The wait after a first failure that may pass; it doubles with each further one.
const RETRY: Duration = Duration::from_secs(5);
/// The longest wait after failures.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// The tasks that are to be run, each from some moment on, with what depends on them.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    asked: BTreeMap<TableName, DateTime<Utc>>,
    /// Those of them that are asked for because they failed.
    again: BTreeSet<TableName>,
    /// After failures nothing is run before this moment, and how many came in a row.
    resting: Option<(DateTime<Utc>, u32)>,
    /// From the start of one run to that of the next, at least.
    apart: Duration,
    last_start: Option<DateTime<Utc>>,
}

impl Agenda {
    /// An agenda whose runs start `apart` from one another.
    pub(super) fn new(apart: Duration) -> Self {
        Self { apart, ..Self::default() }
    }

    /// Asks for a run of a task from `at` on. Asked twice, the later word counts: what changed again is not complete.
    pub(super) fn ask(&mut self, task: &TableName, at: DateTime<Utc>) {
        self.again.remove(task);
        self.asked.insert(task.clone(), at);
    }

    /// The moment at which something is due; `None` when nothing is asked for.
    pub(super) fn next(&self) -> Option<DateTime<Utc>> {
        let next = self.asked.values().min().copied()?;
        Some(self.free(next))
    }

    /// The moment from `at` on at which a run may start: apart from the last one, and rested after failures.
    pub(super) fn free(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        let rested = self.resting.map(|(until, _)| until);
        let apart = self.last_start.and_then(|start| start.checked_add_signed(delta(self.apart)));
        [rested, apart].into_iter().flatten().fold(at, Ord::max)
    }

    /// A run starts now.
    pub(super) fn started(&mut self, now: DateTime<Utc>) {
        self.last_start = Some(now);
    }

    /// The tasks whose moment has come; the next run is for them.
    pub(super) fn take(&mut self, now: DateTime<Utc>) -> BTreeSet<TableName> {
        if self.next().is_none_or(|next| next > now) {
            return BTreeSet::new();
        }
        let due: BTreeSet<TableName> =
            self.asked.iter().filter(|(_, at)| **at <= now).map(|(task, _)| task.clone()).collect();
        self.asked.retain(|task, _| !due.contains(task));
        self.again.retain(|task| !due.contains(task));
        due
    }

    /// The tasks that are asked for because they failed.
    pub(super) fn again(&self) -> BTreeSet<TableName> {
        self.again.clone()
    }

    /// A run of `tasks` failed in a way that may pass: they are run again after a wait, which is returned.
    pub(super) fn failed(&mut self, tasks: &BTreeSet<TableName>, now: DateTime<Utc>) -> Duration {
        let failures = self.resting.map_or(0, |(_, failures)| failures);
        let wait = RETRY.saturating_mul(1 << failures.min(16)).min(RETRY_MAX);
        self.resting = Some((now + delta(wait), failures + 1));
        for task in tasks {
            if !self.asked.contains_key(task) {
                self.asked.insert(task.clone(), now);
                self.again.insert(task.clone());
            }
        }
        wait
    }

    /// The clock went back to `now`: nothing is waited for longer than was meant.
    pub(super) fn clock_went_back(&mut self, now: DateTime<Utc>) {
        self.asked.values_mut().for_each(|at| *at = now.min(*at));
        self.resting = self.resting.map(|(until, failures)| (until.min(now + delta(RETRY)), failures));
        self.last_start = self.last_start.map(|start| start.min(now));
    }

    /// A run ended without a failure that may pass.
    pub(super) fn succeeded(&mut self) {
        self.resting = None;
    }
}

/// A time that is waited; one that no clock reaches is the longest.
pub(super) fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn task(name: &str) -> TableName {
        TableName::bronze(name)
    }

    #[test]
    fn a_task_is_due_when_it_was_last_asked_for() {
        let mut agenda = Agenda::new(Duration::ZERO);
        assert_eq!(agenda.next(), None);
        agenda.ask(&task("a"), at(10));
        agenda.ask(&task("b"), at(12));
        agenda.ask(&task("a"), at(11));
        assert_eq!((agenda.next(), agenda.take(at(10)).len()), (Some(at(11)), 0));
        assert_eq!(agenda.take(at(11)), [task("a")].into());
        assert_eq!(agenda.next(), Some(at(12)));
    }

    #[test]
    fn runs_keep_apart() {
        let mut agenda = Agenda::new(Duration::from_secs(60));
        agenda.ask(&task("a"), at(10));
        assert_eq!(agenda.take(at(10)).len(), 1);
        agenda.ask(&task("a"), at(11));
        assert_eq!(agenda.take(at(11)).len(), 1, "what was due before started no run");
        agenda.started(at(10));
        assert_eq!((agenda.free(at(20)), agenda.free(at(80))), (at(70), at(80)));
        agenda.ask(&task("a"), at(20));
        assert_eq!((agenda.next(), agenda.take(at(69)).len(), agenda.take(at(70)).len()), (Some(at(70)), 0, 1));
    }

    #[test]
    fn a_clock_that_goes_back_holds_nothing_up() {
        let mut agenda = Agenda::new(Duration::from_secs(60));
        agenda.started(at(1_000));
        agenda.failed(&[task("a")].into(), at(1_000));
        agenda.clock_went_back(at(10));
        assert_eq!((agenda.next(), agenda.again()), (Some(at(70)), [task("a")].into()));
    }

    #[test]
    fn failures_wait_longer_each_time_and_lose_nothing() {
        let mut agenda = Agenda::new(Duration::ZERO);
        let waits: Vec<u64> = (0..8).map(|_| agenda.failed(&[task("a")].into(), at(0)).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        agenda.ask(&task("b"), at(1));
        assert_eq!((agenda.next(), agenda.take(at(299)).len()), (Some(at(300)), 0), "arrivals do not hammer a store");
        assert_eq!(agenda.again(), [task("a")].into(), "what arrived did not fail");
        assert_eq!(agenda.take(at(300)), [task("a"), task("b")].into());
        assert_eq!(agenda.again(), [].into());
        agenda.succeeded();
        agenda.ask(&task("b"), at(301));
        assert_eq!(agenda.next(), Some(at(301)));
    }
}
