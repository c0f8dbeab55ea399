//! Rows of a result as text: a table for people, CSV, JSON.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use lake::Result;
use lake::report::counted;
use lake::report::grid::{Align, Grid};
use serde_json::Value;

use super::value::{json, plain};

/// Turns a stream of batches into text, piece by piece.
pub(crate) trait Sink {
    /// What comes before the rows.
    fn begin(&mut self, schema: &Schema) -> String;
    /// Some rows.
    ///
    /// # Errors
    /// [`lake::ErrorKind::Query`] when a value has no text.
    fn rows(&mut self, batch: &RecordBatch) -> Result<String>;
    /// What comes after the rows.
    fn end(&mut self) -> String;
}

/// Columns that line up; all text comes at the end.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<(String, Align, Vec<String>)>,
    rows: usize,
    /// The answer is a plan: text of many lines, which are its point.
    plan: bool,
}

/// RFC 4180 with `\n` at the end of lines: a null is nothing, an empty text is `""`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Csv;

/// An array of objects, one object a line, keys in the order of the columns.
#[derive(Debug, Default)]
pub(crate) struct Json {
    names: Vec<String>,
    started: bool,
}

// === impl Table ===

impl Sink for Table {
    fn begin(&mut self, schema: &Schema) -> String {
        let columns = schema.fields().iter().map(|field| {
            let align = if field.data_type().is_numeric() { Align::Right } else { Align::Left };
            (visible(field.name()), align, Vec::new())
        });
        self.columns = columns.collect();
        self.plan = schema.fields().iter().map(|field| field.name().as_str()).eq(["plan_type", "plan"]);
        String::new()
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<String> {
        if self.plan {
            return plan(batch);
        }
        for ((_, _, cells), column) in self.columns.iter_mut().zip(batch.columns()) {
            for row in 0..batch.num_rows() {
                cells.push(match json(column.as_ref(), row)? {
                    Value::Null => "NULL".to_owned(),
                    value => visible(&plain(&value)),
                });
            }
        }
        self.rows += batch.num_rows();
        Ok(String::new())
    }

    fn end(&mut self) -> String {
        if self.plan {
            return String::new();
        }
        let mut grid = Grid::new();
        for (name, align, cells) in self.columns.drain(..) {
            grid.column(&name, None, align, cells);
        }
        format!("{}\n{}\n", grid.render_ruled(), counted(self.rows, "row"))
    }
}

/// The plans of an EXPLAIN, one after the other.
fn plan(batch: &RecordBatch) -> Result<String> {
    let mut out = String::new();
    for row in 0..batch.num_rows() {
        let (name, plan) = (json(batch.column(0), row)?, json(batch.column(1), row)?);
        out.push_str(&format!("{}:\n", plain(&name).replace('_', " ")));
        out.extend(plain(&plan).lines().map(|line| format!("  {line}\n")));
    }
    Ok(out)
}

/// A cell stays on its line.
fn visible(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

// === impl Csv ===

impl Sink for Csv {
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

// === impl Json ===

impl Sink for Json {
    fn begin(&mut self, schema: &Schema) -> String {
        for field in schema.fields() {
            let same = self.names.iter().filter(|name| *name == field.name()).count();
            self.names.push(if same == 0 { field.name().clone() } else { format!("{}_{}", field.name(), same + 1) });
        }
        "[".to_owned()
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<String> {
        let mut out = String::new();
        for row in 0..batch.num_rows() {
            out.push_str(if self.started { ",\n" } else { "\n" });
            self.started = true;
            out.push('{');
            for (position, (name, column)) in self.names.iter().zip(batch.columns()).enumerate() {
                let comma = if position > 0 { "," } else { "" };
                let name = Value::String(name.clone());
                out.push_str(&format!("{comma}{name}:{}", json(column.as_ref(), row)?));
            }
            out.push('}');
        }
        Ok(out)
    }

    fn end(&mut self) -> String {
        let end = if self.started { "\n]\n" } else { "]\n" };
        end.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn batch() -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2_000), None]));
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some(""), None, Some("a, \"b\"\nc")]));
        RecordBatch::try_from_iter([("id", ids), ("name", names)]).expect("a batch")
    }

    fn text(mut sink: impl Sink, batches: &[RecordBatch]) -> String {
        let mut out = sink.begin(&batch().schema());
        for batch in batches {
            out.push_str(&sink.rows(batch).expect("text"));
        }
        out + &sink.end()
    }

    #[test]
    fn csv_tells_null_from_empty() {
        assert_eq!(text(Csv, &[batch()]), "id,name\n1,\"\"\n2000,\n,\"a, \"\"b\"\"\nc\"\n");
    }

    #[test]
    fn json_is_one_array_with_a_row_a_line() {
        let out = text(Json::default(), &[batch(), batch().slice(0, 1)]);
        assert_eq!(
            out,
            "[\n{\"id\":1,\"name\":\"\"},\n{\"id\":2000,\"name\":null},\n{\"id\":null,\"name\":\"a, \\\"b\\\"\\nc\"},\n\
             {\"id\":1,\"name\":\"\"}\n]\n"
        );
        assert_eq!(text(Json::default(), &[]), "[]\n");
    }

    #[test]
    fn a_plan_is_shown_as_it_is() {
        let column = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
        let batch = RecordBatch::try_from_iter([("plan_type", column("logical_plan")), ("plan", column("A\n  B\n"))]);
        let batch = batch.expect("a batch");
        let mut table = Table::default();
        let begin = table.begin(&batch.schema());
        assert_eq!(begin + &table.rows(&batch).expect("text") + &table.end(), "logical plan:\n  A\n    B\n");
    }

    #[test]
    fn a_table_lines_up_and_keeps_its_lines() {
        assert_eq!(
            text(Table::default(), &[batch()]),
            "  id  name\n----  ---------\n   1\n2000  NULL\nNULL  a, \"b\"\\nc\n\n3 rows\n"
        );
    }
}
