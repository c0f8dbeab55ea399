//! A project that can be watched: all that may be in the way of that has been tried.

use std::collections::BTreeSet;

use bronze::SourcePlan;
use bronze::watch::{Intervals, Notice, Watcher};
use chrono::{DateTime, Utc};
use cli::Failure;
use lake::{Clock, Error, TableName};

use super::pace::Pace;
use crate::run::Place;
use crate::spec::Project;
use crate::tools::history;

/// What is wanted of a watch, whatever its spec says.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// These tasks alone; none are all.
    pub(crate) select: Vec<String>,
    /// A folder that is watched instead of the spec's landing zone.
    pub(crate) landing: Option<String>,
    /// How often folders and tables are looked at.
    pub(crate) intervals: Intervals,
}

/// A project, and what its watch begins with.
pub(crate) struct Prepared {
    pub(super) project: Project,
    pub(super) place: Place,
    pub(super) chosen: BTreeSet<TableName>,
    /// The sources whose files are looked at.
    pub(super) sources: Vec<SourcePlan>,
    /// Nothing where files that arrive start no runs.
    pub(super) watcher: Option<Watcher>,
    /// What the watcher says at its begin.
    pub(super) notices: Vec<Notice>,
    /// The last moment of the schedule that is done.
    pub(super) last_tick: Option<DateTime<Utc>>,
}

impl Prepared {
    /// Opens what a project names, and begins to watch its folders.
    ///
    /// # Errors
    /// When a task is not known, landing zone or storage cannot be opened or are the same folder, nothing can start a run,
    /// or the event log cannot be read.
    pub(crate) async fn new(project: Project, wanted: &Wanted, clock: Clock) -> Result<Self, Failure> {
        let chosen = project.select(&wanted.select)?;
        let mut place = Place::open(&project, wanted.landing.as_deref(), clock.clone())?;
        let tasks = project.tasks.iter().filter(|task| chosen.contains(&task.name));
        let sources: Vec<SourcePlan> = tasks.filter_map(|task| task.job.source().cloned()).collect();
        let (header, trigger) = (&project.header, &project.header.trigger);
        let is_paced = Pace::new(trigger, clock.now()).is_asked_for();
        let has_others = header.schedule.is_some() || trigger.table_update.is_some() || is_paced;
        if sources.is_empty() && !has_others {
            return Err(Error::spec("no bronze source is among the chosen tasks: there is nothing to watch").into());
        }
        let (watcher, notices) = match trigger.file_arrival.filter(|_| !sources.is_empty()) {
            Some(_) => {
                let root = place.lake.root();
                let made = Watcher::new(&place.landing, root, sources.clone(), wanted.intervals, clock.clone())?;
                place.sightings = made.0.sightings();
                (Some(made.0), made.1)
            }
            None => (None, Vec::new()),
        };
        let last_tick = match &header.schedule {
            Some(_) => history::last_tick(&place.lake, &header.name).await?,
            None => None,
        };
        Ok(Self { project, place, chosen, sources, watcher, notices, last_tick })
    }
}
