//! One commit that makes a table what another one is, which was made aside: its columns, partitions, properties and rows.

use std::collections::{BTreeMap, BTreeSet};

use deltalake::kernel::{Action, Add, LogicalFileView, Metadata, Protocol};
use deltalake::protocol::{DeltaOperation, SaveMode};
use futures::StreamExt;
use object_store::ObjectStoreExt;
use serde_json::{Map, Value};

use super::{Commit, Outcome, Redo, Txn, is_void, settled};
use crate::changes::{feed_files, own_feed};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::names::RunId;
use crate::rules::{CHECK, Rule};
use crate::table::Table;
use crate::upsert::feed::is_enabled;
use crate::write::{discard, discard_paths};

/// Files that are copied at a time.
const COPIED_AT_ONCE: usize = 4;
/// Properties of a table that say what its columns are; those of the other table take their place.
const OF_COLUMNS: [&str; 3] = ["delta.constraints.", "delta.dataSkippingStatsColumns", super::rules::OWN];

/// How a table becomes another one.
#[derive(Debug)]
pub struct Swap<'a> {
    /// The table that was made aside.
    pub with: &'a Table,
    /// The number of the swap. A table that holds it, or a higher one, is left as it is.
    pub once: Txn,
    /// The other transactions of the commit.
    pub txns: Vec<Txn>,
    /// A property that both have; what this table has there stays under the second name.
    pub replaced: (&'static str, &'static str),
    /// The constraints of other programs that the new rows were asked for, of [`Table::bind`].
    pub bound: Vec<Rule>,
    /// Rows of the table that was made aside.
    pub rows: u64,
    /// The fault point of the commit.
    pub point: &'static str,
    /// The run that commits.
    pub run: RunId,
}

impl Table {
    /// Makes this table what another one is, in one commit, whatever came in between: all files are removed, and those of
    /// the other are added. The table keeps its name, its id, the properties that say nothing of columns, and the
    /// constraints of other programs.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another program has changed constraints since the new rows were asked;
    /// [`ErrorKind::Store`] when a file cannot be copied, and as [`Table::commit`].
    pub async fn become_like(&mut self, swap: Swap<'_>) -> Result<Outcome> {
        let files = self.copy_files_of(swap.with).await?;
        let outcome = self.swapped(&swap, &files).await;
        if is_void(&outcome) {
            discard(self, &files).await;
        }
        outcome
    }

    async fn swapped(&mut self, swap: &Swap<'_>, files: &[Add]) -> Result<Outcome> {
        let (clock, mut redo, begun) = (self.clock().clone(), Redo::default(), self.version());
        loop {
            let mut commit = Commit {
                point: swap.point,
                txns: std::iter::once(&swap.once).chain(&swap.txns).cloned().collect(),
                operation: DeltaOperation::Write { mode: SaveMode::Overwrite, partition_by: None, predicate: None },
                actions: self.actions_of_swap(swap, files)?,
                blind_append: false,
                metrics: BTreeMap::from([("numOutputRows", swap.rows)]),
                run: swap.run.clone(),
            };
            // The number alone decides: the other transactions are not those of a later swap. It may have come on top of
            // ours, whose answer was lost.
            if self.txn_version(&swap.once.app).await?.is_some_and(|held| held >= swap.once.version) {
                return Ok(settled(self, begun, &commit).await);
            }
            if self.checks_of_others()? != swap.bound {
                let message = format!("another program has changed constraints of {}", self.name());
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            if is_enabled(swap.with)? {
                commit.actions.extend(own_feed(self, swap.with, &commit.actions).await?);
            }
            let feed = feed_files(&commit.actions);
            // The table has moved on to its newest version after a conflict.
            let outcome = self.commit(commit).await;
            if is_void(&outcome) {
                discard_paths(self, feed.into_iter()).await;
            }
            match outcome {
                Err(error) if redo.again(&clock, &error).await => {}
                answer => return answer,
            }
        }
    }

    /// Copies the data files of another table to this one, where no commit names them yet.
    async fn copy_files_of(&self, other: &Self) -> Result<Vec<Add>> {
        let files: Vec<_> = other.delta().snapshot()?.log_data().iter().collect();
        let (from, to) = (other.delta().object_store(), self.delta().object_store());
        let copies = files.into_iter().map(|file| {
            let (path, add, from, to) = (file.object_store_path(), added(&file), &from, &to);
            async move {
                let bytes = from.get(&path).await.context(|| "reading a new data file")?;
                let bytes = bytes.bytes().await.context(|| "reading a new data file")?;
                to.put(&path, bytes.into()).await.context(|| "copying a new data file")?;
                Ok::<_, Error>(add)
            }
        });
        let copied: Vec<Result<Add>> = futures::stream::iter(copies).buffer_unordered(COPIED_AT_ONCE).collect().await;
        let (done, failed): (Vec<_>, Vec<_>) = copied.into_iter().partition(Result::is_ok);
        let done: Vec<Add> = done.into_iter().flatten().collect();
        match failed.into_iter().find_map(Result::err) {
            None => Ok(done),
            Some(error) => {
                discard(self, &done).await;
                Err(error)
            }
        }
    }

    fn actions_of_swap(&self, swap: &Swap<'_>, files: &[Add]) -> Result<Vec<Action>> {
        let (own, theirs) = (self.delta().snapshot()?, swap.with.delta().snapshot()?);
        let mut actions =
            vec![Action::Metadata(metadata(own.metadata(), theirs.metadata(), swap.replaced, &swap.bound)?)];
        actions.extend(joint_protocol(own.protocol(), theirs.protocol())?.map(Action::Protocol));
        actions.extend(self.removes(|_| true)?);
        actions.extend(files.iter().cloned().map(Action::Add));
        Ok(actions)
    }
}

/// The action that adds a file as another table has it. A table that was just made marks no rows.
fn added(file: &LogicalFileView) -> Add {
    Add {
        path: file.path().into_owned(),
        partition_values: file.partition_values_map(),
        size: file.size(),
        modification_time: file.modification_time(),
        data_change: true,
        stats: file.stats(),
        tags: None,
        deletion_vector: None,
        base_row_id: None,
        default_row_commit_version: None,
        clustering_provider: None,
    }
}

fn metadata(own: &Metadata, theirs: &Metadata, replaced: (&str, &str), bound: &[Rule]) -> Result<Metadata> {
    let (own, mut wanted) = (to_json(own)?, to_json(theirs)?);
    let mut properties = properties_of(&own);
    let is_bound = |key: &str| key.strip_prefix(CHECK).is_some_and(|name| bound.iter().any(|rule| rule.name == name));
    let is_of_columns = |key: &str| OF_COLUMNS.iter().any(|start| key.starts_with(start)) && !is_bound(key);
    properties.retain(|key, _| key != replaced.1 && !is_of_columns(key));
    let before = properties.get(replaced.0).map(|value| (replaced.1.to_owned(), value.clone()));
    properties.extend(properties_of(&wanted));
    properties.extend(before);
    for key in ["id", "name", "description", "createdTime"] {
        match own.get(key) {
            Some(value) => drop(wanted.insert(key.to_owned(), value.clone())),
            None => drop(wanted.remove(key)),
        }
    }
    wanted.insert("configuration".to_owned(), Value::Object(properties));
    serde_json::from_value(Value::Object(wanted)).map_err(broken)
}

fn properties_of(metadata: &Map<String, Value>) -> Map<String, Value> {
    metadata.get("configuration").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// What programs must know of both; `None` when that is what they must know already.
pub(crate) fn joint_protocol(own: &Protocol, theirs: &Protocol) -> Result<Option<Protocol>> {
    let (own, theirs) = (to_json(own)?, to_json(theirs)?);
    let mut wanted = own.clone();
    for key in ["minReaderVersion", "minWriterVersion"] {
        let version = [&own, &theirs].iter().filter_map(|held| held.get(key)?.as_i64()).max();
        wanted.insert(key.to_owned(), Value::from(version));
    }
    for key in ["readerFeatures", "writerFeatures"] {
        let named = |held: &Map<String, Value>| held.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let all: Vec<Value> = named(&own).into_iter().chain(named(&theirs)).collect();
        let all: BTreeSet<&str> = all.iter().filter_map(Value::as_str).collect();
        if !all.is_empty() {
            wanted.insert(key.to_owned(), Value::from(all.into_iter().collect::<Vec<_>>()));
        }
    }
    let (old, new): (Protocol, Protocol) = (
        serde_json::from_value(Value::Object(own)).map_err(broken)?,
        serde_json::from_value(Value::Object(wanted)).map_err(broken)?,
    );
    Ok((old != new).then_some(new))
}

fn to_json(value: &impl serde::Serialize) -> Result<Map<String, Value>> {
    match serde_json::to_value(value).map_err(broken)? {
        Value::Object(object) => Ok(object),
        _ => Err(Error::internal("what describes a table is no object")),
    }
}

fn broken(error: serde_json::Error) -> Error {
    Error::internal("what describes a table does not convert").with_source(error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_keeps_its_id_and_takes_columns_and_properties() {
        let of = |id: &str, schema: &str, properties: Value| -> Metadata {
            serde_json::from_value(json!({
                "id": id, "name": id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                "partitionColumns": [], "configuration": properties, "createdTime": 7,
            }))
            .expect("metadata")
        };
        let own = of(
            "own",
            "{}",
            json!({"delta.constraints.old": "a > 0", "delta.constraints.other": "c > 0", "delta.logRetentionDuration": "interval 2 days", "number": "7"}),
        );
        let theirs = of("theirs", "[]", json!({"delta.constraints.new": "b > 0", "number": "8"}));
        let bound = Rule { kind: crate::rules::Kind::Check, name: "other".to_owned(), sql: "c > 0".to_owned() };
        let wanted =
            to_json(&metadata(&own, &theirs, ("number", "before"), &[bound]).expect("metadata")).expect("JSON");
        assert_eq!((wanted["id"].as_str(), wanted["schemaString"].as_str()), (Some("own"), Some("[]")));
        let properties = Value::Object(properties_of(&wanted));
        let expected = json!({"delta.constraints.new": "b > 0", "delta.constraints.other": "c > 0", "delta.logRetentionDuration": "interval 2 days",
            "number": "8", "before": "7"});
        assert_eq!(properties, expected);
    }
}
