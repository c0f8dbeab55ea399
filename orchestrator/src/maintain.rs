//! Upkeep when it is due: which tables would gain from what, and doing it, as long as the budget lasts.
//!
//! What is due follows from the tables as they are, not from when something was done last; so nothing is remembered, and
//! upkeep that was cut short goes on the next time. All of it may happen beside writers.

use std::collections::BTreeSet;

use lake::log::{LogFiles, clean, look};
use lake::optimize::{Figures, Optimize};
use lake::report::{counted, size, thousands};
use lake::run::RunContext;
use lake::spec::{Duration, Maintenance};
use lake::vacuum::{Leftover, leftovers, remove, retention};
use lake::{Error, Lake, Result, Table, TableName};
use serde_json::{Value, json};

use crate::spec::Project;

/// Upkeep was done. Details: by table what and why.
const MAINTAINED: &str = "maintenance";
/// Files that went from a table may be those of a reader or writer that is so old.
const RETAIN_LEAST: Duration = Duration::from_days(7);

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
    /// What was done, in words; nothing in a preview, and where the budget was over.
    pub(crate) done: Vec<String>,
    pub(crate) is_left: bool,
    pub(crate) error: Option<Error>,
}

/// How far upkeep looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// At the newest version of a table alone.
    Log,
    /// Also at the files of its folder, which are listed.
    Folder,
}

/// Finds out what a table would gain from; `None` when there is no such table, or nothing is due.
///
/// # Errors
/// [`lake::ErrorKind::Store`] when table or folder cannot be read.
pub(crate) async fn due(project: &Project, lake: &Lake, name: &TableName, depth: Depth) -> Result<Option<Due>> {
    let wanted = project.header.maintenance.unwrap_or_default();
    let Some(table) = lake.table(name).await? else { return Ok(None) };
    let mut due = Due { name: name.clone(), why: Vec::new(), optimize: None, log: None, leftovers: Vec::new() };
    due.optimize = optimize(project, &table, &wanted, &mut due.why)?;
    if depth == Depth::Folder {
        let log = look(lake, &table).await?;
        let expired = log.expired.len();
        if expired as u64 >= wanted.log.expired_files {
            let bytes = size(log.expired_bytes());
            due.why.push(format!("clean the log: {} that no version needs, {bytes}", counted(expired, "file")));
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
    let asked = Optimize { zorder_by, file_size, ..Optimize::default() };
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

/// Does what is due of these tables, one after the other, as long as the budget lasts; with `dry_run` only says it.
pub(crate) async fn maintain(
    project: &Project,
    lake: &Lake,
    tables: &[TableName],
    depth: Depth,
    dry_run: bool,
    context: &RunContext,
) -> Result<Vec<Maintained>> {
    let budget = project.header.maintenance.unwrap_or_default().budget.as_std();
    let started = lake.clock().now();
    let mut all = Vec::new();
    for name in tables {
        let Some(due) = due(project, lake, name, depth).await? else { continue };
        let is_over = (lake.clock().now() - started).to_std().unwrap_or_default() >= budget;
        let mut told =
            Maintained { name: name.clone(), why: due.why.clone(), done: Vec::new(), is_left: is_over, error: None };
        if !dry_run && !is_over && !context.stop.is_raised() {
            told.error = once(lake, &due, context, &mut told.done).await.err();
        }
        all.push(told);
    }
    Ok(all)
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
    if let Some(log) = &due.log {
        clean(&table, log).await?;
        done.push(format!("{} of the log removed", counted(log.expired.len(), "file")));
    }
    if !due.leftovers.is_empty() {
        remove(lake, &table, &due.leftovers).await?;
        let bytes = size(due.leftovers.iter().map(|file| file.bytes).sum());
        done.push(format!("{} removed, {bytes}", counted(due.leftovers.len(), "file")));
    }
    Ok(())
}

/// Looks after the tables that a run has changed, where the spec asks for it; what was done is recorded with the run.
pub(crate) async fn after_run(project: &Project, lake: &Lake, changed: &BTreeSet<TableName>, context: &RunContext) {
    if !project.header.maintenance.is_some_and(|wanted| wanted.after_runs) {
        return;
    }
    let tables: Vec<TableName> = changed.iter().cloned().collect();
    match maintain(project, lake, &tables, Depth::Log, false, context).await {
        Ok(told) => record(&told, context),
        Err(error) => tracing::warn!(%error, "the tables of the run were not looked after"),
    }
}

/// Records what was done, and what failed.
pub(crate) fn record(told: &[Maintained], context: &RunContext) {
    use lake::events::Level;
    for one in told.iter().filter(|one| !one.done.is_empty() || one.error.is_some()) {
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
