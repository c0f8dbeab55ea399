//! Rows as columns that line up, for people.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use lake::Result;
use lake::report::counted;
use lake::report::grid::{Align, Grid};
use serde_json::Value;

use super::Text;
use super::value::{json, plain};

/// Columns that line up; all text comes at the end.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<(String, Align, Vec<String>)>,
    rows: usize,
    /// The answer is a plan: text of many lines, which are its point.
    plan: bool,
}

impl Text for Table {
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
