//! The event log: one row per event of every run, in the Delta table `_state/event_log`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};

use crate::clock::Clock;
use crate::columns;
use crate::commit::{Commit, Outcome, Txn, evolve, redoing};
use crate::error::Result;
use crate::lakehouse::Lake;
use crate::names::{RunId, TableName};
use crate::optimize::{Figures, Optimize};
use crate::rounds::{Each, Round};
use crate::secrets;
use crate::table::Definition;
use crate::write::TableWriter;

/// Versions of the event log between two times that its files are joined.
const PACK_EVERY: u64 = 32;
/// The application of a run's events begins so.
pub(crate) const APP: &str = "run:";
/// For so long a run may try again to write events: the log forgets then which it has, or it would know of every run there
/// ever was.
const KNOWN_FOR: (&str, &str) = ("delta.setTransactionRetentionDuration", "interval 7 days");

/// How grave an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The course of things.
    Info,
    /// Something a person should look at when there is time.
    Warning,
    /// Something failed.
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One event. `details` is an object whose keys depend on `kind`.
#[derive(Debug, Clone)]
struct Event {
    at_us: i64,
    task: Option<String>,
    kind: &'static str,
    level: Level,
    message: String,
    details: serde_json::Value,
}

impl Event {
    /// Tells it in the log as well.
    fn log(&self, run: &RunId) {
        let Self { task, kind, message, details, .. } = self;
        let (run_id, task) = (run.as_str(), task.as_deref());
        match self.level {
            Level::Info => tracing::info!(run_id, task, kind, %details, "{message}"),
            Level::Warning => tracing::warn!(run_id, task, kind, %details, "{message}"),
            Level::Error => tracing::error!(run_id, task, kind, %details, "{message}"),
        }
    }
}

/// Collects the events of one run and writes them when told. Clones share the collection.
#[derive(Debug, Clone)]
pub struct Events(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: RunId,
    /// The application of its commits.
    app: String,
    clock: Clock,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Event>,
    /// Events written so far; the number of the next event and the version of the next transaction follow from it.
    written: i64,
}

impl Events {
    /// An empty collection for `run`.
    pub fn new(run: RunId, clock: Clock) -> Self {
        let app = format!("{APP}{run}");
        Self(Arc::new(Inner { run, app, clock, waiting: Mutex::default() }))
    }

    /// An empty collection for more of a run of which `written` events are in the log: another attempt, by `app`.
    pub fn resume(run: RunId, app: &str, written: i64, clock: Clock) -> Self {
        let app = format!("{APP}{run}:{app}");
        Self(Arc::new(Inner { run, app, clock, waiting: Mutex::new(Waiting { written, ..Waiting::default() }) }))
    }

    /// Notes an event of the run, or of one of its tasks.
    pub fn record(
        &self,
        task: Option<&str>,
        kind: &'static str,
        level: Level,
        message: impl Into<String>,
        details: serde_json::Value,
    ) {
        let mut details = details;
        secrets::redact_json(&mut details);
        let event = Event {
            at_us: self.0.clock.now_micros(),
            task: task.map(str::to_owned),
            kind,
            level,
            message: secrets::redacted(&message.into()).into_owned(),
            details,
        };
        event.log(&self.0.run);
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).events.push(event);
    }

    /// Appends what was noted since the last call, in one commit.
    ///
    /// # Errors
    /// As [`Table::commit`](crate::Table::commit); the events stay noted and the next call tries them again.
    pub async fn flush(&self, lake: &Lake) -> Result<()> {
        let (events, written) = {
            let waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            (waiting.events.clone(), waiting.written)
        };
        // A table that is opened by its path has nothing beside it.
        if events.is_empty() || lake.alone().is_some() {
            return Ok(());
        }
        let last = written + i64::try_from(events.len()).unwrap_or(i64::MAX);
        redoing(lake.clock(), async || self.append(lake, &events, written, last).await).await?;
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.events.drain(..events.len());
        waiting.written = last;
        Ok(())
    }

    /// Joins the small files of the event log now and then: each run adds one, and what opening it costs follows them.
    ///
    /// # Errors
    /// As [`Optimize::run`].
    pub async fn pack(&self, lake: &Lake) -> Result<()> {
        if lake.alone().is_some() {
            return Ok(());
        }
        let Some(round) = Round::due(lake, "events", Each::Versions(PACK_EVERY)).await? else { return Ok(()) };
        let asked = Optimize { tiered: true, ..Optimize::default() };
        redoing(lake.clock(), async || match lake.table(&TableName::event_log()).await? {
            Some(mut table) => asked.run(lake, &mut table, &self.0.run).await.map(|_: Figures| ()),
            None => Ok(()),
        })
        .await?;
        round.done(lake, &self.0.run).await
    }

    async fn append(&self, lake: &Lake, events: &[Event], first: i64, last: i64) -> Result<()> {
        let properties = vec![(KNOWN_FOR.0.to_owned(), KNOWN_FOR.1.to_owned())];
        let definition = Definition { properties, ..Definition::new(schema()) };
        let mut table = lake.create_or_open(&TableName::event_log(), &definition).await?;
        let metadata = evolve(&table, &table.schema(), &definition.properties)?;
        let mut writer = TableWriter::new(&table);
        writer.write(&batch(&self.0.run, events, first)?).await?;
        let written = writer.close().await?;
        let commit = Commit {
            point: "events_committed",
            txns: vec![Txn::new(self.0.app.as_str(), last)],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: metadata.into_iter().chain(written.files.into_iter().map(Action::Add)).collect(),
            blind_append: true,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: self.0.run.clone(),
        };
        table.commit(commit).await.map(|_: Outcome| ())
    }
}

/// The columns of the event log.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("run_id", DataType::Utf8, false),
        Field::new("event_number", DataType::Int64, false),
        Field::new("at", columns::timestamp_type(), false),
        Field::new("task", DataType::Utf8, true),
        Field::new("kind", DataType::Utf8, false),
        Field::new("level", DataType::Utf8, false),
        Field::new("message", DataType::Utf8, false),
        Field::new("details", DataType::Utf8, false),
    ]))
}

fn batch(run: &RunId, events: &[Event], first: i64) -> Result<RecordBatch> {
    let text = |of: &dyn Fn(&Event) -> Option<String>| -> ArrayRef {
        Arc::new(events.iter().map(of).collect::<StringArray>())
    };
    let numbers = (first + 1..).take(events.len()).collect::<Vec<_>>();
    let times =
        TimestampMicrosecondArray::from_iter_values(events.iter().map(|event| event.at_us)).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![
        text(&|_| Some(run.to_string())),
        Arc::new(Int64Array::from(numbers)),
        Arc::new(times),
        text(&|event| event.task.clone()),
        text(&|event| Some(event.kind.to_owned())),
        text(&|event| Some(event.level.as_str().to_owned())),
        text(&|event| Some(event.message.clone())),
        text(&|event| Some(event.details.to_string())),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}
