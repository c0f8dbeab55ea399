//! The constraints that a table puts on its rows, held against those that are to be written.

use std::collections::HashMap;

use arrow::datatypes::Schema;

use super::{Probed, Verdict, rows};
use crate::error::{Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::table::Table;

/// The properties of a table that hold its CHECK constraints begin so.
const CHECK: &str = "delta.constraints.";
/// What a column's metadata calls the condition on its values.
const INVARIANT: &str = "delta.invariants";

/// Fails when a new row breaks a CHECK constraint of the table or an invariant of a column. A row meets one only when it
/// is true.
pub(super) async fn check(lake: &Lake, table: &Table, probed: &Probed) -> Result<()> {
    let conditions = conditions(table.properties()?, &table.schema());
    if conditions.is_empty() || probed.figures.inserted + probed.figures.updated == 0 {
        return Ok(());
    }
    let session = lake.session()?;
    for (name, condition) in conditions {
        let rows = rows::frame(probed, &session, &[Verdict::Insert, Verdict::Update])?;
        let met = rows.parse_sql_expr(&condition)?;
        let broken = rows.filter(met.is_not_true())?.limit(0, Some(1))?.count().await?;
        if broken > 0 {
            let message = format!("a row for {} does not meet its constraint `{name}`: {condition}", table.name());
            return Err(Error::new(ErrorKind::Data, message));
        }
    }
    Ok(())
}

/// The conditions with their names.
fn conditions(properties: &HashMap<String, String>, schema: &Schema) -> Vec<(String, String)> {
    let checks = properties.iter().filter_map(|(key, condition)| Some((key.strip_prefix(CHECK)?, condition)));
    let checks = checks.map(|(name, condition)| (name.to_owned(), condition.clone()));
    let invariants = schema.fields().iter().filter_map(|field| {
        let invariant: serde_json::Value = serde_json::from_str(field.metadata().get(INVARIANT)?).ok()?;
        Some((field.name().clone(), invariant.pointer("/expression/expression")?.as_str()?.to_owned()))
    });
    let mut conditions: Vec<(String, String)> = checks.chain(invariants).collect();
    conditions.sort();
    conditions
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn checks_and_invariants_are_found() {
        let invariant = r#"{"expression": {"expression": "a > 3"}}"#.to_owned();
        let field =
            Field::new("a", DataType::Int64, true).with_metadata(HashMap::from([(INVARIANT.into(), invariant)]));
        let properties = HashMap::from([("delta.constraints.positive", "b > 0"), ("delta.appendOnly", "false")]);
        let properties = properties.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let found = conditions(&properties, &Schema::new(vec![field]));
        let expected = [("a", "a > 3"), ("positive", "b > 0")];
        assert_eq!(found, expected.map(|(name, condition)| (name.to_owned(), condition.to_owned())));
    }
}
