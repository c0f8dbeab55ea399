//! The metadata action of a commit that changes the schema or the properties of a table.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;
use deltalake::DeltaTableError;
use deltalake::kernel::{Action, MetadataExt};
use deltalake::protocol::DeltaOperation;

use super::described::with_columns;
use super::{Commit, Outcome, Txn, redefine};
use crate::error::Result;
use crate::names::RunId;
use crate::table::{Definition, Table, delta_schema};

/// The action that gives `table` the columns of `schema` and sets `properties`; `None` when it has them already.
///
/// # Errors
/// [`ErrorKind::Table`](crate::ErrorKind::Table) when a type has no place in Delta.
pub fn evolve(table: &Table, schema: &Schema, properties: &[(String, String)]) -> Result<Option<Action>> {
    let held = table.properties()?;
    let changed: Vec<_> = properties.iter().filter(|(key, value)| held.get(key) != Some(value)).collect();
    if table.schema().fields() == schema.fields() && changed.is_empty() {
        return Ok(None);
    }
    let mut metadata = with_columns(table, schema, &[])?;
    for (key, value) in changed {
        metadata = metadata.add_config_key(key.clone(), value.clone()).map_err(DeltaTableError::from)?;
    }
    Ok(Some(Action::Metadata(metadata)))
}

impl Table {
    /// Sets properties, and descriptions of the table and its columns where they are given, in a commit of its own; `app`
    /// counts how often. Nothing happens when the table has them already.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn alter(
        &mut self,
        properties: &[(String, String)],
        description: Option<&str>,
        columns: &[(String, String)],
        app: &str,
        run: &RunId,
    ) -> Result<()> {
        let definition = Definition {
            partition_by: self.partition_columns()?,
            properties: properties.to_vec(),
            description: description.map(str::to_owned),
            column_descriptions: columns.to_vec(),
            ..Definition::new(self.schema())
        };
        let Some(metadata) = redefine(self, &definition)? else { return Ok(()) };
        let version = self.txn_version(app).await?.unwrap_or(0) + 1;
        let commit = Commit {
            point: "columns_committed",
            txns: vec![Txn::new(app, version)],
            operation: DeltaOperation::SetTableProperties { properties: properties.iter().cloned().collect() },
            actions: vec![metadata],
            blind_append: false,
            metrics: BTreeMap::new(),
            run: run.clone(),
        };
        self.commit(commit).await.map(|_: Outcome| ())
    }

    /// Gives the table the columns of `schema`, which holds its own and new nullable ones, in a commit of its own.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn add_columns(&mut self, schema: &Schema, txn: Txn, run: &RunId) -> Result<Outcome> {
        let Some(metadata) = evolve(self, schema, &[])? else {
            return Ok(Outcome::AlreadyApplied { version: self.version() });
        };
        let added = delta_schema(schema)?.fields().skip(self.schema().fields().len()).cloned().collect();
        let commit = Commit {
            point: "columns_committed",
            txns: vec![txn],
            operation: DeltaOperation::AddColumn { fields: added },
            actions: vec![metadata],
            blind_append: false,
            metrics: BTreeMap::new(),
            run: run.clone(),
        };
        self.commit(commit).await
    }
}
