//! The spans of many records become columns, one column after the other.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::datatypes::SchemaRef;
use lake::Result;

use super::super::text::Taken;
use super::super::{CHUNK_ROWS_MAX, CHUNK_VALUES_MAX, Chunk, Reject, batch_of};
use super::dialect::{Dialect, EmptyIsNull};
use super::tokenizer::{Kind, Span, unescape};

/// Records of one text, as spans of it: always as many a record as there are columns.
#[derive(Default)]
pub(super) struct Rows {
    width: usize,
    spans: Vec<Span>,
    row_numbers: Vec<i64>,
    /// Fields beyond the columns: the row, then its spans.
    surplus: Vec<(usize, Vec<Span>)>,
}

impl Rows {
    /// Starts with so many columns.
    pub(super) fn begin(&mut self, width: usize) {
        self.width = width;
    }

    fn len(&self) -> usize {
        self.row_numbers.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.row_numbers.is_empty()
    }

    /// True when there are as many as one chunk has at most.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= CHUNK_ROWS_MAX || self.spans.len() >= CHUNK_VALUES_MAX
    }

    /// Adds a record.
    pub(super) fn push(&mut self, fields: &[Span], row_number: i64) {
        if fields.len() <= self.width {
            self.spans.extend_from_slice(fields);
            self.spans.extend(std::iter::repeat_n(Span::MISSING, self.width - fields.len()));
        } else {
            self.spans.extend_from_slice(&fields[..self.width]);
            self.surplus.push((self.len(), fields[self.width..].to_vec()));
        }
        self.row_numbers.push(row_number);
    }

    /// The records; afterwards there are none.
    pub(super) fn take(&mut self) -> Self {
        let fresh = Self {
            width: self.width,
            spans: Vec::with_capacity(self.spans.len()),
            row_numbers: Vec::with_capacity(self.row_numbers.len()),
            surplus: Vec::new(),
        };
        std::mem::replace(self, fresh)
    }

    fn column(&self, index: usize, text: &str, dialect: &Dialect) -> ArrayRef {
        let spans = || self.spans.chunks_exact(self.width).map(|record| &record[index]);
        let bytes = spans().map(|span| (span.end - span.start) as usize).sum();
        let mut builder = StringBuilder::with_capacity(self.len(), bytes);
        for span in spans() {
            append(&mut builder, span, text, dialect);
        }
        Arc::new(builder.finish())
    }

    /// What each row has beyond its columns, by 0-based position: `{"_c3":"x"}`. Nulls are left out.
    fn rescued(&self, text: &str, dialect: &Dialect) -> Option<Vec<Option<String>>> {
        if self.surplus.is_empty() {
            return None;
        }
        let mut rescued = vec![None; self.len()];
        for (row, spans) in &self.surplus {
            let mut object = serde_json::Map::new();
            for (offset, span) in spans.iter().enumerate() {
                if !is_null(span, text, dialect) {
                    let value = span.text(text, dialect).into_owned();
                    object.insert(format!("_c{}", self.width + offset), serde_json::Value::String(value));
                }
            }
            if !object.is_empty() {
                rescued[*row] = Some(serde_json::Value::Object(object).to_string());
            }
        }
        Some(rescued)
    }
}

/// Records that were found in a file and not yet taken apart.
pub struct Records {
    pub(super) text: Taken,
    pub(super) rows: Rows,
    pub(super) schema: SchemaRef,
    pub(super) dialect: Arc<Dialect>,
    pub(super) rejects: Vec<Reject>,
}

impl Records {
    /// Records that are not rows.
    pub(crate) fn rejects(&self) -> &[Reject] {
        &self.rejects
    }

    /// Takes the records apart: one array of text for each column.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when the columns do not make a batch.
    pub(crate) fn into_chunk(self) -> Result<Chunk> {
        let (text, rows, dialect) = (self.text.text(), self.rows, &self.dialect);
        let columns = (0..self.schema.fields().len()).map(|index| rows.column(index, text, dialect)).collect();
        let columns = batch_of(self.schema, columns, rows.len())?;
        let rescued = rows.rescued(text, dialect);
        Ok(Chunk { columns, row_numbers: rows.row_numbers, rescued, rejects: self.rejects })
    }
}

#[inline]
fn append(builder: &mut StringBuilder, span: &Span, text: &str, dialect: &Dialect) {
    if is_null(span, text, dialect) {
        return builder.append_null();
    }
    match (span.kind, dialect.quote) {
        (Kind::Escaped, Some(quote)) => {
            use std::fmt::Write;
            unescape(span.slice(text), quote, dialect.escape, |part| {
                // Writing to memory does not fail.
                let _ = builder.write_str(part);
            });
            builder.append_value("");
        }
        _ => builder.append_value(span.slice(text)),
    }
}

#[inline]
fn is_null(span: &Span, text: &str, dialect: &Dialect) -> bool {
    match span.kind {
        Kind::Missing => true,
        Kind::Bare => dialect.bare_is_null(span.slice(text)),
        Kind::Quoted => span.start == span.end && dialect.empty_is_null == EmptyIsNull::Always,
        Kind::Escaped => false,
    }
}
