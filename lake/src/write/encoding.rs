//! How the columns of a data file are encoded, told from its first rows.
//!
//! The library's default tries a dictionary for every column, which hashes every value, and falls back to plain values
//! that carry a length of four bytes each. For text that rarely repeats and numbers that rise or stay the same there
//! are encodings in the format that take less time and less space. Spark (from 3.3), Trino, DuckDB, Polars and Arrow
//! read them. What the first rows say is a guess about the others: a wrong one costs space, never a value.
//!
//! `DELTA_LENGTH_BYTE_ARRAY` is not used: Spark before 3.4 refuses it in a column of its own (SPARK-40128), and then read
//! wrong values from it until 2025 (SPARK-52240).
//!
//! Encodings: <https://parquet.apache.org/docs/file-format/data-pages/encodings/>.

use std::collections::HashSet;
use std::hash::Hash;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use arrow::datatypes::{
    DECIMAL64_MAX_PRECISION, DataType, Decimal128Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use super::Statistics;
use crate::columns;

/// Rows looked at, at most.
const SAMPLE_ROWS: usize = 4096;
/// Fewer rows say nothing about those that follow.
const SAMPLE_ROWS_MIN: usize = 64;

/// How one column is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A dictionary of the distinct values, and for values beyond it what the format's first version has.
    Dictionary,
    /// Numbers as differences.
    Differences,
    /// Text as what it does not share with the text before, lengths apart.
    Suffixes,
}

/// How one column is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice {
    layout: Layout,
    /// False when compression would take time and save little.
    compress: bool,
}

/// The properties of a data file that begins with these rows.
pub(super) fn properties(first: &RecordBatch, statistics: Statistics) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("medallion ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY);
    for (field, column) in first.schema_ref().fields().iter().zip(first.columns()) {
        builder = apply(builder, field.name(), choice(column));
        let is_raw_text = field.data_type() == &DataType::Utf8 && !columns::is_technical(field.name());
        if statistics == Statistics::NoRawText && is_raw_text {
            let column = ColumnPath::new(vec![field.name().clone()]);
            builder = builder.set_column_statistics_enabled(column, EnabledStatistics::None);
        }
    }
    builder.build()
}

fn apply(mut builder: WriterPropertiesBuilder, name: &str, choice: Choice) -> WriterPropertiesBuilder {
    let column = ColumnPath::new(vec![name.to_owned()]);
    if !choice.compress {
        builder = builder.set_column_compression(column.clone(), Compression::UNCOMPRESSED);
    }
    let encoding = match choice.layout {
        Layout::Dictionary => return builder,
        Layout::Differences => Encoding::DELTA_BINARY_PACKED,
        Layout::Suffixes => Encoding::DELTA_BYTE_ARRAY,
    };
    builder.set_column_dictionary_enabled(column.clone(), false).set_column_encoding(column, encoding)
}

fn choice(column: &ArrayRef) -> Choice {
    let column = column.slice(0, column.len().min(SAMPLE_ROWS));
    let by_default = Choice { layout: Layout::Dictionary, compress: true };
    if column.len() - column.null_count() < SAMPLE_ROWS_MIN {
        return by_default;
    }
    match column.data_type() {
        DataType::Utf8 => {
            let values: Vec<&str> = column.as_string::<i32>().iter().flatten().collect();
            of_text(&values)
        }
        DataType::Int64 => of_numbers(column.as_primitive::<Int64Type>()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of_numbers(column.as_primitive::<TimestampMicrosecondType>()),
        // Of so few digits they are whole numbers in the file.
        DataType::Decimal128(digits, _) if *digits <= DECIMAL64_MAX_PRECISION => {
            of_numbers(column.as_primitive::<Decimal128Type>())
        }
        _ => by_default,
    }
}

fn of_numbers<T: ArrowPrimitiveType<Native: Eq + Hash>>(column: &PrimitiveArray<T>) -> Choice {
    let rows = column.len() - column.null_count();
    let distinct = column.iter().flatten().collect::<HashSet<_>>().len();
    let layout = if distinct > 1 && distinct * 8 <= rows { Layout::Dictionary } else { Layout::Differences };
    Choice { layout, compress: true }
}

fn of_text(values: &[&str]) -> Choice {
    let distinct = values.iter().collect::<HashSet<_>>().len();
    if distinct * 2 <= values.len() {
        return Choice { layout: Layout::Dictionary, compress: true };
    }
    let suffixes = values.windows(2).map(|pair| &pair[1].as_bytes()[shared(pair[0], pair[1])..]);
    Choice { layout: Layout::Suffixes, compress: compresses(suffixes) }
}

fn shared(before: &str, value: &str) -> usize {
    before.bytes().zip(value.bytes()).take_while(|(before, value)| before == value).count()
}

/// True when compression saves at least a quarter.
fn compresses<'a>(values: impl Iterator<Item = &'a [u8]>) -> bool {
    let bytes = values.fold(Vec::new(), |mut bytes, value| {
        bytes.extend_from_slice(value);
        bytes
    });
    let compressed = snap::raw::Encoder::new().compress_vec(&bytes);
    compressed.map_or(true, |compressed| compressed.len() * 4 <= bytes.len() * 3)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Int64Array, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    fn texts(of: impl Fn(u64) -> String) -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..2_000).map(of)))
    }

    /// Digits without an order.
    fn scattered(row: u64) -> u64 {
        (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn batch() -> RecordBatch {
        let numbers = |of: fn(i64) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..2_000).map(of))) };
        let money = |digits: u8| -> ArrayRef {
            let cents =
                Decimal128Array::from_iter_values((0..2_000).map(|row| i128::from(scattered(row) % 10_000_000)));
            Arc::new(cents.with_precision_and_scale(digits, 2).expect("digits"))
        };
        let columns = [
            ("small", money(9)),
            ("money", money(18)),
            ("large", money(19)),
            ("one", numbers(|_| 7)),
            ("rising", numbers(|row| row * 3)),
            ("few", numbers(|row| row % 5)),
            ("status", texts(|row| ["new", "paid"][row as usize % 2].to_owned())),
            ("id", texts(|row| format!("ORDER-{row:08}"))),
            ("amount", texts(|row| scattered(row).to_string())),
            ("note", texts(|row| format!("{} and again and again and again", scattered(row)))),
        ];
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    #[test]
    fn every_column_gets_what_suits_its_values() {
        let batch = batch();
        let chosen = |name: &str| choice(batch.column_by_name(name).expect("a column"));
        let expected = [
            ("small", Layout::Differences, true),
            ("money", Layout::Differences, true),
            ("large", Layout::Dictionary, true),
            ("one", Layout::Differences, true),
            ("rising", Layout::Differences, true),
            ("few", Layout::Dictionary, true),
            ("status", Layout::Dictionary, true),
            ("id", Layout::Suffixes, true),
            ("amount", Layout::Suffixes, false),
            ("note", Layout::Suffixes, true),
        ];
        for (name, layout, compress) in expected {
            assert_eq!(chosen(name), Choice { layout, compress }, "{name}");
        }
    }

    #[test]
    fn a_few_rows_decide_nothing() {
        let first = batch().slice(0, SAMPLE_ROWS_MIN - 1);
        assert_eq!(choice(first.column(8)), Choice { layout: Layout::Dictionary, compress: true });
    }

    #[test]
    fn raw_text_has_no_statistics() {
        let column = |name: &str| ColumnPath::new(vec![name.to_owned()]);
        let paths: ArrayRef = Arc::new(StringArray::from(vec!["a.csv"; 2_000]));
        let mut columns = vec![(columns::FILE_PATH, paths)];
        let batch = batch();
        columns.push(("id", Arc::clone(batch.column_by_name("id").expect("a column"))));
        columns.push(("rising", Arc::clone(batch.column_by_name("rising").expect("a column"))));
        let batch = RecordBatch::try_from_iter(columns).expect("a batch");
        let raw = properties(&batch, Statistics::NoRawText);
        assert_eq!(raw.statistics_enabled(&column("id")), EnabledStatistics::None);
        for name in ["rising", columns::FILE_PATH] {
            assert_eq!(raw.statistics_enabled(&column(name)), EnabledStatistics::Page, "{name}");
        }
        let all = properties(&batch, Statistics::All);
        assert_eq!(all.statistics_enabled(&column("id")), EnabledStatistics::Page);
    }

    #[test]
    fn values_come_back_whatever_the_first_rows_were() {
        let (batch, properties) = (batch(), properties(&batch(), Statistics::All));
        let turned = RecordBatch::try_new(batch.schema(), {
            let mut columns = batch.columns().to_vec();
            columns.swap(3, 4);
            columns.swap(6, 8);
            columns
        });
        let turned = turned.expect("a batch");
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).expect("a writer");
        writer.write(&batch).expect("written");
        writer.write(&turned).expect("written");
        writer.close().expect("written");
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).expect("a file");
        let read: Vec<_> =
            reader.with_batch_size(2_000).build().expect("a reader").map(|rows| rows.expect("rows")).collect();
        assert_eq!(read, [batch, turned]);
    }
}
