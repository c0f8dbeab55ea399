//! The text of a spec: its lines, the place of every path, and what came from the environment.

use std::collections::{HashMap, HashSet};

use super::path::SpecPath;

/// Where something stands in the file. Lines and columns count from 1, columns and widths in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The line.
    pub(super) line: usize,
    /// The column of its first character.
    pub(super) column: usize,
    /// How many characters it has on that line; 0 where that is not known.
    pub(super) width: usize,
    /// The last line.
    pub(super) last_line: usize,
}

/// The lines of one spec file and where its values stand.
#[derive(Debug, Clone, Default)]
pub(super) struct SpecText {
    file: String,
    lines: Vec<String>,
    /// Keys, and items of lists.
    at: HashMap<SpecPath, Place>,
    /// Values of keys.
    values: HashMap<SpecPath, Place>,
    /// Values that were written with a reference to the environment.
    expanded: HashSet<SpecPath>,
    /// Values that the environment gave, with the reference that stands for them in messages.
    from_environment: Vec<(String, String)>,
}

impl Place {
    /// A whole line, of which no column is known.
    pub(super) fn line(line: usize) -> Self {
        Self { line, column: 0, width: 0, last_line: line }
    }
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
    pub(super) fn mark(&mut self, path: SpecPath, place: Place) {
        self.at.entry(path).or_insert(place);
    }

    /// Remembers where the value of a path stands; the first of two equal paths stays.
    pub(super) fn mark_value(&mut self, path: SpecPath, place: Place) {
        self.values.entry(path).or_insert(place);
    }

    /// The line of exactly this path.
    pub(super) fn line(&self, path: &SpecPath) -> Option<usize> {
        self.at.get(path).map(|place| place.line)
    }

    /// The line of this path, or of the nearest place above it that the file has.
    pub(super) fn nearest_line(&self, path: &SpecPath) -> Option<usize> {
        self.nearest(path).map(|place| place.line)
    }

    /// The place of this path, or the nearest above it that the file has.
    pub(super) fn nearest(&self, path: &SpecPath) -> Option<Place> {
        match self.at.get(path) {
            Some(place) => Some(*place),
            None => self.nearest(&path.parent()?),
        }
    }

    /// The place of the value of exactly this path, when it is not below its key.
    pub(super) fn value(&self, path: &SpecPath) -> Option<Place> {
        self.values.get(path).copied()
    }

    /// The place of a 1-based line and column of a text that is the value at `value`.
    pub(super) fn inside(&self, value: Place, (line, column): (usize, usize)) -> Option<Place> {
        let of_line = |line: usize, column: usize| Place { line, column, width: 1, last_line: line };
        if value.last_line == value.line {
            let quote = self.content(value.line)?.chars().nth(value.column.checked_sub(1)?)?;
            let quoted = usize::from(quote == '"' || quote == '\'');
            return (line == 1).then(|| of_line(value.line, value.column + quoted + column - 1));
        }
        // A block begins below its mark, and its first line says how far it is indented.
        let indent = |line: &str| line.chars().take_while(|c| *c == ' ').count();
        let mark = self.content(value.line)?.chars().nth(value.column.saturating_sub(1));
        let start = value.line + usize::from(matches!(mark, Some('|' | '>')));
        let has_text = |line: &usize| self.content(*line).is_some_and(|text| !text.trim().is_empty());
        let first = (start..=value.last_line).find(has_text)?;
        Some(of_line(first + line - 1, indent(self.content(first)?) + column))
    }

    /// Where a word stands by itself between two columns of a line; the end may be `usize::MAX`.
    pub(super) fn word(&self, line: usize, from: usize, to: usize, word: &str) -> Option<Place> {
        let text: Vec<char> = self.content(line)?.chars().collect();
        let wanted: Vec<char> = word.chars().collect();
        let is_part = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
        let edges = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| text.get(before));
            let (first, last) = (is_part(wanted.first()), is_part(wanted.last()));
            !(first && is_part(before) || last && is_part(text.get(at + wanted.len())))
        };
        let end = text.len().min(to.saturating_sub(1));
        let starts = from.saturating_sub(1)..(end + 1).saturating_sub(wanted.len());
        let at = starts.into_iter().find(|at| text[*at..].starts_with(&wanted) && edges(*at));
        let found = at.filter(|_| !wanted.is_empty())?;
        Some(Place { line, column: found + 1, width: wanted.len(), last_line: line })
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

    /// Values that the environment gave, with their references.
    pub(super) fn hidden(&self) -> &[(String, String)] {
        &self.from_environment
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_where_it_stands_alone() {
        let text = SpecText::new("f.yaml", "    note: upper(noet) + noet_2 é noet\n");
        let column = |from, to, word: &str| text.word(1, from, to, word).map(|place| place.column);
        assert_eq!(column(1, usize::MAX, "noet"), Some(17));
        assert_eq!(column(20, usize::MAX, "noet"), Some(34));
        assert_eq!(column(1, 18, "noet"), None);
        assert_eq!(column(1, usize::MAX, "oet"), None);
        assert_eq!(column(1, usize::MAX, "(noet)"), Some(16));
        assert_eq!(column(1, usize::MAX, ""), None);
    }
}
