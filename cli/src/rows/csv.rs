//! Rows as CSV.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use lake::Result;
use serde_json::Value;

use super::Text;
use super::value::{json, plain};

/// RFC 4180 with `\n` at the end of lines: a null is nothing, an empty text is `""`.
#[derive(Debug, Clone, Copy)]
pub struct Csv;

impl Text for Csv {
    fn begin(&mut self, schema: &Schema) -> String {
        line(schema.fields().iter().map(|field| field_of(field.name())))
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<String> {
        let mut out = String::new();
        for row in 0..batch.num_rows() {
            let mut fields = Vec::with_capacity(batch.num_columns());
            for column in batch.columns() {
                fields.push(match json(column.as_ref(), row)? {
                    Value::Null => String::new(),
                    value => field_of(&plain(&value)),
                });
            }
            // A line with nothing on it would be no record.
            let bare = fields.len() == 1 && fields[0].is_empty();
            out.push_str(&if bare { "\n".to_owned() } else { line(fields.into_iter()) });
        }
        Ok(out)
    }

    fn end(&mut self) -> String {
        String::new()
    }
}

fn line(fields: impl Iterator<Item = String>) -> String {
    format!("{}\n", fields.collect::<Vec<_>>().join(","))
}

fn field_of(text: &str) -> String {
    match text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
