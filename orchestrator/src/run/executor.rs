//! Owns one task from its first attempt to its end, and tells the dispatcher what happens.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::LocalBoxFuture;
use lake::report::{TaskOutcome, TaskReport};
use lake::run::{Meter, RunContext, Stop};
use lake::{Clock, Error, ErrorKind, Result, TableName};
use tokio::sync::mpsc::UnboundedSender;

use super::policy::{Policy, spread};
use super::room::Share;
use super::run_if::RunIf;

/// Why a task is not done that was stopped.
pub(super) const STOPPED: &str = "the run was stopped";
/// How long a wait goes on after the run was stopped, at most.
const SLICE: Duration = Duration::from_millis(250);

/// What a task does in one attempt. Its future stays on the thread of the task.
pub(crate) type Work = Arc<dyn Fn(RunContext) -> LocalBoxFuture<'static, Result<TaskReport>> + Send + Sync>;

/// A task of a run.
#[derive(Clone)]
pub(crate) struct Unit {
    /// The table it writes.
    pub(crate) name: TableName,
    /// The tasks of the run that must have ended before it.
    pub(crate) needs: Vec<TableName>,
    /// How many of those that it depends on the spec says not to run.
    pub(crate) disabled_needs: usize,
    /// Which ends of theirs it asks for.
    pub(crate) run_if: RunIf,
    /// What it takes of the machine.
    pub(crate) share: Share,
    /// How it is retried.
    pub(crate) policy: Policy,
    /// What it does.
    pub(crate) work: Work,
    /// Counts the bytes that it commits.
    pub(crate) written: Meter,
}

/// What an executor tells.
pub(crate) enum Message {
    /// An attempt failed and another follows after `wait`.
    Retrying { task: TableName, attempt: u32, wait: Duration, error: Error },
    /// The task is over.
    Ended { outcome: Box<TaskOutcome> },
}

/// Runs a task to its end and sends it as the last message.
pub(crate) async fn execute(unit: Unit, context: RunContext, clock: Clock, tell: UnboundedSender<Message>) {
    let started = clock.now();
    let mut attempt = 1;
    let outcome = loop {
        let error = match attempt_once(&unit, &context, &clock).await {
            Ok(report) => {
                if let Some(version) = report.version {
                    context.pins.set(&report.table, version);
                }
                break TaskOutcome::done(report, attempt, since(&clock, started));
            }
            Err(error) => error,
        };
        let spread = spread(&context.run, &unit.name, attempt);
        let wait = match error {
            Failed::TimedOut(_) => unit.policy.wait_after_timeout(attempt, spread),
            Failed::Error(ref error) => unit.policy.wait_after(attempt, error, spread),
        };
        let error = error.into_error();
        // What the attempts did before they failed stands, and is reported.
        let failed = |error: Error| {
            let outcome = match context.stop.has_ended(&error) {
                true => TaskOutcome::skipped(unit.name.clone(), STOPPED),
                false => TaskOutcome::failed(unit.name.clone(), error, attempt, Duration::ZERO),
            };
            let (report, elapsed) = (context.earlier.take(), since(&clock, started));
            TaskOutcome { report, attempts: attempt, elapsed, ..outcome }
        };
        match wait.filter(|_| !context.stop.is_raised()) {
            None => break failed(error),
            Some(wait) => {
                // The dispatcher listens until every task has ended.
                let _ = tell.send(Message::Retrying { task: unit.name.clone(), attempt, wait, error });
                if let Err(error) = rest(&clock, wait, &context.stop).await {
                    break failed(error);
                }
                attempt += 1;
            }
        }
    };
    let (bytes_read, bytes_written) = (context.meter.bytes(), unit.written.bytes());
    let _ = tell.send(Message::Ended { outcome: Box::new(TaskOutcome { bytes_read, bytes_written, ..outcome }) });
}

enum Failed {
    Error(Error),
    TimedOut(Duration),
}

impl Failed {
    fn into_error(self) -> Error {
        match self {
            Self::Error(error) => error,
            Self::TimedOut(limit) => {
                let limit = lake::spec::Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
                Error::new(ErrorKind::Store, format!("took longer than its timeout of {limit}"))
                    .hint("nothing half-done is visible; raise `timeout` or find out what is slow")
            }
        }
    }
}

async fn attempt_once(unit: &Unit, context: &RunContext, clock: &Clock) -> Result<TaskReport, Failed> {
    let work = (unit.work)(context.clone());
    let Some(limit) = unit.policy.timeout else { return work.await.map_err(Failed::Error) };
    tokio::select! {
        biased;
        done = work => done.map_err(Failed::Error),
        () = clock.sleep(limit) => Err(Failed::TimedOut(limit)),
    }
}

/// Waits before another attempt, unless the run is stopped meanwhile.
async fn rest(clock: &Clock, wait: Duration, stop: &Stop) -> Result<()> {
    let mut left = wait;
    while !left.is_zero() {
        stop.check()?;
        let slice = left.min(SLICE);
        clock.sleep(slice).await;
        left -= slice;
    }
    stop.check()
}

fn since(clock: &Clock, started: DateTime<Utc>) -> Duration {
    (clock.now() - started).to_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_wait_for_another_attempt() {
        let (clock, stop) = (Clock::manual(DateTime::UNIX_EPOCH), Stop::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(rest(&clock, Duration::from_secs(10), &stop)).expect("the whole wait");
        assert_eq!(clock.now_micros(), 10_000_000);
        stop.raise();
        runtime.block_on(rest(&clock, Duration::from_secs(10), &stop)).expect_err("a stop");
        assert_eq!(clock.now_micros(), 10_000_000);
    }
}
