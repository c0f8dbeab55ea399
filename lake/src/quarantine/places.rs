//! Places of records in what has landed, many of them in little memory.

use std::collections::{BTreeSet, HashMap};

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::Int64Type;

use crate::columns::{BATCH_ID, FILE_PATH, ROW_NUMBER};
use crate::error::{Error, Result};

/// A set of records by batch, file and record number, each with a number of the caller's.
#[derive(Debug, Clone, Default)]
pub struct Places {
    files: HashMap<i64, HashMap<String, HashMap<i64, i64>>>,
    count: u64,
}

impl Places {
    /// Adds a record with a number; the number that is there already stays.
    pub fn add(&mut self, batch: i64, file: &str, row: i64, number: i64) {
        let files = self.files.entry(batch).or_default();
        let rows = match files.get_mut(file) {
            Some(rows) => rows,
            None => files.entry(file.to_owned()).or_default(),
        };
        if rows.insert(row, number).is_none() {
            self.count += 1;
        }
    }

    /// The number of a record.
    pub fn get(&self, batch: i64, file: &str, row: i64) -> Option<i64> {
        self.files.get(&batch)?.get(file)?.get(&row).copied()
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// True without any record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The batches of the records.
    pub fn batches(&self) -> BTreeSet<i64> {
        self.files.keys().copied().collect()
    }

    /// Which rows of a batch with the columns of bronze, or of quarantine, are in the set.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when the rows do not say where they come from.
    pub fn mask(&self, rows: &RecordBatch) -> Result<BooleanArray> {
        each(rows, |batch, file, row| self.get(batch, file, row).is_some())
    }
}

/// Asks about the place of every row of a batch.
pub(super) fn each(rows: &RecordBatch, mut ask: impl FnMut(i64, &str, i64) -> bool) -> Result<BooleanArray> {
    let missing = || Error::internal("rows do not say where they come from");
    let numbers = |name: &str| rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let (batches, places) = (numbers(BATCH_ID).ok_or_else(missing)?, numbers(ROW_NUMBER).ok_or_else(missing)?);
    let files = rows.column_by_name(FILE_PATH).and_then(|column| column.as_string_opt::<i32>()).ok_or_else(missing)?;
    Ok((0..rows.num_rows()).map(|row| Some(ask(batches.value(row), files.value(row), places.value(row)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_batch_its_file_and_its_number() {
        let mut places = Places::default();
        places.add(1, "a.csv", 7, 70);
        places.add(1, "a.csv", 7, 70);
        places.add(2, "a.csv", 7, 71);
        assert_eq!((places.len(), places.get(1, "a.csv", 7), places.get(2, "a.csv", 7)), (2, Some(70), Some(71)));
        assert!(places.get(1, "b.csv", 7).is_none() && places.get(1, "a.csv", 8).is_none());
        assert_eq!(places.batches().into_iter().collect::<Vec<_>>(), [1, 2]);
    }
}
