//! The rules that a Delta table puts on its rows, whoever writes them: CHECK constraints, invariants of columns, and
//! generated columns, which hold what their expression gives.
//!
//! A row meets a condition when it is true: null is a violation, as it is to Spark. A generated column equals its
//! expression, null meeting null.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{
    SortColumn, SortOptions, concat_batches, filter_record_batch, lexsort_to_indices, take_record_batch,
};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use datafusion::common::DFSchema;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::functions::expr_fn::nullif;
use datafusion::logical_expr::{Expr, Operator, binary_expr, cast, ident, lit};
use datafusion::physical_expr::PhysicalExpr;
use futures::TryStreamExt;

use crate::error::{Context, Error, ErrorKind, Result};
use crate::expression::{Values, by_row, planned, strict};
use crate::table::Table;

/// The properties of a table that hold its CHECK constraints begin so.
pub(crate) const CHECK: &str = "delta.constraints.";
/// What a column's metadata calls the condition on its values.
const INVARIANT: &str = "delta.invariants";
/// What a column's metadata calls the expression that its values are made by.
pub(crate) const GENERATED: &str = "delta.generationExpression";
/// Offenders that are named one by one.
const NAMED_MAX: usize = 5;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// What sort of rule it is.
    pub kind: Kind,
    /// The name of the constraint, or the column.
    pub name: String,
    /// Its condition, or the expression of a generated column.
    pub sql: String,
}

/// Sorts of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A CHECK constraint of the table.
    Check,
    /// A condition on a column.
    Invariant,
    /// A column that is what its expression gives.
    Generated,
}

impl Rule {
    /// The rules of a table.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn of(table: &Table) -> Result<Vec<Self>> {
        Ok(of(table.properties()?, &table.schema()))
    }

    /// The condition on rows with these columns: true for those that meet the rule. `partitions` are columns in which
    /// an empty text is null.
    fn logical(&self, rows: &SchemaRef, partitions: &[String], state: &SessionState) -> Result<Expr> {
        let place = || format!("the rule `{}` of the table, `{}`", self.name, self.sql);
        let frame = DFSchema::try_from(Arc::clone(rows))?;
        let parsed = state.create_logical_expr(&self.sql, &frame).context(place)?;
        if self.kind != Kind::Generated {
            return Ok(parsed.is_true());
        }
        let kind = plain(rows.field_with_name(&self.name).context(place)?.data_type());
        let mut made = cast(parsed, kind.clone());
        if partitions.contains(&self.name) && kind.is_string() {
            made = nullif(made, lit(""));
        }
        let own = cast(ident(&self.name), kind.clone());
        Ok(binary_expr(own, Operator::IsNotDistinctFrom, made))
    }

    /// The same, ready for such rows.
    fn condition(&self, rows: &SchemaRef, partitions: &[String], state: &SessionState) -> Result<Condition> {
        let place = || format!("the rule `{}` of the table, `{}`", self.name, self.sql);
        let logical = self.logical(rows, partitions, state)?;
        let columns = logical.column_refs().into_iter().filter_map(|column| rows.index_of(&column.name).ok());
        let mut columns: Vec<usize> = columns.collect();
        columns.sort_by_key(|place| (*rows.field(*place).name() != self.name, *place));
        let physical = planned(logical, rows, state).and_then(|physical| strict(physical, rows)).context(place)?;
        Ok(Condition { physical, columns })
    }

    /// What the rule says, for people.
    pub fn text(&self) -> String {
        let Self { name, sql, .. } = self;
        match self.kind {
            Kind::Check => format!("constraint `{name}`: {sql}"),
            Kind::Invariant => format!("the condition on `{name}`: {sql}"),
            Kind::Generated => format!("generated column `{name}`: {sql}"),
        }
    }
}

fn of(properties: &HashMap<String, String>, schema: &Schema) -> Vec<Rule> {
    let rule = |kind, name: &str, sql: &str| Rule { kind, name: name.to_owned(), sql: sql.to_owned() };
    let checks = properties.iter().filter_map(|(key, sql)| Some(rule(Kind::Check, key.strip_prefix(CHECK)?, sql)));
    let fields = || schema.fields().iter();
    let invariants = fields().filter_map(|field| {
        let invariant: serde_json::Value = serde_json::from_str(field.metadata().get(INVARIANT)?).ok()?;
        let sql = invariant.pointer("/expression/expression")?.as_str()?.to_owned();
        Some(rule(Kind::Invariant, field.name(), &sql))
    });
    let generated =
        fields().filter_map(|field| Some(rule(Kind::Generated, field.name(), field.metadata().get(GENERATED)?)));
    let mut rules: Vec<Rule> = checks.chain(invariants).chain(generated).collect();
    rules.sort();
    rules
}

/// A rule that is ready for rows.
struct Condition {
    physical: Arc<dyn PhysicalExpr>,
    /// The places of the columns that it looks at.
    columns: Vec<usize>,
}

/// The rows that do not meet a rule.
#[derive(Default)]
struct Offenders {
    count: usize,
    /// The first of them by their keys.
    first: Option<RecordBatch>,
    /// Why one of them cannot be asked.
    failure: Option<String>,
}

/// Fails when rows break a rule, with the first of them by their keys. `what` names the rows. Each row is asked by itself:
/// one for which a rule cannot be computed breaks it, and no other does for that.
///
/// # Errors
/// [`ErrorKind::Data`] when a row breaks one, [`ErrorKind::Query`] when a rule cannot be understood: then nobody may write.
pub(crate) async fn hold(
    rules: &[Rule],
    rows: &DataFrame,
    keys: &[String],
    partitions: &[String],
    what: &str,
) -> Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    let (state, _) = rows.clone().into_parts();
    let whole: SchemaRef = Arc::new(rows.schema().as_arrow().clone());
    let mut named: Vec<String> = keys.to_vec();
    for rule in rules {
        let condition = rule.logical(&whole, partitions, &state)?;
        named.extend(condition.column_refs().into_iter().map(|column| column.name.clone()));
    }
    let columns = whole.fields().iter().map(|field| field.name()).filter(|name| named.contains(name));
    let rows = rows.clone().select(columns.map(ident).collect::<Vec<_>>())?;
    let mut batches = rows.execute_stream().await?;
    let schema = batches.schema();
    let keys: Vec<usize> = keys.iter().filter_map(|key| schema.index_of(key).ok()).collect();
    let conditions = rules.iter().map(|rule| rule.condition(&schema, partitions, &state));
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    let mut offenders: Vec<Offenders> = rules.iter().map(|_| Offenders::default()).collect();
    while let Some(batch) = batches.try_next().await? {
        for (condition, offenders) in conditions.iter().zip(&mut offenders) {
            offenders.ask(condition, &batch, &keys)?;
        }
    }
    let Some((rule, offenders)) = rules.iter().zip(offenders).find(|(_, offenders)| offenders.count > 0) else {
        return Ok(());
    };
    let Offenders { count, first, failure } = offenders;
    let named = first.iter().flat_map(words).collect::<Vec<_>>().join("; ");
    let more = if count > NAMED_MAX { "; …" } else { "" };
    let failure = failure.map(|why| format!(" ({why})")).unwrap_or_default();
    let rows = if count == 1 { "row does" } else { "rows do" };
    let message = format!("{count} {rows} not meet {} ({what}): {named}{more}{failure}", rule.text());
    Err(Error::new(ErrorKind::Data, message))
}

impl Offenders {
    /// Asks the rows of a batch. The columns of the keys are at these places.
    fn ask(&mut self, condition: &Condition, batch: &RecordBatch, keys: &[usize]) -> Result<()> {
        let Values { array, failed } = by_row(&condition.physical, &DataType::Boolean, batch)?;
        let met = array.as_boolean();
        let broken: BooleanArray = (0..met.len()).map(|row| Some(met.is_null(row) || !met.value(row))).collect();
        if broken.true_count() == 0 {
            return Ok(());
        }
        self.count += broken.true_count();
        self.failure = self.failure.take().or_else(|| failed.into_iter().next().map(|(_, why)| why));
        let others = condition.columns.iter().filter(|place| !keys.contains(place));
        let named: Vec<usize> = keys.iter().chain(others).copied().collect();
        let found = filter_record_batch(&batch.project(&named)?, &broken)?;
        let found = match &self.first {
            Some(first) => concat_batches(&found.schema(), [first, &found])?,
            None => found,
        };
        let by_key = found.columns().iter().take(keys.len()).map(|key| {
            let options = Some(SortOptions { descending: false, nulls_first: true });
            SortColumn { values: Arc::clone(key), options }
        });
        let by_key: Vec<SortColumn> = by_key.collect();
        self.first = Some(match by_key.is_empty() {
            true => found.slice(0, found.num_rows().min(NAMED_MAX)),
            false => take_record_batch(&found, &lexsort_to_indices(&by_key, Some(NAMED_MAX))?)?,
        });
        Ok(())
    }
}

/// The type of the values, however they are held.
fn plain(kind: &DataType) -> &DataType {
    match kind {
        DataType::Dictionary(_, values) => plain(values),
        kind => kind,
    }
}

/// Rows in words: `id 7, amount -1`.
fn words(batch: &RecordBatch) -> Vec<String> {
    let cell = |column: &arrow::array::ArrayRef, row| match column.is_null(row) {
        true => "NULL".to_owned(),
        false => array_value_to_string(column, row).unwrap_or_default(),
    };
    let row = |row| {
        let names = batch.schema_ref().fields().iter().map(|field| field.name());
        names.zip(batch.columns()).map(|(name, column)| format!("{name} {}", cell(column, row))).collect::<Vec<_>>()
    };
    (0..batch.num_rows()).map(|number| row(number).join(", ")).collect()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn rules_are_found_where_delta_keeps_them() {
        let metadata = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
        let fields = vec![
            Field::new("a", DataType::Int64, true)
                .with_metadata(metadata(INVARIANT, r#"{"expression": {"expression": "a > 3"}}"#)),
            Field::new("day", DataType::Date32, true).with_metadata(metadata(GENERATED, "CAST(at AS DATE)")),
        ];
        let properties = HashMap::from([("delta.constraints.positive", "b > 0"), ("delta.appendOnly", "false")]);
        let properties = properties.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let found: Vec<String> = of(&properties, &Schema::new(fields)).iter().map(Rule::text).collect();
        let expected =
            ["constraint `positive`: b > 0", "the condition on `a`: a > 3", "generated column `day`: CAST(at AS DATE)"];
        assert_eq!(found, expected);
    }
}
