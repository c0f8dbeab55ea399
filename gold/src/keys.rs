//! Which columns tell the rows of a model apart.

use lake::{Lake, Result};

use crate::plan::ModelPlan;
use crate::refresh::known;
use crate::refresh::shape::told_apart;

/// The columns of a model that no two of its rows have alike: its `keys`, or what its query and the keys of its sources say;
/// none when nobody knows, or a source does not exist yet.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when the query does not fit its sources.
pub async fn row_keys(lake: &Lake, plan: &ModelPlan) -> Result<Vec<String>> {
    if !plan.keys.is_empty() {
        return Ok(plan.keys.clone());
    }
    let mut sources = Vec::new();
    for name in &plan.sources {
        let Some(source) = lake.table(name).await? else { return Ok(Vec::new()) };
        sources.push(source);
    }
    told_apart(plan, &known(&lake.query_session()?, &sources).await?)
}
