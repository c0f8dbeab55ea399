//! The text of an expression taken apart: the names in it, and what it must not hold.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::logical_expr::{Expr, Volatility};
use datafusion::sql::parser::DFParserBuilder;
use datafusion::sql::sqlparser::ast::{self, ExprWithAlias, Ident, visit_expressions_mut};
use datafusion::sql::sqlparser::dialect::GenericDialect;

use super::Scalar;
use super::evaluate::{physical, plain};
use crate::columns;
use crate::error::{Error, Result};
use crate::session::Session;

/// A SQL expression, parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    sql: String,
    parsed: ExprWithAlias,
    names: Vec<String>,
}

impl Expression {
    /// Reads an expression. A name with dots, `customer.address.city`, is one name.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](crate::ErrorKind::Spec) when the text is no expression, or looks at other rows.
    pub fn parse(sql: &str) -> Result<Self> {
        let wrong = |why: String| Error::spec(format!("`{sql}` is not an expression: {why}"));
        let broken = |error: DataFusionError| wrong(plain(&error.strip_backtrace()));
        let mut parsed = DFParserBuilder::new(sql)
            .with_dialect(&GenericDialect {})
            .build()
            .and_then(|mut parser| parser.parse_into_expr())
            .map_err(broken)?;
        if let Some(alias) = &parsed.alias {
            return Err(wrong(format!("`AS {alias}` names a column, which the spec does already")));
        }
        let mut names: Vec<String> = Vec::new();
        let refused = visit_expressions_mut(&mut parsed.expr, |expr| {
            let name = match &*expr {
                ast::Expr::Identifier(name) => name.value.clone(),
                ast::Expr::CompoundIdentifier(parts) => {
                    parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".")
                }
                ast::Expr::Subquery(_) | ast::Expr::InSubquery { .. } | ast::Expr::Exists { .. } => {
                    return ControlFlow::Break("it holds a query, and sees one row only".to_owned());
                }
                ast::Expr::Function(function) if function.over.is_some() => {
                    let message = format!("the window of `{}` looks at other rows", function.name);
                    return ControlFlow::Break(message);
                }
                _ => return ControlFlow::Continue(()),
            };
            // Quoted, so that a name with dots stays one.
            *expr = ast::Expr::Identifier(Ident::with_quote('"', name.clone()));
            if !names.contains(&name) {
                names.push(name);
            }
            ControlFlow::Continue(())
        });
        match refused {
            ControlFlow::Break(why) => Err(wrong(why)),
            ControlFlow::Continue(()) => Ok(Self { sql: sql.to_owned(), parsed, names }),
        }
    }

    /// The text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The columns that it names, each once, in their order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The text as other engines read it, which put odd names into backticks.
    pub fn portable(&self) -> String {
        if !self.sql.contains('"') {
            return self.sql.trim().to_owned();
        }
        let mut expr = self.parsed.expr.clone();
        let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |expr| {
            if let ast::Expr::Identifier(name) = expr {
                *name = Ident::with_quote('`', name.value.clone());
            }
            ControlFlow::Continue(())
        });
        expr.to_string()
    }

    /// Checks what can be checked without knowing the types of its columns.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](crate::ErrorKind::Spec) for a function that is not there, and for what is not a value of one
    /// row that stays the same.
    pub fn check(&self, session: &Session) -> Result<()> {
        self.logical(&self.schema_of_texts(), session).map(drop)
    }

    /// Makes the expression ready for records whose columns are all text, but those of the program.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn ready_for_texts(&self, session: &Session) -> Result<Scalar> {
        self.ready(&self.schema_of_texts(), session)
    }

    /// Makes the expression ready for rows of `schema`.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](crate::ErrorKind::Spec) when it does not fit the columns, gives what no column can hold, or as
    /// [`check`](Self::check).
    pub fn ready(&self, schema: &SchemaRef, session: &Session) -> Result<Scalar> {
        let logical = self.logical(schema, session)?;
        let physical = physical(logical, schema, session).map_err(|error| self.wrong(&error))?;
        Scalar::new(physical, schema).map_err(|why| Error::spec(format!("`{}` {why}", self.sql)))
    }

    fn logical(&self, schema: &SchemaRef, session: &Session) -> Result<Expr> {
        let frame = DFSchema::try_from(Arc::clone(schema))?;
        let state = session.context().state();
        let logical = state.create_logical_expr_from_sql_expr(self.parsed.clone(), &frame);
        let logical = logical.map_err(|error| self.wrong(&error))?;
        let mut refused = None;
        logical.apply(|part| {
            refused = unstable(part);
            Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        match refused {
            Some(why) => Err(Error::spec(format!("`{}` cannot be used here: {why}", self.sql))),
            None => Ok(logical),
        }
    }

    fn schema_of_texts(&self) -> SchemaRef {
        let fields = self.names.iter().map(|name| Field::new(name, columns::landed_type(name), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn wrong(&self, error: &DataFusionError) -> Error {
        Error::spec(format!("`{}` cannot be computed: {}", self.sql, plain(&error.strip_backtrace())))
    }
}

/// Why a part of an expression is no value of one row that stays the same.
fn unstable(part: &Expr) -> Option<String> {
    let named = |name: &str, why: &str| Some(format!("`{name}()` {why}"));
    match part {
        Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => {
            named(call.func.name(), "gives something else whenever it is asked")
        }
        Expr::AggregateFunction(call) => named(call.func.name(), "looks at other rows"),
        Expr::WindowFunction(call) => named(call.fun.name(), "looks at other rows"),
        Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => {
            Some("it holds a query, and sees one row only".to_owned())
        }
        Expr::Unnest(_) => Some("it makes several rows of one".to_owned()),
        Expr::Placeholder(_) | Expr::ScalarVariable(..) => Some("it holds a variable".to_owned()),
        _ => None,
    }
}
