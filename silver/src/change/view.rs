//! Where the values of a record are: in the columns of bronze, or in JSON objects inside of them. Values inside become
//! columns of text beside those of bronze, so that whoever reads a value needs to know its column only.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use lake::schema::ColumnType;
use lake::spec::did_you_mean;
use lake::{Error, Result, TableName, columns};
use serde_json::value::RawValue;

use super::inline::{InlineSchema, variable_decimal};
use super::json::{Object, text_of};
use super::resolve::find;
use crate::plan::{Columns, Operation, Paths, TablePlan};
use crate::written::Written;

/// The columns of records: those of bronze first, then those of the values inside.
pub(super) struct View {
    bronze: SchemaRef,
    schema: SchemaRef,
    /// Values of the record around the row.
    of_record: Vec<Inside>,
    /// Values of the row, where it is inside of a column.
    of_row: Vec<Inside>,
    is_wrapped: bool,
    /// Columns that hold the record, where they hold an object.
    unwrap: Vec<usize>,
    /// The column that must be there for that.
    beside: Option<usize>,
    paths: Paths,
    /// The column that rows are said to be in, when it is not there.
    missing_row: Option<String>,
    /// The column of an inline schema.
    inline: Option<usize>,
    /// Columns that objects are looked for in, by the first names of paths.
    around: Vec<String>,
    /// The end of the name of a member that says of another that it is not there.
    says_missing: Option<&'static str>,
}

/// A value inside of a column.
struct Inside {
    path: String,
    /// Whether the producer may say beside it how it is written.
    is_plain: bool,
    is_decimal: bool,
    is_binary: bool,
    /// Whether it is written as base64, which no JSON number is.
    is_base64: bool,
}

impl Inside {
    fn text(path: &str) -> Self {
        Self { path: path.to_owned(), is_plain: false, is_decimal: false, is_binary: false, is_base64: false }
    }
}

/// The columns of a batch that values are inside of, as text.
pub(super) struct Texts(Vec<Option<StringArray>>);

/// Records of a batch, taken apart as far as it is needed.
pub(super) struct Viewed<'t> {
    view: &'t View,
    texts: &'t Texts,
    records: Vec<Record<'t>>,
}

struct Record<'t> {
    record: Option<Object<'t>>,
    around: Vec<Option<Object<'t>>>,
    row: Option<Object<'t>>,
    before: Option<Object<'t>>,
    delete_row: Option<Object<'t>>,
}

/// Columns of values inside, and those that cannot be read: row, path, reason.
#[derive(Default)]
pub(super) struct Read {
    pub(super) columns: Vec<ArrayRef>,
    pub(super) bad: Vec<(usize, String, String)>,
}

#[derive(Clone, Copy)]
enum Leaf<'t> {
    Json(&'t RawValue),
    Text(&'t str),
}

impl View {
    /// The view of a plan on the records of a bronze table.
    pub(super) fn new(plan: &TablePlan, bronze: &SchemaRef) -> Self {
        let beside = plan.options.unwrap_beside.and_then(|name| find(bronze, name));
        let unwraps = beside.is_some() || plan.options.unwrap_beside.is_none();
        let unwrap = plan.options.unwrap.iter().filter_map(|name| find(bronze, name));
        let unwrap: Vec<usize> = unwrap.filter(|_| unwraps).collect();
        let is_wrapped = plan.paths.row.is_some() || !unwrap.is_empty();
        let lacks =
            |row: &String| unwrap.is_empty() && find(bronze, row).or_else(|| find(bronze, first(row))).is_none();
        let missing_row = plan.paths.row.clone().filter(lacks);
        let (mut of_record, mut of_row) = (of_record(plan), of_row(plan));
        if !is_wrapped {
            of_record.append(&mut of_row);
            of_record.retain(|inside| inside.path.contains('.') && find(bronze, first(&inside.path)).is_some());
        }
        let mut around: Vec<String> = Vec::new();
        for name in of_record.iter().chain(&of_row).filter(|inside| inside.path.contains('.')) {
            let name = first(&name.path);
            if !around.iter().any(|known| known == name) {
                around.push(name.to_owned());
            }
        }
        let inside = of_record.iter().chain(&of_row).map(|inside| Field::new(&inside.path, DataType::Utf8, true));
        let fields = bronze.fields().iter().map(|field| field.as_ref().clone()).chain(inside);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let inline = plan.options.inline_schema.and_then(|name| find(bronze, name));
        let paths = plan.paths.clone();
        let bronze = Arc::clone(bronze);
        let says_missing = plan.options.says_missing;
        Self {
            bronze,
            schema,
            of_record,
            of_row,
            is_wrapped,
            unwrap,
            beside,
            paths,
            missing_row,
            inline,
            around,
            says_missing,
        }
    }

    /// Fails when the column that holds the rows is not there: for records that need it. A source may begin with truncates.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) then.
    pub(super) fn needs_row(&self, plan: &TablePlan) -> Result<()> {
        self.missing_row.as_ref().map_or(Ok(()), |row| Err(no_row(plan, &self.bronze, row)))
    }

    /// The columns of bronze.
    pub(super) fn bronze(&self) -> &SchemaRef {
        &self.bronze
    }

    /// All columns, with those of bronze in their places.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The place of a value of the record around the row.
    pub(super) fn record(&self, name: &str) -> Option<usize> {
        // What a record does not have by its path it may have by its name: that is asked of each record.
        let inside = self.of_record.iter().position(|inside| inside.path == name);
        let inside = inside.map(|inside| self.bronze.fields().len() + inside);
        inside.or_else(|| if self.is_wrapped { None } else { find(&self.bronze, name) })
    }

    /// The place of a value of the row.
    pub(super) fn row(&self, name: &str) -> Option<usize> {
        if !self.is_wrapped {
            return self.record(name);
        }
        let inside = self.of_row.iter().position(|inside| inside.path == name)?;
        Some(self.bronze.fields().len() + self.of_record.len() + inside)
    }

    /// The columns of a batch that values are inside of.
    ///
    /// # Errors
    /// When a column cannot be written as text.
    pub(super) fn texts(&self, batch: &RecordBatch) -> Result<Texts> {
        if self.of_record.is_empty() && !self.is_wrapped {
            return Ok(Texts(Vec::new()));
        }
        let texts = self.bronze.fields().iter().zip(batch.columns()).map(|(field, column)| {
            if columns::is_technical(field.name()) {
                return Ok(None);
            }
            Ok(Some(cast(column, &DataType::Utf8)?.as_string::<i32>().clone()))
        });
        Ok(Texts(texts.collect::<Result<_>>()?))
    }

    /// Takes the records of a batch apart.
    pub(super) fn of<'t>(&'t self, texts: &'t Texts, rows: usize) -> Viewed<'t> {
        let records =
            if texts.0.is_empty() { Vec::new() } else { (0..rows).map(|row| self.take(texts, row)).collect() };
        Viewed { view: self, texts, records }
    }

    fn take<'t>(&'t self, texts: &'t Texts, row: usize) -> Record<'t> {
        let unwraps = self.beside.is_none_or(|column| texts.value(column, row).is_some());
        let unwrap = self.unwrap.iter().filter(|_| unwraps);
        let record = unwrap.into_iter().find_map(|column| Object::read(texts.value(*column, row)?));
        let top = |name: &str| self.top(record.as_ref(), texts, row, name);
        let object = |name: &str| Object::read(top(name)?.as_json()?);
        let around: Vec<Option<Object<'t>>> = self.around.iter().map(|name| object(name)).collect();
        let at = |path: &Option<String>| {
            let path = path.as_deref()?;
            object(path).or_else(|| {
                let (first, rest) = path.split_once('.')?;
                Object::read(object(first)?.walk(rest)?.get())
            })
        };
        let (row, before, delete_row) = (at(&self.paths.row), at(&self.paths.before), at(&self.paths.delete_row));
        Record { record, around, row, before, delete_row }
    }

    fn top<'t>(&self, record: Option<&Object<'t>>, texts: &'t Texts, row: usize, name: &str) -> Option<Leaf<'t>> {
        let inside = record.and_then(|record| record.get(name)).map(Leaf::Json);
        inside.or_else(|| texts.value(find(&self.bronze, name)?, row).map(Leaf::Text))
    }
}

impl Texts {
    fn value(&self, column: usize, row: usize) -> Option<&str> {
        let column = self.0.get(column)?.as_ref()?;
        column.is_valid(row).then(|| column.value(row))
    }
}

impl<'t> Viewed<'t> {
    /// The values of the records around the rows, in the order of their places.
    pub(super) fn record_columns(&self) -> Read {
        let value = |inside: &Inside, row: usize| {
            let record = &self.records[row];
            let found = self.around_row(record, row, &inside.path);
            let found = found
                .or_else(|| record.row.as_ref().or(record.delete_row.as_ref())?.walk(&inside.path).map(Leaf::Json));
            found.map_or(Ok(None), Leaf::text)
        };
        self.read(&self.view.of_record, value)
    }

    /// The values of the rows, in the order of their places; a delete may have them elsewhere.
    pub(super) fn row_columns(&self, is_delete: impl Fn(usize) -> bool) -> Read {
        let schemas = self.schemas();
        let sections = [self.sections(false), self.sections(true)];
        let value = |inside: &Inside, row: usize| {
            let record = &self.records[row];
            let deletes = is_delete(row);
            let found = match (self.view.paths.row.is_some(), deletes) {
                (false, _) => self.around_row(record, row, &inside.path),
                (true, true) => {
                    self.in_row(record, record.delete_row.as_ref().or(record.row.as_ref()), row, &inside.path)
                }
                (true, false) => self.in_row(record, record.row.as_ref(), row, &inside.path),
            };
            let Some(found) = found else { return Ok(None) };
            if let (Leaf::Json(value), true) = (found, inside.is_base64)
                && !value.get().starts_with(['"', 'n'])
            {
                // A delete needs its key only.
                let reason = format!("`{}` is no text, and the base64 of a number is one", value.get());
                return if deletes { Ok(None) } else { Err(reason) };
            }
            if let (Leaf::Json(value), true) = (found, inside.is_plain) {
                let schema = schemas.as_ref().map(|schemas| &schemas[row]);
                if let Some(schema) = schema.filter(|_| inside.is_binary)
                    && let Some(bytes) = schema.bytes(&sections[usize::from(deletes)], &inside.path, value)
                {
                    return Ok(Some(Cow::Owned(bytes)));
                }
                let said = schema.and_then(|schema| schema.text(&sections[usize::from(deletes)], &inside.path, value));
                let said = said.or_else(|| if inside.is_decimal { variable_decimal(value) } else { None });
                if let Some(text) = said {
                    return Ok(Some(Cow::Owned(text)));
                }
            }
            found.text()
        };
        self.read(&self.view.of_row, value)
    }

    /// Whether a value of the row is not there at all; null is. In columns of their own the two are alike.
    pub(super) fn is_absent(&self, row: usize, path: &str) -> bool {
        let Some(record) = self.records.get(row).filter(|_| self.view.is_wrapped) else { return true };
        let values = record.row.as_ref();
        let says_so = format!("{path}{}", self.view.says_missing.unwrap_or_default());
        let is_missing = self.view.says_missing.is_some()
            && values.and_then(|values| values.get(&says_so)).is_some_and(|value| value.get() == "true");
        let found = match self.view.paths.row.is_some() {
            true => self.in_row(record, values, row, path),
            false => self.around_row(record, row, path),
        };
        is_missing || found.is_none()
    }

    /// Whether a record has new values at all, where they are inside of it.
    pub(super) fn has_row(&self, row: usize) -> bool {
        self.view.paths.row.is_none() || self.records[row].row.is_some()
    }

    /// Whether records say beside themselves how their values are written.
    pub(super) fn has_schemas(&self) -> bool {
        self.view.inline.is_some()
    }

    /// A key that comes twice in an object that values of a record are read from.
    pub(super) fn repeated(&self, row: usize) -> Option<&str> {
        let Record { record, around, row, before, delete_row } = self.records.get(row)?;
        let objects = [record, row, before, delete_row].into_iter().chain(around);
        objects.flatten().find_map(Object::repeated)
    }

    /// Whether a record says nothing: no values, neither new nor old, and nothing around them.
    pub(super) fn is_tombstone(&self, row: usize) -> bool {
        let Some(record) = self.records.get(row).filter(|_| self.view.is_wrapped) else { return false };
        let others = || (0..self.texts.0.len()).filter(|column| Some(*column) != self.view.inline);
        record.row.is_none()
            && record.before.is_none()
            && others().all(|column| self.texts.value(column, row).is_none())
    }

    /// The old values of some columns of the row: `None` where the record does not have them, or has no old values.
    pub(super) fn old(&self, row: usize, name: &str) -> Option<Option<Cow<'t, str>>> {
        let before = self.records.get(row)?.before.as_ref()?;
        let is_missing = self.view.says_missing.and_then(|ending| before.get(&format!("{name}{ending}")));
        if is_missing.is_some_and(|value| value.get() == "true") {
            return None;
        }
        text_of(before.walk(name)?).ok()
    }

    fn read(
        &self,
        all: &[Inside],
        value: impl Fn(&Inside, usize) -> std::result::Result<Option<Cow<'t, str>>, String>,
    ) -> Read {
        let mut read = Read::default();
        for inside in all {
            let mut column = StringBuilder::new();
            for row in 0..self.records.len() {
                match value(inside, row) {
                    Ok(value) => column.append_option(value),
                    Err(reason) => {
                        column.append_null();
                        read.bad.push((row, inside.path.clone(), reason));
                    }
                }
            }
            read.columns.push(Arc::new(column.finish()));
        }
        read
    }

    /// A value of the record: by its name, else by its path.
    fn around_row(&self, record: &Record<'t>, row: usize, path: &str) -> Option<Leaf<'t>> {
        if let Some(found) = self.view.top(record.record.as_ref(), self.texts, row, path) {
            return Some(found);
        }
        let (first, rest) = path.split_once('.')?;
        let place = self.view.around.iter().position(|name| name == first)?;
        record.around[place].as_ref()?.walk(rest).map(Leaf::Json)
    }

    /// A value of the row; a path that it does not have is one of the record.
    fn in_row(&self, record: &Record<'t>, values: Option<&Object<'t>>, row: usize, path: &str) -> Option<Leaf<'t>> {
        let found = values?.walk(path).map(Leaf::Json);
        found.or_else(|| if path.contains('.') { self.around_row(record, row, path) } else { None })
    }

    /// The inline schema of every record; those that are alike are read once.
    fn schemas(&self) -> Option<Vec<Arc<InlineSchema>>> {
        let column = self.view.inline?;
        let none = Arc::new(InlineSchema::default());
        let mut last: (&str, Arc<InlineSchema>) = ("", Arc::clone(&none));
        let schema = |row: usize| match self.texts.value(column, row) {
            None => Arc::clone(&none),
            Some(text) => {
                if text != last.0 {
                    last = (text, Arc::new(InlineSchema::read(text)));
                }
                Arc::clone(&last.1)
            }
        };
        Some((0..self.records.len()).map(schema).collect())
    }

    /// The structs of an inline schema that say something about the values of a row.
    fn sections(&self, is_delete: bool) -> Vec<&str> {
        let last = |path: &'t Option<String>| path.as_deref().map(|path| path.rsplit('.').next().unwrap_or(path));
        let Paths { row, delete_row, .. } = &self.view.paths;
        match (last(row), last(delete_row)) {
            (None, _) => vec![""],
            (Some(row), Some(delete_row)) if is_delete => vec![delete_row, row],
            (Some(row), _) => vec![row],
        }
    }
}

impl<'t> Leaf<'t> {
    fn text(self) -> std::result::Result<Option<Cow<'t, str>>, String> {
        match self {
            Self::Json(value) => text_of(value),
            Self::Text(text) => Ok(Some(Cow::Borrowed(text))),
        }
    }

    /// The value as JSON, where it may be an object.
    fn as_json(self) -> Option<&'t str> {
        match self {
            Self::Json(value) => Some(value.get()),
            Self::Text(text) => Some(text),
        }
    }
}

/// What a plan needs of the record around the row.
fn of_record(plan: &TablePlan) -> Vec<Inside> {
    let operation = match &plan.operation {
        Operation::Column(op) => vec![op.column.as_str()],
        Operation::Flag(flag) => vec![flag.column.as_str()],
        Operation::Either(op, flag) => vec![op.column.as_str(), flag.column.as_str()],
        Operation::Upsert | Operation::Condition(_) => Vec::new(),
    };
    let sequence = plan.sequence.iter().filter(|part| !part.of_row).map(|part| part.source.as_str());
    operation.into_iter().chain(sequence).map(Inside::text).collect()
}

/// What a plan needs of the row.
fn of_row(plan: &TablePlan) -> Vec<Inside> {
    let has_inline = plan.options.inline_schema.is_some();
    let as_text = |name: &str| Inside { is_plain: has_inline, ..Inside::text(name) };
    let is_made = |name: &str| plan.select.iter().any(|made| made.name == name);
    let mut inside: Vec<Inside> = match &plan.columns {
        Columns::Listed(names) => names.iter().filter(|name| !is_made(name)).map(|name| as_text(name)).collect(),
        Columns::Declared(declared) => declared
            .iter()
            .filter(|plan| !is_made(&plan.column.name))
            .map(|plan| Inside {
                path: plan.source.clone(),
                is_plain: has_inline && matches!(plan.written, Written::Plain),
                is_decimal: has_inline && matches!(plan.column.kind, ColumnType::Decimal(..)),
                is_binary: has_inline && plan.column.kind == ColumnType::Binary,
                is_base64: matches!(plan.written, Written::Base64Decimal),
            })
            .collect(),
    };
    for name in plan.select.iter().flat_map(|made| made.expression.names()) {
        if !inside.iter().any(|known| known.path == *name) {
            inside.push(as_text(name));
        }
    }
    inside
}

fn first(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn no_row(plan: &TablePlan, bronze: &SchemaRef, row: &str) -> Error {
    let source = TableName::bronze(&plan.source);
    let message = format!("{source} has no column `{row}`, where the new values of {} are", plan.table);
    let known = bronze.fields().iter().map(|field| field.name().as_str()).filter(|name| !columns::is_technical(name));
    let error = Error::spec(message);
    match did_you_mean(first(row), known) {
        Some(hint) => error.hint(hint),
        None => error.hint("where the record itself is the row, another preset fits"),
    }
}
