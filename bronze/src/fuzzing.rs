//! What must hold for any bytes at all. The tests try random ones, `fuzz/` looks for the bytes that reach new code.

use std::collections::BTreeMap;
use std::io::Cursor;

use arrow::array::{Array, AsArray};
use lake::ErrorKind;

use crate::decode::{Decoder, Dialect, EmptyIsNull, Header, JsonOptions, TextFormat, text_decoder_by};
pub use crate::ledger::fuzzing::ledger;

/// A record as a reader of the table sees it: values by column, nulls left out; or why it is none.
type Record = Result<BTreeMap<String, String>, (String, String)>;

/// Delimited text: the first two bytes choose the dialect and where blocks end, the others are the file.
pub fn csv(data: &[u8]) {
    let [choice, block, text @ ..] = data else { return };
    let bit = |at: u8| choice >> at & 1 == 1;
    let columns = || vec!["a".to_owned(), "b".to_owned()];
    let dialect = Dialect {
        header: if bit(0) { Header::Given { columns: columns(), leading_op: bit(1) } } else { Header::Present },
        delimiter: if bit(2) { b';' } else { b',' },
        quote: if bit(3) { None } else { Some(b'"') },
        escape: bit(4).then_some(b'\\'),
        comment: bit(5).then_some(b'#'),
        null_values: if bit(6) { vec!["NULL".to_owned()] } else { Vec::new() },
        empty_is_null: if bit(7) { EmptyIsNull::Never } else { EmptyIsNull::Unquoted },
        ..Dialect::default()
    };
    check(&TextFormat::Csv(dialect), *block, text);
}

/// JSON: the first two bytes choose the options and where blocks end, the others are the file.
pub fn json(data: &[u8]) {
    let [choice, block, text @ ..] = data else { return };
    check(&TextFormat::Json(JsonOptions { explicit_nulls: choice & 1 == 1 }), *block, text);
}

/// Every record is a row or a reject, once and in order; a file that is refused is refused as a file; and where the
/// blocks of a file end makes no difference.
fn check(format: &TextFormat, block: u8, text: &[u8]) {
    // Of two faults of a file, the one that is met first refuses it: the reasons may differ.
    let whole = read(format, u64::MAX, text).ok();
    // The first block holds a byte order mark as a whole.
    let parts = read(format, u64::from(block) + 4, text).ok();
    assert_eq!(whole, parts, "where blocks end makes a difference");
}

/// The records of a file by their numbers, and the count of skipped ones; or why it is refused.
fn read(format: &TextFormat, block: u64, text: &[u8]) -> Result<(BTreeMap<i64, Record>, u64), String> {
    let refusal = |error: lake::Error| {
        assert_eq!(error.kind(), ErrorKind::File, "{error}");
        error.to_string()
    };
    let mut decoder = text_decoder_by(block, format, Cursor::new(text.to_vec())).map_err(refusal)?;
    let mut records = BTreeMap::new();
    while let Some(()) = next(&mut *decoder, &mut records).map_err(refusal)? {}
    let counts = decoder.counts();
    assert_eq!(counts.records, records.len() as u64, "a record is counted and not there, or there and not counted");
    assert!(records.keys().copied().eq(1..=records.len() as i64), "records are numbered from 1 without gaps");
    Ok((records, counts.skipped))
}

fn next(decoder: &mut dyn Decoder, records: &mut BTreeMap<i64, Record>) -> lake::Result<Option<()>> {
    let Some(part) = decoder.next_part()? else { return Ok(None) };
    let chunk = part.into_chunk()?;
    let schema = chunk.columns.schema();
    for (row, number) in chunk.row_numbers.iter().enumerate() {
        let values = schema.fields().iter().zip(chunk.columns.columns()).filter_map(|(field, column)| {
            let column = column.as_string::<i32>();
            column.is_valid(row).then(|| (field.name().clone(), column.value(row).to_owned()))
        });
        let rescued = chunk.rescued.as_ref().and_then(|rescued| rescued[row].clone());
        let rescued = rescued.map(|text| ("_rescued_data".to_owned(), text));
        let before = records.insert(*number, Ok(values.chain(rescued).collect()));
        assert_eq!(before, None, "record {number} comes twice");
    }
    for reject in chunk.rejects {
        let before = records.insert(reject.row_number, Err((reject.raw, reject.reason)));
        assert_eq!(before, None, "record {} comes twice", reject.row_number);
    }
    Ok(Some(()))
}

#[cfg(test)]
mod tests;
