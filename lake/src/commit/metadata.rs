//! The metadata action of a commit that changes the schema or the properties of a table.

use arrow::datatypes::Schema;
use deltalake::DeltaTableError;
use deltalake::kernel::{Action, MetadataExt};

use crate::error::Result;
use crate::table::{Table, delta_schema};

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
    let mut metadata = table.delta().snapshot()?.metadata().clone();
    metadata = metadata.with_schema(&delta_schema(schema)?).map_err(DeltaTableError::from)?;
    for (key, value) in changed {
        metadata = metadata.add_config_key(key.clone(), value.clone()).map_err(DeltaTableError::from)?;
    }
    Ok(Some(Action::Metadata(metadata)))
}
