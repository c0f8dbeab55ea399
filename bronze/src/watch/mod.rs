//! Sees files come, so that somebody can run their sources.
//!
//! Events of the operating system are hints and nothing more: each names a path that is looked at, and when they get
//! lost, at an error, and at an interval, the folder is listed again. Where events do not come (buckets, network
//! mounts, exhausted limits of the system) listing is all there is. What is seen is kept in [`Sightings`], which a run
//! asks how long a file has stood still; the watcher itself runs nothing and decides nothing.

mod mounts;
mod native;
mod sightings;
mod watched;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use lake::{Clock, Result, Root, TableName};

use self::native::{Hints, Native};
pub use self::sightings::{Sighting, Sightings, Touch};
use self::watched::{Events, Watched, identity};
use crate::discover::list;
use crate::plan::SourcePlan;
use crate::run::storage_inside;

/// Between a first event and the look at what happened: writers cause many.
const GATHERING: Duration = Duration::from_millis(50);
/// How often a folder is asked for that comes and goes.
const FOLLOWS_MAX: usize = 8;

/// How often folders are listed.
#[derive(Debug, Clone, Copy)]
pub struct Intervals {
    /// Where events tell of changes, in case some got lost.
    pub rescan: Duration,
    /// Where they do not.
    pub poll: Duration,
    /// True to do without events everywhere.
    pub always_poll: bool,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { rescan: Duration::from_secs(60), poll: Duration::from_secs(5), always_poll: false }
    }
}

/// Something that a person may want to know.
#[derive(Debug, Clone)]
pub enum Notice {
    /// A file arrived, or came again with other content.
    File {
        /// The table of its source.
        table: TableName,
        /// Its path below the landing root.
        path: String,
        /// Its size in bytes so far.
        size: u64,
        /// True when it has a name that was known.
        again: bool,
        /// True when it was renamed into place, so that all of it is there.
        whole: bool,
    },
    /// The folder of a source is listed at an interval, since events do not tell of its changes.
    Polled {
        /// The table of the source.
        table: TableName,
        /// Why.
        because: String,
    },
    /// Changes may have been missed; the folders are listed again.
    Rescan(String),
    /// A folder could not be listed; it is tried again.
    Trouble {
        /// The table of the source.
        table: TableName,
        /// What went wrong.
        error: lake::Error,
    },
}

/// Watches the folders of some sources.
pub struct Watcher {
    landing: Root,
    clock: Clock,
    intervals: Intervals,
    native: Option<Native>,
    sources: Vec<Watched>,
}

impl Watcher {
    /// A watcher of the folders of `plans`; what is there already is seen at the first look. `storage` is the root of
    /// the tables, which may lie below the landing root.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when storage and landing zone are the same folder.
    pub fn new(
        landing: &Root,
        storage: &Root,
        plans: Vec<SourcePlan>,
        intervals: Intervals,
        clock: Clock,
    ) -> Result<(Self, Vec<Notice>)> {
        let skip = storage_inside(storage, landing)?;
        let sources = plans.into_iter().map(|plan| Watched::new(plan, skip.clone())).collect();
        let mut watcher = Self { landing: landing.clone(), clock, intervals, native: None, sources };
        let notices = watcher.begin();
        Ok((watcher, notices))
    }

    /// What is known of the files of each source.
    pub fn sightings(&self) -> HashMap<TableName, Sightings> {
        self.sources.iter().map(|source| (source.plan.table.clone(), source.sightings.clone())).collect()
    }

    /// Waits until there is something to look at. May be dropped and asked for again.
    pub async fn wait(&self) {
        let due = self.sources.iter().map(|source| self.due(source)).min();
        let rest = due.map_or(self.intervals.rescan, |due| (due - self.clock.now()).to_std().unwrap_or_default());
        let listing = self.clock.sleep(rest);
        let Some(native) = &self.native else { return listing.await };
        tokio::select! {
            () = native.rings() => self.clock.sleep(GATHERING).await,
            () = listing => {}
        }
    }

    /// Looks at what was touched, lists what is due, and says what came.
    pub async fn look(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let hints = self.native.as_ref().map(Native::hints).unwrap_or_default();
        self.follow(hints, &mut notices);
        let now = self.clock.now();
        for index in 0..self.sources.len() {
            if self.due(&self.sources[index]) <= now {
                self.list(index, &mut notices).await;
            }
        }
        notices
    }

    /// Looks again at the fresh files that should be ready by now: an event may be on its way, or may never come. They
    /// are ready when they are still what they were.
    pub async fn look_closely(&mut self, table: &TableName) -> Vec<Notice> {
        let mut notices = self.look().await;
        let Some(index) = self.sources.iter().position(|source| source.plan.table == *table) else { return notices };
        match self.landing.local_path().map(Path::to_owned) {
            Some(root) => {
                let source = &self.sources[index];
                for (path, _) in source.sightings.fresh(Duration::ZERO) {
                    source.look_at(&root.join(&path), &path, Touch::Found, self.clock.now(), &mut notices);
                }
            }
            None => self.list(index, &mut notices).await,
        }
        notices
    }

    /// The clock went back to `now`: all folders are listed again, and nothing is waited for longer than was meant.
    pub fn clock_went_back(&mut self, now: DateTime<Utc>) {
        for source in &mut self.sources {
            source.listed_at = None;
            source.sightings.clock_went_back(now);
        }
    }

    fn due(&self, source: &Watched) -> DateTime<Utc> {
        let is_polled = source.events == Events::None || source.has_gaps;
        let interval = if is_polled { self.intervals.poll } else { self.intervals.rescan };
        let interval = TimeDelta::from_std(interval).unwrap_or(TimeDelta::MAX);
        source.listed_at.map_or(DateTime::UNIX_EPOCH, |at| at + interval)
    }

    /// Asks for events, and says where there are none.
    fn begin(&mut self) -> Vec<Notice> {
        let because = match (self.landing.is_local(), self.intervals.always_poll) {
            (false, _) => Some("a bucket sends no events".to_owned()),
            (true, true) => Some("as asked for".to_owned()),
            (true, false) => match Native::new() {
                Ok(native) => {
                    self.native = Some(native);
                    None
                }
                Err(reason) => Some(reason),
            },
        };
        let mut notices = Vec::new();
        for index in 0..self.sources.len() {
            let because = because.clone().or_else(|| self.follow_folder(index).err());
            if let Some(because) = because {
                notices.push(Notice::Polled { table: self.sources[index].plan.table.clone(), because });
            }
        }
        notices
    }

    /// Asks for the events of the folder of a source, or of the nearest one above while it is not there; again, when
    /// folders came or went meanwhile.
    fn follow_folder(&mut self, index: usize) -> std::result::Result<(), String> {
        let (Some(native), Some(root)) = (&mut self.native, self.landing.local_path()) else { return Ok(()) };
        for _ in 0..FOLLOWS_MAX {
            let source = &mut self.sources[index];
            let folder = root.join(&source.plan.folder);
            let wanted = match identity(&folder) {
                Some(identity) => Events::Folder(folder, identity),
                None => {
                    let above = folder.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(root);
                    Events::Above(above.to_owned())
                }
            };
            if source.events == wanted {
                return Ok(());
            }
            if let Events::Folder(held, _) | Events::Above(held) = std::mem::replace(&mut source.events, Events::None) {
                native.unwatch(&held);
            }
            let asked = match &wanted {
                Events::Folder(folder, _) => match mounts::shared_file_system(folder) {
                    Some(kind) => Err(format!("others write to a file system of kind {kind} as well")),
                    None => native.watch(folder, source.plan.recursive),
                },
                Events::Above(above) => native.watch(above, false),
                Events::None => Ok(()),
            };
            match asked {
                Ok(()) => source.events = wanted,
                // A folder that was there a moment ago: look again.
                Err(_) if matches!(&wanted, Events::Folder(folder, _) | Events::Above(folder) if !folder.is_dir()) => {}
                Err(reason) => {
                    if let Events::Folder(held, _) | Events::Above(held) = &wanted {
                        native.unwatch(held);
                    }
                    follow_all(native, &self.sources);
                    return Err(reason);
                }
            }
            follow_all(native, &self.sources);
        }
        Ok(())
    }

    fn follow(&mut self, hints: Hints, notices: &mut Vec<Notice>) {
        if let Some(reason) = hints.lost {
            self.sources.iter_mut().for_each(|source| source.listed_at = None);
            if hints.limited {
                // Which source the folder without events belongs to is not told.
                for source in self.sources.iter_mut().filter(|source| !source.has_gaps && source.plan.recursive) {
                    source.has_gaps = true;
                    notices.push(Notice::Polled { table: source.plan.table.clone(), because: reason.clone() });
                }
            } else {
                notices.push(Notice::Rescan(reason));
            }
        }
        let Some(root) = self.landing.local_path() else { return };
        let now = self.clock.now();
        for (real, touch) in hints.touched {
            let Some(path) = real.strip_prefix(root).ok().and_then(Path::to_str) else { continue };
            for source in &mut self.sources {
                let above = |held: &PathBuf| real.starts_with(held);
                match &source.events {
                    Events::Above(held) if above(held) => source.listed_at = None,
                    _ if source.reaches(path) => source.touched(&real, path, touch, now, notices),
                    _ => {}
                }
            }
        }
    }

    /// Lists the folder of a source.
    async fn list(&mut self, index: usize, notices: &mut Vec<Notice>) {
        if self.native.is_some()
            && self.sources[index].events != Events::None
            && let Err(because) = self.follow_folder(index)
        {
            notices.push(Notice::Polled { table: self.sources[index].plan.table.clone(), because });
        }
        let source = &mut self.sources[index];
        let table = source.plan.table.clone();
        let now = self.clock.now();
        source.listed_at = Some(now);
        match list(&self.landing, &source.plan, source.skip.as_deref()).await {
            Ok(listing) => {
                source.troubled = false;
                source.sightings.keep_only(&listing.files.iter().map(|file| (file.path.as_str(), file)).collect());
                for file in listing.files.iter().filter(|file| file.unreadable.is_none()) {
                    source.see(&file.path, file.size, file.modified_us, Touch::Found, now, notices);
                }
            }
            Err(error) if source.troubled => tracing::debug!(%table, %error, "the folder cannot be listed still"),
            Err(error) => {
                source.troubled = true;
                notices.push(Notice::Trouble { table, error });
            }
        }
    }
}

/// Asks for the events of all sources once more: what was given up, or asked for in another way, may be what another
/// source needs. What is gone by now is seen when it is listed.
fn follow_all(native: &mut Native, sources: &[Watched]) {
    let above = sources.iter().filter_map(|source| match &source.events {
        Events::Above(held) => Some((held, false)),
        _ => None,
    });
    let folders = sources.iter().filter_map(|source| match &source.events {
        Events::Folder(held, _) => Some((held, source.plan.recursive)),
        _ => None,
    });
    for (held, recursive) in above.chain(folders) {
        if let Err(reason) = native.watch(held, recursive) {
            tracing::debug!(folder = %held.display(), reason, "the folder is not watched any more");
        }
    }
}
