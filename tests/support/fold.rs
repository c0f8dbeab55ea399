//! The plain meaning of the worked example: a fold over its change files that shares no code with the product.
//!
//! Every key keeps the change with the largest time, of equal times the one that stands last; a delete takes the row
//! away. What silver and gold must hold follows from that in a few lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::Value;

use super::csv::{self, Field};
use super::project::files_below;
use super::rows::{decimal, instant};

/// The values of a record by column; a column that is absent is not there, null is `None`.
pub(crate) type Record = BTreeMap<String, Option<String>>;

/// What the change files of one entity come to.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    /// The current record of each key.
    pub(crate) current: BTreeMap<String, Record>,
    /// Records of all files that were read as a record.
    pub(crate) records: usize,
    /// Records that no table can take.
    pub(crate) refused: usize,
}

impl Folded {
    /// The current rows as texts, in the order of `columns`.
    pub(crate) fn rows(&self, columns: &[&str]) -> Vec<Vec<Option<String>>> {
        let row = |record: &Record| columns.iter().map(|column| record.get(*column).cloned().flatten()).collect();
        self.current.values().map(row).collect()
    }
}

/// Columns of an order, as silver holds them.
pub(crate) const ORDER_COLUMNS: [&str; 7] =
    ["order_id", "customer_id", "order_date", "status", "amount", "updated_at", "channel"];
/// Columns of a product, as silver holds them.
pub(crate) const PRODUCT_COLUMNS: [&str; 5] = ["id", "name", "stock", "price", "updated_at"];

/// The orders of a folder of change files, CSV or JSON lines.
pub(crate) fn orders(folder: &Path) -> Folded {
    let is_right = |record: &Record| {
        let amount = value(record, "amount").is_none_or(|text| decimal(text).is_some());
        let date = value(record, "order_date").is_none_or(|text| text.parse::<NaiveDate>().is_ok());
        amount && date
    };
    fold(folder, "order_id", is_right)
}

/// The products of a folder of daily extracts.
pub(crate) fn products(folder: &Path) -> Folded {
    fold(folder, "id", |_| true)
}

fn fold(folder: &Path, key: &str, is_right: impl Fn(&Record) -> bool) -> Folded {
    let mut folded = Folded::default();
    let mut newest: BTreeMap<String, (DateTime<Utc>, Record)> = BTreeMap::new();
    for file in files_below(folder) {
        for record in records(&file) {
            folded.records += 1;
            let record = record.filter(&is_right);
            let Some((id, record)) = record.and_then(|record| Some((value(&record, key)?.to_owned(), record))) else {
                folded.refused += 1;
                continue;
            };
            let at = instant(value(&record, "updated_at").expect("a time")).expect("a time of the sample");
            if newest.get(&id).is_none_or(|(before, _)| *before <= at) {
                newest.insert(id, (at, record));
            }
        }
    }
    newest.retain(|_, (_, record)| value(record, "op") != Some("D"));
    folded.current = newest.into_iter().map(|(id, (_, record))| (id, record)).collect();
    folded
}

/// The records of a file; `None` for one that cannot be read as a record.
fn records(file: &Path) -> Vec<Option<Record>> {
    let text = fs::read_to_string(file).expect("a sample file");
    if file.extension().is_some_and(|extension| extension == "jsonl") {
        return text.lines().map(json).collect();
    }
    let mut records = csv::records(&text).into_iter();
    let header: Vec<String> = records.next().unwrap_or_default().into_iter().map(|field| field.text).collect();
    // Fields that the header does not name belong to no column; columns without a field are absent.
    let record = |fields: Vec<Field>| Some(header.iter().cloned().zip(fields.iter().map(Field::value)).collect());
    records.map(record).collect()
}

fn json(line: &str) -> Option<Record> {
    let Ok(Value::Object(object)) = serde_json::from_str(line) else { return None };
    Some(object.iter().map(|(name, value)| (name.clone(), super::rows::text_of(value))).collect())
}

fn value<'a>(record: &'a Record, column: &str) -> Option<&'a str> {
    record.get(column)?.as_deref()
}

/// Orders and revenue by day, without the cancelled: `(day, orders, revenue)`.
pub(crate) fn daily_sales(orders: &[&Folded]) -> Vec<Vec<Option<String>>> {
    totals(orders, |record| (value(record, "status") != Some("Cancelled")).then(|| record["order_date"].clone()))
}

/// Orders and their volume by status: `(status, orders, volume)`.
pub(crate) fn order_volume_by_status(orders: &[&Folded]) -> Vec<Vec<Option<String>>> {
    totals(orders, |record| Some(record["status"].clone()))
}

/// Count and sum of the amounts by a group; records without a group are left out.
fn totals(orders: &[&Folded], group: impl Fn(&Record) -> Option<Option<String>>) -> Vec<Vec<Option<String>>> {
    let mut totals: BTreeMap<Option<String>, (u64, i128)> = BTreeMap::new();
    for record in orders.iter().flat_map(|folded| folded.current.values()) {
        if let Some(group) = group(record) {
            let total = totals.entry(group).or_default();
            total.0 += 1;
            total.1 += cents(value(record, "amount").expect("an amount"));
        }
    }
    let money = |cents: i128| format!("{}.{:02}", cents / 100, cents % 100);
    totals.into_iter().map(|(group, (n, sum))| vec![group, Some(n.to_string()), Some(money(sum))]).collect()
}

/// An amount of the sample in cents: JSON writes `12.5` where CSV writes `12.50`.
fn cents(amount: &str) -> i128 {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, "0"));
    assert!(fraction.len() <= 2, "`{amount}` has more than cents");
    whole.parse::<i128>().expect("whole units") * 100 + format!("{fraction:0<2}").parse::<i128>().expect("cents")
}

#[test]
fn the_fold_keeps_the_newest_and_forgets_the_deleted() {
    let dir = tempfile::tempdir().expect("a folder");
    let header = "op,order_id,customer_id,order_date,status,amount,updated_at\n";
    let day_1 = "I,1,C,2024-05-01,New,10.00,2024-05-01T10:00:00Z\nI,2,C,2024-05-01,New,5.5,2024-05-01T10:00:00Z\n\
                 U,2,C,2024-05-01,Paid,5.5,2024-05-01T10:00:00Z\nI,3,C,2024-05-01,New,7.00,2024-05-01T11:00:00Z\n";
    let day_2 = "D,3,,,,,2024-05-02T08:00:00Z\nU,3,C,2024-05-01,Paid,7.00,2024-05-01T12:00:00Z\n\
                 U,1,C,2024-05-01,Paid,\"12,5O\",2024-05-02T08:00:00Z\nU\nU,1,C,2024-05-01,Cancelled,9,2024-05-01T09:00:00Z\n";
    fs::write(dir.path().join("1.csv"), format!("{header}{day_1}")).expect("a file");
    fs::write(dir.path().join("2.csv"), format!("{header}{day_2}")).expect("a file");
    let folded = orders(dir.path());
    assert_eq!((folded.records, folded.refused), (9, 2));
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(folded.rows(&["order_id", "status"]), [[text("1"), text("New")], [text("2"), text("Paid")]]);
    assert_eq!(daily_sales(&[&folded]), [[text("2024-05-01"), text("2"), text("15.50")]]);
}
