//! Rows as JSON.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use lake::Result;
use serde_json::Value;

use super::Text;
use super::value::json;

/// An array of objects, one object a line, keys in the order of the columns.
#[derive(Debug, Default)]
pub struct Json {
    names: Vec<String>,
    started: bool,
}

impl Text for Json {
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
