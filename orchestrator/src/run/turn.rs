//! Runs of several processes take turns on one storage, as `max_concurrent_runs` says.

use std::time::Duration;

use lake::lease::{Answer, Holder, Lease};
use lake::spec::Header;
use lake::{Lake, Result, RunId};
use tokio::sync::mpsc::UnboundedReceiver;

/// How often a run that waits asks again.
const AGAIN: Duration = Duration::from_millis(500);

/// The answer to a run that asks for its turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It may begin. Without a lease when there was none to get: tables are right all the same.
    Now(Option<Lease>),
    /// Others are at work, and it does not wait for them.
    Taken(String),
    /// It was stopped while it waited.
    Stopped,
}

/// Waits until a run may begin, and tells for whom it waits; with `queue: false` it does not wait.
pub(crate) async fn turn(
    header: &Header,
    lake: &Lake,
    run: &RunId,
    what: &str,
    stop: &mut UnboundedReceiver<()>,
    waits: impl FnMut(&str),
) -> Turn {
    wait(async || Lease::ask(lake, header.max_concurrent_runs, run, what).await, header.queue, lake, stop, waits).await
}

/// Waits until a run may be repaired: one repair at a time reads what a run has left, and goes on with its record.
pub(crate) async fn repair_turn(
    header: &Header,
    lake: &Lake,
    run: &RunId,
    stop: &mut UnboundedReceiver<()>,
    waits: impl FnMut(&str),
) -> Turn {
    wait(async || Lease::ask_to_repair(lake, run).await, header.queue, lake, stop, waits).await
}

async fn wait(
    ask: impl AsyncFn() -> Result<Answer>,
    queue: bool,
    lake: &Lake,
    stop: &mut UnboundedReceiver<()>,
    mut waits: impl FnMut(&str),
) -> Turn {
    let mut told = String::new();
    loop {
        let others = match ask().await {
            Ok(Answer::Held(lease)) => return Turn::Now(Some(lease)),
            Ok(Answer::Busy(others)) => others.iter().map(Holder::to_string).collect::<Vec<_>>().join(" and "),
            Err(error) => {
                tracing::warn!(%error, "the run begins without its turn");
                return Turn::Now(None);
            }
        };
        if !queue {
            return Turn::Taken(others);
        }
        if others != told {
            waits(&others);
            told = others;
        }
        tokio::select! {
            biased;
            Some(()) = stop.recv() => return Turn::Stopped,
            () = lake.clock().sleep(AGAIN) => {}
        }
    }
}

/// Does work while its lease is kept alive, and gives it back.
pub(crate) async fn while_held<T>(lease: Option<Lease>, work: impl Future<Output = T>) -> T {
    let Some(lease) = lease else { return work.await };
    let done = tokio::select! {
        biased;
        done = work => done,
        never = lease.beat() => match never {},
    };
    lease.release().await;
    done
}
