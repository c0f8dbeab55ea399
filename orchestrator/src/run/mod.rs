//! One run: the chosen tasks of a project from the first to the summary, with progress and records.

mod dispatcher;
mod executor;
mod policy;
mod progress;
mod recorder;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use bronze::Told;
use bronze::watch::Sightings;
use chrono_tz::Tz;
use futures::FutureExt;
use lake::report::{RunSummary, record};
use lake::run::RunContext;
use lake::{Clock, Context, Lake, Result, Root, TableName};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::spec::{Job, Project, Task};
pub(crate) use dispatcher::Observer;
use dispatcher::dispatch;
use executor::{Unit, Work};
use recorder::Recorder;

pub(crate) use policy::Policy;
pub(crate) use progress::for_stderr;

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

/// Runs the chosen tasks of a project. A message on `stop` ends the starting of tasks.
pub(crate) async fn run(
    project: &Project,
    place: &Place,
    chosen: &BTreeSet<TableName>,
    stop: UnboundedReceiver<()>,
    progress: &mut dyn Observer,
) -> Finished {
    let clock = place.lake.clock();
    let context = RunContext::new(&place.lake);
    let started_at = clock.now();
    let units = units(project, place, chosen);
    let names: Vec<String> = units.iter().map(|unit| unit.name.to_string()).collect();
    let spec = project.file.display().to_string();
    let (mut recorder, changed) = Recorder::new(context.events.clone());
    record::run_started(&context.events, env!("CARGO_PKG_NAME"), &project.header.name, &spec, &names);

    // A run that is killed after it changed something has left its begin in the event log.
    let early = async {
        match changed.await {
            Ok(()) => context.events.flush(&place.lake).await,
            Err(_) => Ok(()),
        }
    };
    let work = async {
        let observers: &mut [&mut dyn Observer] = &mut [progress, &mut recorder];
        let outcomes = dispatch(units, side_by_side(project), &context, clock, stop, observers).await;
        recorder.close();
        outcomes
    };
    let (outcomes, early) = tokio::join!(work, early);
    if let Err(error) = early {
        tracing::warn!(%error, "the begin of the run was not recorded; its end tries again");
    }
    let elapsed = (clock.now() - started_at).to_std().unwrap_or_default();
    let summary = RunSummary { run: context.run.to_string(), spec, started_at, elapsed, tasks: outcomes };
    record::run_ended(&context.events, &summary);
    let recorded = context.events.flush(&place.lake).await;
    Finished { summary, recorded }
}

/// The chosen tasks in an order that can be run, each with those of them that it needs.
fn units(project: &Project, place: &Place, chosen: &BTreeSet<TableName>) -> Vec<Unit> {
    let tasks = project.graph.order().filter(|name| chosen.contains(*name)).filter_map(|name| project.task(name));
    tasks
        .map(|task| Unit {
            name: task.name.clone(),
            needs: project.graph.needs_within(&task.name, chosen).into_iter().collect(),
            policy: task.policy,
            work: work(task, place, project.header.timezone),
        })
        .collect()
}

fn work(task: &Task, place: &Place, zone: Tz) -> Work {
    let lake = place.lake.clone();
    match &task.job {
        Job::Bronze(plan) => {
            let (plan, landing) = (Arc::new(plan.as_ref().clone()), place.landing.clone());
            let (elsewhere, sightings) = (place.elsewhere, place.sightings.get(&plan.table).cloned());
            Arc::new(move |context| {
                let (plan, lake, landing) = (Arc::clone(&plan), lake.clone(), landing.clone());
                let sightings = sightings.clone();
                async move {
                    let told = Told { sightings: sightings.as_ref(), elsewhere };
                    bronze::run(&lake, &landing, &plan, told, &context).await
                }
                .boxed_local()
            })
        }
        Job::Silver(plan) => {
            let plan = Arc::new(plan.as_ref().clone());
            Arc::new(move |context| {
                let (plan, lake) = (Arc::clone(&plan), lake.clone());
                async move { silver::run(&lake, &plan, &context).await }.boxed_local()
            })
        }
        Job::Gold(plan) => {
            let plan = Arc::new(plan.as_ref().clone());
            Arc::new(move |context| {
                let (plan, lake) = (Arc::clone(&plan), lake.clone());
                async move { gold::run(&lake, &plan, &context, zone).await }.boxed_local()
            })
        }
    }
}

/// How many tasks run at the same time.
fn side_by_side(project: &Project) -> usize {
    let threads = project.header.engine.threads.map(usize::from);
    threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A message for the first signal to stop; the second one ends the process.
pub(crate) fn stops() -> UnboundedReceiver<()> {
    let (tell, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        signal().await;
        // Without a listener the run is over.
        let _ = tell.send(());
        signal().await;
        std::process::exit(i32::from(lake::report::EXIT_FAILED));
    });
    heard
}

/// Waits for Ctrl-C, or for the signal by which a supervisor ends a process.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
