//! What a CSV file gives, record by record, whatever the seams of its blocks.

use std::io::Cursor;

use arrow::array::{Array, AsArray};

use super::super::bytes::{Compression, decompress};
use super::super::{CHUNK_VALUES_MAX, DuplicateColumns, TextFormat, text_decoder};
use super::*;

/// A file decoded: names, rows (`None` = null), row numbers, rescued data, rejects and counts.
#[derive(Debug, Default, PartialEq)]
struct File {
    names: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    numbers: Vec<i64>,
    rescued: Vec<Option<String>>,
    rejects: Vec<Reject>,
    counts: Counts,
}

fn try_decode(dialect: &Dialect, text: &[u8]) -> Result<File> {
    let format = TextFormat::Csv(dialect.clone());
    let mut decoder = text_decoder(&format, Compression::Auto, Cursor::new(text.to_vec()))?;
    let mut file = File::default();
    while let Some(chunk) = decoder.next_chunk()? {
        file.names = chunk.columns.schema().fields().iter().map(|field| field.name().clone()).collect();
        for row in 0..chunk.columns.num_rows() {
            let value = |column: &arrow::array::ArrayRef| {
                let column = column.as_string::<i32>();
                column.is_valid(row).then(|| column.value(row).to_owned())
            };
            file.rows.push(chunk.columns.columns().iter().map(value).collect());
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
    decode_as(&Dialect::default(), text)
}

fn decode_as(dialect: &Dialect, text: &str) -> File {
    try_decode(dialect, text.as_bytes()).expect("a file")
}

fn refusal(text: &str) -> String {
    let error = try_decode(&Dialect::default(), text.as_bytes()).expect_err("refused");
    assert_eq!(error.kind(), lake::ErrorKind::File);
    error.to_string()
}

/// Rows with `\N` for null.
fn shown(file: &File) -> Vec<String> {
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "\\N".into());
    file.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}

#[test]
fn byte_order_marks_where_records_begin_are_no_part_of_them() {
    let mark = '\u{feff}';
    let file =
        decode(&format!("{mark}{mark}\"{mark}id\",{mark}v\n1,{mark}a\n{mark}2,b\n{mark}{mark}\"3\",c\n{mark}\n{mark}"));
    assert_eq!(file.names, ["id", "v"]);
    assert_eq!(shown(&file), ["1|\u{feff}a", "2|b", "3|c"], "inside of a record it is a character");
    assert_eq!(file.counts.skipped, 1);
}

#[test]
fn a_first_record_is_a_header_where_the_file_names_its_columns() {
    let header = |dialect: Dialect| {
        let mut decoder =
            text_decoder(&TextFormat::Csv(dialect), Compression::Auto, Cursor::new("id,v\n")).expect("a decoder");
        while decoder.next_chunk().expect("a chunk").is_some() {}
        let names = |schema: SchemaRef| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        decoder.header().map(names)
    };
    assert_eq!(header(Dialect::default()), Some(vec!["id".to_owned(), "v".to_owned()]), "also without records");
    let given = Header::Given { columns: vec!["a".to_owned(), "b".to_owned()], leading_op: false };
    assert_eq!(header(Dialect { header: given, ..Dialect::default() }), None);
}

#[test]
fn values_are_exactly_as_written() {
    let file = decode("id,note,amount\n00042, x ,1e2\n2,\"a, \"\"b\"\"\",\" 1 \"\n");
    assert_eq!(file.names, ["id", "note", "amount"]);
    assert_eq!(shown(&file), ["00042| x |1e2", "2|a, \"b\"| 1 "]);
    assert_eq!(file.numbers, [1, 2]);
    assert_eq!(file.counts, Counts { records: 2, skipped: 0 });
}

#[test]
fn bare_empty_is_null_and_quoted_empty_is_text() {
    let text = "a,b,c\n,\"\",x\n";
    assert_eq!(shown(&decode(text)), ["\\N||x"]);
    let with = |empty_is_null| Dialect { empty_is_null, ..Dialect::default() };
    assert_eq!(shown(&decode_as(&with(EmptyIsNull::Always), text)), ["\\N|\\N|x"]);
    assert_eq!(shown(&decode_as(&with(EmptyIsNull::Never), text)), ["||x"]);
}

#[test]
fn null_tokens_are_null_only_without_quotes() {
    let dialect = Dialect { null_values: vec!["NULL".into(), "\\N".into()], ..Dialect::default() };
    let file = decode_as(&dialect, "a,b,c\nNULL,\"NULL\",Null Island\n\\N,null,NULL \n");
    assert_eq!(shown(&file), ["\\N|NULL|Null Island", "\\N|null|NULL "]);
}

#[test]
fn line_breaks_in_quotes_stay_as_they_are() {
    let file = decode("a,b\r\n1,\"x\r\ny\nz\"\r\n2,w\r\n");
    assert_eq!(shown(&file), ["1|x\r\ny\nz", "2|w"]);
    let file = decode("a,b\n1,\"x\r\ny\"\n");
    assert_eq!(shown(&file), ["1|x\r\ny"]);
}

#[test]
fn the_last_line_break_is_optional_when_the_record_is_whole() {
    for ending in ["", "\n", "\r\n", "\r"] {
        assert_eq!(shown(&decode(&format!("a,b\n1,2{ending}"))), ["1|2"], "{ending:?}");
        assert_eq!(shown(&decode(&format!("a,b\n1,\"2\"{ending}"))), ["1|2"], "{ending:?}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_name() {
    assert_eq!(decode("\u{feff}id,x\n1,2\n").names, ["id", "x"]);
    assert_eq!(decode("\u{feff}\"id\",x\n1,2\n").names, ["id", "x"]);
}

#[test]
fn blank_lines_are_skipped_and_counted_without_a_number() {
    let file = decode("\na,b\n\n1,2\n\r\n3,4\n\n");
    assert_eq!(shown(&file), ["1|2", "3|4"]);
    assert_eq!(file.numbers, [1, 2]);
    assert_eq!(file.counts, Counts { records: 2, skipped: 4 });
}

#[test]
fn files_without_records_have_none() {
    for text in ["", "\n", "a,b\n", "a,b"] {
        let file = decode(text);
        assert_eq!((file.rows.len(), file.counts.records), (0, 0), "{text:?}");
    }
}

#[test]
fn missing_fields_are_null_and_surplus_ones_are_rescued() {
    let file = decode("a,b\n1\n2,3,x,,\"y\"\n4,5,\n");
    assert_eq!(shown(&file), ["1|\\N", "2|3", "4|5"]);
    assert_eq!(file.rescued, [None, Some("{\"_c2\":\"x\",\"_c4\":\"y\"}".into()), None]);
}

#[test]
fn a_short_last_record_without_a_line_break_was_cut() {
    let file = decode("a,b,c\n1,2,3\n4,5");
    assert_eq!(shown(&file), ["1|2|3"]);
    let reject = &file.rejects[0];
    assert_eq!((reject.row_number, reject.raw.as_str()), (2, "4,5"));
    assert!(reject.reason.contains("2 of 3 fields"), "{}", reject.reason);
}

#[test]
fn a_quote_that_is_never_closed_rejects_what_it_swallows() {
    let file = decode("a,b\n1,2\n3,\"x\n4,5\n6,7\n");
    assert_eq!(shown(&file), ["1|2"]);
    let reject = &file.rejects[0];
    assert_eq!((reject.row_number, reject.raw.as_str()), (2, "3,\"x\n4,5\n6,7"));
    assert!(reject.reason.contains("field 2 (line 1 of the record)"), "{}", reject.reason);
    assert!(reject.reason.contains("3 line breaks later"), "{}", reject.reason);
}

#[test]
fn text_after_a_closing_quote_rejects_only_its_record() {
    let file = decode("a,b\n\"x\"y,1\n2,3\n4,\"5\" \n6,7\n");
    assert_eq!(shown(&file), ["2|3", "6|7"]);
    assert_eq!(file.numbers, [2, 4]);
    assert_eq!(file.rejects.iter().map(|reject| reject.row_number).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(file.rejects[0].raw, "\"x\"y,1");
    assert!(file.rejects[1].reason.contains("field 2 has text after its closing quote"));
}

#[test]
fn a_quote_inside_a_bare_field_is_a_character() {
    assert_eq!(shown(&decode("a,b\n5\" pipe,say \"hi\"\n")), ["5\" pipe|say \"hi\""]);
}

#[test]
fn other_characters_can_delimit_quote_escape_and_comment() {
    let dialect =
        Dialect { delimiter: b';', quote: Some(b'\''), escape: Some(b'\\'), comment: Some(b'#'), ..Dialect::default() };
    let file = decode_as(&dialect, "# made by hand\na;b\n'it\\'s';'back\\\\slash \\n'\n#'\n'x''y';\"z\"\n");
    assert_eq!(shown(&file), ["it's|back\\slash \\n", "x'y|\"z\""]);
    assert_eq!(file.counts.skipped, 2);
    let dialect = Dialect { quote: None, ..Dialect::default() };
    assert_eq!(shown(&decode_as(&dialect, "a,b\n\"x,y\"\n")), ["\"x|y\""]);
}

#[test]
fn without_a_header_the_spec_names_the_columns() {
    let header = Header::Given { columns: vec!["id".into(), "status".into()], leading_op: true };
    let dialect = Dialect { header, ..Dialect::default() };
    let load = decode_as(&dialect, "1,new\n2\n");
    assert_eq!(
        (load.names.clone(), shown(&load)),
        (vec!["id".into(), "status".into()], vec!["1|new".into(), "2|\\N".into()])
    );
    let changes = decode_as(&dialect, "U,1,paid\nD,2\n");
    assert_eq!(changes.names, ["Op", "id", "status"]);
    assert_eq!(shown(&changes), ["U|1|paid", "D|2|\\N"]);
}

#[test]
fn columns_that_cannot_be_told_apart_refuse_the_file() {
    assert_eq!(refusal("order_id,value,value,ts\n1,10,100,1\n"), "columns 2 and 3 are both named `value`");
    assert!(refusal("a,_row_number\n1,2\n").contains("`_row_number`"));
    let dialect = Dialect { duplicate_columns: DuplicateColumns::Rename, ..Dialect::default() };
    assert_eq!(decode_as(&dialect, "value,value\n1,2\n").names, ["value", "value_2"]);
}

#[test]
fn line_ends_that_are_only_carriage_returns_refuse_the_file() {
    assert_eq!(refusal("a,b\r1,2\r"), "a carriage return follows the column name `b` and no line feed");
    let header = Header::Given { columns: vec!["a".into(), "b".into()], leading_op: false };
    let dialect = Dialect { header, ..Dialect::default() };
    let error = try_decode(&dialect, b"1,x\r2,y\r").expect_err("refused").to_string();
    assert_eq!(error, "a carriage return follows the field `x` of the first record and no line feed");
    assert_eq!(shown(&decode_as(&dialect, "1,x\ry\n2,\"z\rw\"\n")), ["1|x\ry", "2|z\rw"]);
    assert_eq!(decode("id,\"Order\r\nID\"\n1,2\n").names, ["id", "Order\r\nID"]);
}

#[test]
fn nul_characters_stay_in_values_and_refuse_names() {
    assert_eq!(shown(&decode("a,b\n1,x\0y\n")), ["1|x\0y"]);
    assert!(refusal("id,a\0b\n1,2\n").contains("NUL"));
}

#[test]
fn a_broken_header_or_a_wrong_encoding_refuses_the_file() {
    assert!(refusal("a,\"b\n1,2\n").starts_with("the header cannot be read"));
    let error = try_decode(&Dialect::default(), b"a,b\n1,caf\xe9\n").expect_err("latin-1");
    assert_eq!(error.to_string(), "byte 9 (0xE9) is not valid UTF-8");
}

#[test]
fn a_record_beyond_the_limit_refuses_the_file_and_names_the_quote() {
    let text = format!("a,b\n1,2\n3,\"{}", "x\n".repeat(RECORD_BYTES_MAX / 2 + 1_000_000));
    let reason = refusal(&text);
    let wanted =
        "record 2 is larger than 16 MiB: its field 2 is so large, or the quote that opens it (byte 10) is never closed";
    assert_eq!(reason, wanted);
    assert_eq!(refusal(&(text + "\",4\n5,6\n")), wanted, "a field that large");
}

#[test]
fn blocks_and_chunks_have_no_seams() {
    let rows = 40_000;
    let mut text = String::from("id,note\n");
    for row in 0..rows {
        text.push_str(&format!("{row},\"é \"\"{row}\"\"\n,\"\r\n"));
    }
    let file = decode(&text);
    assert_eq!(file.rows.len(), rows);
    assert!(file.rejects.is_empty());
    for (row, values) in file.rows.iter().enumerate() {
        assert_eq!(values[0].as_deref(), Some(row.to_string().as_str()));
        assert_eq!(values[1].as_deref(), Some(format!("é \"{row}\"\n,").as_str()));
        assert_eq!(file.numbers[row], row as i64 + 1);
    }
}

/// Every text of a small alphabet, cut in two at every byte, scans the same as whole.
#[test]
fn a_seam_anywhere_changes_nothing() {
    let alphabet = ['a', ',', '"', '\n', '\r', '\\'];
    let dialects = [Dialect::default(), Dialect { escape: Some(b'\\'), comment: Some(b'a'), ..Dialect::default() }];
    for dialect in &dialects {
        for number in 0..alphabet.len().pow(5) {
            let text: String =
                (0_u32..5).map(|place| alphabet[number / alphabet.len().pow(place) % alphabet.len()]).collect();
            let whole = records(dialect, &text, text.len());
            for seam in 0..text.len() {
                assert_eq!(records(dialect, &text, seam), whole, "{text:?} cut at {seam}");
            }
        }
    }
}

/// What the tokenizer finds in a text of which it first sees `seam` bytes.
fn records(dialect: &Dialect, text: &str, seam: usize) -> Vec<String> {
    let mut tokenizer = Tokenizer::new(dialect);
    let (mut at, mut held, mut found) = (0, seam, Vec::new());
    loop {
        let scan = tokenizer.record(&text[..held], at, held == text.len());
        let next = match &scan {
            Scan::Incomplete => {
                assert!(held < text.len(), "incomplete at the end of {text:?}");
                held = text.len();
                continue;
            }
            Scan::End => return found,
            Scan::Record { next } => {
                let fields: Vec<_> = tokenizer.fields().iter().map(|field| field.text(text, dialect)).collect();
                found.push(format!("{next} {fields:?}"));
                *next
            }
            Scan::Skipped { next } | Scan::Malformed { next, .. } => {
                found.push(format!("{scan:?}"));
                *next
            }
        };
        assert!(next > at, "no progress in {text:?}");
        at = next;
    }
}

#[test]
fn a_compressed_file_reads_the_same_and_a_cut_one_not_at_all() {
    use std::io::Write;
    let text = "a,b\n".to_owned() + &"1,2\n".repeat(1000);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory");
    let bytes = encoder.finish().expect("memory");
    assert_eq!(try_decode(&Dialect::default(), &bytes).expect("a file"), decode(&text));
    let error = try_decode(&Dialect::default(), &bytes[..bytes.len() - 3]).expect_err("cut");
    assert!(error.to_string().contains("ends early"), "{error}");
    assert!(decompress(Cursor::new(bytes), Compression::None).is_ok());
}

#[test]
fn chunks_of_many_columns_have_few_rows() {
    let header = (0..1_000).map(|column| format!("c{column}")).collect::<Vec<_>>().join(",");
    let text = format!("{header}\n{}", "1\n".repeat(20_000));
    let format = TextFormat::Csv(Dialect::default());
    let mut decoder = text_decoder(&format, Compression::Auto, Cursor::new(text.into_bytes())).expect("a decoder");
    while let Some(chunk) = decoder.next_chunk().expect("rows") {
        assert!(chunk.columns.num_rows() <= CHUNK_VALUES_MAX / 1_000 + 1, "{}", chunk.columns.num_rows());
    }
    assert_eq!(decoder.counts().records, 20_000);
}
