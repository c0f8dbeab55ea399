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
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

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
/// The folder of the log, below that of the table.
pub(crate) const FOLDER: &str = "_delta_log";
/// What names the newest checkpoint, in the folder of the log.
const LAST_CHECKPOINT: &str = "_last_checkpoint";
/// Digits of a version in the name of a file.
const DIGITS: usize = 20;

/// The entry of a version, below the folder of its table.
pub(crate) fn entry(version: u64) -> String {
    format!("{FOLDER}/{version:0DIGITS$}.json")
}

/// The checkpoint of a version, below the folder of its table.
pub(crate) fn checkpoint_of(version: u64) -> String {
    format!("{FOLDER}/{version:0DIGITS$}.checkpoint.parquet")
}

/// What names the newest checkpoint, below the folder of its table.
pub(crate) fn last_checkpoint() -> String {
    format!("{FOLDER}/{LAST_CHECKPOINT}")
}

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
    let folder = Path::from(FOLDER);
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

/// The newest version of a table, as its log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// The version.
    pub version: u64,
    /// When its entry was written: a table that was made anew has the same versions once more.
    pub written: DateTime<Utc>,
}

/// The newest version of the Delta table in a folder below a store; `None` when there is no table. With `known`, what it was
/// before, nothing older is listed, as long as that is still there.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when the folder cannot be listed.
pub async fn newest_version(store: &dyn ObjectStore, folder: &str, known: Option<Newest>) -> Result<Option<Newest>> {
    let log = match folder {
        "" => Path::from(FOLDER),
        folder => Path::from(format!("{folder}/{FOLDER}")),
    };
    if let Some(known) = known {
        // Sorts right before all files of the version.
        let from = log.clone().join(format!("{:0DIGITS$}", known.version));
        let versions = versions(store.list_with_offset(Some(&log), &from), folder).await?;
        if versions.get(&known.version) == Some(&known.written) {
            return Ok(newest(&versions));
        }
    }
    Ok(newest(&versions(store.list(Some(&log)), folder).await?))
}

fn newest(versions: &BTreeMap<u64, DateTime<Utc>>) -> Option<Newest> {
    versions.last_key_value().map(|(version, written)| Newest { version: *version, written: *written })
}

/// The versions among the files of a log, each with the time of its entry, or of its checkpoint where the entry is gone.
async fn versions(
    listing: BoxStream<'_, object_store::Result<ObjectMeta>>,
    folder: &str,
) -> Result<BTreeMap<u64, DateTime<Utc>>> {
    let files: Vec<ObjectMeta> = listing.try_collect().await.context(|| format!("listing the log in `{folder}`"))?;
    let mut versions = BTreeMap::new();
    for file in files {
        let Some(name) = file.location.filename() else { continue };
        let Some(version) = name.get(..DIGITS).and_then(|digits| digits.parse().ok()) else { continue };
        match name.get(DIGITS..) {
            Some(".json") => drop(versions.insert(version, file.last_modified)),
            Some(".checkpoint.parquet") => drop(versions.entry(version).or_insert(file.last_modified)),
            _ => {}
        }
    }
    Ok(versions)
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

/// Removes the files that are not needed, oldest first, so that the log has no hole wherever this ends. True when it did:
/// nothing goes when a version has got a name since they were looked for that could not be read without them.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when the store refuses; what was removed until then is gone.
pub async fn clean(lake: &Lake, table: &Table, files: &LogFiles) -> Result<bool> {
    let tagged = tags::tagged(&lake.existing(table.name()).await?)?.first().copied();
    if files.stand_in.is_some_and(|stand_in| tagged.is_some_and(|tagged| tagged < stand_in)) {
        return Ok(false);
    }
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
    Ok(true)
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
        let put = async |name: &str| {
            store.put(&Path::from(format!("silver/{name}")), "{}".into()).await.expect("put");
        };
        assert_eq!(newest(None).await, None);
        for name in
            ["00000000000000000000.json", "00000000000000000009.json", "00000000000000000009.checkpoint.parquet"]
        {
            put(&format!("t/_delta_log/{name}")).await;
        }
        let nine = newest(None).await;
        assert_eq!(nine.map(|newest| newest.version), Some(9));
        assert_eq!(newest(nine).await, nine);
        put("t/_delta_log/00000000000000000010.json").await;
        put("t/_delta_log/_last_checkpoint").await;
        put("t2/_delta_log/00000000000000000020.json").await;
        let ten = newest(nine).await;
        assert_eq!((ten.map(|newest| newest.version), newest(None).await), (Some(10), ten));
        // A table that is made anew begins again, and may have as many versions as the old one.
        put("t/_delta_log/00000000000000000010.json").await;
        let anew = newest(ten).await;
        assert!(anew != ten && anew.is_some_and(|newest| newest.version == 10), "{anew:?}");
        store.delete(&Path::from("silver/t/_delta_log/00000000000000000010.json")).await.expect("deleted");
        assert_eq!(newest(ten).await, nine);
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
