//! What the log tells of changes: which files came and went, whether the thread of changes is whole.

use std::collections::HashMap;
use std::pin::pin;

use deltalake::kernel::{Action, Add, Metadata};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{Changed, Changes, Rows, Told};
use crate::commit::{BY_HAND, actions_of};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::history::check_readable;
use crate::lakehouse::Lake;
use crate::table::Table;

/// Commits that are read at the same time.
const READ_AHEAD: usize = 4;

/// What changed in `table`, which is open at the newer version, since its version `from`, as far as it concerns these
/// columns.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read.
pub async fn between(lake: &Lake, table: &Table, from: u64, columns: &[String]) -> Result<Told<Changes>> {
    let mut files = Vec::new();
    let mut has_metadata = false;
    for version in from + 1..=table.version() {
        let Some(actions) = actions(table, version).await? else {
            return Ok(Told::Broken(format!("version {version} of {} is gone from its log", table.name())));
        };
        if is_restore(&actions) {
            return Ok(Told::Broken(format!("{} was restored in version {version}", table.name())));
        }
        has_metadata |= actions.iter().any(|action| matches!(action, Action::Metadata(_)));
        match of_commit(actions) {
            Some(changed) => files.extend(changed),
            None => {
                let message = format!("version {version} of {} does not tell what it removed", table.name());
                return Ok(Told::Broken(message));
            }
        }
    }
    if has_metadata {
        let Ok(old) = lake.table_at(table.name(), from).await else {
            return Ok(Told::Broken(format!("version {from} of {} cannot be read any more", table.name())));
        };
        if is_another(&old, table, columns)? {
            return Ok(Told::Broken(format!("{} got other columns since version {from}", table.name())));
        }
    }
    Ok(Told::Known(Changes { table: table.clone(), files }))
}

/// True when rows of an older version cannot be read as rows of the newer one: a column that it had is gone or of another
/// type, one of `columns` is new, or the files are divided by other columns.
fn is_another(old: &Table, new: &Table, columns: &[String]) -> Result<bool> {
    let (was, is) = (types(old.delta().snapshot()?.metadata())?, types(new.delta().snapshot()?.metadata())?);
    let differs = was.iter().any(|(name, kind)| is.get(name) != Some(kind));
    let is_new = columns.iter().any(|column| !was.contains_key(column));
    Ok(differs || is_new || old.partition_columns()? != new.partition_columns()?)
}

/// True when rows of a table went after its version `from`, otherwise than by upkeep; also when that cannot be told any
/// more.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read.
pub async fn lost_rows(table: &Table, from: u64) -> Result<bool> {
    for version in from + 1..=table.version() {
        let Some(actions) = actions(table, version).await? else { return Ok(true) };
        if actions.iter().any(|action| matches!(action, Action::Remove(file) if file.data_change)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A table as it was at an older version than the one that it is open at, with all of its files still there.
///
/// # Errors
/// [`ErrorKind::Store`] when that cannot be found out.
pub async fn before(lake: &Lake, table: &Table, version: u64) -> Result<Told<Table>> {
    let old = match lake.table_at(table.name(), version).await {
        Ok(old) => old,
        // A log that begins later was cleaned; one that is whole may be read another time.
        Err(_) if actions(table, 0).await?.is_none() => {
            return Ok(Told::Broken(format!("version {version} of {} is gone", table.name())));
        }
        Err(error) => return Err(error),
    };
    match check_readable(&old, table).await {
        Ok(()) => Ok(Told::Known(old)),
        Err(error) if error.kind() == ErrorKind::Table => Ok(Told::Broken(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The newest version of a table that changed its rows after the last one of an application whose name begins with
/// `app`; `None` where there is none, as far as the log goes back. What was taken back to a version is as that one was.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read.
pub async fn last_foreign(table: &Table, app: &str) -> Result<Option<u64>> {
    let mut next = Some(table.version());
    while let Some(version) = next {
        let Some(actions) = actions(table, version).await? else { break };
        let is_own = has_txn(&actions, |name| name.starts_with(app));
        if is_own && !has_txn(&actions, |name| name.starts_with(BY_HAND)) {
            break;
        }
        let restored = restored(&actions).filter(|restored| is_own && *restored < version);
        if restored.is_none() && actions.iter().any(is_change) {
            return Ok(Some(version));
        }
        next = restored.or(version.checked_sub(1));
    }
    Ok(None)
}

/// The version that a commit restored.
fn restored(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::CommitInfo(info) if info.operation.as_deref() == Some("RESTORE") => {
            let version = info.operation_parameters.as_ref()?.get("version")?;
            version.as_u64().or_else(|| version.as_str()?.parse().ok())
        }
        _ => None,
    })
}

fn has_txn(actions: &[Action], is_wanted: impl Fn(&str) -> bool) -> bool {
    actions.iter().any(|action| matches!(action, Action::Txn(txn) if is_wanted(&txn.app_id)))
}

/// True when another hand than that of the applications whose names begin with `own` changed rows of a table since the last
/// commit of the application `app`, one of them; also where the log does not go back so far.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read.
pub async fn is_touched_since(table: &Table, app: &str, own: &str) -> Result<bool> {
    let versions = stream::iter((0..=table.version()).rev());
    let mut commits = pin!(versions.map(|version| actions(table, version)).buffered(READ_AHEAD));
    while let Some(actions) = commits.try_next().await? {
        let Some(actions) = actions else { break };
        // What a person takes back says how far the table has come too, and brings rows of any hand.
        let is_own =
            has_txn(&actions, |name| name.starts_with(own)) && !has_txn(&actions, |name| name.starts_with(BY_HAND));
        if !is_own && actions.iter().any(is_change) {
            return Ok(true);
        }
        if is_own && has_txn(&actions, |name| name == app) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_change(action: &Action) -> bool {
    match action {
        Action::Add(file) => file.data_change,
        Action::Remove(file) => file.data_change,
        _ => false,
    }
}

/// What version `version` did; `None` when the log does not have it any more.
pub(super) async fn actions(table: &Table, version: u64) -> Result<Option<Vec<Action>>> {
    let held = table.delta().log_store().read_commit_entry(version).await;
    let held = held.context(|| format!("reading version {version} of {}", table.name()))?;
    match held {
        Some(_) => actions_of(table, version).await.map(Some),
        None => Ok(None),
    }
}

/// True for a commit that took the table back to an earlier version.
fn is_restore(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::CommitInfo(info) if info.operation.as_deref() == Some("RESTORE")))
}

/// The types of the columns, as the log writes them.
pub(super) fn types(metadata: &Metadata) -> Result<HashMap<String, Value>> {
    let broken = |error| Error::internal("the metadata of a table cannot be read").with_source(error);
    let metadata = serde_json::to_value(metadata).map_err(broken)?;
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap_or("{}")).map_err(broken)?;
    let fields = schema["fields"].as_array().into_iter().flatten();
    Ok(fields.filter_map(|field| Some((field["name"].as_str()?.to_owned(), field["type"].clone()))).collect())
}

/// The changed files of a commit; `None` when one is not told well enough to be read.
pub(super) fn of_commit(actions: Vec<Action>) -> Option<Vec<Changed>> {
    let (mut feed, mut came, mut went) = (Vec::new(), Vec::new(), HashMap::new());
    for action in actions {
        match action {
            Action::Cdc(file) => feed.push(Changed {
                path: file.path,
                size: u64::try_from(file.size).ok()?,
                records: None,
                partition: file.partition_values,
                rows: Rows::Feed,
            }),
            Action::Add(file) if file.data_change => came.push(file),
            Action::Remove(file) if file.data_change => {
                went.insert(file.path.clone(), file);
            }
            _ => {}
        }
    }
    if !feed.is_empty() {
        return Some(feed);
    }
    let mut changed = Vec::new();
    for file in came {
        let (size, records) = (u64::try_from(file.size).ok()?, records(&file));
        let mut add = |rows| {
            let (path, partition) = (file.path.clone(), file.partition_values.clone());
            changed.push(Changed { path, size, records, partition, rows });
        };
        let now = file.deletion_vector.clone();
        match went.remove(&file.path) {
            None => add(Rows::These { is_new: true, left: now, only: None }),
            Some(was) if was.deletion_vector == now => {}
            Some(was) => {
                let was = was.deletion_vector;
                if now.is_some() {
                    add(Rows::These { is_new: false, left: was.clone(), only: now.clone() });
                }
                if was.is_some() {
                    add(Rows::These { is_new: true, left: now, only: was });
                }
            }
        }
    }
    for (path, file) in went {
        let (size, partition) = (u64::try_from(file.size?).ok()?, file.partition_values?);
        let rows = Rows::These { is_new: false, left: file.deletion_vector, only: None };
        changed.push(Changed { path, size, records: None, partition, rows });
    }
    Some(changed)
}

/// Rows of a file, those that are deleted too; `None` where the log does not say.
fn records(file: &Add) -> Option<u64> {
    let stats = file.get_stats().ok().flatten()?;
    u64::try_from(stats.num_records).ok()
}

#[cfg(test)]
mod tests {
    use deltalake::kernel::{AddCDCFile, DeletionVectorDescriptor, Remove, StorageType};

    use super::*;

    fn add(path: &str, vector: Option<&str>) -> Action {
        let deletion_vector = vector.map(|name| DeletionVectorDescriptor {
            storage_type: StorageType::Inline,
            path_or_inline_dv: name.to_owned(),
            offset: None,
            size_in_bytes: 1,
            cardinality: 1,
        });
        let (path, partition_values) = (path.to_owned(), HashMap::new());
        Action::Add(Add {
            path,
            partition_values,
            size: 1,
            modification_time: 0,
            data_change: true,
            stats: None,
            tags: None,
            deletion_vector,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
        })
    }

    fn remove(path: &str, vector: Option<&str>) -> Action {
        let Action::Add(add) = add(path, vector) else { unreachable!() };
        Action::Remove(Remove {
            path: add.path,
            data_change: true,
            size: Some(1),
            partition_values: Some(HashMap::new()),
            deletion_vector: add.deletion_vector,
            ..Remove::default()
        })
    }

    /// Each changed file: its path and how its rows are told.
    fn told(actions: Vec<Action>) -> Vec<String> {
        let name = |vector: Option<DeletionVectorDescriptor>| vector.map_or("-".into(), |one| one.path_or_inline_dv);
        let files = of_commit(actions).expect("files").into_iter();
        let mut told: Vec<String> = files
            .map(|file| match file.rows {
                Rows::Feed => format!("{} feed", file.path),
                Rows::These { is_new, left, only } => {
                    format!("{} {} without {} only {}", file.path, is_new, name(left), name(only))
                }
            })
            .collect();
        told.sort();
        told
    }

    #[test]
    fn files_that_came_are_new_rows_and_those_that_went_are_old_ones() {
        let both = vec![add("a", None), remove("b", Some("v")), Action::Txn(Default::default())];
        assert_eq!(told(both), ["a true without - only -", "b false without v only -"]);
    }

    #[test]
    fn of_a_file_with_another_vector_the_rows_between_the_two_changed() {
        let more = vec![remove("a", None), add("a", Some("v"))];
        assert_eq!(told(more), ["a false without - only v"]);
        let again = vec![remove("a", Some("v")), add("a", Some("w"))];
        assert_eq!(told(again), ["a false without v only w", "a true without w only v"]);
        assert_eq!(told(vec![remove("a", Some("v")), add("a", Some("v"))]), [""; 0]);
    }

    #[test]
    fn a_feed_says_it_all_and_upkeep_changes_nothing() {
        let feed = Action::Cdc(AddCDCFile { path: "_change_data/c".into(), size: 1, ..AddCDCFile::default() });
        assert_eq!(told(vec![add("a", None), remove("b", None), feed]), ["_change_data/c feed"]);
        let Action::Add(moved) = add("a", None) else { unreachable!() };
        assert_eq!(told(vec![Action::Add(Add { data_change: false, ..moved })]), [""; 0]);
    }
}
