//! The text of a spec: its lines, the line of every path, and what came from the environment.

use std::collections::{HashMap, HashSet};

use super::path::SpecPath;

/// The lines of one spec file and where its values stand.
#[derive(Debug, Clone, Default)]
pub(super) struct SpecText {
    file: String,
    lines: Vec<String>,
    at: HashMap<SpecPath, usize>,
    /// Values that were written with a reference to the environment.
    expanded: HashSet<SpecPath>,
    /// Values that the environment gave, with the reference that stands for them in messages.
    from_environment: Vec<(String, String)>,
}

impl SpecText {
    /// The text of `file`, without any path yet.
    pub(super) fn new(file: &str, text: &str) -> Self {
        Self { file: file.to_owned(), lines: text.lines().map(str::to_owned).collect(), ..Self::default() }
    }

    /// The file as the user named it.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// A 1-based line of the file.
    pub(super) fn content(&self, line: usize) -> Option<&str> {
        self.lines.get(line.checked_sub(1)?).map(String::as_str)
    }

    /// Remembers where a path stands; the first of two equal paths stays.
    pub(super) fn mark(&mut self, path: SpecPath, line: usize) {
        self.at.entry(path).or_insert(line);
    }

    /// The line of exactly this path.
    pub(super) fn line(&self, path: &SpecPath) -> Option<usize> {
        self.at.get(path).copied()
    }

    /// The line of this path, or of the nearest place above it that the file has.
    pub(super) fn nearest_line(&self, path: &SpecPath) -> Option<usize> {
        match self.line(path) {
            Some(line) => Some(line),
            None => self.nearest_line(&path.parent()?),
        }
    }

    /// Remembers that the value of a path was written with a reference.
    pub(super) fn mark_expanded(&mut self, path: SpecPath) {
        self.expanded.insert(path);
    }

    /// True when the value of this path was written with a reference.
    pub(super) fn is_expanded(&self, path: &SpecPath) -> bool {
        self.expanded.contains(path)
    }

    /// Remembers a value of the environment that must not be shown.
    pub(super) fn hide(&mut self, value: String, reference: String) {
        if !value.is_empty() {
            self.from_environment.push((value, reference));
        }
    }

    /// Puts the reference back where a message would show a value of the environment.
    pub(super) fn redact(&self, message: &str) -> String {
        let mut shown = message.to_owned();
        for (value, reference) in &self.from_environment {
            if shown.contains(value.as_str()) {
                shown = shown.replace(value.as_str(), reference);
            }
        }
        shown
    }
}
