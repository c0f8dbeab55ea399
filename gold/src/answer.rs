//! What a gold task answers.

use std::collections::BTreeMap;

use lake::accounting::Figures;
use lake::commit::Outcome;
use lake::report::{TaskReport, TaskState};
use lake::{Result, Table, TableName};

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

fn versions<'a>(sources: impl IntoIterator<Item = &'a Table>) -> BTreeMap<TableName, u64> {
    sources.into_iter().map(|source| (source.name().clone(), source.version())).collect()
}
