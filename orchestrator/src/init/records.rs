//! Sample records by column, as text, whatever files they come from.

use std::collections::{BTreeSet, HashMap};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use lake::Result;
use lake::schema::ColumnType;
use lake::spec::Map;
use serde_json::value::RawValue;

/// One column of sample records.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Its name in the source.
    pub(super) name: String,
    /// Its type, where the files have types.
    pub(super) typed: Option<ColumnType>,
    /// Its values by row.
    pub(super) values: Vec<Option<String>>,
}

/// Sample records.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    /// The columns in the order in which they were first seen.
    pub(super) columns: Vec<Column>,
    /// The number of the file of each row.
    pub(super) files: Vec<usize>,
    by_name: HashMap<String, usize>,
}

/// The members of a JSON object in their order: a name and the text of its value.
pub(super) type Members = Vec<(String, Option<String>)>;

impl Column {
    /// Its values that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = &str> {
        self.values.iter().flatten().map(String::as_str)
    }

    /// Its different values, while they are few.
    pub(super) fn few(&self, max: usize) -> Option<BTreeSet<&str>> {
        let mut seen = BTreeSet::new();
        for value in self.present() {
            seen.insert(value);
            if seen.len() > max {
                return None;
            }
        }
        Some(seen)
    }
}

impl Records {
    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.files.len()
    }

    /// How many files the rows come from.
    pub(super) fn file_count(&self) -> usize {
        self.files.iter().collect::<BTreeSet<_>>().len()
    }

    /// A column by its name, in any case.
    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.by_name.get(&name.to_lowercase()).map(|at| &self.columns[*at])
    }

    /// A column of exactly this name.
    pub(super) fn exactly(&self, name: &str) -> Option<&Column> {
        self.column(name).filter(|column| column.name == name)
    }

    /// Adds the rows of a batch.
    ///
    /// # Errors
    /// [`lake::ErrorKind::Query`] when the values of a column have no texts.
    pub(super) fn add(&mut self, file: usize, batch: &RecordBatch) -> Result<()> {
        let before = self.rows();
        // All texts first: a batch joins as a whole or not at all.
        let texts = batch.columns().iter().map(|array| texts(array.as_ref())).collect::<Result<Vec<_>>>()?;
        self.files.extend(std::iter::repeat_n(file, batch.num_rows()));
        for (field, texts) in batch.schema().fields().iter().zip(texts) {
            let typed = (*field.data_type() != DataType::Utf8).then(|| type_of(field.data_type()));
            let column = self.column_mut(field.name(), before);
            column.typed = column.typed.or(typed);
            column.values.extend(texts);
        }
        self.level();
        Ok(())
    }

    /// Gives the rows from `from` on a value that their records do not have.
    pub(super) fn fill(&mut self, name: &str, from: usize, value: Option<&str>) {
        let rows = self.rows();
        let column = self.column_mut(name, rows);
        column.values.iter_mut().skip(from).for_each(|cell| *cell = value.map(str::to_owned));
    }

    /// Adds one row.
    pub(super) fn push(&mut self, file: usize, members: Members) {
        let before = self.rows();
        self.files.push(file);
        for (name, value) in members {
            let column = self.column_mut(&name, before);
            if column.values.len() == before {
                column.values.push(value);
            }
        }
        self.level();
    }

    /// The same with another name of a column.
    pub(super) fn renamed(&self, at: usize, name: &str) -> Self {
        let mut made = self.clone();
        made.by_name.remove(&made.columns[at].name.to_lowercase());
        made.by_name.insert(name.to_lowercase(), at);
        made.columns[at].name = name.to_owned();
        made
    }

    /// The rows with the members of the objects that `column` holds; rows without an object keep their own columns.
    pub(super) fn unwrapped(&self, column: &str) -> Self {
        let Some(inside) = self.column(column) else { return self.clone() };
        let mut made = Self::default();
        for (row, file) in self.files.iter().enumerate() {
            match inside.values[row].as_deref().and_then(members) {
                Some(members) => made.push(*file, members),
                None => made.push(*file, self.row(row)),
            }
        }
        made
    }

    /// A row as members.
    pub(super) fn row(&self, row: usize) -> Members {
        self.columns.iter().map(|column| (column.name.clone(), column.values[row].clone())).collect()
    }

    fn column_mut(&mut self, name: &str, rows: usize) -> &mut Column {
        let next = self.columns.len();
        let at = *self.by_name.entry(name.to_lowercase()).or_insert(next);
        if at == next {
            self.columns.push(Column { name: name.to_owned(), typed: None, values: vec![None; rows] });
        }
        &mut self.columns[at]
    }

    fn level(&mut self) {
        let rows = self.rows();
        self.columns.iter_mut().for_each(|column| column.values.resize(rows, None));
    }
}

/// The members of a JSON object; `None` for anything else.
pub(super) fn members(text: &str) -> Option<Members> {
    let object: Map<&RawValue> = serde_json::from_str(text).ok()?;
    Some(object.iter().map(|(name, value)| (name.to_owned(), text_of(value.get()))).collect())
}

/// The objects of a JSON array.
pub(super) fn objects(text: &str) -> Option<Vec<Members>> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(items.into_iter().filter_map(|item| members(item.get())).collect())
}

/// A JSON value as bronze holds it: texts decoded, null absent, all else as it is written.
fn text_of(json: &str) -> Option<String> {
    match json.trim() {
        "null" => None,
        text if text.starts_with('"') => serde_json::from_str(text).ok(),
        other => Some(other.to_owned()),
    }
}

fn texts(array: &dyn Array) -> Result<Vec<Option<String>>> {
    if let Some(texts) = array.as_string_opt::<i32>() {
        return Ok(texts.iter().map(|value| value.map(str::to_owned)).collect());
    }
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(array, &options)?;
    // A value that cannot be shown says as little about its column as none.
    let text = |row| if array.is_null(row) { None } else { formatter.value(row).try_to_string().ok() };
    Ok((0..array.len()).map(text).collect())
}

/// The type of the spec for a column of a typed file.
fn type_of(held: &DataType) -> ColumnType {
    ColumnType::of(held).unwrap_or(ColumnType::String)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Date32Array, Int64Array};

    use super::*;

    #[test]
    fn values_that_cannot_be_shown_leave_the_others_in_their_rows() {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let days: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX, 0]));
        let batch = RecordBatch::try_from_iter([("id", ids), ("day", days)]).expect("a batch");
        let mut records = Records::default();
        records.add(0, &batch).expect("rows");
        assert_eq!(records.columns[1].values, [None, Some("1970-01-01".to_owned())]);
        assert!(records.columns.iter().all(|column| column.values.len() == records.rows()));
    }
}
