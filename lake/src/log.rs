//! The log of a table as files: checkpoints, and entries that no version within the retention needs.
//!
//! An entry may go when a checkpoint stands in for it, from which every version within the retention can still be read, and
//! every one that has a name.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use deltalake::checkpoints::create_checkpoint;
use deltalake::table::config::TablePropertiesExt;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::durable;
use crate::error::{Context, Result};
use crate::lakehouse::Lake;
use crate::names::Layer;
use crate::table::Table;
use crate::tags;

/// Entries stay at least so long, whatever the table says: a writer that began with an older version must find them.
const RETENTION_LEAST: Duration = Duration::from_hours(24 * 7);
/// The property of a table that says how long.
const RETENTION: &str = "delta.logRetentionDuration";
/// Digits of a version in the name of a file.
const DIGITS: usize = 20;

/// The files of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFiles {
    /// Entries, one a version.
    pub entries: u64,
    /// Entries since the last checkpoint.
    pub since_checkpoint: u64,
    /// Files that are not needed, oldest first, with their bytes.
    pub expired: Vec<(Path, u64)>,
    /// The version whose checkpoint stands in for them.
    pub stand_in: Option<u64>,
    /// The version of the newest checkpoint.
    pub last_checkpoint: Option<u64>,
}

impl LogFiles {
    /// Bytes of the files that are not needed.
    pub fn expired_bytes(&self) -> u64 {
        self.expired.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// A file of a log.
#[derive(Debug, Clone)]
struct LogFile {
    version: u64,
    path: Path,
    bytes: u64,
    written: DateTime<Utc>,
    is_entry: bool,
    is_checkpoint: bool,
}

/// Looks at the log of a table.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when it cannot be listed.
pub async fn look(lake: &Lake, table: &Table) -> Result<LogFiles> {
    let asked = table.delta().snapshot()?.table_config().log_retention_duration();
    // Nobody goes back to earlier versions of what the program keeps for itself.
    let is_own = !matches!(table.name().layer, Layer::Bronze | Layer::Silver | Layer::Gold | Layer::Delta);
    let is_asked = table.property(RETENTION)?.is_some();
    let retention = if is_own && !is_asked { RETENTION_LEAST } else { asked.max(RETENTION_LEAST) };
    let folder = Path::from("_delta_log");
    let store = table.delta().object_store();
    let listed = store.list(Some(&folder)).try_collect::<Vec<_>>().await;
    let listed = listed.context(|| format!("listing the log of {}", table.name()))?;
    let files = listed.into_iter().filter_map(|file| {
        let name = file.location.filename()?;
        let version = name.get(..DIGITS)?.parse().ok()?;
        let rest = name.get(DIGITS..)?;
        // One in parts may lack some, and an empty one was never written.
        let is_checkpoint = rest == ".checkpoint.parquet" && file.size > 0;
        let is_entry = rest == ".json";
        let (written, bytes) = (file.last_modified, file.size);
        Some(LogFile { version, bytes, written, is_entry, is_checkpoint, path: file.location.clone() })
    });
    let tagged = tags::tagged(table)?.first().copied();
    Ok(sorted(files.collect(), lake.clock().now(), retention, tagged))
}

/// The newest version of the Delta table in a folder below a store; `known` is one that is not newer. `None` when there is
/// no table, or none that is newer than `known`.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when the folder cannot be listed.
pub async fn newest_version(store: &dyn ObjectStore, folder: &str, known: Option<u64>) -> Result<Option<u64>> {
    let log = match folder {
        "" => Path::from("_delta_log"),
        folder => Path::from(format!("{folder}/_delta_log")),
    };
    let listing = match known {
        None => store.list(Some(&log)),
        Some(known) => store.list_with_offset(Some(&log), &log.clone().join(format!("{known:0DIGITS$}.json"))),
    };
    let version = |name: &str| match (name.get(..DIGITS), name.get(DIGITS..)) {
        (Some(version), Some(".json" | ".checkpoint.parquet")) => version.parse::<u64>().ok(),
        _ => None,
    };
    let versions = listing.try_filter_map(|file| std::future::ready(Ok(file.location.filename().and_then(version))));
    let versions: Vec<u64> = versions.try_collect().await.context(|| format!("listing the log in `{folder}`"))?;
    Ok(versions.into_iter().max().filter(|newest| known.is_none_or(|known| *newest > known)))
}

/// Which of the files are what. `tagged` is the oldest version that has a name.
fn sorted(mut files: Vec<LogFile>, now: DateTime<Utc>, retention: Duration, tagged: Option<u64>) -> LogFiles {
    files.sort_by(|a, b| (a.version, &a.path).cmp(&(b.version, &b.path)));
    let cutoff = chrono::Duration::from_std(retention).ok().and_then(|retention| now.checked_sub_signed(retention));
    let cutoff = cutoff.unwrap_or(DateTime::<Utc>::MIN_UTC);
    let entries: BTreeMap<u64, DateTime<Utc>> =
        files.iter().filter(|file| file.is_entry).map(|file| (file.version, file.written)).collect();
    let last_checkpoint = files.iter().filter(|file| file.is_checkpoint).map(|file| file.version).max();
    // The newest version before the retention stood when it began: it must stay readable as well.
    let oldest_kept = entries.iter().rev().find(|(_, written)| **written < cutoff).map(|(version, _)| *version);
    let oldest_kept = oldest_kept.map(|kept| tagged.map_or(kept, |tagged| kept.min(tagged)));
    let stand_in = oldest_kept.and_then(|kept| {
        files.iter().filter(|file| file.is_checkpoint && file.version <= kept).map(|file| file.version).max()
    });
    let is_expired = |file: &&LogFile| stand_in.is_some_and(|version| file.version < version) && file.written < cutoff;
    LogFiles {
        entries: entries.len() as u64,
        since_checkpoint: entries.keys().filter(|version| last_checkpoint.is_none_or(|last| **version > last)).count()
            as u64,
        expired: files.iter().filter(is_expired).map(|file| (file.path.clone(), file.bytes)).collect(),
        stand_in,
        last_checkpoint,
    }
}

/// Writes a checkpoint of the open version.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when it cannot be written.
pub async fn checkpoint(table: &Table) -> Result<()> {
    let doing = || format!("writing a checkpoint of {}", table.name());
    create_checkpoint(table.delta(), None).await.context(doing)?;
    match table.synced() {
        Some(folder) => durable::checkpoint(folder, table.version()).await.context(doing),
        None => Ok(()),
    }
}

/// Removes the files that are not needed, oldest first, so that the log has no hole wherever this ends.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when the store refuses; what was removed until then is gone.
pub async fn clean(table: &Table, files: &LogFiles) -> Result<()> {
    let store = table.delta().object_store();
    if let (Some(folder), Some(version)) = (table.synced(), files.stand_in) {
        durable::checkpoint(folder, version).await?;
    }
    for (path, _) in &files.expired {
        match store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => {
                return Err(crate::Error::from(error)).context(|| format!("removing `{path}` of {}", table.name()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[(&str, i64)]) -> Vec<LogFile> {
        let file = |(name, day): &(&str, i64)| LogFile {
            version: name[..2].parse().expect("a version"),
            path: Path::from(*name),
            bytes: 10,
            written: DateTime::UNIX_EPOCH + chrono::Duration::days(*day),
            is_entry: name.ends_with(".json"),
            is_checkpoint: name.contains("checkpoint"),
        };
        names.iter().map(file).collect()
    }

    #[tokio::test]
    async fn the_newest_version_is_that_of_the_entries() {
        let store = object_store::memory::InMemory::new();
        let newest = async |known| newest_version(&store, "silver/t", known).await.expect("listed");
        assert_eq!(newest(None).await, None);
        for name in ["00000000000000000000.json", "00000000000000000009.json", "00000000000000000010.json", "_last"] {
            let path = Path::from(format!("silver/t/_delta_log/{name}"));
            store.put(&path, "{}".into()).await.expect("put");
        }
        store.put(&"silver/t2/_delta_log/00000000000000000020.json".into(), "{}".into()).await.expect("put");
        assert_eq!((newest(None).await, newest(Some(9)).await, newest(Some(10)).await), (Some(10), Some(10), None));
    }

    fn expired(names: &[(&str, i64)], today: i64) -> Vec<String> {
        let now = DateTime::UNIX_EPOCH + chrono::Duration::days(today);
        let found = sorted(files(names), now, Duration::from_hours(24 * 30), None);
        found.expired.iter().map(|(path, _)| path.to_string()).collect()
    }

    #[test]
    fn only_what_a_checkpoint_stands_in_for_is_expired() {
        let log = [
            ("00.json", 0),
            ("01.json", 1),
            ("01.checkpoint.parquet", 1),
            ("02.json", 2),
            ("02.checkpoint.parquet", 2),
            ("03.json", 40),
        ];
        assert_eq!(expired(&log, 20), [""; 0], "all are young");
        assert_eq!(expired(&log, 50), ["00.json", "01.checkpoint.parquet", "01.json"], "version 2 stood 30 days ago");
        assert_eq!(expired(&log[..2], 50), [""; 0], "nothing stands in");
        // A checkpoint that is younger than the retention does not stand in for what was read before it.
        assert_eq!(expired(&[("00.json", 0), ("01.json", 45), ("01.checkpoint.parquet", 45)], 50), [""; 0]);
        let now = DateTime::UNIX_EPOCH + chrono::Duration::days(50);
        let named = sorted(files(&log), now, Duration::from_hours(24 * 30), Some(1));
        assert_eq!(named.expired.len(), 1, "a version with a name can be read: {named:?}");
        let found = sorted(files(&log), DateTime::UNIX_EPOCH, Duration::ZERO, None);
        assert_eq!((found.entries, found.since_checkpoint), (4, 1));
    }
}
