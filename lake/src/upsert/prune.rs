//! Which files, and which row groups of a file, may hold the key of a change, by what is known of their values.
//!
//! A container may be left out when, for one of the key columns, no change has a value between its least and its
//! greatest. What is not known leaves nothing out: floats (NaN is in no bound), decimals that passed through a double,
//! and types whose order in files is not ours are never asked.

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt64Array};
use arrow::compute::{SortOptions, cast, sort};
use arrow::datatypes::{DataType, Int64Type, TimeUnit, UInt64Type};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Column;
use datafusion::common::pruning::PruningStatistics;
use deltalake::kernel::LogDataHandler;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;

use super::file::OpenFile;
use crate::error::Result;
use crate::schema::ColumnType;

/// A greatest text of so many bytes may be cut: it stands for all that begin with it.
const TEXT_BYTES_CUT: usize = 32;
/// The log may have moments in milliseconds, cut off.
const LOG_MOMENT_MICROS: i64 = 1_000;

/// The values of the changes, each key column by itself.
#[derive(Debug)]
pub(crate) struct Pruning {
    columns: Vec<Values>,
}

/// The sorted values of one key column.
#[derive(Debug)]
struct Values {
    name: String,
    kind: DataType,
    is_partition: bool,
    converter: RowConverter,
    sorted: Rows,
    /// Where the values are the least ones of ranges that lie apart: the greatest ones.
    ends: Option<Rows>,
    has_null: bool,
}

/// What is known of a column in each of some containers.
struct Bounds {
    least: ArrayRef,
    greatest: ArrayRef,
    nulls: Option<UInt64Array>,
    rows: Option<UInt64Array>,
}

impl Pruning {
    pub(crate) fn new(names: &[String], keys: &[ArrayRef], partition_by: &[String]) -> Result<Self> {
        let mut columns = Vec::new();
        for (name, key) in names.iter().zip(keys) {
            let is_partition = partition_by.contains(name);
            if !has_order(key.data_type()) {
                continue;
            }
            let converter = RowConverter::new(vec![SortField::new(key.data_type().clone())])?;
            let ascending = Some(SortOptions { descending: false, nulls_first: true });
            let values = sort(key, ascending)?;
            let values = values.slice(values.null_count(), values.len() - values.null_count());
            columns.push(Values {
                name: name.clone(),
                kind: key.data_type().clone(),
                is_partition,
                sorted: converter.convert_columns(&[values])?,
                ends: None,
                converter,
                has_null: key.null_count() > 0,
            });
        }
        Ok(Self { columns })
    }

    /// The same for values of one column between ends: ranges in ascending order that lie apart, and null or not.
    pub(crate) fn ranges(name: &str, ends: [ArrayRef; 2], has_null: bool, is_partition: bool) -> Result<Self> {
        let [from, to] = ends;
        let kind = from.data_type().clone();
        if !has_order(&kind) {
            return Ok(Self { columns: Vec::new() });
        }
        let converter = RowConverter::new(vec![SortField::new(kind.clone())])?;
        let (sorted, ends) = (converter.convert_columns(&[from])?, Some(converter.convert_columns(&[to])?));
        let values = Values { name: name.to_owned(), kind, is_partition, converter, sorted, ends, has_null };
        Ok(Self { columns: vec![values] })
    }

    /// For each file of the log, whether it may hold the key of a change.
    pub(crate) fn files(&self, log: &LogDataHandler<'_>) -> Result<Vec<bool>> {
        let mut may = vec![true; log.num_files()];
        let rows = log.row_counts().map(|rows| rows.as_primitive::<UInt64Type>().clone());
        for values in &self.columns {
            let column = Column::from_name(&values.name);
            let (Some(least), Some(greatest)) = (log.min_values(&column), log.max_values(&column)) else { continue };
            let nulls = if values.is_partition { None } else { log.null_counts(&column) };
            let nulls = nulls.and_then(|nulls| nulls.as_primitive_opt::<UInt64Type>().cloned());
            let (Ok(least), Ok(greatest)) = (cast(&least, &values.kind), cast(&greatest, &values.kind)) else {
                continue;
            };
            let greatest = if values.is_partition { greatest } else { widened(&greatest)? };
            values.narrow(&mut may, &Bounds { least, greatest, nulls, rows: rows.clone() })?;
        }
        Ok(may)
    }

    /// The row groups of a file that may hold the key of a change.
    pub(super) fn row_groups(&self, file: &OpenFile) -> Result<Vec<usize>> {
        let (metadata, schema) = (file.metadata(), file.arrow_schema());
        let mut may = vec![true; metadata.num_row_groups()];
        let rows = UInt64Array::from_iter_values(metadata.row_groups().iter().map(|group| group.num_rows() as u64));
        for values in self.columns.iter().filter(|values| !values.is_partition) {
            let parquet = metadata.file_metadata().schema_descr();
            let Ok(statistics) = StatisticsConverter::try_new(&values.name, schema, parquet) else { continue };
            let statistics = statistics.with_missing_null_counts_as_zero(false);
            let groups = || metadata.row_groups().iter();
            let least = cast(&statistics.row_group_mins(groups())?, &values.kind);
            let greatest = cast(&statistics.row_group_maxes(groups())?, &values.kind);
            let (Ok(least), Ok(greatest)) = (least, greatest) else { continue };
            let nulls = Some(statistics.row_group_null_counts(groups())?);
            let bounds = Bounds { least, greatest: widened(&greatest)?, nulls, rows: Some(rows.clone()) };
            values.narrow(&mut may, &bounds)?;
        }
        Ok((0..may.len()).filter(|group| may[*group]).collect())
    }
}

impl Values {
    /// Clears the mark of every container that holds no value of ours.
    fn narrow(&self, may: &mut [bool], bounds: &Bounds) -> Result<()> {
        let least = self.converter.convert_columns(std::slice::from_ref(&bounds.least))?;
        let greatest = self.converter.convert_columns(std::slice::from_ref(&bounds.greatest))?;
        for (container, may) in may.iter_mut().enumerate() {
            let nulls =
                bounds.nulls.as_ref().filter(|nulls| nulls.is_valid(container)).map(|nulls| nulls.value(container));
            let rows = bounds.rows.as_ref().filter(|rows| rows.is_valid(container)).map(|rows| rows.value(container));
            let bounded = bounds.least.is_valid(container) && bounds.greatest.is_valid(container);
            if self.has_null && nulls != Some(0) && !(self.is_partition && bounded) {
                continue;
            }
            let meets = if bounded {
                let from = least.row(container);
                let first = partition_point(self.ends.as_ref().unwrap_or(&self.sorted), |row| row < from);
                first < self.sorted.num_rows() && self.sorted.row(first) <= greatest.row(container)
            } else {
                // Without bounds there may be any value, unless all are null.
                !(self.is_partition || (nulls.is_some() && nulls == rows))
            };
            *may &= meets;
        }
        Ok(())
    }
}

fn partition_point(rows: &Rows, is_before: impl Fn(arrow::row::Row<'_>) -> bool) -> usize {
    let (mut low, mut high) = (0, rows.num_rows());
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(rows.row(middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// True for types whose bounds in files can be trusted and compare as ours do.
pub(crate) fn has_order(kind: &DataType) -> bool {
    match ColumnType::of(kind) {
        None | Some(ColumnType::Double | ColumnType::Float | ColumnType::Binary | ColumnType::Boolean) => false,
        Some(kind) => kind.has_sound_stats(),
    }
}

/// Greatest values that are surely no less than what the file holds.
pub(crate) fn widened(greatest: &ArrayRef) -> Result<ArrayRef> {
    Ok(match greatest.data_type() {
        DataType::Utf8 => {
            let texts = greatest.as_string::<i32>().iter();
            let widened = texts.map(|text| {
                text.map(|text| if text.len() < TEXT_BYTES_CUT { text.to_owned() } else { format!("{text}\u{10FFFF}") })
            });
            std::sync::Arc::new(widened.collect::<StringArray>())
        }
        kind @ DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = cast(greatest, &DataType::Int64)?;
            let micros =
                micros.as_primitive::<Int64Type>().unary::<_, Int64Type>(|at| at.saturating_add(LOG_MOMENT_MICROS));
            cast(&micros, kind)?
        }
        _ => ArrayRef::clone(greatest),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array};

    use super::*;

    fn pruning(key: ArrayRef) -> Pruning {
        Pruning::new(&["key".to_owned()], &[key], &[]).expect("values")
    }

    fn marks(pruning: &Pruning, least: ArrayRef, greatest: ArrayRef, nulls: Option<Vec<Option<u64>>>) -> Vec<bool> {
        let mut may = vec![true; least.len()];
        let rows = Some(UInt64Array::from(vec![10; least.len()]));
        let bounds =
            Bounds { least, greatest: widened(&greatest).expect("bounds"), nulls: nulls.map(Into::into), rows };
        pruning.columns.iter().for_each(|values| values.narrow(&mut may, &bounds).expect("marks"));
        may
    }

    fn numbers(values: Vec<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }

    #[test]
    fn a_container_is_left_out_when_no_value_is_between_its_bounds() {
        let pruning = pruning(numbers(vec![Some(30), Some(10)]));
        let least = numbers(vec![Some(0), Some(10), Some(11), Some(31), None]);
        let greatest = numbers(vec![Some(9), Some(10), Some(29), Some(90), None]);
        assert_eq!(marks(&pruning, least, greatest, None), [false, true, false, false, true]);
    }

    #[test]
    fn a_container_meets_a_range_when_they_share_a_value() {
        let ends = [numbers(vec![Some(10), Some(50)]), numbers(vec![Some(20), Some(60)])];
        let pruning = Pruning::ranges("key", ends, false, false).expect("ranges");
        let least = numbers(vec![Some(0), Some(20), Some(21), Some(12), Some(30), Some(61)]);
        let greatest = numbers(vec![Some(9), Some(30), Some(49), Some(13), Some(90), Some(70)]);
        assert_eq!(marks(&pruning, least, greatest, None), [false, true, false, true, true, false]);
    }

    #[test]
    fn nulls_are_looked_for_where_there_may_be_some() {
        let nulls = Some(vec![Some(0), Some(1), None, Some(10)]);
        let (least, greatest) =
            (numbers(vec![Some(0), Some(0), Some(0), None]), numbers(vec![Some(9), Some(9), Some(9), None]));
        let with_null = pruning(numbers(vec![Some(10), None]));
        assert_eq!(marks(&with_null, least.clone(), greatest.clone(), nulls.clone()), [false, true, true, true]);
        let without = pruning(numbers(vec![Some(10)]));
        assert_eq!(marks(&without, least, greatest, nulls), [false, false, false, false]);
    }

    #[test]
    fn a_cut_text_stands_for_all_that_begin_with_it() {
        let long = "x".repeat(TEXT_BYTES_CUT);
        let key = pruning(Arc::new(StringArray::from(vec![format!("{long}z")])));
        let one = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text.to_owned()])) };
        assert_eq!(marks(&key, one("a"), one(&long), None), [true]);
        assert_eq!(marks(&key, one("a"), one("xx"), None), [false]);
    }

    #[test]
    fn types_without_sound_bounds_leave_nothing_out() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        assert!(pruning(floats).columns.is_empty());
        assert!(!has_order(&DataType::Decimal128(16, 2)));
        assert!(has_order(&DataType::Decimal128(15, 2)));
    }
}
