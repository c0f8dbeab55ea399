//! `gold explain`, `gold verify` and `gold rebuild`: how models follow their sources, and whether they have.

use cli::{Failure, Output, Place, Printer};
use gold::explain::{Explanation, explain as explain_model};
use gold::verify::{Verdict, verify as verify_model};
use gold::{ModelPlan, Plan};
use lake::{Error, ErrorKind};
use serde_json::Value;

use super::Dated;
use crate::Gold;

/// The models of these names; without names all.
///
/// # Errors
/// [`ErrorKind::Spec`] for a name that is no model of the spec.
pub(super) fn models(plans: Vec<Dated>, names: &[String]) -> Result<Vec<ModelPlan>, Failure> {
    let mut models = Vec::new();
    for dated in cli::chosen::<Gold>(plans, names)? {
        match dated.plan {
            Plan::Model(plan) => models.push(plan),
            Plan::Snapshot(_) if names.is_empty() => {}
            Plan::Snapshot(plan) => {
                let error = Error::spec(format!("{} is a snapshot, not a model", plan.table));
                return Err(error.hint("only a table with a `query` is computed by it").into());
            }
        }
    }
    Ok(models)
}

/// Prints how models follow their sources.
///
/// # Errors
/// [`ErrorKind::Table`] when a source does not exist yet.
pub(super) async fn explain(
    models: &[ModelPlan],
    place: &Place,
    output: Output,
    printer: Printer,
) -> Result<(), Failure> {
    let mut told = Vec::new();
    for model in models {
        told.push(explain_model(&place.lake, model).await?);
    }
    match output {
        Output::Json => {
            let told: Vec<Value> = told.iter().map(Explanation::to_json).collect();
            printer.data(&format!("{}\n", Value::from(told)))
        }
        Output::Table => {
            let told: Vec<String> = told.iter().map(Explanation::to_text).collect();
            printer.data(&told.join("\n"))
        }
    }
}

/// Compares models with the full results of their queries. Those that do not exist yet are left out when all are asked.
///
/// # Errors
/// [`ErrorKind::Data`] when one is not what its query gives.
pub(super) async fn verify(
    models: &[ModelPlan],
    is_all: bool,
    place: &Place,
    output: Output,
    printer: Printer,
) -> Result<(), Failure> {
    let mut verdicts = Vec::new();
    for model in models {
        if is_all && place.lake.table(&model.table).await?.is_none() {
            printer.note(&format!("{} does not exist yet\n", model.table));
            continue;
        }
        verdicts.push(verify_model(&place.lake, model).await?);
    }
    match output {
        Output::Json => {
            let verdicts: Vec<Value> = verdicts.iter().map(Verdict::to_json).collect();
            printer.data(&format!("{}\n", Value::from(verdicts)))?;
        }
        Output::Table => {
            for verdict in &verdicts {
                printer.data(&verdict.to_text())?;
            }
        }
    }
    let broken: Vec<String> =
        verdicts.iter().filter(|verdict| !verdict.holds()).map(|verdict| verdict.table.to_string()).collect();
    if broken.is_empty() {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Data, format!("{} is not what its query gives", broken.join(", ")));
    let hint = "`gold rebuild` computes it as a whole; what depends on the order of rows may differ each time";
    Err(error.hint(hint).into())
}
