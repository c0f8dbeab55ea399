//! One watched source: what is known of its folder, and what a hint about a path in it means.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use super::Notice;
use super::sightings::{Sighting, Sightings, Touch};
use crate::discover::{Request, below, modified_us};
use crate::plan::SourcePlan;

/// A source with what is known of its folder.
pub(super) struct Watched {
    pub(super) plan: SourcePlan,
    pub(super) skip: Option<String>,
    pub(super) sightings: Sightings,
    pub(super) events: Events,
    /// True when events do not tell of all folders below.
    pub(super) has_gaps: bool,
    pub(super) listed_at: Option<DateTime<Utc>>,
    pub(super) troubled: bool,
}

/// Who tells of the changes of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Events {
    /// Nobody; the folder is listed often.
    None,
    /// The system, for this folder and all below it.
    Folder(PathBuf, Identity),
    /// The system, for a folder above: that of the source is not there.
    Above(PathBuf),
}

/// What a folder is besides its name: one that was made again is another.
pub(super) type Identity = (u64, u64);

impl Watched {
    /// A source of which nothing is known yet.
    pub(super) fn new(plan: SourcePlan, skip: Option<String>) -> Self {
        let (sightings, events) = (Sightings::default(), Events::None);
        Self { plan, skip, sightings, events, has_gaps: false, listed_at: None, troubled: false }
    }

    /// True for a path inside the folder of the source, or the folder itself.
    pub(super) fn reaches(&self, path: &str) -> bool {
        path == self.plan.folder || below(&self.plan.folder, path).is_some()
    }

    /// Follows a hint: a file is looked at; for a folder, which may have come with files, all is listed.
    pub(super) fn touched(
        &mut self,
        real: &Path,
        path: &str,
        touch: Touch,
        now: DateTime<Utc>,
        notices: &mut Vec<Notice>,
    ) {
        if real.is_dir() {
            self.listed_at = None;
        } else {
            self.look_at(real, path, touch, now, notices);
        }
    }

    pub(super) fn look_at(&self, real: &Path, path: &str, touch: Touch, now: DateTime<Utc>, notices: &mut Vec<Notice>) {
        if !Request::of(&self.plan, self.skip.as_deref()).reaches(path) {
            return;
        }
        match std::fs::metadata(real) {
            Ok(metadata) if metadata.is_file() => {
                self.see(path, metadata.len(), modified_us(&metadata), touch, now, notices);
            }
            // What cannot be looked at is gone, or a run says what is wrong with it.
            _ => self.sightings.forget(path),
        }
    }

    pub(super) fn see(
        &self,
        path: &str,
        size: u64,
        modified_us: i64,
        touch: Touch,
        now: DateTime<Utc>,
        notices: &mut Vec<Notice>,
    ) {
        if size == 0 && self.plan.filter.skips_empty() {
            return;
        }
        let again = match self.sightings.see(path, size, modified_us, touch, now) {
            Sighting::Arrived => false,
            Sighting::Changed => true,
            Sighting::Growing | Sighting::Same => return,
        };
        let (table, path, whole) = (self.plan.table.clone(), path.to_owned(), touch == Touch::Renamed);
        notices.push(Notice::File { table, path, size, again, whole });
    }
}

/// What the folder is; nothing when it is not there.
pub(super) fn identity(folder: &Path) -> Option<Identity> {
    let metadata = std::fs::metadata(folder).ok().filter(std::fs::Metadata::is_dir)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some((metadata.dev(), metadata.ino()))
    }
    #[cfg(not(unix))]
    Some((0, u64::try_from(modified_us(&metadata)).unwrap_or(0)))
}
