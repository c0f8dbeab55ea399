//! A file's bytes become Arrow batches, rejected records and counts. Nothing here knows of tables or stores.
//!
//! A [`Decoder`] is synchronous and holds a bounded part of its file, so that a blocking thread can feed a channel.
//! Every record of a file ends up in exactly one place: a row of a [`Chunk`], a [`Reject`], or the count of skipped
//! ones. A file that cannot be read as a whole is *refused*: an error of kind [`File`](lake::ErrorKind::File), after
//! which nothing of the file may be used. An error of kind [`Store`](lake::ErrorKind::Store) says nothing about the
//! file; the read may be tried again.

mod again;
mod avro;
mod bytes;
mod csv;
mod encoding;
mod foreign;
mod json;
mod names;
mod parquet;
mod text;

use std::io::Read;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use chrono::{DateTime, SecondsFormat};
use lake::{Error, ErrorKind, Result};

pub(crate) use self::again::{Again, again};
pub use self::bytes::{Compression, SourceFailure};
pub use self::csv::{Dialect, EmptyIsNull, Header, Records};
pub(crate) use self::encoding::ENCODING_NAMES;
pub use self::encoding::Encoding;
pub use self::json::JsonOptions;
pub use self::names::DuplicateColumns;
pub(crate) use self::names::{folded, shown_name};
pub use self::parquet::{ParquetDecoder, reader_options};

/// Rows in one chunk at most.
pub const CHUNK_ROWS_MAX: usize = 8192;
/// Values in one chunk of text at most, absent ones included: a file may have thousands of columns and few values.
const CHUNK_VALUES_MAX: usize = 1024 * 1024;
/// Bytes of the rows of one chunk, as far as the format says how large they are.
const CHUNK_BYTES: usize = 8 * 1024 * 1024;
/// Size of one record at most. A quote that is never closed would otherwise take the rest of the file into memory.
pub const RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Columns of one file at most: keys that are really values (ids, dates) would otherwise make a column each.
pub const COLUMNS_MAX: usize = 5_000;
/// How deep values may be nested: programs that read the JSON text of a value follow it about as far.
pub const NESTING_MAX: usize = 100;

/// Some rows of a file.
#[derive(Debug)]
pub struct Chunk {
    /// The data columns, as text or in the widest type of their kind. Later chunks may have more columns.
    pub columns: RecordBatch,
    /// The 1-based record number of each row.
    pub row_numbers: Vec<i64>,
    /// JSON text of what a row had beyond its columns; `None` when no row had any.
    pub rescued: Option<Vec<Option<String>>>,
    /// Records that are not rows.
    pub rejects: Vec<Reject>,
}

/// A record that cannot become a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Its 1-based record number in the file.
    pub row_number: i64,
    /// Its text, as it stands in the file.
    pub raw: String,
    /// The kind of reason: [`MALFORMED`](Self::MALFORMED) or [`CUT`](Self::CUT).
    pub kind: &'static str,
    /// Why.
    pub reason: String,
    /// A JSON array of the columns of the file by position, where its records do not name them.
    pub header: Option<Arc<str>>,
}

impl Reject {
    /// The record breaks a rule of its format.
    pub const MALFORMED: &'static str = "malformed";
    /// The file ends before the record does.
    pub const CUT: &'static str = "cut";
}

/// What a decoder has met so far, counted where records begin and end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records, rejected ones included; the header is not one.
    pub records: u64,
    /// Blank lines, comments and null records; these have no record number.
    pub skipped: u64,
}

/// Some rows of a file whose columns may still have to be made, on any thread.
pub enum Part {
    /// Rows in columns.
    Ready(Chunk),
    /// Records of delimited text, found and not yet taken apart.
    Records(Box<Records>),
}

impl Part {
    /// Records that are not rows.
    pub fn rejects(&self) -> &[Reject] {
        match self {
            Self::Ready(chunk) => &chunk.rejects,
            Self::Records(records) => records.rejects(),
        }
    }

    /// The rows in columns.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the columns do not make a batch.
    pub fn into_chunk(self) -> Result<Chunk> {
        match self {
            Self::Ready(chunk) => Ok(chunk),
            Self::Records(records) => records.into_chunk(),
        }
    }
}

/// Reads one file from start to end.
pub trait Decoder: Send {
    /// The next rows; `None` at the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::File`] when the file is refused, [`ErrorKind::Store`] when its bytes could not be fetched.
    fn next_chunk(&mut self) -> Result<Option<Chunk>>;

    /// The next rows, with the work that another thread can do left to [`Part::into_chunk`].
    ///
    /// # Errors
    /// As [`Decoder::next_chunk`].
    fn next_part(&mut self) -> Result<Option<Part>> {
        Ok(self.next_chunk()?.map(Part::Ready))
    }

    /// What was met so far; complete after the last chunk.
    fn counts(&self) -> Counts;

    /// The columns that the first record of the file names, where it does; known with the first chunk, or at the end.
    fn header(&self) -> Option<SchemaRef> {
        None
    }
}

/// How the text of a file is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextFormat {
    /// Delimited text.
    Csv(Dialect),
    /// JSON values.
    Json(JsonOptions),
}

/// How the text of a file is packed into its bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packing {
    /// The compression of the whole file.
    pub compression: Compression,
    /// The encoding of a file without a byte order mark.
    pub encoding: Encoding,
}

impl From<Compression> for Packing {
    fn from(compression: Compression) -> Self {
        Self { compression, ..Self::default() }
    }
}

/// A decoder for a file of text.
///
/// # Errors
/// [`ErrorKind::File`] when the file is not of the compression that was asked for.
pub fn text_decoder(
    format: &TextFormat,
    packing: impl Into<Packing>,
    source: impl Read + Send + 'static,
) -> Result<Box<dyn Decoder>> {
    let Packing { compression, encoding } = packing.into();
    let text = text::TextReader::new(bytes::decompress(source, compression)?, encoding);
    Ok(decoder_of(format, text))
}

/// A decoder for a file of plain UTF-8 that reads `block_bytes` at a time.
#[cfg(any(test, fuzzing))]
pub(crate) fn text_decoder_by(
    block_bytes: u64,
    format: &TextFormat,
    source: impl Read + Send + 'static,
) -> Result<Box<dyn Decoder>> {
    let bytes = bytes::decompress(source, Compression::None)?;
    Ok(decoder_of(format, text::TextReader::by_blocks(bytes, Encoding::default(), block_bytes)))
}

fn decoder_of(format: &TextFormat, text: text::TextReader) -> Box<dyn Decoder> {
    match format {
        TextFormat::Csv(dialect) => Box::new(csv::CsvDecoder::new(text, dialect.clone())),
        TextFormat::Json(options) => Box::new(json::JsonDecoder::new(text, *options)),
    }
}

/// A decoder for an Avro file, which may be compressed as a whole beside what it is inside.
///
/// # Errors
/// [`ErrorKind::File`] when the file is not Avro or its columns are refused.
pub fn avro_decoder(
    compression: Compression,
    duplicates: DuplicateColumns,
    source: impl Read + Send + 'static,
) -> Result<Box<dyn Decoder>> {
    Ok(Box::new(avro::AvroDecoder::new(bytes::decompress(source, compression)?, duplicates)?))
}

/// The first bytes of a file without its compression, and what that is called.
///
/// # Errors
/// [`ErrorKind::File`] when the compressed stream is broken.
pub(crate) fn head(source: impl Read + Send + 'static, bytes_max: u64) -> Result<(Option<&'static str>, Vec<u8>)> {
    let mut bytes = bytes::decompress(source, Compression::Auto)?;
    let mut head = Vec::new();
    (&mut bytes).take(bytes_max).read_to_end(&mut head).map_err(bytes::explain)?;
    Ok((bytes.compression(), head))
}

/// The first bytes of a file as text, and the label of its encoding where the file does not say it and it is not UTF-8.
pub(crate) fn head_text(head: &[u8], is_cut: bool) -> (Option<&'static str>, String) {
    encoding::guess(head, is_cut)
}

/// The error that refuses a file.
pub fn refused(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::File, reason)
}

/// A value that the widest type of its kind cannot hold, or not to the last digit.
#[derive(Debug, PartialEq, Eq)]
struct Unfit {
    /// Its 0-based row in the batch.
    row: usize,
    /// The value as text.
    text: String,
}

/// A moment in nanoseconds since the epoch, to the last digit.
fn nanos_text(nanos: i64) -> String {
    DateTime::from_timestamp_nanos(nanos).to_rfc3339_opts(SecondsFormat::Nanos, true)
}

/// The values that did not fit their column, by row, as JSON objects.
fn rescued_by_row<'u>(unfit: impl Iterator<Item = (&'u str, &'u Unfit)>, rows: usize) -> Option<Vec<Option<String>>> {
    let mut objects: Vec<Option<serde_json::Map<String, serde_json::Value>>> = Vec::new();
    for (name, Unfit { row, text }) in unfit {
        objects.resize(rows, None);
        objects[*row].get_or_insert_default().insert(name.to_owned(), serde_json::Value::from(text.as_str()));
    }
    let text = |object| serde_json::Value::Object(object).to_string();
    (!objects.is_empty()).then(|| objects.into_iter().map(|object| object.map(text)).collect())
}

/// A batch of columns that may all be absent while there are rows.
fn batch(fields: Vec<Field>, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    batch_of(Arc::new(Schema::new(fields)), columns, rows)
}

fn batch_of(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
        .map_err(|error| Error::internal("decoded columns do not make a batch").with_source(error))
}

#[cfg(test)]
mod random_damage_tests;
#[cfg(test)]
mod random_tests;
