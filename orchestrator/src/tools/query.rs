//! A query over the tables of the lake: only reading, and with the nearest names when one is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, SchemaError, TableReference};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as Ansi;
use futures::StreamExt;
use lake::session::Session;
use lake::spec::{did_you_mean, nearest};
use lake::{Error, ErrorKind, Lake, Layer, Result, TableName};

/// The rows of a query, batch by batch.
pub(crate) struct Answer(SendableRecordBatchStream);

impl Answer {
    /// The columns.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.0.schema()
    }

    /// The next batch.
    ///
    /// # Errors
    /// [`ErrorKind::Query`] when the query cannot be computed further.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        Ok(self.0.next().await.transpose()?)
    }
}

/// Starts a query over the tables that it names. `planned` are the tasks of the spec, whose tables may not exist yet.
///
/// # Errors
/// [`ErrorKind::Query`] when it is no query, or names a table or column that is not there, with the nearest names.
pub(crate) async fn query(lake: &Lake, planned: &[String], sql: &str) -> Result<Answer> {
    let session = lake.session()?;
    let statement = parse(&session, sql)?;
    let references = session.context().state().resolve_table_references(&statement)?;
    let mut missing = Vec::new();
    for reference in references {
        match table_name(&reference) {
            Some(name) => match lake.table(&name).await? {
                Some(table) => session.register(&table).await?,
                None => missing.push(name.to_string()),
            },
            None => missing.push(reference.to_string()),
        }
    }
    if let Some(name) = missing.first() {
        return Err(no_table(name, planned, &existing(lake).await?));
    }
    match session.sql(sql).await {
        Ok(frame) => Ok(Answer(frame.execute_stream().await?)),
        Err(error) => Err(match session.context().state().create_logical_plan(sql).await {
            Err(cause) => wrong_column(&cause).unwrap_or(error),
            Ok(_) => error,
        }),
    }
}

/// Reads the text as one statement that only reads.
fn parse(session: &Session, sql: &str) -> Result<Statement> {
    let state = session.context().state();
    let dialect = state.config_options().sql_parser.dialect;
    let statement = state.sql_to_statement(sql, &dialect).map_err(|error| {
        let text = Error::from(error).to_string();
        Error::new(ErrorKind::Query, text.trim_start_matches("SQL error: ").to_owned())
    })?;
    let reads = match &statement {
        Statement::Statement(ansi) => {
            matches!(ansi.as_ref(), Ansi::Query(_) | Ansi::Explain { .. } | Ansi::ExplainTable { .. })
        }
        Statement::Explain(explain) => matches!(explain.statement.as_ref(), Statement::Statement(_)),
        _ => false,
    };
    if reads {
        return Ok(statement);
    }
    let text = statement.to_string();
    let verb = text.split_whitespace().next().unwrap_or_default().to_uppercase();
    Err(Error::new(ErrorKind::Query, format!("`{verb}` is refused: this command only reads"))
        .hint("tables are changed by `orchestrator run` alone; ask with SELECT, EXPLAIN or DESCRIBE"))
}

fn table_name(reference: &TableReference) -> Option<TableName> {
    match reference {
        TableReference::Partial { schema, table } => {
            let layer = Layer::ALL.into_iter().find(|layer| layer.as_str() == schema.as_ref())?;
            Some(TableName::new(layer, table.as_ref()))
        }
        _ => None,
    }
}

/// The tables that are there, as `layer.name`.
async fn existing(lake: &Lake) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for layer in Layer::ALL {
        let prefix = layer.as_str().into();
        let listed = lake.root().store().list_with_delimiter(Some(&prefix)).await?;
        let names = listed.common_prefixes.iter().filter_map(|folder| folder.filename());
        found.extend(names.map(|name| format!("{layer}.{name}", layer = layer.as_str())));
    }
    Ok(found)
}

fn no_table(name: &str, planned: &[String], existing: &BTreeSet<String>) -> Error {
    let error = Error::new(ErrorKind::Query, format!("there is no table `{name}`"));
    if planned.iter().any(|planned| planned == name) {
        return error.hint("the spec has it, but no run has made it yet: `orchestrator run`");
    }
    let same: Vec<String> = existing
        .iter()
        .filter(|known| known.split_once('.').is_some_and(|(_, own)| own == name))
        .map(|known| format!("`{known}`"))
        .collect();
    let hint = match same[..] {
        [] => did_you_mean(name, existing.iter().map(String::as_str)),
        _ => Some(format!("did you mean {}?", same.join(" or "))),
    };
    error.hint(hint.unwrap_or_else(|| "the lake is empty: `orchestrator run` fills it".to_owned()))
}

/// A column that is not there, said with the nearest of those that are.
fn wrong_column(error: &DataFusionError) -> Option<Error> {
    let DataFusionError::SchemaError(schema_error, _) = error.find_root() else { return None };
    let SchemaError::FieldNotFound { field, valid_fields } = schema_error.as_ref() else { return None };
    let message = match &field.relation {
        Some(relation) => format!("there is no column `{}` in `{relation}`", field.name),
        None => format!("there is no column `{}`", field.name),
    };
    let mut names: Vec<&str> = valid_fields.iter().map(|field| field.name.as_str()).collect();
    names.dedup();
    let case = names.iter().find(|name| name.eq_ignore_ascii_case(&field.name) && **name != field.name);
    let hint = match (case, nearest(&field.name, names.iter().copied())) {
        (Some(name), _) => Some(format!("names keep their case: write \"{name}\"")),
        (None, Some(name)) => Some(format!("did you mean `{name}`?")),
        (None, None) => did_you_mean(&field.name, names.iter().copied()),
    };
    let error = Error::new(ErrorKind::Query, message);
    Some(match hint {
        Some(hint) => error.hint(hint),
        None => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_not_there_is_told_with_the_nearest() {
        let existing = BTreeSet::from(["silver.orders".to_owned(), "gold.daily_sales".to_owned()]);
        let hint = |name: &str| {
            let error = no_table(name, &["gold.new".to_owned()], &existing);
            error.hint_text().map(str::to_owned).unwrap_or_default()
        };
        assert_eq!(hint("silver.order"), "did you mean `silver.orders`?");
        assert_eq!(hint("orders"), "did you mean `silver.orders`?");
        assert_eq!(hint("gold.new"), "the spec has it, but no run has made it yet: `orchestrator run`");
        assert_eq!(hint("xyz"), "one of `gold.daily_sales`, `silver.orders`");
    }
}
