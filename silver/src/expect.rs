//! Conditions on typed rows, and what becomes of rows that do not meet them.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use lake::session::Session;
use lake::{Context, Error, Result, TableName};

use crate::condition::{Answers, answers, condition};
use crate::plan::ExpectationPlan;
use crate::spec::Action;

/// The kind of reason of an expectation that must stop the run.
pub(crate) const FAIL: &str = "expectation_fail";
const QUARANTINE: &str = "expectation";
/// The kind of reason of a condition that a row cannot be asked.
pub(crate) const EVALUATION: &str = "evaluation";

/// The expectations of a table, ready for its rows.
pub struct Expectations(Vec<Ready>);

struct Ready {
    plan: ExpectationPlan,
    condition: Arc<dyn PhysicalExpr>,
}

/// How rows did with one expectation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tested {
    /// Rows that it was asked of.
    pub asked: u64,
    /// Rows of these that did not meet it, whatever becomes of them.
    pub missed: u64,
}

impl Tested {
    /// These and more.
    pub(crate) fn add(&mut self, more: Self) {
        self.asked += more.asked;
        self.missed += more.missed;
    }
}

/// Fails when a larger part of the rows than the spec allows did not meet an expectation.
///
/// # Errors
/// [`ErrorKind::Data`](lake::ErrorKind::Data) with the first such expectation.
pub(crate) fn check_fractions(table: &TableName, plans: &[ExpectationPlan], held: &[Tested]) -> Result<()> {
    for (plan, held) in plans.iter().zip(held) {
        let Some(max) = plan.max_fraction else { continue };
        if held.missed as f64 <= max * held.asked as f64 {
            continue;
        }
        let message = format!(
            "{table}: expectation `{}` ({}) is not met by {} of {} rows, more than `max_fraction: {max}` allows; nothing was committed",
            plan.name, plan.check, held.missed, held.asked
        );
        return Err(
            Error::data(message).hint("mend the source, or the condition, or allow more; bronze keeps the records")
        );
    }
    Ok(())
}

/// The rows that do not meet one expectation.
pub(crate) struct Misses {
    pub(crate) finding: Finding,
    pub(crate) text: String,
    pub(crate) rows: Vec<usize>,
    /// Rows that the condition cannot be asked of, with the reason.
    pub(crate) failed: Vec<(usize, String)>,
    /// The columns of the condition.
    pub(crate) columns: Vec<usize>,
}

/// What becomes of such rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Finding {
    Warn,
    Drop,
    Reject { kind: &'static str },
}

impl Expectations {
    /// Makes the conditions ready for `rows`.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when one is not a condition on these columns.
    pub fn new(plans: &[ExpectationPlan], rows: &SchemaRef, session: &Session) -> Result<Self> {
        let ready = plans.iter().map(|plan| {
            let condition = condition(&plan.check, rows, session)
                .context(|| format!("expectation `{}` cannot be checked", plan.name))?;
            Ok(Ready { plan: plan.clone(), condition })
        });
        Ok(Self(ready.collect::<Result<Vec<_>>>()?))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows of a batch that do not meet each expectation; a condition that is null is not met.
    pub(crate) fn misses(&self, batch: &RecordBatch) -> Result<Vec<Misses>> {
        self.0.iter().map(|ready| ready.misses(batch)).collect()
    }
}

impl Ready {
    fn misses(&self, batch: &RecordBatch) -> Result<Misses> {
        let Answers { values, failed } = answers(&self.condition, batch)?;
        let mut rows: Vec<usize> =
            (0..batch.num_rows()).filter(|row| values.is_null(*row) || !values.value(*row)).collect();
        let mut failed: Vec<(usize, String)> = failed;
        match self.plan.action {
            // It only warns, also of a row that it cannot be asked of.
            Action::Warn => failed.clear(),
            Action::Drop | Action::Quarantine | Action::Fail => {
                rows.retain(|row| failed.binary_search_by_key(row, |(row, _)| *row).is_err());
            }
        }
        for (_, reason) in &mut failed {
            *reason = format!("expectation `{}` cannot be checked: {reason}: {}", self.plan.name, self.plan.check);
        }
        let finding = match self.plan.action {
            Action::Warn => Finding::Warn,
            Action::Drop => Finding::Drop,
            Action::Quarantine => Finding::Reject { kind: QUARANTINE },
            Action::Fail => Finding::Reject { kind: FAIL },
        };
        let text = format!("expectation `{}` is not met: {}", self.plan.name, self.plan.check);
        let columns = collect_columns(&self.condition).iter().map(Column::index).collect();
        Ok(Misses { finding, text, rows, failed, columns })
    }
}
