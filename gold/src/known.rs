//! Queries planned against the columns of their sources alone: before there are rows, or without reading any.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::DFSchema;
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::LogicalPlan;
use futures::executor::block_on;
use lake::session::Session;
use lake::spec::{Problem, Problems, SpecPath, did_you_mean};
use lake::{Result, TableName};

use crate::checks::condition;
use crate::output;
use crate::plan::{ExpectationPlan, ModelPlan};
use crate::refresh::shape::Coverage;
use crate::spec::Refresh;

/// Tables of which the columns are known.
#[derive(Debug)]
pub struct Known {
    session: Session,
    columns: BTreeMap<TableName, SchemaRef>,
}

impl Known {
    /// Knows these tables.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when no session can be made.
    pub fn new(tables: impl IntoIterator<Item = (TableName, SchemaRef)>) -> Result<Self> {
        let mut known = Self { session: Session::detached()?, columns: BTreeMap::new() };
        for (name, columns) in tables {
            known.add(name, columns)?;
        }
        Ok(known)
    }

    /// Knows one more table.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](lake::ErrorKind::Query) when it is known already.
    pub fn add(&mut self, name: TableName, columns: SchemaRef) -> Result<()> {
        self.session.register_layout(&name, Arc::new(EmptyTable::new(Arc::clone(&columns))))?;
        self.columns.insert(name, columns);
        Ok(())
    }

    /// The tables among `sources` that are not known.
    pub fn unknown<'a>(&self, sources: impl IntoIterator<Item = &'a TableName>) -> Vec<&'a TableName> {
        sources.into_iter().filter(|source| !self.columns.contains_key(source)).collect()
    }

    /// A query as it is written, with the types that its expressions take.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](lake::ErrorKind::Query) when it does not fit the columns.
    pub(crate) fn plan(&self, query: &str) -> Result<LogicalPlan> {
        // All tables are in memory: nothing is waited for.
        let frame = block_on(self.session.sql(query))?;
        self.session.typed(frame.into_unoptimized_plan())
    }

    /// The session that plans.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }
}

/// Checks the queries of models against the columns of their sources and of one another, as far as these are known.
/// `place` tells where a model stands in the spec.
///
/// # Errors
/// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when no session can be made.
pub fn check_models<'a>(
    models: &[&'a ModelPlan],
    tables: impl IntoIterator<Item = (TableName, SchemaRef)>,
    place: impl Fn(&ModelPlan) -> SpecPath,
    problems: &mut Problems,
) -> Result<()> {
    let mut known = Known::new(tables)?;
    let mut waiting: Vec<&'a ModelPlan> = models.to_vec();
    loop {
        let (ready, blocked): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|model| known.unknown(&model.sources).is_empty());
        if ready.is_empty() {
            return Ok(());
        }
        for model in ready {
            if let Some(columns) = check(&known, model, &place(model), problems)
                && known.unknown([&model.table]).len() == 1
            {
                known.add(model.table.clone(), columns)?;
            }
        }
        waiting = blocked;
    }
}

/// The columns of a model, or what is wrong with its query.
fn check(known: &Known, model: &ModelPlan, place: &SpecPath, problems: &mut Problems) -> Option<SchemaRef> {
    let query = place.key("query");
    let planned = known.plan(&model.query);
    let columns = planned.and_then(|plan| output::columns(plan.schema().as_arrow(), &model.table));
    let columns = match columns {
        Ok(columns) => columns,
        Err(error) => {
            let problem = Problem::at(&query, wrong(&error));
            problems.add(Problem { hint: error.hint_text().map(str::to_owned), ..problem });
            return None;
        }
    };
    let names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    for (key, listed) in model.named_columns() {
        for (index, name) in listed.iter().enumerate().filter(|(_, name)| !names.contains(&name.as_str())) {
            let problem = Problem::at(&place.key(key).index(index), format!("the query has no column `{name}`"));
            problems.add(Problem { hint: did_you_mean(name, names.iter().copied()), ..problem });
        }
    }
    for (path, name) in model.checks.columns(place).into_iter().filter(|(_, name)| !names.contains(&name.as_str())) {
        let problem = Problem::at(&path, format!("the query has no column `{name}`"));
        problems.add(Problem { hint: did_you_mean(&name, names.iter().copied()), ..problem });
    }
    for (name, _) in model.about.column_descriptions.iter().filter(|(name, _)| !names.contains(&name.as_str())) {
        let path = place.key("column_descriptions").key(name.as_str());
        let problem = Problem::at(&path, format!("the query has no column `{name}`"));
        problems.add(Problem { hint: did_you_mean(name, names.iter().copied()), ..problem });
    }
    check_conditions(known, model, &columns, place, problems);
    if model.refresh == Refresh::Incremental {
        let coverage = Coverage::of(model, known);
        if let Ok(Coverage::Whole(reasons)) = coverage {
            let message = format!("the query cannot be refreshed incrementally: {}", reasons.join("; "));
            problems.add(Problem::at(&place.key("refresh"), message).hint("change the query, or say `refresh: auto`"));
        }
    }
    if !model.partition_by.is_empty() && model.partition_by.len() == names.len() {
        let problem = Problem::at(&place.key("partition_by"), "every column is a partition column");
        problems.add(problem.hint("leave one column out"));
    }
    Some(columns)
}

/// Holds the conditions of a model to the columns of its result.
fn check_conditions(known: &Known, model: &ModelPlan, columns: &SchemaRef, place: &SpecPath, problems: &mut Problems) {
    let Ok(schema) = DFSchema::try_from(Arc::clone(columns)) else { return };
    for ExpectationPlan { name, check, .. } in &model.checks.expectations {
        if let Err(error) = condition(&known.session, check, &schema) {
            let path = place.key("expectations").key(name.as_str()).key("check");
            let message = error.causes().into_iter().next().unwrap_or_else(|| error.to_string());
            problems.add(Problem { hint: error.hint_text().map(str::to_owned), ..Problem::at(&path, message) });
        }
    }
}

/// The message of an error with its innermost cause, where that says more.
fn wrong(error: &lake::Error) -> String {
    let mut message = error.to_string();
    if let Some(cause) = error.causes().last().filter(|cause| !message.contains(cause.as_str())) {
        message = format!("{message}: {cause}");
    }
    message
}

#[cfg(test)]
mod tests;
