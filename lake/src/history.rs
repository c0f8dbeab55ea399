//! The versions of a table as its log tells them, newest first, and which of them stood at a moment.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value};

use crate::error::{Context, Error, ErrorKind, Result};
use crate::table::Table;

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
    let mut oldest = None;
    for number in (0..=table.version()).rev() {
        let Some(version) = entry(table, number).await? else { break };
        if version.at.is_some_and(|committed| committed <= at) {
            return Ok(number);
        }
        oldest = Some(version);
    }
    let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let since = oldest.as_ref().and_then(|oldest| Some(format!(" (version {}, {})", oldest.version, text(oldest.at?))));
    let message = format!("table {} has no version of {}", table.name(), text(at));
    let hint = match oldest {
        Some(Version { version: 0, .. }) => format!("the table was made later{}", since.unwrap_or_default()),
        _ => format!("its log does not reach back to then{}", since.unwrap_or_default()),
    };
    Err(Error::new(ErrorKind::Table, message).hint(hint))
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
