//! What keeps a query from being refreshed by groups, in words.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, Volatility};
use lake::columns::BATCH_ID;
use lake::schema::type_name;
use lake::upsert::DELETE;

/// Aggregates whose result does not depend on the order of rows, whatever they are made of.
const EXACT: [&str; 13] = [
    "count",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "approx_distinct",
    "median",
    "percentile_cont",
    "quantile_cont",
    "grouping",
];
/// Aggregates that add up.
const SUMS: [&str; 2] = ["sum", "avg"];
/// Aggregates that take rows as they come.
const ORDERED: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];

/// What in a plan cannot be refreshed by groups.
pub(super) fn of_plan(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    let mut reasons = BTreeSet::new();
    plan.apply(|node| {
        reasons.extend(of_node(node)?);
        node.apply_expressions(|expr| {
            if expr.exists(|part| Ok(is_subquery(part)))? {
                reasons.insert("a subquery in it is no join".to_owned());
            }
            expr.apply(|part| {
                if let Expr::ScalarFunction(call) = part
                    && call.func.signature().volatility != Volatility::Immutable
                {
                    reasons.insert(format!("`{}` differs from run to run", call.func.name()));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(reasons)
}

/// What keeps the columns at these places from telling groups in a table that is partitioned by some columns.
pub(super) fn of_groups(plan: &LogicalPlan, places: Option<&[usize]>, partition_by: &[String]) -> Vec<String> {
    let mut reasons = Vec::new();
    match places {
        None => reasons.push(
            "no columns of the result are known to tell its rows apart: show all that it groups by, or the keys of \
             what it reads, or name some in `keys`"
                .to_owned(),
        ),
        Some([]) => reasons.push("it has one row, made of all rows: there is no GROUP BY".to_owned()),
        Some(places) => {
            let fields = places.iter().map(|place| plan.schema().field(*place));
            for field in fields.filter(|field| !tells(field.data_type())) {
                let kind = type_name(field.data_type());
                reasons.push(format!("`{}` is {kind}, which does not tell groups", field.name()));
            }
            let fields = places.iter().map(|place| plan.schema().field(*place));
            for field in fields.filter(|field| is_text(field.data_type()) && partition_by.contains(field.name())) {
                reasons.push(format!(
                    "`{}` is in `partition_by`, where an empty text becomes null, so that it does not tell groups",
                    field.name()
                ));
            }
        }
    }
    for field in plan.schema().fields().iter().filter(|field| [BATCH_ID, DELETE].contains(&field.name().as_str())) {
        reasons.push(format!("a column is named `{}`", field.name()));
    }
    reasons
}

/// Types whose values are the same or not, whatever wrote them.
fn tells(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => tells(values),
        kind => !kind.is_nested() && !kind.is_floating() && !kind.is_null(),
    }
}

/// Types whose empty value is null as the value of a partition.
fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_text(values),
        kind => kind.is_string() || kind.is_binary(),
    }
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_))
}

fn of_node(node: &LogicalPlan) -> Result<Vec<String>> {
    let one = |reason: &str| Ok(vec![reason.to_owned()]);
    match node {
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => Ok(Vec::new()),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => Ok(Vec::new()),
        LogicalPlan::Join(join) if join.null_aware => {
            one("`NOT IN (SELECT …)` depends on every row as soon as one is null: write `NOT EXISTS`")
        }
        LogicalPlan::Join(_) => Ok(Vec::new()),
        LogicalPlan::Aggregate(aggregate) => of_aggregate(aggregate),
        LogicalPlan::Limit(_) | LogicalPlan::Sort(_) => one("`LIMIT` keeps some of all rows"),
        LogicalPlan::Window(_) => one("a window function looks at rows beyond a group"),
        LogicalPlan::Distinct(Distinct::On(_)) => one("`DISTINCT ON` keeps any one row"),
        LogicalPlan::RecursiveQuery(_) => one("a recursive query may touch any row"),
        LogicalPlan::Unnest(_) => one("`unnest` makes several rows of one"),
        other => Ok(vec![format!("{} is not covered", other.display())]),
    }
}

fn of_aggregate(aggregate: &Aggregate) -> Result<Vec<String>> {
    let mut reasons = Vec::new();
    if aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
        reasons.push("`GROUPING SETS`, `ROLLUP` and `CUBE` make groups of groups".to_owned());
    }
    for expr in &aggregate.aggr_expr {
        if let Expr::AggregateFunction(function) = expr.clone().unalias() {
            reasons.extend(of_function(&function, aggregate.input.schema())?);
        }
    }
    Ok(reasons)
}

/// Why an aggregate may come out otherwise when its rows come in another order.
fn of_function(function: &AggregateFunction, input: &DFSchema) -> Result<Option<String>> {
    let (name, params) = (function.func.name(), &function.params);
    let Some(first) = params.args.first() else { return Ok(None) };
    if EXACT.contains(&name) {
        return Ok(None);
    }
    if ORDERED.contains(&name) {
        let is_decided = params.order_by.iter().any(|order| order.expr == *first);
        let reason = format!("`{name}` depends on the order of rows: put `ORDER BY {first}` last into it");
        return Ok((!is_decided).then_some(reason));
    }
    let is_exact = match first.get_type(input)? {
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) => true,
        kind => kind.is_integer(),
    };
    if SUMS.contains(&name) && is_exact {
        return Ok(None);
    }
    if !SUMS.contains(&name) {
        return Ok(Some(format!("`{name}` is not known to come out the same whatever the order of rows")));
    }
    Ok(Some(format!(
        "`{name}({first})` adds up floating numbers, whose sum depends on the order of rows: cast them to DECIMAL"
    )))
}
