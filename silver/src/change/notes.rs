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

/// What to say when the column of the operation is not there. Only files of a preset's own may lack it.
pub(super) fn absent_operation(
    operation: &OperationReader,
    plan: &TablePlan,
    bronze: &SchemaRef,
) -> Result<Option<String>> {
    let Some(column) = operation.absent() else { return Ok(None) };
    let known = bronze.fields().iter().map(|field| field.name().as_str()).filter(|name| !columns::is_technical(name));
    let hint = lake::spec::did_you_mean(column, known);
    let source = lake::TableName::bronze(&plan.source);
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
