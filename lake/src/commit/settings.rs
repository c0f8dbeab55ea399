//! Properties of a table that people set by hand: those that say how files and log are kept, and the features that a table
//! may have.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use deltalake::DeltaTableError;
use deltalake::kernel::{Action, MetadataExt, Protocol};
use deltalake::protocol::DeltaOperation;
use serde_json::{Value, json};

use super::vectors::{self, upgraded};
use super::{ByHand, Outcome};
use crate::error::{Error, Result};
use crate::names::RunId;
use crate::rules::Rule;
use crate::spec::did_you_mean;
use crate::table::Table;

/// The property of a table that asks for a feed.
const FEED: &str = "delta.enableChangeDataFeed";
/// The first version of the protocol whose writers know feeds, and that from which on it lists its features.
const FEEDS: i64 = 4;
const LISTED: i64 = 7;
/// Properties that the program keeps for itself begin so.
const OWN: &str = "lakehouse.";

/// What a property of Delta holds.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// `interval 30 days`.
    Interval,
    /// `true` or `false`.
    Flag,
    /// A number from 1 on.
    Count,
    /// A number from -1 on.
    CountOrAll,
    /// Bytes: `134217728`, `128mb`.
    Bytes,
    /// What other writers may overlap with; commits of this program are always strict.
    Isolation,
}

/// The largest number of an interval, so that it can be counted back from today.
const INTERVAL_MAX: u64 = 10_000_000;

/// Properties of Delta that change nothing that rows or their writers depend on.
/// <https://docs.delta.io/latest/table-properties.html>
const SETTABLE: [(&str, Kind); 9] = [
    ("delta.checkpoint.writeStatsAsJson", Kind::Flag),
    ("delta.checkpoint.writeStatsAsStruct", Kind::Flag),
    ("delta.checkpointInterval", Kind::Count),
    ("delta.dataSkippingNumIndexedCols", Kind::CountOrAll),
    ("delta.deletedFileRetentionDuration", Kind::Interval),
    ("delta.isolationLevel", Kind::Isolation),
    ("delta.logRetentionDuration", Kind::Interval),
    ("delta.targetFileSize", Kind::Bytes),
    ("delta.tuneFileSizesForRewrites", Kind::Flag),
];
/// Properties that have a command of their own.
const COMMANDS: [(&str, &str); 3] = [
    (FEED, "`table enable T change-data-feed`"),
    (vectors::ENABLED, "`table enable T deletion-vectors`"),
    ("delta.constraints.", "`table add-constraint`"),
];

/// Features that a table may have or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Versions say which rows they changed.
    ChangeDataFeed,
    /// Rows may be marked as deleted.
    DeletionVectors,
}

impl Kind {
    fn holds(self, value: &str) -> bool {
        let words: Vec<&str> = value.split_whitespace().collect();
        match self {
            Self::Interval => {
                let units = ["week", "day", "hour", "minute", "second"];
                matches!(&words[..], ["interval", number, unit]
                    if number.parse::<u64>().is_ok_and(|number| number <= INTERVAL_MAX)
                        && units.contains(&unit.strip_suffix('s').unwrap_or(unit)))
            }
            Self::Flag => matches!(value, "true" | "false"),
            Self::Count => value.parse::<u32>().is_ok_and(|number| number > 0),
            Self::CountOrAll => value.parse::<i32>().is_ok_and(|number| number >= -1),
            Self::Isolation => matches!(value, "Serializable" | "WriteSerializable"),
            Self::Bytes => {
                let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let unit = value[digits.len()..].to_ascii_lowercase();
                digits.parse::<u64>().is_ok_and(|number| number > 0)
                    && ["", "b", "k", "kb", "m", "mb", "g", "gb"].contains(&unit.as_str())
            }
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Interval => "write `interval 30 days`",
            Self::Flag => "write `true` or `false`",
            Self::Count => "write a number from 1 on",
            Self::CountOrAll => "write a number, or -1 for all columns",
            Self::Bytes => "write a number of bytes, or `128mb`",
            Self::Isolation => "write `Serializable` or `WriteSerializable`",
        }
    }
}

/// Checks that a property may be set by hand to a value; `None` unsets it.
///
/// # Errors
/// [`ErrorKind::Spec`](crate::ErrorKind::Spec) with what can be set.
pub fn check_property(key: &str, value: Option<&str>) -> Result<()> {
    if key.is_empty() || key.chars().any(char::is_whitespace) {
        return Err(Error::spec(format!("`{key}` is no name of a property")).hint("write `key=value`"));
    }
    if key.starts_with(OWN) {
        return Err(Error::spec(format!("`{key}`: `{OWN}…` is the program's own")));
    }
    if let Some((_, command)) = COMMANDS.iter().find(|(property, _)| key.starts_with(property)) {
        return Err(Error::spec(format!("`{key}` has a command of its own")).hint(format!("use {command}")));
    }
    if !key.starts_with("delta.") {
        return Ok(());
    }
    let Some((_, kind)) = SETTABLE.iter().find(|(property, _)| *property == key) else {
        let known: Vec<&str> = SETTABLE.iter().map(|(property, _)| *property).collect();
        let hint = did_you_mean(key, known.iter().copied()).unwrap_or_default();
        return Err(Error::spec(format!("`{key}` cannot be set: rows or their writers depend on it")).hint(hint));
    };
    match value {
        Some(value) if !kind.holds(value) => {
            Err(Error::spec(format!("`{value}` is no value of `{key}`")).hint(kind.example()))
        }
        _ => Ok(()),
    }
}

impl Table {
    /// Sets properties by hand, and unsets those without a value. `None` when the table says so already.
    ///
    /// # Errors
    /// As [`check_property`]; [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) when another writer came first.
    pub async fn set_by_name(&mut self, changes: &[(String, Option<String>)], run: &RunId) -> Result<Option<Outcome>> {
        let held = self.properties()?.clone();
        let mut metadata = self.delta().snapshot()?.metadata().clone();
        let mut properties = HashMap::new();
        for (key, value) in changes {
            check_property(key, value.as_deref())?;
            if held.get(key) == value.as_ref() {
                continue;
            }
            metadata = match value {
                Some(value) => metadata.add_config_key(key.clone(), value.clone()),
                None => metadata.remove_config_key(key),
            }
            .map_err(DeltaTableError::from)?;
            properties.insert(key.clone(), value.clone().unwrap_or_else(|| "unset".to_owned()));
        }
        if properties.is_empty() {
            return Ok(None);
        }
        self.settle(vec![Action::Metadata(metadata)], properties, run).await.map(Some)
    }

    /// Gives the table a feature, or no longer makes use of it. `None` when the table says so already.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) when another writer came first.
    pub async fn set_feature(&mut self, feature: Feature, on: bool, run: &RunId) -> Result<Option<Outcome>> {
        let key = match feature {
            Feature::ChangeDataFeed => FEED,
            Feature::DeletionVectors => vectors::ENABLED,
        };
        let is_on = self.property(key)?.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if is_on == on {
            return Ok(None);
        }
        let snapshot = self.delta().snapshot()?;
        let metadata = snapshot.metadata().clone().add_config_key(key.to_owned(), on.to_string());
        let mut actions = vec![Action::Metadata(metadata.map_err(DeltaTableError::from)?)];
        if on {
            let protocol = match feature {
                Feature::ChangeDataFeed => with_feed(snapshot.protocol())?,
                Feature::DeletionVectors => upgraded(snapshot.protocol(), self.properties()?, &Rule::of(self)?)?,
            };
            actions.extend(protocol.map(Action::Protocol));
        }
        self.settle(actions, HashMap::from([(key.to_owned(), on.to_string())]), run).await.map(Some)
    }

    async fn settle(
        &mut self,
        actions: Vec<Action>,
        properties: HashMap<String, String>,
        run: &RunId,
    ) -> Result<Outcome> {
        let operation = DeltaOperation::SetTableProperties { properties };
        let hand = ByHand { point: "settings_committed", operation, actions, metrics: BTreeMap::new() };
        self.commit_by_hand(hand, run).await
    }
}

/// The protocol of a table with a feed; `None` when it is one already.
fn with_feed(held: &Protocol) -> Result<Option<Protocol>> {
    let broken =
        |error: serde_json::Error| Error::internal("the protocol of a table does not convert").with_source(error);
    let mut protocol = serde_json::to_value(held).map_err(broken)?;
    let before = protocol.clone();
    let version = protocol.get("minWriterVersion").and_then(Value::as_i64).unwrap_or(1);
    if version < LISTED {
        protocol["minWriterVersion"] = json!(version.max(FEEDS));
    } else {
        let listed = protocol.get("writerFeatures").and_then(Value::as_array).into_iter().flatten();
        let mut features: BTreeSet<String> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
        if features.insert("changeDataFeed".to_owned()) {
            protocol["writerFeatures"] = json!(features);
        }
    }
    if protocol == before { Ok(None) } else { serde_json::from_value(protocol).map(Some).map_err(broken) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_rows_do_not_depend_on_is_set_and_to_values_that_it_can_have() {
        for (key, value) in [
            ("delta.logRetentionDuration", "interval 60 days"),
            ("delta.checkpointInterval", "10"),
            ("delta.targetFileSize", "128mb"),
            ("delta.dataSkippingNumIndexedCols", "-1"),
            ("owner", "finance"),
        ] {
            check_property(key, Some(value)).unwrap_or_else(|error| panic!("{key}: {error}"));
        }
        for (key, value, says) in [
            ("delta.logRetentionDuration", "60 days", "interval 30 days"),
            ("delta.checkpointInterval", "0", "from 1 on"),
            ("delta.logRetentionDurations", "interval 1 day", "did you mean"),
            ("delta.columnMapping.mode", "name", "one of `delta."),
            ("delta.enableChangeDataFeed", "true", "table enable"),
            ("delta.constraints.x", "a > 0", "add-constraint"),
        ] {
            let error = check_property(key, Some(value)).expect_err("refused");
            assert!(error.hint_text().is_some_and(|hint| hint.contains(says)), "{key}: {error:?}");
        }
        assert!(check_property("lakehouse.rebuilt", None).is_err());
    }

    #[test]
    fn a_feed_needs_writers_that_know_it() {
        let protocol = |value: Value| serde_json::from_value::<Protocol>(value).expect("a protocol");
        let old = with_feed(&protocol(json!({"minReaderVersion": 1, "minWriterVersion": 2}))).expect("a protocol");
        assert_eq!(serde_json::to_value(old).expect("JSON")["minWriterVersion"], 4);
        let listed = json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"]});
        let new = with_feed(&protocol(listed)).expect("a protocol").expect("another one");
        assert!(with_feed(&new).expect("a protocol").is_none());
    }
}
