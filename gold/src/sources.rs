//! What a query reads: the tables that it names, and the functions that make its result differ from run to run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::logical_expr::Volatility;
use datafusion::logical_expr::sqlparser::ast::{self, Visit, Visitor};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::resolve::resolve_table_references;
use lake::spec::did_you_mean;
use lake::{Layer, TableName};

/// The layers whose tables may be read.
const READABLE: [Layer; 4] = [Layer::Bronze, Layer::Silver, Layer::Gold, Layer::Quarantine];

/// What a query depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The tables.
    pub tables: BTreeSet<TableName>,
    /// Functions such as `current_date` and `random`.
    pub unstable: BTreeSet<String>,
}

/// Why a query cannot be a model, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong: lowercase, no closing period.
    pub message: String,
    /// What the reader can do.
    pub hint: Option<String>,
}

/// Reads what a query depends on from its text alone.
///
/// # Errors
/// All that keeps the text from being a model: it is no SQL, no query, or names tables that cannot be read.
pub fn sources(query: &str) -> Result<Sources, Vec<Wrong>> {
    let statement = one_query(query).map_err(|wrong| vec![wrong])?;
    let named =
        resolve_table_references(&statement, false).map_err(|error| vec![unreadable(&error.strip_backtrace())])?;
    let mut calls = Calls::default();
    if let Statement::Statement(inner) = &statement {
        // The visitor never breaks off.
        let _ = inner.visit(&mut calls);
    }
    let mut found = Sources { tables: BTreeSet::new(), unstable: unstable(&calls.functions) };
    let mut wrong = Vec::new();
    for reference in named.0.into_iter().filter(|reference| !calls.tables.contains(&reference.to_string())) {
        match table(&reference) {
            Ok(table) => {
                found.tables.insert(table);
            }
            Err(problem) => wrong.push(problem),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

/// The functions of a condition whose answer differs from run to run; none of one that is not readable, which is told where
/// it is asked.
pub(crate) fn unstable_in(condition: &str) -> BTreeSet<String> {
    sources(&format!("SELECT {condition} AS met")).map(|found| found.unstable).unwrap_or_default()
}

/// Reads `layer.table`.
///
/// # Errors
/// When the layer is unknown or its tables cannot be read.
pub fn table_named(text: &str) -> Result<TableName, Wrong> {
    match text.split_once('.') {
        Some((layer, name)) if !name.contains('.') => table(&TableReference::partial(layer, name)),
        _ => table(&TableReference::bare(text)),
    }
}

// === private ===

fn one_query(query: &str) -> Result<Statement, Wrong> {
    let mut statements = DFParser::parse_sql(query).map_err(|error| unreadable(&error.strip_backtrace()))?;
    let statement = statements.pop_front();
    let hint = Some("a model is one query: start with SELECT or WITH".to_owned());
    match statement {
        Some(_) if !statements.is_empty() => {
            Err(Wrong { message: format!("there are {} statements", statements.len() + 1), hint })
        }
        Some(Statement::Statement(inner)) if matches!(*inner, ast::Statement::Query(_)) => {
            Ok(Statement::Statement(inner))
        }
        Some(other) => {
            let text = other.to_string();
            let word = text.split_whitespace().next().unwrap_or_default();
            Err(Wrong { message: format!("`{word}` is not a query"), hint })
        }
        None => Err(Wrong { message: "the query is empty".to_owned(), hint }),
    }
}

fn unreadable(error: &str) -> Wrong {
    let text = ["SQL error: ", "ParserError(\"", "sql parser error: "]
        .iter()
        .fold(error, |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
    let text = text.strip_suffix("\")").unwrap_or(text);
    let text = match text.strip_prefix("Expected: ").and_then(|rest| rest.split_once(", found: ")) {
        Some((expected, found)) => {
            let (found, place) = found
                .split_once(" at Line")
                .map_or((found, ""), |(found, _)| (found, &text[text.rfind(" at Line").unwrap_or(text.len())..]));
            format!("expected {expected}, found `{found}`{place}")
        }
        None => text.to_owned(),
    };
    Wrong { message: format!("the query is not readable: {text}"), hint: None }
}

fn table(reference: &TableReference) -> Result<TableName, Wrong> {
    let readable = || READABLE.iter().map(|layer| layer.as_str());
    let example = "write `layer.table`, for example `silver.orders`".to_owned();
    let TableReference::Partial { schema, table } = reference else {
        return Err(Wrong { message: format!("`{reference}` does not name a table of a layer"), hint: Some(example) });
    };
    match Layer::ALL.into_iter().find(|layer| layer.as_str() == schema.as_ref()) {
        Some(layer) if READABLE.contains(&layer) && !table.is_empty() => Ok(TableName::new(layer, table.as_ref())),
        Some(layer) if !READABLE.contains(&layer) => Err(Wrong {
            message: format!("`{reference}` is kept by the program for itself and cannot be a source"),
            hint: did_you_mean(schema, readable()),
        }),
        Some(_) => Err(Wrong { message: format!("`{reference}` does not name a table"), hint: Some(example) }),
        None => Err(Wrong {
            message: format!("there is no layer `{schema}` (in `{reference}`)"),
            hint: did_you_mean(schema, readable()),
        }),
    }
}

/// The functions that a query calls, and those that it reads as tables: `generate_series(1, 3)`.
#[derive(Default)]
struct Calls {
    functions: BTreeSet<String>,
    tables: BTreeSet<String>,
}

impl Visitor for Calls {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
        if let ast::TableFactor::Table { name, args: Some(_), .. } = factor {
            let plain = name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.clone());
            self.tables.insert(plain.collect::<Vec<_>>().join("."));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Function(call) = expr {
            // Without quotes: `"random"()` is the same function.
            let name = call.name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
            self.functions.insert(name.collect::<Vec<_>>().join("."));
        }
        ControlFlow::Continue(())
    }
}

fn unstable(called: &BTreeSet<String>) -> BTreeSet<String> {
    let functions = datafusion::functions::all_default_functions();
    let mut known: BTreeMap<&str, Volatility> = BTreeMap::new();
    for function in &functions {
        let volatility = function.signature().volatility;
        known.extend(function.aliases().iter().map(|alias| (alias.as_str(), volatility)));
        known.insert(function.name(), volatility);
    }
    let differs = |name: &&String| known.get(name.as_str()).is_some_and(|held| *held != Volatility::Immutable);
    called.iter().filter(differs).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(query: &str) -> Vec<String> {
        sources(query).expect("a query").tables.iter().map(ToString::to_string).collect()
    }

    fn wrong(query: &str) -> (String, String) {
        let mut wrong = sources(query).expect_err("a problem");
        let first = wrong.remove(0);
        (first.message, first.hint.unwrap_or_default())
    }

    #[test]
    fn tables_are_found_wherever_they_stand() {
        let query = "WITH paid AS (SELECT * FROM silver.orders WHERE status = 'paid')
            SELECT c.name, count(*) FROM paid JOIN silver.customers c ON c.id = paid.customer
            WHERE c.id NOT IN (SELECT id FROM quarantine.orders_cdc) AND EXISTS (SELECT 1 FROM bronze.\"my-feed\")
            GROUP BY c.name UNION ALL SELECT 'x', value FROM generate_series(1, 3)";
        assert_eq!(tables(query), ["bronze.my-feed", "silver.customers", "silver.orders", "quarantine.orders_cdc"]);
        assert_eq!(tables("SELECT 1 AS one"), [""; 0]);
    }

    #[test]
    fn a_cte_hides_no_table_of_a_layer() {
        assert_eq!(tables("WITH orders AS (SELECT * FROM silver.orders) SELECT * FROM orders"), ["silver.orders"]);
    }

    #[test]
    fn what_cannot_be_a_source_is_said_with_what_was_meant() {
        let (message, hint) = wrong("SELECT * FROM orders");
        assert_eq!(message, "`orders` does not name a table of a layer");
        assert!(hint.contains("silver.orders"), "{hint}");
        assert_eq!(
            wrong("SELECT * FROM sliver.orders"),
            ("there is no layer `sliver` (in `sliver.orders`)".into(), "did you mean `silver`?".into())
        );
        assert!(wrong("SELECT * FROM state.event_log").0.contains("kept by the program"));
        let both = sources("SELECT * FROM a JOIN b ON true").expect_err("two problems");
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn only_one_query_is_a_model() {
        assert_eq!(wrong("SELECT 1; SELECT 2").0, "there are 2 statements");
        assert_eq!(wrong("DELETE FROM silver.orders").0, "`DELETE` is not a query");
        assert_eq!(wrong("EXPLAIN SELECT 1").0, "`EXPLAIN` is not a query");
        assert_eq!(wrong("  ").0, "the query is empty");
        let (message, _) = wrong("SELECT a FRM silver.orders");
        assert!(message.starts_with("the query is not readable: expected"), "{message}");
    }

    #[test]
    fn functions_of_time_and_chance_are_noticed() {
        let found =
            sources("SELECT Random() AS r, upper(name) FROM silver.a WHERE day > current_date - 30").expect("a query");
        assert_eq!(found.unstable.into_iter().collect::<Vec<_>>(), ["current_date", "random"]);
        let quoted = sources("SELECT \"random\"() AS r FROM silver.a").expect("a query");
        assert_eq!(quoted.unstable.into_iter().collect::<Vec<_>>(), ["random"]);
    }
}
