//! What an Avro file gives, and that no cut or damaged one passes for a whole one.

use std::io::{Cursor as Memory, Write};

use arrow::array::Array;
use arrow::util::display::array_value_to_string;

use super::super::avro_decoder;
use super::super::bytes::Compression;
use super::*;

const MARK: [u8; 16] = *b"0123456789abcdef";
pub(in crate::decode) const ORDERS: &str = r#"{"type":"record","name":"o","fields":[
    {"name":"id","type":"long"},{"name":"status","type":["null","string"]},{"name":"tags","type":{"type":"array","items":"string"}}]}"#;

/// The bytes of Avro, written by hand.
#[derive(Default, Clone)]
pub(in crate::decode) struct Out(pub(in crate::decode) Vec<u8>);

impl Out {
    pub(in crate::decode) fn long(mut self, value: i64) -> Self {
        let mut rest = ((value << 1) ^ (value >> 63)) as u64;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
        self
    }

    pub(in crate::decode) fn bytes(mut self, bytes: &[u8]) -> Self {
        self = self.long(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

fn header(schema: &str, codec: &str) -> Vec<u8> {
    let out = Out::default().raw(b"Obj\x01").long(2).bytes(b"avro.schema").bytes(schema.as_bytes());
    out.bytes(b"avro.codec").bytes(codec.as_bytes()).long(0).raw(&MARK).0
}

fn block(records: i64, data: &[u8]) -> Vec<u8> {
    Out::default().long(records).bytes(data).raw(&MARK).0
}

/// A file of blocks without compression.
pub(in crate::decode) fn file(schema: &str, blocks: &[(i64, Vec<u8>)]) -> Vec<u8> {
    let blocks = blocks.iter().flat_map(|(records, data)| block(*records, data));
    header(schema, "null").into_iter().chain(blocks).collect()
}

/// One record of [`ORDERS`].
pub(in crate::decode) fn order(id: i64, status: Option<&str>) -> Vec<u8> {
    let out = Out::default().long(id);
    let out = status.map_or_else(|| out.clone().long(0), |status| out.clone().long(1).bytes(status.as_bytes()));
    out.long(2).bytes(b"a").bytes(b"\"b\"").long(0).0
}

/// Types, rows (`\N` is null), rescued data and counts of a file.
#[derive(Debug, PartialEq, Default)]
struct Read {
    types: Vec<String>,
    rows: Vec<Vec<String>>,
    rescued: Vec<Option<String>>,
    counts: Counts,
}

fn read(bytes: &[u8]) -> Result<Read> {
    let mut decoder = avro_decoder(Compression::Auto, DuplicateColumns::Fail, Memory::new(bytes.to_vec()))?;
    let mut read = Read::default();
    while let Some(chunk) = decoder.next_chunk()? {
        let columns = chunk.columns.columns();
        read.types = columns.iter().map(|column| column.data_type().to_string()).collect();
        for row in 0..chunk.columns.num_rows() {
            let cell = |column: &arrow::array::ArrayRef| match column.is_null(row) {
                true => "\\N".to_owned(),
                false => array_value_to_string(column, row).expect("text"),
            };
            read.rows.push(columns.iter().map(cell).collect());
            read.rescued.push(chunk.rescued.as_ref().and_then(|rescued| rescued[row].clone()));
        }
    }
    read.counts = decoder.counts();
    assert_eq!(read.counts.records as usize, read.rows.len(), "every record is somewhere");
    Ok(read)
}

fn refusal(bytes: &[u8]) -> String {
    let error = read(bytes).expect_err("refused");
    assert_eq!(error.kind(), lake::ErrorKind::File);
    error.to_string()
}

/// The only column of a file with one field of a type.
#[track_caller]
fn check(kind: &str, data: Vec<u8>, column: &str, value: &str) {
    let schema = format!(r#"{{"type":"record","name":"r","fields":[{{"name":"c","type":{kind}}}]}}"#);
    let read = read(&file(&schema, &[(1, data)])).expect("a file");
    assert_eq!((read.types[0].as_str(), read.rows[0][0].as_str()), (column, value), "{kind}");
}

#[test]
fn records_of_all_blocks_are_rows() {
    let blocks = [(2, [order(1, Some("new")), order(2, None)].concat()), (0, Vec::new()), (1, order(3, Some("é")))];
    let read = read(&file(ORDERS, &blocks)).expect("a file");
    assert_eq!(read.types, ["Int64", "Utf8", "Utf8"]);
    let tags = "[\"a\",\"\\\"b\\\"\"]";
    assert_eq!(read.rows, [["1", "new", tags], ["2", "\\N", tags], ["3", "é", tags]]);
    assert_eq!(super::tests::read(&file(ORDERS, &[])).expect("no records").counts, Counts::default());
    assert_eq!(super::tests::read(&[]).expect("no bytes").counts, Counts::default());
}

#[test]
fn every_kind_is_read_in_its_widest_type() {
    let out = Out::default;
    check("\"boolean\"", out().raw(&[1]).0, "Boolean", "true");
    check("\"int\"", out().long(-7).0, "Int64", "-7");
    check("\"long\"", out().long(i64::MIN).0, "Int64", "-9223372036854775808");
    check("\"float\"", out().raw(&0.5_f32.to_le_bytes()).0, "Float64", "0.5");
    check("\"float\"", out().raw(&19.99_f32.to_le_bytes()).0, "Float64", "19.99");
    check("\"double\"", out().raw(&1e300_f64.to_le_bytes()).0, "Float64", "1e300");
    check("\"bytes\"", out().bytes(&[1, 255]).0, "Binary", "01ff");
    check(r#"{"type":"fixed","name":"f","size":2}"#, vec![1, 255], "Binary", "01ff");
    check(r#"{"type":"enum","name":"e","symbols":["A","B"]}"#, out().long(1).0, "Utf8", "B");
    check("\"null\"", Vec::new(), "Utf8", "\\N");
    check(r#"["string","null"]"#, out().long(1).0, "Utf8", "\\N");
}

#[test]
fn logical_types_are_what_they_mean() {
    let out = Out::default;
    let logical = |kind: &str, name: &str| format!(r#"{{"type":"{kind}","logicalType":"{name}"}}"#);
    let utc = "Timestamp(µs, \"UTC\")";
    check(&logical("int", "date"), out().long(19_844).0, "Date32", "2024-05-01");
    check(&logical("int", "time-millis"), out().long(36_000_001).0, "Utf8", "10:00:00.001");
    check(&logical("long", "time-micros"), out().long(36_000_000_001).0, "Utf8", "10:00:00.000001");
    check(&logical("long", "timestamp-millis"), out().long(1_500).0, utc, "1970-01-01T00:00:01.500Z");
    check(&logical("long", "timestamp-micros"), out().long(-1).0, utc, "1969-12-31T23:59:59.999999Z");
    check(&logical("long", "timestamp-nanos"), out().long(-1).0, utc, "1969-12-31T23:59:59.999999Z");
    check(&logical("long", "local-timestamp-millis"), out().long(0).0, utc, "1970-01-01T00:00:00Z");
    check(&logical("string", "uuid"), out().bytes(b"not checked").0, "Utf8", "not checked");
    let fixed =
        |name: &str, size: usize| format!(r#"{{"type":"fixed","name":"f","size":{size},"logicalType":"{name}"}}"#);
    check(&fixed("uuid", 16), (0..16).collect(), "Utf8", "00010203-0405-0607-0809-0a0b0c0d0e0f");
    let duration = [1_u32, 2, 3].map(u32::to_le_bytes).concat();
    check(&fixed("duration", 12), duration, "Utf8", "{\"months\":1,\"days\":2,\"milliseconds\":3}");
    let decimal = r#"{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}"#;
    check(decimal, out().bytes(&[0x03, 0xed]).0, "Decimal128(38, 2)", "10.05");
    let fixed = r#"{"type":"fixed","name":"f","size":3,"logicalType":"decimal","precision":5,"scale":2}"#;
    check(fixed, vec![0xff, 0xff, 0x9c], "Decimal128(38, 2)", "-1.00");
}

#[test]
fn unions_of_several_types_are_text_and_nested_values_json() {
    let out = Out::default;
    let union = r#"["null","long","string",{"type":"map","values":"double"}]"#;
    check(union, out().long(1).long(5).0, "Utf8", "5");
    check(union, out().long(2).bytes(b"x \"y\"").0, "Utf8", "x \"y\"");
    check(union, out().long(0).0, "Utf8", "\\N");
    let map = out().long(3).long(-1).long(10).bytes(b"k").raw(&2.5_f64.to_le_bytes()).long(0);
    check(union, map.0, "Utf8", "{\"k\":2.5}");
    let nested = r#"{"type":"record","name":"v","fields":[{"name":"n","type":"long"},
        {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"raw","type":"bytes"},
        {"name":"sum","type":{"type":"bytes","logicalType":"decimal","precision":50,"scale":1}},
        {"name":"f","type":"float"},{"name":"again","type":["null","v"]}]}"#;
    let inner = || out().long(9_007_199_254_740_993).long(1_500).bytes(&[0xab]).bytes(&[5]).raw(&0.1_f32.to_le_bytes());
    check(
        nested,
        inner().long(1).raw(&inner().long(0).0).0,
        "Utf8",
        "{\"n\":9007199254740993,\"at\":\"1970-01-01T00:00:01.500Z\",\"raw\":\"\\\\xab\",\"sum\":0.5,\"f\":0.1,\"again\":\
         {\"n\":9007199254740993,\"at\":\"1970-01-01T00:00:01.500Z\",\"raw\":\"\\\\xab\",\"sum\":0.5,\"f\":0.1,\"again\":null}}",
    );
}

#[test]
fn nanoseconds_beyond_microseconds_are_kept_beside_the_column() {
    let field = r#"{"name":"c","type":{"type":"long","logicalType":"timestamp-nanos"}}"#;
    let schema = format!(r#"{{"type":"record","name":"r","fields":[{field}]}}"#);
    let data = [Out::default().long(1_999).0, Out::default().long(2_000).0].concat();
    let read = read(&file(&schema, &[(2, data)])).expect("a file");
    assert_eq!(read.rows, [["1970-01-01T00:00:00.000001Z"], ["1970-01-01T00:00:00.000002Z"]]);
    assert_eq!(read.rescued, [Some("{\"c\":\"1970-01-01T00:00:00.000001999Z\"}".to_owned()), None]);
}

#[test]
fn days_and_moments_out_of_four_digit_years_are_rescued() {
    let schema = r#"{"type":"record","name":"r","fields":[
        {"name":"d","type":{"type":"int","logicalType":"date"}},
        {"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}}]}"#;
    let row = |days: i64, micros: i64| Out::default().long(days).long(micros).0;
    let rows = [
        row(i64::from(i32::MAX), 9_223_372_036_825_200_000),
        row(-719_163, -62_135_596_800_000_001),
        row(2_932_896, 253_402_300_799_999_999),
    ];
    let read = read(&file(schema, &[(3, rows.concat())])).expect("a file");
    assert_eq!(read.rows, [["\\N", "\\N"], ["\\N", "\\N"], ["9999-12-31", "9999-12-31T23:59:59.999999Z"]]);
    let rescued: Vec<Option<&str>> = read.rescued.iter().map(Option::as_deref).collect();
    let first = "{\"d\":\"2147483647 days\",\"t\":\"9223372036825200000 µs\"}";
    let second = "{\"d\":\"-719163 days\",\"t\":\"-62135596800000001 µs\"}";
    assert_eq!(rescued, [Some(first), Some(second), None]);
}

#[test]
fn what_the_widest_type_cannot_hold_is_rescued() {
    let schema = r#"{"type":"record","name":"r","fields":[
        {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":60,"scale":2}},
        {"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}}]}"#;
    let data = Out::default().bytes(&[1; 20]).long(i64::MAX).0;
    let read = read(&file(schema, &[(1, data)])).expect("a file");
    assert_eq!(read.rows, [["\\N", "\\N"]]);
    // 0x0101…01 of twenty bytes is (256^20 - 1) / 255.
    let wanted = "{\"d\":\"57313789699251094831517052263383647829644413.45\",\"t\":\"9223372036854775807 ms\"}";
    assert_eq!(read.rescued[0].as_deref(), Some(wanted));
}

#[test]
fn null_records_are_skipped_and_counted() {
    let schema = format!("[\"null\",{ORDERS}]");
    let some = Out::default().long(1).raw(&order(1, None)).0;
    let read = read(&file(&schema, &[(2, [vec![0], some].concat())])).expect("a file");
    assert_eq!(read.counts, Counts { records: 1, skipped: 1 });
    let empty = r#"{"type":"record","name":"r","fields":[{"name":"c","type":"null"}]}"#;
    assert_eq!(super::tests::read(&file(empty, &[(3, Vec::new())])).expect("a file").counts.records, 3);
    assert!(refusal(&file(empty, &[(i64::MAX, Vec::new())])).contains("take no bytes"));
}

#[test]
fn every_codec_is_read() {
    let data: Vec<u8> = (0..500).flat_map(|id| order(id, Some("shipped"))).collect();
    let deflated = || {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&data).expect("memory");
        encoder.finish().expect("memory")
    };
    let snappy = || {
        let mut crc = flate2::Crc::new();
        crc.update(&data);
        let packed = snap::raw::Encoder::new().compress_vec(&data).expect("memory");
        [packed, crc.sum().to_be_bytes().to_vec()].concat()
    };
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 3);
    xz.write_all(&data).expect("memory");
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
    bzip2.write_all(&data).expect("memory");
    let whole = read(&file(ORDERS, &[(500, data.clone())])).expect("a file");
    for (codec, packed) in [
        ("deflate", deflated()),
        ("snappy", snappy()),
        ("zstandard", zstd::encode_all(data.as_slice(), 3).expect("memory")),
        ("bzip2", bzip2.finish().expect("memory")),
        ("xz", xz.finish().expect("memory")),
    ] {
        let bytes = [header(ORDERS, codec), block(500, &packed)].concat();
        assert_eq!(read(&bytes).unwrap_or_else(|error| panic!("{codec}: {error}")), whole, "{codec}");
        let short = [header(ORDERS, codec), block(500, &packed[..packed.len() - 5])].concat();
        assert!(refusal(&short).contains("cannot be decompressed"), "{codec}");
    }
    assert!(refusal(&header(ORDERS, "lzo")).contains("`lzo`"));
    let outside = zstd::encode_all(file(ORDERS, &[(500, data)]).as_slice(), 3).expect("memory");
    assert_eq!(read(&outside).expect("compressed as a whole"), whole);
}

#[test]
fn a_cut_or_damaged_file_is_refused_wherever_it_is() {
    let blocks = [(2, [order(1, Some("new")), order(2, None)].concat()), (1, order(3, Some("x")))];
    let whole = file(ORDERS, &blocks);
    let ends = [header(ORDERS, "null").len(), header(ORDERS, "null").len() + block(2, &blocks[0].1).len()];
    for end in 1..whole.len() {
        match read(&whole[..end]) {
            Ok(read) => assert!(ends.contains(&end), "cut at {end}: {read:?}"),
            Err(error) => assert_eq!(error.kind(), lake::ErrorKind::File, "cut at {end}"),
        }
    }
    assert!(refusal(&whole[..whole.len() - 3]).contains("ends inside a block"));
    let mut marked = whole.clone();
    *marked.last_mut().expect("a mark") ^= 1;
    assert!(refusal(&marked).contains("block 2 of the file is damaged: the mark"));
    assert!(refusal(&file(ORDERS, &[(1, [order(1, None), vec![0]].concat())])).contains("1 bytes are left"));
    assert!(refusal(&file(ORDERS, &[(2, order(1, None))])).contains("record 2 (block 1) cannot be read"));
    assert!(refusal(&file(ORDERS, &[(1, Out::default().long(1).long(7).0)])).contains("no branch 7"));
    assert!(refusal(&file(ORDERS, &[(1, Out::default().long(1).long(1).bytes(b"\xff").long(0).0)])).contains("UTF-8"));
    assert!(refusal(b"id,status\n1,new\n").contains("not an Avro object container file"));
}

#[test]
fn limits_stop_what_would_not_end() {
    let list = r#"{"type":"record","name":"r","fields":[{"name":"c","type":{"type":"array","items":"null"}}]}"#;
    let endless = Out::default().long(i64::MAX).long(0).0;
    assert!(refusal(&file(list, &[(1, endless)])).contains("larger than 16 MiB as text"));
    let node = r#"{"type":"record","name":"n","fields":[{"name":"next","type":["null","n"]}]}"#;
    assert!(refusal(&file(node, &[(1, [vec![2; 200], vec![0]].concat())])).contains("nested deeper than 100"));
    let huge = Out::default().raw(&header(ORDERS, "null")).long(1).long(1 << 40).0;
    assert!(refusal(&huge).contains("larger than 128 MiB"));
    let bomb = zstd::encode_all(vec![0_u8; 200 << 20].as_slice(), 3).expect("memory");
    assert!(refusal(&[header(ORDERS, "zstandard"), block(1, &bomb)].concat()).contains("becomes larger than 128 MiB"));
}

#[test]
fn columns_of_ours_and_names_alike_are_refused() {
    let of = |second: &str| {
        format!(
            r#"{{"type":"record","name":"r","fields":[{{"name":"a","type":"int"}},{{"name":"{second}","type":"int"}}]}}"#
        )
    };
    assert!(refusal(&file(&of("A"), &[])).contains("differ only in case"));
    assert!(refusal(&file(&of("_batch_id"), &[])).contains("technical column"));
}
