//! What is wrong with a query, in our words: the column, where it stands, and the nearest name.

use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;

use crate::error::{Error, ErrorKind};
use crate::spec::did_you_mean;

/// Whatever stands in the way of a plan is a fault of the query.
pub fn query_error(error: DataFusionError) -> Error {
    let line = error.diagnostic().and_then(|told| told.span).map(|span| span.start.line).filter(|line| *line > 1);
    let told = match error.find_root() {
        DataFusionError::SchemaError(wrong, _) => Some(of_schema(wrong, line)),
        _ => None,
    };
    match (told, Error::from(error)) {
        (Some((message, hint)), source) => {
            let error = Error::new(ErrorKind::Query, message);
            match hint {
                Some(hint) => error.hint(hint),
                None => error.with_source(source),
            }
        }
        (None, error) => match mistyped(&error) {
            Some(name) => {
                let message = format!("`{name}` does not take values of the type that it is given");
                let hint = "cast texts first, `CAST(x AS DECIMAL(18, 2))`, or declare their type where they are made";
                Error::new(ErrorKind::Query, message).hint(hint)
            }
            None if error.kind() == ErrorKind::Query => error,
            None => Error::new(ErrorKind::Query, error.to_string()).with_source(error),
        },
    }
}

/// The function that was given values of a type that it does not take.
fn mistyped(error: &Error) -> Option<String> {
    let told = std::iter::once(error.to_string()).chain(error.causes());
    let of = |text: String| {
        let (before, _) = text.split_once("' failed to match any signature")?;
        before.rsplit_once("Function '").map(|(_, name)| name.to_owned())
    };
    told.filter_map(of).next()
}

fn of_schema(wrong: &SchemaError, line: Option<u64>) -> (String, Option<String>) {
    let at = line.map(|line| format!(", asked for in line {line} of the query")).unwrap_or_default();
    match wrong {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let of = field.relation.as_ref().map(|table| format!(" in `{table}`")).unwrap_or_default();
            (format!("there is no column `{}`{of}{at}", field.name), nearest(field, valid_fields))
        }
        SchemaError::AmbiguousReference { field } => {
            let message = format!("there is more than one column `{}`{at}", field.name);
            let name = &field.name;
            (
                message,
                Some(format!(
                    "say of which table: `table.{name}`, or name one of the result anew: `… AS other_{name}`"
                )),
            )
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            let message = format!("two columns are named `{name}`{at}");
            (message, Some("name one of them anew: `… AS other_name`".to_owned()))
        }
    }
}

/// The column that was meant, of the same table where one was named.
fn nearest(field: &Column, valid: &[Column]) -> Option<String> {
    let of_table = |column: &&Column| field.relation.is_none() || column.relation == field.relation;
    let mut names: Vec<&str> = valid.iter().filter(of_table).map(|column| column.name.as_str()).collect();
    if names.is_empty() {
        names = valid.iter().map(|column| column.name.as_str()).collect();
    }
    names.sort_unstable();
    names.dedup();
    did_you_mean(&field.name, names)
}
