//! Typed changes held to the rules of the table: generated columns are computed, constraints asked.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::kernels::cmp::distinct;
use arrow::datatypes::{DataType, SchemaRef};
use lake::cast::Cast;
use lake::expression::{Scalar, Values};
use lake::session::Session;
use lake::{Context, Error, Result};

use super::unsent::Unsent;
use super::{Decoder, Fate, record, reject, reject_value};
use crate::expect::EVALUATION;
use crate::plan::TablePlan;

/// The kind of reason of a row that does not meet a constraint.
const CONSTRAINT: &str = "constraint";
/// The kind of reason of a value that is not what a generated column is.
const GENERATED: &str = "generated";

/// The constraints of a plan, ready for the rows of its table.
pub(super) struct Constraints(Vec<Constraint>);

struct Constraint {
    name: String,
    sql: String,
    /// The places of its columns.
    columns: Vec<usize>,
    condition: Scalar,
}

impl Constraints {
    pub(super) fn new(plan: &TablePlan, rows: &SchemaRef, session: &Session) -> Result<Self> {
        let ready = plan.constraints.iter().map(|plan| {
            let place = || format!("constraint `{}`", plan.name);
            let condition = plan.expression.ready(rows, session).context(place)?;
            if *condition.kind() != DataType::Boolean {
                let message = format!("`{}` is not a condition: it gives {}", plan.expression.sql(), condition.kind());
                return Err(Error::spec(message).context(place()));
            }
            let columns = plan.expression.names().iter().filter_map(|name| rows.index_of(name).ok()).collect();
            Ok(Constraint { name: plan.name.clone(), sql: plan.expression.sql().trim().to_owned(), columns, condition })
        });
        Ok(Self(ready.collect::<Result<_>>()?))
    }
}

impl Decoder {
    /// Computes the generated columns, which are as good as sent where every column of the expression is. What a record
    /// brings of them must be the same. An update that does not send every column of the expression has none, and must
    /// not bring one: the row that it comes to has.
    pub(super) fn generate(&self, typed: &mut [ArrayRef], fates: &mut [Fate], unsent: &mut Unsent) -> Result<()> {
        let place = |name: &str| self.resolved.columns().iter().position(|column| column.name == name);
        for column in self.generated.columns() {
            let number = place(&column.name).ok_or_else(|| Error::internal("a generated column is none"))?;
            let inputs: Vec<usize> = column.inputs.iter().filter_map(|name| place(name)).collect();
            let Cast { array, bad } = column.values(fates.len(), |name| Some(typed[place(name)?].clone()))?;
            let given = std::mem::replace(&mut typed[number], array);
            let differs = distinct(&given, &typed[number])?;
            let mut bad = bad.into_iter().peekable();
            for (row, fate) in fates.iter_mut().enumerate() {
                let failed = bad.next_if(|(other, _)| *other == row);
                if !matches!(fate, Fate::Upsert) {
                    continue;
                }
                let was_sent = given.is_valid(row) && !unsent.has(row, number);
                if let Some(input) = inputs.iter().find(|input| unsent.has(row, **input)) {
                    unsent.add(row, number);
                    if was_sent {
                        let held = record::value(&given, row).unwrap_or_default();
                        let text = format!(
                            "`{}` is `{held}` in the record, which does not send `{}`, of which {} makes it",
                            column.name,
                            self.resolved.columns()[*input].name,
                            column.sql
                        );
                        reject(fate, GENERATED, text, Some(&column.name), Some(held));
                    }
                    continue;
                }
                unsent.remove(row, number);
                if let Some((_, reason)) = failed {
                    let text = format!("`{}` cannot be computed: {reason}", column.sql);
                    reject_value(fate, text, &column.name, told(&column.inputs, &inputs, typed, row));
                } else if was_sent && differs.value(row) {
                    let (held, made) = (record::value(&given, row), record::value(&typed[number], row));
                    let (held, made) = (held.unwrap_or_default(), made.unwrap_or_else(|| "null".to_owned()));
                    let text =
                        format!("`{}` is `{held}` in the record, and {} gives `{made}`", column.name, column.sql);
                    reject(fate, GENERATED, text, Some(&column.name), Some(held));
                }
            }
        }
        Ok(())
    }

    /// Asks the constraints. An update that does not send every column is asked as the row that it comes to.
    pub(super) fn constrain(&self, typed: &[ArrayRef], fates: &mut [Fate], unsent: &Unsent) -> Result<()> {
        if self.constraints.0.is_empty() {
            return Ok(());
        }
        let rows = RecordBatch::try_new(self.resolved.rows(), typed.to_vec())?;
        for constraint in &self.constraints.0 {
            let Values { array, failed } = constraint.condition.values(&rows)?;
            let met = array.as_boolean();
            let mut failed = failed.into_iter().peekable();
            let names: Vec<String> =
                constraint.columns.iter().map(|place| self.resolved.rows().field(*place).name().clone()).collect();
            for (row, fate) in fates.iter_mut().enumerate() {
                let error = failed.next_if(|(other, _)| *other == row);
                let is_met = met.is_valid(row) && met.value(row);
                let is_asked = matches!(fate, Fate::Upsert) && !unsent.is_partial(row);
                if is_met || !is_asked {
                    continue;
                }
                let value = told(&names, &constraint.columns, typed, row);
                let (kind, text) = match error {
                    Some((_, reason)) => (EVALUATION, format!("cannot be asked: {reason}: {}", constraint.sql)),
                    None => (CONSTRAINT, format!("is not met: {}", constraint.sql)),
                };
                let seen = value.as_ref().map(|value| format!(" ({value})")).unwrap_or_default();
                let text = format!("constraint `{}` {text}{seen}", constraint.name);
                reject(fate, kind, text, names.first(), value);
            }
        }
        Ok(())
    }
}

/// The values of some columns of a row, for people: `amount -1, qty 2`.
fn told(names: &[String], places: &[usize], typed: &[ArrayRef], row: usize) -> Option<String> {
    let value = |place: usize| record::value(&typed[place], row).unwrap_or_else(|| "NULL".to_owned());
    let words = names.iter().zip(places).map(|(name, place)| format!("{name} {}", value(*place)));
    Some(words.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}
