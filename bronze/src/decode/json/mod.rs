//! JSON values: one object a line, an array of objects, or objects one after the other over several lines.
//!
//! Keys become columns of text when they first appear. Texts are decoded; numbers and booleans keep their characters;
//! nested values stay the JSON text that they are in the file; null is null. `NaN` and `Infinity`, which are no JSON,
//! are taken as texts.

mod columns;
mod framing;
mod record;

use lake::Result;

use self::columns::Columns;
use self::framing::{Frame, Framing};
use self::record::{Fault, Values};
use super::text::TextReader;
use super::{CHUNK_ROWS_MAX, CHUNK_VALUES_MAX, Chunk, Counts, Decoder, RECORD_BYTES_MAX, Reject, refused};

/// Rejected records in one chunk at most.
const CHUNK_REJECTS_MAX: usize = 1024;

/// How a source wants its JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonOptions {
    /// Note in the rescued data which keys were there with null. Without it an absent key and a null are the same.
    pub explicit_nulls: bool,
}

/// Decodes one file of JSON.
pub(super) struct JsonDecoder {
    text: TextReader,
    framing: Framing,
    columns: Columns,
    rows: Rows,
    rejects: Vec<Reject>,
    counts: Counts,
}

impl JsonDecoder {
    pub(super) fn new(text: TextReader, options: JsonOptions) -> Self {
        Self {
            text,
            framing: Framing::default(),
            columns: Columns::default(),
            rows: Rows { explicit_nulls: options.explicit_nulls, ..Rows::default() },
            rejects: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Takes whole records from what is held, to the end of the text or until a chunk is full; returns where it ended.
    fn scan(&mut self) -> Result<usize> {
        let (text, ended) = (self.text.text(), self.text.ended());
        let mut values = Values::default();
        let mut at = 0;
        while !self.is_full() && self.rejects.len() < CHUNK_REJECTS_MAX {
            match self.framing.next(text, at, ended) {
                Frame::Incomplete | Frame::End => break,
                Frame::Cut => {
                    return Err(refused(
                        "the array of the file is not closed: the file was cut or is still being written",
                    ));
                }
                Frame::Nothing { next } => at = next,
                Frame::Skipped { next } => {
                    self.counts.skipped += 1;
                    at = next;
                }
                Frame::Record { start, end, next } => {
                    self.counts.records += 1;
                    let row_number = i64::try_from(self.counts.records).unwrap_or(i64::MAX);
                    let record = Record { raw: &text[start..end], row_number, line: self.framing.line() };
                    self.rejects.extend(record.read(&mut values, &mut self.columns, &mut self.rows)?);
                    at = next;
                }
            }
        }
        Ok(at)
    }

    /// True when there are as many rows as one chunk has at most.
    fn is_full(&self) -> bool {
        let rows = self.rows.row_numbers.len();
        rows >= CHUNK_ROWS_MAX || rows * self.columns.len() >= CHUNK_VALUES_MAX
    }

    fn chunk(&mut self) -> Result<Chunk> {
        let rows = self.rows.row_numbers.len();
        let columns = self.columns.batch(rows)?;
        let rescued = (!self.rows.rescued.is_empty()).then(|| {
            let mut all = vec![None; rows];
            for (row, text) in self.rows.rescued.drain(..) {
                all[row] = Some(text);
            }
            all
        });
        let (row_numbers, rejects) = (std::mem::take(&mut self.rows.row_numbers), std::mem::take(&mut self.rejects));
        Ok(Chunk { columns, row_numbers, rescued, rejects })
    }
}

impl Decoder for JsonDecoder {
    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        loop {
            let scanned = self.scan()?;
            self.text.consume(scanned);
            if !self.rows.row_numbers.is_empty() || !self.rejects.is_empty() {
                return self.chunk().map(Some);
            }
            if self.text.ended() {
                return Ok(None);
            }
            if self.text.text().len() > RECORD_BYTES_MAX {
                let (record, limit) = (self.counts.records + 1, RECORD_BYTES_MAX / (1024 * 1024));
                let (noun, position) = (self.text.noun(), self.text.position_of(0));
                return Err(refused(format!("record {record} ({noun} {position}) is larger than {limit} MiB")));
            }
            self.text.fill()?;
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

/// The rows that are not yet in a chunk, beside their values in the columns.
#[derive(Default)]
struct Rows {
    row_numbers: Vec<i64>,
    /// JSON text of what the columns do not say, by row.
    rescued: Vec<(usize, String)>,
    explicit_nulls: bool,
}

impl Rows {
    fn push(&mut self, values: &Values<'_>, columns: &mut Columns, row_number: i64) {
        let row = self.row_numbers.len();
        let rescued = values.rescued(columns, self.explicit_nulls);
        self.rescued.extend(rescued.map(|text| (row, text)));
        columns.push(values, row);
        self.row_numbers.push(row_number);
    }
}

/// A record as it stands in the file.
struct Record<'t> {
    raw: &'t str,
    row_number: i64,
    line: Option<u64>,
}

impl<'t> Record<'t> {
    /// Makes a row of the record, or rejects it.
    ///
    /// # Errors
    /// [`ErrorKind::File`](lake::ErrorKind::File) when the record refuses its file.
    fn read(&self, values: &mut Values<'t>, columns: &mut Columns, rows: &mut Rows) -> Result<Option<Reject>> {
        let Some(reason) = self.row(self.raw, values, columns, rows)? else { return Ok(None) };
        if let Some(mended) = record::with_quoted_words(self.raw)
            && self.row(&mended, &mut Values::default(), columns, rows)?.is_none()
        {
            return Ok(None);
        }
        Ok(Some(Reject {
            row_number: self.row_number,
            raw: self.raw.to_owned(),
            kind: Reject::MALFORMED,
            reason,
            header: None,
        }))
    }

    /// Makes a row of a text, or says why it is none.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn row<'r>(
        &self,
        text: &'r str,
        values: &mut Values<'r>,
        columns: &mut Columns,
        rows: &mut Rows,
    ) -> Result<Option<String>> {
        let Err(fault) = values.read(text, columns) else {
            rows.push(values, columns, self.row_number);
            return Ok(None);
        };
        if let Some(refusal) = columns.take_refusal() {
            let place = format!("record {}: {refusal}", self.row_number);
            return Err(refusal.context(place));
        }
        let reason = fault.reason(self.line);
        match fault {
            Fault::Deep { .. } => Err(refused(format!("record {}: {reason}", self.row_number))),
            _ => Ok(Some(reason)),
        }
    }
}

#[cfg(test)]
mod tests;
