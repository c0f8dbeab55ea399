//! The summary of a run for a person: one small table per layer, then what needs attention, then one line.

use std::fmt::Write;
use std::time::Duration;

use super::Figures;
use super::grid::{Align, Grid, NOTHING};
use super::summary::{RunSummary, TaskOutcome, TaskStatus};
use crate::error::Error;
use crate::names::Layer;
use crate::secrets;

/// The width that the summary is made for, in characters.
pub const WIDTH: usize = 80;

/// Files, notes and the like that are listed for one task; more are counted.
const LISTED_MAX: usize = 10;

/// A command in backticks is kept on one line up to so many characters.
const WORD_MAX: usize = 60;

/// What to do about files that were refused.
const REFUSED_HINT: &str =
    "hint: land a mended file in its place, or mend the spec and run\n      `bronze reingest --files PATH`\n";

impl RunSummary {
    /// The summary as text of at most [`WIDTH`] characters a line where names allow it; ends with a line break.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if self.status() != TaskStatus::UpToDate {
            for layer in [Layer::Bronze, Layer::Silver, Layer::Gold] {
                let tasks: Vec<_> = self.tasks.iter().filter(|task| task.task.layer == layer).collect();
                if !tasks.is_empty() {
                    out.push_str(&layer_table(layer, &tasks));
                    out.push('\n');
                }
            }
        }
        let before = out.len();
        for task in &self.tasks {
            remarks(&mut out, task);
        }
        self.skips(&mut out);
        if self.refused() > 0 {
            out.push_str(REFUSED_HINT);
        }
        let verb = if self.still_refused() == 1 { "stays" } else { "stay" };
        if self.still_refused() > 0 {
            let files = counted(self.still_refused(), "file");
            let _ = writeln!(out, "{files} {verb} refused: `orchestrator runs show latest` says which and why");
        }
        let told = secrets::redacted(&out[before..]).into_owned();
        out.replace_range(before.., &told);
        if out.len() > before {
            out.push('\n');
        }
        out.push_str(&self.closing_line());
        out
    }

    /// Why tasks were not started; a reason of several tasks is said once.
    fn skips(&self, out: &mut String) {
        let mut reasons: Vec<(&str, Vec<&TaskOutcome>)> = Vec::new();
        for task in self.tasks.iter().filter(|task| task.status == TaskStatus::Skipped) {
            let Some(because) = task.skipped_because.as_deref() else { continue };
            match reasons.iter_mut().find(|(reason, _)| *reason == because) {
                Some((_, tasks)) => tasks.push(task),
                None => reasons.push((because, vec![task])),
            }
        }
        for (because, tasks) in reasons {
            let _ = match tasks[..] {
                [task] => writeln!(out, "{} skipped: {because}", task.task),
                _ => writeln!(out, "{} skipped: {because}", counted(tasks.len(), "task")),
            };
        }
    }

    fn closing_line(&self) -> String {
        let run = &self.run;
        let (tasks, elapsed) = (counted(self.tasks.len(), "task"), duration(self.elapsed));
        if self.status() == TaskStatus::UpToDate {
            let current = counted(self.count(TaskStatus::UpToDate), "task");
            return format!("run {run}: nothing to do, {current} up to date, {elapsed}\n");
        }
        let (changed, failed) = (self.count(TaskStatus::Succeeded), self.count(TaskStatus::Failed));
        let skipped = match self.count(TaskStatus::Skipped) {
            0 => String::new(),
            skipped => format!(", {skipped} skipped"),
        };
        let excluded = match self.count(TaskStatus::Excluded) {
            0 => String::new(),
            excluded => format!(", {excluded} excluded"),
        };
        let (read, quarantined) = (thousands(self.rows_in()), thousands(self.quarantined()));
        let refused = match self.refused() {
            0 => String::new(),
            refused => format!(", {} refused", counted(refused, "file")),
        };
        let ended = format!("{changed} changed, {failed} failed{skipped}{excluded}{refused}");
        let told = format!("{tasks}, {ended}, {read} rows in, {quarantined} quarantined, {elapsed}");
        let head = format!("run {run}:");
        if head.len() + 1 + told.len() <= WIDTH {
            return format!("{head} {told}\n");
        }
        let mut lines = vec!["  ".to_owned()];
        for part in told.split_inclusive(", ") {
            match lines.last_mut().filter(|line| line.len() + part.trim_end().len() <= WIDTH) {
                Some(line) => line.push_str(part),
                None => lines.push(format!("  {part}")),
            }
        }
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        format!("{head}\n{}\n", lines.join("\n"))
    }
}

/// A column of a figure: its title, a short one, and where it comes from.
type Figure = (&'static str, Option<&'static str>, fn(&Figures) -> u64);

fn layer_table(layer: Layer, tasks: &[&TaskOutcome]) -> String {
    let mut grid = Grid::new();
    grid.column("task", None, Align::Left, tasks.iter().map(|task| task.task.to_string()));
    grid.column("status", None, Align::Left, tasks.iter().map(|task| status_word(task).to_owned()));
    let mut figures: Vec<Figure> = match layer {
        Layer::Bronze => vec![
            ("files", None, |task| task.files),
            ("rows in", None, |task| task.read),
            ("appended", None, |task| task.appended),
            ("quarantined", Some("quar."), |task| task.quarantined),
        ],
        Layer::Silver => vec![
            ("rows in", None, |task| task.read),
            ("applied", None, |task| task.applied),
            ("superseded", Some("super."), |task| task.superseded),
            ("stale", None, |task| task.stale),
            ("quarantined", Some("quar."), |task| task.quarantined),
        ],
        _ => vec![("rows in", None, |task| task.read), ("written", None, |task| task.written)],
    };
    let rare: [Figure; 3] = [
        ("dropped", None, |task| task.dropped),
        ("ignored", None, |task| task.ignored),
        ("skipped", None, |task| task.skipped),
    ];
    figures.extend(rare.into_iter().filter(|(_, _, figure)| tasks.iter().any(|task| figure(&task.figures()) > 0)));
    for (name, short, figure) in figures {
        grid.column(name, short, Align::Right, tasks.iter().map(|task| cell(task, figure(&task.figures()))));
    }
    let version = |task: &&TaskOutcome| task.report.as_ref().and_then(|report| report.version);
    let versions = tasks.iter().map(|task| version(task).map_or(NOTHING.to_owned(), |version| version.to_string()));
    grid.column("version", Some("ver."), Align::Right, versions);
    grid.column("time", None, Align::Right, tasks.iter().map(|task| time(task)));
    grid.render(WIDTH)
}

fn cell(task: &TaskOutcome, figure: u64) -> String {
    match (figure, task.report.is_some()) {
        (0, _) | (_, false) => NOTHING.to_owned(),
        (figure, true) => thousands(figure),
    }
}

fn time(task: &TaskOutcome) -> String {
    match task.status {
        TaskStatus::Skipped | TaskStatus::Excluded => NOTHING.to_owned(),
        _ => duration(task.elapsed),
    }
}

fn status_word(task: &TaskOutcome) -> &'static str {
    match task.status {
        TaskStatus::Succeeded | TaskStatus::UpToDate if task.refused_files() => "refused",
        TaskStatus::Succeeded => "changed",
        TaskStatus::UpToDate => "current",
        TaskStatus::Failed => "failed",
        TaskStatus::Skipped => "skipped",
        TaskStatus::Excluded => "excluded",
    }
}

/// What a person should know about a task besides its figures.
fn remarks(out: &mut String, task: &TaskOutcome) {
    let name = &task.task;
    if let Some(error) = &task.error {
        let attempts = if task.attempts > 1 { format!(" after {} attempts", task.attempts) } else { String::new() };
        let _ = writeln!(out, "{name} failed{attempts}");
        out.push_str(&indented_error(error, 2));
    }
    let Some(report) = &task.report else { return };
    let files: Vec<_> = report.failed_files.iter().filter(|file| file.new).collect();
    for file in files.iter().take(LISTED_MAX) {
        let _ = writeln!(out, "{name} refused the file {}", file.path);
        out.push_str(&lines(&file.reason, 2));
    }
    if files.len() > LISTED_MAX {
        let _ = writeln!(out, "{name} refused {} more files", files.len() - LISTED_MAX);
    }
    for note in report.notes.iter().take(LISTED_MAX) {
        let _ = writeln!(out, "{name}: {note}");
    }
    if report.notes.len() > LISTED_MAX {
        let _ = writeln!(out, "{name}: {} more notes", report.notes.len() - LISTED_MAX);
    }
}

/// An error as a person reads it: `error: …`, its causes, and what to do, which is wrapped. Ends with a line break.
pub fn error_text(error: &Error) -> String {
    told(error) + &hint(error, 0)
}

/// The same behind so many spaces, with all of its lines wrapped.
pub fn indented_error(error: &Error, indent: usize) -> String {
    lines(&told(error), indent) + &hint(error, indent)
}

fn told(error: &Error) -> String {
    let mut out = format!("error: {error}\n");
    for cause in error.causes() {
        let _ = writeln!(out, "Caused by: {cause}");
    }
    out
}

/// What to do, without secrets: a line break within one would hide it from who looks for it later.
fn hint(error: &Error, indent: usize) -> String {
    let first = |number: usize| format!("{:indent$}{}", "", if number == 0 { "hint: " } else { "      " });
    let hint = secrets::redacted(error.hint_text().unwrap_or_default());
    hint.lines().enumerate().map(|(number, line)| wrapped(&first(number), indent + 6, line) + "\n").collect()
}

/// Lines behind so many spaces, wrapped and without secrets.
fn lines(text: &str, indent: usize) -> String {
    secrets::redacted(text).lines().map(|line| wrapped(&" ".repeat(indent), indent + 2, line) + "\n").collect()
}

/// A number with a comma between groups of three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 task`, `2 tasks`.
pub fn counted(number: usize, noun: &str) -> String {
    many(u64::try_from(number).unwrap_or(u64::MAX), noun)
}

/// The same of figures: `1 row`, `4,200 rows`.
pub fn many(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", thousands(number))
}

/// A length of time with the precision that a person wants: `0.31 s`, `12.4 s`, `3m 05s`, `2h 10m`.
pub fn duration(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let whole = elapsed.as_secs();
    match seconds {
        s if s < 9.995 => format!("{s:.2} s"),
        s if s < 59.95 => format!("{s:.1} s"),
        s if s < 3_600.0 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3_600, whole % 3_600 / 60),
    }
}

/// Bytes as a person reads them: `812 B`, `12.4 KiB`.
pub fn size(bytes: u64) -> String {
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let (mut whole, mut rest, mut unit) = (bytes, 0, units.next().unwrap_or_default());
    for next in units {
        if whole < 1_024 {
            break;
        }
        (rest, whole, unit) = (whole % 1_024, whole / 1_024, next);
    }
    if unit == "B" { format!("{whole} B") } else { format!("{whole}.{} {unit}", rest * 10 / 1_024) }
}

/// Words behind `first`, in lines of at most [`WIDTH`] characters where they allow it; those after the first line begin with
/// `indent` spaces. Without a line break at the end.
pub fn wrapped(first: &str, indent: usize, text: &str) -> String {
    let (mut lines, mut line, mut is_empty) = (String::new(), first.to_owned(), true);
    for word in words(text) {
        let space = if is_empty { "" } else { " " };
        if !is_empty && line.chars().count() + space.len() + word.chars().count() > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = format!("{:indent$}{word}", "");
        } else {
            line.push_str(space);
            line.push_str(word);
        }
        is_empty = false;
    }
    lines + line.trim_end()
}

/// The words of a text; what stands in backticks is one of them, unless it is long.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_whole = |text: &str| text.matches('`').count().is_multiple_of(2);
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let ends = || text.match_indices(' ').map(|(at, _)| at).chain([text.len()]);
        // A character has four bytes at most.
        let mut near = ends().take_while(|end| *end <= 4 * WORD_MAX);
        let whole = near.find(|end| is_whole(&text[..*end]) && text[..*end].chars().count() <= WORD_MAX);
        let end = whole.or_else(|| ends().next())?;
        rest = text.get(end + 1..);
        Some(&text[..end])
    })
}
