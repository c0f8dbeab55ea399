//! From a landing folder to files that are ready: listed by their exact names, and stable.
//!
//! A file is taken when it has not changed for the source's `settle` time. Files younger than that are waited for,
//! once and together, no longer than `settle`; one that still changes then is left for the next run. A run that a
//! watcher started leaves them without a word: the watcher knows since when a file stands still, and comes again.

mod filter;
mod local;
mod missed;
mod partitions;
mod remote;

use std::collections::HashMap;
use std::time::Duration;

pub use self::filter::{Filter, Globs, Miss};
pub(crate) use self::local::modified_us;
use self::missed::Missed;
pub use self::partitions::{FolderValue, folder_values};
use crate::plan::SourcePlan;
use crate::watch::Sightings;
use chrono::{DateTime, Utc};
use lake::{Clock, Result, Root};

/// A file of the landing zone, as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Its path below the landing root, exactly as it is named.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was changed last, in microseconds since the epoch.
    pub modified_us: i64,
    /// The version of its content, where the store has one that outlives a copy of the folder.
    pub etag: Option<String>,
    /// Why it cannot be read under its name, where that is so.
    pub unreadable: Option<String>,
}

/// What was found below a source's folder.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Files that are ready and not known, in no order.
    pub ready: Vec<FoundFile>,
    /// Files that the caller knows already.
    pub known: Vec<FoundFile>,
    /// Paths of new files of 0 bytes; they are left out until they have content.
    pub empty: Vec<String>,
    /// Paths of files that were still changing when the wait was over.
    pub changing: Vec<String>,
    /// True when the folder of the source is not there.
    pub missing: bool,
    /// Files that are there and that `include` does not take.
    pub missed: Missed,
}

/// One listing of a source's folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) files: Vec<FoundFile>,
    pub(crate) missing: bool,
    pub(crate) missed: Missed,
}

impl FoundFile {
    /// True when `other` is the same content under the same path.
    pub fn is_same(&self, other: &Self) -> bool {
        let versions = self.etag.as_ref().zip(other.etag.as_ref());
        let same_version = versions.map_or(self.modified_us == other.modified_us, |(ours, theirs)| ours == theirs);
        self.path == other.path && self.size == other.size && same_version
    }

    pub(crate) fn age(&self, now: DateTime<Utc>) -> Duration {
        let micros = now.timestamp_micros().saturating_sub(self.modified_us);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}

/// Finds the files of a source. `skip` is a folder below the landing root that holds no landing files (the storage of
/// the lake, where it lies inside), `sightings` are those of a watcher, `is_known` says which files need not settle
/// because they were taken before.
///
/// # Errors
/// [`ErrorKind::Store`](lake::ErrorKind::Store) when the landing zone cannot be listed.
pub async fn discover(
    landing: &Root,
    plan: &SourcePlan,
    skip: Option<&str>,
    clock: &Clock,
    sightings: Option<&Sightings>,
    is_known: impl Fn(&FoundFile) -> bool,
) -> Result<Discovery> {
    let Listing { files, missing, missed } = list(landing, plan, skip).await?;
    let mut found = Discovery { missing, missed, ..Discovery::default() };
    let (now, mut wait) = (clock.now(), Duration::ZERO);
    let mut young = HashMap::new();
    for file in files {
        if is_known(&file) {
            sightings.inspect(|sightings| sightings.done(&file));
            found.known.push(file);
            continue;
        }
        // A time in the future says nothing about the age.
        let rest = match sightings {
            Some(sightings) => sightings.rest(&file, plan.settle, now),
            None => plan.settle.saturating_sub(file.age(now)),
        };
        if rest.is_zero() {
            sightings.inspect(|sightings| sightings.done(&file));
            found.settled(file, plan);
        } else if sightings.is_none() {
            wait = wait.max(rest);
            young.insert(file.path.clone(), file);
        }
    }
    if !young.is_empty() {
        tracing::info!(
            source = plan.source(),
            files = young.len(),
            wait_ms = wait.as_millis(),
            "waiting for files to settle"
        );
        clock.sleep(wait).await;
        let again = list(landing, plan, skip).await?;
        for file in again.files {
            match young.remove(&file.path) {
                Some(before) if before.is_same(&file) => found.settled(file, plan),
                Some(_) => found.changing.push(file.path),
                None => {}
            }
        }
    }
    Ok(found)
}

impl Discovery {
    fn settled(&mut self, file: FoundFile, plan: &SourcePlan) {
        if file.size == 0 && plan.filter.skips_empty() && file.unreadable.is_none() {
            self.empty.push(file.path);
        } else {
            self.ready.push(file);
        }
    }
}

/// Lists the folder of a source as it is.
pub(crate) async fn list(landing: &Root, plan: &SourcePlan, skip: Option<&str>) -> Result<Listing> {
    let request = Request::of(plan, skip);
    match landing.local_path() {
        Some(root) => local::list(root.to_owned(), request).await,
        None => remote::list(landing.store(), &request).await,
    }
}

/// A path below the landing root as one below `folder`; `None` when it is not below it.
pub(crate) fn below<'p>(folder: &str, path: &'p str) -> Option<&'p str> {
    match folder.is_empty() {
        true => Some(path),
        false => path.strip_prefix(folder)?.strip_prefix('/'),
    }
}

/// What to list.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    folder: String,
    filter: Filter,
    recursive: bool,
    skip: Option<String>,
}

impl Request {
    pub(crate) fn of(plan: &SourcePlan, skip: Option<&str>) -> Self {
        let (folder, filter, recursive) = (plan.folder.clone(), plan.filter.clone(), plan.recursive);
        Self { folder, filter, recursive, skip: skip.map(str::to_owned) }
    }

    /// True for a file to list, where its folder is listed; `path` is below the landing root.
    pub(crate) fn takes(&self, path: &str) -> bool {
        below(&self.folder, path).is_some_and(|below| self.filter.takes(below)) && !self.skips(path)
    }

    /// True for a file that a listing of the folder would give.
    pub(crate) fn reaches(&self, path: &str) -> bool {
        self.takes(path) && (self.recursive || below(&self.folder, path).is_none_or(|below| !below.contains('/')))
    }

    /// Why a file that is listed is none of the source's, when `include` is the reason.
    fn miss(&self, path: &str) -> Option<Miss> {
        below(&self.folder, path).and_then(|below| self.filter.miss(below)).filter(|_| !self.skips(path))
    }

    fn skips(&self, path: &str) -> bool {
        self.skip
            .as_deref()
            .is_some_and(|skip| path.strip_prefix(skip).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

#[cfg(test)]
mod tests;
