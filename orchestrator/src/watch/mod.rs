//! Runs what new files touch, for as long as nobody says stop.
//!
//! One loop owns everything: it hears the watcher and the signals, asks the agenda what is due, and runs one run at a
//! time. A run that fails ends nothing: what may pass is tried again after a growing wait, the rest waits for the next
//! files.

mod agenda;
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bronze::SourcePlan;
use bronze::plan::Clean;
use bronze::watch::{Intervals, Watcher};
use chrono::{DateTime, TimeDelta, Utc};
use lake::report::{RunSummary, TaskOutcome, TaskStatus};
use lake::run::Meter;
use lake::spec::FileArrival;
use lake::{Error, Result, Retry, TableName};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::run::{Finished, Observer, Place, Request, run};
use crate::spec::Project;
use agenda::Agenda;
use story::Story;

/// Where `clean_source` is on, files that may go are looked for though nothing arrives: as often as the retention is
/// long, within these bounds.
const CLEANING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3_600));
/// How far away a moment is that never comes.
const NEVER: Duration = Duration::from_secs(86_400);

/// Where a watch tells what happens.
pub(crate) trait Listener {
    /// A line for a person.
    fn say(&mut self, line: &str);
    /// A run is over.
    fn ran(&mut self, summary: &RunSummary);
}

/// Watches the folders of the chosen sources and runs them, with what reads them, until `stop` says so.
///
/// # Errors
/// When the landing zone and the storage are the same folder.
pub(crate) async fn watch(
    project: &Project,
    mut place: Place,
    chosen: &BTreeSet<TableName>,
    intervals: Intervals,
    stop: UnboundedReceiver<()>,
    listener: &mut dyn Listener,
) -> Result<()> {
    let sources: Vec<SourcePlan> = project
        .tasks
        .iter()
        .filter(|task| chosen.contains(&task.name))
        .filter_map(|task| task.job.source().cloned())
        .collect();
    if sources.is_empty() {
        return Err(Error::spec("no bronze source is among the chosen tasks: there is nothing to watch"));
    }
    let clock = place.lake.clock().clone();
    let (watcher, notices) =
        Watcher::new(&place.landing, place.lake.root(), sources.clone(), intervals, clock.clone())?;
    place.sightings = watcher.sightings();
    let story = Story { zone: project.header.timezone };
    let tasks: Vec<_> = project.tasks.iter().filter(|task| chosen.contains(&task.name)).collect();
    listener.say(&story.begins(clock.now(), &place.landing.to_string(), &tasks));
    let arrival = project.header.trigger.file_arrival;
    let mut watch = Watch {
        project,
        place,
        chosen,
        sources,
        arrival,
        watcher,
        agenda: Agenda::new(arrival.min_time_between_triggers.as_std()),
        story,
        listener,
        stop,
        ran_at: BTreeMap::new(),
        runs: 0,
        is_idle: false,
    };
    watch.tell(&notices);
    watch.until_stopped().await;
    let line = watch.story.ends(clock.now(), watch.runs);
    watch.listener.say(&line);
    Ok(())
}

struct Watch<'a> {
    project: &'a Project,
    place: Place,
    chosen: &'a BTreeSet<TableName>,
    sources: Vec<SourcePlan>,
    arrival: FileArrival,
    watcher: Watcher,
    agenda: Agenda,
    story: Story,
    listener: &'a mut dyn Listener,
    stop: UnboundedReceiver<()>,
    /// When each source was run last.
    ran_at: BTreeMap<TableName, DateTime<Utc>>,
    runs: u64,
    is_idle: bool,
}

impl Watch<'_> {
    async fn until_stopped(&mut self) {
        let all: BTreeSet<TableName> = self.sources.iter().map(|source| source.table.clone()).collect();
        // What landed while nobody watched.
        if self.run("what is there", all.clone(), self.chosen.clone()).await {
            return;
        }
        loop {
            self.schedule();
            self.say_idle();
            let now = self.now();
            let next = [self.agenda.next(), self.cleaning().map(|(at, _)| at)].into_iter().flatten().min();
            let rest = next.map_or(NEVER, |next| (next - now).to_std().unwrap_or_default());
            let clock = self.place.lake.clock().clone();
            tokio::select! {
                biased;
                Some(()) = self.stop.recv() => return,
                () = clock.sleep(rest) => {
                    if self.due().await {
                        return;
                    }
                }
                () = self.watcher.wait() => {
                    let notices = self.watcher.look().await;
                    self.tell(&notices);
                }
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
            let line = self.story.idle(self.now());
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
        let mut due = self.agenda.take(self.now());
        for table in &due {
            let notices = self.watcher.look_closely(table).await;
            self.tell(&notices);
        }
        let now = self.now();
        due.retain(|table| self.is_ready(table, now));
        let mut because = "files";
        if due.is_empty() {
            let Some((_, table)) = self.cleaning().filter(|(at, _)| *at <= now) else { return false };
            because = "files that may go";
            due.insert(table);
        }
        let with_dependents = self.project.graph.with_dependents(&due);
        let chosen = with_dependents.intersection(self.chosen).cloned().collect();
        self.run(because, due, chosen).await
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
    async fn run(&mut self, because: &str, sources: BTreeSet<TableName>, chosen: BTreeSet<TableName>) -> bool {
        let line = self.story.run_starts(self.now(), because, &sources);
        self.listener.say(&line);
        self.is_idle = false;
        self.runs += 1;
        let now = self.now();
        self.agenda.started(now);
        self.ran_at.extend(sources.into_iter().map(|source| (source, now)));
        let (tell, heard) = mpsc::unbounded_channel();
        let mut quiet = Quiet;
        let mut stopped = false;
        let request = Request { always_waits: true, ..Request::of(&chosen) };
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
