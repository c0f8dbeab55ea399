//! What systemd is told by its protocol: datagrams of `KEY=value` lines to the socket that it names, as
//! <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html> describes.

use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// A supervisor that wants to be told.
#[derive(Debug)]
pub(super) struct Supervisor {
    socket: String,
    /// It ends who has not been heard of for so long.
    watchdog: Option<Duration>,
    heard_at: Mutex<Option<DateTime<Utc>>>,
}

impl Supervisor {
    /// The one that the environment names, if it does.
    pub(super) fn from_env() -> Option<Self> {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let is_ours = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = text("WATCHDOG_USEC").filter(|_| is_ours).and_then(|micros| micros.parse().ok());
        Some(Self::new(text("NOTIFY_SOCKET")?, watchdog.map(Duration::from_micros)))
    }

    /// One that listens at a path, or at a name in the abstract space (`@name`).
    pub(super) fn new(socket: String, watchdog: Option<Duration>) -> Self {
        Self { socket, watchdog, heard_at: Mutex::default() }
    }

    /// How long it waits for a sign of life.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Gives a sign of life, when it is waited for and the last one is a while ago.
    pub(super) fn beat(&self, now: DateTime<Utc>) {
        let Some(watchdog) = self.watchdog else { return };
        let apart = TimeDelta::from_std(watchdog / 4).unwrap_or(TimeDelta::MAX);
        let mut heard_at = self.heard_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if heard_at.is_none_or(|at| now - at >= apart || now < at) {
            *heard_at = Some(now);
            self.tell("WATCHDOG=1");
        }
    }

    /// Tells it something. Who does not listen is no harm.
    pub(super) fn tell(&self, message: &str) {
        if let Err(error) = send(&self.socket, message.as_bytes()) {
            tracing::debug!(%error, "the supervisor was not told");
        }
    }
}

#[cfg(target_os = "linux")]
fn send(socket: &str, message: &[u8]) -> std::io::Result<usize> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address)
}

#[cfg(not(target_os = "linux"))]
fn send(_: &str, _: &[u8]) -> std::io::Result<usize> {
    Ok(0)
}
