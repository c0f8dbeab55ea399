//! Problems as a person and as a program read them: text in the manner of a compiler, and JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::problems::{Problem, Problems};
use crate::report::wrapped;

/// Longer lines of the spec are cut here, in characters.
const LINE_WIDTH_MAX: usize = 100;

/// The report for a terminal; ends with a line break.
pub(super) fn text(problems: &Problems) -> String {
    let mut out = String::new();
    let file = problems.text().map_or("spec", |text| text.file());
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    let _ = writeln!(out, "{file}: {count} {noun}");
    for (line, problem) in problems.in_file_order() {
        out.push('\n');
        one(&mut out, problems, file, line, problem);
    }
    out
}

impl Problems {
    /// The report for a program: `{"file", "problems": [{"message", "path", "line", "column", "hint"}]}`.
    pub fn to_json(&self) -> Value {
        let list: Vec<Value> = self
            .in_file_order()
            .into_iter()
            .map(|(line, problem)| {
                json!({
                    "message": redacted(self, &problem.message),
                    "path": problem.path.to_string(),
                    "line": line,
                    "column": self.place_of(problem).map(|place| place.column).filter(|column| *column > 0),
                    "hint": problem.hint.as_ref().map(|hint| redacted(self, hint)),
                })
            })
            .collect();
        json!({"file": self.text().map(|text| text.file()), "problems": list})
    }
}

fn one(out: &mut String, problems: &Problems, file: &str, line: Option<usize>, problem: &Problem) {
    let place = problems.place_of(problem);
    let _ = writeln!(out, "error: {}", redacted(problems, &problem.message));
    let at = match (line, place.filter(|place| place.column > 0)) {
        (Some(line), Some(place)) => format!("{file}:{line}:{}", place.column),
        (Some(line), None) => format!("{file}:{line}"),
        (None, _) => file.to_owned(),
    };
    let _ = writeln!(out, "{}", format!("  --> {at}  {}", problem.path).trim_end());
    let mut lines: Vec<usize> = problem.other_line.into_iter().chain(line).collect();
    lines.sort_unstable();
    lines.dedup();
    let width = lines.iter().max().map_or(1, |line| line.to_string().len());
    let shown: Vec<(usize, &str)> =
        lines.into_iter().filter_map(|line| Some((line, problems.text()?.content(line)?))).collect();
    if !shown.is_empty() {
        let _ = writeln!(out, " {:width$} |", "");
    }
    for (number, content) in shown {
        let marked = place.filter(|place| place.line == number && place.column > 0);
        let (content, marks) = window(content, marked.map(|place| (place.column, place.width.max(1))));
        let _ = writeln!(out, "{}", format!(" {number:>width$} | {content}").trim_end());
        if let Some(marks) = marks {
            let _ = writeln!(out, " {:width$} | {marks}", "");
        }
    }
    if let Some(hint) = &problem.hint {
        let hint = redacted(problems, hint);
        for (number, line) in hint.lines().enumerate() {
            let _ = writeln!(out, "{}", wrapped(if number == 0 { "  hint: " } else { "        " }, 8, line));
        }
    }
}

/// The part of a line that is shown, and the carets below it. Tabs stay tabs, so that both line up.
fn window(line: &str, marked: Option<(usize, usize)>) -> (String, Option<String>) {
    let chars: Vec<char> = line.chars().collect();
    let Some((column, width)) = marked else { return (cut(line), None) };
    let first = column - 1;
    let last = (first + width).min(chars.len().max(first + 1));
    // A place far to the right has the start of its line cut off.
    let skip = if last <= LINE_WIDTH_MAX { 0 } else { first.saturating_sub(LINE_WIDTH_MAX / 3) };
    let kept: String = chars.iter().skip(skip).collect();
    let (lead, gap) = if skip > 0 { ("…", " ") } else { ("", "") };
    let blank = |c: &char| if *c == '\t' { '\t' } else { ' ' };
    let before: String = chars.iter().take(first).skip(skip).map(blank).collect();
    let carets = "^".repeat((last - first).min(LINE_WIDTH_MAX));
    let pad = " ".repeat(first.saturating_sub(chars.len().max(skip)));
    (format!("{lead}{}", cut(&kept)), Some(format!("{gap}{before}{pad}{carets}")))
}

fn redacted(problems: &Problems, message: &str) -> String {
    problems.text().map_or_else(|| message.to_owned(), |text| text.redact(message))
}

fn cut(line: &str) -> String {
    if line.chars().count() <= LINE_WIDTH_MAX {
        return line.to_owned();
    }
    let mut shown: String = line.chars().take(LINE_WIDTH_MAX - 1).collect();
    shown.push('…');
    shown
}
