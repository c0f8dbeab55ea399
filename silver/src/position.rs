//! Where a change stands in the total order of changes: its sequence, then its arrival.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema, TimestampMicrosecondType,
};
use lake::{Error, Result, columns};
use serde_json::Value;

use crate::change::{CHANGE_NUMBER, FILE_RANK, FILE_TIME, RANK_IN_FILE};

/// One part of a sequence, so that parts compare as the values that they are; null is the smallest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Null,
    /// Whole numbers, and decimals, days and moments by the number behind them.
    Number(i128),
    Text(String),
}

/// A place in the total order. What a table has kept of a change has no arrival, and is older than any change of the
/// same sequence and batch that still has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) parts: Vec<Part>,
    pub(crate) batch: i64,
    pub(crate) arrival: Option<Arrival>,
}

/// The arrival of a change inside of its batch, in the order of [`crate::order`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    file_rank: i32,
    file_time: i64,
    pub(crate) file: String,
    rank_in_file: i32,
    pub(crate) row: i64,
    change: i32,
}

impl Position {
    /// Without the arrival: as a table keeps it.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> Self {
        Self { parts: self.parts.clone(), batch: self.batch, arrival: None }
    }

    /// True when a table keeps both as the same.
    pub(crate) fn is_kept_as(&self, other: &Self) -> bool {
        self.batch == other.batch && self.parts == other.parts
    }

    /// The parts and the batch as a JSON array.
    pub(crate) fn to_json(&self) -> Value {
        let parts = self.parts.iter().map(|part| match part {
            Part::Null => Value::Null,
            Part::Number(number) => i64::try_from(*number).map_or_else(|_| number.to_string().into(), Value::from),
            Part::Text(text) => text.as_str().into(),
        });
        parts.chain([self.batch.into()]).collect()
    }

    /// Reads what [`to_json`](Self::to_json) wrote, for a sequence of these types; `None` when it is something else.
    pub(crate) fn from_json(value: &Value, kinds: &[DataType]) -> Option<Self> {
        let (batch, parts) = value.as_array()?.split_last()?;
        if parts.len() != kinds.len() {
            return None;
        }
        let part = |(value, kind): (&Value, &DataType)| match (value, kind) {
            (Value::Null, _) => Some(Part::Null),
            (Value::String(text), DataType::Utf8) => Some(Part::Text(text.clone())),
            (Value::String(text), _) => text.parse().ok().map(Part::Number),
            (value, _) => value.as_i64().map(|number| Part::Number(number.into())),
        };
        let parts = parts.iter().zip(kinds).map(part).collect::<Option<Vec<_>>>()?;
        Some(Self { parts, batch: batch.as_i64()?, arrival: None })
    }
}

/// The positions of the rows of a batch.
pub(crate) struct Positions<'a> {
    parts: Vec<&'a ArrayRef>,
    batch: &'a ArrayRef,
    arrival: Option<[&'a ArrayRef; 6]>,
}

impl<'a> Positions<'a> {
    /// Of rows with these sequence columns. Rows without an arrival are rows that a table has kept.
    ///
    /// # Errors
    /// When a column is not there.
    pub(crate) fn of(rows: &'a RecordBatch, sequence: &[String]) -> Result<Self> {
        let column = |name: &str| {
            rows.column_by_name(name).ok_or_else(|| Error::internal(format!("changes have no column `{name}`")))
        };
        let parts = sequence.iter().map(|name| column(name)).collect::<Result<Vec<_>>>()?;
        let arrival = [FILE_RANK, FILE_TIME, columns::FILE_PATH, RANK_IN_FILE, columns::ROW_NUMBER, CHANGE_NUMBER];
        let arrival = arrival.map(column);
        let arrival = match arrival {
            [Ok(a), Ok(b), Ok(c), Ok(d), Ok(e), Ok(f)] => Some([a, b, c, d, e, f]),
            _ => None,
        };
        Ok(Self { parts, batch: column(columns::BATCH_ID)?, arrival })
    }

    /// The position of a row.
    pub(crate) fn at(&self, row: usize) -> Position {
        let number = |column: &ArrayRef| column.as_primitive::<Int32Type>().value(row);
        let arrival = self.arrival.filter(|[.., change]| change.is_valid(row));
        Position {
            parts: self.parts.iter().map(|column| part(column, row)).collect(),
            batch: self.batch.as_primitive::<Int64Type>().value(row),
            arrival: arrival.map(|[file_rank, file_time, file, rank, record, change]| Arrival {
                file_rank: number(file_rank),
                file_time: file_time.as_primitive::<Int64Type>().value(row),
                file: file.as_string::<i32>().value(row).to_owned(),
                rank_in_file: number(rank),
                row: record.as_primitive::<Int64Type>().value(row),
                change: number(change),
            }),
        }
    }
}

/// The types of sequence columns in a schema.
///
/// # Errors
/// When a column is not there.
pub(crate) fn kinds(schema: &Arc<Schema>, sequence: &[String]) -> Result<Vec<DataType>> {
    sequence.iter().map(|name| Ok(schema.field_with_name(name)?.data_type().clone())).collect()
}

fn part(column: &ArrayRef, row: usize) -> Part {
    if column.is_null(row) {
        return Part::Null;
    }
    match column.data_type() {
        DataType::Int8 => Part::Number(column.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => Part::Number(column.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => Part::Number(column.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Part::Number(column.as_primitive::<Int64Type>().value(row).into()),
        DataType::Decimal128(..) => Part::Number(column.as_primitive::<Decimal128Type>().value(row)),
        DataType::Date32 => Part::Number(column.as_primitive::<Date32Type>().value(row).into()),
        DataType::Timestamp(..) => Part::Number(column.as_primitive::<TimestampMicrosecondType>().value(row).into()),
        _ => Part::Text(column.as_string::<i32>().value(row).to_owned()),
    }
}

#[cfg(test)]
pub(crate) fn at(number: i128, batch: i64, row: i64) -> Position {
    let arrival = Arrival { file_rank: 1, file_time: 0, file: "f".into(), rank_in_file: 0, row, change: 0 };
    Position { parts: vec![Part::Number(number)], batch, arrival: Some(arrival) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_comes_before_the_batch_and_the_batch_before_the_record() {
        assert!(at(1, 9, 9) < at(2, 1, 1) && at(2, 1, 9) < at(2, 2, 1) && at(2, 2, 1) < at(2, 2, 2));
        assert!(at(2, 2, 1).kept() < at(2, 2, 1), "a change is not older than what a table kept of its like");
        let null = Position { parts: vec![Part::Null], ..at(0, 9, 9) };
        assert!(null < at(-1, 1, 1));
    }

    #[test]
    fn a_position_survives_json() {
        let big = i128::from(u64::MAX) * 1_000;
        let parts = vec![Part::Number(7), Part::Null, Part::Text("09\"x".into()), Part::Number(-big)];
        let position = Position { parts, batch: 3, arrival: None };
        let kinds = [DataType::Int64, DataType::Int64, DataType::Utf8, DataType::Decimal128(38, 0)];
        let text = position.to_json().to_string();
        let read = serde_json::from_str(&text).expect("JSON");
        assert_eq!(Position::from_json(&read, &kinds), Some(position));
        assert_eq!(Position::from_json(&read, &kinds[1..]), None);
    }
}
