//! The spec file while it is watched: whether it has changed, and what it says then.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, TimeDelta, Utc};
use cli::Failure;
use lake::Retry;

use crate::spec::Project;

/// When a spec is tried again that could not be watched for a reason that may pass.
const AGAIN: TimeDelta = TimeDelta::minutes(5);

/// A spec file, by what was read of it last.
#[derive(Debug)]
pub(crate) struct SpecFile {
    path: PathBuf,
    content: Option<Vec<u8>>,
    /// When it is tried again though it has not changed.
    again_at: Option<DateTime<Utc>>,
    is_old: bool,
}

impl SpecFile {
    /// The file as it is now. To be asked for before the spec is loaded, so that no change comes between.
    pub(crate) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), content: fs::read(path).ok(), again_at: None, is_old: false }
    }

    /// What the spec says when it is another than at the last look, or is to be tried again. A file that cannot be read is
    /// being written: it is looked at again.
    pub(super) fn changed(&mut self, now: DateTime<Utc>) -> Option<Result<Project, Failure>> {
        let content = fs::read(&self.path).ok()?;
        let is_due = self.again_at.is_some_and(|at| at <= now);
        if self.content.as_ref() == Some(&content) && !is_due {
            return None;
        }
        let loaded = Project::load(&self.path);
        if matches!(&loaded, Err(Failure::Error(error)) if error.retry() != Retry::Never) {
            return None;
        }
        self.is_old = self.content.as_ref() == Some(&content);
        (self.content, self.again_at) = (Some(content), None);
        Some(loaded)
    }

    /// The clock went back to `now`.
    pub(super) fn clock_went_back(&mut self, now: DateTime<Utc>) {
        self.again_at = self.again_at.map(|at| at.min(now + AGAIN));
    }

    /// True when the spec was tried again that was told of before.
    pub(super) fn is_old(&self) -> bool {
        self.is_old
    }

    /// What the spec says could not be watched: it is tried again after a while where that may pass, else when it changes.
    /// True in the first case.
    pub(super) fn not_watched(&mut self, failure: &Failure, now: DateTime<Utc>) -> bool {
        let may_pass = matches!(failure, Failure::Error(error) if error.retry() != Retry::Never);
        self.again_at = may_pass.then(|| now + AGAIN);
        may_pass
    }
}

#[cfg(test)]
mod tests {
    use lake::{Error, ErrorKind};

    use super::*;

    const SPEC: &str = "name: a\nbronze:\n  s: {path: ./, format: csv}\n";

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn a_spec_is_told_once_for_each_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipelines.yaml");
        fs::write(&path, SPEC).expect("written");
        let mut file = SpecFile::of(&path);
        assert!(file.changed(at(0)).is_none());
        fs::write(&path, SPEC.replace("path", "paht")).expect("written");
        assert!(matches!(file.changed(at(0)), Some(Err(Failure::Problems(_)))));
        assert!(file.changed(at(0)).is_none(), "what is wrong is told once");
        fs::remove_file(&path).expect("removed");
        assert!(file.changed(at(0)).is_none(), "it is being replaced");
        fs::write(&path, SPEC.replace("name: a", "name: b")).expect("written");
        assert_eq!(file.changed(at(0)).expect("a change").expect("a project").header.name, "b");
    }

    #[test]
    fn a_spec_that_could_not_be_watched_is_tried_again_where_that_may_help() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipelines.yaml");
        fs::write(&path, SPEC).expect("written");
        let mut file = SpecFile::of(&path);
        let passes = Failure::Error(Error::new(ErrorKind::Store, "no answer"));
        assert!(file.not_watched(&passes, at(0)));
        assert!(file.changed(at(299)).is_none());
        assert!(file.changed(at(300)).is_some_and(|loaded| loaded.is_ok()) && file.is_old());
        assert!(file.changed(at(999)).is_none(), "once");
        assert!(!file.not_watched(&Failure::Error(Error::spec("nothing to watch")), at(0)));
        assert!(file.changed(at(999)).is_none());
    }
}
