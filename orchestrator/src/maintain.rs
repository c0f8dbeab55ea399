//! Upkeep when it is due: which tables would gain from what, and doing it, as long as the budget lasts.
//!
//! What is due follows from the tables as they are, so upkeep that was cut short goes on the next time. All of it may happen
//! beside writers. Small files and deleted rows are looked for after each run, in the tables that it has changed; folders
//! and logs, which must be listed, once a day or once a window.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use chrono::NaiveTime;
use lake::log::{LogFiles, clean, look};
use lake::optimize::{Figures, Optimize};
use lake::report::{counted, size, thousands};
use lake::rounds::{Each, Round};
use lake::run::RunContext;
use lake::spec::{Duration, Maintenance};
use lake::vacuum::{Leftover, leftovers, remove, retention};
use lake::{Error, Lake, Layer, Result, Retry, RunId, Table, TableName};
use serde_json::{Value, json};

use crate::spec::Project;

/// Upkeep was done. Details: by table what and why.
const MAINTAINED: &str = "maintenance";
/// Files that went from a table may be those of a reader or writer that is so old.
const RETAIN_LEAST: Duration = Duration::from_days(7);
/// Versions of the event log between two looks at the tables that the program keeps for itself.
const OWN_EVERY: u64 = 32;

/// What a table would gain from.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) name: TableName,
    /// What is due and why, in words.
    pub(crate) why: Vec<String>,
    optimize: Option<Optimize>,
    log: Option<LogFiles>,
    leftovers: Vec<Leftover>,
}

impl Due {
    fn is_any(&self) -> bool {
        !self.why.is_empty()
    }
}

/// What became of a table.
#[derive(Debug)]
pub(crate) struct Maintained {
    pub(crate) name: TableName,
    pub(crate) why: Vec<String>,
    /// What was done, in words; nothing in a preview.
    pub(crate) done: Vec<String>,
    /// The budget was over before anybody looked at it.
    pub(crate) is_left: bool,
    pub(crate) error: Option<Error>,
}

impl Maintained {
    fn new(name: &TableName) -> Self {
        Self { name: name.clone(), why: Vec::new(), done: Vec::new(), is_left: false, error: None }
    }

    fn is_recorded(&self) -> bool {
        !self.done.is_empty() || self.error.is_some()
    }
}

/// How far upkeep looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// At the newest version of a table alone.
    Log,
    /// Also at the files of its folder, which are listed.
    Folder,
}

/// What the spec wants of a table; what it does not say is as always.
fn wanted(project: &Project, name: &TableName) -> Maintenance {
    let all = project.header.maintenance.clone().unwrap_or_default();
    match project.task(name).and_then(|task| task.maintenance) {
        Some(own) => all.of_table(&own),
        None => all,
    }
}

/// True for a table that runs look after: those of the program's own are, others where the spec asks for it.
fn is_looked_after(project: &Project, name: &TableName) -> bool {
    let is_asked =
        project.header.maintenance.is_some() || project.task(name).is_some_and(|task| task.maintenance.is_some());
    is_own(name) || (is_asked && wanted(project, name).after_runs)
}

/// True for a table that the program keeps for itself.
fn is_own(name: &TableName) -> bool {
    !matches!(name.layer, Layer::Bronze | Layer::Silver | Layer::Gold)
}

/// True for a table that puts its small files together itself, and knows which may go together.
fn packs_itself(name: &TableName) -> bool {
    is_own(name) && !matches!(name.layer, Layer::Quarantine | Layer::State)
}

/// Finds out what a table would gain from; `None` when there is no such table, or nothing is due.
///
/// # Errors
/// [`lake::ErrorKind::Store`] when table or folder cannot be read.
pub(crate) async fn due(project: &Project, lake: &Lake, name: &TableName, depth: Depth) -> Result<Option<Due>> {
    let wanted = wanted(project, name);
    let Some(table) = lake.table(name).await? else { return Ok(None) };
    let mut due = Due { name: name.clone(), why: Vec::new(), optimize: None, log: None, leftovers: Vec::new() };
    if !packs_itself(name) {
        due.optimize = optimize(project, &table, &wanted, &mut due.why)?;
    }
    if depth == Depth::Folder {
        let log = look(lake, &table).await?;
        let (expired, bytes) = (log.expired.len(), log.expired_bytes());
        let is_large = bytes >= wanted.log.expired_size.as_bytes();
        if expired > 0 && (is_large || expired as u64 >= wanted.log.expired_files) {
            let (files, bytes) = (counted(expired, "file"), size(bytes));
            due.why.push(format!("clean the log: {files} that no version needs, {bytes}"));
            due.log = Some(log);
        }
        let retain = wanted.vacuum.retain.map_or_else(|| retention(&table), |retain| Ok(retain.as_std()))?;
        due.leftovers = leftovers(lake, &table, retain.max(RETAIN_LEAST.as_std())).await?;
        if !due.leftovers.is_empty() {
            let bytes = size(due.leftovers.iter().map(|file| file.bytes).sum());
            due.why.push(format!("vacuum: {} that nothing needs, {bytes}", counted(due.leftovers.len(), "file")));
        }
    }
    Ok(due.is_any().then_some(due))
}

fn optimize(project: &Project, table: &Table, wanted: &Maintenance, why: &mut Vec<String>) -> Result<Option<Optimize>> {
    let zorder_by = project.task(table.name()).map(|task| task.job.zorder_by().to_vec()).unwrap_or_default();
    let schema = table.schema();
    let zorder_by = zorder_by.into_iter().filter(|column| schema.index_of(column).is_ok()).collect();
    let file_size = wanted.optimize.target_file_size.as_bytes().max(1);
    let asked = Optimize { zorder_by, file_size, tiered: true, ..Optimize::default() };
    // Columns with mapped names and the like: such a table can be read, not changed.
    let Ok(gain) = asked.plan(table) else { return Ok(None) };
    let files = table.listed_files()?;
    let deleted: u64 = files.iter().map(|file| file.deleted).sum();
    let rows: u64 = files.iter().filter_map(|file| file.rows).sum();
    let fraction = if rows == 0 { 0.0 } else { deleted as f64 / rows as f64 };
    let is_many = gain.files_removed >= wanted.optimize.small_files;
    let is_purge = gain.rows_purged > 0 && fraction > wanted.optimize.deleted_fraction;
    if is_many {
        why.push(format!("optimize: {} files would gain, {}", thousands(gain.files_removed), size(gain.bytes_removed)));
    }
    if is_purge {
        why.push(format!("optimize: {} of {} rows are marked as deleted", thousands(deleted), thousands(rows)));
    }
    Ok((is_many || is_purge).then_some(asked))
}

/// Does what is due of these tables, one after the other, as long as the budget lasts and nobody says stop; with `dry_run`
/// only says it. What fails for one table is told with it, and ends nothing else.
pub(crate) async fn maintain(
    project: &Project,
    lake: &Lake,
    tables: &[TableName],
    depth: Depth,
    dry_run: bool,
    context: &RunContext,
) -> Vec<Maintained> {
    let budget = project.header.maintenance.clone().unwrap_or_default().budget.as_std();
    let started = lake.clock().now();
    let mut all = Vec::new();
    for name in tables {
        if context.stop.is_raised() {
            break;
        }
        let mut told = Maintained::new(name);
        if (lake.clock().now() - started).to_std().unwrap_or_default() >= budget {
            all.push(Maintained { is_left: true, ..told });
            continue;
        }
        match due(project, lake, name, depth).await {
            Ok(None) => continue,
            Ok(Some(due)) => {
                told.why.clone_from(&due.why);
                if !dry_run && !context.stop.is_raised() {
                    told.error = once(lake, &due, context, &mut told.done).await.err();
                }
            }
            Err(error) => told.error = Some(error),
        }
        all.push(told);
    }
    all
}

async fn once(lake: &Lake, due: &Due, context: &RunContext, done: &mut Vec<String>) -> Result<()> {
    if let Some(asked) = &due.optimize {
        let figures: Figures = lake::commit::redoing(lake.clock(), async || {
            let mut table = lake.existing(&due.name).await?;
            asked.run(lake, &mut table, &context.run).await
        })
        .await?;
        done.push(format!("{} files became {}", thousands(figures.files_removed), thousands(figures.files_added)));
    }
    let table = lake.existing(&due.name).await?;
    if let Some(log) = &due.log
        && clean(lake, &table, log).await?
    {
        done.push(format!("{} of the log removed", counted(log.expired.len(), "file")));
    }
    if !due.leftovers.is_empty() {
        let gone = remove(lake, &table, &due.leftovers).await?;
        let bytes = size(gone.iter().map(|file| file.bytes).sum());
        done.push(format!("{} removed, {bytes}", counted(gone.len(), "file")));
    }
    Ok(())
}

/// Looks after the tables that a run has changed, where the spec asks for it; what was done is recorded with the run. In a
/// window it is all tables, and outside of it none.
pub(crate) async fn after_run(project: &Project, lake: &Lake, changed: &BTreeSet<TableName>, context: &RunContext) {
    let window = project.header.maintenance.as_ref().and_then(|wanted| wanted.window.as_ref());
    let tables: Vec<TableName> = match window {
        Some(window) if !window.is_open(lake.clock().now(), project.header.timezone) => return,
        Some(_) => project.tasks.iter().map(|task| task.name.clone()).collect(),
        None => changed.iter().cloned().collect(),
    };
    let tables: Vec<TableName> = tables.into_iter().filter(|name| is_looked_after(project, name)).collect();
    record(&maintain(project, lake, &tables, Depth::Log, false, context).await, context);
}

/// Looks after all tables, also those that the program keeps for itself, now and then. True when something was recorded.
///
/// Folders and logs must be listed, so that is done by the first run of each day, and where upkeep has a window by the first
/// run in it. What was left, because the budget was over or the run was stopped, is done by the next run. Each run adds
/// small files to the tables of the program, so one in so many looks at their newest versions, by the versions of the event
/// log.
pub(crate) async fn now_and_then(project: &Project, lake: &Lake, context: &RunContext) -> bool {
    let mut told = Vec::new();
    if !context.stop.is_raised()
        && let Err(error) = round(project, lake, context, &mut told).await
    {
        tracing::warn!(%error, "not all tables were looked after");
    }
    record(&told, context);
    told.iter().any(Maintained::is_recorded)
}

async fn round(project: &Project, lake: &Lake, context: &RunContext, told: &mut Vec<Maintained>) -> Result<()> {
    let now = lake.clock().now();
    let day = now.date_naive().and_time(NaiveTime::MIN).and_utc();
    let window = project.header.maintenance.as_ref().and_then(|wanted| wanted.window.as_ref());
    let opened = window.map_or(Some(day), |window| window.opened(now, project.header.timezone));
    let tables = lake.tables().await?;
    let (mut own, others): (Vec<TableName>, Vec<TableName>) = tables.into_iter().partition(is_own);
    let others = others.into_iter().filter(|name| is_looked_after(project, name)).collect();
    for (kind, begin, mut tables) in [("own", Some(day), own.clone()), ("tables", opened, others)] {
        let Some(begin) = begin else { continue };
        let Some(round) = Round::due(lake, kind, Each::Period { begin, now }).await? else { continue };
        // Where the budget is too short for all, each table is the first some time.
        start_anywhere(&mut tables, &context.run);
        let mut looked = maintain(project, lake, &tables, Depth::Folder, false, context).await;
        again(project, lake, &mut looked, context).await;
        let is_done = !context.stop.is_raised() && looked.iter().all(|one| !one.is_left);
        told.extend(looked);
        if is_done {
            round.done(lake, &context.run).await?;
        }
    }
    if let Some(round) = Round::due(lake, "small", Each::Versions(OWN_EVERY)).await? {
        start_anywhere(&mut own, &context.run);
        let looked = maintain(project, lake, &own, Depth::Log, false, context).await;
        let is_done = !context.stop.is_raised() && looked.iter().all(|one| !one.is_left);
        told.extend(looked);
        if is_done {
            round.done(lake, &context.run).await?;
        }
    }
    Ok(())
}

/// Puts the tables into an order that begins at another one in each run.
fn start_anywhere(tables: &mut [TableName], run: &RunId) {
    let mut hasher = DefaultHasher::new();
    run.as_str().hash(&mut hasher);
    let first = hasher.finish() % (tables.len() as u64).max(1);
    tables.rotate_left(usize::try_from(first).unwrap_or_default());
}

/// Tries those once more that failed for a reason that passes: the next round may be a week away.
async fn again(project: &Project, lake: &Lake, looked: &mut [Maintained], context: &RunContext) {
    let passes = |one: &Maintained| one.error.as_ref().is_some_and(|error| error.retry() != Retry::Never);
    let failed: Vec<TableName> = looked.iter().filter(|one| passes(one)).map(|one| one.name.clone()).collect();
    if failed.is_empty() || looked.iter().any(|one| one.is_left) {
        return;
    }
    for mut tried in maintain(project, lake, &failed, Depth::Folder, false, context).await {
        let first = looked.iter_mut().find(|one| one.name == tried.name && !tried.is_left);
        if let Some(first) = first {
            let mut done = std::mem::take(&mut first.done);
            done.append(&mut tried.done);
            *first = Maintained { done, ..tried };
        }
    }
}

/// Records what was done, and what failed.
pub(crate) fn record(told: &[Maintained], context: &RunContext) {
    use lake::events::Level;
    for one in told.iter().filter(|one| one.is_recorded()) {
        let task = one.name.to_string();
        let (level, message) = match &one.error {
            Some(error) => (Level::Warning, error.to_string()),
            None => (Level::Info, one.done.join(", ")),
        };
        context.events.record(Some(&task), MAINTAINED, level, message, object(one));
    }
}

/// For programs.
pub(crate) fn object(told: &Maintained) -> Value {
    json!({
        "table": told.name.to_string(),
        "why": told.why,
        "done": told.done,
        "left": told.is_left,
        "error": told.error.as_ref().map(lake::report::error_json),
    })
}
