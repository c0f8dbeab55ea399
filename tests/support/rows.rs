//! Rows of a table as typed values: numbers by value, timestamps as instants, text exactly, in any order.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use serde_json::Value;

/// Types of a table's columns by name, as the Delta log writes them: `long`, `decimal(18,2)`, `timestamp`, ….
pub(crate) type Types = BTreeMap<String, String>;

/// Some columns of all rows of a table, in one comparable form and sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Option<String>>>,
}

impl Rows {
    /// Rows of texts, each brought into the form of its column's type.
    pub(crate) fn new(columns: &[&str], rows: impl IntoIterator<Item = Vec<Option<String>>>, types: &Types) -> Self {
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        let kinds: Vec<&str> =
            columns.iter().map(|column| types.get(column).map_or("string", String::as_str)).collect();
        let typed = |row: Vec<Option<String>>| {
            row.into_iter().zip(&kinds).map(|(value, kind)| value.map(|text| canonical(kind, &text))).collect()
        };
        let mut rows: Vec<Vec<Option<String>>> = rows.into_iter().map(typed).collect();
        rows.sort();
        Self { columns, rows }
    }

    /// What differs from `expected`, in a few lines; `None` when nothing does.
    pub(crate) fn difference(&self, expected: &Self) -> Option<String> {
        if self == expected {
            return None;
        }
        let mut counts: BTreeMap<&Vec<Option<String>>, i64> = BTreeMap::new();
        self.rows.iter().for_each(|row| *counts.entry(row).or_default() += 1);
        expected.rows.iter().for_each(|row| *counts.entry(row).or_default() -= 1);
        let show = |row: &[Option<String>]| {
            row.iter().map(|value| value.clone().unwrap_or_else(|| r"\N".to_owned())).collect::<Vec<_>>().join(" | ")
        };
        let mut text =
            format!("{} rows where {} are right; {}", self.rows.len(), expected.rows.len(), self.columns.join(" | "));
        for (row, count) in counts.iter().filter(|(_, count)| **count != 0).take(12) {
            let what = if *count > 0 { "wrong  " } else { "missing" };
            text.push_str(&format!("\n    {what} {} (times {})", show(row), count.abs()));
        }
        Some(text)
    }
}

/// The text of a JSON value that the program printed.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// One text for all texts that mean the same value of a type.
pub(crate) fn canonical(kind: &str, text: &str) -> String {
    let form = match kind {
        "long" | "integer" | "short" | "byte" => decimal(text),
        kind if kind.starts_with("decimal") => decimal(text),
        "double" | "float" => text.parse::<f64>().ok().map(|number| format!("{number:?}")),
        "timestamp" | "timestamp_ntz" => instant(text).map(|at| at.timestamp_micros().to_string()),
        "date" => text.parse::<NaiveDate>().ok().map(|day| day.to_string()),
        _ => Some(text.to_owned()),
    };
    form.unwrap_or_else(|| format!("{text:?} is no {kind}"))
}

/// A decimal number without what does not change its value; `None` when it is none.
pub(crate) fn decimal(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = !digits.is_empty() && (whole.to_owned() + fraction).chars().all(|c| c.is_ascii_digit());
    if !is_number || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(match (whole, fraction) {
        ("0", "") => "0".to_owned(),
        (whole, "") => format!("{sign}{whole}"),
        (whole, fraction) => format!("{sign}{whole}.{fraction}"),
    })
}

/// The moment of an ISO 8601 text; UTC where it has no offset.
pub(crate) fn instant(text: &str) -> Option<DateTime<Utc>> {
    let iso = text.replacen(' ', "T", 1);
    if let Ok(at) = DateTime::parse_from_rfc3339(&iso) {
        return Some(at.to_utc());
    }
    let naive = NaiveDateTime::parse_from_str(&iso, "%Y-%m-%dT%H:%M:%S%.f")
        .or_else(|_| iso.parse::<NaiveDate>().map(|day| day.and_time(NaiveTime::MIN)));
    naive.ok().map(|at| at.and_utc())
}

#[test]
fn values_are_compared_by_type() {
    assert_eq!(canonical("decimal(18,2)", "-012.50"), canonical("decimal(18,2)", "-12.5"));
    assert_eq!(canonical("long", "-0"), "0");
    assert_ne!(canonical("long", "12"), canonical("long", "120"));
    assert_ne!(canonical("string", "12.50"), canonical("string", "12.5"));
    assert_eq!(canonical("timestamp", "2024-05-01 10:00:00"), canonical("timestamp", "2024-05-01T12:00:00.000+02:00"));
    assert_ne!(canonical("timestamp", "2024-05-01T10:00:00Z"), canonical("timestamp", "2024-05-01T10:00:00.000001Z"));
    assert_eq!(canonical("double", "0.3"), canonical("double", "0.30"));
    assert_ne!(canonical("double", "0.3"), canonical("double", "0.30000000000000004"));
    assert!(canonical("date", "2024-13-45").contains("is no date"));
}

#[test]
fn a_difference_names_the_rows() {
    let types = Types::from([("id".to_owned(), "long".to_owned())]);
    let rows = |ids: &[&str]| Rows::new(&["id"], ids.iter().map(|id| vec![Some((*id).to_owned())]), &types);
    assert_eq!(rows(&["2", "01"]).difference(&rows(&["1", "2"])), None);
    let twice = rows(&["1", "1", "2"]).difference(&rows(&["1", "3"])).expect("a difference");
    assert!(
        twice.contains("wrong   1 (times 1)") && twice.contains("wrong   2") && twice.contains("missing 3"),
        "{twice}"
    );
}
