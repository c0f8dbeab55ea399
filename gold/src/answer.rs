//! What a gold task answers.

use std::collections::BTreeMap;

use lake::accounting::Figures;
use lake::commit::Outcome;
use lake::events::Level;
use lake::report::{TaskReport, TaskState};
use lake::run::RunContext;
use lake::{Result, Table, TableName};
use serde_json::Value;

use crate::publish::Published;

/// A source has no table yet.
pub(crate) fn waiting(table: &TableName, held: Option<&Table>, source: &TableName) -> TaskReport {
    let mut report = TaskReport::up_to_date(table.clone(), held.map(Table::version));
    report.notes.push(format!("waits for {source}, which has no rows yet"));
    report
}

/// There is nothing new.
pub(crate) fn up_to_date<'a>(
    table: &TableName,
    held: Option<&Table>,
    sources: impl IntoIterator<Item = &'a Table>,
) -> TaskReport {
    let mut report = TaskReport::up_to_date(table.clone(), held.map(Table::version));
    report.read = versions(sources);
    report
}

/// Rows were written. `read` counts the rows of the sources at the versions that were read.
///
/// # Errors
/// [`ErrorKind::Table`](lake::ErrorKind::Table) when a source is not loaded.
pub(crate) fn changed(table: &TableName, sources: &[Table], published: &Published) -> Result<TaskReport> {
    let mut read = 0;
    for source in sources {
        read += source.row_count()?.unwrap_or(0);
    }
    let mut notes = Vec::new();
    if let Outcome::AlreadyApplied { .. } = published.outcome {
        notes.push("another run computed the same at the same time".to_owned());
    }
    Ok(TaskReport {
        table: table.clone(),
        state: TaskState::Changed,
        figures: Figures { read, written: published.rows, ..Figures::default() },
        version: Some(published.outcome.version()),
        read: versions(sources),
        failed_files: Vec::new(),
        notes,
    })
}

/// Groups were computed anew: `rows` is how many rows they have.
pub(crate) fn refreshed<'a>(
    table: &TableName,
    sources: impl IntoIterator<Item = &'a Table>,
    outcome: Outcome,
    rows: u64,
) -> TaskReport {
    TaskReport {
        table: table.clone(),
        state: TaskState::Changed,
        figures: Figures { read: rows, written: rows, ..Figures::default() },
        version: Some(outcome.version()),
        read: versions(sources),
        failed_files: Vec::new(),
        notes: Vec::new(),
    }
}

/// Notes in the event log how a model was refreshed, and what a person should know of it.
pub(crate) fn record(ctx: &RunContext, table: &TableName, warning: Option<&str>, details: Value) {
    let level = if warning.is_some() { Level::Warning } else { Level::Info };
    let how = details["refresh"].as_str().unwrap_or("full").to_owned();
    let message = warning.map_or(how.clone(), |warning| format!("{how}: {warning}"));
    ctx.events.record(Some(&table.to_string()), "model_refreshed", level, message, details);
}

fn versions<'a>(sources: impl IntoIterator<Item = &'a Table>) -> BTreeMap<TableName, u64> {
    sources.into_iter().map(|source| (source.name().clone(), source.version())).collect()
}
