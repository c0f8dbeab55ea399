//! A query over the tables of the lake: only reading, and with the nearest names when one is wrong.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use chrono_tz::Tz;
use datafusion::common::{DataFusionError, SchemaError, TableReference};
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::Statement as Ansi;
use datafusion::sql::sqlparser::parser::ParserError;
use futures::{Stream, StreamExt};
use lake::session::Engine;
use lake::spec::{did_you_mean, nearest};
use lake::{Clock, Error, ErrorKind, Lake, Layer, Result, TableName, quarantine};

use super::travel;

/// What the engine writes before a message to say which part of it speaks.
const PREFIXES: [&str; 4] = ["Error during planning: ", "Execution error: ", "Arrow error: ", "Cast error: "];

/// The rows of a query, batch by batch.
pub(crate) struct Answer(SendableRecordBatchStream);

impl Answer {
    /// The columns.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.0.schema()
    }

    /// The rows; [`ErrorKind::Query`] when the query cannot be computed further.
    pub(crate) fn rows(self) -> impl Stream<Item = Result<RecordBatch>> {
        self.0.map(|batch| batch.map_err(|error| plain(error.into())))
    }
}

/// A lake without a table, for queries of tables that are named by their paths.
///
/// # Errors
/// [`ErrorKind::Store`] when the current folder cannot be opened.
pub(crate) fn nowhere(clock: Clock) -> Result<Lake> {
    Ok(Lake::of_table(".", Path::new("."), clock, Engine::default())?.0)
}

/// Starts a query over the tables that it names, for `rows` rows at most. `planned` are the tasks of the spec, whose
/// tables may not exist yet; times without an offset are of `zone`.
///
/// # Errors
/// [`ErrorKind::Query`] when it is no query, or names a table or column that is not there, with the nearest names.
pub(crate) async fn query(lake: &Lake, planned: &[String], zone: Tz, sql: &str, rows: Option<usize>) -> Result<Answer> {
    let session = lake.query_session()?;
    let sql = &travel::rewritten(sql)?;
    let statement = parse(sql)?;
    if let Some(verb) = refused(&statement) {
        let error = Error::new(ErrorKind::Query, format!("`{verb}` is refused: this command only reads"));
        return Err(match verb.as_str() {
            "SHOW" => error.hint(tables_hint(&existing(lake).await?)),
            _ => error.hint("tables are changed by `orchestrator run` alone; ask with SELECT, EXPLAIN or DESCRIBE"),
        });
    }
    let references = session.context().state().resolve_table_references(&statement)?;
    let mut missing = Vec::new();
    for reference in references {
        match table_name(&reference) {
            Some(named) => {
                let (name, as_of) = travel::meant(&named, zone)?;
                let (place, own) = match name.layer {
                    Layer::Delta => {
                        let clock = lake.clock().clone();
                        Lake::of_table(&name.name, Path::new("."), clock, lake.engine().clone())?
                    }
                    _ => (lake.clone(), name.clone()),
                };
                match (place.table(&own).await?, as_of) {
                    (Some(table), None) => session.register_named(&named, &table).await?,
                    (Some(table), Some(as_of)) => travel::register(&place, &session, &named, &table, as_of).await?,
                    // A quarantine is made when something is refused for the first time.
                    (None, None) if is_unneeded(&name, planned) => {
                        session.register_layout(&named, Arc::new(EmptyTable::new(quarantine::schema())))?;
                    }
                    (None, _) => missing.push(name.to_string()),
                }
            }
            None => missing.push(reference.to_string()),
        }
    }
    if let Some(name) = missing.first() {
        return Err(no_table(name, planned, &existing(lake).await?));
    }
    let frame = match session.sql(sql).await {
        Ok(frame) => frame,
        Err(error) => {
            let again = session.context().state().create_logical_plan(sql).await;
            return Err(again.err().and_then(|cause| wrong_column(&cause)).unwrap_or_else(|| plain(error)));
        }
    };
    // A plan to look at is the root of its query and takes no limit.
    let is_query = matches!(&statement, Statement::Statement(ansi) if matches!(ansi.as_ref(), Ansi::Query(_)));
    let frame = if is_query { frame.limit(0, rows)? } else { frame };
    frame.execute_stream().await.map(Answer).map_err(|error| plain(error.into()))
}

/// True for the quarantine of a source of the spec.
fn is_unneeded(name: &TableName, planned: &[String]) -> bool {
    name.layer == Layer::Quarantine && planned.contains(&TableName::bronze(&name.name).to_string())
}

/// Reads the text as one statement.
fn parse(sql: &str) -> Result<Statement> {
    let mut statements = DFParser::parse_sql(sql).map_err(|error| unreadable(&error))?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        (Some(_), false) => Err(Error::new(ErrorKind::Query, "there are several statements").hint("ask one at a time")),
        (None, _) => {
            Err(Error::new(ErrorKind::Query, "there is no query").hint("ask with SELECT, EXPLAIN or DESCRIBE"))
        }
    }
}

/// The verb of a statement that does more than read.
fn refused(statement: &Statement) -> Option<String> {
    let reads = match statement {
        Statement::Statement(ansi) => {
            matches!(ansi.as_ref(), Ansi::Query(_) | Ansi::Explain { .. } | Ansi::ExplainTable { .. })
        }
        Statement::Explain(explain) => matches!(explain.statement.as_ref(), Statement::Statement(_)),
        _ => false,
    };
    let text = statement.to_string();
    (!reads).then(|| text.split_whitespace().next().unwrap_or_default().to_uppercase())
}

/// A text that is no SQL, without the names of the parser's own types.
fn unreadable(error: &DataFusionError) -> Error {
    let text = match error.find_root() {
        DataFusionError::SQL(error, _) => match error.as_ref() {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.clone(),
            ParserError::RecursionLimitExceeded => "it is nested too deeply".to_owned(),
        },
        other => other.strip_backtrace(),
    };
    Error::new(ErrorKind::Query, format!("the query cannot be read: {}", lowered(&text)))
}

/// The innermost cause of an error in planning or computing, which says what is wrong with the query.
fn plain(error: Error) -> Error {
    let text = error.to_string();
    let cause = text.rsplit_once("\ncaused by\n").map_or(text.as_str(), |(_, cause)| cause);
    let cause = PREFIXES.iter().fold(cause, |cause, prefix| cause.strip_prefix(prefix).unwrap_or(cause));
    let (message, hint) = match cause.split_once('\n') {
        Some((message, hint)) => (message.trim_end_matches('.'), Some(hint.trim())),
        None => (cause, error.hint_text()),
    };
    let told = Error::new(error.kind(), lowered(message));
    match hint.filter(|hint| !hint.is_empty()) {
        Some(hint) => told.hint(lowered(hint)),
        None => told,
    }
}

/// Messages begin with a small letter, unless it is a name or an abbreviation.
fn lowered(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

fn tables_hint(existing: &BTreeSet<String>) -> String {
    let names: Vec<String> = existing.iter().map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => "the lake is empty: `orchestrator run` fills it".to_owned(),
        false => format!("the tables are {}", names.join(", ")),
    }
}

fn table_name(reference: &TableReference) -> Option<TableName> {
    match reference {
        TableReference::Partial { schema, table } => {
            let mut layers = Layer::ALL.into_iter().chain([Layer::Delta]);
            let layer = layers.find(|layer| layer.as_str() == schema.as_ref())?;
            Some(TableName::new(layer, table.as_ref()))
        }
        _ => None,
    }
}

/// The tables that are there, as `layer.name`.
async fn existing(lake: &Lake) -> Result<BTreeSet<String>> {
    Ok(lake.tables().await?.iter().map(TableName::to_string).collect())
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
        (Some(name), _) => Some(format!("did you mean `{name}`? names keep their case")),
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
    fn only_reading_is_accepted() {
        let verdict = |sql: &str| refused(&parse(sql).expect("a statement"));
        for sql in ["SELECT 1", "WITH a AS (SELECT 1) SELECT * FROM a", "EXPLAIN SELECT 1", "DESCRIBE silver.orders"] {
            assert_eq!(verdict(sql), None, "{sql}");
        }
        for sql in [
            "DELETE FROM silver.orders",
            "INSERT INTO silver.orders SELECT 1",
            "DROP TABLE silver.orders",
            "CREATE TABLE a AS SELECT 1",
            "CREATE EXTERNAL TABLE a STORED AS CSV LOCATION '/'",
            "COPY silver.orders TO '/tmp/a.csv'",
            "SET a = 1",
            "RESET a",
        ] {
            assert_eq!(verdict(sql).as_deref(), sql.split(' ').next(), "{sql}");
        }
        let error = |sql: &str| parse(sql).expect_err("no statement").to_string();
        assert_eq!(error("SELECT 1; SELECT 2"), "there are several statements");
        assert_eq!(error(""), "there is no query");
        assert_eq!(
            error("SELEC 1"),
            "the query cannot be read: expected: an SQL statement, found: SELEC at Line: 1, Column: 1"
        );
    }

    #[test]
    fn the_innermost_cause_is_told() {
        let told = |text: &str| plain(Error::new(ErrorKind::Query, text));
        let error = told("Optimizer rule 'x' failed\ncaused by\nArrow error: Cast error: Cannot cast string 'x'");
        assert_eq!(error.to_string(), "cannot cast string 'x'");
        assert_eq!(told("Arrow error: Divide by zero error").to_string(), "divide by zero error");
        let error = told("Error during planning: Invalid function 'nosuch'.\nDid you mean 'cosh'?");
        assert_eq!(
            (error.to_string().as_str(), error.hint_text()),
            ("invalid function 'nosuch'", Some("did you mean 'cosh'?"))
        );
    }

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
