//! What is known of the files of a watched source between runs: which were looked at, which are fresh and since when.
//!
//! Watcher and run share it. The watcher says when a file was seen to change, by the clock of this machine; a run takes
//! a fresh file only when it has stood still for long enough since, or was renamed into place, and leaves the others
//! without waiting: the watcher starts another run for them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::discover::FoundFile;

/// The files of one source, as they were seen last. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Sightings(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// Files that a run has looked at, with size and modification time.
    settled: HashMap<String, (u64, i64)>,
    /// Files that no run has taken as they are now.
    fresh: BTreeMap<String, Fresh>,
}

#[derive(Debug, Clone, Copy)]
struct Fresh {
    size: u64,
    modified_us: i64,
    since: DateTime<Utc>,
    whole: bool,
}

/// What a sighting tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sighting {
    /// A file that was not there before.
    Arrived,
    /// Other content under a known name.
    Changed,
    /// Still being written.
    Growing,
    /// Nothing new.
    Same,
}

/// How a file was seen to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// It was found by listing, or only its attributes changed.
    Found,
    /// It was written to.
    Written,
    /// It was renamed to its name, so all of it is there.
    Renamed,
}

impl Sightings {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a file as it is `now`.
    pub fn see(&self, path: &str, size: u64, modified_us: i64, touch: Touch, now: DateTime<Utc>) -> Sighting {
        let mut seen = self.seen();
        let known = seen.settled.get(path).copied();
        let whole = touch == Touch::Renamed;
        let fresh = Fresh { size, modified_us, since: now, whole };
        if let Some(before) = seen.fresh.get_mut(path) {
            let same = (before.size, before.modified_us) == (size, modified_us);
            return match (same, touch) {
                (true, Touch::Found) => Sighting::Same,
                (true, Touch::Renamed) => {
                    before.whole = true;
                    Sighting::Same
                }
                _ => {
                    *before = fresh;
                    Sighting::Growing
                }
            };
        }
        if known == Some((size, modified_us)) {
            return Sighting::Same;
        }
        seen.fresh.insert(path.to_owned(), fresh);
        if known.is_some() { Sighting::Changed } else { Sighting::Arrived }
    }

    /// Forgets a file, or all below a folder, that is gone.
    pub fn forget(&self, path: &str) {
        let mut seen = self.seen();
        let is_gone = |name: &String| name == path || name.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        if seen.settled.remove(path).is_none() && seen.fresh.remove(path).is_none() {
            seen.settled.retain(|name, _| !is_gone(name));
            seen.fresh.retain(|name, _| !is_gone(name));
        }
    }

    /// Forgets the files that a whole listing does not have.
    pub fn keep_only(&self, listed: &HashMap<&str, &FoundFile>) {
        let mut seen = self.seen();
        seen.settled.retain(|path, _| listed.contains_key(path.as_str()));
        seen.fresh.retain(|path, _| listed.contains_key(path.as_str()));
    }

    /// How long a listed file that no run has taken must still stand: nothing for one that was renamed into place. A
    /// file that was not seen before counts from its modification time.
    pub(crate) fn rest(&self, file: &FoundFile, settle: Duration, now: DateTime<Utc>) -> Duration {
        let mut seen = self.seen();
        match seen.fresh.get(&file.path) {
            Some(fresh) if (fresh.size, fresh.modified_us) == (file.size, file.modified_us) => match fresh.whole {
                true => Duration::ZERO,
                false => settle.saturating_sub((now - fresh.since).to_std().unwrap_or_default()),
            },
            before => {
                let age = if before.is_some() { Duration::ZERO } else { file.age(now) };
                let since = now - TimeDelta::from_std(age.min(settle)).unwrap_or_default();
                let fresh = Fresh { size: file.size, modified_us: file.modified_us, since, whole: false };
                seen.fresh.insert(file.path.clone(), fresh);
                settle.saturating_sub(age)
            }
        }
    }

    /// A run has looked at the file as it is.
    pub(crate) fn done(&self, file: &FoundFile) {
        let mut seen = self.seen();
        seen.fresh.remove(&file.path);
        seen.settled.insert(file.path.clone(), (file.size, file.modified_us));
    }

    /// The fresh files, each with the moment from which it may be taken.
    pub fn fresh(&self, settle: Duration) -> Vec<(String, DateTime<Utc>)> {
        let ready = |fresh: &Fresh| match fresh.whole {
            true => fresh.since,
            false => fresh.since + TimeDelta::from_std(settle).unwrap_or_default(),
        };
        self.seen().fresh.iter().map(|(path, fresh)| (path.clone(), ready(fresh))).collect()
    }

    /// The clock went back to `now`: what was seen was seen by then.
    pub(super) fn clock_went_back(&self, now: DateTime<Utc>) {
        self.seen().fresh.values_mut().for_each(|fresh| fresh.since = fresh.since.min(now));
    }

    /// When a fresh file was seen to change last; `None` without fresh files.
    pub fn last_change(&self) -> Option<DateTime<Utc>> {
        self.seen().fresh.values().map(|fresh| fresh.since).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(2);

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn file(size: u64, seconds: i64) -> FoundFile {
        FoundFile { path: "a".into(), size, modified_us: seconds * 1_000_000, etag: None, unreadable: None }
    }

    fn see(sightings: &Sightings, size: u64, seconds: i64, touch: Touch, now: i64) -> Sighting {
        sightings.see("a", size, seconds * 1_000_000, touch, at(now))
    }

    #[test]
    fn a_clock_that_goes_back_holds_no_file_up() {
        let sightings = Sightings::default();
        see(&sightings, 1, 100, Touch::Written, 1_000);
        sightings.clock_went_back(at(10));
        assert_eq!(sightings.fresh(SETTLE), [("a".to_owned(), at(12))]);
    }

    #[test]
    fn a_growing_file_is_never_ready_and_a_still_one_is() {
        let sightings = Sightings::default();
        assert_eq!(see(&sightings, 1, 100, Touch::Written, 100), Sighting::Arrived);
        assert_eq!(see(&sightings, 2, 101, Touch::Written, 101), Sighting::Growing);
        assert_eq!(sightings.fresh(SETTLE), [("a".to_owned(), at(103))]);
        assert_eq!(sightings.rest(&file(2, 101), SETTLE, at(102)), Duration::from_secs(1));
        assert_eq!(sightings.rest(&file(3, 102), SETTLE, at(104)), SETTLE, "it grew unseen");
        assert_eq!(see(&sightings, 3, 102, Touch::Written, 105), Sighting::Growing, "written to within one instant");
        assert_eq!(sightings.rest(&file(3, 102), SETTLE, at(107)), Duration::ZERO);
        sightings.done(&file(3, 102));
        assert!(sightings.fresh(SETTLE).is_empty());
        assert_eq!(see(&sightings, 3, 102, Touch::Found, 108), Sighting::Same);
        assert_eq!(see(&sightings, 3, 109, Touch::Found, 109), Sighting::Changed);
    }

    #[test]
    fn a_renamed_file_is_ready_at_once_until_it_is_written_to() {
        let sightings = Sightings::default();
        assert_eq!(see(&sightings, 9, 50, Touch::Renamed, 100), Sighting::Arrived);
        assert_eq!(sightings.rest(&file(9, 50), SETTLE, at(100)), Duration::ZERO);
        assert_eq!(see(&sightings, 9, 50, Touch::Found, 100), Sighting::Same);
        assert_eq!(sightings.rest(&file(9, 50), SETTLE, at(100)), Duration::ZERO, "new attributes are no new content");
        see(&sightings, 10, 101, Touch::Written, 101);
        assert_eq!(sightings.rest(&file(10, 101), SETTLE, at(101)), SETTLE);
    }

    #[test]
    fn what_no_event_told_counts_from_its_modification_time() {
        let sightings = Sightings::default();
        assert_eq!(sightings.rest(&file(1, 50), SETTLE, at(100)), Duration::ZERO);
        let young = Sightings::default();
        assert_eq!(young.rest(&file(1, 99), SETTLE, at(100)), Duration::from_secs(1));
        assert_eq!(young.fresh(SETTLE), [("a".to_owned(), at(101))], "and is remembered for another run");
        let ahead = Sightings::default();
        assert_eq!(ahead.rest(&file(1, 500), SETTLE, at(100)), SETTLE);
        assert_eq!(ahead.rest(&file(1, 500), SETTLE, at(102)), Duration::ZERO, "a time in the future hides nothing");
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let sightings = Sightings::default();
        for path in ["in/a", "in/b", "inner"] {
            sightings.see(path, 1, 1, Touch::Written, at(1));
        }
        sightings.forget("in");
        assert_eq!(sightings.fresh(SETTLE).len(), 1);
        sightings.keep_only(&HashMap::new());
        assert_eq!(sightings.last_change(), None);
    }
}
