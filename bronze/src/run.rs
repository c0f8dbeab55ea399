//! One run of a source: what is planned is finished, then what has landed is planned and appended, batch by batch.

use std::collections::BTreeMap;

use lake::accounting::Figures;
use lake::events::Level;
use lake::report::{FailedFile, TaskReport, TaskState};
use lake::run::RunContext;
use lake::{Error, Lake, Result, Root};
use object_store::path::Path;
use serde_json::json;

use crate::append::{Executed, Target, Work, sorted};
use crate::discover::{Discovery, FoundFile, discover};
use crate::evolve::FileNote;
use crate::ledger::{Entry, Ledger, Status};
use crate::plan::SourcePlan;
use crate::spec::OnOverwrite;

/// Paths that one note names at most.
const NAMED_MAX: usize = 5;

/// Brings every file that landed for a source into its bronze table, once.
///
/// The files are those that are there when the run starts; what lands meanwhile is for the next run. A file that
/// cannot be read is left out as a whole, reported, and remembered; nothing else waits for it.
///
/// # Errors
/// [`ErrorKind::Store`](lake::ErrorKind::Store) when a store fails and [`ErrorKind::Conflict`](lake::ErrorKind::Conflict)
/// when other runs always come first; both may be tried again, and nothing is done twice.
pub async fn run(lake: &Lake, landing: &Root, plan: &SourcePlan, ctx: &RunContext) -> Result<TaskReport> {
    let work = Work { lake, landing, plan, ctx };
    let mut target = Target::open(lake, &plan.table).await?;
    target.check(&plan.schema)?;
    let mut ledger = Ledger::open(lake, plan.source()).await?;
    let mut progress = Progress::new(plan, ctx);
    catch_up(work, &mut target, &mut ledger, &mut progress).await?;
    let skip = storage_inside(lake.root(), landing)?;
    let found = discover(landing, plan, skip.as_deref(), lake.clock(), |file| ledger.knows(file)).await?;
    progress.notice(&found);
    let mut waiting = sorted(found.ready, plan);
    while !waiting.is_empty() {
        ctx.stop.check()?;
        target.refresh().await?;
        let done = catch_up(work, &mut target, &mut ledger, &mut progress).await?;
        waiting.retain(|file| !ledger.knows(file));
        let verdicts: Vec<Entry> = waiting.iter().filter_map(|file| verdict(plan, &ledger, file)).collect();
        if !verdicts.is_empty() {
            if ledger.note(verdicts.clone(), &ctx.run).await? {
                progress.left_out(&verdicts);
            }
            continue;
        }
        let next = first_batch(&waiting, plan);
        if next.is_empty() {
            break;
        }
        let again: Vec<String> =
            next.iter().filter(|file| ledger.is_overwritten_by(file)).map(|file| file.path.clone()).collect();
        if ledger.plan(done.max(ledger.planned()) + 1, next, &ctx.run).await? {
            progress.overwritten(&again);
        }
    }
    progress.remember(&found.known, &ledger);
    Ok(progress.report(target.version()))
}

/// Executes what is planned and not in the table; returns the last batch that is in the table.
async fn catch_up(
    work: Work<'_>,
    target: &mut Target,
    ledger: &mut Ledger,
    progress: &mut Progress<'_>,
) -> Result<i64> {
    let mut done = target.done().await?;
    while done < ledger.planned() {
        work.ctx.stop.check()?;
        let executed = work.execute(target, ledger, done + 1).await?;
        progress.add(done + 1, executed);
        done = target.done().await?;
    }
    Ok(done)
}

/// What the ledger notes of a file that is not to be read; `None` for a file to read.
fn verdict(plan: &SourcePlan, ledger: &Ledger, file: &FoundFile) -> Option<Entry> {
    let entry = |status, reason: String| Entry { batch: None, file: file.clone(), status, reason: Some(reason) };
    if let Err(reason) = &file.location {
        return Some(entry(Status::Failed, reason.clone()));
    }
    if plan.on_overwrite == OnOverwrite::Ingest || !ledger.is_overwritten_by(file) {
        return None;
    }
    let reason = "other content was taken under this path before";
    Some(match plan.on_overwrite {
        OnOverwrite::Ignore => entry(Status::Ignored, format!("{reason} (`on_overwrite: ignore`)")),
        _ => entry(Status::Failed, format!("{reason} (`on_overwrite: fail`)")),
    })
}

/// The files of the next batch, at least one if there is any.
fn first_batch<'a>(waiting: &'a [FoundFile], plan: &SourcePlan) -> &'a [FoundFile] {
    let mut bytes = 0_u64;
    let fits = waiting.iter().enumerate().take_while(|(index, file)| {
        bytes = bytes.saturating_add(file.size);
        *index == 0 || (bytes <= plan.max_bytes_per_batch && (*index as u64) < plan.max_files_per_batch)
    });
    let count = fits.count();
    &waiting[..count]
}

/// The folder below the landing root that is the lake's storage; nothing below it has landed.
pub(crate) fn storage_inside(storage: &Root, landing: &Root) -> Result<Option<String>> {
    let inside = storage.url().as_str().strip_prefix(landing.url().as_str());
    match inside.map(|rest| rest.trim_end_matches('/')) {
        None => Ok(None),
        Some("") => Err(Error::spec("the storage of the lake and the landing zone are the same folder")),
        Some(rest) => {
            match Path::from_url_path(rest) {
                Ok(path) => Ok(Some(path.as_ref().to_owned())),
                Err(error) => Err(Error::spec(format!("the storage `{storage}` has no name below the landing zone"))
                    .with_source(error)),
            }
        }
    }
}

/// What a run has done so far, for its report and its events.
struct Progress<'a> {
    plan: &'a SourcePlan,
    ctx: &'a RunContext,
    task: String,
    changed: bool,
    figures: Figures,
    failed: Vec<FailedFile>,
    notes: Vec<String>,
}

impl<'a> Progress<'a> {
    fn new(plan: &'a SourcePlan, ctx: &'a RunContext) -> Self {
        let (figures, failed, notes) = (Figures::default(), Vec::new(), Vec::new());
        Self { plan, ctx, task: plan.table.to_string(), changed: false, figures, failed, notes }
    }

    fn event(&self, kind: &'static str, level: Level, message: String, details: serde_json::Value) {
        self.ctx.events.record(Some(&self.task), kind, level, message, details);
    }

    fn add(&mut self, batch: i64, executed: Executed) {
        if !executed.ours {
            return;
        }
        let figures = executed.figures;
        let message = format!("batch {batch}: {} files, {} rows appended", figures.files, figures.appended);
        self.event(
            "batch_appended",
            Level::Info,
            message,
            json!({"batch": batch, "figures": figures, "new_columns": executed.new_columns}),
        );
        if executed.had_columns && !executed.new_columns.is_empty() {
            self.notes.push(format!("new columns: {}", named(&executed.new_columns)));
        }
        self.columns(&executed.column_notes);
        for (path, reason) in executed.failed {
            self.refuse(path, reason);
        }
        self.changed = true;
        self.figures = self.figures.and(figures);
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
        self.notes
            .extend(told.into_iter().take(NAMED_MAX).map(|(note, paths)| format!("{note}, in {}", named(&paths))));
    }

    fn refuse(&mut self, path: String, reason: String) {
        let message = format!("{path} is refused: {reason}");
        self.event("file_refused", Level::Warning, message, json!({"path": path, "reason": reason}));
        self.failed.push(FailedFile { path, reason, new: true });
    }

    fn left_out(&mut self, entries: &[Entry]) {
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
            self.notes.push(format!("came again with other content and left alone: {}", named(&ignored)));
        }
    }

    fn overwritten(&mut self, paths: &[String]) {
        for path in paths {
            let message = format!("{path} came again with other content and is a new arrival");
            self.event("file_overwritten", Level::Info, message, json!({"path": path}));
        }
        if !paths.is_empty() {
            self.notes.push(format!("came again with other content, taken as new arrivals: {}", named(paths)));
        }
    }

    fn notice(&mut self, found: &Discovery) {
        if found.missing {
            self.notes.push(format!("the folder `{}` is not there", self.plan.folder));
        }
        if !found.empty.is_empty() {
            self.notes.push(format!("left out until they have content (0 bytes): {}", named(&found.empty)));
        }
        if !found.changing.is_empty() {
            self.notes.push(format!("still being written, left for the next run: {}", named(&found.changing)));
        }
    }

    /// Mentions files that an earlier run refused and that are still there, unchanged.
    fn remember(&mut self, known: &[FoundFile], ledger: &Ledger) {
        for file in known {
            if let Some(reason) = ledger.failure(file)
                && !self.failed.iter().any(|failed| failed.path == file.path)
            {
                let (path, reason) = (file.path.clone(), reason.to_owned());
                self.failed.push(FailedFile { path, reason, new: false });
            }
        }
    }

    fn report(self, version: Option<u64>) -> TaskReport {
        TaskReport {
            state: if self.changed { TaskState::Changed } else { TaskState::UpToDate },
            figures: self.figures,
            failed_files: self.failed,
            notes: self.notes,
            ..TaskReport::up_to_date(self.plan.table.clone(), version)
        }
    }
}

/// Some paths or names for a note.
fn named(names: &[String]) -> String {
    let mut shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED_MAX {
        shown.push_str(&format!(" and {} more", names.len() - NAMED_MAX));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use lake::spec::Document;

    fn plan(options: &str) -> SourcePlan {
        let document =
            Document::parse("p.yaml", &format!("name: t\nbronze:\n  s: {{path: ./, format: csv, {options}}}\n"));
        let mut problems = document.problems();
        let entry = document.section("bronze", &mut problems).remove(0);
        crate::plan::compile(&entry, &mut problems).unwrap_or_else(|| panic!("{problems}"))
    }

    fn file(path: &str, size: u64, modified_us: i64) -> FoundFile {
        FoundFile { path: path.into(), size, modified_us, etag: None, location: Ok(Path::from(path)) }
    }

    #[test]
    fn a_batch_keeps_both_limits_and_holds_at_least_one_file() {
        let files: Vec<FoundFile> = (0..5).map(|number| file(&number.to_string(), 40, 0)).collect();
        let sizes = |options: &str| {
            let (plan, mut rest, mut sizes) = (plan(options), files.as_slice(), Vec::new());
            while !rest.is_empty() {
                let taken = first_batch(rest, &plan).len();
                sizes.push(taken);
                rest = &rest[taken..];
            }
            sizes
        };
        assert_eq!(sizes("max_files_per_batch: 2"), [2, 2, 1]);
        assert_eq!(sizes("max_bytes_per_batch: 100B"), [2, 2, 1]);
        assert_eq!(sizes("max_bytes_per_batch: 1B"), [1, 1, 1, 1, 1]);
        assert_eq!(sizes("max_files_per_batch: 4, max_bytes_per_batch: 120B"), [3, 2]);
        assert!(first_batch(&[], &plan("max_files_per_batch: 2")).is_empty());
    }

    /// A caller may run sources on any thread.
    fn _a_run_is_send(lake: &Lake, landing: &Root, plan: &SourcePlan, ctx: &RunContext) {
        fn send(_: impl Send) {}
        send(run(lake, landing, plan, ctx));
    }

    #[test]
    fn files_are_taken_in_the_order_that_was_asked_for() {
        let files = || vec![file("b", 1, 1), file("a/z", 1, 3), file("a", 1, 2), file("c", 1, 1)];
        let paths = |files: Vec<FoundFile>| files.into_iter().map(|file| file.path).collect::<Vec<_>>();
        assert_eq!(paths(sorted(files(), &plan("order: name"))), ["a", "a/z", "b", "c"]);
        assert_eq!(paths(sorted(files(), &plan("order: modification_time"))), ["b", "c", "a", "a/z"]);
    }

    #[test]
    fn storage_below_the_landing_zone_is_never_landing() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |path: &str| Root::open(path, folder.path()).expect("a root");
        let inside = |storage: &str, landing: &str| storage_inside(&open(storage), &open(landing));
        assert_eq!(inside("land/lake house/é", "land").expect("below").as_deref(), Some("lake house/é"));
        assert_eq!(inside("lakehouse", "landing").expect("beside"), None);
        assert_eq!(inside("land", "land/in").expect("above"), None);
        assert_eq!(inside("x", "x").expect_err("the same").kind(), lake::ErrorKind::Spec);
    }
}
