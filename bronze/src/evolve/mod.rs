//! The data columns of the table and those of a file: matched by name, new ones added, values made to fit.
//!
//! A table column keeps its first spelling and its first type for ever. A value of another type joins it when it comes
//! through the change unharmed, and goes to the rescued data when it does not. What becomes of a column that the table
//! does not have, the source's `schema_evolution_mode` says; the first batch of a table always brings its columns.

mod fit;
mod headers;
mod notes;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{Field, FieldRef, Schema};
use chrono_tz::Tz;
use lake::schema::{Column, type_name};
use lake::{Error, ErrorKind, Result, TableName, columns};

use self::fit::{fit, rescue};
pub(crate) use self::fit::{rescued_text, with_member};
pub use self::headers::Headers;
pub(crate) use self::headers::delimiter_in;
pub use self::notes::FileNote;
use crate::decode::{COLUMNS_MAX, folded, refused};
use crate::spec::SchemaEvolutionMode;

/// What a source wants of the columns of its table.
#[derive(Debug, Clone)]
pub struct SchemaRules {
    /// What becomes of columns that the table does not have.
    pub mode: SchemaEvolutionMode,
    /// Columns that are made in a type of the spec, with or without a file that has them.
    pub hints: Vec<Column>,
    /// The zone of text timestamps without an offset that become typed ones.
    pub zone: Tz,
}

impl Default for SchemaRules {
    fn default() -> Self {
        Self { mode: SchemaEvolutionMode::default(), hints: Vec::new(), zone: Tz::UTC }
    }
}

/// The data columns of a table, as they grow with the files of a batch.
#[derive(Debug, Clone, Default)]
pub struct Evolution {
    fields: Vec<FieldRef>,
    by_name: HashMap<String, usize>,
    rules: SchemaRules,
    /// Columns whose type the spec names, by the folded name.
    hinted: HashMap<String, Column>,
    /// True when columns that are new do not join: the table has columns, and the mode is not to add any.
    closed: bool,
}

/// What was seen of a file whose rows are placed.
#[derive(Debug, Clone, Default)]
pub struct FileColumns {
    /// Which of the columns that were there before the file it has.
    seen: Vec<bool>,
    /// Columns of the file that were not in the table.
    new: Vec<String>,
}

/// JSON objects by row: what a row had that its columns cannot hold.
pub type Rescued = Option<Vec<Option<String>>>;

impl Evolution {
    /// The data columns of a table with this schema, to which every new column joins.
    pub fn of(schema: &Schema) -> Self {
        let mut evolution = Self::default();
        for field in schema.fields().iter().filter(|field| !columns::is_technical(field.name())) {
            evolution.add(Arc::clone(field));
        }
        evolution
    }

    /// The data columns of a table with this schema, then those that the rules name and the table lacks.
    pub fn with_rules(schema: &Schema, rules: &SchemaRules) -> Self {
        let mut evolution = Self::of(schema);
        evolution.closed = rules.mode != SchemaEvolutionMode::AddNewColumns && !evolution.fields.is_empty();
        evolution.rules = rules.clone();
        for hint in &rules.hints {
            if !evolution.by_name.contains_key(&folded(&hint.name)) {
                evolution.add(Arc::new(hint.field()));
            }
            evolution.hinted.insert(folded(&hint.name), hint.clone());
        }
        evolution
    }

    /// The data columns so far: those of the table, then new ones in the order in which they appeared.
    pub fn fields(&self) -> &[FieldRef] {
        &self.fields
    }

    /// Starts a file.
    pub fn begin_file(&self) -> FileColumns {
        let known = self.fields.len();
        FileColumns { seen: vec![false; known], new: Vec::new() }
    }

    /// What is worth a note of a file whose rows were placed.
    pub fn note(&self, file: &FileColumns) -> Option<FileNote> {
        // A column that the spec names is there whether files have it or not.
        let gone = self.fields.iter().zip(&file.seen).filter(|(field, seen)| !**seen && !self.is_hinted(field));
        let gone = gone.map(|(field, _)| field.name().clone());
        FileNote::of(self.closed.then_some(self.rules.mode), gone.collect(), file.new.clone())
    }

    /// The columns of some rows of a file, one for each of [`fields`](Evolution::fields) after the call. What does not
    /// fit is null and goes to `rescued`.
    ///
    /// # Errors
    /// [`ErrorKind::File`] when the file has a column that may not join, [`ErrorKind::Internal`] when a value cannot be
    /// rendered.
    pub fn place(
        &mut self,
        file: &mut FileColumns,
        batch: &RecordBatch,
        rescued: &mut Rescued,
    ) -> Result<Vec<ArrayRef>> {
        let mut placed: Vec<Option<ArrayRef>> = vec![None; self.fields.len()];
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let Some(index) = self.column_of(file, field, column, rescued)? else { continue };
            placed.resize(self.fields.len(), None);
            let target = &self.fields[index];
            let hinted = self.is_hinted(target).then_some(self.rules.zone);
            placed[index] = Some(fit(column, target, hinted, rescued)?);
        }
        let rows = batch.num_rows();
        let absent = |field: &FieldRef| new_null_array(field.data_type(), rows);
        Ok(placed
            .into_iter()
            .chain(std::iter::repeat(None))
            .zip(&self.fields)
            .map(|(column, field)| column.unwrap_or_else(|| absent(field)))
            .collect())
    }

    /// The column of the table for a column of the file; `None` when it does not join.
    fn column_of(
        &mut self,
        file: &mut FileColumns,
        field: &Field,
        column: &ArrayRef,
        rescued: &mut Rescued,
    ) -> Result<Option<usize>> {
        if let Some(index) = self.by_name.get(&folded(field.name())).copied() {
            if let Some(seen) = file.seen.get_mut(index) {
                *seen = true;
            }
            return Ok(Some(index));
        }
        if !file.new.iter().any(|name| name == field.name()) {
            file.new.push(field.name().clone());
        }
        if !self.closed && self.fields.len() >= COLUMNS_MAX {
            return Err(too_many(field.name()));
        }
        if !self.closed {
            return Ok(Some(self.add(Arc::new(Field::new(field.name(), field.data_type().clone(), true)))));
        }
        match self.rules.mode {
            SchemaEvolutionMode::Rescue => rescue(column, field.name(), rescued)?,
            SchemaEvolutionMode::FailOnNewColumns => return Err(not_in_the_table(field.name())),
            SchemaEvolutionMode::AddNewColumns | SchemaEvolutionMode::None => {}
        }
        Ok(None)
    }

    fn is_hinted(&self, field: &Field) -> bool {
        self.hinted.contains_key(&folded(field.name()))
    }

    fn add(&mut self, field: FieldRef) -> usize {
        let index = self.fields.len();
        self.by_name.insert(folded(field.name()), index);
        self.fields.push(field);
        index
    }
}

/// Refuses hints that the table cannot follow any more: a column keeps the type that it was made with.
///
/// # Errors
/// [`ErrorKind::Table`] with the first such column.
pub fn check_hints(table: &TableName, schema: &Schema, rules: &SchemaRules) -> Result<()> {
    for hint in &rules.hints {
        let held = schema.fields().iter().find(|held| folded(held.name()) == folded(&hint.name));
        if let Some(held) = held.filter(|held| *held.data_type() != hint.kind.arrow()) {
            let message = format!(
                "column `{}` of {table} is {}, and `schema_hints` wants {}",
                held.name(),
                type_name(held.data_type()),
                hint.kind
            );
            return Err(Error::new(ErrorKind::Table, message).hint(
                "a column keeps its type: take the hint away, or delete the table's folder, and its files are read anew",
            ));
        }
    }
    Ok(())
}

fn too_many(name: &str) -> Error {
    refused(format!("with the column `{name}` the table would have more than {COLUMNS_MAX} columns"))
        .hint("keys that are really values (ids, dates) belong inside a nested object; `schema_evolution_mode: rescue` adds no columns")
}

fn not_in_the_table(name: &str) -> Error {
    refused(format!("the column `{name}` is not in the table, and `schema_evolution_mode` is `fail_on_new_columns`"))
        .hint("name it in `schema_hints` or change the mode, and take the file again with `bronze reingest`")
}

#[cfg(test)]
mod tests;
