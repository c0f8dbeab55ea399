//! Making a table, once, whoever comes first.

use std::collections::BTreeMap;

use deltalake::DeltaTable;
use deltalake::kernel::transaction::CommitProperties;
use deltalake::kernel::{Action, Add, CommitInfo};
use deltalake::protocol::SaveMode;
use object_store::ObjectStoreExt;
use serde_json::json;

use super::described::described;
use crate::clock::Clock;
use crate::columns;
use crate::error::{Error, Result};
use crate::fault;
use crate::log;
use crate::names::TableName;
use crate::table::{Definition, Table, delta_schema};

/// The property that says after how many versions a checkpoint is written, and what new tables get when nothing else is
/// asked for: what Spark uses. Every opening reads the entries since the last one, several times over; the library would
/// write one in a hundred.
const CHECKPOINTS: (&str, &str) = ("delta.checkpointInterval", "10");

/// Writes version 0 of a table.
///
/// # Errors
/// Any error, also when another writer made the table first: the caller looks for it afterwards.
pub(crate) async fn create(delta: DeltaTable, name: &TableName, definition: &Definition, clock: &Clock) -> Result<()> {
    forget_checkpoint(&delta).await?;
    let descriptions = definition.column_descriptions.iter().cloned().collect();
    let columns: Vec<_> = delta_schema(&described(&definition.schema, &descriptions))?.fields().cloned().collect();
    let is_asked = definition.properties.iter().any(|(key, _)| key == CHECKPOINTS.0);
    let own = Some(CHECKPOINTS).filter(|_| !is_asked).map(|(key, value)| (key.to_owned(), value.to_owned()));
    let properties = definition.properties.iter().cloned().chain(own).map(|(key, value)| (key, Some(value)));
    let mut create = delta
        .create()
        .with_table_name(name.to_string())
        .with_columns(columns)
        .with_partition_columns(definition.partition_by.iter().cloned())
        .with_save_mode(SaveMode::ErrorIfExists)
        .with_raise_if_key_not_exists(false)
        .with_configuration(properties)
        .with_actions([Action::CommitInfo(info(definition, clock))])
        .with_commit_properties(CommitProperties::default().with_max_retries(0));
    if let Some(description) = &definition.description {
        create = create.with_comment(description.clone());
    }
    create.await.map_err(Error::from)?;
    fault::after_commit("table_created")
}

/// Writes version 0 of a table that is the open version of another one, with these files.
///
/// # Errors
/// As [`create`].
pub(crate) async fn create_of(delta: DeltaTable, name: &TableName, of: &Table, files: Vec<Add>) -> Result<()> {
    forget_checkpoint(&delta).await?;
    let snapshot = of.delta().snapshot()?;
    let own = |key: &str| {
        key.starts_with("lakehouse.") && ![columns::SNAPSHOT_DAYS, columns::SNAPSHOT_OPTIONS].contains(&key)
    };
    let properties = of.properties()?.iter().filter(|(key, _)| !own(key));
    let properties = properties.map(|(key, value)| (key.clone(), Some(value.clone())));
    let parameters = [("source", of.location()), ("sourceVersion", of.version().to_string())];
    let parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), json!(value)));
    let info = CommitInfo {
        timestamp: Some(of.clock().now().timestamp_millis()),
        operation: Some("CLONE".to_owned()),
        operation_parameters: Some(parameters.collect()),
        ..CommitInfo::default()
    };
    let first = [Action::CommitInfo(info), Action::Protocol(snapshot.protocol().clone())];
    delta
        .create()
        .with_table_name(name.to_string())
        .with_columns(snapshot.schema().fields().cloned().collect::<Vec<_>>())
        .with_partition_columns(of.partition_columns()?)
        .with_save_mode(SaveMode::ErrorIfExists)
        .with_raise_if_key_not_exists(false)
        .with_configuration(properties)
        .with_actions(first.into_iter().chain(files.into_iter().map(Action::Add)))
        .with_commit_properties(CommitProperties::default().with_max_retries(0))
        .await
        .map_err(Error::from)?;
    fault::after_commit("table_created")
}

/// Removes the pointer to a checkpoint of a table that was there before and was not removed as a whole: the new one could
/// not be read with it.
async fn forget_checkpoint(delta: &DeltaTable) -> Result<()> {
    match delta.object_store().delete(&log::last_checkpoint().into()).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the table's history shows, with the parameters that Delta gives to it.
fn info(definition: &Definition, clock: &Clock) -> CommitInfo {
    let properties: BTreeMap<&String, &String> =
        definition.properties.iter().map(|(key, value)| (key, value)).collect();
    let parameters = [
        ("partitionBy", json!(definition.partition_by).to_string()),
        ("description", definition.description.clone().unwrap_or_default()),
        ("properties", json!(properties).to_string()),
    ];
    let parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), json!(value)));
    CommitInfo {
        timestamp: Some(clock.now().timestamp_millis()),
        operation: Some("CREATE TABLE".to_owned()),
        operation_parameters: Some(parameters.collect()),
        ..CommitInfo::default()
    }
}
