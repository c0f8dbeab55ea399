//! The names of a plan against the columns that the records have.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, new_null_array};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema, SchemaRef};
use chrono_tz::Tz;
use lake::cast::{Cast, Rules};
use lake::schema::ColumnType;
use lake::spec::did_you_mean;
use lake::{Error, Result, TableName, columns};

use super::derived::Derived;
use super::notes::glued;
use super::view::View;
use crate::plan::{Columns, Operation, SequencePart, TablePlan, sequence_type_of};
use crate::sequence::{SequenceType, cast_sequence};
use crate::written::Written;

/// The columns of a table and where the records hold them.
#[derive(Debug)]
pub(super) struct Resolved {
    columns: Vec<ColumnSource>,
    sequence: Vec<SequenceSource>,
    keys: Vec<usize>,
    target: SchemaRef,
    rows: SchemaRef,
    missing: Vec<String>,
    joined: Vec<String>,
}

/// One column of the table.
#[derive(Debug)]
pub(super) struct ColumnSource {
    pub(super) name: String,
    pub(super) kind: ColumnType,
    pub(super) nullable: bool,
    /// Its place in the records; `None` when they do not have it.
    position: Option<usize>,
    /// Its name in the records.
    pub(super) source: String,
    /// Whether it is a key.
    is_key: bool,
    written: Written,
    zone: Tz,
}

/// One part of the sequence.
#[derive(Debug)]
pub(super) struct SequenceSource {
    pub(super) column: ColumnSource,
    pub(super) kind: SequenceType,
    /// Whether an expression makes it.
    pub(super) is_derived: bool,
}

impl ColumnSource {
    /// The values of records that have these columns.
    pub(super) fn of(&self, columns: &[ArrayRef], rows: usize) -> ArrayRef {
        match self.position {
            Some(position) => Arc::clone(&columns[position]),
            None => new_null_array(&DataType::Utf8, rows),
        }
    }

    /// Its place in the records, where they have it.
    pub(super) fn position(&self) -> Option<usize> {
        self.position
    }

    /// Whether the records have it.
    pub(super) fn is_there(&self) -> bool {
        self.position.is_some()
    }

    /// Values as the source writes them in the type of the column.
    pub(super) fn cast(&self, values: &ArrayRef) -> Cast {
        let mut cast = self.written.cast(values, self.kind, Rules { zone: self.zone });
        // 0 and -0 are one number, and so one key: added to 0, both are 0.
        match self.kind {
            ColumnType::Double if self.is_key => {
                let values = cast.array.as_primitive::<Float64Type>();
                cast.array = Arc::new(values.unary::<_, Float64Type>(|value| value + 0.0));
            }
            ColumnType::Float if self.is_key => {
                let values = cast.array.as_primitive::<Float32Type>();
                cast.array = Arc::new(values.unary::<_, Float32Type>(|value| value + 0.0));
            }
            _ => {}
        }
        cast
    }
}

impl SequenceSource {
    /// Values as the source writes them in the type in which they are compared.
    pub(super) fn cast(&self, values: &ArrayRef) -> Cast {
        let rules = Rules { zone: self.column.zone };
        match (&self.column.written, self.kind) {
            (written @ (Written::Format(_) | Written::Days | Written::Base64Decimal), SequenceType::Plain(kind)) => {
                written.cast(values, kind, rules)
            }
            _ => cast_sequence(values, self.kind, rules),
        }
    }
}

impl Resolved {
    /// Finds the columns of a plan in the records of a bronze table.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when a key or a part of the sequence is not there, or a column has
    /// a type that silver cannot hold.
    pub(super) fn new(plan: &TablePlan, view: &View, derived: &Derived) -> Result<Self> {
        let source_name = TableName::bronze(&plan.source);
        let finder = Finder { view, derived, source_name: &source_name, zone: plan.zone };
        let mut columns: Vec<ColumnSource> = match &plan.columns {
            Columns::Declared(declared) => declared
                .iter()
                .map(|plan| ColumnSource {
                    name: plan.column.name.clone(),
                    kind: plan.column.kind,
                    nullable: plan.column.nullable,
                    position: derived.place(&plan.column.name).or_else(|| view.row(&plan.source)),
                    source: plan.source.clone(),
                    is_key: false,
                    written: plan.written.clone(),
                    zone: plan.zone,
                })
                .collect(),
            Columns::Listed(names) => names.iter().map(|name| finder.listed(name)).collect::<Result<Vec<_>>>()?,
        };
        let joining = finder.joining(plan, &columns)?;
        let joined = joining.iter().map(|column| column.name.clone()).collect();
        columns.extend(joining);
        let keys = plan.keys.iter().filter_map(|key| columns.iter().position(|column| &column.name == key));
        let keys: Vec<usize> = keys.collect();
        for key in &keys {
            if columns[*key].position.is_none() {
                return Err(finder.absent(&columns[*key].name, "key"));
            }
            derived.check_there(&columns[*key].name, "key", view, &source_name)?;
            columns[*key].is_key = true;
        }
        let sequence = plan.sequence.iter().map(|part| finder.sequence(part));
        let sequence = sequence.collect::<Result<Vec<_>>>()?;
        let is_made = |name: &str| plan.generated.iter().any(|generated| generated.name == name);
        let missing = columns.iter().filter(|column| column.position.is_none() && !is_made(&column.name));
        let missing = missing.map(|column| finder.describe(&column.name)).chain(derived.missing(view)).collect();
        let target = target(&columns, &sequence, plan);
        let nullable = target.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let rows = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        Ok(Self { columns, sequence, keys, target, rows, missing, joined })
    }

    /// The columns of the source that joined without being declared.
    pub(super) fn joined(&self) -> &[String] {
        &self.joined
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
    pub(super) fn target(&self) -> SchemaRef {
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

fn target(columns: &[ColumnSource], sequence: &[SequenceSource], plan: &TablePlan) -> SchemaRef {
    let own = columns.iter().map(|column| Field::new(&column.name, column.kind.arrow(), column.nullable));
    let parts = sequence.iter().enumerate();
    let parts = parts.map(|(number, part)| Field::new(columns::sequence(number), part.kind.arrow(), true));
    let rank = Field::new(columns::sequence(sequence.len()), DataType::Int32, true);
    let rank = plan.ranks_deletes().then_some(rank);
    let batch = Field::new(columns::BATCH_ID, DataType::Int64, false);
    let set_at = plan.partial_column().map(|name| Field::new(name, DataType::Utf8, true));
    Arc::new(Schema::new(own.chain(parts).chain(rank).chain([batch]).chain(set_at).collect::<Vec<_>>()))
}

struct Finder<'a> {
    view: &'a View,
    derived: &'a Derived,
    source_name: &'a TableName,
    zone: Tz,
}

impl Finder<'_> {
    fn listed(&self, name: &str) -> Result<ColumnSource> {
        if let Some(made) = self.derived.of(name) {
            return Ok(self.column(name, made.kind(), self.derived.place(name)));
        }
        let position = self.view.row(name);
        let kind = match position {
            Some(position) => self.kind(position)?,
            None => ColumnType::String,
        };
        Ok(self.column(name, kind, position))
    }

    fn column(&self, name: &str, kind: ColumnType, position: Option<usize>) -> ColumnSource {
        let (name, source) = (name.to_owned(), name.to_owned());
        ColumnSource {
            name,
            kind,
            nullable: true,
            position,
            source,
            is_key: false,
            written: Written::Plain,
            zone: self.zone,
        }
    }

    /// The columns of the records that join the table without being declared.
    fn joining(&self, plan: &TablePlan, declared: &[ColumnSource]) -> Result<Vec<ColumnSource>> {
        let Some(excepted) = &plan.joining else { return Ok(Vec::new()) };
        let operation: Vec<&str> = match &plan.operation {
            Operation::Column(op) => vec![&op.column],
            Operation::Flag(flag) => vec![&flag.column],
            Operation::Either(op, flag) => vec![&op.column, &flag.column],
            Operation::Upsert | Operation::Condition(_) => Vec::new(),
        };
        let same = |left: &str, right: &str| left.eq_ignore_ascii_case(right);
        let stays_out = |name: &str| {
            columns::is_technical(name)
                || columns::is_reserved_in_silver(name)
                || plan.kept.reserves(name)
                || excepted.iter().any(|other| same(other, name))
                || operation.iter().any(|other| same(other, name))
                || plan.options.own.iter().any(|own| name.starts_with(own))
                || declared.iter().any(|column| same(&column.name, name) || same(&column.source, name))
        };
        let names = self.view.schema().fields().iter().enumerate();
        let names = names.filter(|(_, field)| !stays_out(field.name()));
        names.map(|(position, field)| Ok(self.column(field.name(), self.kind(position)?, Some(position)))).collect()
    }

    fn sequence(&self, part: &SequencePart) -> Result<SequenceSource> {
        let SequencePart { source, kind, written, zone, .. } = part;
        let made = self.derived.of(source).filter(|_| part.is_derived);
        let position = if part.of_row { self.view.row(source) } else { self.view.record(source) };
        let (held, position) = match (position, kind) {
            _ if let Some(made) = made => {
                self.derived.check_there(source, "sequence column", self.view, self.source_name)?;
                (made.kind(), self.derived.place(source))
            }
            (Some(position), _) => (self.kind(position)?, Some(position)),
            (None, Some(_)) if part.optional => (ColumnType::String, None),
            (None, _) => return Err(self.absent(source, "sequence column")),
        };
        let kind = match kind.or_else(|| sequence_type_of(held)) {
            Some(kind) => kind,
            None => {
                return Err(Error::spec(format!(
                    "`{source}` of {} cannot order changes: it is {held}",
                    self.source_name
                )));
            }
        };
        let column = self.column(source, held, position);
        let column = ColumnSource { written: written.clone(), zone: *zone, ..column };
        Ok(SequenceSource { column, kind, is_derived: part.is_derived })
    }

    fn kind(&self, position: usize) -> Result<ColumnType> {
        let field = self.view.schema().field(position);
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
        match glued(name, self.known(), self.source_name).or_else(|| did_you_mean(name, self.known())) {
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
        self.view
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .filter(|name| !columns::is_technical(name))
    }
}
