//! JSON values: one object a line, an array of objects, or objects one after the other over several lines.
//!
//! Keys become columns of text when they first appear. Texts are decoded; numbers and booleans keep their characters;
//! nested values stay the JSON text that they are in the file; null is null.

mod columns;
mod framing;
mod record;

use lake::Result;

use self::columns::Columns;
use self::framing::{Frame, Framing};
use self::record::Values;
use super::text::TextReader;
use super::{CHUNK_ROWS_MAX, Chunk, Counts, Decoder, RECORD_BYTES_MAX, Reject, refused};

/// Rejected records in one chunk at most.
const CHUNK_REJECTS_MAX: usize = 1024;

/// Decodes one file of JSON.
pub(super) struct JsonDecoder {
    text: TextReader,
    framing: Framing,
    columns: Columns,
    row_numbers: Vec<i64>,
    rescued: Vec<(usize, String)>,
    rejects: Vec<Reject>,
    counts: Counts,
}

impl JsonDecoder {
    pub(super) fn new(text: TextReader) -> Self {
        Self {
            text,
            framing: Framing::default(),
            columns: Columns::default(),
            row_numbers: Vec::new(),
            rescued: Vec::new(),
            rejects: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Takes whole records from what is held, to the end of the text or until a chunk is full; returns where it ended.
    fn scan(&mut self) -> Result<usize> {
        let (text, ended) = (self.text.text(), self.text.ended());
        let mut values = Values::default();
        let mut at = 0;
        while self.row_numbers.len() < CHUNK_ROWS_MAX && self.rejects.len() < CHUNK_REJECTS_MAX {
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
                    let raw = &text[start..end];
                    match values.read(raw, &mut self.columns) {
                        Ok(()) => {
                            let row = self.row_numbers.len();
                            self.columns.push(&values, row);
                            self.rescued.extend(values.unnamed().map(|text| (row, text)));
                            self.row_numbers.push(row_number);
                        }
                        Err(fault) => {
                            if let Some(refusal) = self.columns.take_refusal() {
                                let place = format!("record {row_number}: {refusal}");
                                return Err(refusal.context(place));
                            }
                            let reason = fault.reason(self.framing.line());
                            self.rejects.push(Reject { row_number, raw: raw.to_owned(), reason });
                        }
                    }
                    at = next;
                }
            }
        }
        Ok(at)
    }

    fn chunk(&mut self) -> Result<Chunk> {
        let rows = self.row_numbers.len();
        let columns = self.columns.batch(rows)?;
        let rescued = (!self.rescued.is_empty()).then(|| {
            let mut all = vec![None; rows];
            for (row, text) in self.rescued.drain(..) {
                all[row] = Some(text);
            }
            all
        });
        let (row_numbers, rejects) = (std::mem::take(&mut self.row_numbers), std::mem::take(&mut self.rejects));
        Ok(Chunk { columns, row_numbers, rescued, rejects })
    }
}

impl Decoder for JsonDecoder {
    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        loop {
            let scanned = self.scan()?;
            self.text.consume(scanned);
            if !self.row_numbers.is_empty() || !self.rejects.is_empty() {
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

#[cfg(test)]
mod tests;
