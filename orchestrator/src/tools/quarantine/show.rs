//! Records of quarantine one by one: for people in blocks, for programs exactly as they came.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Field, Schema};
use futures::TryStreamExt;
use lake::columns::{BATCH_ID, FILE_PATH, ROW_NUMBER};
use lake::quarantine::{Quarantine, Record};
use lake::report::WIDTH;
use lake::{Lake, Result};

use super::{Choice, rough};

/// Characters of a value or a record that are shown to a person.
const SHOWN_CHARS_MAX: usize = 1_600;

/// A record and the source that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) source: String,
    pub(crate) record: Record,
}

/// The first records that are meant, by source and arrival, and how many there are in all.
///
/// # Errors
/// [`lake::ErrorKind::Store`] or [`lake::ErrorKind::Query`] when a quarantine cannot be read.
pub(crate) async fn records(lake: &Lake, choice: &Choice, limit: usize) -> Result<(Vec<Shown>, usize)> {
    let (mut shown, mut all) = (Vec::new(), 0);
    for source in &choice.sources {
        let Some(quarantine) = Quarantine::open(lake, source).await? else { continue };
        let mut records = std::pin::pin!(quarantine.records(&choice.filter).await?);
        while let Some(some) = records.try_next().await? {
            all += some.len();
            let room = limit.saturating_sub(shown.len());
            shown.extend(some.into_iter().take(room).map(|record| Shown { source: source.clone(), record }));
        }
    }
    Ok((shown, all))
}

/// Records for a person.
pub(crate) fn text(records: &[Shown]) -> String {
    let mut out = String::new();
    for Shown { source, record } in records {
        let _ = writeln!(
            out,
            "{} refused a record of {source}: {}, {}",
            record.refused_by, record.reason_kind, record.status
        );
        line(
            &mut out,
            "file",
            &format!("{}, record {}, batch {}", record.file_path, record.row_number, record.batch_id),
        );
        line(&mut out, "reason", &record.reason);
        if let Some(column) = &record.column {
            line(&mut out, "column", column);
        }
        if let Some(value) = &record.value {
            line(&mut out, "value", value);
        }
        if let Some(text) = &record.record {
            line(&mut out, "record", text);
        }
        if let Some(header) = &record.header {
            line(&mut out, "header", header);
        }
        line(&mut out, "seen", &format!("{} UTC, run {}", rough(record.first_seen_us), record.run_id));
        if let (Some(at), Some(by)) = (record.status_at_us, &record.status_by) {
            line(&mut out, record.status.as_str(), &format!("{} UTC, run {by}", rough(at)));
        }
        out.push('\n');
    }
    out
}

/// Records as rows of a table, one column for each of the quarantine's and the source before them.
///
/// # Errors
/// [`lake::ErrorKind::Internal`] never, unless the columns do not fit each other.
pub(crate) fn rows(records: &[Shown]) -> Result<RecordBatch> {
    let text = |of: &dyn Fn(&Shown) -> Option<String>| -> ArrayRef {
        Arc::new(records.iter().map(of).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&Record) -> Option<i64>| -> ArrayRef {
        Arc::new(records.iter().map(|shown| of(&shown.record)).collect::<Int64Array>())
    };
    let time = |of: &dyn Fn(&Record) -> Option<i64>| -> ArrayRef {
        let times = records.iter().map(|shown| of(&shown.record));
        Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("source", text(&|shown| Some(shown.source.clone()))),
        ("refused_by", text(&|shown| Some(shown.record.refused_by.clone()))),
        ("status", text(&|shown| Some(shown.record.status.to_string()))),
        (FILE_PATH, text(&|shown| Some(shown.record.file_path.clone()))),
        (ROW_NUMBER, number(&|record| Some(record.row_number))),
        (BATCH_ID, number(&|record| Some(record.batch_id))),
        ("reason_kind", text(&|shown| Some(shown.record.reason_kind.clone()))),
        ("reason", text(&|shown| Some(shown.record.reason.clone()))),
        ("column", text(&|shown| shown.record.column.clone())),
        ("value", text(&|shown| shown.record.value.clone())),
        ("record", text(&|shown| shown.record.record.clone())),
        ("header", text(&|shown| shown.record.header.clone())),
        ("first_seen", time(&|record| Some(record.first_seen_us))),
        ("run_id", text(&|shown| Some(shown.record.run_id.clone()))),
        ("status_at", time(&|record| record.status_at_us)),
        ("status_by", text(&|shown| shown.record.status_by.clone())),
        ("replay", number(&|record| record.replay)),
    ];
    let fields = columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    Ok(RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, column)| column).collect())?)
}

/// A titled text of at most [`WIDTH`] characters a line, its own line breaks kept.
fn line(out: &mut String, title: &str, text: &str) {
    const INDENT: usize = 11;
    let cut = text.char_indices().nth(SHOWN_CHARS_MAX).map(|(end, _)| end);
    let (shown, rest) = text.split_at(cut.unwrap_or(text.len()));
    let mut title = title;
    let mut print = |piece: &str| {
        let _ = writeln!(out, "{}", format!("  {title:<width$}{piece}", width = INDENT - 2).trim_end());
        title = "";
    };
    for line in shown.split('\n') {
        for piece in pieces(line, WIDTH - INDENT) {
            print(&piece);
        }
    }
    if !rest.is_empty() {
        print(&format!("… and {} characters more; `--output json` has all", rest.chars().count()));
    }
}

/// A line in pieces of at most `width` characters, at spaces where there are some; control characters are spelled out.
fn pieces(line: &str, width: usize) -> Vec<String> {
    let visible: Vec<char> = line
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect();
    let mut rest = &visible[..];
    let mut pieces = Vec::new();
    while rest.len() > width {
        let space = rest[..=width].iter().rposition(|c| *c == ' ').filter(|space| *space > width / 2);
        let end = space.unwrap_or(width);
        pieces.push(rest[..end].iter().collect());
        rest = &rest[end + usize::from(space.is_some())..];
    }
    pieces.push(rest.iter().collect());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_or_where_they_must() {
        assert_eq!(pieces("aaa bbb ccc", 7), ["aaa bbb", "ccc"]);
        assert_eq!(pieces("aaaaaaaaaa", 4), ["aaaa", "aaaa", "aa"]);
        assert_eq!(pieces("a\tb", 10), ["a\\tb"]);
        assert_eq!(pieces("", 10), [""]);
        let mut out = String::new();
        line(&mut out, "record", "one\ntwo");
        assert_eq!(out, "  record   one\n           two\n");
        let mut long = String::new();
        line(&mut long, "record", &"é".repeat(SHOWN_CHARS_MAX + 5));
        assert!(long.ends_with("… and 5 characters more; `--output json` has all\n"), "{long}");
        assert!(long.lines().all(|line| line.chars().count() <= WIDTH), "{long}");
    }
}
