//! Records of producers that write something else than a change of one row: they become what the decoder reads, before
//! it reads them.

mod documents;
mod rows;
mod sort_keys;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray, UInt64Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use lake::Result;

use super::resolve::find;
use crate::preset::Prepare;

/// Records as they are read.
pub(super) struct Prepared {
    pub(super) batch: RecordBatch,
    /// The record that each came from, where one record is several changes.
    origins: Option<Vec<usize>>,
    numbers: Option<Vec<i32>>,
    /// Records that say nothing, such as the tombstones of a topic.
    nothing: Vec<bool>,
}

impl Prepared {
    /// Records as bronze holds them, made into what is read.
    ///
    /// # Errors
    /// When a column cannot be written as text.
    pub(super) fn of(batch: &RecordBatch, prepare: Option<Prepare>) -> Result<Self> {
        match prepare {
            None => Ok(Self::as_it_is(batch.clone())),
            Some(Prepare::RowArrays) => rows::apart(batch),
            Some(Prepare::Documents) => documents::plain(batch),
            Some(Prepare::SortKeys) => sort_keys::ordered(batch),
        }
    }

    fn as_it_is(batch: RecordBatch) -> Self {
        Self { batch, origins: None, numbers: None, nothing: Vec::new() }
    }

    /// The number of the record that a change came from.
    pub(super) fn origin(&self, row: usize) -> usize {
        self.origins.as_ref().map_or(row, |origins| origins[row])
    }

    /// The numbers of the changes in their records.
    pub(super) fn numbers(&self) -> Int32Array {
        match &self.numbers {
            Some(numbers) => numbers.clone().into(),
            None => Int32Array::from_value(0, self.batch.num_rows()),
        }
    }

    pub(super) fn is_nothing(&self, row: usize) -> bool {
        self.nothing.get(row).copied().unwrap_or(false)
    }
}

/// The columns of prepared records.
pub(super) fn schema(bronze: &SchemaRef, prepare: Option<Prepare>) -> SchemaRef {
    let made: &[&str] = match prepare {
        None => return Arc::clone(bronze),
        Some(Prepare::RowArrays) => rows::COLUMNS,
        Some(Prepare::Documents) => documents::COLUMNS,
        Some(Prepare::SortKeys) => sort_keys::COLUMNS,
    };
    let mut fields: Vec<Field> = bronze.fields().iter().map(|field| field.as_ref().clone()).collect();
    for name in made {
        match find(bronze, name) {
            Some(place) => fields[place] = fields[place].clone().with_data_type(DataType::Utf8).with_nullable(true),
            None if matches!(prepare, Some(Prepare::Documents)) => fields.push(Field::new(*name, DataType::Utf8, true)),
            None => {}
        }
    }
    Arc::new(Schema::new(fields))
}

/// A batch with some columns of text in place of those of their names, or behind them. `origins` are the rows of the
/// batch that the rows come from.
fn with_columns(
    batch: &RecordBatch,
    origins: Option<&[usize]>,
    prepare: Prepare,
    made: Vec<(&str, StringArray)>,
) -> Result<RecordBatch> {
    let schema = schema(&batch.schema(), Some(prepare));
    let places = origins.map(|origins| origins.iter().map(|row| *row as u64).collect::<UInt64Array>());
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        if let Some((_, column)) = made.iter().find(|(name, _)| name.eq_ignore_ascii_case(field.name())) {
            columns.push(Arc::new(column.clone()) as ArrayRef);
            continue;
        }
        let column = batch.column(batch.schema().index_of(field.name())?);
        columns.push(match &places {
            Some(places) => take(column, places, None)?,
            None => Arc::clone(column),
        });
    }
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// A column as text, where the records have it.
fn texts(batch: &RecordBatch, name: &str) -> Result<Option<StringArray>> {
    let Some(place) = find(&batch.schema(), name) else { return Ok(None) };
    Ok(Some(cast(batch.column(place), &DataType::Utf8)?.as_string::<i32>().clone()))
}

fn text(column: Option<&StringArray>, row: usize) -> Option<&str> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}
