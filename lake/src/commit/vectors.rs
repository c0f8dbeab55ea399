//! Whether rows of a table may be marked as deleted: a property, and the features that readers must know for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use deltalake::DeltaTableError;
use deltalake::kernel::{Action, MetadataExt, Protocol};
use deltalake::protocol::DeltaOperation;
use serde_json::{Value, json};

use super::{Commit, Outcome, Txn};
use crate::error::{Error, Result};
use crate::names::RunId;
use crate::rules::{Kind, Rule};
use crate::table::Table;

/// The property that allows deletion vectors.
pub(crate) const ENABLED: &str = "delta.enableDeletionVectors";
const FEATURE: &str = "deletionVectors";
/// The versions of the protocol whose tables list their features.
const READER: i64 = 3;
const WRITER: i64 = 7;

impl Table {
    /// Allows deletion vectors, or forbids that more are made, in a commit of its own; `app` counts how often. Nothing
    /// happens when the table says so already.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn allow_deletion_vectors(&mut self, allowed: bool, app: &str, run: &RunId) -> Result<()> {
        if self.allows_deletion_vectors()? == allowed {
            return Ok(());
        }
        let version = self.txn_version(app).await?.unwrap_or(0) + 1;
        let (snapshot, property) = (self.delta().snapshot()?, (ENABLED.to_owned(), allowed.to_string()));
        let metadata = snapshot.metadata().clone().add_config_key(property.0.clone(), property.1.clone());
        let mut actions = vec![Action::Metadata(metadata.map_err(DeltaTableError::from)?)];
        if allowed {
            actions.extend(upgraded(snapshot.protocol(), self.properties()?, &Rule::of(self)?)?.map(Action::Protocol));
        }
        let commit = Commit {
            point: "columns_committed",
            txns: vec![Txn::new(app, version)],
            operation: DeltaOperation::SetTableProperties { properties: HashMap::from([property]) },
            actions,
            blind_append: false,
            metrics: BTreeMap::new(),
            run: run.clone(),
        };
        self.commit(commit).await.map(|_: Outcome| ())
    }

    /// True when rows of the table may be marked as deleted.
    ///
    /// # Errors
    /// [`ErrorKind::Table`](crate::ErrorKind::Table) when the table is not loaded.
    pub fn allows_deletion_vectors(&self) -> Result<bool> {
        Ok(self.property(ENABLED)?.is_some_and(|value| value.eq_ignore_ascii_case("true")))
    }
}

/// The protocol of a table with deletion vectors; `None` when it is that already. Features that the old version of the
/// protocol implied are listed from then on: those that every writer knows, and those that the table uses.
pub(super) fn upgraded(
    held: &Protocol,
    properties: &HashMap<String, String>,
    rules: &[Rule],
) -> Result<Option<Protocol>> {
    let broken =
        |error: serde_json::Error| Error::internal("the protocol of a table does not convert").with_source(error);
    let mut protocol = serde_json::to_value(held).map_err(broken)?;
    let listed = |protocol: &Value, key: &str| -> BTreeSet<String> {
        let features = protocol.get(key).and_then(Value::as_array).into_iter().flatten();
        features.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (mut readers, mut writers) = (listed(&protocol, "readerFeatures"), listed(&protocol, "writerFeatures"));
    if readers.contains(FEATURE) && writers.contains(FEATURE) {
        return Ok(None);
    }
    if protocol.get("minWriterVersion").and_then(Value::as_i64).is_none_or(|version| version < WRITER) {
        writers.extend(["appendOnly", "invariants"].map(str::to_owned));
        let is_on = |key: &str| properties.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        writers.extend(is_on("delta.enableChangeDataFeed").then(|| "changeDataFeed".to_owned()));
        let has = |kind| rules.iter().any(|rule| rule.kind == kind);
        writers.extend(has(Kind::Check).then(|| "checkConstraints".to_owned()));
        writers.extend(has(Kind::Generated).then(|| "generatedColumns".to_owned()));
    }
    readers.insert(FEATURE.to_owned());
    writers.insert(FEATURE.to_owned());
    if let Some(protocol) = protocol.as_object_mut() {
        protocol.insert("minReaderVersion".to_owned(), json!(READER));
        protocol.insert("minWriterVersion".to_owned(), json!(WRITER));
        protocol.insert("readerFeatures".to_owned(), json!(readers));
        protocol.insert("writerFeatures".to_owned(), json!(writers));
    }
    serde_json::from_value(protocol).map(Some).map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_protocol_lists_what_it_implied() {
        let old = json!({"minReaderVersion": 1, "minWriterVersion": 4});
        let old: Protocol = serde_json::from_value(old).expect("a protocol");
        let properties = HashMap::from([("delta.enableChangeDataFeed".to_owned(), "true".to_owned())]);
        let new = upgraded(&old, &properties, &[]).expect("a protocol").expect("another one");
        let expected = json!({
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["appendOnly", "changeDataFeed", "deletionVectors", "invariants"],
        });
        assert_eq!(serde_json::to_value(&new).expect("JSON"), expected);
        assert!(upgraded(&new, &properties, &[]).expect("a protocol").is_none());
    }
}
