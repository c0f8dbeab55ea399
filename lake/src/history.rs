//! The versions of a table as its log tells them, newest first, and which of them stood at a moment.

use std::collections::HashSet;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::{Map, Value};

use crate::error::{Context, Error, ErrorKind, Result};
use crate::names::TableName;
use crate::table::Table;
use crate::vectors;

/// So many versions in a row that are older than a moment tell that those before them are as well.
pub(crate) const OLDER_VERSIONS: usize = 8;

/// One version of a table.
#[derive(Debug, Clone, Default)]
pub struct Version {
    /// Its number.
    pub version: u64,
    /// When it was committed, as the writer's clock said; `None` when the writer did not say.
    pub at: Option<DateTime<Utc>>,
    /// What was done: `WRITE`, `MERGE`, `CREATE TABLE`.
    pub operation: String,
    /// The run that did it, when it was one of ours.
    pub run: Option<String>,
    /// With what, as Delta has it.
    pub parameters: Map<String, Value>,
    /// The figures of the operation, as Delta has them.
    pub metrics: Map<String, Value>,
    /// Data files that came.
    pub files_added: u64,
    /// Data files that went.
    pub files_removed: u64,
    /// Rows in the files that came, where the log counts them.
    pub rows_added: u64,
    /// Bytes of the files that came.
    pub bytes_added: u64,
}

/// Reads a moment as people write it; one without an offset is of `zone`.
///
/// # Errors
/// [`ErrorKind::Query`] when it is none.
pub fn moment(text: &str, zone: Tz) -> Result<DateTime<Utc>> {
    if let Ok(at) = DateTime::parse_from_rfc3339(&text.replacen(' ', "T", 1)) {
        return Ok(at.to_utc());
    }
    let formats = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"];
    let naive = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let naive = naive.or_else(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0));
    naive.and_then(|naive| zone.from_local_datetime(&naive).earliest()).map(|at| at.to_utc()).ok_or_else(|| {
        let error = Error::new(ErrorKind::Query, format!("`{text}` is not a time of {zone}"));
        error.hint("write 2024-05-01, 2024-05-01 10:00:00 (in the pipeline's zone) or 2024-05-01T10:00:00Z")
    })
}

/// The newest versions of a table up to the open one, newest first, `limit` at most. They end where the log was cleaned.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read, [`ErrorKind::Table`] when an entry of it is no JSON.
pub async fn history(table: &Table, limit: usize) -> Result<Vec<Version>> {
    let mut versions = Vec::new();
    for number in (0..=table.version()).rev().take(limit) {
        let Some(version) = entry(table, number).await? else { break };
        versions.push(version);
    }
    Ok(versions)
}

/// The version that was the newest at a moment.
///
/// # Errors
/// [`ErrorKind::Table`] when the table is younger, or its log does not reach back to then; as [`history`].
pub async fn version_at(table: &Table, at: DateTime<Utc>) -> Result<u64> {
    Timeline::since(table, at).await?.version_at(at)
}

/// When the newest versions of a table were committed.
///
/// Times are those of the writers' clocks, and never fall from one version to the next: one that a slow clock dated
/// earlier than the version before it counts as a millisecond later, as Delta has it.
#[derive(Debug, Clone)]
pub struct Timeline {
    name: TableName,
    /// Oldest first; `None` for a version whose writer gave no time.
    versions: Vec<(u64, Option<DateTime<Utc>>)>,
}

impl Timeline {
    /// The versions of a table from the one that stood at `from` up to the open one.
    ///
    /// # Errors
    /// As [`history`].
    pub async fn since(table: &Table, from: DateTime<Utc>) -> Result<Self> {
        let (mut versions, mut older) = (Vec::new(), 0);
        for number in (0..=table.version()).rev() {
            let Some(version) = entry(table, number).await? else { break };
            versions.push((number, version.at));
            // A clock that was wrong for a moment does not hide the versions before.
            older = if version.at.is_some_and(|at| at <= from) { older + 1 } else { 0 };
            if older == OLDER_VERSIONS {
                break;
            }
        }
        versions.reverse();
        Ok(Self::new(table.name().clone(), versions))
    }

    fn new(name: TableName, mut versions: Vec<(u64, Option<DateTime<Utc>>)>) -> Self {
        let mut last: Option<DateTime<Utc>> = None;
        for at in versions.iter_mut().filter_map(|(_, at)| at.as_mut()) {
            *at = last.map_or(*at, |last| (*at).max(last + TimeDelta::milliseconds(1)));
            last = Some(*at);
        }
        Self { name, versions }
    }

    /// The version that was the newest at a moment.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is younger, or its log does not reach back to then.
    pub fn version_at(&self, at: DateTime<Utc>) -> Result<u64> {
        let stood =
            self.versions.iter().rev().find(|(_, committed)| committed.is_some_and(|committed| committed <= at));
        if let Some((number, _)) = stood {
            return Ok(*number);
        }
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
        let oldest = self.versions.first();
        let since = oldest.and_then(|(number, at)| Some(format!(" (version {number}, {})", text((*at)?))));
        let message = format!("table {} has no version of {}", self.name, text(at));
        let hint = match oldest {
            Some((0, _)) => format!("the table was made later{}", since.unwrap_or_default()),
            _ => format!("its log does not reach back to then{}", since.unwrap_or_default()),
        };
        Err(Error::new(ErrorKind::Table, message).hint(hint))
    }
}

/// Fails when files of an earlier version of a table, which is open as `then`, are gone: data files, or those that tell
/// which of their rows are deleted. `now` is its newest version, whose files are there.
///
/// # Errors
/// [`ErrorKind::Table`] with the version, when it cannot be read any more.
pub async fn check_readable(then: &Table, now: &Table) -> Result<()> {
    let Some(path) = lost(then, now, 1).await?.pop() else { return Ok(()) };
    let message = format!("version {} of {} cannot be read any more", then.version(), then.name());
    let hint = format!("its file `{path}` is gone: `vacuum` removes what no version within the retention has");
    Err(Error::new(ErrorKind::Table, message).hint(hint))
}

/// The files of an earlier version of a table that are gone, sorted by path; as [`check_readable`].
///
/// # Errors
/// [`ErrorKind::Store`] when they cannot be looked for.
pub async fn lost_files(then: &Table, now: &Table) -> Result<Vec<String>> {
    let mut lost = lost(then, now, usize::MAX).await?;
    lost.sort();
    Ok(lost)
}

/// The first files, `limit` at most, of an earlier version that are gone.
async fn lost(then: &Table, now: &Table, limit: usize) -> Result<Vec<String>> {
    let live: HashSet<Path> = files(now)?.into_iter().collect();
    let store = then.delta().log_store().object_store(None);
    let (mut asked, mut lost) = (HashSet::new(), Vec::new());
    for path in files(then)?.into_iter().filter(|path| !live.contains(path)) {
        if lost.len() == limit {
            break;
        }
        if !asked.insert(path.clone()) {
            continue;
        }
        match store.head(&path).await {
            Ok(_) => {}
            Err(object_store::Error::NotFound { .. }) => lost.push(path.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(lost)
}

/// The files that the open version of a table is made of.
pub(crate) fn files(table: &Table) -> Result<Vec<Path>> {
    let mut files = Vec::new();
    for file in table.delta().snapshot()?.log_data().iter() {
        files.push(Path::parse(file.path()).unwrap_or_else(|_| Path::from(file.path().as_ref())));
        if let Some(vector) = file.deletion_vector_descriptor() {
            files.extend(vectors::file_of(&vector)?);
        }
    }
    Ok(files)
}

async fn entry(table: &Table, number: u64) -> Result<Option<Version>> {
    let log = table.delta().log_store();
    let Some(bytes) =
        log.read_commit_entry(number).await.context(|| format!("reading version {number} of {}", table.name()))?
    else {
        return Ok(None);
    };
    let mut version = Version { version: number, ..Version::default() };
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let action: Value = serde_json::from_slice(line).map_err(|error| {
            let message = format!("version {number} of {} has a line that is no JSON", table.name());
            Error::new(ErrorKind::Table, message).with_source(error)
        })?;
        version.take(&action);
    }
    Ok(Some(version))
}

impl Version {
    /// Takes an action of the version's log entry.
    fn take(&mut self, action: &Value) {
        if let Some(add) = action.get("add") {
            self.files_added += 1;
            self.bytes_added += add["size"].as_u64().unwrap_or(0);
            let stats = add["stats"].as_str().and_then(|stats| serde_json::from_str::<Value>(stats).ok());
            self.rows_added += stats.and_then(|stats| stats["numRecords"].as_u64()).unwrap_or(0);
        }
        if action.get("remove").is_some() {
            self.files_removed += 1;
        }
        if let Some(info) = action.get("commitInfo") {
            self.at = info["timestamp"].as_i64().and_then(DateTime::from_timestamp_millis);
            self.operation = info["operation"].as_str().unwrap_or_default().to_owned();
            self.run = info["runId"].as_str().map(str::to_owned);
            self.parameters = info["operationParameters"].as_object().cloned().unwrap_or_default();
            self.metrics = info["operationMetrics"].as_object().cloned().unwrap_or_default();
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        serde_json::json!({
            "version": self.version,
            "at": self.at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)),
            "operation": self.operation,
            "run_id": self.run,
            "parameters": self.parameters,
            "metrics": self.metrics,
            "files_added": self.files_added,
            "files_removed": self.files_removed,
            "rows_added": self.rows_added,
            "bytes_added": self.bytes_added,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_fall_count_as_later() {
        let at = |second: u32| DateTime::from_timestamp(i64::from(second), 0);
        let seconds = [Some(10), Some(20), None, Some(15), Some(30)];
        let versions = (3..).zip(seconds.iter().map(|second| second.and_then(at))).collect();
        let timeline = Timeline::new(TableName::silver("t"), versions);
        for (second, version) in [(10, 3), (19, 3), (20, 4), (21, 6), (29, 6), (99, 7)] {
            assert_eq!(timeline.version_at(at(second).expect("a time")).expect("a version"), version);
        }
        let error = timeline.version_at(at(9).expect("a time")).expect_err("too early");
        assert_eq!(error.hint_text(), Some("its log does not reach back to then (version 3, 1970-01-01T00:00:10Z)"));
    }

    #[test]
    fn a_version_is_what_its_actions_say() {
        let mut version = Version::default();
        for action in [
            serde_json::json!({"commitInfo": {"timestamp": 1_714_557_600_123_i64, "operation": "MERGE", "runId": "r1",
                "operationMetrics": {"numTargetRowsUpdated": 2}}}),
            serde_json::json!({"add": {"path": "a", "size": 10, "stats": "{\"numRecords\":3}"}}),
            serde_json::json!({"add": {"path": "b", "size": 5}}),
            serde_json::json!({"remove": {"path": "c"}}),
            serde_json::json!({"txn": {"appId": "x", "version": 1}}),
        ] {
            version.take(&action);
        }
        let told = version.to_json();
        assert_eq!(told["at"], "2024-05-01T10:00:00.123Z");
        assert_eq!((told["operation"].as_str(), told["run_id"].as_str()), (Some("MERGE"), Some("r1")));
        let figures = ["files_added", "files_removed", "rows_added", "bytes_added"].map(|name| told[name].as_u64());
        assert_eq!(figures, [Some(2), Some(1), Some(3), Some(15)]);
        assert_eq!(told["metrics"]["numTargetRowsUpdated"], 2);
    }
}
