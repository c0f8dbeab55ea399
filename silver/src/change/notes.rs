//! What a person should know about how records are read.

use arrow::datatypes::SchemaRef;
use lake::{Error, Result, columns};

use super::operation::OperationReader;
use super::resolve::Resolved;
use crate::plan::TablePlan;
use crate::spec::Preset;

/// What to say when nothing of a preset's sequence is there.
pub(super) fn absent_sequence(resolved: &Resolved, plan: &TablePlan) -> Option<String> {
    let parts = resolved.sequence();
    let names: Vec<String> = parts.iter().map(|part| format!("`{}`", part.column.name)).collect();
    (!parts.is_empty() && !parts.iter().any(|part| part.column.is_there())).then(|| {
        let source = lake::TableName::bronze(&plan.source);
        format!(
            "{} is not in {source}: arrival alone orders the changes; say what does in `sequence_by`",
            names.join(", ")
        )
    })
}

/// What to do when a column is not there because another one holds its name and more: the delimiter of the files is wrong.
pub(super) fn glued<'n>(name: &str, known: impl Iterator<Item = &'n str>, source: &lake::TableName) -> Option<String> {
    let found = known.filter_map(|column| {
        let delimiter = [';', '\t', '|', ','].into_iter().find(|delimiter| column.contains(*delimiter))?;
        column.split(delimiter).any(|part| part.trim() == name).then_some((column, delimiter.escape_default()))
    });
    let (column, delimiter) = found.into_iter().next()?;
    Some(format!(
        "it is inside of `{column}`: say what divides the fields (`csv: {{delimiter: \"{delimiter}\"}}` of {source}), delete \
         the folder of {source} and run again"
    ))
}

/// What to say when the column of the operation is not there. Only files of a preset's own may lack it.
pub(super) fn absent_operation(
    operation: &OperationReader,
    plan: &TablePlan,
    bronze: &SchemaRef,
) -> Result<Option<String>> {
    let Some(column) = operation.absent() else { return Ok(None) };
    let known = bronze.fields().iter().map(|field| field.name().as_str()).filter(|name| !columns::is_technical(name));
    let source = lake::TableName::bronze(&plan.source);
    let known: Vec<&str> = known.collect();
    let hint = glued(column, known.iter().copied(), &source);
    let hint = hint.or_else(|| lake::spec::did_you_mean(column, known.iter().copied()));
    if plan.preset == Preset::Plain {
        let error =
            Error::spec(format!("{source} has no column `{column}`, which says what a record of {} does", plan.table));
        return Err(match hint {
            Some(hint) => error.hint(hint),
            None => error,
        });
    }
    let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    Ok(Some(format!("`{column}`, which says what a record does, is not in {source}: every record is an upsert{hint}")))
}
