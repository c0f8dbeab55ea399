//! Random files: what was written comes back, and nothing that was not written breaks a decoder.

use std::io::Cursor;

use arrow::array::{Array, AsArray};

use super::*;

/// A small generator of random numbers; the same seed gives the same test.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    pub(super) fn text(&mut self, alphabet: &[&str], length_max: usize) -> String {
        (0..self.roll(length_max + 1)).map(|_| alphabet[self.roll(alphabet.len())]).collect()
    }
}

pub(super) type Rows = Vec<Vec<Option<String>>>;

/// Names and rows; panics when a record is not accounted for.
fn decode(format: &TextFormat, text: &[u8]) -> Result<(Vec<String>, Rows, Vec<Reject>)> {
    decode_packed(format, Packing::default(), text)
}

/// As [`decode`], of a file that is packed in some way.
pub(super) fn decode_packed(
    format: &TextFormat,
    packing: Packing,
    text: &[u8],
) -> Result<(Vec<String>, Rows, Vec<Reject>)> {
    let mut decoder = text_decoder(format, packing, Cursor::new(text.to_vec()))?;
    let (mut names, mut rows, mut rejects) = (Vec::new(), Rows::new(), Vec::new());
    while let Some(chunk) = decoder.next_chunk()? {
        assert_eq!(chunk.columns.num_rows(), chunk.row_numbers.len());
        names = chunk.columns.schema().fields().iter().map(|field| field.name().clone()).collect();
        for row in 0..chunk.columns.num_rows() {
            let cell = |column: &ArrayRef| {
                let column = column.as_string::<i32>();
                column.is_valid(row).then(|| column.value(row).to_owned())
            };
            rows.push(chunk.columns.columns().iter().map(cell).collect());
        }
        rejects.extend(chunk.rejects);
    }
    assert_eq!(decoder.counts().records as usize, rows.len() + rejects.len());
    Ok((names, rows, rejects))
}

#[test]
fn csv_that_was_written_by_the_rules_comes_back() {
    let alphabet = ["a", "é", ",", "\"", "\n", "\r\n", " ", "#", "\\", "NULL"];
    for seed in 0..2_000 {
        let dice = &mut Dice(seed);
        let width = 2 + dice.roll(3);
        let names: Vec<String> = (0..width).map(|index| format!("c{index}")).collect();
        let ending = ["\n", "\r\n"][dice.roll(2)];
        let mut text = names.join(",") + ending;
        let mut written = Rows::new();
        for _ in 0..dice.roll(6) {
            let row: Vec<Option<String>> =
                (0..width).map(|_| (dice.roll(4) > 0).then(|| dice.text(&alphabet, 5))).collect();
            let cell = |cell: &Option<String>| match cell {
                None => String::new(),
                Some(value) => format!("\"{}\"", value.replace('"', "\"\"")),
            };
            text.push_str(&row.iter().map(cell).collect::<Vec<_>>().join(","));
            text.push_str(ending);
            written.push(row);
        }
        let (read_names, rows, rejects) =
            decode(&TextFormat::Csv(Dialect::default()), text.as_bytes()).expect("a file");
        assert_eq!((&rows, rejects.len()), (&written, 0), "seed {seed}: {text:?}");
        assert!(rows.is_empty() || read_names == names);
    }
}

#[test]
fn json_that_was_written_by_the_rules_comes_back() {
    let alphabet = ["a", "é", "😀", "\"", "\\", "\n", "\u{1}", "{", "]", ",", "/"];
    for seed in 0..2_000 {
        let dice = &mut Dice(seed);
        let mut written = Rows::new();
        let mut values = Vec::new();
        for _ in 0..1 + dice.roll(5) {
            let row: Vec<Option<String>> =
                (0..3).map(|_| (dice.roll(4) > 0).then(|| dice.text(&alphabet, 5))).collect();
            let object: serde_json::Map<String, serde_json::Value> =
                (0..3).map(|index| (format!("k{index}"), serde_json::json!(row[index]))).collect();
            values.push(serde_json::Value::Object(object));
            written.push(row);
        }
        let lines = values.iter().map(|value| format!("{value}\n")).collect::<String>();
        let tall = values.iter().map(|value| format!("{value:#}\n")).collect::<String>();
        let array = format!("{:#}", serde_json::Value::from(values));
        for text in [lines, tall, array] {
            let (_, rows, rejects) =
                decode(&TextFormat::Json(JsonOptions::default()), text.as_bytes()).expect("a file");
            assert_eq!((&rows, rejects.len()), (&written, 0), "seed {seed}: {text}");
        }
    }
}

#[test]
fn no_text_breaks_a_decoder() {
    let csv = ["a", ",", "\"", "\n", "\r", ";", "#", "\\", "\u{feff}", "é", "\0", "_batch_id"];
    let json =
        ["{", "}", "[", "]", "\"", ":", ",", "\\", "\n", "1", "-", "null", "true", "a", "\\ud800", " ", "é", "\"a\":1"];
    let odd = Dialect {
        header: Header::Given { columns: vec!["a".into(), "b".into()], leading_op: true },
        delimiter: b';',
        escape: Some(b'\\'),
        comment: Some(b'#'),
        ..Dialect::default()
    };
    let formats = [
        TextFormat::Csv(Dialect::default()),
        TextFormat::Csv(odd),
        TextFormat::Json(JsonOptions { explicit_nulls: true }),
    ];
    for seed in 0..20_000 {
        let dice = &mut Dice(seed);
        let format = &formats[dice.roll(3)];
        let alphabet: &[&str] = if matches!(format, TextFormat::Json(_)) { &json } else { &csv };
        let mut text = dice.text(alphabet, 24).into_bytes();
        if dice.roll(8) == 0 && !text.is_empty() {
            let place = dice.roll(text.len());
            text[place] = 0x80 + dice.roll(0x80) as u8;
        }
        if let Err(error) = decode(format, &text) {
            assert_eq!(error.kind(), lake::ErrorKind::File, "seed {seed}: {error}");
        }
    }
}
