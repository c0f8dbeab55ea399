//! The shape of a query: its plan over the columns of its sources, and the columns of its result that tell its groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use lake::session::Session;
use lake::{Result, TableName};

use super::obstacles::{of_groups, of_plan};
use super::through::{column, origin};
use super::unique::unique;
use crate::known::Known;
use crate::plan::ModelPlan;

/// What a refresh of groups needs to know of a query.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// The plan: typed, subqueries as joins, filters and joins where they belong.
    pub(crate) plan: LogicalPlan,
    /// The columns of the result that tell one group from another.
    pub(crate) groups: Vec<Group>,
    /// The columns that are needed of each source.
    pub(crate) columns: BTreeMap<TableName, BTreeSet<String>>,
}

/// A column that tells groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Its name in the result.
    pub(crate) name: String,
    /// What it is made of.
    pub(crate) origin: String,
}

/// How a query can be refreshed.
#[derive(Debug, Clone)]
pub(crate) enum Coverage {
    /// By groups.
    Groups(Box<Shape>),
    /// As a whole only, for these reasons.
    Whole(Vec<String>),
}

impl Coverage {
    /// What can be done with the query of a model.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](lake::ErrorKind::Query) when the query does not fit the columns of its sources.
    pub(crate) fn of(model: &ModelPlan, known: &Known) -> Result<Self> {
        let plan = prepared(known.session(), known.plan(&model.query)?)?;
        let mut reasons = BTreeSet::new();
        if model.sources.is_empty() {
            reasons.insert("it reads no table".to_owned());
        }
        for function in &model.unstable {
            reasons.insert(format!("`{function}` differs from run to run"));
        }
        reasons.extend(of_plan(&plan)?);
        let places = match model.keys.is_empty() {
            true => unique(&plan, &model.source_keys).map(|unique| unique.places.into_iter().collect::<Vec<_>>()),
            false => {
                Some(model.keys.iter().filter_map(|key| plan.schema().index_of_column_by_name(None, key)).collect())
            }
        };
        reasons.extend(of_groups(&plan, places.as_deref(), &model.partition_by));
        if !reasons.is_empty() {
            return Ok(Self::Whole(reasons.into_iter().collect()));
        }
        let groups = places.unwrap_or_default().into_iter().map(|place| Group {
            name: plan.schema().field(place).name().clone(),
            origin: origin(&plan, &column(&plan, place)).to_string(),
        });
        let groups = groups.collect();
        let columns = columns(known.session(), &plan)?;
        Ok(Self::Groups(Box::new(Shape { plan, groups, columns })))
    }
}

impl Shape {
    /// The columns of the result that tell groups, as expressions over the plan.
    pub(crate) fn group_columns(&self) -> Vec<Expr> {
        let place = |group: &Group| self.plan.schema().index_of_column_by_name(None, &group.name);
        self.groups.iter().filter_map(place).map(|place| column(&self.plan, place)).collect()
    }
}

/// The columns of the result that no two rows have alike, as far as the query and the keys of its sources say so.
///
/// # Errors
/// As [`Coverage::of`].
pub(crate) fn told_apart(model: &ModelPlan, known: &Known) -> Result<Vec<String>> {
    let plan = prepared(known.session(), known.plan(&model.query)?)?;
    let places = unique(&plan, &model.source_keys).map(|unique| unique.places).unwrap_or_default();
    Ok(places.into_iter().map(|place| plan.schema().field(place).name().clone()).collect())
}

/// Subqueries become joins, and filters and join conditions go where they belong; all else stays as it is written.
fn prepared(session: &Session, plan: LogicalPlan) -> Result<LogicalPlan> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownFilter::new()),
    ];
    let plan = Optimizer::with_rules(rules).optimize(plan, &session.context().state(), |_, _| {})?;
    Ok(plan.transform_up(grouped_once)?.data)
}

/// `GROUP BY a, a` has one column `a` in its result, and two expressions: each place of the result is one of a list here.
fn grouped_once(node: LogicalPlan) -> datafusion::common::Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = node else { return Ok(Transformed::no(node)) };
    let mut once: Vec<Expr> = Vec::new();
    for expr in &aggregate.group_expr {
        if !once.contains(expr) {
            once.push(expr.clone());
        }
    }
    if once.len() == aggregate.group_expr.len() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, aggr_expr, schema, .. } = aggregate;
    Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new_with_schema(input, once, aggr_expr, schema)?)))
}

/// The columns that a plan needs of each table, at least one of each.
fn columns(session: &Session, plan: &LogicalPlan) -> Result<BTreeMap<TableName, BTreeSet<String>>> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![Arc::new(OptimizeProjections::new())];
    let narrow = Optimizer::with_rules(rules).optimize(plan.clone(), &session.context().state(), |_, _| {})?;
    let mut columns: BTreeMap<TableName, BTreeSet<String>> = BTreeMap::new();
    narrow.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = super::scans::table_of(&scan.table_name)
        {
            let read = columns.entry(table).or_default();
            read.extend(scan.projected_schema.fields().iter().map(|field| field.name().clone()));
            if read.is_empty() {
                read.extend(scan.source.schema().fields().first().map(|field| field.name().clone()));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns)
}
