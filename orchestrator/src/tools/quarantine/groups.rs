//! What is in quarantine, by source, table, reason and status: how much, since when, one example, and what to do.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::datatypes::{Field, Schema};
use futures::TryStreamExt;
use lake::quarantine::{Quarantine, Record, Status};
use lake::report::grid::{Align, Grid};
use lake::report::{WIDTH, counted, thousands, wrapped};
use lake::{Lake, Result};
use serde_json::{Value, json};

use super::{Choice, exact, rough};

/// Characters of a reason that are shown.
const REASON_CHARS_MAX: usize = 300;

/// Records of one source that one table refused for one kind of reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    source: String,
    refused_by: String,
    reason_kind: String,
    column: Option<String>,
    status: Status,
    /// Whether the table needs a value of the column in every row, by the present spec.
    is_needed: bool,
    records: u64,
    first_seen_us: i64,
    last_seen_us: i64,
    /// The record that arrived first, without its text.
    example: Record,
}

type Key = (String, String, String, Option<String>, Status);

/// The groups of the records that are meant.
///
/// # Errors
/// [`lake::ErrorKind::Store`] or [`lake::ErrorKind::Query`] when a quarantine cannot be read.
pub(crate) async fn groups(lake: &Lake, choice: &Choice) -> Result<Vec<Group>> {
    let mut groups: BTreeMap<Key, Group> = BTreeMap::new();
    for source in &choice.sources {
        let Some(quarantine) = Quarantine::open(lake, source).await? else { continue };
        let mut records = std::pin::pin!(quarantine.records(&choice.filter).await?);
        while let Some(some) = records.try_next().await? {
            for record in some {
                add(&mut groups, source, record);
            }
        }
    }
    Ok(groups.into_values().collect())
}

/// Notes which groups are about a column that may not become null: `is_needed` knows it of a table and a column.
pub(crate) fn note_needed(groups: &mut [Group], is_needed: impl Fn(&str, &str) -> bool) {
    for group in groups {
        group.is_needed = group.column.as_deref().is_some_and(|column| is_needed(&group.refused_by, column));
    }
}

fn add(groups: &mut BTreeMap<Key, Group>, source: &str, record: Record) {
    let kind = record.reason_kind.clone();
    let key = (source.to_owned(), record.refused_by.clone(), kind, record.column.clone(), record.status);
    let seen = record.first_seen_us;
    match groups.get_mut(&key) {
        Some(group) => {
            group.records += 1;
            group.first_seen_us = group.first_seen_us.min(seen);
            group.last_seen_us = group.last_seen_us.max(seen);
        }
        None => {
            let (source, refused_by, reason_kind, column, status) = key.clone();
            let example = Record { record: None, header: None, ..record };
            let (first_seen_us, last_seen_us, records) = (seen, seen, 1);
            let group = Group {
                source,
                refused_by,
                reason_kind,
                column,
                status,
                is_needed: false,
                records,
                first_seen_us,
                last_seen_us,
                example,
            };
            groups.insert(key, group);
        }
    }
}

/// The groups for a person.
pub(crate) fn text(groups: &[Group]) -> String {
    let mut grid = Grid::new();
    let of = |get: fn(&Group) -> String| groups.iter().map(get).collect::<Vec<_>>();
    grid.column("source", None, Align::Left, of(|group| group.source.clone()));
    grid.column("refused by", None, Align::Left, of(|group| group.refused_by.clone()));
    grid.column("reason", None, Align::Left, of(|group| group.reason_kind.clone()));
    grid.column("column", None, Align::Left, of(|group| group.column.clone().unwrap_or_default()));
    grid.column("status", None, Align::Left, of(|group| group.status.to_string()));
    grid.column("records", None, Align::Right, of(|group| thousands(group.records)));
    let mut out = grid.render(WIDTH);
    for group in groups {
        let at = group.column.as_ref().map(|column| format!(" of `{column}`")).unwrap_or_default();
        let _ = writeln!(out, "\n{}: {}{at}, {}", group.refused_by, group.reason_kind, group.status);
        let span = match (rough(group.first_seen_us), rough(group.last_seen_us)) {
            (first, last) if first == last => format!("seen {first} UTC"),
            (first, last) => format!("seen {first} to {last} UTC"),
        };
        let _ = writeln!(out, "  {}, {span}", counted_records(group.records));
        let _ = writeln!(out, "  for example {}, record {}:", group.example.file_path, group.example.row_number);
        let _ = writeln!(out, "{}", wrapped("    ", 4, &shortened(&group.example.reason)));
        if let Some(next) = group.next() {
            let _ = writeln!(out, "{}", wrapped("  next: ", 8, &next));
        }
    }
    let _ = writeln!(out, "\n{}", totals(groups));
    out
}

/// The groups for a program: an array of objects.
pub(crate) fn json(groups: &[Group]) -> Value {
    let object = |group: &Group| {
        json!({
            "source": group.source,
            "refused_by": group.refused_by,
            "reason_kind": group.reason_kind,
            "column": group.column,
            "status": group.status.as_str(),
            "records": group.records,
            "first_seen": exact(group.first_seen_us),
            "last_seen": exact(group.last_seen_us),
            "example": {
                "_batch_id": group.example.batch_id,
                "_file_path": group.example.file_path,
                "_row_number": group.example.row_number,
                "reason": group.example.reason,
                "value": group.example.value,
            },
            "next": group.next(),
        })
    };
    groups.iter().map(object).collect()
}

/// The groups as rows of a table.
///
/// # Errors
/// [`lake::ErrorKind::Internal`] never, unless the columns do not fit each other.
pub(crate) fn rows(groups: &[Group]) -> Result<RecordBatch> {
    let text = |of: &dyn Fn(&Group) -> Option<String>| -> ArrayRef {
        Arc::new(groups.iter().map(of).collect::<StringArray>())
    };
    let time = |of: &dyn Fn(&Group) -> i64| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from_iter_values(groups.iter().map(of)).with_timezone("UTC"))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("source", text(&|group| Some(group.source.clone()))),
        ("refused_by", text(&|group| Some(group.refused_by.clone()))),
        ("reason_kind", text(&|group| Some(group.reason_kind.clone()))),
        ("column", text(&|group| group.column.clone())),
        ("status", text(&|group| Some(group.status.to_string()))),
        ("records", Arc::new(groups.iter().map(|group| group.records).collect::<UInt64Array>())),
        ("first_seen", time(&|group| group.first_seen_us)),
        ("last_seen", time(&|group| group.last_seen_us)),
        ("example_file", text(&|group| Some(group.example.file_path.clone()))),
        ("example_row_number", Arc::new(groups.iter().map(|group| group.example.row_number).collect::<Int64Array>())),
        ("example_reason", text(&|group| Some(group.example.reason.clone()))),
        ("next", text(&Group::next)),
    ];
    let fields = columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    Ok(RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, column)| column).collect())?)
}

impl Group {
    /// The kind of reason.
    pub(crate) fn reason_kind(&self) -> &str {
        &self.reason_kind
    }

    /// What somebody may do about the records.
    fn next(&self) -> Option<String> {
        match self.status {
            Status::Replayed | Status::Discarded => return None,
            Status::Replaying => return Some("a replay is at work or was killed; the next run finishes it".to_owned()),
            Status::Open => {}
        }
        let column = self.column.as_deref().unwrap_or("the column");
        let anew = "make the table anew with `silver rebuild`";
        let mend = match self.reason_kind.as_str() {
            "cast" if self.is_needed => format!("give `{column}` another type and {anew}; or"),
            "cast" => format!("set `on_cast_error: \"null\"`, or give `{column}` another type and {anew}; then"),
            "not_null" => format!("let `{column}` be null and {anew}; or"),
            "null_key" => format!("choose keys that every record has and {anew}; or"),
            "unknown_op" => format!("set `on_unknown_op: ignore`, or list the operation and {anew}; then"),
            "expectation" | "evaluation" => "mend the condition in the spec, then".to_owned(),
            "constraint" => "mend the constraint in the spec, then".to_owned(),
            "generated" => format!("mend the expression of `{column}` in `generated`, then"),
            "cut" => return Some("land the file again as a whole, then `quarantine discard` what was cut".to_owned()),
            _ => "say in the spec how such records are written, then".to_owned(),
        };
        Some(match mend.strip_suffix("; or") {
            Some(mend) => format!("{mend}; or `quarantine discard`"),
            None => format!("{mend} `quarantine replay`; or `quarantine discard`"),
        })
    }
}

/// A reason on one line, without its end when it is long.
fn shortened(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON_CHARS_MAX + 1).collect();
    match line.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

fn counted_records(records: u64) -> String {
    counted(usize::try_from(records).unwrap_or(usize::MAX), "record")
}

fn totals(groups: &[Group]) -> String {
    let of =
        |status: Status| groups.iter().filter(|group| group.status == status).map(|group| group.records).sum::<u64>();
    let counts = Status::ALL.into_iter().map(|status| (of(status), status)).filter(|(records, _)| *records > 0);
    let counts: Vec<String> = counts.map(|(records, status)| format!("{} {status}", thousands(records))).collect();
    let all = groups.iter().map(|group| group.records).sum();
    format!("{}: {}", counted_records(all), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_that_is_needed_is_not_to_become_null() {
        let record = |column: &str| Record {
            batch_id: 1,
            file_path: "a.csv".to_owned(),
            row_number: 1,
            refused_by: "silver.t".to_owned(),
            reason_kind: "cast".to_owned(),
            reason: "no number".to_owned(),
            column: Some(column.to_owned()),
            value: None,
            record: None,
            header: None,
            first_seen_us: 0,
            run_id: "r".to_owned(),
            status: Status::Open,
            status_at_us: None,
            status_by: None,
            replay: None,
        };
        let mut groups = BTreeMap::new();
        add(&mut groups, "s", record("id"));
        add(&mut groups, "s", record("note"));
        let mut groups: Vec<Group> = groups.into_values().collect();
        note_needed(&mut groups, |table, column| (table, column) == ("silver.t", "id"));
        let next: Vec<String> = groups.iter().filter_map(Group::next).collect();
        assert!(!next[0].contains("on_cast_error") && next[0].contains("quarantine discard"), "{next:?}");
        assert!(next[1].contains("on_cast_error: \"null\""), "{next:?}");
    }
}
