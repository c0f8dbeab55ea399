//! The signals by which a person or a supervisor ends a run.

use tokio::sync::mpsc::{self, UnboundedReceiver};

/// A message for the first signal to stop; the second one ends the process.
pub(crate) fn stops() -> UnboundedReceiver<()> {
    let (tell, heard) = mpsc::unbounded_channel();
    // Both are listened for from now on, so that none is lost between the first and the second.
    let mut signals = Signals::listen();
    tokio::spawn(async move {
        signals.next().await;
        // Without a listener the run is over.
        let _ = tell.send(());
        signals.next().await;
        std::process::exit(i32::from(lake::report::EXIT_FAILED));
    });
    heard
}

/// Ctrl-C, and the signal by which a supervisor ends a process.
#[cfg(unix)]
struct Signals(Vec<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self(
            [SignalKind::interrupt(), SignalKind::terminate()]
                .into_iter()
                .filter_map(|kind| signal(kind).ok())
                .collect(),
        )
    }

    async fn next(&mut self) {
        let next: Vec<_> = self.0.iter_mut().map(|signal| Box::pin(signal.recv())).collect();
        if next.is_empty() {
            std::future::pending::<()>().await;
        }
        futures::future::select_all(next).await;
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
