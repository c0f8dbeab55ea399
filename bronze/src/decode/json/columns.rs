//! The columns of a JSON file, which grow as keys appear, and their values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field};
use lake::{Error, Result};

use super::super::names::{check_name, folded};
use super::super::{COLUMNS_MAX, batch, refused};
use super::record::Values;

/// Columns found so far, with the values of the rows that are not yet in a chunk.
#[derive(Default)]
pub(super) struct Columns {
    columns: Vec<Column>,
    /// Column by key as it is written.
    by_key: HashMap<String, usize>,
    /// Column by key without regard to case: two spellings are one column.
    by_folded: HashMap<String, usize>,
    /// The column that comes next when this record has its keys in the order of the one before.
    expected: usize,
    record: u64,
    refusal: Option<Error>,
}

struct Column {
    name: String,
    values: StringBuilder,
    /// The record that had the key last.
    record: u64,
}

/// What a key stands for.
pub(super) enum Key {
    /// A column.
    Column(usize),
    /// The empty key, which cannot name a column.
    Unnamed,
}

impl Columns {
    /// The number of columns.
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// The name of a column.
    pub(super) fn name(&self, column: usize) -> &str {
        &self.columns[column].name
    }

    /// Starts a record: every key may come once.
    pub(super) fn begin_record(&mut self) {
        self.record += 1;
        self.expected = 0;
    }

    /// What a key of the record stands for; `None` when the record had it already, or when the file is refused.
    pub(super) fn key(&mut self, key: &str) -> Option<Key> {
        if key.is_empty() {
            return Some(Key::Unnamed);
        }
        let index = match self.columns.get(self.expected) {
            Some(column) if column.name == key => self.expected,
            _ => self.find(key)?,
        };
        self.expected = index + 1;
        let column = &mut self.columns[index];
        if column.record == self.record {
            return None;
        }
        column.record = self.record;
        Some(Key::Column(index))
    }

    /// The error that refuses the whole file, when a key was the cause of the last failure.
    pub(super) fn take_refusal(&mut self) -> Option<Error> {
        self.refusal.take()
    }

    /// Drops the columns that came after the first `length`: the record that brought them was rejected.
    pub(super) fn forget_after(&mut self, length: usize) {
        if self.columns.len() > length {
            self.columns.truncate(length);
            self.by_key.retain(|_, index| *index < length);
            self.by_folded.retain(|_, index| *index < length);
        }
    }

    /// Adds the values of row `row`, counted from 0 in the chunk; keys that it lacks are null.
    pub(super) fn push(&mut self, values: &Values<'_>, row: usize) {
        for (index, value) in values.by_column() {
            let builder = &mut self.columns[index].values;
            pad(builder, row);
            builder.append_option(value);
        }
    }

    /// The `rows` rows since the last time, as a batch.
    pub(super) fn batch(&mut self, rows: usize) -> Result<RecordBatch> {
        let fields = self.columns.iter().map(|column| Field::new(&column.name, DataType::Utf8, true)).collect();
        let arrays = self.columns.iter_mut().map(|column| {
            pad(&mut column.values, rows);
            Arc::new(column.values.finish()) as ArrayRef
        });
        let arrays = arrays.collect();
        batch(fields, arrays, rows)
    }

    fn find(&mut self, key: &str) -> Option<usize> {
        if let Some(index) = self.by_key.get(key) {
            return Some(*index);
        }
        let folded = folded(key);
        let index = match self.by_folded.get(&folded) {
            Some(index) => *index,
            None => self.add(key, folded)?,
        };
        if self.by_key.len() < 2 * COLUMNS_MAX {
            self.by_key.insert(key.to_owned(), index);
        }
        Some(index)
    }

    fn add(&mut self, key: &str, folded: String) -> Option<usize> {
        let index = self.columns.len();
        if let Err(refusal) = check_name(key) {
            self.refusal = Some(refusal);
            return None;
        }
        if index == COLUMNS_MAX {
            self.refusal = Some(
                refused(format!("the file has more than {COLUMNS_MAX} different keys; the last is `{key}`"))
                    .hint("keys that are really values (ids, dates) belong inside a nested object"),
            );
            return None;
        }
        self.columns.push(Column { name: key.to_owned(), values: StringBuilder::new(), record: 0 });
        self.by_folded.insert(folded, index);
        Some(index)
    }
}

fn pad(builder: &mut StringBuilder, rows: usize) {
    use arrow::array::ArrayBuilder;
    let missing = rows - builder.len();
    if missing > 0 {
        builder.append_nulls(missing);
    }
}
