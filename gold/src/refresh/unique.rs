//! Which columns of a result tell its rows apart, as far as the query and the keys of its sources say so.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Distinct, Expr, Join, JoinType, LogicalPlan, Union};
use lake::TableName;

use super::scans::table_of;
use super::through::place;

/// The places of columns that no two rows of the result have alike; `None` where none are known. No place at all means
/// that there is one row.
pub(super) fn unique(node: &LogicalPlan, keys: &BTreeMap<TableName, Vec<String>>) -> Option<BTreeSet<usize>> {
    match node {
        LogicalPlan::TableScan(scan) => {
            let keys = keys.get(&table_of(&scan.table_name)?)?;
            let place = |key: &String| scan.projected_schema.index_of_column_by_name(None, key);
            let places: Option<BTreeSet<usize>> = keys.iter().map(place).collect();
            places.filter(|places| !places.is_empty())
        }
        LogicalPlan::Projection(projection) => {
            let below = unique(&projection.input, keys)?;
            let shown =
                |wanted: usize| projection.expr.iter().position(|expr| place(&projection.input, expr) == Some(wanted));
            below.into_iter().map(shown).collect()
        }
        LogicalPlan::SubqueryAlias(alias) => unique(&alias.input, keys),
        LogicalPlan::Filter(filter) => unique(&filter.input, keys),
        LogicalPlan::Sort(sort) => unique(&sort.input, keys),
        LogicalPlan::Repartition(repartition) => unique(&repartition.input, keys),
        LogicalPlan::Aggregate(aggregate) => Some((0..aggregate.group_expr.len()).collect()),
        LogicalPlan::Distinct(Distinct::All(input)) => Some((0..input.schema().fields().len()).collect()),
        LogicalPlan::Join(join) => of_join(join, keys),
        LogicalPlan::Union(union) => of_union(union, keys),
        _ => None,
    }
}

fn of_join(join: &Join, keys: &BTreeMap<TableName, Vec<String>>) -> Option<BTreeSet<usize>> {
    let left = unique(&join.left, keys);
    if matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark) {
        return left;
    }
    let right = unique(&join.right, keys);
    if matches!(join.join_type, JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark) {
        return right;
    }
    let (left, right) = (left?, right?);
    let compared = |side: &LogicalPlan, pick: fn(&(Expr, Expr)) -> &Expr| -> BTreeSet<usize> {
        join.on.iter().filter_map(|pair| place(side, pick(pair))).collect()
    };
    let shift = join.left.schema().fields().len();
    let right_places: BTreeSet<usize> = right.iter().map(|place| place + shift).collect();
    // Each row of one side meets one row of the other at most.
    let one_right = right.is_subset(&compared(&join.right, |pair| &pair.1));
    let one_left = left.is_subset(&compared(&join.left, |pair| &pair.0));
    match join.join_type {
        JoinType::Inner | JoinType::Left if one_right => Some(left),
        JoinType::Inner | JoinType::Right if one_left => Some(right_places),
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            Some(left.into_iter().chain(right_places).collect())
        }
        _ => None,
    }
}

/// Branches whose rows a constant tells apart.
fn of_union(union: &Union, keys: &BTreeMap<TableName, Vec<String>>) -> Option<BTreeSet<usize>> {
    if let [input] = union.inputs.as_slice() {
        return unique(input, keys);
    }
    let tells = |place: usize| {
        // As the union has them: `1` and `1.0` are one value there.
        let kind = union.schema.field(place).data_type();
        let of = |input: &Arc<LogicalPlan>| constant(input, place)?.cast_to(kind).ok();
        let constants: Option<Vec<ScalarValue>> = union.inputs.iter().map(of).collect();
        constants.is_some_and(|all| {
            all.iter().all(|value| !value.is_null()) && all.iter().collect::<HashSet<_>>().len() == all.len()
        })
    };
    let told = (0..union.schema.fields().len()).find(|place| tells(*place))?;
    let mut places = BTreeSet::from([told]);
    for input in &union.inputs {
        places.extend(unique(input, keys)?);
    }
    Some(places)
}

/// The constant that stands at a place of every row.
fn constant(node: &LogicalPlan, place: usize) -> Option<ScalarValue> {
    match node {
        LogicalPlan::Projection(projection) => {
            value(&projection.input, projection.expr.get(place)?.clone().unalias_nested().data)
        }
        LogicalPlan::SubqueryAlias(alias) => constant(&alias.input, place),
        LogicalPlan::Filter(filter) => constant(&filter.input, place),
        LogicalPlan::Sort(sort) => constant(&sort.input, place),
        _ => None,
    }
}

/// What an expression over a node is in every row, with its casts done.
fn value(input: &LogicalPlan, expr: Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Cast(cast) => value(input, *cast.expr)?.cast_to(cast.field.data_type()).ok(),
        Expr::Alias(alias) => value(input, *alias.expr),
        Expr::Literal(value, _) => Some(value),
        other => constant(input, place(input, &other)?),
    }
}
