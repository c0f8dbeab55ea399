//! Versions of a table that have a name: upkeep keeps what they need, for as long as the name stands.
//!
//! The names are a property of the table. They are not part of what a version is: a restore leaves them as they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use deltalake::DeltaTableError;
use deltalake::kernel::{Action, MetadataExt};
use deltalake::protocol::DeltaOperation;

use crate::commit::{ByHand, Outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::names::RunId;
use crate::table::Table;

/// The property of a table that names its versions.
pub const PROPERTY: &str = "lakehouse.tags";

/// The named versions of a table, by their names.
///
/// # Errors
/// [`ErrorKind::Table`] when the table is not loaded, or what it says cannot be read.
pub fn tags(table: &Table) -> Result<BTreeMap<String, u64>> {
    let Some(text) = table.property(PROPERTY)? else { return Ok(BTreeMap::new()) };
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("the property `{PROPERTY}` of {} cannot be read", table.name());
        Error::new(ErrorKind::Table, message).with_source(error)
    })
}

/// The versions that have a name.
pub(crate) fn tagged(table: &Table) -> Result<BTreeSet<u64>> {
    Ok(tags(table)?.into_values().collect())
}

/// Gives a version a name, or with `None` takes the name away. `None` when the table says so already.
///
/// # Errors
/// [`ErrorKind::Spec`] when another version has the name; [`ErrorKind::Conflict`] when another writer came first.
pub async fn set_tag(table: &mut Table, name: &str, version: Option<u64>, run: &RunId) -> Result<Option<Outcome>> {
    let mut tags = tags(table)?;
    match (tags.get(name).copied(), version) {
        (held, wanted) if held == wanted => return Ok(None),
        (Some(held), Some(_)) => {
            let error = Error::spec(format!("`{name}` is version {held} of {}", table.name()));
            return Err(error.hint(format!("`orchestrator table untag {} {name}` takes the name away", table.name())));
        }
        (_, Some(version)) => drop(tags.insert(name.to_owned(), version)),
        (_, None) => drop(tags.remove(name)),
    }
    let metadata = table.delta().snapshot()?.metadata().clone();
    let metadata = match tags.is_empty() {
        true => metadata.remove_config_key(PROPERTY),
        false => {
            let text = serde_json::to_string(&tags)
                .map_err(|error| Error::internal("names of versions cannot be written").with_source(error))?;
            metadata.add_config_key(PROPERTY.to_owned(), text)
        }
    };
    let metadata = metadata.map_err(DeltaTableError::from)?;
    let said = version.map_or("unset".to_owned(), |version| version.to_string());
    let operation = DeltaOperation::SetTableProperties { properties: HashMap::from([(format!("tag {name}"), said)]) };
    let hand = ByHand {
        point: "settings_committed",
        operation,
        actions: vec![Action::Metadata(metadata)],
        metrics: BTreeMap::new(),
    };
    table.commit_by_hand(hand, run).await.map(Some)
}
