//! The rules that a Delta table puts on its rows, whoever writes them: CHECK constraints, invariants of columns, and
//! generated columns, which hold what their expression gives.
//!
//! A row meets a condition when it is true: null is a violation, as it is to Spark. A generated column equals its
//! expression, null meeting null.

use std::collections::HashMap;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use arrow::util::display::array_value_to_string;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::nullif;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, cast, ident, lit};

use crate::error::{Context, Error, ErrorKind, Result};
use crate::expression::Expression;
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

    /// True for rows that meet the rule, never null. `partitions` are columns in which an empty text is null.
    fn met(&self, rows: &DataFrame, partitions: &[String]) -> Result<Expr> {
        let place = || format!("the rule `{}` of the table, `{}`", self.name, self.sql);
        let parsed = rows.parse_sql_expr(&self.sql).context(place)?;
        if self.kind != Kind::Generated {
            return Ok(parsed.is_true());
        }
        let field = rows.schema().field_with_unqualified_name(&self.name).context(place)?;
        let mut made = cast(parsed, field.data_type().clone());
        if partitions.contains(&self.name) && *field.data_type() == arrow::datatypes::DataType::Utf8 {
            made = nullif(made, lit(""));
        }
        let same = BinaryExpr::new(Box::new(ident(&self.name)), Operator::IsNotDistinctFrom, Box::new(made));
        Ok(Expr::BinaryExpr(same))
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

    /// The columns that the rule looks at.
    fn columns(&self) -> Vec<String> {
        let own = (self.kind == Kind::Generated).then(|| self.name.clone());
        let named = Expression::parse(&self.sql).map(|parsed| parsed.names().to_vec()).unwrap_or_default();
        own.into_iter().chain(named).collect()
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

/// Fails when rows break a rule, with the first of them by their keys. `what` names the rows.
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
    let mut broken = Vec::new();
    for rule in rules {
        broken.push(!rule.met(rows, partitions)?);
    }
    let Some(any) = broken.iter().cloned().reduce(Expr::or) else { return Ok(()) };
    if rows.clone().filter(any)?.limit(0, Some(1))?.count().await? == 0 {
        return Ok(());
    }
    for (rule, broken) in rules.iter().zip(broken) {
        let offenders = rows.clone().filter(broken)?;
        let count = offenders.clone().count().await?;
        if count == 0 {
            continue;
        }
        let has = |name: &String| rows.schema().has_column_with_unqualified_name(name);
        let mut names: Vec<String> = keys.iter().filter(|key| has(key)).cloned().collect();
        names.extend(rule.columns().into_iter().filter(|name| has(name) && !keys.contains(name)));
        let by_key = keys.iter().filter(|key| has(key)).map(|key| ident(key).sort(true, true)).collect();
        let first = offenders.sort(by_key)?.limit(0, Some(NAMED_MAX))?;
        let first = first.select(names.iter().map(ident).collect::<Vec<_>>())?.collect().await?;
        let named = first.iter().flat_map(words).collect::<Vec<_>>().join("; ");
        let more = if count > NAMED_MAX { "; …" } else { "" };
        let rows = if count == 1 { "row does" } else { "rows do" };
        let message = format!("{count} {rows} not meet {} ({what}): {named}{more}", rule.text());
        return Err(Error::new(ErrorKind::Data, message));
    }
    Err(Error::internal("a rule is broken and none is"))
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
    use arrow::datatypes::{DataType, Field};

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
