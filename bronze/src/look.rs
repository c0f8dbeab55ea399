//! What a file seems to be, told from its first bytes and records: for a spec that is yet to be written.

use std::fs::File;
use std::io::Cursor;
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};
use lake::spec::{Entry, Problems, SpecPath};
use lake::{Context, Error, Result};

use crate::decode::{
    self, Compression, Decoder, Dialect, EmptyIsNull, Encoding, Header, Packing, ParquetDecoder, TextFormat,
    avro_decoder, text_decoder,
};
use crate::plan;
use crate::spec::{Csv, Format, Source};

/// Bytes of a file that tell how its text is written.
const HEAD_BYTES: u64 = 256 * 1024;
/// Characters that may stand between fields.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];
/// The part of the records that must have the same number of fields.
const SAME_SHARE: f64 = 0.8;

/// What a file seems to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Its format.
    pub format: Format,
    /// Its compression, which the program tells by itself.
    pub compression: Option<&'static str>,
    /// The label of an encoding that the spec must name.
    pub encoding: Option<&'static str>,
    /// How delimited text is written.
    pub csv: Option<Csv>,
}

/// Some records of a file, as bronze would hold them.
#[derive(Debug, Default)]
pub struct Sample {
    /// The records; later batches may have more columns.
    pub batches: Vec<RecordBatch>,
    /// Records that are not rows.
    pub rejected: usize,
    /// Why the first of them is none.
    pub reason: Option<String>,
}

/// Tells what a file seems to be.
///
/// # Errors
/// [`ErrorKind::File`](lake::ErrorKind::File) when it cannot be read, or its compressed stream is broken.
pub fn look(path: &Path) -> Result<Look> {
    let file = open(path)?;
    let (compression, head) = decode::head(file, HEAD_BYTES).context(|| format!("looking at {}", path.display()))?;
    let of = |format| Look { format, compression, encoding: None, csv: None };
    if head.starts_with(b"PAR1") {
        return Ok(of(Format::Parquet));
    }
    if head.starts_with(b"Obj\x01") {
        return Ok(of(Format::Avro));
    }
    let is_cut = head.len() as u64 == HEAD_BYTES;
    let (encoding, text) = decode::head_text(&head, is_cut);
    if is_json(&text) {
        return Ok(Look { encoding, ..of(Format::Json) });
    }
    let whole = match text.rfind('\n').filter(|_| is_cut) {
        Some(end) => &text[..=end],
        None => &text,
    };
    Ok(Look { encoding, csv: Some(csv(whole)), ..of(Format::Csv) })
}

/// Up to `rows_max` records of a file, read as the source says.
///
/// # Errors
/// [`ErrorKind::File`](lake::ErrorKind::File) when the file is refused, [`ErrorKind::Spec`](lake::ErrorKind::Spec) when
/// the source is wrong.
pub fn records(path: &Path, source: &Source, rows_max: usize) -> Result<Sample> {
    let mut problems = Problems::default();
    let entry = Entry { name: "sample".to_owned(), path: SpecPath::of(["bronze", "sample"]), raw: source.clone() };
    let plan = plan::compile(&entry, &mut problems);
    let plan = plan.ok_or_else(|| Error::from(problems))?;
    let file = open(path)?;
    let mut decoder: Box<dyn Decoder> = match &plan.format {
        plan::Format::Text(format, packing) => text_decoder(format, *packing, file)?,
        plan::Format::Avro(duplicates, compression) => avro_decoder(*compression, *duplicates, file)?,
        plan::Format::Parquet(duplicates) => Box::new(ParquetDecoder::local(file, *duplicates)?),
    };
    let (mut sample, mut rows) = (Sample::default(), 0);
    while rows < rows_max {
        let Some(chunk) = decoder.next_chunk()? else { break };
        rows += chunk.columns.num_rows();
        sample.rejected += chunk.rejects.len();
        sample.reason = sample.reason.or_else(|| chunk.rejects.first().map(|reject| reject.reason.clone()));
        sample.batches.push(chunk.columns);
    }
    Ok(sample)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| Error::spec(format!("`{}` cannot be opened: {error}", path.display())))
}

/// True for text that begins with an object or an array of JSON.
fn is_json(text: &str) -> bool {
    let mut rest = text.trim_start();
    while let Some(after) = rest.strip_prefix("null") {
        rest = after.trim_start();
    }
    if !rest.starts_with(['{', '[']) {
        return false;
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<serde::de::IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => true,
        Some(Err(error)) => error.is_eof(),
        None => false,
    }
}

/// How delimited text is written.
fn csv(text: &str) -> Csv {
    let tried = DELIMITERS.iter().filter_map(|delimiter| {
        let records = fields(text, *delimiter);
        let (width, share) = usual_width(&records)?;
        (width > 1 && share >= SAME_SHARE).then_some((share, width, *delimiter, records))
    });
    let best = tried.max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let (delimiter, records) = match best {
        Some((_, _, delimiter, records)) => (delimiter, records),
        None => (',', fields(text, ',')),
    };
    let header = is_header(&records);
    let width = records.iter().map(Vec::len).max().unwrap_or(1);
    Csv {
        header,
        delimiter: delimiter.to_string(),
        columns: if header { Vec::new() } else { (1..=width).map(|number| format!("column_{number}")).collect() },
        ..Csv::default()
    }
}

/// The fields of the records of a text, as the decoder of files finds them.
fn fields(text: &str, delimiter: char) -> Vec<Vec<String>> {
    let width = text.lines().take(100).map(|line| line.matches(delimiter).count() + 1).max().unwrap_or(1);
    let columns = (0..width).map(|number| format!("c{number}")).collect();
    let dialect = Dialect {
        header: Header::Given { columns, leading_op: false },
        delimiter: u8::try_from(delimiter).unwrap_or(b','),
        // So that an empty field differs from one that is not there.
        empty_is_null: EmptyIsNull::Never,
        ..Dialect::default()
    };
    let source = Cursor::new(format!("{}\n", text.trim_end_matches(['\r', '\n'])).into_bytes());
    let packing = Packing { compression: Compression::None, encoding: Encoding::default() };
    let Ok(mut decoder) = text_decoder(&TextFormat::Csv(dialect), packing, source) else { return Vec::new() };
    let Ok(Some(chunk)) = decoder.next_chunk() else { return Vec::new() };
    let batch = chunk.columns;
    let field = |row: usize, column: usize| {
        let values = batch.column(column).as_string::<i32>();
        values.is_valid(row).then(|| values.value(row).to_owned())
    };
    (0..batch.num_rows()).map(|row| (0..batch.num_columns()).map_while(|column| field(row, column)).collect()).collect()
}

/// The number of fields that most records have, the first one too, and the part of the records that have it.
fn usual_width(records: &[Vec<String>]) -> Option<(usize, f64)> {
    let width = records.first()?.len();
    let same = records.iter().filter(|record| record.len() == width).count();
    Some((width, same as f64 / records.len() as f64))
}

/// True when the first record names columns: texts, most of them different, none of which looks like a value.
fn is_header(records: &[Vec<String>]) -> bool {
    let Some((first, rest)) = records.split_first() else { return true };
    let folded: std::collections::BTreeSet<String> = first.iter().map(|name| name.trim().to_lowercase()).collect();
    let is_operation = |name: &String| matches!(name.as_str(), "I" | "U" | "D");
    let operation =
        first.first().is_some_and(is_operation) && rest.iter().all(|record| record.first().is_some_and(is_operation));
    let is_repeated = rest.iter().any(|record| record == first);
    folded.len() * 2 > first.len() && !first.iter().any(|name| is_value(name)) && !operation && !is_repeated
}

/// True for a text that is no name of a column.
fn is_value(text: &str) -> bool {
    let text = text.trim();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_number = digits > 0 && text.replace(',', ".").parse::<f64>().is_ok();
    let is_moment = digits >= 6 && text.bytes().all(|byte| byte.is_ascii_digit() || b"-/.: TZ+".contains(&byte));
    let is_word = matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "null" | "\\n");
    text.is_empty() || is_number || is_moment || is_word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> (String, bool, usize) {
        let csv = csv(text);
        (csv.delimiter, csv.header, csv.columns.len())
    }

    #[test]
    fn the_delimiter_is_what_divides_every_record_alike() {
        assert_eq!(told("id,name\n1,a;b\n2,c\n"), (",".to_owned(), true, 0));
        assert_eq!(told("id;price;note\n1;1,50;a, b\n2;2,50;c\n"), (";".to_owned(), true, 0));
        assert_eq!(told("id\tname\n1\tx,y\n2\tz\n"), ("\t".to_owned(), true, 0));
        assert_eq!(told("id|name\n1|x\n"), ("|".to_owned(), true, 0));
        assert_eq!(told("id,note\n1,\"two\nlines; and\"\n2,b\n"), (",".to_owned(), true, 0));
        assert_eq!(told("name\na\nb\n"), (",".to_owned(), true, 0));
    }

    #[test]
    fn a_first_record_with_values_is_no_header() {
        assert_eq!(told("1,a\n2,b\n"), (",".to_owned(), false, 2));
        assert_eq!(told("I,a,2024-05-01 10:00:00\nU,b,2024-05-02 10:00:00\n"), (",".to_owned(), false, 3));
        assert_eq!(told("x,x\na,b\n"), (",".to_owned(), false, 2));
        assert_eq!(told("a,,c\n1,2,3\n"), (",".to_owned(), false, 3));
    }

    #[test]
    fn json_is_told_from_text_that_begins_alike() {
        assert!(is_json("null\n{\"a\":1}\n") && is_json("[{\"a\":1},") && is_json("{\"a\":\n1}"));
        assert!(!is_json("[draft],x\n") && !is_json("a,b\n") && !is_json("{a},b\n") && !is_json(""));
    }
}
