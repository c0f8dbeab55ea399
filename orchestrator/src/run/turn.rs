//! Runs of several processes take turns on one storage, as `max_concurrent_runs` says.

use std::time::Duration;

use lake::lease::{Answer, Holder, Lease};
use lake::spec::Header;
use lake::{Lake, RunId};
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
    mut waits: impl FnMut(&str),
) -> Turn {
    let mut told = String::new();
    loop {
        let others = match Lease::ask(lake, header.max_concurrent_runs, run, what).await {
            Ok(Answer::Held(lease)) => return Turn::Now(Some(lease)),
            Ok(Answer::Busy(others)) => others.iter().map(Holder::to_string).collect::<Vec<_>>().join(" and "),
            Err(error) => {
                tracing::warn!(%error, "the run begins without its turn");
                return Turn::Now(None);
            }
        };
        if !header.queue {
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
