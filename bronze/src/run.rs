//! One run of a source: what is planned is finished, then what has landed is planned and appended, batch by batch.

use lake::report::TaskReport;
use lake::run::RunContext;
use lake::{Error, ErrorKind, Lake, Result, Root};
use object_store::path::Path;

use crate::append::{Target, Work, sorted};
use crate::clean::clean;
use crate::discover::{Discovery, FoundFile, discover, list};
use crate::ledger::{Entry, Ledger, Status};
use crate::plan::SourcePlan;
use crate::progress::Progress;
use crate::replay::finish;
use crate::spec::OnOverwrite;
use crate::watch::Sightings;

/// What a run is told about its surroundings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told<'a> {
    /// What a watcher has seen of the files: those that still settle are left without waiting for them.
    pub sightings: Option<&'a Sightings>,
    /// True when files are read from elsewhere than the spec says, where folders may well be missing.
    pub elsewhere: bool,
}

/// Brings every file that landed for a source into its bronze table, once.
///
/// The files are those that are there when the run starts; what lands meanwhile is for the next run. A file that
/// cannot be read is left out as a whole, reported, and remembered; nothing else waits for it.
///
/// # Errors
/// [`ErrorKind::Store`] when a store fails and [`ErrorKind::Conflict`] when other runs always come first; both may be
/// tried again, and nothing is done twice. [`ErrorKind::File`] when a folder that had files is gone.
pub async fn run(
    lake: &Lake,
    landing: &Root,
    plan: &SourcePlan,
    told: Told<'_>,
    ctx: &RunContext,
) -> Result<TaskReport> {
    let work = Work { lake, landing, plan, ctx, ours: &[] };
    let mut progress = Progress::new(plan, ctx);
    match bring(work, told, &mut progress).await {
        Ok(version) => Ok(progress.report(version)),
        Err(error) => {
            progress.leave();
            Err(error)
        }
    }
}

/// Does the work of a run; returns the version of the table.
async fn bring(work: Work<'_>, told: Told<'_>, progress: &mut Progress<'_>) -> Result<Option<u64>> {
    let Work { lake, landing, plan, ctx, .. } = work;
    let mut target = Target::open(lake, &plan.table).await?;
    target.check(&plan.schema)?;
    let mut ledger = Ledger::open(lake, plan.source()).await?;
    let skip = storage_inside(lake.root(), landing)?;
    if !plan.include_existing_files {
        leave_existing(work, skip.as_deref(), &mut ledger, progress).await?;
    }
    finish(work, &mut target, &mut ledger, progress).await?;
    catch_up(work, &mut target, &mut ledger, progress).await?;
    let found =
        discover(landing, plan, skip.as_deref(), lake.clock(), told.sightings, |file| ledger.knows(file)).await?;
    if found.missing && ledger.planned() > 0 && !told.elsewhere {
        return Err(gone(plan));
    }
    progress.notice(&found);
    take(work, &found, &mut target, &mut ledger, progress).await?;
    progress.remember(&found.known, &ledger);
    progress.cleaned(clean(work, &target, &mut ledger, &found).await?);
    ledger.pack(&ctx.run).await?;
    Ok(target.version())
}

/// Plans and appends what was found and is not known, batch by batch.
async fn take(
    work: Work<'_>,
    found: &Discovery,
    target: &mut Target,
    ledger: &mut Ledger,
    progress: &mut Progress<'_>,
) -> Result<()> {
    let Work { plan, ctx, .. } = work;
    let mut waiting = sorted(found.ready.clone(), plan);
    while !waiting.is_empty() {
        ctx.stop.check()?;
        target.refresh().await?;
        let done = catch_up(work, target, ledger, progress).await?;
        waiting.retain(|file| !ledger.knows(file));
        let verdicts: Vec<Entry> = waiting.iter().filter_map(|file| verdict(plan, ledger, file)).collect();
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
        let count = next.len();
        if ledger.plan(done.max(ledger.planned()) + 1, next, &ctx.run).await? {
            progress.overwritten(&again);
            // Once per listing: what is gone or has changed by the time it is read is for the next run.
            waiting.drain(..count);
        }
    }
    if !found.ready.is_empty() {
        target.refresh().await?;
        catch_up(work, target, ledger, progress).await?;
    }
    Ok(())
}

/// At the very first run of a source that takes only what comes later, notes the files that are there.
async fn leave_existing(
    work: Work<'_>,
    skip: Option<&str>,
    ledger: &mut Ledger,
    progress: &mut Progress<'_>,
) -> Result<()> {
    while ledger.is_new() {
        let listing = list(work.landing, work.plan, skip).await?;
        let reason = "it was there when the source was started (`include_existing_files: false`)";
        let readable = listing.files.iter().filter(|file| file.unreadable.is_none());
        let entries: Vec<Entry> = readable.map(|file| Entry::new(None, file, Status::Existing, reason)).collect();
        let files = entries.len();
        // Without files the note is empty: that the source was started is what it says.
        if ledger.note(entries, &work.ctx.run).await? {
            progress.existing(files);
        }
    }
    Ok(())
}

/// A folder that had files and is not there is more likely a mount that is missing than a source that has ended.
pub(crate) fn gone(plan: &SourcePlan) -> Error {
    let message = format!("the folder `{}` of {} is gone: files were taken from it before", plan.folder, plan.table);
    Error::new(ErrorKind::File, message)
        .hint("mount it, or make it again; a source that has ended is taken off the spec")
}

/// Executes what is planned and not in the table; returns the last batch that is in the table.
pub(crate) async fn catch_up(
    work: Work<'_>,
    target: &mut Target,
    ledger: &mut Ledger,
    progress: &mut Progress<'_>,
) -> Result<i64> {
    let mut done = target.done().await?;
    loop {
        work.settle_notes(target, ledger, done).await?;
        if done >= ledger.planned() {
            return Ok(done);
        }
        work.ctx.stop.check()?;
        let executed = work.execute(target, ledger, done + 1).await?;
        progress.add(done + 1, &ledger.batch(done + 1), executed);
        done = target.done().await?;
        ledger.reload().await?;
    }
}

/// What the ledger notes of a file that is not to be read; `None` for a file to read.
fn verdict(plan: &SourcePlan, ledger: &Ledger, file: &FoundFile) -> Option<Entry> {
    let entry = |status, reason: String| Entry::new(None, file, status, reason);
    if let Some(reason) = &file.unreadable {
        return Some(entry(Status::Failed, reason.clone()));
    }
    let is_asked_for = plan.on_overwrite == OnOverwrite::Ingest || ledger.is_wanted_again(file);
    if is_asked_for || !ledger.is_overwritten_by(file) {
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
        FoundFile { path: path.into(), size, modified_us, etag: None, unreadable: None }
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
        send(run(lake, landing, plan, Told::default(), ctx));
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
