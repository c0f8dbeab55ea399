//! Random tables and changes for the upsert engine, and the plain fold that says what is right.
//!
//! Every value is a small number, or null, that a type maps to a value of its own without changing the order. So the
//! fold compares numbers, and what it holds is made into typed rows only to be compared with a table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use lake::columns;
use lake::upsert::{DELETE, UpsertFigures, WriteMode};

use super::history::Dice;

/// Values of a column that is no key.
const VALUES: u64 = 6;
/// Values of one key column.
const KEY_VALUES: u64 = 12;

/// A value of a column: null comes first.
pub(crate) type Cell = Option<u64>;
type Row = Vec<Cell>;

/// A table that is made at random.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) fields: Vec<(String, DataType, bool)>,
    pub(crate) keys: Vec<String>,
    pub(crate) sequence: Vec<String>,
    pub(crate) partition_by: Vec<String>,
    pub(crate) has_feed: bool,
    pub(crate) has_vectors: bool,
    pub(crate) mode: WriteMode,
}

const KEY_TYPES: [&str; 9] =
    ["bigint", "int", "smallint", "string", "date", "timestamp", "decimal(10,2)", "decimal(20,2)", "double"];
const PARTITION_TYPES: [&str; 4] = ["bigint", "int", "string", "date"];
const VALUE_TYPES: [&str; 11] = [
    "bigint",
    "int",
    "tinyint",
    "string",
    "date",
    "timestamp",
    "decimal(38,4)",
    "double",
    "float",
    "boolean",
    "binary",
];

impl Shape {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let mut fields = Vec::new();
        let mut add = |name: String, kind: &str, nullable: bool| {
            let kind: lake::schema::ColumnType = kind.parse().expect("a type");
            fields.push((name.clone(), kind.arrow(), nullable));
            name
        };
        let mut of = |kinds: &[&'static str]| kinds[dice.below(kinds.len() as u64) as usize];
        let (first, second) = (of(&KEY_TYPES), of(&KEY_TYPES));
        let (by_key, by_value) = (of(&PARTITION_TYPES), of(&PARTITION_TYPES));
        let values: Vec<&str> = (0..3).map(|_| of(&VALUE_TYPES)).collect();
        let mut keys = vec![add("k1".to_owned(), first, dice.chance(30))];
        if dice.chance(50) {
            keys.push(add("k2".to_owned(), second, dice.chance(50)));
        }
        let mut partition_by = Vec::new();
        match dice.below(4) {
            0 => {
                partition_by.push(add("p key".to_owned(), by_key, dice.chance(50)));
                keys.push("p key".to_owned());
            }
            1 => partition_by.push(add("p".to_owned(), by_value, true)),
            _ => {}
        }
        let mut sequence = Vec::new();
        for number in 0..dice.below(3) as usize {
            let kind = ["bigint", "timestamp", "string"][dice.below(3) as usize];
            sequence.push(add(columns::sequence(number), kind, true));
        }
        add(columns::BATCH_ID.to_owned(), "bigint", false);
        for (number, kind) in values.into_iter().enumerate() {
            add(format!("v{number}"), kind, number > 0);
        }
        let has_vectors = dice.chance(60);
        let mode = match dice.below(3) {
            0 => WriteMode::Auto,
            1 => WriteMode::CopyOnWrite,
            _ if has_vectors => WriteMode::MergeOnRead,
            _ => WriteMode::Auto,
        };
        // The library does not find the files of a feed whose partition needs escaping.
        let is_text = |name: &String| fields.iter().any(|field| field.0 == *name && field.1 == DataType::Utf8);
        let has_feed = dice.chance(60) && !partition_by.iter().any(is_text);
        Self { fields, keys, sequence, partition_by, has_feed, has_vectors, mode }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        let fields = self.fields.iter().map(|(name, kind, nullable)| Field::new(name, kind.clone(), *nullable));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The same without what the library's MERGE gets wrong: with a feed it refuses deletes where a column must not be
    /// null.
    pub(crate) fn for_merge(&self) -> Self {
        let fields = self.fields.iter().map(|(name, kind, _)| (name.clone(), kind.clone(), true)).collect();
        Self { fields, has_vectors: false, ..self.clone() }
    }

    /// Without decimals that pass through a double: MERGE leaves out files by them.
    pub(crate) fn columns_with_stats(&self) -> Vec<String> {
        let fields = self.fields.iter().filter(|(name, kind, _)| {
            !matches!(kind, DataType::Decimal128(16.., _) | DataType::Binary | DataType::Boolean)
                && !self.partition_by.contains(name)
        });
        fields.map(|field| field.0.clone()).collect()
    }

    pub(crate) fn has_float_keys(&self) -> bool {
        self.fields.iter().any(|(name, kind, _)| *kind == DataType::Float64 && self.keys.contains(name))
    }

    fn places(&self, names: &[String]) -> Vec<usize> {
        let place = |name: &String| self.fields.iter().position(|field| field.0 == *name).expect("a column");
        names.iter().map(place).collect()
    }

    /// One change for each of some keys, `batch` being the number of the batch they come with.
    pub(crate) fn changes(&self, dice: &mut Dice, batch: u64) -> Changes {
        let keys = self.places(&self.keys);
        let (mut rows, mut seen) = (Vec::new(), BTreeSet::new());
        let deletes = dice.below(40);
        for _ in 0..dice.below(60) {
            let row = self.fields.iter().enumerate().map(|(place, (name, _, nullable))| {
                let end = if keys.contains(&place) { KEY_VALUES } else { VALUES };
                match name.as_str() {
                    columns::BATCH_ID => Some(if dice.chance(80) { batch } else { batch.saturating_sub(2) }),
                    _ if *nullable && dice.chance(15) => None,
                    _ => Some(dice.below(end)),
                }
            });
            let row: Row = row.collect();
            let key: Row = keys.iter().map(|place| row[*place]).collect();
            if seen.insert(key) {
                rows.push((row, dice.chance(deletes)));
            }
        }
        Changes { rows }
    }

    /// Typed rows.
    pub(crate) fn batch(&self, rows: &[Row]) -> RecordBatch {
        let columns = self.fields.iter().enumerate().map(|(place, (_, kind, _))| {
            let cells: Vec<Cell> = rows.iter().map(|row| row[place]).collect();
            array(kind, &cells)
        });
        RecordBatch::try_new(self.schema(), columns.collect()).expect("rows")
    }
}

/// Changes of different keys.
#[derive(Debug, Clone)]
pub(crate) struct Changes {
    rows: Vec<(Row, bool)>,
}

impl Changes {
    /// As the engine takes them.
    pub(crate) fn batch(&self, shape: &Shape) -> RecordBatch {
        let rows: Vec<Row> = self.rows.iter().map(|(row, _)| row.clone()).collect();
        let deletes: BooleanArray = self.rows.iter().map(|(_, delete)| Some(*delete)).collect();
        let batch = shape.batch(&rows);
        let fields = batch.schema().fields().iter().map(|field| field.as_ref().clone()).collect::<Vec<_>>();
        let schema =
            Schema::new(fields.into_iter().chain([Field::new(DELETE, DataType::Boolean, false)]).collect::<Vec<_>>());
        let columns = batch.columns().iter().cloned().chain([Arc::new(deletes) as ArrayRef]).collect();
        RecordBatch::try_new(Arc::new(schema), columns).expect("changes")
    }
}

/// The rows that a table must hold, by key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fold {
    rows: BTreeMap<Row, Row>,
}

/// Rows of a feed: what became of them, and their values as text.
pub(crate) type Feed = Vec<(String, String)>;

impl Fold {
    /// Applies changes: the figures, and what the feed must say.
    pub(crate) fn apply(&mut self, shape: &Shape, changes: &Changes) -> (UpsertFigures, Feed) {
        let keys = shape.places(&shape.keys);
        let order =
            shape.places(&shape.sequence.iter().cloned().chain([columns::BATCH_ID.to_owned()]).collect::<Vec<_>>());
        let order_of = |row: &Row| order.iter().map(|place| row[*place]).collect::<Row>();
        let mut figures = UpsertFigures::default();
        let mut feed: Vec<(&str, Row)> = Vec::new();
        for (row, delete) in &changes.rows {
            let key: Row = keys.iter().map(|place| row[*place]).collect();
            match (self.rows.get(&key).cloned(), delete) {
                (None, true) => figures.absent += 1,
                (None, false) => {
                    figures.inserted += 1;
                    feed.push(("insert", row.clone()));
                    self.rows.insert(key, row.clone());
                }
                (Some(held), _) if order_of(row) < order_of(&held) => figures.stale += 1,
                (Some(held), true) => {
                    figures.deleted += 1;
                    feed.push(("delete", held));
                    self.rows.remove(&key);
                }
                (Some(held), false) => {
                    figures.updated += 1;
                    feed.extend([("update_preimage", held), ("update_postimage", row.clone())]);
                    self.rows.insert(key, row.clone());
                }
            }
        }
        let texts = texts(&shape.batch(&feed.iter().map(|(_, row)| row.clone()).collect::<Vec<_>>()));
        (figures, feed.iter().map(|(kind, _)| (*kind).to_owned()).zip(texts).collect())
    }

    /// The rows as text, sorted.
    pub(crate) fn texts(&self, shape: &Shape) -> Vec<String> {
        let mut texts = texts(&shape.batch(&self.rows.values().cloned().collect::<Vec<_>>()));
        texts.sort();
        texts
    }
}

/// Every row of a batch as one text.
pub(crate) fn texts(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).expect("a format")).collect();
    let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" | ");
    (0..batch.num_rows()).map(row).collect()
}

/// Values of a type, in the order of the numbers.
fn array(kind: &DataType, cells: &[Cell]) -> ArrayRef {
    let cells = cells.iter().map(|cell| cell.map(|number| number as i64));
    match kind {
        DataType::Int64 => Arc::new(cells.map(|cell| cell.map(|n| n * 7 - 10)).collect::<Int64Array>()),
        DataType::Int32 => Arc::new(cells.map(|cell| cell.map(|n| n as i32 * 5 - 9)).collect::<Int32Array>()),
        DataType::Int16 => Arc::new(cells.map(|cell| cell.map(|n| n as i16 - 3)).collect::<Int16Array>()),
        DataType::Int8 => Arc::new(cells.map(|cell| cell.map(|n| n as i8 - 3)).collect::<Int8Array>()),
        DataType::Utf8 => Arc::new(cells.map(|cell| cell.map(text)).collect::<StringArray>()),
        DataType::Binary => {
            let values: Vec<Option<Vec<u8>>> = cells.map(|cell| cell.map(|n| vec![0, n as u8, 255])).collect();
            Arc::new(BinaryArray::from_iter(values))
        }
        DataType::Date32 => Arc::new(cells.map(|cell| cell.map(|n| n as i32 * 40 - 100)).collect::<Date32Array>()),
        DataType::Timestamp(..) => {
            let micros = cells.map(|cell| cell.map(|n| n * 337 - 500));
            Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
        }
        DataType::Decimal128(precision, scale) => {
            // Neighbours that a double cannot tell apart.
            let base = if *precision > 15 { 900_719_925_474_099_301_i128 } else { -300 };
            let values = cells.map(|cell| cell.map(|n| base + i128::from(n)));
            let values = values.collect::<Decimal128Array>().with_precision_and_scale(*precision, *scale);
            Arc::new(values.expect("a decimal"))
        }
        DataType::Float64 => {
            let value = |n: i64| if n + 1 == KEY_VALUES as i64 { f64::NAN } else { n as f64 / 2.0 - 1.0 };
            Arc::new(cells.map(|cell| cell.map(value)).collect::<Float64Array>())
        }
        DataType::Float32 => Arc::new(cells.map(|cell| cell.map(|n| n as f32 / 2.0)).collect::<Float32Array>()),
        DataType::Boolean => Arc::new(cells.map(|cell| cell.map(|n| n > 2)).collect::<BooleanArray>()),
        other => panic!("no values of type {other}"),
    }
}

/// The upper half is longer than what statistics keep of a text, and the same up to there.
fn text(number: i64) -> String {
    let half = KEY_VALUES as i64 / 2;
    if number < half { format!("A {number:03} ü/%20='\"") } else { format!("{}{number:03}", "x".repeat(70)) }
}
