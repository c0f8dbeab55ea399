//! The data files of a table with what its log knows of them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use deltalake::kernel::{Add, LogicalFileView};
use serde_json::Value;

use crate::error::Result;
use crate::optimize::tags_of;
use crate::table::Table;

/// What the log knows of a data file.
#[derive(Debug, Clone, Default)]
pub struct ListedFile {
    /// Its path below the table's folder.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// Rows in it; `None` when nobody counted.
    pub rows: Option<u64>,
    /// Those of them that are deleted.
    pub deleted: u64,
    /// When it was written.
    pub written_at: Option<DateTime<Utc>>,
    /// The values of the partition columns.
    pub partition: BTreeMap<String, Option<String>>,
    /// Of each column with statistics the least and the greatest value and how many are null, as the log has them.
    pub columns: BTreeMap<String, [Value; 3]>,
    /// Its tags, by which a clustered file is known.
    pub tags: BTreeMap<String, Option<String>>,
}

impl Table {
    /// The data files of the open version, oldest first.
    ///
    /// # Errors
    /// [`ErrorKind::Table`](crate::ErrorKind::Table) when the table is not loaded.
    pub fn listed_files(&self) -> Result<Vec<ListedFile>> {
        let log = self.delta().snapshot()?.log_data();
        let mut files: Vec<ListedFile> = log.iter().map(|file| listed(&file)).collect();
        files.sort_by(|a, b| (a.written_at, &a.path).cmp(&(b.written_at, &b.path)));
        Ok(files)
    }
}

fn listed(file: &LogicalFileView) -> ListedFile {
    let stats = file.stats().and_then(|stats| serde_json::from_str::<Value>(&stats).ok()).unwrap_or_default();
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    ListedFile {
        path: file.path().into_owned(),
        bytes: number(file.size()),
        rows: file.num_records().map(|rows| rows as u64),
        deleted: file.deletion_vector_descriptor().map_or(0, |vector| number(vector.cardinality)),
        written_at: DateTime::from_timestamp_millis(file.modification_time()),
        partition: file.partition_values_map().into_iter().collect(),
        columns: columns(&stats),
        tags: tags_of(file).into_iter().collect(),
    }
}

/// The action that adds a file as a version has it.
#[expect(deprecated, reason = "the library has no other way to a file's action")]
pub(crate) fn add_of(file: &LogicalFileView) -> Add {
    Add { data_change: true, ..file.add_action() }
}

fn columns(stats: &Value) -> BTreeMap<String, [Value; 3]> {
    let mut columns: BTreeMap<String, [Value; 3]> = BTreeMap::new();
    for (place, key) in ["minValues", "maxValues", "nullCount"].into_iter().enumerate() {
        for (name, value) in stats[key].as_object().into_iter().flatten() {
            columns.entry(name.clone()).or_default()[place] = value.clone();
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_told_by_column() {
        let stats = serde_json::json!({"numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 9},
            "nullCount": {"id": 0, "note": 3}});
        let columns = columns(&stats);
        assert_eq!(columns["id"], [Value::from(1), Value::from(9), Value::from(0)]);
        assert_eq!(columns["note"], [Value::Null, Value::Null, Value::from(3)]);
    }
}
