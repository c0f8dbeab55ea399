//! A model: the result of a query as a table, refreshed when a source or the query has changed: by groups where that can
//! be done ([`crate::refresh`]), else as a whole.
//!
//! A run reads each source at the version that the run has settled on, so that the tables of one run are one
//! consistent cut. One commit then replaces the touched groups, or every file, and carries
//!
//! - `gold.x:silver.y` = version read, for each source;
//! - when the recipe is new ([`Recipe`]: query, partitions, identity of the sources), `gold.x:recipe` = its next count,
//!   with the schema and the recipe itself as table metadata.
//!
//! **Nothing to do** is: the recipe is the same and each source version is held, or a newer one. Then nothing is
//! computed. A query with functions of time or chance (`current_date`) is never up to date: such a run counts as a new
//! recipe.
//!
//! **Two runs at once.** Both compute; the log lets one commit first. If the other's transactions are held by then, its
//! work is done. If not — it read newer sources, or its recipe is another one — it is told of the conflict, looks again
//! and computes from where the table stands now. A run never takes a table back: where the table already holds a newer
//! version of a source than the run has settled on, that newer version is read. So with two runs whose cuts cross, the
//! table ends with the newest version of each source.
//!
//! **A crash** between files and commit leaves files that no version names; the next run does the work again. **A lost
//! answer** is found out by reading the transactions again, which the commit does itself.
//!
//! A source that does not exist yet is no error: in a new pipeline not every source has had files. The model waits.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::nullif;
use datafusion::logical_expr::{Expr, Partitioning, lit};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream_partitioned};
use lake::changes::last_foreign;
use lake::commit::Txn;
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::session::Session;
use lake::spec::did_you_mean;
use lake::stage::Staged;
use lake::table::Definition;
use lake::{Context, Error, ErrorKind, Lake, Result, Table};

use serde_json::json;

use crate::about::tell;
use crate::answer;
use crate::checks::Asking;
use crate::output;
use crate::plan::ModelPlan;
use crate::publish::{Publication, Target};
use crate::recipe::{Held, Recipe, source_app};
use crate::refresh::apply::check_once;
use crate::refresh::{Answer, Whole, Work};
use crate::spec::Refresh;
use crate::write::Rows;

/// Brings the table of a model up to date.
///
/// # Errors
/// [`ErrorKind::Query`] when the query cannot be planned or computed or its result is no table,
/// [`ErrorKind::Table`] when the table is something else, [`ErrorKind::Conflict`] when the work must be done again.
pub(crate) async fn refresh(lake: &Lake, plan: &ModelPlan, ctx: &RunContext) -> Result<TaskReport> {
    lake.open_ahead(plan.sources.iter().cloned());
    let held_table = lake.table(&plan.table).await?;
    let mut sources = Vec::new();
    for name in &plan.sources {
        match ctx.pins.open(lake, name).await? {
            Some(source) => sources.push(source),
            None => return Ok(answer::waiting(&plan.table, held_table.as_ref(), name)),
        }
    }
    let recipe = recipe(plan, &sources)?;
    let held = Held::of(held_table.as_ref())?;
    check_no_snapshot(plan, &held)?;

    let same = held.recipe.as_ref() == Some(&recipe);
    let foreign = match (&held.recipe, &held_table) {
        (Some(_), Some(table)) => last_foreign(table, &format!("{}:", plan.table)).await?,
        _ => None,
    };
    let is_asked = plan.rebuild || foreign.is_some() || !plan.unstable.is_empty();
    let mut current = same && !is_asked;
    let mut made_from = Vec::new();
    for source in &mut sources {
        let version_held = held.version_of(source.name(), &recipe).await?;
        made_from.push(version_held);
        current &= version_held.is_some_and(|held| held >= version(source));
        if let Some(newer) = version_held.filter(|held| *held > version(source)) {
            *source = lake.table_at(source.name(), u64::try_from(newer).unwrap_or_default()).await?;
        }
    }
    if current {
        tell(held_table.as_ref(), &plan.about, &plan.described(), ctx).await?;
        return Ok(answer::up_to_date(&plan.table, held_table.as_ref(), &sources));
    }
    let mut txns: Vec<Txn> =
        sources.iter().map(|source| Txn::new(source_app(&plan.table, source.name()), version(source))).collect();
    if !same || is_asked {
        txns.push(held.next_change(&plan.table).await?);
    }
    let foreign = foreign.map(|version| Whole::Reset(format!("its version {version} is by another program")));
    let whole = match (foreign.or_else(|| whole_at_once(plan, &held, &recipe)), &held_table) {
        (Some(whole), _) => whole,
        (None, None) => Whole::First,
        (None, Some(table)) => {
            let made_from = made_from.into_iter().map(Option::unwrap_or_default);
            let sources = sources.iter().cloned().zip(made_from).collect();
            let (held, txns) = (table.clone(), txns.clone());
            let work = Work { lake: lake.clone(), plan: plan.clone(), ctx: ctx.clone(), held, sources, txns };
            match work.refresh().await? {
                Answer::Done(report) => return Ok(*report),
                Answer::Whole(whole) => whole,
            }
        }
    };
    check_allowed(plan, &whole)?;
    Computing { lake, plan, ctx }.compute(held_table, &sources, &recipe, txns, whole).await
}

/// How a model is made.
///
/// # Errors
/// [`ErrorKind::Table`] when a source is not loaded.
pub(crate) fn recipe(plan: &ModelPlan, sources: &[Table]) -> Result<Recipe> {
    let recipe = Recipe {
        query: Some(plan.query.clone()),
        session: Some(lake::session::DIALECT.to_owned()),
        drops: plan.checks.drops(),
        partition_by: plan.partition_by.clone(),
        keys: plan.keys.clone(),
        ..Recipe::default()
    };
    recipe.with_sources(sources)
}

/// Why a refresh by groups is not even tried.
fn whole_at_once(plan: &ModelPlan, held: &Held<'_>, recipe: &Recipe) -> Option<Whole> {
    if plan.rebuild {
        return Some(Whole::Reset("that was asked for".to_owned()));
    }
    let Some(before) = &held.recipe else { return Some(Whole::First) };
    if let Some(changed) = before.changed_to(recipe) {
        return Some(Whole::Reset(changed));
    }
    match plan.refresh {
        Refresh::Full => Some(Whole::Always("`refresh: full`".to_owned())),
        Refresh::Auto | Refresh::Incremental if plan.unstable.is_empty() => None,
        Refresh::Auto | Refresh::Incremental => {
            Some(Whole::Always("what it asks for differs from run to run".to_owned()))
        }
    }
}

/// Whether all rows may be replaced.
fn check_allowed(plan: &ModelPlan, whole: &Whole) -> Result<()> {
    match whole {
        Whole::Reset(why) if !plan.reset_allowed => {
            let message = format!("{} would be computed anew as a whole, because {why}", plan.table);
            let hint = "`reset_allowed: false` forbids it: take that away for one run, or put back what has changed";
            Err(Error::new(ErrorKind::Table, message).hint(hint))
        }
        Whole::Always(why) if plan.refresh == Refresh::Incremental => {
            let message = format!("{} cannot be refreshed incrementally: {why}", plan.table);
            Err(Error::spec(message).hint("change the query, or say `refresh: auto`"))
        }
        _ => Ok(()),
    }
}

/// The days of a snapshot cannot be computed again.
fn check_no_snapshot(plan: &ModelPlan, held: &Held<'_>) -> Result<()> {
    if held.recipe.as_ref().is_none_or(|held| held.strategy.is_none()) {
        return Ok(());
    }
    let message = format!("{} holds a snapshot, and the spec has a query for it", plan.table);
    let hint = "its days would be lost: give the model another name, or remove the table's folder first";
    Err(Error::new(ErrorKind::Table, message).hint(hint))
}

/// A model that is not up to date.
struct Computing<'a> {
    lake: &'a Lake,
    plan: &'a ModelPlan,
    ctx: &'a RunContext,
}

impl Computing<'_> {
    async fn compute(
        &self,
        held: Option<Table>,
        sources: &[Table],
        recipe: &Recipe,
        txns: Vec<Txn>,
        whole: Whole,
    ) -> Result<TaskReport> {
        let plan = self.plan;
        let session = self.lake.query_session()?;
        let result = Computation::plan(&session, plan, sources).await?;
        plan.about.check(&plan.table, &result.schema)?;
        let definition = Definition {
            partition_by: plan.partition_by.clone(),
            description: Some(plan.described()),
            column_descriptions: plan.about.column_descriptions.clone(),
            properties: plan.about.properties.clone(),
            ..Definition::new(Arc::clone(&result.schema))
        };
        let removes = held.as_ref().map_or(Ok(Vec::new()), |table| table.removes(|_| true))?;
        let target = Target::new(self.lake, &plan.table, held, definition);
        let publication = Publication { target, properties: vec![recipe.property()?], removes, predicate: None, txns };
        let computing = || format!("computing {}", plan.table);
        let (rows, dropped, notes) = self.checked(&session, result).await.context(computing)?;
        let published = publication.publish(rows, self.ctx).await.context(computing)?;

        let mut report = answer::changed(&plan.table, sources, &published)?;
        report.figures.dropped = dropped;
        report.notes.extend(notes);
        if !plan.unstable.is_empty() {
            let functions = plan.unstable.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            report.notes.push(format!("computed in every run, because it asks for {functions}"));
        }
        let (why, warning) = match &whole {
            Whole::First => ("there was no table", None),
            Whole::Always(why) => (why.as_str(), None),
            Whole::Cheaper(why) | Whole::Reset(why) => (why.as_str(), Some(why.as_str())),
        };
        report.notes.extend(warning.map(|why| format!("computed as a whole, because {why}")));
        let details = json!({"refresh": "full", "because": why, "rows": published.rows});
        answer::record(self.ctx, &plan.table, warning, details);
        Ok(report)
    }
}

impl Computing<'_> {
    /// The rows of a planned query once they have passed what the spec asks of them: how many were left out, and what a
    /// person should know. Without checks they are not held.
    async fn checked(&self, session: &Session, result: Computation) -> Result<(Rows, u64, Vec<String>)> {
        let plan = self.plan;
        if plan.asks_nothing() {
            return Ok((result.rows()?, 0, Vec::new()));
        }
        let (schema, rows) = (result.plan.schema(), result.rows()?);
        let staged = Staged::write_streams(schema, rows.parts).await?;
        check_once(&plan.table, session, &staged, &plan.keys).await?;
        let asking = Asking { lake: self.lake, session, plan, ctx: self.ctx };
        let passed = asking.ask(&staged, None, &plan.keys).await?;
        let parts = by_partition(passed.rows, plan)?.execute_stream_partitioned().await?;
        Ok((Rows { parts, ordered: rows.ordered }, passed.dropped, passed.notes))
    }
}

/// A planned query.
struct Computation {
    plan: Arc<dyn ExecutionPlan>,
    session: Session,
    /// The columns of the table.
    schema: SchemaRef,
}

impl Computation {
    async fn plan(session: &Session, plan: &ModelPlan, sources: &[Table]) -> Result<Self> {
        for source in sources {
            session.register(source).await?;
        }
        let planning = || format!("planning the query of {}", plan.table);
        let frame = session.sql(&plan.query).await.context(planning)?;
        output::columns(frame.schema().as_arrow(), &plan.table)?;
        let frame = by_partition(empty_as_null(frame, &plan.partition_by)?, plan)?;
        let physical = frame.create_physical_plan().await.context(planning)?;
        // Only now have types settled: the planner makes the sides of a union alike, for one.
        let schema = output::columns(&physical.schema(), &plan.table)?;
        Ok(Self { plan: physical, session: session.clone(), schema })
    }

    fn rows(&self) -> Result<Rows> {
        let ordered = self.plan.output_ordering().is_some();
        let parts = execute_stream_partitioned(Arc::clone(&self.plan), self.session.context().task_ctx())?;
        Ok(Rows { parts, ordered })
    }
}

/// The rows of a query as a table can hold them that is partitioned by some columns: an empty text is null there.
pub(crate) fn empty_as_null(frame: DataFrame, partition_by: &[String]) -> Result<DataFrame> {
    let fields = frame.schema().fields();
    if !fields.iter().any(|field| partition_by.contains(field.name()) && field.data_type().is_string()) {
        return Ok(frame);
    }
    let columns = fields.iter().map(|field| {
        let column = Expr::Column(Column::new_unqualified(field.name()));
        match partition_by.contains(field.name()) && field.data_type().is_string() {
            true => nullif(column, lit("")).alias(field.name()),
            false => column,
        }
    });
    let columns = columns.collect::<Vec<_>>();
    Ok(frame.select(columns)?)
}

/// The rows of one partition of the table in one part of the result, so that they share files.
fn by_partition(frame: DataFrame, plan: &ModelPlan) -> Result<DataFrame> {
    if plan.partition_by.is_empty() {
        return Ok(frame);
    }
    let names: Vec<String> = frame.schema().fields().iter().map(|field| field.name().clone()).collect();
    if let Some(column) = plan.partition_by.iter().find(|column| !names.contains(column)) {
        let error =
            Error::new(ErrorKind::Query, format!("{} has no column `{column}` to be partitioned by", plan.table));
        return Err(match did_you_mean(column, names.iter().map(String::as_str)) {
            Some(hint) => error.hint(hint),
            None => error,
        });
    }
    if plan.partition_by.len() == names.len() {
        let message = format!("every column of {} is a partition column", plan.table);
        return Err(Error::new(ErrorKind::Query, message).hint("leave one column out of `partition_by`"));
    }
    let columns: Vec<Expr> = plan.partition_by.iter().map(|name| Expr::Column(Column::new_unqualified(name))).collect();
    let parts = frame.task_ctx().session_config().target_partitions();
    Ok(frame.repartition(Partitioning::Hash(columns, parts))?)
}

fn version(table: &Table) -> i64 {
    i64::try_from(table.version()).unwrap_or(i64::MAX)
}
