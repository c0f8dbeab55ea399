//! The names of a plan against the columns that the records have.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use lake::schema::ColumnType;
use lake::spec::did_you_mean;
use lake::{Error, Result, TableName, columns};

use crate::plan::{Columns, TablePlan, sequence_type_of};
use crate::sequence::SequenceType;

/// The columns of a table and where the records hold them.
#[derive(Debug)]
pub struct Resolved {
    columns: Vec<ColumnSource>,
    sequence: Vec<SequenceSource>,
    keys: Vec<usize>,
    target: SchemaRef,
    rows: SchemaRef,
    missing: Vec<String>,
}

/// One column of the table.
#[derive(Debug)]
pub(super) struct ColumnSource {
    pub(super) name: String,
    pub(super) kind: ColumnType,
    pub(super) nullable: bool,
    /// Its place in the records; `None` when they do not have it.
    position: Option<usize>,
}

/// One part of the sequence.
#[derive(Debug)]
pub(super) struct SequenceSource {
    pub(super) column: ColumnSource,
    pub(super) kind: SequenceType,
}

impl ColumnSource {
    /// The values of a batch.
    pub(super) fn of(&self, batch: &RecordBatch) -> ArrayRef {
        match self.position {
            Some(position) => Arc::clone(batch.column(position)),
            None => new_null_array(&DataType::Utf8, batch.num_rows()),
        }
    }
}

impl Resolved {
    /// Finds the columns of a plan in the records of a bronze table.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when a key or a part of the sequence is not there, or a column has
    /// a type that silver cannot hold.
    pub fn new(plan: &TablePlan, bronze: &SchemaRef) -> Result<Self> {
        let source_name = TableName::bronze(&plan.source);
        let finder = Finder { bronze, source_name: &source_name };
        let columns = match &plan.columns {
            Columns::Declared(declared) => declared
                .iter()
                .map(|plan| {
                    let (name, kind) = (plan.column.name.clone(), plan.column.kind);
                    let position = find(bronze, &plan.source);
                    ColumnSource { name, kind, nullable: plan.column.nullable, position }
                })
                .collect(),
            Columns::Listed(names) => names.iter().map(|name| finder.listed(name)).collect::<Result<Vec<_>>>()?,
        };
        let keys = plan.keys.iter().filter_map(|key| columns.iter().position(|column| &column.name == key));
        let keys: Vec<usize> = keys.collect();
        for key in &keys {
            if columns[*key].position.is_none() {
                return Err(finder.absent(&columns[*key].name, "key"));
            }
        }
        let sequence = plan.sequence.iter().map(|part| finder.sequence(&part.source, part.kind));
        let sequence = sequence.collect::<Result<Vec<_>>>()?;
        let missing = columns.iter().filter(|column| column.position.is_none());
        let missing = missing.map(|column| finder.describe(&column.name)).collect();
        let target = target(&columns, &sequence);
        let nullable = target.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let rows = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        Ok(Self { columns, sequence, keys, target, rows, missing })
    }

    pub(super) fn columns(&self) -> &[ColumnSource] {
        &self.columns
    }

    pub(super) fn sequence(&self) -> &[SequenceSource] {
        &self.sequence
    }

    /// The places of the key columns among the columns of the table.
    pub(super) fn key_positions(&self) -> &[usize] {
        &self.keys
    }

    /// The schema of the silver table.
    pub fn target(&self) -> SchemaRef {
        Arc::clone(&self.target)
    }

    /// The same columns, all nullable: a row before it is checked, and a delete that has only its key.
    pub(super) fn rows(&self) -> SchemaRef {
        Arc::clone(&self.rows)
    }

    /// Columns that the records do not have yet, with the nearest name that they have.
    pub(super) fn missing(&self) -> &[String] {
        &self.missing
    }
}

/// The place of a column: by its exact name, else without regard to case.
pub(crate) fn find(schema: &Schema, name: &str) -> Option<usize> {
    let exact = schema.fields().iter().position(|field| field.name() == name);
    exact.or_else(|| schema.fields().iter().position(|field| field.name().eq_ignore_ascii_case(name)))
}

fn target(columns: &[ColumnSource], sequence: &[SequenceSource]) -> SchemaRef {
    let own = columns.iter().map(|column| Field::new(&column.name, column.kind.arrow(), column.nullable));
    let parts = sequence.iter().enumerate();
    let parts = parts.map(|(number, part)| Field::new(columns::sequence(number), part.kind.arrow(), true));
    let batch = Field::new(columns::BATCH_ID, DataType::Int64, false);
    Arc::new(Schema::new(own.chain(parts).chain([batch]).collect::<Vec<_>>()))
}

struct Finder<'a> {
    bronze: &'a SchemaRef,
    source_name: &'a TableName,
}

impl Finder<'_> {
    fn listed(&self, name: &str) -> Result<ColumnSource> {
        let position = find(self.bronze, name);
        let kind = match position {
            Some(position) => self.kind(position)?,
            None => ColumnType::String,
        };
        Ok(ColumnSource { name: name.to_owned(), kind, nullable: true, position })
    }

    fn sequence(&self, source: &str, kind: Option<SequenceType>) -> Result<SequenceSource> {
        let position = find(self.bronze, source).ok_or_else(|| self.absent(source, "sequence column"))?;
        let held = self.kind(position)?;
        let kind = match kind.or_else(|| sequence_type_of(held)) {
            Some(kind) => kind,
            None => {
                return Err(Error::spec(format!(
                    "`{source}` of {} cannot order changes: it is {held}",
                    self.source_name
                )));
            }
        };
        let column = ColumnSource { name: source.to_owned(), kind: held, nullable: true, position: Some(position) };
        Ok(SequenceSource { column, kind })
    }

    fn kind(&self, position: usize) -> Result<ColumnType> {
        let field = self.bronze.field(position);
        ColumnType::of(field.data_type()).ok_or_else(|| {
            Error::spec(format!(
                "column `{}` of {} is {}, which silver cannot take",
                field.name(),
                self.source_name,
                field.data_type()
            ))
            .hint("declare it in `columns` with a type")
        })
    }

    fn absent(&self, name: &str, what: &str) -> Error {
        let error = Error::spec(format!("{} has no column `{name}`, the {what} of the table", self.source_name));
        match did_you_mean(name, self.known()) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    fn describe(&self, name: &str) -> String {
        match did_you_mean(name, self.known()) {
            Some(hint) => format!("`{name}` ({hint})"),
            None => format!("`{name}`"),
        }
    }

    fn known(&self) -> impl Iterator<Item = &str> {
        self.bronze.fields().iter().map(|field| field.name().as_str()).filter(|name| !columns::is_technical(name))
    }
}
