//! Delimited text: records to columns of text, exactly as written.
//!
//! Two things are kept apart that other readers merge: a bare empty field and `""`, and a bare null token and the
//! same word in quotes. Fields are matched to columns by the header's names. A record with too few fields has nulls
//! for the missing ones; what it has beyond the columns goes to the rescued data.

mod dialect;
mod header;
mod rows;
mod tokenizer;

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use lake::Result;

use self::header::Columns;
use self::rows::Rows;
use self::tokenizer::{Malformed, Scan, Tokenizer};
use super::text::TextReader;
use super::{Chunk, Counts, Decoder, Part, RECORD_BYTES_MAX, Reject, refused};

pub use self::dialect::{Dialect, EmptyIsNull, Header};
pub use self::rows::Records;

/// Rejected records in one chunk at most.
const CHUNK_REJECTS_MAX: usize = 1024;

/// Decodes one file of delimited text.
pub(super) struct CsvDecoder {
    text: TextReader,
    dialect: Arc<Dialect>,
    tokenizer: Tokenizer,
    columns: Option<Columns>,
    rows: Rows,
    rejects: Vec<Reject>,
    counts: Counts,
}

impl CsvDecoder {
    pub(super) fn new(text: TextReader, dialect: Dialect) -> Self {
        let tokenizer = Tokenizer::new(&dialect);
        let (rows, rejects, counts) = (Rows::default(), Vec::new(), Counts::default());
        Self { text, dialect: Arc::new(dialect), tokenizer, columns: None, rows, rejects, counts }
    }

    /// Scans what is held for whole records, to the end of the text or until a chunk is full; returns where it ended.
    fn scan(&mut self) -> Result<usize> {
        let (text, ended) = (self.text.text(), self.text.ended());
        let mut at = 0;
        while !self.rows.is_full() && self.rejects.len() < CHUNK_REJECTS_MAX {
            match self.tokenizer.record(text, at, ended) {
                Scan::Incomplete | Scan::End => break,
                Scan::Skipped { next } => {
                    self.counts.skipped += 1;
                    at = next;
                }
                Scan::Record { next } => {
                    let raw = &text[at..next];
                    match &self.columns {
                        Some(columns) => {
                            self.counts.records += 1;
                            let number = self.counts.records;
                            take(&mut self.rows, &mut self.rejects, columns, &self.tokenizer, raw, number);
                        }
                        None => {
                            let columns = Columns::from_first(&self.dialect, &self.tokenizer, text)?;
                            self.rows.begin(columns.len());
                            let is_header = columns.is_header();
                            self.columns = Some(columns);
                            if !is_header {
                                continue;
                            }
                        }
                    }
                    at = next;
                }
                Scan::Malformed { next, reason } => {
                    if self.columns.is_none() && matches!(self.dialect.header, Header::Present) {
                        return Err(refused(format!("the header cannot be read: {}", reason.text(text, at))));
                    }
                    self.counts.records += 1;
                    let raw = trimmed(&text[at..next]).to_owned();
                    let row_number = number(self.counts.records);
                    let (kind, reason) = (Reject::MALFORMED, reason.text(text, at));
                    self.rejects.push(Reject { row_number, raw, kind, reason, header: None });
                    at = next;
                }
            }
        }
        Ok(at)
    }

    fn too_large(&mut self) -> lake::Error {
        let (record, noun) = (self.counts.records + 1, self.text.noun());
        let limit = RECORD_BYTES_MAX / (1024 * 1024);
        let reason = match self.tokenizer.record(self.text.text(), 0, true) {
            Scan::Malformed { reason: Malformed::Unclosed { field, at, .. }, .. } => format!(
                "record {record} is larger than {limit} MiB: its field {field} is so large, or the quote that opens it ({noun} \
                 {}) is never closed",
                self.text.position_of(at)
            ),
            _ => format!("record {record} ({noun} {}) is larger than {limit} MiB", self.text.position_of(0)),
        };
        refused(reason).hint("`csv: {quote: null}` reads files whose quotes mean nothing")
    }
}

impl Decoder for CsvDecoder {
    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        self.next_part()?.map(Part::into_chunk).transpose()
    }

    fn next_part(&mut self) -> Result<Option<Part>> {
        loop {
            let scanned = self.scan()?;
            if !self.rows.is_empty() || !self.rejects.is_empty() {
                let schema = self.columns.as_ref().map_or_else(|| Arc::new(Schema::empty()), Columns::schema);
                let mut rejects = std::mem::take(&mut self.rejects);
                if !rejects.is_empty() {
                    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                    let header: Arc<str> = serde_json::Value::from(names).to_string().into();
                    rejects.iter_mut().for_each(|reject| reject.header = Some(Arc::clone(&header)));
                }
                return Ok(Some(Part::Records(Box::new(Records {
                    text: self.text.take(scanned),
                    rows: self.rows.take(),
                    schema,
                    dialect: Arc::clone(&self.dialect),
                    rejects,
                }))));
            }
            self.text.consume(scanned);
            if self.text.ended() {
                return Ok(None);
            }
            if self.text.text().len() > RECORD_BYTES_MAX {
                return Err(self.too_large());
            }
            self.text.fill()?;
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn header(&self) -> Option<SchemaRef> {
        self.columns.as_ref().filter(|columns| columns.is_header()).map(Columns::schema)
    }
}

/// Puts the record that the tokenizer holds into the rows, or rejects it.
fn take(rows: &mut Rows, rejects: &mut Vec<Reject>, columns: &Columns, tokenizer: &Tokenizer, raw: &str, record: u64) {
    let (fields, wanted) = (tokenizer.fields(), columns.len());
    let cut = fields.len() < wanted && !raw.ends_with('\n');
    if cut {
        let reason = format!(
            "the last record has {} of {wanted} fields and no line break: the file may have been cut",
            fields.len()
        );
        let raw = trimmed(raw).to_owned();
        rejects.push(Reject { row_number: number(record), raw, kind: Reject::CUT, reason, header: None });
        return;
    }
    rows.push(fields, number(record));
}

fn number(record: u64) -> i64 {
    i64::try_from(record).unwrap_or(i64::MAX)
}

/// A record without its line break.
fn trimmed(record: &str) -> &str {
    let record = record.strip_suffix('\n').unwrap_or(record);
    record.strip_suffix('\r').unwrap_or(record)
}

#[cfg(test)]
mod tests;
