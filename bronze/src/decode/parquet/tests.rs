//! What a Parquet file gives: names, types and values.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array,
    Int32Array, Int64Array, LargeStringArray, ListArray, MapBuilder, StringArray, StringBuilder, StructArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    UInt64Array,
};
use arrow::datatypes::{Int32Type, i256};
use arrow::util::display::array_value_to_string;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use parquet::arrow::ArrowWriter;
use parquet::data_type::{Int96, Int96Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;
use lake::ErrorKind;

fn write(columns: Vec<(&str, ArrayRef)>) -> File {
    let (fields, arrays): (Vec<_>, Vec<_>) =
        columns.into_iter().map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array)).unzip();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("a batch");
    let file = tempfile::tempfile().expect("a file");
    let mut writer = ArrowWriter::try_new(file.try_clone().expect("a file"), batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("a footer");
    file
}

fn read(file: File) -> Result<Chunk> {
    let mut decoder = ParquetDecoder::local(file, DuplicateColumns::Fail)?;
    let chunk = decoder.next_chunk()?.expect("rows");
    assert_eq!(decoder.counts().records as usize, chunk.columns.num_rows());
    assert!(decoder.next_chunk()?.is_none());
    Ok(chunk)
}

/// Type and values of the only column.
fn one(column: ArrayRef) -> (String, Vec<String>) {
    let chunk = read(write(vec![("c", column)])).expect("a chunk");
    shown(chunk.columns.column(0))
}

fn shown(column: &ArrayRef) -> (String, Vec<String>) {
    let value =
        |row| if column.is_null(row) { "\\N".into() } else { array_value_to_string(column, row).expect("text") };
    (column.data_type().to_string(), (0..column.len()).map(value).collect())
}

#[track_caller]
fn check(column: impl Array + 'static, kind: &str, values: &[&str]) {
    assert_eq!(one(Arc::new(column)), (kind.to_owned(), values.iter().map(|value| (*value).to_owned()).collect()));
}

#[test]
fn every_kind_is_read_in_its_widest_type() {
    check(Int32Array::from(vec![Some(-7), None]), "Int64", &["-7", "\\N"]);
    check(Float32Array::from(vec![0.5]), "Float64", &["0.5"]);
    check(BooleanArray::from(vec![true]), "Boolean", &["true"]);
    check(LargeStringArray::from(vec!["x"]), "Utf8", &["x"]);
    check(Date32Array::from(vec![19844]), "Date32", &["2024-05-01"]);
    check(Time64MicrosecondArray::from(vec![36_000_000_001]), "Utf8", &["10:00:00.000001"]);
    let money = Decimal128Array::from(vec![1050]).with_precision_and_scale(10, 2).expect("a decimal");
    check(money, "Decimal128(38, 2)", &["10.50"]);
}

#[test]
fn times_become_microseconds_utc_and_nanoseconds_are_floored() {
    let utc = "Timestamp(µs, \"UTC\")";
    check(
        TimestampNanosecondArray::from(vec![1_999, -1]),
        utc,
        &["1970-01-01T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z"],
    );
    check(
        TimestampMillisecondArray::from(vec![1_500]).with_timezone("Europe/Lisbon"),
        utc,
        &["1970-01-01T00:00:01.500Z"],
    );
}

#[test]
fn nanoseconds_beyond_microseconds_are_kept_beside_the_column() {
    let chunk =
        read(write(vec![("at", Arc::new(TimestampNanosecondArray::from(vec![Some(1_999), Some(2_000), None])))]))
            .expect("a file");
    let rescued = chunk.rescued.expect("rescued");
    assert_eq!(rescued, [Some("{\"at\":\"1970-01-01T00:00:00.000001999Z\"}".to_owned()), None, None]);
    assert_eq!(chunk.columns.column(0).null_count(), 1, "the column has the floored time");
}

#[test]
fn nested_values_are_json_text_with_every_digit() {
    let inner = Decimal128Array::from(vec![Some(900_719_925_474_099_301), None])
        .with_precision_and_scale(20, 2)
        .expect("a decimal");
    let members: Vec<(Arc<Field>, ArrayRef)> = vec![
        (Arc::new(Field::new("id", DataType::Int64, true)), Arc::new(Int64Array::from(vec![9_007_199_254_740_993, 2]))),
        (Arc::new(Field::new("sum", inner.data_type().clone(), true)), Arc::new(inner)),
        (Arc::new(Field::new("text", DataType::Utf8, true)), Arc::new(StringArray::from(vec!["a \"b\"\n", "é"]))),
    ];
    check(
        StructArray::from(members),
        "Utf8",
        &[
            "{\"id\":9007199254740993,\"sum\":9007199254740993.01,\"text\":\"a \\\"b\\\"\\n\"}",
            "{\"id\":2,\"sum\":null,\"text\":\"é\"}",
        ],
    );
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    check(list, "Utf8", &["[1,null]", "\\N"]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    map.keys().append_value("k");
    map.values().append_value("v");
    map.append(true).expect("an entry");
    check(map.finish(), "Utf8", &["{\"k\":\"v\"}"]);
}

#[test]
fn what_the_widest_type_cannot_hold_is_rescued() {
    let large = Decimal256Array::from(vec![i256::from_i128(5), i256::from_i128(i128::MAX)]);
    let large = large.with_precision_and_scale(50, 0).expect("a decimal");
    let chunk =
        read(write(vec![("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))), ("d", Arc::new(large))]))
            .expect("a chunk");
    assert_eq!(shown(chunk.columns.column(0)), ("Int64".into(), vec!["\\N".into(), "\\N".into()]));
    assert_eq!(shown(chunk.columns.column(1)).1, ["5", "\\N"]);
    let rescued = chunk.rescued.expect("rescued");
    assert_eq!(rescued[0].as_deref(), Some("{\"u\":\"18446744073709551615\"}"));
    assert_eq!(rescued[1].as_deref(), Some("{\"d\":\"170141183460469231731687303715884105727\"}"));
}

#[test]
fn days_and_moments_out_of_four_digit_years_are_rescued() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX, i32::MIN + 1, 2_932_897, -719_162]));
    let moments: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![
        9_223_372_036_825_200_000,
        -62_135_596_800_000_001,
        253_402_300_800_000_000,
        253_402_300_799_999_999,
    ]));
    let millis: ArrayRef =
        Arc::new(TimestampMillisecondArray::from(vec![i64::MAX, i64::MIN, 253_402_300_800_000, -62_135_596_800_000]));
    let chunk = read(write(vec![("d", days), ("t", moments), ("m", millis)])).expect("a chunk");
    assert_eq!(shown(chunk.columns.column(0)).1, ["\\N", "\\N", "\\N", "0001-01-01"]);
    assert_eq!(shown(chunk.columns.column(1)).1, ["\\N", "\\N", "\\N", "9999-12-31T23:59:59.999999Z"]);
    assert_eq!(shown(chunk.columns.column(2)).1, ["\\N", "\\N", "\\N", "0001-01-01T00:00:00Z"]);
    let rescued = chunk.rescued.expect("rescued");
    let text = "{\"d\":\"2147483647 days\",\"m\":\"9223372036854775807 ms\",\"t\":\"9223372036825200000 µs\"}";
    assert_eq!((rescued[0].as_deref(), &rescued[3]), (Some(text), &None));
    let year_ten_thousand = rescued[2].as_deref().expect("rescued");
    assert!(year_ten_thousand.contains("\"d\":\"+10000-01-01\""), "{year_ten_thousand}");
}

#[test]
fn floats_keep_their_digits_and_nested_binaries_say_that_they_are_bytes() {
    check(Float32Array::from(vec![19.99, 0.1, 1e10, -2.5]), "Float64", &["19.99", "0.1", "10000000000.0", "-2.5"]);
    let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[0, 0xff][..]]));
    let far: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX]));
    let members = vec![
        (Arc::new(Field::new("b", DataType::Binary, true)), bytes),
        (Arc::new(Field::new("d", DataType::Date32, true)), far),
    ];
    check(StructArray::from(members), "Utf8", &["{\"b\":\"\\\\x00ff\",\"d\":\"2147483647 days\"}"]);
}

#[test]
fn old_int96_times_far_from_now_are_read() {
    let schema = parse_message_type("message m { optional int96 t; }").expect("a schema");
    let file = tempfile::tempfile().expect("a file");
    let mut writer = SerializedFileWriter::new(file.try_clone().expect("a file"), Arc::new(schema), Default::default())
        .expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let mut column = group.next_column().expect("columns").expect("a column");
    let value = |julian_day: u32, nanos: u64| {
        let mut value = Int96::new();
        value.set_data(nanos as u32, (nanos >> 32) as u32, julian_day);
        value
    };
    // Julian day 2 440 588 is 1970-01-01; 5 373 484 is 9999-12-31.
    let values = [value(2_440_588, 1_999), value(5_373_484, 86_399_000_000_999)];
    column.typed::<Int96Type>().write_batch(&values, Some(&[1, 1]), None).expect("values");
    column.close().expect("a column");
    group.close().expect("a group");
    writer.close().expect("a footer");
    let chunk = read(file).expect("a chunk");
    let times = ["1970-01-01T00:00:00.000001Z", "9999-12-31T23:59:59Z"].map(str::to_owned).to_vec();
    assert_eq!(shown(chunk.columns.column(0)), ("Timestamp(µs, \"UTC\")".into(), times));
}

#[test]
fn columns_alike_are_refused_or_renamed() {
    let columns = || -> Vec<(&str, ArrayRef)> {
        let column = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
        vec![("order_id", column()), ("value", column()), ("value", column())]
    };
    let error = read(write(columns())).expect_err("alike");
    assert_eq!(error.kind(), ErrorKind::File);
    assert_eq!(error.to_string(), "columns 2 and 3 are both named `value`");
    let mut decoder = ParquetDecoder::local(write(columns()), DuplicateColumns::Rename).expect("a file");
    let chunk = decoder.next_chunk().expect("rows").expect("rows");
    assert_eq!(chunk.columns.schema().field(2).name(), "value_2");
}

#[test]
fn a_store_gives_what_the_disk_gives_and_tells_its_own_failures() {
    use std::io::{Read, Seek};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let mut file = write(vec![("c", Arc::new(Int32Array::from((0..20_000).collect::<Vec<_>>())))]);
    let mut bytes = Vec::new();
    file.rewind().expect("a file");
    file.read_to_end(&mut bytes).expect("bytes");
    let size = bytes.len() as u64;
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    runtime.block_on(store.put(&Path::from("f.parquet"), bytes.into())).expect("stored");
    let open = |path: &str| {
        let handle = runtime.handle().clone();
        ParquetDecoder::remote(Arc::clone(&store), Path::from(path), size, handle, DuplicateColumns::Fail)
    };
    let mut decoder = open("f.parquet").expect("a file");
    let mut rows = 0;
    while let Some(chunk) = decoder.next_chunk().expect("rows") {
        assert_eq!(chunk.row_numbers[0], rows + 1);
        assert!(chunk.columns.column(0).as_any().is::<Int64Array>());
        rows += chunk.columns.num_rows() as i64;
    }
    assert_eq!((rows, decoder.counts().records), (20_000, 20_000));
    assert_eq!(open("gone.parquet").err().expect("not there").kind(), ErrorKind::Store);
}

#[test]
fn a_broken_file_is_refused() {
    use std::io::Write;
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"order_id,value\n1,10\n").expect("bytes");
    let error = ParquetDecoder::local(file, DuplicateColumns::Fail).err().expect("not Parquet");
    assert_eq!(error.kind(), ErrorKind::File);
    let whole = write(vec![("c", Arc::new(StringArray::from(vec!["x"; 1000])))]);
    whole.set_len(whole.metadata().expect("a size").len() - 5).expect("cut");
    assert_eq!(read(whole).expect_err("cut").kind(), ErrorKind::File);
}

#[test]
fn large_rows_come_in_small_chunks() {
    let rows_of = |length: usize| {
        let texts: Vec<String> = ["a", "b"].map(|text| text.repeat(length)).to_vec();
        let file = write(vec![("c", Arc::new(StringArray::from(texts)))]);
        rows_at_once(&ArrowReaderMetadata::load(&file, reader_options()).expect("a footer"))
    };
    assert_eq!(rows_of(10), CHUNK_ROWS_MAX);
    assert!((1..=64).contains(&rows_of(1024 * 1024)), "{}", rows_of(1024 * 1024));
}

#[test]
fn a_column_nested_beyond_the_limit_is_refused() {
    let nested = |levels: usize| (0..levels).fold(DataType::Int64, |kind, _| DataType::new_list(kind, true));
    let schema = |levels| Schema::new(vec![Field::new("c", nested(levels), true)]);
    assert!(names(&schema(100), DuplicateColumns::Fail).is_ok());
    let error = names(&schema(101), DuplicateColumns::Fail).expect_err("too deep").to_string();
    assert_eq!(error, "the column `c` is nested deeper than 100 levels, the limit");
}
