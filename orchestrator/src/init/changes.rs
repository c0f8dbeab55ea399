//! What tells a change from a row: the key, what orders changes, and how deletes are marked.

use std::collections::HashSet;

use lake::report::counted;
use lake::schema::ColumnType;

use super::records::{Column, Records};
use super::values::Typed;
use super::write::scalar;

/// Values of operations by what they do: insert, update, delete, truncate.
const OPERATIONS: [(&str, &[&str]); 4] = [
    ("insert", &["I", "INSERT", "C", "CREATE", "R", "READ", "N", "NEW", "A"]),
    ("update", &["U", "UPDATE", "UPSERT", "M", "MODIFY"]),
    ("delete", &["D", "DELETE", "DELETED", "REMOVE"]),
    ("truncate", &["T", "TRUNCATE"]),
];
/// Names of columns that hold an operation.
const OPERATION_NAMES: [&str; 12] = [
    "op",
    "_op",
    "operation",
    "op_type",
    "optype",
    "change_type",
    "changetype",
    "action",
    "dml_type",
    "cdc_operation",
    "row_kind",
    "kind",
];
/// Names that may be those of an operation, where its values tell of updates or deletes.
const VAGUE_OPERATION_NAMES: [&str; 6] = ["flag", "change_flag", "change", "event", "event_type", "record_type"];
/// Names of columns that mark deleted rows by a value, and by being there.
const FLAG_NAMES: [&str; 5] = ["is_deleted", "deleted", "_deleted", "isdeleted", "deleted_flag"];
const DELETED_AT_NAMES: [&str; 5] = ["deleted_at", "deletedat", "delete_time", "deleted_on", "_deleted_at"];
/// Names of columns that order changes, the best first.
const SEQUENCE_NAMES: [&str; 22] = [
    "updated_at",
    "updatedat",
    "last_updated",
    "update_time",
    "modified_at",
    "last_modified",
    "modified",
    "changed_at",
    "change_time",
    "updated",
    "commit_ts",
    "committed_at",
    "commit_timestamp",
    "transact_id",
    "event_time",
    "event_ts",
    "ts",
    "timestamp",
    "lsn",
    "scn",
    "version",
    "seq",
];
/// The part of the rows whose key must be there.
const FILLED_SHARE: f64 = 0.99;

/// Columns that identify a row.
pub(super) struct Keys {
    pub(super) names: Vec<String>,
    pub(super) reason: String,
}

/// What orders the changes of a key; without a name they are taken as they arrive.
pub(super) struct Sequence {
    pub(super) name: Option<String>,
    pub(super) reason: String,
}

/// How deletes are marked, as a line of the spec.
pub(super) struct Deletes {
    /// `op: {column: op, insert: [I], …}`, in YAML.
    pub(super) line: String,
    pub(super) reason: String,
    /// The column, when it is no value of the row.
    pub(super) own: Option<String>,
}

/// How these records mark deletes, where they do.
pub(super) fn deletes(records: &Records) -> Option<Deletes> {
    let named = |names: &[&str]| {
        let columns = records.columns.iter();
        columns.filter(|column| names.contains(&column.name.to_lowercase().as_str())).collect::<Vec<_>>()
    };
    let operations = [named(&OPERATION_NAMES), named(&VAGUE_OPERATION_NAMES)].concat();
    for column in operations {
        let Some(values) = column.few(8) else { continue };
        let is_vague = !OPERATION_NAMES.contains(&column.name.to_lowercase().as_str());
        let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
        let of = |known: &[&str]| -> Vec<String> {
            values.iter().filter(|value| known.contains(&value.to_uppercase().as_str())).cloned().collect()
        };
        let lists: Vec<(&str, Vec<String>)> = OPERATIONS.iter().map(|(name, known)| (*name, of(known))).collect();
        let known: usize = lists.iter().map(|(_, values)| values.len()).sum();
        let tells = lists.iter().any(|(name, values)| matches!(*name, "update" | "delete") && !values.is_empty());
        if values.is_empty() || known < values.len() || (is_vague && !tells) {
            continue;
        }
        // What the sample does not show may come tomorrow, written alike.
        let is_long = values.iter().any(|value| value.len() > 1);
        let is_lower = values.iter().all(|value| *value == value.to_lowercase());
        let usual = |name: &str| {
            let word = if is_long { name.to_uppercase() } else { name[..1].to_uppercase() };
            if is_lower { word.to_lowercase() } else { word }
        };
        let parts = lists.into_iter().filter_map(|(name, values)| match (values.is_empty(), name) {
            (true, "truncate") => None,
            (true, _) => Some(format!("{name}: [{}]", usual(name))),
            (false, _) => {
                Some(format!("{name}: [{}]", values.iter().map(|value| scalar(value)).collect::<Vec<_>>().join(", ")))
            }
        });
        let line = format!("op: {{column: {}, {}}}", scalar(&column.name), parts.collect::<Vec<_>>().join(", "));
        let reason = format!("its values: {}", values.join(", "));
        return Some(Deletes { line, reason, own: Some(column.name.clone()) });
    }
    for column in named(&FLAG_NAMES) {
        let Some(values) = column.few(3) else { continue };
        let truths = ["true", "1", "y", "yes", "t"];
        let known = ["true", "false", "1", "0", "y", "n", "yes", "no", "t", "f"];
        if values.is_empty() || !values.iter().all(|value| known.contains(&value.to_lowercase().as_str())) {
            continue;
        }
        let mut marks: Vec<String> = values
            .iter()
            .filter(|value| truths.contains(&value.to_lowercase().as_str()))
            .map(|value| format!("\"{value}\""))
            .collect();
        if marks.is_empty() {
            marks.push("\"true\"".to_owned());
        }
        let name = scalar(&column.name);
        let line = format!("delete_flag: {{column: {name}, values: [{}]}}", marks.join(", "));
        return Some(Deletes { line, reason: "the name, and its values".to_owned(), own: Some(column.name.clone()) });
    }
    let column = named(&DELETED_AT_NAMES).into_iter().next()?;
    let line = format!("delete_flag: {{column: {}, when: not_null}}", scalar(&column.name));
    Some(Deletes { line, reason: "the name: a deleted row has a value".to_owned(), own: Some(column.name.clone()) })
}

/// What orders the changes of a key.
pub(super) fn sequence(columns: &[(&Column, &Typed)]) -> Sequence {
    let orders = |kind: ColumnType| {
        matches!(kind, ColumnType::Timestamp | ColumnType::Date | ColumnType::Bigint | ColumnType::Decimal(_, 0))
    };
    let is_there = |column: &Column| column.present().next().is_some();
    let usable: Vec<_> = columns.iter().filter(|(column, typed)| orders(typed.kind) && is_there(column)).collect();
    let by_name = SEQUENCE_NAMES.iter().find_map(|name| {
        let same = |column: &Column| {
            let folded = column.name.to_lowercase();
            folded == *name || (name.len() > 5 && folded.ends_with(name))
        };
        usable.iter().find(|(column, _)| same(column))
    });
    if let Some((column, typed)) = by_name {
        let reason = format!("the larger wins; a {} by its name", typed.kind);
        return Sequence { name: Some(column.name.clone()), reason };
    }
    let moments: Vec<_> = usable.iter().filter(|(_, typed)| typed.kind == ColumnType::Timestamp).collect();
    if let [(column, _)] = moments[..]
        && !column.name.to_lowercase().contains("creat")
    {
        let reason = "the larger wins; the only timestamp".to_owned();
        return Sequence { name: Some(column.name.clone()), reason };
    }
    Sequence { name: None, reason: "no column seems to order changes: the last to arrive wins".to_owned() }
}

/// The columns that identify a row of a table of this name.
pub(super) fn keys(table: &str, records: &Records, columns: &[(&Column, &Typed)], sequence: Option<&str>) -> Keys {
    let rows = records.rows();
    let can_be_key = |column: &Column, typed: &Typed| {
        let identifies = matches!(
            typed.kind,
            ColumnType::Bigint | ColumnType::Int | ColumnType::String | ColumnType::Date | ColumnType::Decimal(_, 0)
        );
        let is_nested = column.present().next().is_some_and(|value| value.starts_with(['{', '[']));
        identifies && !is_nested && column.present().count() as f64 >= rows as f64 * FILLED_SHARE
    };
    let usable: Vec<&Column> =
        columns.iter().filter(|(column, typed)| can_be_key(column, typed)).map(|(column, _)| *column).collect();
    let score = |column: &Column| name_score(table, &column.name);
    let told = |names: &[&Column], reason: String| Keys {
        names: names.iter().map(|column| column.name.clone()).collect(),
        reason,
    };
    let shown = counted(rows, "row");
    let best = |candidates: &[&Column]| -> Option<Column> {
        let mut ranked: Vec<&Column> = candidates.to_vec();
        ranked.sort_by_key(|column| std::cmp::Reverse(score(column)));
        ranked.first().map(|column| (*column).clone())
    };
    let unique: Vec<&Column> = usable.iter().copied().filter(|column| is_unique(&[column], records)).collect();
    let named: Vec<&Column> = usable.iter().copied().filter(|column| score(column) > 0).collect();
    // Several rows of one key are its changes, or the same list on several days.
    if let Some(column) = best(&unique).filter(|column| rows > 1 && score(column) > 0) {
        return told(&[&column], format!("unique in {shown}"));
    }
    let order = sequence.and_then(|name| records.column(name));
    let told_by_order = |parts: &[&Column]| {
        let with_order: Vec<&Column> = parts.iter().copied().chain(order).collect();
        unique_share(&with_order, records) >= FILLED_SHARE || once_per_file(parts, records)
    };
    if let Some(column) = best(&named.iter().copied().filter(|column| told_by_order(&[column])).collect::<Vec<_>>()) {
        let distinct = counted(distinct(&[&column], records), "key");
        return told(&[&column], format!("by its name: {distinct} in {shown}"));
    }
    for (at, one) in named.iter().enumerate() {
        for other in &named[at + 1..] {
            if is_unique(&[one, other], records) || told_by_order(&[one, other]) {
                return told(&[one, other], format!("together unique in {shown}"));
            }
        }
    }
    // A name that is plainly that of a key is one, whatever a few records say: two changes of one moment, a bad value.
    if let Some(column) = best(&named).filter(|column| score(column) > 1) {
        return told(&[&column], "by its name alone: check it".to_owned());
    }
    if let Some(column) = unique.iter().find(|column| rows > 1 && !is_measure(column)) {
        return told(&[column], format!("unique in {shown}"));
    }
    let is_free = |column: &&Column| Some(column.name.as_str()) != sequence && !is_measure(column);
    let free: Vec<&Column> = usable.iter().copied().filter(is_free).collect();
    if let Some(column) = free.iter().find(|column| told_by_order(&[column])) {
        return told(&[column], format!("with the sequence unique in {shown}"));
    }
    // A key that some records lack, such as those of a truncate, is one all the same.
    let by_name: Vec<&Column> = columns.iter().map(|(column, _)| *column).filter(|column| score(column) > 0).collect();
    match (
        best(&named).or_else(|| best(&by_name)),
        free.first().copied().or(columns.first().map(|(column, _)| *column)),
    ) {
        (Some(column), _) => told(&[&column], "by its name alone: check it".to_owned()),
        (None, Some(column)) => told(&[column], "the first column, for want of a better one: check it".to_owned()),
        (None, None) => Keys { names: Vec::new(), reason: String::new() },
    }
}

/// True for texts of which most are numbers with a fraction: an amount with a bad value in between.
fn is_measure(column: &Column) -> bool {
    let is_fraction =
        |value: &&str| value.contains(['.', ',']) && value.replace(',', ".").parse::<f64>().is_ok_and(f64::is_finite);
    column.present().filter(is_fraction).count() * 2 > column.present().count()
}

/// How much a name looks like that of a key.
fn name_score(table: &str, name: &str) -> u8 {
    let folded: String = name.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
    let table: String = table.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
    let singular = table.strip_suffix("ies").map(|stem| format!("{stem}y"));
    let singular = singular.unwrap_or_else(|| table.strip_suffix('s').unwrap_or(&table).to_owned());
    let own = |end: &str| folded == format!("{singular}{end}") || folded == format!("{table}{end}");
    match folded.as_str() {
        "id" | "uuid" | "guid" | "pk" => 5,
        _ if ["id", "key", "no", "number", "code"].iter().any(|end| own(end)) => 6,
        "sku" | "code" | "key" | "isbn" | "email" => 3,
        _ if folded.ends_with("uuid") || folded.ends_with("guid") => 3,
        _ if folded.ends_with("id") && (name.ends_with("id") || name.ends_with("Id") || name.ends_with("ID")) => 2,
        _ if ["key", "code", "number", "no", "nr"].iter().any(|end| folded.ends_with(end)) => 1,
        _ => 0,
    }
}

fn tuple<'r>(columns: &[&'r Column], row: usize) -> Vec<Option<&'r str>> {
    columns.iter().map(|column| column.values[row].as_deref()).collect()
}

fn distinct(columns: &[&Column], records: &Records) -> usize {
    (0..records.rows()).map(|row| tuple(columns, row)).collect::<HashSet<_>>().len()
}

fn is_unique(columns: &[&Column], records: &Records) -> bool {
    distinct(columns, records) == records.rows()
}

/// The part of the different rows that these columns tell apart: a row that comes twice counts once.
fn unique_share(columns: &[&Column], records: &Records) -> f64 {
    let all: Vec<&Column> = records.columns.iter().collect();
    distinct(columns, records) as f64 / distinct(&all, records).max(1) as f64
}

/// True when no file has a key twice, as lists of everything have it.
fn once_per_file(columns: &[&Column], records: &Records) -> bool {
    let mut seen = HashSet::new();
    (0..records.rows()).all(|row| seen.insert((records.files[row], tuple(columns, row))))
}

/// True when each file looks like a list of everything: no key twice in a file, and most keys in each next file again.
pub(super) fn are_extracts(keys: &[String], records: &Records) -> bool {
    let columns: Vec<&Column> = keys.iter().filter_map(|name| records.column(name)).collect();
    if columns.len() != keys.len() || records.file_count() < 2 || !once_per_file(&columns, records) {
        return false;
    }
    let mut files: Vec<(usize, HashSet<Vec<Option<&str>>>)> = Vec::new();
    for row in 0..records.rows() {
        match files.last_mut() {
            Some((file, rows)) if *file == records.files[row] => drop(rows.insert(tuple(&columns, row))),
            _ => files.push((records.files[row], HashSet::from([tuple(&columns, row)]))),
        }
    }
    files.windows(2).all(|pair| pair[0].1.intersection(&pair[1].1).count() * 5 >= pair[0].1.len() * 4)
}

#[cfg(test)]
mod tests {
    use super::super::records::members;
    use super::super::values::typed;
    use super::*;

    fn records(files: &[&[&str]]) -> Records {
        let mut records = Records::default();
        for (file, rows) in files.iter().enumerate() {
            rows.iter().for_each(|row| records.push(file, members(row).expect("an object")));
        }
        records
    }

    fn guess(table: &str, records: &Records) -> (Vec<String>, Option<String>) {
        let types: Vec<Typed> = records.columns.iter().map(|column| typed(column, chrono_tz::Tz::UTC)).collect();
        let columns: Vec<_> = records.columns.iter().zip(&types).collect();
        let sequence = sequence(&columns).name;
        (keys(table, records, &columns, sequence.as_deref()).names, sequence)
    }

    #[test]
    fn the_key_is_what_tells_rows_or_their_changes_apart() {
        let list = records(&[&[
            r#"{"name":"a","customer_id":7,"order_id":1}"#,
            r#"{"name":"b","customer_id":7,"order_id":2}"#,
        ]]);
        assert_eq!(guess("orders", &list), (vec!["order_id".to_owned()], None));
        let changes = records(&[&[
            r#"{"order_id":1,"status":"New","updated_at":"2024-05-01T10:00:00Z"}"#,
            r#"{"order_id":1,"status":"Paid","updated_at":"2024-05-01T11:00:00Z"}"#,
            r#"{"order_id":2,"status":"New","updated_at":"2024-05-01T10:00:00Z"}"#,
        ]]);
        assert_eq!(guess("orders", &changes), (vec!["order_id".to_owned()], Some("updated_at".to_owned())));
        let lines = records(&[&[
            r#"{"order_id":1,"line_no":1,"qty":2}"#,
            r#"{"order_id":1,"line_no":2,"qty":2}"#,
            r#"{"order_id":2,"line_no":1,"qty":2}"#,
        ]]);
        assert_eq!(guess("lines", &lines).0, ["order_id", "line_no"]);
    }

    #[test]
    fn deletes_are_told_by_name_and_values() {
        let line = |row: &[&str]| deletes(&records(&[row])).map(|deletes| deletes.line);
        assert_eq!(
            line(&[r#"{"op":"I","id":1}"#, r#"{"op":"D","id":1}"#]).as_deref(),
            Some("op: {column: op, insert: [I], update: [U], delete: [D]}")
        );
        assert_eq!(
            line(&[r#"{"operation":"insert"}"#, r#"{"operation":"delete"}"#]).as_deref(),
            Some("op: {column: operation, insert: [insert], update: [update], delete: [delete]}")
        );
        assert_eq!(line(&[r#"{"kind":"hat"}"#, r#"{"kind":"shoe"}"#]), None);
        assert_eq!(
            line(&[r#"{"is_deleted":"0"}"#, r#"{"is_deleted":"1"}"#]).as_deref(),
            Some("delete_flag: {column: is_deleted, values: [\"1\"]}")
        );
        assert_eq!(
            line(&[r#"{"id":1,"deleted_at":null}"#]).as_deref(),
            Some("delete_flag: {column: deleted_at, when: not_null}")
        );
    }

    #[test]
    fn lists_of_everything_have_each_key_once_a_file() {
        let day = |stock: u8| [format!(r#"{{"id":1,"stock":{stock}}}"#), format!(r#"{{"id":2,"stock":{stock}}}"#)];
        let (one, two) = (day(3), day(4));
        let files: Vec<Vec<&str>> = [&one, &two].iter().map(|day| day.iter().map(String::as_str).collect()).collect();
        let lists = records(&[&files[0], &files[1]]);
        assert!(are_extracts(&["id".to_owned()], &lists));
        assert!(!are_extracts(&["id".to_owned()], &records(&[&files[0]])));
        assert_eq!(guess("products", &lists).0, ["id"]);
    }

    #[test]
    fn a_vague_name_is_an_operation_when_its_values_say_so() {
        let told = |values: [&str; 3]| {
            let rows: Vec<String> =
                values.iter().enumerate().map(|(id, flag)| format!(r#"{{"id":{id},"flag":"{flag}"}}"#)).collect();
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            deletes(&records(&[&rows])).map(|deletes| deletes.line)
        };
        assert_eq!(told(["I", "U", "D"]).as_deref(), Some("op: {column: flag, insert: [I], update: [U], delete: [D]}"));
        assert_eq!(told(["A", "R", "A"]), None, "active and retired, say");
        assert_eq!(told(["Y", "N", "Y"]), None);
    }

    #[test]
    fn a_measure_with_a_bad_value_is_no_key() {
        let rows = [
            r#"{"op":"I","order_id":"A-1","amount":"10.00","updated_at":"2024-12-30"}"#,
            r#"{"op":"I","order_id":"A-2","amount":"n/a","updated_at":"2024-12-30"}"#,
            r#"{"op":"U","order_id":"A-1","amount":"11.00","updated_at":"2024-12-31"}"#,
            r#"{"op":"U","order_id":"A-1","amount":"12.00","updated_at":"2024-12-31"}"#,
        ];
        assert_eq!(guess("orders", &records(&[&rows])).0, ["order_id"]);
    }
}
