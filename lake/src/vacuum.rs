//! Files in a table's folder that nothing needs any more: those that no version inside the retention has, and what
//! killed writers left.
//!
//! Which files of the log are free, the library's own full scan says. It does not see the unfinished files of a local
//! store (`part-….parquet#1`, of which no listing tells), so folders of this machine are looked through as well. No
//! commit is made: the versions of a table are its users', and what went is gone whether the log says so or not.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{DirEntry, read_dir};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use deltalake::kernel::{Action, StorageType};
use deltalake::operations::vacuum::VacuumMode;
use deltalake::table::config::TablePropertiesExt;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as StorePath;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::clock::Clock;
use crate::commit::logged;
use crate::error::{Context, Error, Result};
use crate::fault;
use crate::history::{self, OLDER_VERSIONS};
use crate::lakehouse::Lake;
use crate::table::Table;
use crate::tags;
use crate::vectors::path_of;

/// Files that are removed at a time.
const REMOVED_AT_ONCE: usize = 16;

/// What no version names stays for so long: a commit that is under way may have written it.
const UNCOMMITTED_LEAST: Duration = Duration::from_hours(24);

/// A file that nothing needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// Its path below the table's folder.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Whether a writer never finished it: no store lists it.
    pub unfinished: bool,
}

/// How long a table itself wants files kept that no version needs: `delta.deletedFileRetentionDuration`, or else 7 days.
///
/// # Errors
/// [`ErrorKind::Table`](crate::ErrorKind::Table) when the table is not loaded.
pub fn retention(table: &Table) -> Result<Duration> {
    Ok(table.delta().snapshot()?.table_config().deleted_file_retention_duration())
}

/// The files of a table that nothing has needed for `retain`, sorted by path. What no version of the log names may be of a
/// commit that is under way: it stays for a day, however short `retain` is. What versions with a name need stays.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when log or folder cannot be read, [`ErrorKind::Table`](crate::ErrorKind::Table) when a
/// version with a name cannot be read any more.
pub async fn leftovers(lake: &Lake, table: &Table, retain: Duration) -> Result<Vec<Leftover>> {
    let listed = listed(table).await?;
    let plan = table
        .delta()
        .clone()
        .vacuum()
        .with_mode(VacuumMode::Full)
        .with_clock(Arc::new(lake.clock().clone()))
        .with_retention_period(chrono::Duration::from_std(retain).unwrap_or(chrono::Duration::MAX))
        .with_enforce_retention_duration(false)
        .with_dry_run(true);
    let (_, free) = plan.await.context(|| format!("looking for files that {} does not need", table.name()))?;
    // A file that went earlier is still named by the log for a while.
    let free: Vec<String> = free.files_deleted.into_iter().filter(|path| listed.contains_key(path)).collect();
    let mut leftovers = if free.is_empty() { Vec::new() } else { judged(lake, table, retain, &listed, free).await? };
    if let Some(folder) = lake.root().local_path() {
        let folder = folder.join(table.name().folder());
        let now = Duration::from_micros(u64::try_from(lake.clock().now_micros()).unwrap_or(0));
        let before = SystemTime::UNIX_EPOCH + now.saturating_sub(retain.max(UNCOMMITTED_LEAST));
        let found = tokio::task::spawn_blocking(move || unfinished(&folder, before)).await;
        leftovers.extend(found.map_err(|error| Error::internal("a listing ended early").with_source(error))??);
    }
    leftovers.sort();
    leftovers.dedup();
    Ok(leftovers)
}

/// Those of the files that the library takes for free which the log and the names of versions let go. All of the log within
/// `retain` is read.
async fn judged(
    lake: &Lake,
    table: &Table,
    retain: Duration,
    listed: &HashMap<String, ObjectMeta>,
    free: Vec<String>,
) -> Result<Vec<Leftover>> {
    let now = lake.clock().now();
    let since = chrono::Duration::from_std(retain).ok().and_then(|retain| now.checked_sub_signed(retain));
    let (mut kept, reaches) = match named_since(table, since.unwrap_or(DateTime::<Utc>::MIN_UTC)).await? {
        Some(named) => (named, true),
        None => (HashSet::new(), false),
    };
    kept.extend(files_of(lake, table, tags::tagged(table)?).await?);
    if retain < UNCOMMITTED_LEAST {
        let named = named(table).await?;
        let oldest = now - chrono::Duration::from_std(UNCOMMITTED_LEAST).unwrap_or_default();
        let is_young = |(path, file): &(&String, &ObjectMeta)| file.last_modified > oldest && !named.contains(*path);
        kept.extend(listed.iter().filter(is_young).map(|(path, _)| path.clone()));
    }
    let free = free.into_iter().filter(|path| reaches && !kept.contains(path));
    let there = free.filter_map(|path| {
        let bytes = listed.get(&path)?.size;
        Some(Leftover { path, bytes, unfinished: false })
    });
    Ok(there.collect())
}

impl deltalake::operations::vacuum::Clock for Clock {
    fn current_timestamp_millis(&self) -> i64 {
        self.now().timestamp_millis()
    }
}

/// The files that versions since then name, those that they removed among them; `None` when the log does not reach back so
/// far, and nobody can say what went when.
///
/// The library goes by each entry about a removal alone, so that a file which was removed, brought back and removed again
/// counts from the first time; entries of checkpoints are dropped by the table's retention, which may be shorter than the
/// one that is asked for; and vectors it judges by when they were written.
async fn named_since(table: &Table, since: DateTime<Utc>) -> Result<Option<HashSet<String>>> {
    let mut kept = HashSet::new();
    // Those of versions that look older than `since`.
    let (mut before, mut older) = (HashSet::new(), 0);
    for number in (0..=table.version()).rev() {
        let Some(actions) = logged(table, number).await? else {
            return Ok((older > 0).then_some(kept));
        };
        let committed = actions.iter().find_map(|action| match action {
            Action::CommitInfo(info) => info.timestamp.and_then(DateTime::from_timestamp_millis),
            _ => None,
        });
        // The newest version before stood then. Of the files that it brought, those that are not live any more were
        // removed by a version that was seen; those that it removed itself were gone by then. A clock that was wrong for
        // a moment does not end the search.
        if committed.is_some_and(|committed| committed < since) {
            older += 1;
        } else {
            older = 0;
            kept.extend(before.drain());
        }
        if older == OLDER_VERSIONS {
            break;
        }
        let seen = if older > 0 { &mut before } else { &mut kept };
        for action in actions {
            add_named(action, seen)?;
        }
    }
    Ok(Some(kept))
}

/// Adds the files that an action names: a data file, a feed, a vector.
fn add_named(action: Action, named: &mut HashSet<String>) -> Result<()> {
    let (path, vector) = match action {
        Action::Add(file) => (file.path, file.deletion_vector),
        Action::Remove(file) => (file.path, file.deletion_vector),
        Action::Cdc(file) => (file.path, None),
        _ => return Ok(()),
    };
    named.insert(StorePath::parse(&path).unwrap_or_else(|_| StorePath::from(path.as_str())).to_string());
    if let Some(vector) = vector.filter(|vector| vector.storage_type == StorageType::UuidRelativePath) {
        named.insert(path_of(&vector.path_or_inline_dv)?.to_string());
    }
    Ok(())
}

/// Removes files of a table, but for those that its newest version needs, or versions that have a name: a restore may have
/// brought them back since they were listed, or somebody named a version. One that is gone already is no error. Returns those
/// that went.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when the store refuses; what was removed until then is gone.
pub async fn remove(lake: &Lake, table: &Table, leftovers: &[Leftover]) -> Result<Vec<Leftover>> {
    let store = table.delta().object_store();
    let failed = |path: &str| format!("removing `{path}` of {}", table.name());
    fault::cross("leftovers_found")?;
    let newest = lake.existing(table.name()).await?;
    let mut needed = live(&newest)?;
    needed.extend(files_of(lake, &newest, tags::tagged(&newest)?).await?);
    let gone: Vec<Leftover> = leftovers.iter().filter(|file| !needed.contains(&file.path)).cloned().collect();
    let (unfinished, listed): (Vec<&Leftover>, Vec<&Leftover>) = gone.iter().partition(|file| file.unfinished);
    futures::stream::iter(listed)
        .map(|file| {
            let store = &store;
            async move {
                let path = StorePath::parse(&file.path).map_err(object_store::Error::from);
                match store.delete(&path.context(|| failed(&file.path))?).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(Error::from(error)).context(|| failed(&file.path)),
                }
            }
        })
        .buffer_unordered(REMOVED_AT_ONCE)
        .try_collect::<()>()
        .await?;
    let Some(folder) = lake.root().local_path() else { return Ok(gone) };
    for file in unfinished {
        match std::fs::remove_file(folder.join(table.name().folder()).join(&file.path)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::from(error)).context(|| failed(&file.path)),
        }
    }
    Ok(gone)
}

/// The data files and vectors that the open version names.
fn live(table: &Table) -> Result<HashSet<String>> {
    let mut live = HashSet::new();
    for file in table.delta().snapshot()?.log_data().iter() {
        live.insert(file.object_store_path().to_string());
        let vector = file.deletion_vector_descriptor();
        if let Some(vector) = vector.filter(|vector| vector.storage_type == StorageType::UuidRelativePath) {
            live.insert(path_of(&vector.path_or_inline_dv)?.to_string());
        }
    }
    Ok(live)
}

/// The files that versions of a table need which have a name, those that the open one has among them.
async fn files_of(lake: &Lake, table: &Table, versions: BTreeSet<u64>) -> Result<Vec<String>> {
    let mut kept = Vec::new();
    for version in versions {
        let then = lake.table_at(table.name(), version).await.map_err(|error| {
            let doing = format!("looking for what the named version {version} of {} needs", table.name());
            error.context(doing).hint("`orchestrator table untag` takes a name away that stands for nothing any more")
        })?;
        kept.extend(history::files(&then)?.into_iter().map(|path| path.to_string()));
    }
    Ok(kept)
}

/// The files that some version in the log names, as far as it goes back.
async fn named(table: &Table) -> Result<HashSet<String>> {
    let mut named = HashSet::new();
    for number in (0..=table.version()).rev() {
        let Some(actions) = logged(table, number).await? else { break };
        for action in actions {
            add_named(action, &mut named)?;
        }
    }
    Ok(named)
}

/// The files of a table's folder that the store lists.
async fn listed(table: &Table) -> Result<HashMap<String, ObjectMeta>> {
    let store = table.delta().object_store();
    let files = store.list(None).map_ok(|file| (file.location.to_string(), file));
    files.try_collect().await.context(|| format!("listing the files of {}", table.name()))
}

/// The files below a folder that a local store has begun and not finished, untouched since `before`.
fn unfinished(folder: &Path, before: SystemTime) -> Result<Vec<Leftover>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    let failed = |folder: &Path| format!("listing `{}`", folder.display());
    while let Some(next) = folders.pop() {
        for entry in read_dir(&next).context(|| failed(&next))? {
            let entry = entry.context(|| failed(&next))?;
            match entry.file_type().context(|| failed(&next))? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() && is_unfinished(&entry) => found.extend(old(&entry, folder, before)),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// True for `name#3`, as object_store's local store calls a file until it is whole.
fn is_unfinished(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let number = name.to_str().and_then(|name| Some(name.rsplit_once('#')?.1));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The file when nobody has written to it since `before`; `None` also when it is gone by now.
fn old(entry: &DirEntry, folder: &Path, before: SystemTime) -> Option<Leftover> {
    let about = entry.metadata().ok()?;
    let path = entry.path();
    let path = path.strip_prefix(folder).ok()?.to_str()?.to_owned();
    let is_old = about.modified().ok()? <= before;
    is_old.then_some(Leftover { path, bytes: about.len(), unfinished: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_unfinished_files_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "12345").expect("a file");
        };
        ["a.parquet", "a.parquet#1", "day=1/b#x.parquet", "day=1/c.parquet#12", "_delta_log/7.json#1", "d#"]
            .iter()
            .for_each(|name| write(name));
        let names = |before| {
            let mut names: Vec<String> =
                unfinished(folder.path(), before).expect("a listing").into_iter().map(|file| file.path).collect();
            names.sort();
            names
        };
        let later = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 366 * 400);
        assert_eq!(names(later), ["_delta_log/7.json#1", "a.parquet#1", "day=1/c.parquet#12"]);
        assert!(names(SystemTime::UNIX_EPOCH).is_empty(), "a writer may still be at work");
    }
}
