//! What the columns of a table hold, in words: the `comment` of a field, as Spark and Delta's SQL write it. Commits that
//! change the schema keep what is said of the columns that stay.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;
use deltalake::DeltaTableError;
use deltalake::kernel::{Metadata, MetadataExt};

use crate::error::Result;
use crate::table::{Table, delta_schema};

/// The key of a field's metadata.
const COMMENT: &str = "comment";

/// The descriptions of the columns that have one.
pub(crate) fn descriptions(schema: &Schema) -> BTreeMap<String, String> {
    let told = schema.fields().iter().filter_map(|field| Some((field.name(), field.metadata().get(COMMENT)?)));
    told.map(|(name, text)| (name.clone(), text.clone())).collect()
}

/// The schema without descriptions: what a column is does not depend on them.
pub(crate) fn plain(schema: &Schema) -> Schema {
    described(schema, &BTreeMap::new())
}

/// The schema with these descriptions, by column, and no others.
pub(crate) fn described(schema: &Schema, descriptions: &BTreeMap<String, String>) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let mut metadata = field.metadata().clone();
        metadata.remove(COMMENT);
        let told = descriptions.get(field.name()).map(|text| (COMMENT.to_owned(), text.clone()));
        metadata.extend(told);
        field.as_ref().clone().with_metadata(metadata)
    });
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())
}

/// The metadata of a table with the columns of `schema`, described as they are, and as `new` says.
///
/// # Errors
/// [`ErrorKind::Table`](crate::ErrorKind::Table) when a type has no place in Delta.
pub(super) fn with_columns(table: &Table, schema: &Schema, new: &[(String, String)]) -> Result<Metadata> {
    let mut descriptions = table.column_descriptions()?;
    descriptions.extend(new.iter().cloned());
    let schema = delta_schema(&described(schema, &descriptions))?;
    Ok(table.delta().snapshot()?.metadata().clone().with_schema(&schema).map_err(DeltaTableError::from)?)
}
