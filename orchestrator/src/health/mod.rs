//! Whether a watch is well: what a supervisor is told, by HTTP and by the protocol of systemd.
//!
//! Alive means that its loop turns; ready, that it watches, its storage can be reached, and the last run did not fail.

mod ask;
mod http;
mod systemd;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use lake::clock::within;
use lake::report::{EXIT_DONE, RunSummary};
use lake::{Clock, Lake, secrets};
use serde_json::{Value, json};

pub(crate) use ask::ask;
pub(crate) use http::serve;
use systemd::Supervisor;

/// A loop that has not turned for so long does not turn any more. It turns every two seconds, during runs as well; a
/// folder with very many files may take a while to list.
const TURNS_WITHIN: TimeDelta = TimeDelta::seconds(120);
/// How long the storage may take to answer.
const STORAGE_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How a watch is. Clones share it.
#[derive(Clone)]
pub(crate) struct Health(Arc<Inner>);

struct Inner {
    clock: Clock,
    supervisor: Option<Supervisor>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    turned_at: DateTime<Utc>,
    /// The tables that are watched, once they are.
    lake: Option<Lake>,
    spec: PathBuf,
    /// The spec has changed and cannot be used.
    is_refused: bool,
    is_running: bool,
    last_run: Option<LastRun>,
    runs: u64,
    is_stopping: bool,
}

struct LastRun {
    run: String,
    status: &'static str,
    exit_code: u8,
    ended_at: DateTime<Utc>,
}

/// What is answered to who asks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) is_well: bool,
    pub(crate) body: Value,
}

impl Health {
    /// The health of a watch that is about to begin; a supervisor is told when the environment names one.
    pub(crate) fn new(clock: Clock) -> Self {
        Self::told_to(clock, Supervisor::from_env())
    }

    fn told_to(clock: Clock, supervisor: Option<Supervisor>) -> Self {
        let state = Mutex::new(State { turned_at: clock.now(), ..State::default() });
        Self(Arc::new(Inner { clock, supervisor, state }))
    }

    /// How often the loop must turn: `usual`, or more often when the supervisor asks for it.
    pub(crate) fn turns_within(&self, usual: Duration) -> Duration {
        let asked = self.0.supervisor.as_ref().and_then(Supervisor::watchdog);
        asked.map_or(usual, |asked| usual.min(asked / 3))
    }

    /// A watch over these tables begins.
    pub(crate) fn begins(&self, lake: &Lake, spec: &Path) {
        {
            let mut state = self.state();
            (state.lake, state.spec, state.is_refused) = (Some(lake.clone()), spec.to_owned(), false);
            state.turned_at = self.0.clock.now();
        }
        self.tell("READY=1\nSTATUS=watching");
    }

    /// The loop has turned.
    pub(crate) fn turned(&self) {
        let now = self.0.clock.now();
        self.state().turned_at = now;
        if let Some(supervisor) = &self.0.supervisor {
            supervisor.beat(now);
        }
    }

    /// A run begins, or is over.
    pub(crate) fn runs(&self, is_running: bool) {
        self.state().is_running = is_running;
        self.tell(if is_running { "STATUS=running" } else { "STATUS=watching" });
    }

    /// A run is over.
    pub(crate) fn ran(&self, summary: &RunSummary) {
        let (run, status, exit_code) = (summary.run.clone(), summary.status().as_str(), summary.exit_code());
        {
            let mut state = self.state();
            state.last_run = Some(LastRun { run, status, exit_code, ended_at: self.0.clock.now() });
            state.runs += 1;
        }
        self.runs(false);
    }

    /// How many runs are over, whatever specs they were of.
    pub(crate) fn run_count(&self) -> u64 {
        self.state().runs
    }

    /// The spec has changed and cannot be used.
    pub(crate) fn spec_is_refused(&self) {
        self.state().is_refused = true;
    }

    /// The watch comes to its end.
    pub(crate) fn stops(&self) {
        self.state().is_stopping = true;
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Whether the loop turns.
    pub(crate) fn alive(&self) -> Answer {
        let state = self.state();
        let is_well = self.0.clock.now() - state.turned_at <= TURNS_WITHIN;
        let body = json!({"alive": is_well, "turned_at": moment(state.turned_at)});
        Answer { is_well, body }
    }

    /// Whether it does what it is there for.
    pub(crate) async fn ready(&self) -> Answer {
        let lake = self.state().lake.clone();
        let storage = match &lake {
            Some(lake) => reached(lake).await,
            None => Err("nothing is watched yet".to_owned()),
        };
        let is_alive = self.alive().is_well;
        let state = self.state();
        let has_failed = state.last_run.as_ref().is_some_and(|run| run.exit_code != EXIT_DONE);
        let is_well = is_alive && storage.is_ok() && !has_failed && !state.is_stopping;
        let doing = match (state.is_stopping, state.is_running, &lake) {
            (true, _, _) => "stopping",
            (_, true, _) => "running",
            (_, _, Some(_)) => "watching",
            (_, _, None) => "starting",
        };
        let last_run = state.last_run.as_ref().map(|run| {
            json!({
                "run_id": run.run, "status": run.status, "exit_code": run.exit_code, "ended_at": moment(run.ended_at),
            })
        });
        let mut body = json!({
            "ready": is_well,
            "alive": is_alive,
            "state": doing,
            "spec": {"file": state.spec.display().to_string(), "status": if state.is_refused { "refused" } else { "loaded" }},
            "storage": match storage {
                Ok(()) => json!({"status": "reached"}),
                Err(error) => json!({"status": "not_reached", "error": error}),
            },
            "runs": state.runs,
            "last_run": last_run,
        });
        secrets::redact_json(&mut body);
        Answer { is_well, body }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, message: &str) {
        if let Some(supervisor) = &self.0.supervisor {
            supervisor.tell(message);
        }
    }
}

/// Whether the storage answers.
async fn reached(lake: &Lake) -> Result<(), String> {
    match within(STORAGE_ANSWERS_WITHIN, lake.root().reach()).await {
        Some(answer) => answer.map_err(|error| error.to_string()),
        None => Err("no answer".to_owned()),
    }
}

fn moment(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
