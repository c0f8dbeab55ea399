//! Conditions on typed rows, and what becomes of rows that do not meet them.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use lake::session::Session;
use lake::{Context, Result};

use crate::condition::condition;
use crate::plan::ExpectationPlan;
use crate::spec::Action;

/// The kind of reason of an expectation that must stop the run.
pub(crate) const FAIL: &str = "expectation_fail";
const QUARANTINE: &str = "expectation";

/// The expectations of a table, ready for its rows.
pub struct Expectations(Vec<Ready>);

struct Ready {
    plan: ExpectationPlan,
    condition: Arc<dyn PhysicalExpr>,
}

/// The rows that do not meet one expectation.
pub(crate) struct Misses {
    pub(crate) finding: Finding,
    pub(crate) text: String,
    pub(crate) rows: Vec<usize>,
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
        let answers = self.condition.evaluate(batch)?.into_array(batch.num_rows())?;
        let answers = answers.as_boolean();
        let rows = (0..batch.num_rows()).filter(|row| answers.is_null(*row) || !answers.value(*row)).collect();
        let finding = match self.plan.action {
            Action::Warn => Finding::Warn,
            Action::Drop => Finding::Drop,
            Action::Quarantine => Finding::Reject { kind: QUARANTINE },
            Action::Fail => Finding::Reject { kind: FAIL },
        };
        let text = format!("expectation `{}` is not met: {}", self.plan.name, self.plan.check);
        Ok(Misses { finding, text, rows })
    }
}
