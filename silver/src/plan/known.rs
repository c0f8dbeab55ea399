//! The columns of a table as far as the spec alone tells them, for those who plan before there is a table.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use lake::columns;

use super::{Columns, TablePlan};

impl TablePlan {
    /// The columns of the table, those that the program adds among them; `None` where some of them, or their types,
    /// depend on what the source brings.
    pub fn known_columns(&self) -> Option<SchemaRef> {
        let Columns::Declared(declared) = &self.columns else { return None };
        if self.joining.is_some() {
            return None;
        }
        let mut fields: Vec<Field> = declared.iter().map(|plan| plan.column.field()).collect();
        for (number, part) in self.sequence.iter().enumerate() {
            fields.push(Field::new(columns::sequence(number), part.kind?.arrow(), true));
        }
        if self.ranks_deletes() {
            fields.push(Field::new(columns::sequence(self.sequence.len()), DataType::Int32, true));
        }
        fields.push(Field::new(columns::BATCH_ID, DataType::Int64, false));
        fields.extend(self.partial_column().map(|name| Field::new(name, DataType::Utf8, true)));
        Some(self.kept.columns(&Arc::new(Schema::new(fields)), &self.sequence))
    }
}
