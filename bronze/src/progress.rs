//! What a run of a source has done so far, for its report and its events.

use std::collections::BTreeMap;

use lake::events::Level;
use lake::report::{FailedFile, TaskReport, TaskState, counted, many};
use lake::run::RunContext;
use serde_json::json;

use crate::append::Executed;
use crate::clean::Cleaned;
use crate::discover::{Discovery, FoundFile};
use crate::evolve::{FileNote, delimiter_in};
use crate::ledger::{Entry, Ledger, Status};
use crate::plan::SourcePlan;

/// Paths that one note names at most.
const NAMED_MAX: usize = 5;
/// Paths of a batch that its event holds at most.
const RECORDED_MAX: usize = 1_000;

pub(crate) struct Progress<'a> {
    plan: &'a SourcePlan,
    ctx: &'a RunContext,
    task: String,
    done: TaskReport,
}

impl<'a> Progress<'a> {
    /// The progress of a run, on top of what an earlier attempt of its task did.
    pub(crate) fn new(plan: &'a SourcePlan, ctx: &'a RunContext) -> Self {
        let done = ctx.earlier.take().unwrap_or_else(|| TaskReport::up_to_date(plan.table.clone(), None));
        Self { plan, ctx, task: plan.table.to_string(), done }
    }

    fn event(&self, kind: &'static str, level: Level, message: String, details: serde_json::Value) {
        self.ctx.events.record(Some(&self.task), kind, level, message, details);
    }

    /// Says something to a person, once.
    fn note(&mut self, note: String) {
        if !self.done.notes.contains(&note) {
            self.done.notes.push(note);
        }
    }

    pub(crate) fn add(&mut self, batch: i64, files: &[FoundFile], executed: Executed) {
        if !executed.ours {
            return;
        }
        let figures = executed.figures;
        let is_taken = |file: &&FoundFile| !executed.failed.iter().any(|(path, _)| *path == file.path);
        let taken: Vec<&str> =
            files.iter().filter(is_taken).take(RECORDED_MAX).map(|file| file.path.as_str()).collect();
        let message =
            format!("batch {batch}: {}, {} appended", many(figures.files, "file"), many(figures.appended, "row"));
        self.event(
            "batch_appended",
            Level::Info,
            message,
            json!({"batch": batch, "figures": figures, "new_columns": executed.new_columns, "files": taken}),
        );
        if executed.had_columns && !executed.new_columns.is_empty() {
            self.note(format!("new columns: {}", named(&executed.new_columns)));
        }
        if self.plan.is_delimited() {
            self.glued(&executed.new_columns, executed.had_columns);
        }
        self.columns(&executed.column_notes);
        for (path, reason) in executed.failed {
            self.refuse(path, reason);
        }
        self.done.state = TaskState::Changed;
        self.done.figures = self.done.figures.and(figures);
    }

    /// Tells of a column whose name holds the names of several: the delimiter is another one. To begin anew is only
    /// told where nothing else has been taken.
    fn glued(&mut self, columns: &[String], had_columns: bool) {
        let delimiter = columns.iter().find_map(|name| Some((name, delimiter_in(name)?)));
        if let Some((name, delimiter)) = delimiter {
            let (shown, table) = (delimiter.escape_default(), &self.plan.table);
            let is_told = |name: &String| {
                let hints = self.plan.schema.hints.iter().map(|hint| &hint.name);
                hints.chain(&self.plan.partition_columns).any(|told| told.eq_ignore_ascii_case(name))
            };
            let all = !had_columns && columns.iter().all(|name| delimiter_in(name).is_some() || is_told(name));
            let message = match all {
                true => format!(
                    "`{name}` is one column: if `{shown}` divides the fields, say so (`csv: {{delimiter: \"{shown}\"}}`), \
                     delete the folder of {table} and run again"
                ),
                false => format!(
                    "`{name}` is one column: if `{shown}` divides the fields of its file, write that file with the \
                     delimiter of the others; {table} keeps what it has"
                ),
            };
            self.event(
                "columns_glued",
                Level::Warning,
                message.clone(),
                json!({"column": name, "delimiter": shown.to_string()}),
            );
            self.note(message);
        }
    }

    /// Tells what was odd about the columns of files: each in an event, the same of several files in one note.
    fn columns(&mut self, notes: &[(String, FileNote)]) {
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (path, note) in notes {
            let kind = if note.is_rename() { "columns_renamed" } else { "columns_left_out" };
            let details = json!({"path": path, "gone": note.gone, "new": note.new});
            self.event(kind, Level::Warning, format!("{path}: {note}"), details);
            told.entry(note.to_string()).or_default().push(path.clone());
        }
        for (note, paths) in told.into_iter().take(NAMED_MAX) {
            self.note(format!("{note}, in {}", named(&paths)));
        }
    }

    fn refuse(&mut self, path: String, reason: String) {
        let message = format!("{path} is refused: {reason}");
        self.event("file_refused", Level::Warning, message, json!({"path": path, "reason": reason}));
        self.done.failed_files.push(FailedFile { path, reason, new: true });
    }

    pub(crate) fn left_out(&mut self, entries: &[Entry]) {
        let (mut ignored, reason_of) = (Vec::new(), |entry: &Entry| entry.reason.clone().unwrap_or_default());
        for entry in entries {
            let path = entry.file.path.clone();
            match entry.status {
                Status::Failed => self.refuse(path, reason_of(entry)),
                _ => {
                    let (message, details) = (format!("{path}: {}", reason_of(entry)), json!({"path": path}));
                    self.event("file_ignored", Level::Info, message, details);
                    ignored.push(path);
                }
            }
        }
        if !ignored.is_empty() {
            self.note(format!("came again with other content and left alone: {}", named(&ignored)));
        }
    }

    /// The files that were there when the source was started.
    pub(crate) fn existing(&mut self, files: usize) {
        let message = format!(
            "{} not taken: there before the first run (`include_existing_files: false`)",
            counted(files, "file")
        );
        self.event("existing_files_left", Level::Info, message.clone(), json!({"files": files}));
        self.note(message);
    }

    pub(crate) fn overwritten(&mut self, paths: &[String]) {
        for path in paths {
            let message = format!("{path} came again with other content and is a new arrival");
            self.event("file_overwritten", Level::Info, message, json!({"path": path}));
        }
        if !paths.is_empty() {
            self.note(format!("came again with other content, taken as new arrivals: {}", named(paths)));
        }
    }

    pub(crate) fn notice(&mut self, found: &Discovery) {
        if found.missing {
            let message = format!("the folder `{}` is not there", self.plan.folder);
            let details = json!({"folder": self.plan.folder});
            self.event("folder_missing", Level::Warning, message.clone(), details);
            self.note(format!("{message}: nothing has landed, or `path` is wrong"));
        }
        self.missed(found);
        if !found.empty.is_empty() {
            self.note(format!("left out until they have content (0 bytes): {}", named(&found.empty)));
        }
        if !found.changing.is_empty() {
            self.note(format!("still being written, left for the next run: {}", named(&found.changing)));
        }
    }

    /// Tells of files that `include` does not take: when it takes none, and those that it takes all but for a detail.
    fn missed(&mut self, found: &Discovery) {
        let missed = &found.missed;
        let none = [&found.ready, &found.known].iter().all(|files| files.is_empty())
            && [&found.empty, &found.changing].iter().all(|paths| paths.is_empty());
        let near = [&missed.by_case, &missed.by_packing].into_iter().flatten().next();
        if let Some(example) = missed.other.as_ref().or(near).filter(|_| none) {
            let there = if missed.files == 1 { "is" } else { "are" };
            let files = counted(missed.files, "file");
            self.note(format!("{files} {there} there and none matches `include`: {example}, for one"));
        }
        let near = [
            (&missed.by_case, "`include` matches but for capitals (`[cC][sS][vV]` matches both)"),
            (&missed.by_packing, "`include` matches but for the ending of a compression (add `*.gz`)"),
        ];
        for (paths, why) in near.into_iter().filter(|(paths, _)| !paths.is_empty()) {
            self.note(format!("not taken, {why}: {}; `exclude` what is meant to stay out", named(paths)));
        }
    }

    /// Mentions files that an earlier run refused and that are still there, unchanged.
    pub(crate) fn remember(&mut self, known: &[FoundFile], ledger: &Ledger) {
        for file in known {
            if let Some(reason) = ledger.failure(file)
                && !self.done.failed_files.iter().any(|failed| failed.path == file.path)
            {
                let (path, reason) = (file.path.clone(), reason.to_owned());
                self.done.failed_files.push(FailedFile { path, reason, new: false });
            }
        }
    }

    pub(crate) fn cleaned(&mut self, cleaned: Cleaned) {
        for (path, to) in &cleaned.done {
            let message = match to {
                Some(to) => format!("{path} is moved to {to}: its records are in the table"),
                None => format!("{path} is deleted: its records are in the table"),
            };
            self.event("file_cleaned", Level::Info, message, json!({"path": path, "to": to}));
        }
        for (path, reason) in &cleaned.failed {
            let message = format!("{path} could not be cleaned up: {reason}");
            self.event("file_not_cleaned", Level::Warning, message, json!({"path": path, "reason": reason}));
        }
        let paths = |list: Vec<String>| named(&list);
        if !cleaned.done.is_empty() {
            let word = if cleaned.done.iter().any(|(_, to)| to.is_some()) { "moved" } else { "deleted" };
            let done = cleaned.done.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
            self.note(format!("{word}, as their records are in the table: {}", paths(done)));
        }
        if let Some((path, reason)) = cleaned.failed.into_iter().next() {
            self.note(format!("could not be cleaned up, a later run tries again: {path}: {reason}"));
        }
    }

    /// Keeps what was done for the next attempt.
    pub(crate) fn leave(self) {
        self.ctx.earlier.put(self.done);
    }

    pub(crate) fn report(self, version: Option<u64>) -> TaskReport {
        TaskReport { version, ..self.done }
    }
}

/// Some paths or names for a note.
pub(crate) fn named(names: &[String]) -> String {
    let mut shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED_MAX {
        shown.push_str(&format!(" and {} more", names.len() - NAMED_MAX));
    }
    shown
}
