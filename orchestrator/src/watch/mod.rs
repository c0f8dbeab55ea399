//! Runs what new files touch, and everything when a schedule, a table or the time that passes asks for it, for as long as
//! nobody says stop.
//!
//! One loop owns everything: it hears the watcher and the signals, asks what is due, looks whether the spec has changed,
//! and runs one run at a time. A run that fails ends nothing: what may pass is tried again after a growing wait, the rest
//! waits for what starts the next.

mod agenda;
mod because;
#[cfg(test)]
mod long_tests;
mod pace;
mod prepared;
mod reload;
mod runs;
mod story;
mod tables;
#[cfg(test)]
mod tests;
mod ticks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bronze::SourcePlan;
use bronze::plan::Clean;
use bronze::watch::Watcher;
use chrono::{DateTime, TimeDelta, Utc};
use cli::Failure;
use lake::clock::within;
use lake::report::RunSummary;
use lake::spec::FileArrival;
use lake::{Error, ErrorKind, TableName};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_blocking;

use crate::health::Health;
use crate::run::Place;
use crate::spec::Project;
use agenda::{Agenda, delta};
use because::Because;
use pace::Pace;
pub(crate) use prepared::{Prepared, Wanted};
pub(crate) use reload::SpecFile;
use story::Story;
use tables::Tables;
use ticks::Ticks;

/// Where `clean_source` is on, files that may go are looked for though nothing arrives: as often as the retention is
/// long, within these bounds.
const CLEANING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3_600));
/// How far away a moment is that never comes.
const NEVER: Duration = Duration::from_secs(86_400);
/// How often the spec is looked at.
const SPEC_LOOKED_AT: Duration = Duration::from_secs(2);
/// How long a new spec may take to open what it names.
const PREPARED_WITHIN: Duration = Duration::from_secs(30);
/// The clock of a machine is set right by less than this all the time.
const CLOCK_STRAYS: TimeDelta = TimeDelta::seconds(2);

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
    Reloaded(Box<Prepared>),
}

/// What a watch has to do with outside of its project.
pub(crate) struct Outside<'a> {
    /// What is wanted of it, and of those after it.
    pub(crate) wanted: &'a Wanted,
    /// The spec as it was when the project was loaded.
    pub(crate) spec: &'a mut SpecFile,
    /// Who is asked whether the watch is well.
    pub(crate) health: &'a Health,
    /// A message ends the watch.
    pub(crate) stop: &'a mut UnboundedReceiver<()>,
    /// Where it tells what happens.
    pub(crate) listener: &'a mut dyn Listener,
}

/// Watches what starts runs of the chosen tasks and runs them, until `stop` says so, or the spec changes to another that can be
/// watched.
pub(crate) async fn watch(prepared: Prepared, outside: Outside<'_>) -> Over {
    let Outside { wanted, spec, health, stop, listener } = outside;
    let Prepared { project, place, chosen, sources, watcher, notices, last_tick } = prepared;
    let (header, trigger) = (&project.header, &project.header.trigger);
    let clock = place.lake.clock().clone();
    let story = Story { zone: header.timezone, has_times: !cli::logs_are_json() };
    let tasks: Vec<_> = project.tasks.iter().filter(|task| chosen.contains(&task.name)).collect();
    if watcher.is_some() {
        listener.say(&story.begins(clock.now(), &place.landing.to_string(), &tasks));
    }
    for line in story.starts(clock.now(), header) {
        listener.say(&line);
    }
    let arrival = trigger.file_arrival.unwrap_or_default();
    let tables = trigger.table_update.clone();
    let mut watch = Watch {
        project: &project,
        chosen: &chosen,
        sources,
        arrival,
        watcher,
        agenda: Agenda::new(arrival.min_time_between_triggers.as_std()),
        ticks: Ticks::new(header.schedule.clone(), last_tick, clock.now()),
        tables: tables.map(|update| Tables::new(update, project.folder.clone(), wanted.intervals.poll)),
        pace: Pace::new(trigger, clock.now()),
        owed: None,
        wanted,
        spec,
        refused: None,
        spec_seen_at: clock.now(),
        turned_at: clock.now(),
        health,
        place,
        story,
        listener,
        stop,
        ran_at: BTreeMap::new(),
        is_idle: false,
    };
    watch.tell(&notices);
    health.begins(&watch.place.lake, &project.file);
    let over = watch.until_over().await;
    let line = match over {
        Over::Stopped => watch.story.ends(clock.now(), health.run_count()),
        Over::Reloaded(_) => watch.story.reloaded(clock.now()),
    };
    watch.listener.say(&line);
    over
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
    tables: Option<Tables>,
    pace: Pace,
    /// The moment of the schedule whose run has failed in a way that may pass.
    owed: Option<DateTime<Utc>>,
    wanted: &'a Wanted,
    spec: &'a mut SpecFile,
    /// What was told last of a spec that cannot be used.
    refused: Option<String>,
    spec_seen_at: DateTime<Utc>,
    /// When the loop turned last.
    turned_at: DateTime<Utc>,
    health: &'a Health,
    story: Story,
    listener: &'a mut dyn Listener,
    stop: &'a mut UnboundedReceiver<()>,
    /// When each source was run last.
    ran_at: BTreeMap<TableName, DateTime<Utc>>,
    is_idle: bool,
}

impl Watch<'_> {
    async fn until_over(&mut self) -> Over {
        // What landed, and moments that passed, while nobody watched.
        let missed = self.ticks.take(self.now());
        if self.look_at_tables().await {
            return Over::Stopped;
        }
        let starts = self.watcher.is_some() || self.tables.is_some() || self.pace.is_asked_for();
        if (starts || missed.is_some()) && self.run(Because::Start(missed)).await {
            return Over::Stopped;
        }
        loop {
            self.health.turned();
            let now = self.now();
            if now + CLOCK_STRAYS < self.turned_at {
                self.clock_went_back(now);
            }
            self.turned_at = now;
            if self.look_at_tables().await {
                return Over::Stopped;
            }
            self.schedule();
            self.say_idle();
            // Whatever comes more often than the beat must not keep it from coming.
            if now - self.spec_seen_at >= delta(SPEC_LOOKED_AT) {
                self.spec_seen_at = now;
                if let Some(end) = self.reload().await {
                    return end;
                }
            }
            let (tables, cleaning) = (self.tables.as_ref().map(Tables::next), self.cleaning().map(|(at, _)| at));
            let next = [self.agenda.next(), cleaning, self.ticks.next(), tables, self.pace.next()];
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
                () = clock.beat(self.health.turns_within(SPEC_LOOKED_AT)) => {}
                () = seen(self.watcher.as_ref()) => {
                    if self.look(None).await {
                        return Over::Stopped;
                    }
                }
            }
        }
    }

    /// The end, when the spec has changed and what it says now can be watched, or the watch was stopped meanwhile; what is
    /// wrong with it is told once.
    async fn reload(&mut self) -> Option<Over> {
        let failure = match self.spec.changed(self.now())? {
            Ok(project) => {
                let Some(prepared) = self.prepared(project).await else { return Some(Over::Stopped) };
                match prepared {
                    Ok(prepared) => return Some(Over::Reloaded(Box::new(prepared))),
                    Err(failure) => failure,
                }
            }
            Err(failure) => failure,
        };
        let now = self.now();
        let is_tried_again = self.spec.not_watched(&failure, now);
        self.health.spec_is_refused();
        let why = story::why(&failure);
        let line = self.story.not_reloaded(now, &why, is_tried_again);
        let known = self.refused.replace(why);
        if !self.spec.is_old() || known != self.refused {
            self.listener.say(&line);
        }
        None
    }

    /// What a new spec names, opened; `None` when the watch was stopped meanwhile. A mount that hangs must not hold up the
    /// loop, so another thread waits for it.
    async fn prepared(&mut self, project: Project) -> Option<Result<Prepared, Failure>> {
        let (wanted, clock) = (self.wanted.clone(), self.place.lake.clock().clone());
        let turns_within = self.health.turns_within(SPEC_LOOKED_AT);
        let (runtime, its_clock) = (Handle::current(), clock.clone());
        let opened = spawn_blocking(move || runtime.block_on(Prepared::new(project, &wanted, its_clock)));
        let mut opened = std::pin::pin!(within(PREPARED_WITHIN, opened));
        loop {
            tokio::select! {
                biased;
                Some(()) = self.stop.recv() => return None,
                opened = &mut opened => return Some(match opened {
                    Some(Ok(prepared)) => prepared,
                    Some(Err(panic)) => Err(Error::internal("opening a spec ended early").with_source(panic).into()),
                    None => Err(Error::new(ErrorKind::Store, "what the spec names does not answer").into()),
                }),
                () = clock.beat(turns_within) => self.health.turned(),
            }
        }
    }

    /// The clock went back: moments that are kept may be far away by now.
    fn clock_went_back(&mut self, now: DateTime<Utc>) {
        let line = self.story.clock_went_back(now);
        self.listener.say(&line);
        self.agenda.clock_went_back(now);
        self.pace.clock_went_back(now);
        self.spec.clock_went_back(now);
        self.spec_seen_at = now;
        self.ran_at.values_mut().for_each(|at| *at = now.min(*at));
        if let Some(tables) = &mut self.tables {
            tables.clock_went_back(now);
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.clock_went_back(now);
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
        if self.agenda.next().is_none() && !self.is_idle && !self.pace.is_continuous() {
            self.is_idle = true;
            let next = [self.ticks.next(), self.pace.next()].into_iter().flatten().min();
            let line = self.story.idle(self.now(), self.watcher.is_some(), self.tables.is_some(), next);
            self.listener.say(&line);
        }
    }

    /// Looks whether tables that others write have new versions. True when the watch was stopped meanwhile.
    async fn look_at_tables(&mut self) -> bool {
        let Some(tables) = &mut self.tables else { return false };
        let Some(told) = unless_stopped(self.stop, tables.look(&self.place.lake)).await else { return true };
        for text in told {
            let line = self.story.trouble(self.now(), &text);
            self.listener.say(&line);
        }
        false
    }

    /// Looks at what came: at what is known to have changed, or closely at one source. True when the watch was stopped
    /// meanwhile, whatever the folders do: a mount may hang.
    async fn look(&mut self, closely: Option<&TableName>) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        let look = async {
            match closely {
                Some(table) => watcher.look_closely(table).await,
                None => watcher.look().await,
            }
        };
        let Some(notices) = unless_stopped(self.stop, look).await else { return true };
        self.tell(&notices);
        false
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
                .map(|(wait, change)| change + delta(wait.as_std()));
            if let Some(complete) = complete {
                self.agenda.ask(&source.table, quiet.map_or(complete, |quiet| quiet.max(complete)));
            }
        }
    }

    /// Runs what is due, unless a closer look finds it changing still. True when the watch was stopped meanwhile.
    async fn due(&mut self) -> bool {
        let now = self.now();
        if let Some(because) = self.whole(now) {
            // It takes what is complete, whoever asked for it.
            self.agenda.take(now);
            return self.run(because).await;
        }
        let again = self.agenda.again();
        let mut due = self.agenda.take(now);
        for table in &due {
            if self.look(Some(table)).await {
                return true;
            }
        }
        let now = self.now();
        due.retain(|table| self.is_ready(table, now));
        if !due.is_empty() {
            let because = match due.is_subset(&again) {
                true => Because::Again(due, self.owed),
                false => Because::Files(due),
            };
            return self.run(because).await;
        }
        match self.cleaning().filter(|(at, _)| *at <= now) {
            Some((_, table)) => self.run(Because::Cleaning(table)).await,
            None => false,
        }
    }

    /// What starts a run of everything now.
    fn whole(&mut self, now: DateTime<Utc>) -> Option<Because> {
        if let Some(tick) = self.ticks.take(now) {
            return Some(Because::Tick(tick));
        }
        let tables = self.tables.as_ref().and_then(|tables| tables.take(now));
        tables.map(Because::Tables).or_else(|| self.pace.take(now))
    }

    /// The source whose files are next to be looked at because some may be cleared away, and when.
    fn cleaning(&self) -> Option<(DateTime<Utc>, TableName)> {
        let next = self.sources.iter().filter_map(|source| {
            let retention = match &source.clean {
                Clean::Off => return None,
                Clean::Delete { retention } | Clean::Move { retention, .. } => *retention,
            };
            let every = delta(retention.clamp(CLEANING.0, CLEANING.1));
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
}

/// What comes of a look, unless the watch is stopped before.
async fn unless_stopped<T>(stop: &mut UnboundedReceiver<()>, look: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        Some(()) = stop.recv() => None,
        seen = look => Some(seen),
    }
}

/// Waits for events of files; for ever where nobody looks for them.
async fn seen(watcher: Option<&Watcher>) {
    match watcher {
        Some(watcher) => watcher.wait().await,
        None => std::future::pending().await,
    }
}
