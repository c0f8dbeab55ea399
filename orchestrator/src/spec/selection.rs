//! Which tasks `--select` and `--exclude` mean: names, patterns of names, layers, and what stands before and after them.

use std::collections::BTreeSet;

use lake::spec::did_you_mean;
use lake::{Error, Result, TableName};

use super::Project;

// A choice of tasks on the command line. What is said here in three slashes would stand in the help of the commands.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Selection {
    /// Only these tasks: `silver.orders`, `silver` or `gold.sales_*`, `+gold.sales` with all that it needs, `silver.orders+`
    /// with all that needs it, `2+x+1` so many steps far; may be given several times, or separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub(crate) select: Vec<String>,
    /// All but these tasks, written as for `--select`
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub(crate) exclude: Vec<String>,
}

/// One term: a pattern of names, and how far around it.
#[derive(Debug, PartialEq, Eq)]
struct Term<'a> {
    pattern: &'a str,
    /// Steps to what it needs; `None` for none, `Some(None)` for all.
    before: Option<Option<usize>>,
    /// Steps to what needs it.
    after: Option<Option<usize>>,
}

impl Project {
    /// The tasks that terms of `--select` mean together; without any, all tasks. Those that are disabled belong to it only
    /// when they are named in full.
    ///
    /// # Errors
    /// [`lake::ErrorKind::Spec`] for a term that means no task, with the nearest one.
    pub(crate) fn select(&self, terms: &[String]) -> Result<BTreeSet<TableName>> {
        if terms.is_empty() {
            return Ok(self.tasks.iter().filter(|task| !task.disabled).map(|task| task.name.clone()).collect());
        }
        let mut chosen = BTreeSet::new();
        for term in terms {
            let term = Term::parse(term);
            let named = self.named(term.pattern)?;
            let around = self.meant(&term)?;
            let is_on = |name: &TableName| named.contains(name) || self.task(name).is_some_and(|task| !task.disabled);
            chosen.extend(around.into_iter().filter(is_on));
        }
        Ok(chosen)
    }

    /// The tasks that a whole selection means.
    ///
    /// # Errors
    /// As [`select`](Self::select), and when nothing is left.
    pub(crate) fn choose(&self, selection: &Selection) -> Result<BTreeSet<TableName>> {
        let mut chosen = self.select(&selection.select)?;
        for term in &selection.exclude {
            let meant = self.meant(&Term::parse(term))?;
            chosen.retain(|name| !meant.contains(name));
        }
        if chosen.is_empty() && !self.tasks.is_empty() {
            let error = Error::spec("no task is left: all that are selected are disabled or excluded");
            return Err(
                error.hint("`orchestrator graph` draws the tasks; one that is disabled runs when it is named in full")
            );
        }
        Ok(chosen)
    }

    /// All that a term means, whether it is disabled or not.
    fn meant(&self, term: &Term<'_>) -> Result<BTreeSet<TableName>> {
        let tasks = self.matching(term.pattern)?;
        let mut meant = tasks.clone();
        if let Some(steps) = term.before {
            meant.extend(self.graph.with_needs(&tasks, steps));
        }
        if let Some(steps) = term.after {
            meant.extend(self.graph.with_dependents_within(&tasks, steps));
        }
        Ok(meant)
    }

    /// The task of this name; none for a pattern.
    fn named(&self, pattern: &str) -> Result<BTreeSet<TableName>> {
        let is_name = |name: &&TableName| name.to_string() == pattern;
        Ok(self.tasks.iter().map(|task| &task.name).filter(is_name).cloned().collect())
    }

    fn matching(&self, pattern: &str) -> Result<BTreeSet<TableName>> {
        let is_meant = |name: &&TableName| match pattern.contains(['.', '*']) {
            true => matches(pattern, &name.to_string()),
            false => name.layer.as_str() == pattern,
        };
        let found: BTreeSet<_> = self.tasks.iter().map(|task| &task.name).filter(is_meant).cloned().collect();
        if found.is_empty() { Err(self.unknown(pattern)) } else { Ok(found) }
    }

    fn unknown(&self, pattern: &str) -> Error {
        let known: Vec<String> = self.tasks.iter().map(|task| task.name.to_string()).collect();
        if pattern.contains('*') {
            let error = Error::spec(format!("no task is called `{pattern}`"));
            return error.hint("`*` stands for any characters; `orchestrator graph` draws the tasks");
        }
        let error = Error::spec(format!("there is no task `{pattern}`"));
        let same = known.iter().filter(|known| known.split_once('.').is_some_and(|(_, name)| name == pattern));
        let same: Vec<String> = same.map(|name| format!("`{name}`")).collect();
        match same[..] {
            [] => match did_you_mean(pattern, known.iter().map(String::as_str)) {
                Some(hint) => error.hint(hint),
                None => error.hint("the spec has no tasks"),
            },
            _ => error.hint(format!("did you mean {}?", same.join(" or "))),
        }
    }
}

impl<'a> Term<'a> {
    /// `[[N]+]pattern[+[N]]`. What does not look so is a pattern as a whole, and then no task is called so.
    fn parse(text: &'a str) -> Self {
        let steps = |digits: &str| match digits {
            "" => Some(None),
            digits => digits.parse().ok().map(Some),
        };
        let (mut pattern, mut before, mut after) = (text.trim(), None, None);
        if let Some((digits, rest)) = pattern.split_once('+')
            && let Some(far) = steps(digits)
            && !rest.is_empty()
        {
            (pattern, before) = (rest, Some(far));
        }
        if let Some((rest, digits)) = pattern.rsplit_once('+')
            && let Some(far) = steps(digits)
            && !rest.is_empty()
        {
            (pattern, after) = (rest, Some(far));
        }
        Self { pattern, before, after }
    }
}

/// Whether a name is a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.map(|at| &name[at..]).any(|name| matches(rest, name))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_says_how_far_around_a_name() {
        let term = |text| {
            let Term { pattern, before, after } = Term::parse(text);
            (pattern, before, after)
        };
        assert_eq!(term("silver.orders"), ("silver.orders", None, None));
        assert_eq!(term("+silver.orders+"), ("silver.orders", Some(None), Some(None)));
        assert_eq!(term("2+gold.x"), ("gold.x", Some(Some(2)), None));
        assert_eq!(term("gold+10"), ("gold", None, Some(Some(10))));
        assert_eq!(term("a+b"), ("a+b", None, None));
        assert_eq!(term("+"), ("+", None, None));
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, is_meant) in [
            ("silver.*", "silver.orders", true),
            ("*.orders", "silver.orders", true),
            ("*ord*s", "silver.orders", true),
            ("silver.o*x", "silver.orders", false),
            ("silver", "silver.orders", false),
            ("*", "gold.größe", true),
        ] {
            assert_eq!(matches(pattern, name), is_meant, "{pattern} {name}");
        }
    }
}
