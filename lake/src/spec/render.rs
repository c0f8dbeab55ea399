//! Problems as a person and as a program read them: text in the manner of a compiler, and JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::problems::{Problem, Problems};

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
    /// The report for a program: `{"file", "problems": [{"message", "path", "line", "hint"}]}`.
    pub fn to_json(&self) -> Value {
        let list: Vec<Value> = self
            .in_file_order()
            .into_iter()
            .map(|(line, problem)| {
                json!({
                    "message": redacted(self, &problem.message),
                    "path": problem.path.to_string(),
                    "line": line,
                    "hint": problem.hint.as_ref().map(|hint| redacted(self, hint)),
                })
            })
            .collect();
        json!({"file": self.text().map(|text| text.file()), "problems": list})
    }
}

fn one(out: &mut String, problems: &Problems, file: &str, line: Option<usize>, problem: &Problem) {
    let _ = writeln!(out, "error: {}", redacted(problems, &problem.message));
    let place = match line {
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    };
    let _ = writeln!(out, "{}", format!("  --> {place}  {}", problem.path).trim_end());
    let mut lines: Vec<usize> = problem.other_line.into_iter().chain(line).collect();
    lines.sort_unstable();
    lines.dedup();
    let width = lines.iter().max().map_or(1, |line| line.to_string().len());
    for line in lines {
        if let Some(content) = problems.text().and_then(|text| text.content(line)) {
            let _ = writeln!(out, "{}", format!("   |  {line:>width$} | {}", cut(content)).trim_end());
        }
    }
    if let Some(hint) = &problem.hint {
        let _ = writeln!(out, "  hint: {}", redacted(problems, hint));
    }
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
