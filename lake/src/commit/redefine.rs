//! The metadata action of a commit that makes a table anew: other columns, other partitions, the same name.

use deltalake::DeltaTableError;
use deltalake::kernel::{Action, Metadata, MetadataExt};
use serde_json::Value;

use super::described::with_columns;
use crate::error::{Error, Result};
use crate::table::{Definition, Table};

/// The action that makes `table` what `definition` says; `None` when it is that already. Properties, and
/// descriptions of columns, that the definition does not name stay as they are; those of columns that it does not have
/// are left out.
///
/// Unlike [`evolve`](super::evolve) this may drop columns, change their types and change the partitioning: the commit
/// must then remove every file and add new ones, written by
/// [`TableWriter::redefined`](crate::write::TableWriter::redefined).
///
/// # Errors
/// [`ErrorKind::Table`](crate::ErrorKind::Table) when a type has no place in Delta.
pub fn redefine(table: &Table, definition: &Definition) -> Result<Option<Action>> {
    let held = table.delta().snapshot()?.metadata();
    let (properties, descriptions) = (table.properties()?, table.column_descriptions()?);
    let is_said = |(column, text): &(String, String)| {
        definition.schema.field_with_name(column).is_err() || descriptions.get(column) == Some(text)
    };
    let same = table.schema().fields() == definition.schema.fields()
        && held.partition_columns() == definition.partition_by.as_slice()
        && definition.description.as_deref().is_none_or(|text| held.description() == Some(text))
        && definition.column_descriptions.iter().all(is_said)
        && definition.properties.iter().all(|(key, value)| properties.get(key) == Some(value));
    if same {
        return Ok(None);
    }
    let mut metadata = with_columns(table, &definition.schema, &definition.column_descriptions)?;
    for (key, value) in &definition.properties {
        metadata = metadata.add_config_key(key.clone(), value.clone()).map_err(DeltaTableError::from)?;
    }
    if let Some(description) = &definition.description {
        metadata = metadata.with_description(description.clone()).map_err(DeltaTableError::from)?;
    }
    Ok(Some(Action::Metadata(partitioned(&metadata, &definition.partition_by)?)))
}

/// The library has no way to set the partition columns of a table that exists.
fn partitioned(metadata: &Metadata, columns: &[String]) -> Result<Metadata> {
    let broken =
        |error: serde_json::Error| Error::internal("the metadata of a table does not convert").with_source(error);
    let mut value = serde_json::to_value(metadata).map_err(broken)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("partitionColumns".to_owned(), Value::from(columns.to_vec()));
    }
    serde_json::from_value(value).map_err(broken)
}
