//! One record decoded by itself, by the options that the source has now.

use std::io::Cursor;

use lake::Result;

use super::{Chunk, Compression, Header, Packing, Reject, TextFormat, text_decoder};

/// What a record is.
#[derive(Debug)]
pub(crate) enum Again {
    /// One row.
    Row(Chunk),
    /// None, for this kind of reason and this reason.
    Refused(&'static str, String),
    /// A blank line, a comment or a null record.
    Nothing,
}

/// The name that a leading operation has among the columns of a file.
const OPERATION: &str = "Op";

/// Decodes the text of a record that was refused as a part of its file. `header` are the columns of that file by
/// position, and `kind` is the kind of reason that it was refused for.
///
/// # Errors
/// When something else than the record is at fault.
pub(crate) fn again(format: &TextFormat, header: Option<&str>, kind: &str, raw: &str) -> Result<Again> {
    // What was cut from its file had no line break; all others had one.
    let mut text = raw.to_owned();
    if kind != Reject::CUT {
        text.push('\n');
    }
    let mut decoder = text_decoder(&with_columns(format, header), Packing::from(Compression::None), Cursor::new(text))?;
    let mut rows: Option<Chunk> = None;
    loop {
        match decoder.next_chunk() {
            Ok(Some(mut chunk)) => {
                if let Some(reject) = chunk.rejects.pop() {
                    // The record is all there is: its line is the first.
                    let reason = reject.reason.strip_prefix("line 1: ").map(str::to_owned).unwrap_or(reject.reason);
                    return Ok(Again::Refused(reject.kind, reason));
                }
                if chunk.columns.num_rows() > 0 {
                    rows = Some(chunk);
                }
            }
            Ok(None) => break,
            Err(error) if error.kind() == lake::ErrorKind::File => {
                return Ok(Again::Refused(Reject::MALFORMED, error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    match (rows, decoder.counts().records) {
        (None, _) => Ok(Again::Nothing),
        (Some(chunk), 1) => Ok(Again::Row(chunk)),
        (Some(_), records) => {
            let reason = format!("its text is {records} records now: take the file again as a whole");
            Ok(Again::Refused(Reject::MALFORMED, reason))
        }
    }
}

/// The format of a text that is one record: its columns are named by its file, or by the spec where files do not.
fn with_columns(format: &TextFormat, header: Option<&str>) -> TextFormat {
    let TextFormat::Csv(dialect) = format else { return format.clone() };
    let held: Option<Vec<String>> = header.and_then(|text| serde_json::from_str(text).ok());
    let columns = match (&dialect.header, held) {
        (Header::Present, Some(held)) => held,
        // A file without anything that names its columns has none that could be missing.
        (Header::Present, None) => Vec::new(),
        (Header::Given { columns, leading_op }, held) => {
            let had_op = held
                .is_some_and(|held| held.len() > columns.len() && held.first().is_some_and(|name| name == OPERATION));
            let op = (*leading_op && had_op).then(|| OPERATION.to_owned());
            op.into_iter().chain(columns.iter().cloned()).collect()
        }
    };
    let header = Header::Given { columns, leading_op: false };
    TextFormat::Csv(super::Dialect { header, ..dialect.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Dialect;
    use arrow::array::AsArray;

    const HEADER: Option<&str> = Some(r#"["id","name"]"#);

    fn csv(dialect: Dialect) -> TextFormat {
        TextFormat::Csv(dialect)
    }

    fn told(format: &TextFormat, header: Option<&str>, kind: &str, raw: &str) -> String {
        match again(format, header, kind, raw).expect("an answer") {
            Again::Row(chunk) => {
                let schema = chunk.columns.schema();
                let fields = schema.fields().iter().zip(chunk.columns.columns());
                let texts = fields.map(|(field, column)| {
                    let column = column.as_string::<i32>();
                    let value = if arrow::array::Array::is_null(column, 0) { "null" } else { column.value(0) };
                    format!("{}={value}", field.name())
                });
                texts.collect::<Vec<_>>().join(" ")
            }
            Again::Refused(kind, reason) => format!("{kind}: {reason}"),
            Again::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn a_record_is_read_by_the_options_of_today() {
        let stray = r#"1,"a"b"#;
        let before = csv(Dialect::default());
        assert_eq!(told(&before, HEADER, "malformed", stray), "malformed: field 2 has text after its closing quote");
        let now = csv(Dialect { quote: None, ..Dialect::default() });
        assert_eq!(told(&now, HEADER, "malformed", stray), r#"id=1 name="a"b"#);
        assert_eq!(told(&now, HEADER, "malformed", "1"), "id=1 name=null", "a short record");
        assert!(told(&now, HEADER, "cut", "1").starts_with("cut: the last record has 1 of 2 fields"));
        assert_eq!(
            told(&now, HEADER, "malformed", "1,a\n2,b"),
            "malformed: its text is 2 records now: take the file again as a whole"
        );
        let commented = csv(Dialect { comment: Some(b'#'), ..Dialect::default() });
        assert_eq!(told(&commented, HEADER, "malformed", "#\"x"), "nothing");
    }

    #[test]
    fn columns_of_the_spec_are_those_of_today() {
        let given = |leading_op| {
            let columns = vec!["id".to_owned(), "label".to_owned()];
            csv(Dialect { header: Header::Given { columns, leading_op }, ..Dialect::default() })
        };
        assert_eq!(told(&given(false), HEADER, "malformed", "1,a"), "id=1 label=a");
        let with_op = Some(r#"["Op","id","name"]"#);
        assert_eq!(told(&given(true), with_op, "malformed", "U,1,a"), "Op=U id=1 label=a");
        assert_eq!(told(&given(true), HEADER, "malformed", "1,a"), "id=1 label=a");
    }
}
