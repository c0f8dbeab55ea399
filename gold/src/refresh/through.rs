//! Expressions over the result of a node as expressions over what the node reads.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};

/// The column at a place of a node's result.
pub(super) fn column(node: &LogicalPlan, place: usize) -> Expr {
    Expr::Column(Column::from(node.schema().qualified_field(place)))
}

/// The place of a column in a node's result.
pub(super) fn place(node: &LogicalPlan, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column(column) => node.schema().maybe_index_of_column(column),
        Expr::Alias(alias) => place(node, &alias.expr),
        _ => None,
    }
}

/// True when an expression is made of columns of a node's result alone.
pub(super) fn is_of(node: &LogicalPlan, expr: &Expr) -> bool {
    expr.column_refs().iter().all(|column| node.schema().has_column(column))
}

/// The same expressions over the one input of a node, where the rows of the input with some values of these are what
/// makes the rows of the result with these values; `None` where that is not so.
pub(super) fn through(node: &LogicalPlan, exprs: &[Expr]) -> Result<Option<Vec<Expr>>> {
    let made_of: Vec<Expr> = match node {
        LogicalPlan::Projection(projection) => projection.expr.iter().map(|expr| expr.clone().unalias()).collect(),
        LogicalPlan::SubqueryAlias(alias) => columns(&alias.input),
        LogicalPlan::Filter(filter) => columns(&filter.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => columns(&sort.input),
        LogicalPlan::Repartition(repartition) => columns(&repartition.input),
        LogicalPlan::Distinct(Distinct::All(input)) => columns(input),
        LogicalPlan::Aggregate(aggregate) => {
            let groups = aggregate.group_expr.len();
            let is_group = |expr: &Expr| {
                expr.column_refs()
                    .iter()
                    .all(|column| node.schema().maybe_index_of_column(column).is_some_and(|place| place < groups))
            };
            if !exprs.iter().all(is_group) {
                return Ok(None);
            }
            aggregate.group_expr.iter().map(|expr| expr.clone().unalias()).collect()
        }
        _ => return Ok(None),
    };
    exprs.iter().map(|expr| replaced(node, expr, &made_of)).collect::<Result<Vec<_>>>().map(Some)
}

/// Columns of a node's result with what stands at their places instead.
pub(super) fn replaced(node: &LogicalPlan, expr: &Expr, instead: &[Expr]) -> Result<Expr> {
    let replace = |expr: Expr| {
        Ok(match place_of_column(node, &expr).and_then(|place| instead.get(place)) {
            Some(other) => Transformed::yes(other.clone()),
            None => Transformed::no(expr),
        })
    };
    // From below, so that what was put in is not looked at again.
    let mut replace_once = replace;
    Ok(expr.clone().transform_up(&mut replace_once)?.data)
}

/// What an expression is made of, as far down as it can be followed.
pub(super) fn origin(node: &LogicalPlan, expr: &Expr) -> Expr {
    let down = match node {
        LogicalPlan::Join(join) => {
            [&join.left, &join.right].into_iter().find(|side| is_of(side, expr)).map(|side| origin(side, expr))
        }
        LogicalPlan::Union(union) => union.inputs.first().and_then(|input| {
            let expr = replaced(node, expr, &columns(input)).ok()?;
            Some(origin(input, &expr))
        }),
        _ => match (through(node, std::slice::from_ref(expr)), node.inputs().first()) {
            (Ok(Some(exprs)), Some(input)) => exprs.first().map(|expr| origin(input, expr)),
            _ => None,
        },
    };
    down.unwrap_or_else(|| expr.clone())
}

/// All columns of a node's result.
pub(super) fn columns(node: &LogicalPlan) -> Vec<Expr> {
    (0..node.schema().fields().len()).map(|place| column(node, place)).collect()
}

fn place_of_column(node: &LogicalPlan, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column(column) => node.schema().maybe_index_of_column(column),
        _ => None,
    }
}
