//! Runs what new files touch, and everything at the moments of a schedule, for as long as nobody says stop.
//!
//! One loop owns everything: it hears the watcher and the signals, asks the agenda and the schedule what is due, looks
//! whether the spec has changed, and runs one run at a time. A run that fails ends nothing: what may pass is tried again after a growing wait, the rest waits for the next
//! files.

mod agenda;
mod reload;
mod story;
#[cfg(test)]
mod tests;
mod ticks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bronze::SourcePlan;
use bronze::plan::Clean;
use bronze::watch::{Intervals, Watcher};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use lake::report::{RunSummary, TaskOutcome, TaskStatus};
use lake::run::Meter;
use lake::spec::FileArrival;
use lake::{Error, Result, Retry, TableName};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::run::{Finished, Observer, Place, Request, run};
use crate::spec::Project;
use crate::tools::history;
use agenda::Agenda;
use reload::SpecFile;
use story::Story;
use ticks::Ticks;

/// Where `clean_source` is on, files that may go are looked for though nothing arrives: as often as the retention is
/// long, within these bounds.
const CLEANING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3_600));
/// How far away a moment is that never comes.
const NEVER: Duration = Duration::from_secs(86_400);
/// How often the spec is looked at.
const SPEC_LOOKED_AT: Duration = Duration::from_secs(2);

/// Where a watch tells what happens.
pub(crate) trait Listener {
    /// A line for a person.
    fn say(&mut self, line: &str);
    /// A run is over.
    fn ran(&mut self, summary: &RunSummary);
}

/// How a watch came to its end.
pub(crate) enum Over {
    /// Somebody stopped it.
    Stopped,
    /// The spec has changed; this is the new one.
    Reloaded(Box<Project>),
}

/// Watches the folders of the chosen sources and runs them, with what reads them, until `stop` says so or the spec
/// changes.
///
/// # Errors
/// When the landing zone and the storage are the same folder.
pub(crate) async fn watch(
    project: &Project,
    mut place: Place,
    chosen: &BTreeSet<TableName>,
    intervals: Intervals,
    stop: &mut UnboundedReceiver<()>,
    listener: &mut dyn Listener,
) -> Result<Over> {
    let sources: Vec<SourcePlan> = project
        .tasks
        .iter()
        .filter(|task| chosen.contains(&task.name))
        .filter_map(|task| task.job.source().cloned())
        .collect();
    let header = &project.header;
    if sources.is_empty() && header.schedule.is_none() {
        return Err(Error::spec("no bronze source is among the chosen tasks: there is nothing to watch"));
    }
    let clock = place.lake.clock().clone();
    let (watcher, notices) = match header.starts_on_files && !sources.is_empty() {
        true => {
            let made = Watcher::new(&place.landing, place.lake.root(), sources.clone(), intervals, clock.clone())?;
            place.sightings = made.0.sightings();
            (Some(made.0), made.1)
        }
        false => (None, Vec::new()),
    };
    let story = Story { zone: header.timezone };
    let tasks: Vec<_> = project.tasks.iter().filter(|task| chosen.contains(&task.name)).collect();
    if watcher.is_some() {
        listener.say(&story.begins(clock.now(), &place.landing.to_string(), &tasks));
    }
    if let Some(schedule) = &header.schedule {
        listener.say(&story.scheduled(clock.now(), schedule));
    }
    let last = match &header.schedule {
        Some(_) => history::last_tick(&place.lake, &header.name).await?,
        None => None,
    };
    let arrival = header.trigger.file_arrival;
    let mut watch = Watch {
        project,
        chosen,
        sources,
        arrival,
        watcher,
        agenda: Agenda::new(arrival.min_time_between_triggers.as_std()),
        ticks: Ticks::new(header.schedule.clone(), last, clock.now()),
        spec: SpecFile::of(&project.file),
        spec_seen_at: clock.now(),
        place,
        story,
        listener,
        stop,
        ran_at: BTreeMap::new(),
        runs: 0,
        is_idle: false,
    };
    watch.tell(&notices);
    let over = watch.until_over().await;
    let line = match over {
        Over::Stopped => watch.story.ends(clock.now(), watch.runs),
        Over::Reloaded(_) => watch.story.reloaded(clock.now()),
    };
    watch.listener.say(&line);
    Ok(over)
}

struct Watch<'a> {
    project: &'a Project,
    place: Place,
    chosen: &'a BTreeSet<TableName>,
    sources: Vec<SourcePlan>,
    arrival: FileArrival,
    /// Nothing where files that arrive start no runs.
    watcher: Option<Watcher>,
    agenda: Agenda,
    ticks: Ticks,
    spec: SpecFile,
    spec_seen_at: DateTime<Utc>,
    story: Story,
    listener: &'a mut dyn Listener,
    stop: &'a mut UnboundedReceiver<()>,
    /// When each source was run last.
    ran_at: BTreeMap<TableName, DateTime<Utc>>,
    runs: u64,
    is_idle: bool,
}

impl Watch<'_> {
    async fn until_over(&mut self) -> Over {
        // What landed, and moments that passed, while nobody watched.
        let missed = self.ticks.take(self.now());
        if (self.watcher.is_some() || missed.is_some()) && self.run(Because::Start(missed)).await {
            return Over::Stopped;
        }
        loop {
            self.schedule();
            self.say_idle();
            let now = self.now();
            // Whatever comes more often than the beat must not keep it from coming.
            if now - self.spec_seen_at >= TimeDelta::from_std(SPEC_LOOKED_AT).unwrap_or(TimeDelta::MAX) {
                self.spec_seen_at = now;
                if let Some(project) = self.reload() {
                    return Over::Reloaded(Box::new(project));
                }
            }
            let next = [self.agenda.next(), self.cleaning().map(|(at, _)| at), self.ticks.next()];
            let rest = next.into_iter().flatten().min().map_or(NEVER, |next| (next - now).to_std().unwrap_or_default());
            let clock = self.place.lake.clock().clone();
            tokio::select! {
                biased;
                Some(()) = self.stop.recv() => return Over::Stopped,
                () = clock.sleep(rest) => {
                    if self.due().await {
                        return Over::Stopped;
                    }
                }
                () = clock.beat(SPEC_LOOKED_AT) => {}
                () = seen(self.watcher.as_ref()) => {
                    if let Some(watcher) = &mut self.watcher {
                        let notices = watcher.look().await;
                        self.tell(&notices);
                    }
                }
            }
        }
    }

    /// The spec as it is now, when it has changed and is right; what is wrong with it is told once.
    fn reload(&mut self) -> Option<Project> {
        match self.spec.changed()? {
            Ok(project) => Some(project),
            Err(failure) => {
                let line = self.story.not_reloaded(self.now(), &failure);
                self.listener.say(&line);
                None
            }
        }
    }

    fn now(&self) -> DateTime<Utc> {
        self.place.lake.clock().now()
    }

    fn tell(&mut self, notices: &[bronze::watch::Notice]) {
        let now = self.now();
        for notice in notices {
            let settle = |table: &TableName| {
                self.sources.iter().find(|source| source.table == *table).map_or(Duration::ZERO, |source| source.settle)
            };
            let line = self.story.notice(now, notice, settle);
            self.listener.say(&line);
            self.is_idle = false;
        }
    }

    fn say_idle(&mut self) {
        if self.agenda.next().is_none() && !self.is_idle {
            self.is_idle = true;
            let line = self.story.idle(self.now(), self.watcher.is_some(), self.ticks.next());
            self.listener.say(&line);
        }
    }

    /// Asks for runs of the sources that have fresh files, from the moment at which they are complete. What was complete
    /// when a source was run last and is fresh still, its run could not take: another would not either.
    fn schedule(&mut self) {
        for source in &self.sources {
            let Some(sightings) = self.place.sightings.get(&source.table) else { continue };
            let fresh = sightings.fresh(source.settle);
            let ran_at = self.ran_at.get(&source.table);
            let complete =
                fresh.iter().map(|(_, ready)| *ready).filter(|ready| ran_at.is_none_or(|at| ready > at)).min();
            let quiet = self
                .arrival
                .wait_after_last_change
                .zip(sightings.last_change())
                .map(|(wait, change)| change + TimeDelta::from_std(wait.as_std()).unwrap_or(TimeDelta::MAX));
            if let Some(complete) = complete {
                self.agenda.ask(&source.table, quiet.map_or(complete, |quiet| quiet.max(complete)));
            }
        }
    }

    /// Runs what is due, unless a closer look finds it changing still. True when the watch was stopped meanwhile.
    async fn due(&mut self) -> bool {
        let now = self.now();
        if let Some(tick) = self.ticks.take(now) {
            // It takes what is complete, whoever asked for it.
            self.agenda.take(now);
            return self.run(Because::Tick(tick)).await;
        }
        let mut due = self.agenda.take(now);
        for table in &due {
            if let Some(watcher) = &mut self.watcher {
                let notices = watcher.look_closely(table).await;
                self.tell(&notices);
            }
        }
        let now = self.now();
        due.retain(|table| self.is_ready(table, now));
        if !due.is_empty() {
            return self.run(Because::Files(due)).await;
        }
        match self.cleaning().filter(|(at, _)| *at <= now) {
            Some((_, table)) => self.run(Because::Cleaning(table)).await,
            None => false,
        }
    }

    /// The source whose files are next to be looked at because some may be cleared away, and when.
    fn cleaning(&self) -> Option<(DateTime<Utc>, TableName)> {
        let next = self.sources.iter().filter_map(|source| {
            let retention = match &source.clean {
                Clean::Off => return None,
                Clean::Delete { retention } | Clean::Move { retention, .. } => *retention,
            };
            let every = TimeDelta::from_std(retention.clamp(CLEANING.0, CLEANING.1)).unwrap_or(TimeDelta::MAX);
            Some((*self.ran_at.get(&source.table)? + every, source.table.clone()))
        });
        next.min().map(|(at, table)| (self.agenda.free(at), table))
    }

    /// False for a source whose fresh files all changed again just now; it is asked for once more.
    fn is_ready(&self, table: &TableName, now: DateTime<Utc>) -> bool {
        let Some(source) = self.sources.iter().find(|source| source.table == *table) else { return true };
        let fresh = self.place.sightings.get(table).map(|sightings| sightings.fresh(source.settle)).unwrap_or_default();
        fresh.is_empty() || fresh.iter().any(|(_, ready)| *ready <= now)
    }

    /// One run. True when the watch was stopped meanwhile.
    async fn run(&mut self, because: Because) -> bool {
        let line = self.story.run_starts(self.now(), &because);
        self.listener.say(&line);
        self.is_idle = false;
        self.runs += 1;
        let now = self.now();
        self.agenda.started(now);
        let (sources, chosen) = self.work_of(&because);
        self.ran_at.extend(sources.into_iter().map(|source| (source, now)));
        let (tell, heard) = mpsc::unbounded_channel();
        let mut quiet = Quiet;
        let mut stopped = false;
        let request = Request { always_waits: true, trigger: because.to_json(), ..Request::of(&chosen) };
        let Finished { summary, recorded } = {
            let mut running = std::pin::pin!(run(self.project, &self.place, request, heard, &mut quiet));
            loop {
                tokio::select! {
                    biased;
                    finished = &mut running => break finished,
                    Some(()) = self.stop.recv() => {
                        stopped = true;
                        // The run listens until its end.
                        let _ = tell.send(());
                    }
                }
            }
        };
        let now = self.now();
        let line = self.story.run_ends(now, &summary, stopped);
        self.listener.say(&line);
        self.listener.ran(&summary);
        if let Err(error) = recorded {
            let line = self.story.not_recorded(now, &error);
            self.listener.say(&line);
        }
        if !stopped {
            self.follow_up(&summary, now);
        }
        stopped
    }

    /// The sources that a run looks at, and its tasks.
    fn work_of(&self, because: &Because) -> (BTreeSet<TableName>, BTreeSet<TableName>) {
        let sources = match because {
            Because::Start(_) | Because::Tick(_) => {
                let all = self.sources.iter().map(|source| source.table.clone()).collect();
                return (all, self.chosen.clone());
            }
            Because::Files(sources) => sources.clone(),
            Because::Cleaning(source) => [source.clone()].into(),
        };
        let with_dependents = self.project.graph.with_dependents(&sources);
        let chosen = with_dependents.intersection(self.chosen).cloned().collect();
        (sources, chosen)
    }

    /// Tries again later what may pass; the rest waits for the next files.
    fn follow_up(&mut self, summary: &RunSummary, now: DateTime<Utc>) {
        let may_pass = |task: &&TaskOutcome| {
            task.status == TaskStatus::Failed && task.error.as_ref().is_some_and(|error| error.retry() != Retry::Never)
        };
        let failed: BTreeSet<TableName> = summary.tasks.iter().filter(may_pass).map(|task| task.task.clone()).collect();
        if failed.is_empty() {
            self.agenda.succeeded();
            return;
        }
        let wait = self.agenda.failed(&failed, now);
        let line = self.story.again_in(now, wait);
        self.listener.say(&line);
    }
}

/// What starts a run.
enum Because {
    /// The watch begins; a moment of the schedule was missed, or none.
    Start(Option<DateTime<Utc>>),
    /// A moment of the schedule.
    Tick(DateTime<Utc>),
    /// These sources have files.
    Files(BTreeSet<TableName>),
    /// Files of this source may go.
    Cleaning(TableName),
}

impl Because {
    /// For the event log.
    fn to_json(&self) -> Value {
        let moment = |at: &DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        match self {
            Self::Start(missed) => json!({"kind": "start", "tick": missed.as_ref().map(moment)}),
            Self::Tick(tick) => json!({"kind": "schedule", "tick": moment(tick)}),
            Self::Files(sources) => {
                json!({"kind": "file_arrival", "sources": sources.iter().map(ToString::to_string).collect::<Vec<_>>()})
            }
            Self::Cleaning(source) => json!({"kind": "clean_source", "sources": [source.to_string()]}),
        }
    }
}

/// Waits for events of files; for ever where nobody looks for them.
async fn seen(watcher: Option<&Watcher>) {
    match watcher {
        Some(watcher) => watcher.wait().await,
        None => std::future::pending().await,
    }
}

/// A watch tells of a run by its end; of a failed attempt in the log.
struct Quiet;

impl Observer for Quiet {
    fn started(&mut self, _: &TableName, _: &Meter) {}

    fn retrying(&mut self, task: &TableName, attempt: u32, wait: Duration, error: &Error) {
        tracing::warn!(%task, attempt, wait_ms = wait.as_millis(), %error, "an attempt failed");
    }

    fn ended(&mut self, _: &TaskOutcome) {}

    fn stopping(&mut self, running: usize) {
        tracing::info!(running, "the run was asked to stop");
    }
}
