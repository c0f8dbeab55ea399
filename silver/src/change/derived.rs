//! Columns that expressions make of a record: what they read, their values, and whether these were sent.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, nullif};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use lake::cast::Cast;
use lake::expression::{Scalar, Values};
use lake::schema::{ColumnType, type_name};
use lake::session::Session;
use lake::spec::did_you_mean;
use lake::{Context, Error, Result, TableName, columns};

use super::rescue::Restored;
use super::resolve::{ColumnSource, find};
use super::unsent::Unsent;
use super::view::{View, Viewed};
use super::{Decoder, Fate, record, reject};
use crate::plan::TablePlan;

/// The columns of a table that expressions make.
#[derive(Debug)]
pub(super) struct Derived {
    made: Vec<Made>,
    /// The place of the first of them in the records, behind the columns of the view.
    first: usize,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Made {
    name: String,
    scalar: Scalar,
    kind: ColumnType,
    inputs: Vec<Input>,
    schema: SchemaRef,
}

/// A column that an expression names.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) name: String,
    /// Its place in the records; `None` when they do not have it, and it is null.
    place: Option<usize>,
}

impl Derived {
    /// Makes the expressions of a plan ready for the records of a view.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when one does not fit them.
    pub(super) fn new(plan: &TablePlan, view: &View, session: &Session) -> Result<Self> {
        let made = plan.select.iter().map(|select| {
            let inputs = select.expression.names().iter().map(|name| Input {
                name: name.clone(),
                place: find(view.bronze(), name).filter(|_| columns::is_technical(name)).or_else(|| view.row(name)),
            });
            let inputs: Vec<Input> = inputs.collect();
            let fields = inputs.iter().map(|input| {
                let kind = input.place.map_or(DataType::Utf8, |place| view.schema().field(place).data_type().clone());
                Field::new(&input.name, kind, true)
            });
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let place = || format!("`select` of {}, column `{}`", plan.table, select.name);
            let scalar = select.expression.ready(&schema, session).context(place)?;
            let kind = ColumnType::of(scalar.kind()).unwrap_or(match scalar.kind() {
                DataType::Decimal256(..) => ColumnType::String,
                _ => ColumnType::Timestamp,
            });
            Ok(Made { name: select.name.clone(), scalar, kind, inputs, schema })
        });
        Ok(Self { made: made.collect::<Result<_>>()?, first: view.schema().fields().len() })
    }

    /// The column of this name, if an expression makes it.
    pub(super) fn of(&self, name: &str) -> Option<&Made> {
        self.made.iter().find(|made| made.name == name)
    }

    /// The place of a column in the records.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        Some(self.first + self.made.iter().position(|made| made.name == name)?)
    }

    /// The columns that expressions name and the records do not have, as notes about the columns that they make.
    pub(super) fn missing(&self, view: &View) -> Vec<String> {
        let named = self.made.iter().flat_map(|made| made.inputs.iter().map(move |input| (made, input)));
        let missing = named.filter(|(_, input)| input.place.is_none());
        missing
            .map(|(made, input)| {
                format!("`{}`{}, of which `select` makes `{}`,", input.name, nearest(view, &input.name), made.name)
            })
            .collect()
    }

    /// Refuses a key or a part of the sequence that is made of what the records do not have.
    pub(super) fn check_there(&self, name: &str, what: &str, view: &View, source: &TableName) -> Result<()> {
        let mut inputs = self.of(name).into_iter().flat_map(|made| &made.inputs);
        let Some(input) = inputs.find(|input| input.place.is_none()) else { return Ok(()) };
        let message = format!("{source} has no column `{}`, of which `select` makes the {what} `{name}`", input.name);
        let error = Error::spec(message);
        Err(match did_you_mean(&input.name, known(view)) {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }

    /// The values of all of them for records with the columns of the view.
    pub(super) fn values(&self, records: &[ArrayRef], rows: usize) -> Result<Vec<Values>> {
        self.made.iter().map(|made| made.values(rows, |input| input.of(records, rows))).collect()
    }
}

impl Derived {
    /// Adds the rows for which a column could not be computed to those whose value does not fit it.
    pub(super) fn add_failed(&self, name: &str, made: &[Values], cast: &mut Cast, counts: impl Fn(usize) -> bool) {
        let failed = self.failed(name, made).iter().filter(|(row, _)| counts(*row));
        cast.bad.extend(failed.map(|(row, reason)| (*row, format!("`select` cannot be computed: {reason}"))));
    }

    /// The rows for which a column could not be computed, rising; none if no expression makes it.
    fn failed<'a>(&self, name: &str, made: &'a [Values]) -> &'a [(usize, String)] {
        let number = self.made.iter().position(|made| made.name == name);
        number.map_or(&[], |number| &made[number].failed)
    }
}

impl Decoder {
    /// Notes for which records a column that an expression makes was not sent: those that do not have each of the columns
    /// that it names, and where null means not sent, those for which it is null.
    pub(super) fn made_without_unsent(
        &self,
        (number, column): (usize, &ColumnSource),
        values: ArrayRef,
        (records, made_values): (&[ArrayRef], &[Values]),
        (viewed, restored): (&Viewed<'_>, &Restored),
        fates: &mut [Fate],
        unsent: &mut Unsent,
    ) -> ArrayRef {
        let partial = &self.plan.partial;
        let Some(made) = self.derived.of(&column.name).filter(|_| partial.is_on() || !partial.placeholders.is_empty())
        else {
            return values;
        };
        let is_key = self.plan.keys.contains(&column.name);
        let is_bound = self.plan.is_bound(column.nullable);
        let is_absent = |row: usize, input: &Input| {
            let place = find(self.view.bronze(), &input.name);
            viewed.is_absent(row, &input.name) && !place.is_some_and(|place| restored.is_explicit_null(place, row))
        };
        let is_null = |row: usize, input: &Input| input.place.is_none_or(|place| records[place].is_null(row));
        let failed = self.derived.failed(&column.name, made_values);
        let has_failed = |row: usize| failed.binary_search_by_key(&row, |(row, _)| *row).is_ok();
        let mut is_unsent = vec![false; values.len()];
        for (row, fate) in fates.iter_mut().enumerate().take(values.len()) {
            if !matches!(fate, Fate::Upsert) {
                continue;
            }
            if let Some(text) = made.holds_one_of(&partial.placeholders, records, row) {
                if is_key || is_bound {
                    let what = if is_key { "is a key" } else { self.plan.why_bound() };
                    let reason =
                        format!("what `{}` is made of did not change and was not sent, and it {what}", column.name);
                    reject(fate, "unchanged", reason, Some(&column.name), Some(text));
                }
                is_unsent[row] = true;
            } else if !is_key && partial.is_on() {
                is_unsent[row] = match partial.null {
                    true => values.is_null(row) && !has_failed(row),
                    false => {
                        made.inputs().iter().any(|input| partial.absent && is_null(row, input) && is_absent(row, input))
                    }
                };
            }
            if is_unsent[row] {
                unsent.add(row, number);
            }
        }
        nullif(&values, &BooleanArray::from(is_unsent)).unwrap_or(values)
    }
}

impl Input {
    /// Its values.
    pub(super) fn of(&self, records: &[ArrayRef], rows: usize) -> ArrayRef {
        match self.place {
            Some(place) => Arc::clone(&records[place]),
            None => new_null_array(&DataType::Utf8, rows),
        }
    }
}

impl Made {
    /// The columns that it is made of.
    pub(super) fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The type of what the expression gives.
    pub(super) fn kind(&self) -> ColumnType {
        self.kind
    }

    /// The values of the expression over these columns.
    pub(super) fn values(&self, rows: usize, of: impl Fn(&Input) -> ArrayRef) -> Result<Values> {
        let mut unfit = Vec::new();
        let mut arrays = Vec::with_capacity(self.inputs.len());
        for (input, field) in self.inputs.iter().zip(self.schema.fields()) {
            let held = of(input);
            arrays.push(if held.data_type() == field.data_type() {
                held
            } else {
                // A typed column is text where bronze could not hold a value of it.
                let array = cast_with_options(&held, field.data_type(), &CastOptions::default())?;
                let lost = (0..rows).filter(|row| held.is_valid(*row) && array.is_null(*row));
                let kind = type_name(field.data_type());
                unfit.extend(
                    lost.map(|row| (row, format!("`{}` is not the {kind} that it is in other records", input.name))),
                );
                array
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?;
        let Values { array, mut failed } = self.scalar.values(&batch)?;
        if unfit.is_empty() {
            return Ok(Values { array, failed });
        }
        failed.retain(|(row, _)| !unfit.iter().any(|(other, _)| other == row));
        failed.extend(unfit);
        failed.sort();
        failed.dedup_by_key(|(row, _)| *row);
        let is_lost: BooleanArray =
            (0..rows).map(|row| Some(failed.binary_search_by_key(&row, |(row, _)| *row).is_ok())).collect();
        Ok(Values { array: nullif(&array, &is_lost)?, failed })
    }

    /// What it was made of in one record, for people: the value of its only column, or each with its name.
    pub(super) fn told(&self, records: &[ArrayRef], row: usize) -> Option<String> {
        let value = |input: &Input| record::value(&input.of(records, row + 1), row);
        match self.inputs.as_slice() {
            [] => None,
            [one] => value(one),
            all => {
                let word =
                    |input: &Input| format!("{}={}", input.name, value(input).unwrap_or_else(|| "NULL".to_owned()));
                Some(all.iter().map(word).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Whether one of its columns holds this text in a record.
    pub(super) fn holds_one_of(&self, texts: &[String], records: &[ArrayRef], row: usize) -> Option<String> {
        let held = self.inputs.iter().filter_map(|input| {
            let array = records.get(input.place?)?.as_string_opt::<i32>()?;
            array.is_valid(row).then(|| array.value(row))
        });
        let held = held.filter(|held| texts.iter().any(|text| text == held)).map(str::to_owned);
        held.into_iter().next()
    }
}

fn known(view: &View) -> impl Iterator<Item = &str> {
    view.bronze().fields().iter().map(|field| field.name().as_str()).filter(|name| !columns::is_technical(name))
}

fn nearest(view: &View, name: &str) -> String {
    did_you_mean(name, known(view)).map(|hint| format!(" ({hint})")).unwrap_or_default()
}
