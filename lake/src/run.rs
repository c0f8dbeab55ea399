//! What a task of a run is told: the run, its events, the versions that the run has settled on, a meter, a stop sign.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Span;

use crate::error::{Error, ErrorKind, Result};
use crate::events::Events;
use crate::lakehouse::Lake;
use crate::names::{RunId, TableName};
use crate::report::TaskReport;
use crate::table::Table;

/// Shared by the tasks of one run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// The run.
    pub run: RunId,
    /// Its events.
    pub events: Events,
    /// The versions that the run has settled on.
    pub pins: Pins,
    /// How far the task has come.
    pub meter: Meter,
    /// Whether the task should stop at the next safe place.
    pub stop: Stop,
    /// What an earlier attempt of the task did before it failed.
    pub earlier: Earlier,
}

impl RunContext {
    /// A context for a new run.
    pub fn new(lake: &Lake) -> Self {
        let run = RunId::new(lake.clock());
        Self {
            events: Events::new(run.clone(), lake.clock().clone()),
            run,
            pins: Pins::default(),
            meter: Meter::default(),
            stop: Stop::default(),
            earlier: Earlier::default(),
        }
    }

    /// A context for another attempt of a run of which `written` events are in the event log.
    pub fn repairing(lake: &Lake, run: RunId, written: i64) -> Self {
        let attempt = RunId::new(lake.clock());
        let events = Events::resume(run.clone(), attempt.as_str(), written, lake.clock().clone());
        Self { run, events, ..Self::new(lake) }
    }

    /// What goes on in it is logged with the id of the run.
    pub fn span(&self) -> Span {
        // At the highest level, so that it is there whatever is logged.
        tracing::error_span!("run", run_id = %self.run)
    }

    /// The same run with a meter of its own for one task, of which no attempt was made yet.
    #[must_use]
    pub fn for_task(&self) -> Self {
        Self { meter: Meter::default(), earlier: Earlier::default(), ..self.clone() }
    }
}

/// What goes on in it is logged with the name of the task, inside the span of its run.
pub fn task_span(task: &TableName) -> Span {
    tracing::error_span!("task", %task)
}

/// The versions of the tables that one run reads and writes: one consistent cut. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Pins(Arc<Mutex<HashMap<TableName, u64>>>);

impl Pins {
    /// Settles a table on a version, after the task that writes it.
    pub fn set(&self, table: &TableName, version: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(table.clone(), version);
    }

    /// The version that the run has settled on.
    pub fn get(&self, table: &TableName) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(table).copied()
    }

    /// Opens a table at the version of the run; the first to ask settles it on the newest. `None` when it does not
    /// exist.
    ///
    /// # Errors
    /// As [`Lake::table`].
    pub async fn open(&self, lake: &Lake, name: &TableName) -> Result<Option<Table>> {
        let Some(table) = lake.table(name).await? else { return Ok(None) };
        let pinned = {
            let mut pins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *pins.entry(name.clone()).or_insert_with(|| table.version())
        };
        if pinned == table.version() { Ok(Some(table)) } else { lake.table_at(name, pinned).await.map(Some) }
    }
}

/// What a task that failed had done by then, kept for its next attempt: the report covers the run. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Earlier(Arc<Mutex<Option<TaskReport>>>);

impl Earlier {
    /// Keeps what was done.
    pub fn put(&self, report: TaskReport) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    /// Takes what was done, once.
    pub fn take(&self) -> Option<TaskReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Rows and bytes that a task has handled so far. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    /// Counts rows.
    pub fn add_rows(&self, rows: u64) {
        self.0.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Counts bytes.
    pub fn add_bytes(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.0.rows.load(Ordering::Relaxed)
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

/// What work fails with that was stopped.
const STOPPED: &str = "the run was asked to stop";

/// A sign to stop at the next safe place. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Raises the sign.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// True once it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Ends the work where the caller stands, when the sign is up.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the sign is up: the work may be done later.
    pub fn check(&self) -> Result<()> {
        if self.is_raised() { Err(Error::new(ErrorKind::Store, STOPPED)) } else { Ok(()) }
    }

    /// True when work ended with such an error because the sign was up.
    pub fn has_ended(&self, error: &Error) -> bool {
        self.is_raised() && (error.to_string() == STOPPED || error.causes().iter().any(|cause| cause == STOPPED))
    }
}
