//! When a failed task is tried again, and how long that waits.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use lake::{Error, Retry, RunId, TableName};

/// A wait between two attempts is never longer than this, unless the spec asks for it.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// How a task is retried and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Attempts after the first one.
    pub(crate) max_retries: u32,
    /// The wait before the second attempt; it doubles with each further one.
    pub(crate) min_retry_interval: Duration,
    /// The longest an attempt may take; a task that takes longer has failed.
    pub(crate) timeout: Option<Duration>,
    /// True when an attempt that took too long is followed by another.
    pub(crate) retry_on_timeout: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_retries: 2, min_retry_interval: Duration::from_secs(5), timeout: None, retry_on_timeout: false }
    }
}

impl Policy {
    /// How long to wait before trying again after `attempts` failed attempts; `None` when it is over.
    ///
    /// `spread` in 0..1 lengthens the wait by up to a quarter, so that what failed together does not come back together.
    pub(crate) fn wait_after(&self, attempts: u32, error: &Error, spread: f64) -> Option<Duration> {
        match error.retry() {
            Retry::Never => None,
            Retry::Redo => (attempts <= self.max_retries).then_some(Duration::ZERO),
            Retry::AfterBackoff => self.backoff(attempts, spread),
        }
    }

    /// The same after an attempt that took longer than the timeout.
    pub(crate) fn wait_after_timeout(&self, attempts: u32, spread: f64) -> Option<Duration> {
        if self.retry_on_timeout { self.backoff(attempts, spread) } else { None }
    }

    fn backoff(&self, attempts: u32, spread: f64) -> Option<Duration> {
        if attempts > self.max_retries {
            return None;
        }
        let doubled = self.min_retry_interval.saturating_mul(1_u32 << attempts.saturating_sub(1).min(16));
        let wait = doubled.min(WAIT_MAX.max(self.min_retry_interval));
        Some(wait.mul_f64(1.0 + 0.25 * spread.clamp(0.0, 1.0)))
    }
}

/// A number in 0..1 that differs between runs, tasks and attempts, and is the same whenever it is asked for again.
pub(crate) fn spread(run: &RunId, task: &TableName, attempt: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (run, task, attempt).hash(&mut hasher);
    f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lake::ErrorKind;

    #[test]
    fn only_what_may_pass_is_tried_again_and_waits_grow() {
        let policy = Policy { max_retries: 3, ..Policy::default() };
        let store = Error::new(ErrorKind::Store, "no answer");
        let waits: Vec<_> = (1..=4).map(|attempts| policy.wait_after(attempts, &store, 0.0)).collect();
        assert_eq!(
            waits,
            [5, 10, 20].map(|seconds| Some(Duration::from_secs(seconds))).into_iter().chain([None]).collect::<Vec<_>>()
        );
        assert_eq!(policy.wait_after(1, &store, 1.0), Some(Duration::from_millis(6_250)));
        assert_eq!(policy.wait_after(1, &Error::data("a rule"), 0.0), None);
        assert_eq!(policy.wait_after(1, &Error::new(ErrorKind::Conflict, "moved"), 0.0), Some(Duration::ZERO));
        assert_eq!(policy.wait_after_timeout(1, 0.0), None);
        let again = Policy { retry_on_timeout: true, ..policy };
        assert_eq!(again.wait_after_timeout(1, 0.0), Some(Duration::from_secs(5)));
        assert_eq!(again.wait_after_timeout(4, 0.0), None);
        let patient = Policy { max_retries: 40, ..policy };
        assert_eq!(patient.wait_after(40, &store, 0.0), Some(WAIT_MAX));
    }

    #[test]
    fn the_spread_differs_between_tasks() {
        let run = RunId::new(&lake::Clock::manual(chrono::DateTime::UNIX_EPOCH));
        let (a, b) = (spread(&run, &TableName::gold("a"), 1), spread(&run, &TableName::gold("b"), 1));
        assert!(a != b && (0.0..=1.0).contains(&a) && (0.0..=1.0).contains(&b));
        assert_eq!(a, spread(&run, &TableName::gold("a"), 1));
    }
}
