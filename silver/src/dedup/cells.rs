//! Keys and order of changes, compared cell by cell without a copy of them.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, Int32Type, Int64Type, Schema, TimestampMicrosecondType};
use arrow::row::{RowConverter, Rows, SortField};
use lake::Result;

/// Which columns of a change are its key, and which its place in the order.
pub(super) struct Columns {
    keys: Vec<Place>,
    order: Vec<Place>,
}

struct Place {
    index: usize,
    /// For types that are not compared as they are.
    converter: Option<RowConverter>,
}

/// A batch with its cells at hand.
pub(super) struct Held {
    pub(super) batch: RecordBatch,
    keys: Vec<Cells>,
    order: Vec<Cells>,
}

/// The cells of a column; nulls are the smallest.
enum Cells {
    Int32(PrimitiveArray<Int32Type>),
    Int64(PrimitiveArray<Int64Type>),
    Micros(PrimitiveArray<TimestampMicrosecondType>),
    Decimal(PrimitiveArray<Decimal128Type>),
    Text(StringArray),
    /// In a form that is compared byte by byte.
    Other(Rows),
}

impl Columns {
    /// # Errors
    /// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when a column is missing or has no order.
    pub(super) fn new(schema: &Schema, keys: &[String], order: &[String]) -> Result<Self> {
        let places = |names: &[String]| names.iter().map(|name| Place::new(schema, name)).collect::<Result<Vec<_>>>();
        Ok(Self { keys: places(keys)?, order: places(order)? })
    }

    /// The key columns of a batch.
    pub(super) fn keys_of<'a>(&'a self, batch: &'a RecordBatch) -> impl Iterator<Item = &'a ArrayRef> {
        self.keys.iter().map(|place| batch.column(place.index))
    }

    /// # Errors
    /// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when a column is not of its type.
    pub(super) fn hold(&self, batch: RecordBatch) -> Result<Held> {
        let cells = |places: &[Place]| places.iter().map(|place| place.cells(&batch)).collect::<Result<Vec<_>>>();
        Ok(Held { keys: cells(&self.keys)?, order: cells(&self.order)?, batch })
    }
}

impl Place {
    fn new(schema: &Schema, name: &str) -> Result<Self> {
        let index = schema.index_of(name)?;
        let kind = schema.field(index).data_type();
        let converter = match is_compared_as_it_is(kind) {
            true => None,
            false => Some(RowConverter::new(vec![SortField::new(kind.clone())])?),
        };
        Ok(Self { index, converter })
    }

    fn cells(&self, batch: &RecordBatch) -> Result<Cells> {
        let column = batch.column(self.index);
        if let Some(converter) = &self.converter {
            return Ok(Cells::Other(converter.convert_columns(&[Arc::clone(column)])?));
        }
        Ok(match column.data_type() {
            DataType::Int32 => Cells::Int32(column.as_primitive().clone()),
            DataType::Int64 => Cells::Int64(column.as_primitive().clone()),
            DataType::Timestamp(..) => Cells::Micros(column.as_primitive().clone()),
            DataType::Decimal128(..) => Cells::Decimal(column.as_primitive().clone()),
            _ => Cells::Text(column.as_string::<i32>().clone()),
        })
    }
}

fn is_compared_as_it_is(kind: &DataType) -> bool {
    use arrow::datatypes::TimeUnit::Microsecond;
    matches!(
        kind,
        DataType::Int32
            | DataType::Int64
            | DataType::Timestamp(Microsecond, _)
            | DataType::Decimal128(..)
            | DataType::Utf8
    )
}

impl Held {
    /// Whether two changes are of one key; null is null's.
    pub(super) fn is_same_key(&self, row: usize, other: &Self, other_row: usize) -> bool {
        self.keys.iter().zip(&other.keys).all(|(mine, theirs)| mine.cmp(row, theirs, other_row).is_eq())
    }

    /// How two changes of a key follow each other.
    pub(super) fn cmp(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        let parts = self.order.iter().zip(&other.order);
        parts
            .map(|(mine, theirs)| mine.cmp(row, theirs, other_row))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl Cells {
    fn cmp(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        match (self, other) {
            (Self::Int32(mine), Self::Int32(theirs)) => {
                by(mine.nulls(), row, theirs.nulls(), other_row, || mine.value(row).cmp(&theirs.value(other_row)))
            }
            (Self::Int64(mine), Self::Int64(theirs)) => {
                by(mine.nulls(), row, theirs.nulls(), other_row, || mine.value(row).cmp(&theirs.value(other_row)))
            }
            (Self::Micros(mine), Self::Micros(theirs)) => {
                by(mine.nulls(), row, theirs.nulls(), other_row, || mine.value(row).cmp(&theirs.value(other_row)))
            }
            (Self::Decimal(mine), Self::Decimal(theirs)) => {
                by(mine.nulls(), row, theirs.nulls(), other_row, || mine.value(row).cmp(&theirs.value(other_row)))
            }
            (Self::Text(mine), Self::Text(theirs)) => {
                by(mine.nulls(), row, theirs.nulls(), other_row, || mine.value(row).cmp(theirs.value(other_row)))
            }
            (Self::Other(mine), Self::Other(theirs)) => mine.row(row).cmp(&theirs.row(other_row)),
            // All batches of a stream have one schema.
            _ => Ordering::Equal,
        }
    }
}

fn by(
    nulls: Option<&NullBuffer>,
    row: usize,
    other_nulls: Option<&NullBuffer>,
    other_row: usize,
    values: impl FnOnce() -> Ordering,
) -> Ordering {
    let is_null = |nulls: Option<&NullBuffer>, row| nulls.is_some_and(|nulls| nulls.is_null(row));
    match (is_null(nulls, row), is_null(other_nulls, other_row)) {
        (false, false) => values(),
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}
