//! What is wrong with a spec: every problem with its place, collected and reported together.

use std::fmt;
use std::sync::Arc;

use super::nearest::did_you_mean;
use super::path::SpecPath;
use super::text::{Place, SpecText};
use crate::error::Error;

/// One thing that is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The value that is wrong, or the place where something is missing.
    pub path: SpecPath,
    /// What is wrong: lowercase, no closing period, literals of the user in backticks.
    pub message: String,
    /// What the reader can do.
    pub hint: Option<String>,
    /// 1-based line, where the path alone does not give it.
    pub line: Option<usize>,
    /// 1-based column on that line, in characters.
    pub column: Option<usize>,
    /// True when the key is wrong, and not its value.
    pub of_key: bool,
    /// 1-based line and column inside of the value, where it is a text of its own, such as SQL.
    pub inside: Option<(usize, usize)>,
    /// A second line that belongs to the problem: the first of two equal keys.
    pub other_line: Option<usize>,
}

/// All problems of one spec. Give it to everything that checks; end with [`Problems::finish`].
#[derive(Debug, Clone, Default)]
pub struct Problems {
    text: Option<Arc<SpecText>>,
    found: Vec<Problem>,
    spoiled: Vec<SpecPath>,
}

impl Problem {
    /// A problem with the value at `path`.
    pub fn at(path: &SpecPath, message: impl Into<String>) -> Self {
        let (message, inside) = position_of_sql(message.into());
        let path = path.clone();
        Self { path, message, hint: None, line: None, column: None, of_key: false, inside, other_line: None }
    }

    /// A problem with the key at the end of `path`.
    pub fn of_key(path: &SpecPath, message: impl Into<String>) -> Self {
        Self { of_key: true, ..Self::at(path, message) }
    }

    /// Says what the reader can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Hints at the nearest of the known names, or lists them.
    #[must_use]
    pub fn did_you_mean<'a>(mut self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        self.hint = did_you_mean(name, known).or(self.hint);
        self
    }
}

impl Problems {
    /// No problems yet, of the spec with this text.
    pub(super) fn of(text: Arc<SpecText>) -> Self {
        Self { text: Some(text), ..Self::default() }
    }

    /// Adds a problem.
    ///
    /// A part of the spec that serde could read only in part is checked all the same, but then it is not told what it
    /// lacks: a problem there at a place that the file does not have, or below one that is already reported, is left
    /// out.
    pub fn add(&mut self, problem: Problem) {
        let echo = self.spoiled.iter().any(|spoiled| spoiled.holds(&problem.path)) && {
            let known = self.text.as_ref().is_none_or(|text| text.line(&problem.path).is_some());
            !known
                || self.spoiled.contains(&problem.path)
                || self.found.iter().any(|other| !other.path.is_root() && other.path.holds(&problem.path))
        };
        if !echo && !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    /// Marks a part of the spec that could be read only in part.
    pub(super) fn spoil(&mut self, path: &SpecPath) {
        self.spoiled.push(path.clone());
    }

    /// True when nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// How many problems there are.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// True when a problem lies at `path` or below it.
    pub fn any_below(&self, path: &SpecPath) -> bool {
        self.found.iter().any(|problem| path.holds(&problem.path))
    }

    /// The problems in the order of the file, each with its 1-based line where it is known.
    pub fn in_file_order(&self) -> Vec<(Option<usize>, &Problem)> {
        let mut ordered: Vec<_> = self.found.iter().map(|problem| (self.line_of(problem), problem)).collect();
        ordered.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        ordered
    }

    /// Gives the value back when nothing is wrong.
    ///
    /// # Errors
    /// All the problems.
    pub fn finish<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }

    /// The text of the spec, when the problems belong to one.
    pub(super) fn text(&self) -> Option<&SpecText> {
        self.text.as_deref()
    }

    /// Where a problem is: at a word of the value that its message names, at the value, or at the key.
    pub(super) fn place_of(&self, problem: &Problem) -> Option<Place> {
        let text = self.text.as_deref()?;
        let within = |line, from, to| literals(&problem.message).find_map(|word| text.word(line, from, to, word));
        if let Some(line) = problem.line {
            let column = problem.column.unwrap_or(1);
            let start = Place { line, column, width: 1, last_line: line };
            return Some(match within(line, column, usize::MAX) {
                Some(word) => word,
                None if problem.column.is_some() => start,
                None => Place::line(line),
            });
        }
        let key = text.nearest(&problem.path)?;
        let value = text.value(&problem.path).filter(|_| !problem.of_key);
        let Some(value) = value else { return Some(key) };
        if let Some(place) = problem.inside.and_then(|inside| text.inside(value, inside)) {
            return Some(
                within(place.line, place.column, usize::MAX)
                    .filter(|word| word.column == place.column)
                    .unwrap_or(place),
            );
        }
        if value.last_line > value.line {
            // Of a text over several lines: the line that is meant, else the key.
            let lines = value.line..=value.last_line;
            return Some(lines.into_iter().find_map(|line| within(line, 1, usize::MAX)).unwrap_or(key));
        }
        // A message that names the key, and nothing of its value, is about the key.
        let names_key = || literals(&problem.message).any(|word| Some(word) == problem.path.last_key());
        Some(match within(value.line, value.column, value.column + value.width) {
            Some(word) => word,
            None if names_key() => key,
            None => value,
        })
    }

    fn line_of(&self, problem: &Problem) -> Option<usize> {
        self.place_of(problem).map(|place| place.line)
    }
}

/// A message without the position that parsers of SQL put at its end, and that position.
fn position_of_sql(message: String) -> (String, Option<(usize, usize)>) {
    const LINE: &str = " at Line: ";
    let found = message.rfind(LINE).and_then(|at| {
        let (line, column) = message[at + LINE.len()..].split_once(", Column: ")?;
        Some((at, (line.parse().ok()?, column.trim_end().parse().ok()?)))
    });
    match found {
        Some((at, inside)) => (message[..at].to_owned(), Some(inside)),
        None => (message, None),
    }
}

/// What a message has in backticks.
fn literals(message: &str) -> impl Iterator<Item = &str> {
    message.split('`').skip(1).step_by(2).filter(|word| !word.trim().is_empty())
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::render::text(self))
    }
}

impl std::error::Error for Problems {}

impl From<Problems> for Error {
    /// One error of kind [`crate::ErrorKind::Spec`] that carries the whole report.
    fn from(problems: Problems) -> Self {
        Self::spec(problems.to_string().trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_was_read_only_in_part_is_not_told_what_it_lacks() {
        let text = SpecText::new("f.yaml", "silver:\n  orders:\n    keys: [a]\n");
        let mut text = text;
        text.mark(SpecPath::of(["silver"]), Place::line(1));
        text.mark(SpecPath::of(["silver", "orders"]), Place::line(2));
        text.mark(SpecPath::of(["silver", "orders", "keys"]), Place::line(3));
        let mut problems = Problems::of(Arc::new(text));
        let orders = SpecPath::of(["silver", "orders"]);
        problems.spoil(&orders);
        problems.add(Problem::at(&orders.key("source"), "`source` is missing"));
        problems.add(Problem::at(&orders, "nothing to do"));
        assert!(problems.is_empty());
        problems.add(Problem::at(&orders.key("keys"), "`a` is not a column"));
        problems.add(Problem::at(&orders.key("keys").index(0), "an echo of the problem above it"));
        assert_eq!(problems.len(), 1);
    }
}
