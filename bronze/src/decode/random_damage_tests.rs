//! Random bytes in place of right ones: compressed streams, encodings and Avro files that are cut, changed or made up
//! never break a decoder, and never pass as something else without being told.

use std::io::Cursor;

use serde_json::{Value, json};

use super::avro::tests::{Out, file};
use super::bytes::tests::packed;
use super::encoding::ENCODING_NAMES;
use super::random_tests::{Dice, decode_packed};
use super::*;

/// Cuts bytes, changes some, or puts others between them.
fn damaged(dice: &mut Dice, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + dice.roll(3) {
        let place = dice.roll(bytes.len().max(1)).min(bytes.len());
        match dice.roll(4) {
            0 => bytes.truncate(place),
            1 => bytes.insert(place, dice.roll(256) as u8),
            2 => bytes.extend_from_within(place..),
            _ if place < bytes.len() => bytes[place] ^= 1 << dice.roll(8),
            _ => {}
        }
    }
    bytes
}

/// A decoder's rows and skipped records; panics when they do not add up.
fn drain(mut decoder: Box<dyn Decoder>) -> Result<Counts> {
    let mut records = 0;
    while let Some(chunk) = decoder.next_chunk()? {
        assert_eq!(chunk.columns.num_rows(), chunk.row_numbers.len());
        assert!(chunk.rescued.is_none_or(|rescued| rescued.len() == chunk.row_numbers.len()));
        records += chunk.row_numbers.len() + chunk.rejects.len();
    }
    assert_eq!(decoder.counts().records as usize, records);
    Ok(decoder.counts())
}

#[track_caller]
fn of_the_file(error: &Error, seed: u64) {
    assert_eq!(error.kind(), ErrorKind::File, "seed {seed}: {error}");
}

#[test]
fn damaged_streams_are_told_or_give_the_same_text() {
    let format = TextFormat::Csv(Dialect::default());
    for seed in 0..3_000 {
        let dice = &mut Dice(seed);
        let kind = [Compression::Gzip, Compression::Bzip2, Compression::Zstd][dice.roll(3)];
        let rows = dice.text(&["1,x\n", "22,yy\n", "333,zzz\n"], 200);
        let text = format!("a,b\n{rows}");
        let whole = packed(text.as_bytes(), kind);
        let right = decode_packed(&format, Packing::default(), &whole).expect("a file");
        assert_eq!(right.1.len(), rows.lines().count());
        let broken = damaged(dice, &whole);
        match decode_packed(&format, kind.into(), &broken) {
            Err(error) => of_the_file(&error, seed),
            // A stream that comes twice is two streams, and zstd has no checksum here.
            Ok(read) if kind != Compression::Zstd && broken.len() <= whole.len() && !broken.is_empty() => {
                assert_eq!(read.1, right.1, "seed {seed}: {kind:?}");
            }
            Ok(_) => {}
        }
    }
}

#[test]
fn text_comes_back_from_every_encoding() {
    let alphabet = ["a", "é", "ß", "Ж", "日", "€", "😀", " ", "\"", "{", "1"];
    for seed in 0..3_000 {
        let dice = &mut Dice(seed);
        let label = ENCODING_NAMES[dice.roll(ENCODING_NAMES.len())];
        let encoding = Encoding::for_label(label).expect("a label");
        let value = dice.text(&alphabet, 12);
        let line = format!("{}\n", json!({"a": value}));
        let bytes = match label {
            "utf-16le" => line.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            "utf-16be" => line.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            _ => {
                let (bytes, _, unmappable) =
                    encoding_rs::Encoding::for_label(label.as_bytes()).expect("a label").encode(&line);
                if unmappable {
                    continue;
                }
                bytes.into_owned()
            }
        };
        let packing = Packing { encoding, ..Packing::default() };
        let format = TextFormat::Json(JsonOptions::default());
        let (_, rows, rejects) = decode_packed(&format, packing, &bytes).expect("a file");
        assert_eq!((rows, rejects.len()), (vec![vec![Some(value)]], 0), "seed {seed}: {label}");
        match decode_packed(&format, packing, &damaged(dice, &bytes)) {
            Err(error) => of_the_file(&error, seed),
            Ok((_, rows, rejects)) => assert!(rows.len() + rejects.len() <= 60),
        }
    }
}

/// A random type as its schema.
fn kind(dice: &mut Dice, depth: usize, named: &mut usize) -> Value {
    const PLAIN: [&str; 8] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];
    const LOGICAL: [(&str, &str); 8] = [
        ("int", "date"),
        ("int", "time-millis"),
        ("long", "time-micros"),
        ("long", "timestamp-millis"),
        ("long", "timestamp-micros"),
        ("long", "timestamp-nanos"),
        ("bytes", "decimal"),
        ("string", "uuid"),
    ];
    *named += 1;
    let name = format!("t{named}");
    match dice.roll(if depth == 0 { 4 } else { 8 }) {
        0 | 1 => json!(PLAIN[dice.roll(PLAIN.len())]),
        2 => {
            let (kind, logical) = LOGICAL[dice.roll(LOGICAL.len())];
            json!({"type": kind, "logicalType": logical, "precision": 50, "scale": dice.roll(45)})
        }
        3 => [
            json!({"type": "fixed", "name": name, "size": dice.roll(20)}),
            json!({"type": "enum", "name": name, "symbols": ["A", "B", "C"]}),
        ][dice.roll(2)]
        .clone(),
        4 => json!({"type": "array", "items": kind(dice, depth - 1, named)}),
        5 => json!({"type": "map", "values": kind(dice, depth - 1, named)}),
        6 => {
            let fields: Vec<Value> = (0..dice.roll(4))
                .map(|field| json!({"name": format!("f{field}"), "type": kind(dice, depth - 1, named)}))
                .collect();
            json!({"type": "record", "name": name, "fields": fields})
        }
        // No union directly in a union.
        _ => json!(["null", kind(dice, 0, named), {"type": "array", "items": kind(dice, depth - 1, named)}]),
    }
}

/// A random value of a type.
fn write(dice: &mut Dice, kind: &Value, out: Out) -> Out {
    let small = |dice: &mut Dice| dice.roll(1_000) as i64 - 500;
    if let Some(branches) = kind.as_array() {
        let chosen = dice.roll(branches.len());
        return write(dice, &branches[chosen], out.long(chosen as i64));
    }
    let name = kind.as_str().or_else(|| kind["type"].as_str()).expect("a type");
    let repeated = |dice: &mut Dice, mut out: Out, of: &Value, keyed: bool| {
        let count = dice.roll(4);
        if count > 0 {
            out = out.long(count as i64);
            for key in 0..count {
                out = if keyed { out.bytes(format!("k{key}").as_bytes()) } else { out };
                out = write(dice, of, out);
            }
        }
        out.long(0)
    };
    match name {
        "null" => out,
        "boolean" => raw(out, &[dice.roll(2) as u8]),
        "int" | "long" => out.long(small(dice)),
        "float" => raw(out, &(small(dice) as f32).to_le_bytes()),
        "double" => raw(out, &(small(dice) as f64 / 8.0).to_le_bytes()),
        "bytes" => out.bytes(&vec![0x5a; dice.roll(24)]),
        "string" => out.bytes(dice.text(&["a", "é", "\""], 6).as_bytes()),
        "fixed" => raw(out, &vec![1; kind["size"].as_u64().expect("a size") as usize]),
        "enum" => out.long(dice.roll(3) as i64),
        "array" => repeated(dice, out, &kind["items"], false),
        "map" => repeated(dice, out, &kind["values"], true),
        "record" => {
            kind["fields"].as_array().expect("fields").iter().fold(out, |out, field| write(dice, &field["type"], out))
        }
        other => panic!("{other}"),
    }
}

fn raw(mut out: Out, bytes: &[u8]) -> Out {
    out.0.extend_from_slice(bytes);
    out
}

#[test]
fn avro_that_was_written_by_the_rules_is_read_and_damaged_avro_breaks_nothing() {
    let decoder = |bytes: Vec<u8>| avro_decoder(Compression::Auto, DuplicateColumns::Fail, Cursor::new(bytes));
    for seed in 0..3_000 {
        let dice = &mut Dice(seed);
        let mut named = 0;
        let fields: Vec<Value> = (0..1 + dice.roll(4))
            .map(|field| json!({"name": format!("c{field}"), "type": kind(dice, 3, &mut named)}))
            .collect();
        let schema = json!({"type": "record", "name": "r", "fields": fields});
        let mut written = 0;
        let blocks: Vec<(i64, Vec<u8>)> = (0..dice.roll(3))
            .map(|_| {
                let records = dice.roll(5);
                written += records as u64;
                (records as i64, (0..records).fold(Out::default(), |out, _| write(dice, &schema, out)).0)
            })
            .collect();
        let whole = file(&schema.to_string(), &blocks);
        let counts =
            drain(decoder(whole.clone()).expect("a header")).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(counts, Counts { records: written, skipped: 0 }, "seed {seed}");
        if let Err(error) = decoder(damaged(dice, &whole)).and_then(drain) {
            of_the_file(&error, seed);
        }
    }
}
