//! Days and moments that no reader can show: a file with such a value would break the tables' statistics, and reading.

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, Date32Type, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, NaiveDate};

use crate::error::{Error, Result};
use crate::names::TableName;

/// Refuses rows with such values. Years that can be shown pass, whatever a `date` of the spec may be.
///
/// # Errors
/// [`ErrorKind::Data`](crate::ErrorKind::Data), with the column.
pub(super) fn check(batch: &RecordBatch, table: &TableName) -> Result<()> {
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let (is_shown, kind) = match column.data_type() {
            DataType::Date32 => {
                let days = column.as_primitive::<Date32Type>();
                let ends = [min(days), max(days)];
                (ends.iter().flatten().all(|days| NaiveDate::from_epoch_days(*days).is_some()), "date")
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                let micros = column.as_primitive::<TimestampMicrosecondType>();
                let ends = [min(micros), max(micros)];
                (ends.iter().flatten().all(|micros| DateTime::from_timestamp_micros(*micros).is_some()), "timestamp")
            }
            _ => continue,
        };
        if !is_shown {
            let name = field.name();
            return Err(Error::data(format!("column `{name}` of {table} has a {kind} that no reader can show"))
                .hint("it is beyond the year 262142: leave such values out, or write them as text"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Date32Array, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn values_that_cannot_be_shown_are_refused_and_others_are_not() {
        let name = TableName::silver("t");
        let day = |days| -> ArrayRef { Arc::new(Date32Array::from(vec![None, Some(days), Some(0)])) };
        let moment = |micros| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(vec![None, Some(micros)])) };
        for (column, is_fine) in [
            (day(0), true),
            (day(3_000_000), true),
            (day(i32::MAX), false),
            (day(i32::MIN + 1), false),
            (moment(253_402_300_800_000_000), true),
            (moment(9_223_372_036_825_200_000), false),
            (moment(i64::MIN), false),
        ] {
            let batch = RecordBatch::try_from_iter([("v", Arc::clone(&column))]).expect("a batch");
            let checked = check(&batch, &name);
            assert_eq!(checked.is_ok(), is_fine, "{column:?}");
            assert!(checked.err().is_none_or(|error| error.to_string().contains("column `v` of silver.t")));
        }
    }
}
