//! What a JSON file gives, record by record.

use std::io::Cursor;

use arrow::array::{Array, AsArray};

use super::super::bytes::Compression;
use super::super::{TextFormat, text_decoder};
use super::*;

/// A file decoded: rows as `name=value` (nulls left out), rejects as number and reason, and the rest.
#[derive(Debug, Default, PartialEq)]
struct File {
    names: Vec<String>,
    rows: Vec<String>,
    numbers: Vec<i64>,
    rescued: Vec<Option<String>>,
    rejects: Vec<Reject>,
    counts: Counts,
}

fn try_decode(text: &[u8]) -> Result<File> {
    try_decode_as(JsonOptions::default(), text)
}

fn try_decode_as(options: JsonOptions, text: &[u8]) -> Result<File> {
    let mut decoder = text_decoder(&TextFormat::Json(options), Compression::Auto, Cursor::new(text.to_vec()))?;
    let mut file = File::default();
    while let Some(chunk) = decoder.next_chunk()? {
        file.names = chunk.columns.schema().fields().iter().map(|field| field.name().clone()).collect();
        for row in 0..chunk.columns.num_rows() {
            let mut cells = Vec::new();
            for (name, column) in file.names.iter().zip(chunk.columns.columns()) {
                let column = column.as_string::<i32>();
                if column.is_valid(row) {
                    cells.push(format!("{name}={}", column.value(row)));
                }
            }
            file.rows.push(cells.join(" "));
            file.rescued.push(chunk.rescued.as_ref().and_then(|rescued| rescued[row].clone()));
        }
        file.numbers.extend(chunk.row_numbers);
        file.rejects.extend(chunk.rejects);
    }
    file.counts = decoder.counts();
    assert_eq!(file.counts.records as usize, file.rows.len() + file.rejects.len(), "every record is somewhere");
    Ok(file)
}

fn decode(text: &str) -> File {
    try_decode(text.as_bytes()).expect("a file")
}

#[test]
fn texts_are_decoded_and_everything_else_stays_as_written() {
    let file = decode(concat!(
        r#"{"t":"caf\u00e9 \"x\"\n","n":9007199254740993,"u":18446744073709551615,"e":1e2,"z":-0.10,"b":true}"#,
        "\n",
        r#"{"o":{"b": 1,  "a":[1.10, null]},"l":[ ],"x":null,"t":""}"#,
        "\n",
    ));
    assert_eq!(file.names, ["t", "n", "u", "e", "z", "b", "o", "l", "x"]);
    assert_eq!(
        file.rows,
        [
            "t=café \"x\"\n n=9007199254740993 u=18446744073709551615 e=1e2 z=-0.10 b=true",
            "t= o={\"b\": 1,  \"a\":[1.10, null]} l=[ ]",
        ]
    );
    assert_eq!(file.counts, Counts { records: 2, skipped: 0 });
}

#[test]
fn blank_and_null_lines_are_skipped_and_counted() {
    let file = decode("{\"a\":1}\n\nnull\n  \n{\"a\":2}\n{}\n");
    assert_eq!(file.rows, ["a=1", "a=2", ""]);
    assert_eq!(file.numbers, [1, 2, 3]);
    assert_eq!(file.counts, Counts { records: 3, skipped: 3 });
    assert_eq!(decode("null\n\n").counts, Counts { records: 0, skipped: 2 });
}

#[test]
fn a_late_key_is_a_column_of_its_own() {
    let mut text: String = (0..20_000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    text.push_str("{\"coupon\":\"X\",\"id\":20000}\n");
    let file = decode(&text);
    assert_eq!(file.rows.len(), 20_001);
    assert_eq!(file.rows[0], "id=0");
    assert_eq!(file.rows[20_000], "id=20000 coupon=X");
}

#[test]
fn a_broken_line_is_rejected_alone_with_its_line() {
    let file = decode("{\"a\":1}\n\n{\"a\":2,\"new\":\n[1]\n{\"a\":3}\n7\n{\"a\":4} x\n");
    assert_eq!(file.rows, ["a=1", "a=3"]);
    assert_eq!(file.numbers, [1, 4]);
    assert_eq!(file.names, ["a"], "a rejected record brings no column");
    let rejects: Vec<_> = file.rejects.iter().map(|reject| (reject.row_number, reject.raw.as_str())).collect();
    assert_eq!(rejects, [(2, "{\"a\":2,\"new\":"), (3, "[1]"), (5, "7"), (6, "{\"a\":4} x")]);
    assert_eq!(file.rejects[0].reason, "line 3: EOF while parsing a value (column 13)");
    assert_eq!(file.rejects[1].reason, "line 4: the record is an array, not an object");
    assert_eq!(file.rejects[2].reason, "line 6: the record is a number, not an object");
    assert_eq!(file.rejects[3].reason, "line 7: trailing characters (column 9)");
}

#[test]
fn a_repeated_key_rejects_the_record() {
    let file = decode("{\"a\":1,\"b\":2,\"a\":3}\n{\"a\":1,\"A\":2}\n{\"a\":4}\n{\"A\":5}\n");
    assert_eq!(file.rows, ["a=4", "a=5"], "case does not make another column");
    assert_eq!(file.rejects.len(), 2);
    assert!(file.rejects[0].reason.starts_with("line 1: the key `a` is repeated"), "{}", file.rejects[0].reason);
    assert!(file.rejects[1].reason.contains("the key `A` is repeated"), "{}", file.rejects[1].reason);
}

#[test]
fn an_escape_that_is_no_character_rejects_the_record() {
    let file = decode("{\"a\":\"\\ud800\"}\n{\"a\":\"\\ud83d\\ude00\"}\n");
    assert_eq!(file.rows, ["a=😀"]);
    assert!(file.rejects[0].reason.contains("the text of `a` cannot be read"), "{}", file.rejects[0].reason);
}

#[test]
fn the_key_without_a_name_is_rescued() {
    let file = decode("{\"a\":1,\"\":{\"x\":1}}\n");
    assert_eq!((file.names.as_slice(), file.rows[0].as_str()), (["a".to_owned()].as_slice(), "a=1"));
    assert_eq!(file.rescued, [Some("{\"\":{\"x\":1}}".to_owned())]);
}

#[test]
fn arrays_and_tall_objects_give_the_same_rows() {
    let lines = decode("{\"a\":1,\"b\":\"x\"}\n{\"a\":2}\n");
    let array = decode("\u{feff}[\n {\"a\":1,\"b\":\"x\"},\n {\"a\":2}\n]\n");
    let tall = decode("{\n  \"a\": 1,\n  \"b\": \"x\"\n}\n{\n  \"a\": 2\n}\n");
    assert_eq!(lines, array);
    assert_eq!(lines, tall);
    let broken = decode("[{\"a\":1},{\"a\":01},null,3,{\"a\":2}]");
    assert_eq!((broken.rows.len(), broken.rejects.len(), broken.counts.skipped), (2, 2, 1));
    assert!(broken.rejects[0].reason.contains("line 1 of the record"), "{}", broken.rejects[0].reason);
}

#[test]
fn an_array_that_does_not_end_refuses_the_file() {
    let error = try_decode(b"[{\"a\":1},\n{\"a\":2}").expect_err("cut");
    assert_eq!(error.kind(), lake::ErrorKind::File);
    assert!(error.to_string().contains("not closed"), "{error}");
}

#[test]
fn a_technical_key_refuses_the_file() {
    let error = try_decode(b"{\"a\":1}\n{\"_batch_id\":1}\n").expect_err("ours");
    assert_eq!(error.to_string(), "record 2: the column `_batch_id` has the name of a technical column");
    assert_eq!(error.kind(), lake::ErrorKind::File);
    let error = try_decode(b"{\"a\":NaN,\"_batch_id\":1}\n{\"a\":1}\n").expect_err("ours, behind a word");
    assert!(error.to_string().starts_with("record 1: the column `_batch_id`"), "{error}");
    assert_eq!(decode("{\"_id\":1,\"__op\":\"c\"}").rows, ["_id=1 __op=c"]);
}

#[test]
fn chunks_of_many_columns_have_few_rows() {
    let keys: Vec<String> = (0..1_000).map(|key| format!("\"k{key}\":1")).collect();
    let text = format!("{{{}}}\n{}", keys.join(","), "{}\n".repeat(5_000));
    let format = TextFormat::Json(JsonOptions::default());
    let mut decoder = text_decoder(&format, Compression::Auto, Cursor::new(text.into_bytes())).expect("a decoder");
    while let Some(chunk) = decoder.next_chunk().expect("rows") {
        assert!(chunk.columns.num_rows() <= CHUNK_VALUES_MAX / 1_000 + 1, "{}", chunk.columns.num_rows());
    }
    assert_eq!(decoder.counts().records, 5_001);
}

#[test]
fn keys_that_are_values_are_stopped() {
    let text: String = (0..=super::super::COLUMNS_MAX).map(|id| format!("{{\"k{id}\":1}}\n")).collect();
    let error = try_decode(text.as_bytes()).expect_err("too many");
    assert!(error.to_string().contains("more than 5000 different keys"), "{error}");
}

#[test]
fn a_record_beyond_the_limit_refuses_the_file() {
    let text = format!("{{\"a\":1}}\n{{\"a\":\"{}", "x".repeat(RECORD_BYTES_MAX + 1_100_000));
    let error = try_decode(text.as_bytes()).expect_err("too large");
    assert_eq!(error.to_string(), "record 2 (byte 8) is larger than 16 MiB");
}

#[test]
fn words_that_are_no_json_numbers_are_texts() {
    let file =
        decode("{\"a\":NaN,\"b\":-Infinity,\"c\":\"NaN, \\\"NaN\"}\n{\"a\":{\"x\":[Infinity,1.10]}}\n{\"a\":Nope}\n");
    assert_eq!(file.rows, ["a=NaN b=-Infinity c=NaN, \"NaN", "a={\"x\":[\"Infinity\",1.10]}"]);
    assert_eq!(file.rejects.len(), 1);
}

#[test]
fn an_explicit_null_is_noted_when_it_is_wanted() {
    let text = b"{\"a\":1,\"b\":null,\"\":2}\n{\"a\":null}\n{\"b\":1,\"c\":{\"d\":null}}\n";
    let file = try_decode_as(JsonOptions { explicit_nulls: true }, text).expect("a file");
    assert_eq!(file.rescued, [Some("{\"\":2,\"b\":null}".to_owned()), Some("{\"a\":null}".to_owned()), None]);
    assert_eq!(try_decode(text).expect("a file").rescued, [Some("{\"\":2}".to_owned()), None, None]);
}

#[test]
fn values_nested_beyond_the_limit_refuse_the_file() {
    let nested = |depth: usize| format!("{{\"a\":1}}\n{{\"a\":{}{}}}\n", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(decode(&nested(100)).rows.len(), 2);
    let error = try_decode(nested(101).as_bytes()).expect_err("too deep");
    assert_eq!(error.to_string(), "record 2: line 2: the value of `a` is nested deeper than 100 levels, the limit");
    assert_eq!(error.kind(), lake::ErrorKind::File);
    let brackets = format!("{{\"a\":[\"{}\"]}}", "[\\\"".repeat(500));
    assert_eq!(decode(&brackets).rows.len(), 1, "brackets in a text are text");
    assert!(try_decode(format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes()).is_ok(), "broken, and no crash");
}

#[test]
fn objects_one_after_the_other_on_a_line_are_records() {
    let lines = decode("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
    for text in ["{\"a\":1}{\"a\":2} {\"a\":3}", "{\"a\":1} {\"a\":2}\n{\"a\":3}\n", "{\"a\":1}\r{\"a\":2}\r{\"a\":3}"]
    {
        assert_eq!(decode(text), lines, "{text:?}");
    }
    let long: String = (0..300_000)
        .map(|id| format!("{{\"id\":{id},\"note\":\"0123456789012345678901234567890123456789\"}}"))
        .collect();
    assert!(long.len() > RECORD_BYTES_MAX);
    assert_eq!(decode(&long).rows.len(), 300_000);
}

#[test]
fn nothing_of_a_number_is_lost() {
    let digits = "0.123456789012345678901234567890";
    let file =
        decode(&format!("{{\"u\":18446744073709551616,\"d\":{digits},\"e\":-1.50E+400,\"o\":{{\"d\":{digits}}}}}"));
    assert_eq!(file.rows, [format!("u=18446744073709551616 d={digits} e=-1.50E+400 o={{\"d\":{digits}}}")]);
}
