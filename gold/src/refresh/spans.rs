//! Which moments can have a day, an hour, a month that was touched: where a group is made of a moment, files are left
//! out by the moments that they hold.
//!
//! Only what is known to follow its moment closely is looked through: casts between dates and timestamps, `AT TIME
//! ZONE`, `date_trunc`. A zone moves its clock by less than a day against UTC, also where it is put back, so a span is
//! taken a day and two hours wider on both sides for each cast; which group a row belongs to is asked of the row itself.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit};
use datafusion::logical_expr::Expr;
use lake::Result;
use lake::skip::Wanted;

const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;
/// How far a moment may lie from its local time, taken for UTC.
const SLACK_US: i64 = DAY_US + 2 * HOUR_US;

/// What to look for in the column that groups are made of; `None` where that is not known.
pub(super) fn spans(expr: &Expr, values: &ArrayRef, schema: &SchemaRef) -> Result<Option<(String, Wanted)>> {
    let Some((column, width_us, slack_us)) = moment(expr) else { return Ok(None) };
    let Ok(field) = schema.field_with_name(&column) else { return Ok(None) };
    let kind = field.data_type();
    if !matches!(kind, DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Date32) {
        return Ok(None);
    }
    let Some(starts) = micros(values)? else { return Ok(None) };
    let mut starts: Vec<i64> = starts.iter().flatten().collect();
    starts.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for start in starts {
        let (from, to) = (start.saturating_sub(slack_us), start.saturating_add(width_us).saturating_add(slack_us));
        match merged.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => merged.push((from, to)),
        }
    }
    let ends = |pick: fn(&(i64, i64)) -> i64| -> Result<ArrayRef> {
        let micros = Int64Array::from_iter_values(merged.iter().map(pick));
        Ok(match kind {
            DataType::Date32 => {
                let days = micros.unary::<_, Int64Type>(|at| at.div_euclid(DAY_US));
                cast(&cast(&days, &DataType::Int32)?, kind)?
            }
            kind => cast(&micros, kind)?,
        })
    };
    let wanted =
        Wanted::Ranges { from: ends(|span| span.0)?, to: ends(|span| span.1)?, with_null: values.null_count() > 0 };
    Ok(Some((column, wanted)))
}

/// The column of moments that an expression follows, how long its values last at most, all truncations together, and how
/// far they may lie from their local times, both in microseconds.
fn moment(expr: &Expr) -> Option<(String, i64, i64)> {
    match expr {
        Expr::Column(column) => Some((column.name.clone(), 0, SLACK_US)),
        Expr::Alias(alias) => moment(&alias.expr),
        Expr::Cast(cast) => {
            let (column, width, slack) = moment(&cast.expr)?;
            match cast.field.data_type() {
                DataType::Date32 | DataType::Date64 => Some((column, width.saturating_add(DAY_US), slack)),
                // Each change between a moment and its local time may be off by so much again, on either side.
                DataType::Timestamp(..) => Some((column, width, slack.saturating_add(SLACK_US))),
                _ => None,
            }
        }
        Expr::ScalarFunction(call) if matches!(call.func.name(), "date_trunc" | "datetrunc") => {
            let [Expr::Literal(unit, _), of] = call.args.as_slice() else { return None };
            let (column, width, slack) = moment(of)?;
            Some((column, width.saturating_add(length_us(unit.try_as_str()??)?), slack))
        }
        _ => None,
    }
}

/// How long a unit of time lasts at most.
fn length_us(unit: &str) -> Option<i64> {
    Some(match unit.to_lowercase().as_str() {
        "second" | "millisecond" | "microsecond" => 1_000_000,
        "minute" => 60_000_000,
        "hour" => HOUR_US,
        "day" => DAY_US,
        "week" => 7 * DAY_US,
        "month" => 31 * DAY_US,
        "quarter" => 92 * DAY_US,
        "year" => 366 * DAY_US,
        _ => return None,
    })
}

/// Moments and days as microseconds since the epoch, taken for UTC.
fn micros(values: &ArrayRef) -> Result<Option<Int64Array>> {
    let moments = match values.data_type() {
        DataType::Timestamp(..) => cast(values, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
        DataType::Date32 | DataType::Date64 => cast(values, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
        _ => return Ok(None),
    };
    let numbers: ArrayRef = Arc::new(cast(&moments, &DataType::Int64)?.as_primitive::<Int64Type>().clone());
    Ok(Some(numbers.as_primitive::<Int64Type>().clone()))
}

#[cfg(test)]
mod tests {
    use arrow::array::Date32Array;
    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::{cast as cast_expr, ident};
    use lake::columns::timestamp_type;

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("at", timestamp_type(), true), Field::new("n", DataType::Int64, true)]))
    }

    #[test]
    fn days_of_a_zone_are_spans_of_moments_that_are_wide_enough() {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("Asia/Kathmandu".into()));
        let day = cast_expr(cast_expr(ident("at"), zoned), DataType::Date32);
        let values: ArrayRef = Arc::new(Date32Array::from(vec![Some(20), Some(10), None, Some(11)]));
        let (column, wanted) = spans(&day, &values, &schema()).expect("spans").expect("a column of moments");
        let Wanted::Ranges { from, to, with_null } = wanted else { panic!("ranges") };
        let ends = |ends: &ArrayRef| {
            cast(ends, &DataType::Int64).expect("numbers").as_primitive::<Int64Type>().values().to_vec()
        };
        assert_eq!((column.as_str(), with_null), ("at", true));
        // The column itself and one cast to a zone.
        let slack = 2 * SLACK_US;
        assert_eq!(ends(&from), [10 * DAY_US - slack, 20 * DAY_US - slack]);
        assert_eq!(ends(&to), [12 * DAY_US + slack, 21 * DAY_US + slack]);
    }

    #[test]
    fn what_is_cut_twice_may_lie_two_lengths_before() {
        let trunc =
            |unit: &str, of| datafusion::functions::expr_fn::date_trunc(datafusion::logical_expr::lit(unit), of);
        let month = trunc("month", trunc("week", ident("at")));
        assert_eq!(moment(&month), Some(("at".to_owned(), 38 * DAY_US, SLACK_US)));
        let week = trunc("week", cast_expr(ident("at"), DataType::Date32));
        assert_eq!(moment(&week), Some(("at".to_owned(), 8 * DAY_US, SLACK_US)));
    }

    #[test]
    fn what_does_not_follow_a_moment_leaves_no_file_out() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(spans(&(ident("n") * ident("n")), &values, &schema()).expect("spans").is_none());
        assert!(spans(&cast_expr(ident("at"), DataType::Utf8), &values, &schema()).expect("spans").is_none());
    }
}
