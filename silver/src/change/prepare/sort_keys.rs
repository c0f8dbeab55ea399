//! The sort keys of Google Datastream: an array of numbers and texts that orders the events of a source. It becomes one
//! text that compares as the array does.

use arrow::array::{RecordBatch, StringArray};
use lake::Result;
use serde_json::Value;

use super::{Prepare, Prepared, texts, with_columns};
use crate::sequence::binlog_key;

pub(super) const COLUMNS: &[&str] = &["sort_keys"];

/// Makes the sort keys of records comparable.
pub(super) fn ordered(batch: &RecordBatch) -> Result<Prepared> {
    let Some(column) = texts(batch, "sort_keys")? else { return Ok(Prepared::as_it_is(batch.clone())) };
    let keys: StringArray = column.iter().map(|text| text.map(key)).collect();
    Ok(Prepared::as_it_is(with_columns(batch, None, Prepare::SortKeys, vec![("sort_keys", keys)])?))
}

/// A text that compares as the array; what is no array stays as it is.
fn key(text: &str) -> String {
    match serde_json::from_str::<Vec<Value>>(text) {
        Ok(values) => values.iter().map(part).collect::<Vec<_>>().join(" "),
        Err(_) => text.to_owned(),
    }
}

/// Null comes first, then numbers by value, then texts: positions in a log by their numbers, others as they are.
fn part(value: &Value) -> String {
    match value {
        Value::Null => "0".to_owned(),
        Value::Number(number) => number.as_i64().map_or_else(|| format!("3{number}"), whole),
        Value::String(text) => match text.parse::<i64>() {
            Ok(number) => whole(number),
            Err(_) => {
                // Oracle's positions begin so, and are as long as one another.
                let binlog = || binlog_key(text).ok().filter(|_| !text.trim_start().starts_with("0x"));
                format!("3{}", lsn(text).or_else(binlog).unwrap_or_else(|| text.clone()))
            }
        },
        other => format!("3{other}"),
    }
}

fn whole(number: i64) -> String {
    // A negative number counts down from the smallest.
    if number < 0 { format!("1{:019}", number.wrapping_sub(i64::MIN)) } else { format!("2{number:019}") }
}

/// A position in the log of Postgres: two numbers, each written with eight digits.
fn lsn(text: &str) -> Option<String> {
    let (high, low) = text.split_once('/')?;
    let part = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(format!("{:08X}/{:08X}", part(high)?, part(low)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_as_their_arrays() {
        let ascending = [
            r"[null]",
            r"[-20]",
            r"[-3]",
            r#"[9,"",-1]"#,
            r#"[9,"mysql-bin.000009",900]"#,
            r#"[9,"mysql-bin.000010",4]"#,
            r#"[9,"mysql-bin.1000000",4]"#,
            r#"[10,"1/FF"]"#,
            r#"[10,"2/10"]"#,
            r#"[10,"10/A"]"#,
            r#"[10,"10/10"]"#,
            r#"[1000,"0x0001.02",1]"#,
            r#"[1000,"0x0001.10",1]"#,
        ];
        for pair in ascending.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{} {}", key(pair[0]), key(pair[1]));
        }
        assert_eq!(key(r#"["7"]"#), key("[7]"));
        assert_eq!(key("x"), "x");
    }
}
