//! What must hold of a model's rows, asked before its commit: bad rows never become visible.
//!
//! Expectations are asked of the rows that a run computes; the others were asked when they came. What must hold of the
//! table as a whole is asked of these rows together with those that stay.

mod rules;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, ExprSchemable};
use lake::report::{counted, thousands};
use lake::run::RunContext;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Error, Lake, Result};

use crate::plan::{ExpectationPlan, ModelPlan};
use crate::spec::{OnMiss, Severity};
use crate::verify::words;

/// Rows that are named when they break a rule.
const NAMED_MAX: usize = 3;

/// What rows are asked with.
pub(crate) struct Asking<'a> {
    pub(crate) lake: &'a Lake,
    pub(crate) session: &'a Session,
    pub(crate) plan: &'a ModelPlan,
    pub(crate) ctx: &'a RunContext,
}

/// Rows that may become visible.
pub(crate) struct Passed {
    /// The rows without those that the spec has left out.
    pub(crate) rows: DataFrame,
    /// How many were left out.
    pub(crate) dropped: u64,
    /// What a person should know.
    pub(crate) notes: Vec<String>,
}

/// A SQL condition on rows with these columns.
///
/// # Errors
/// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when it is none.
pub(crate) fn condition(session: &Session, sql: &str, schema: &DFSchema) -> Result<Expr> {
    let wrong = |error: datafusion::error::DataFusionError| {
        let error = lake::session::query_error(error);
        let hint = error.hint_text().map(str::to_owned);
        let told = Error::spec(format!("`{sql}` is not a condition on the columns of the result")).with_source(error);
        match hint {
            Some(hint) => told.hint(hint),
            None => told,
        }
    };
    let expr = session.context().parse_sql_expr(sql, schema).map_err(wrong)?;
    match expr.get_type(schema).map_err(wrong)? {
        DataType::Boolean => Ok(expr),
        other => Err(Error::spec(format!("`{sql}` is not a condition: it gives {other}"))),
    }
}

impl Asking<'_> {
    /// Asks the computed rows, and with them those of the table that stay. The rows are known to be one for each value of
    /// `groups`, unless these are none.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](lake::ErrorKind::Data) when a rule that must hold does not.
    pub(crate) async fn ask(&self, new: &Staged, rest: Option<DataFrame>, groups: &[String]) -> Result<Passed> {
        let rows = new.frame(self.session).await?;
        let mut passed = Passed { rows, dropped: 0, notes: Vec::new() };
        for expectation in &self.plan.checks.expectations {
            self.expect(expectation, new.rows(), &mut passed).await?;
        }
        for rule in &self.plan.rules() {
            let all = match &rest {
                Some(rest) => rest.clone().union(self.of_table(passed.rows.clone(), rest)?)?,
                None => passed.rows.clone(),
            };
            let Some(broken) = self.broken(&rule.rule, all, groups).await? else { continue };
            let message = format!("{}: {broken}", self.plan.table);
            match rule.severity {
                Severity::Warn => passed.notes.push(broken),
                Severity::Fail => return Err(Error::data(format!("{message}; nothing was committed")).hint(HINT)),
            }
        }
        Ok(passed)
    }

    async fn expect(&self, expectation: &ExpectationPlan, asked: u64, passed: &mut Passed) -> Result<()> {
        let ExpectationPlan { name, check, action, max_fraction } = expectation;
        let met = condition(self.session, check, passed.rows.schema())?;
        let misses = passed.rows.clone().filter(met.clone().is_not_true())?;
        let missed = misses.clone().count().await? as u64;
        if missed == 0 {
            return Ok(());
        }
        let rows = counted(usize::try_from(missed).unwrap_or(usize::MAX), "row");
        let told = format!("expectation `{name}` ({check}) is not met by {rows} of {}", thousands(asked));
        let is_too_many = max_fraction.is_some_and(|max| missed as f64 > max * asked as f64);
        if *action == OnMiss::Fail && max_fraction.is_none() || is_too_many {
            let some = misses.limit(0, Some(NAMED_MAX))?.collect().await?;
            let some: Vec<String> = some.iter().flat_map(words).collect();
            let message = format!("{}: {told}: {}; nothing was committed", self.plan.table, some.join(" | "));
            return Err(Error::data(message).hint(HINT));
        }
        passed.notes.push(told);
        if *action == OnMiss::Drop {
            passed.rows = passed.rows.clone().filter(met.is_true())?;
            passed.dropped += missed;
        }
        Ok(())
    }

    /// Computed rows with the types of the table's.
    fn of_table(&self, rows: DataFrame, table: &DataFrame) -> Result<DataFrame> {
        let columns = table.schema().fields().iter().map(|field| {
            datafusion::logical_expr::cast(datafusion::logical_expr::ident(field.name()), field.data_type().clone())
                .alias(field.name())
        });
        Ok(rows.select(columns.collect::<Vec<_>>())?)
    }
}

const HINT: &str = "the table stays as it was: mend its sources, the query, or the condition";
