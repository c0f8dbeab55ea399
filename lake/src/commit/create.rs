//! Making a table, once, whoever comes first.

use deltalake::DeltaTable;
use deltalake::kernel::transaction::CommitProperties;
use deltalake::protocol::SaveMode;

use crate::error::{Error, Result};
use crate::fault;
use crate::names::TableName;
use crate::table::{Definition, delta_schema};

/// Writes version 0 of a table.
///
/// # Errors
/// Any error, also when another writer made the table first: the caller looks for it afterwards.
pub(crate) async fn create(delta: DeltaTable, name: &TableName, definition: &Definition) -> Result<()> {
    let columns: Vec<_> = delta_schema(&definition.schema)?.fields().cloned().collect();
    let properties = definition.properties.iter().map(|(key, value)| (key.clone(), Some(value.clone())));
    let mut create = delta
        .create()
        .with_table_name(name.to_string())
        .with_columns(columns)
        .with_partition_columns(definition.partition_by.iter().cloned())
        .with_save_mode(SaveMode::ErrorIfExists)
        .with_raise_if_key_not_exists(false)
        .with_configuration(properties)
        .with_commit_properties(CommitProperties::default().with_max_retries(0));
    if let Some(description) = &definition.description {
        create = create.with_comment(description.clone());
    }
    create.await.map_err(Error::from)?;
    fault::after_commit("table_created")
}
