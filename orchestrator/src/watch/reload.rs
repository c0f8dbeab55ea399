//! The spec file while it is watched: whether it has changed, and what it says then.

use std::fs;
use std::path::{Path, PathBuf};

use cli::Failure;

use crate::spec::Project;

/// A spec file, by what was read of it last.
#[derive(Debug)]
pub(super) struct SpecFile {
    path: PathBuf,
    content: Option<Vec<u8>>,
}

impl SpecFile {
    /// The file as it is now.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), content: fs::read(path).ok() }
    }

    /// What the spec says when it is another than at the last look. A file that cannot be read is being written: it is
    /// looked at again.
    pub(super) fn changed(&mut self) -> Option<Result<Project, Failure>> {
        let content = fs::read(&self.path).ok()?;
        if self.content.as_ref() == Some(&content) {
            return None;
        }
        self.content = Some(content);
        Some(Project::load(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "name: a\nbronze:\n  s: {path: ./, format: csv}\n";

    #[test]
    fn a_spec_is_told_once_for_each_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipelines.yaml");
        fs::write(&path, SPEC).expect("written");
        let mut file = SpecFile::of(&path);
        assert!(file.changed().is_none());
        fs::write(&path, SPEC.replace("path", "paht")).expect("written");
        assert!(matches!(file.changed(), Some(Err(Failure::Problems(_)))));
        assert!(file.changed().is_none(), "what is wrong is told once");
        fs::remove_file(&path).expect("removed");
        assert!(file.changed().is_none(), "it is being replaced");
        fs::write(&path, SPEC.replace("name: a", "name: b")).expect("written");
        assert_eq!(file.changed().expect("a change").expect("a project").header.name, "b");
    }
}
