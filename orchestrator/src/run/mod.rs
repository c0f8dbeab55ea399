//! One run: the chosen tasks of a project from the first to the summary, with progress and records.

mod dispatcher;
mod executor;
mod policy;
mod progress;
mod recorder;
mod room;
mod run_if;
mod signals;
mod turn;
mod units;

#[cfg(test)]
mod date_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use bronze::watch::Sightings;
use chrono::{DateTime, NaiveDate, Utc};
use lake::events::Level;
use lake::report::{RunSummary, TaskOutcome, TaskStatus, record};
use lake::run::RunContext;
use lake::{Clock, Context, Lake, Result, Root, RunId, TableName};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::Instrument;

use crate::maintain::{after_run, now_and_then};
use crate::spec::Project;
pub(crate) use dispatcher::Observer;
use dispatcher::dispatch;
use executor::Unit;
pub(crate) use recorder::TASK_STARTED;
use recorder::{Recorder, write_along};
use units::{room, units};

pub(crate) use policy::Policy;
pub(crate) use progress::{Silent, for_stderr};
pub(crate) use run_if::{Decision, Dependency, RunIf};
pub(crate) use signals::stops;
pub(crate) use turn::{Turn, repair_turn, turn, while_held};
pub(crate) use units::disabled_needs;

/// A run has waited for its turn. Details: `for`, whom it waited for one after the other, and `seconds`.
const RUN_WAITED: &str = "run_waited";

/// What a run works on.
pub(crate) struct Place {
    /// The tables.
    pub(crate) lake: Lake,
    /// The files.
    pub(crate) landing: Root,
    /// True when the files are elsewhere than the spec says.
    pub(crate) elsewhere: bool,
    /// What a watcher has seen of the files of the sources, when there is one.
    pub(crate) sightings: HashMap<TableName, Sightings>,
}

impl Place {
    /// Opens storage and landing of a project; `landing` is a folder to read instead, relative to the current one.
    ///
    /// # Errors
    /// [`lake::ErrorKind::Spec`] when one of them names no store that can be opened.
    pub(crate) fn open(project: &Project, landing: Option<&str>, clock: Clock) -> Result<Self> {
        let (elsewhere, sightings) = (landing.is_some(), HashMap::new());
        let landing = match landing {
            Some(folder) => Root::open_existing(folder, Path::new("."))
                .context(|| format!("opening the landing zone `{folder}`"))?,
            None => project.header.landing_root(&project.folder)?,
        };
        Ok(Self { lake: project.header.lake(&project.folder, clock)?, landing, elsewhere, sightings })
    }
}

/// What a run left.
pub(crate) struct Finished {
    /// What became of each task.
    pub(crate) summary: RunSummary,
    /// Whether its events are in the event log.
    pub(crate) recorded: Result<()>,
}

/// What a run is to do.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The tasks.
    pub(crate) chosen: &'a BTreeSet<TableName>,
    /// Those of them whose tables are made anew.
    pub(crate) anew: BTreeSet<TableName>,
    /// The day that snapshots record; `None` for the present one.
    pub(crate) date: Option<NaiveDate>,
    /// The run that is repaired; `None` for a new one.
    pub(crate) repairs: Option<Repaired>,
    /// True when it waits for its turn though `queue` is false.
    pub(crate) always_waits: bool,
    /// What started it, for the event log; null for a person.
    pub(crate) trigger: Value,
}

/// A run that is repaired.
#[derive(Debug)]
pub(crate) struct Repaired {
    /// The run.
    pub(crate) run: RunId,
    /// Its events in the event log.
    pub(crate) events: i64,
    /// The number of this attempt; the run itself was the first.
    pub(crate) attempt: u64,
}

impl<'a> Request<'a> {
    /// A new run of some tasks.
    pub(crate) fn of(chosen: &'a BTreeSet<TableName>) -> Self {
        let (anew, date, repairs) = (BTreeSet::new(), None, None);
        Self { chosen, anew, date, repairs, always_waits: false, trigger: Value::Null }
    }
}

/// Runs the chosen tasks of a project. A message on `stop` ends the starting of tasks.
pub(crate) async fn run(
    project: &Project,
    place: &Place,
    request: Request<'_>,
    stop: UnboundedReceiver<()>,
    progress: &mut dyn Observer,
) -> Finished {
    let context = match &request.repairs {
        None => RunContext::new(&place.lake),
        Some(repaired) => RunContext::repairing(&place.lake, repaired.run.clone(), repaired.events),
    };
    let span = context.span();
    carry_out(project, place, request, context, stop, progress).instrument(span).await
}

async fn carry_out(
    project: &Project,
    place: &Place,
    request: Request<'_>,
    context: RunContext,
    mut stop: UnboundedReceiver<()>,
    progress: &mut dyn Observer,
) -> Finished {
    let what = if request.repairs.is_some() { "repair" } else { "run" };
    let mut waited_for = Vec::new();
    let asked_at = place.lake.clock().now();
    let waits = |others: &str| {
        progress.waiting(others);
        waited_for.push(others.to_owned());
    };
    let header = lake::spec::Header { queue: project.header.queue || request.always_waits, ..project.header.clone() };
    let turn = turn(&header, &place.lake, &context.run, what, &mut stop, waits).await;
    let units = units(project, place, &request);
    let begun = Begun { project, place, context, started_at: place.lake.clock().now() };
    begun.record(&units, &request);
    if !waited_for.is_empty() {
        begun.record_wait(&waited_for, asked_at);
    }
    let events = begun.context.events.clone();
    let finished = match turn {
        Turn::Now(lease) => while_held(lease, begun.work(units, stop, progress)).await,
        Turn::Taken(others) => {
            let because = format!("{others} is at work, and `queue` is false");
            let outcomes = units.into_iter().map(|unit| TaskOutcome::skipped(unit.name, because.as_str())).collect();
            begun.refuse(outcomes).await
        }
        Turn::Stopped => {
            begun.context.stop.raise();
            begun.work(units, stop, progress).await
        }
    };
    // Whoever is told finds the run in the event log, and holds up no other run.
    let Finished { summary, recorded } = finished;
    let recorded = match crate::notify::tell(project, &summary, &events, place.lake.clock()).await {
        true => recorded.and(events.flush(&place.lake).await),
        false => recorded,
    };
    Finished { summary, recorded }
}

/// A run from the moment at which it is its turn.
struct Begun<'a> {
    project: &'a Project,
    place: &'a Place,
    context: RunContext,
    started_at: DateTime<Utc>,
}

impl Begun<'_> {
    /// Notes the begin.
    fn record(&self, units: &[Unit], request: &Request<'_>) {
        let names: Vec<String> = units.iter().map(|unit| unit.name.to_string()).collect();
        let anew: Vec<String> = request.anew.iter().map(ToString::to_string).collect();
        let attempt = record::Attempt {
            program: env!("CARGO_PKG_NAME"),
            name: &self.project.header.name,
            spec: &self.spec(),
            tasks: &names,
            number: request.repairs.as_ref().map_or(1, |repaired| repaired.attempt),
            anew: &anew,
            date: request.date,
            trigger: request.trigger.clone(),
        };
        record::attempt_started(&self.context.events, &attempt);
    }

    /// Notes for whom the run waited until it was its turn.
    fn record_wait(&self, others: &[String], asked_at: DateTime<Utc>) {
        let seconds = (self.started_at - asked_at).as_seconds_f64();
        let (message, details) =
            (format!("waited for {}", others.join(", ")), json!({"for": others, "seconds": seconds}));
        self.context.events.record(None, RUN_WAITED, Level::Info, message, details);
    }

    /// Runs all tasks, and writes what happens into the event log along the way.
    async fn work(self, units: Vec<Unit>, mut stop: UnboundedReceiver<()>, progress: &mut dyn Observer) -> Finished {
        let (events, lake) = (self.context.events.clone(), &self.place.lake);
        let (mut recorder, news) = Recorder::new(events.clone());
        let room = room(self.project);
        let work = async {
            let observers: &mut [&mut dyn Observer] = &mut [progress, &mut recorder];
            let outcomes = dispatch(units, room, &self.context, lake.clock(), &mut stop, observers).await;
            recorder.close();
            outcomes
        };
        let (outcomes, along) = tokio::join!(work, write_along(&events, lake, news));
        if let Err(error) = along {
            tracing::warn!(%error, "the begin of the run was not recorded; its end tries again");
        }
        let changed = outcomes.iter().filter(|outcome| outcome.status == TaskStatus::Succeeded);
        let changed: BTreeSet<TableName> = changed.map(|outcome| outcome.task.clone()).collect();
        self.hearing(&mut stop, after_run(self.project, lake, &changed, &self.context)).await;
        self.end(outcomes, Some(stop)).await
    }

    /// Upkeep, which a stop ends after the table that is looked after.
    async fn hearing<T>(&self, stop: &mut UnboundedReceiver<()>, upkeep: impl Future<Output = T>) -> T {
        let mut upkeep = std::pin::pin!(upkeep);
        loop {
            tokio::select! {
                biased;
                done = &mut upkeep => return done,
                Some(()) = stop.recv() => self.context.stop.raise(),
            }
        }
    }

    /// Ends a run of which nothing is done.
    async fn refuse(self, outcomes: Vec<TaskOutcome>) -> Finished {
        for outcome in &outcomes {
            record::task_ended(&self.context.events, outcome);
        }
        self.end(outcomes, None).await
    }

    /// Notes the end. Where it was the turn of the run, which then may be stopped still, it looks after all tables now and
    /// then.
    async fn end(self, tasks: Vec<TaskOutcome>, turn: Option<UnboundedReceiver<()>>) -> Finished {
        let elapsed = (self.place.lake.clock().now() - self.started_at).to_std().unwrap_or_default();
        let (run, spec, started_at) = (self.context.run.to_string(), self.spec(), self.started_at);
        let summary = RunSummary { run, spec, started_at, elapsed, tasks };
        record::run_ended(&self.context.events, &summary);
        let mut recorded = self.context.events.flush(&self.place.lake).await;
        if let Some(mut stop) = turn.filter(|_| recorded.is_ok())
            && self.hearing(&mut stop, now_and_then(self.project, &self.place.lake, &self.context)).await
        {
            recorded = self.context.events.flush(&self.place.lake).await;
        }
        Finished { summary, recorded }
    }

    fn spec(&self) -> String {
        self.project.file.display().to_string()
    }
}
