//! Which columns of a result tell its rows apart, as far as the query and the keys of its sources say so.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Distinct, Expr, Join, JoinType, LogicalPlan, Union};
use lake::TableName;

use super::scans::table_of;
use super::through::place;

/// What tells the rows of a node apart.
pub(super) struct Unique {
    /// The places of columns that no two rows have alike, null being like null. No place at all means that there is one row.
    pub(super) places: BTreeSet<usize>,
    /// False where a row may have nulls at all of them: beside an outer join those of a row that met none are the same.
    is_told: bool,
}

/// What tells the rows of the result apart; `None` where nothing is known to.
pub(super) fn unique(node: &LogicalPlan, keys: &BTreeMap<TableName, Vec<String>>) -> Option<Unique> {
    match node {
        LogicalPlan::TableScan(scan) => {
            let keys = keys.get(&table_of(&scan.table_name)?)?;
            let place = |key: &String| scan.projected_schema.index_of_column_by_name(None, key);
            let places: Option<BTreeSet<usize>> = keys.iter().map(place).collect();
            // No row of a silver table is without a key.
            places.filter(|places| !places.is_empty()).map(|places| Unique { places, is_told: true })
        }
        LogicalPlan::Projection(projection) => {
            let Unique { places, is_told } = unique(&projection.input, keys)?;
            let shown =
                |wanted: usize| projection.expr.iter().position(|expr| place(&projection.input, expr) == Some(wanted));
            let places: Option<BTreeSet<usize>> = places.into_iter().map(shown).collect();
            places.map(|places| Unique { places, is_told })
        }
        LogicalPlan::SubqueryAlias(alias) => unique(&alias.input, keys),
        LogicalPlan::Filter(filter) => unique(&filter.input, keys),
        LogicalPlan::Sort(sort) => unique(&sort.input, keys),
        LogicalPlan::Repartition(repartition) => unique(&repartition.input, keys),
        LogicalPlan::Aggregate(aggregate) => {
            // A constant tells nothing; a subquery that is a join has one.
            let tells = |group: &Expr| !matches!(group.clone().unalias(), Expr::Literal(..));
            let groups = aggregate.group_expr.iter().enumerate().filter(|(_, group)| tells(group));
            Some(by(node, groups.map(|(place, _)| place).collect()))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => Some(by(node, (0..input.schema().fields().len()).collect())),
        LogicalPlan::Join(join) => of_join(join, keys),
        LogicalPlan::Union(union) => of_union(union, keys),
        _ => None,
    }
}

/// The columns of a node that groups by them.
fn by(node: &LogicalPlan, places: BTreeSet<usize>) -> Unique {
    let is_told = places.iter().any(|place| !node.schema().field(*place).is_nullable());
    Unique { places, is_told }
}

fn of_join(join: &Join, keys: &BTreeMap<TableName, Vec<String>>) -> Option<Unique> {
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
    // Each row of one side meets one row of the other at most.
    let one_right = right.places.is_subset(&compared(&join.right, |pair| &pair.1));
    let one_left = left.places.is_subset(&compared(&join.left, |pair| &pair.0));
    let shift = join.left.schema().fields().len();
    let right = Unique { places: right.places.iter().map(|place| place + shift).collect(), ..right };
    let (left_told, right_told) = (left.is_told, right.is_told);
    let both =
        |is_told: bool| Some(Unique { places: left.places.iter().chain(&right.places).copied().collect(), is_told });
    match join.join_type {
        JoinType::Inner | JoinType::Left if one_right => Some(left),
        JoinType::Inner | JoinType::Right if one_left => Some(right),
        JoinType::Inner => both(left_told || right_told),
        JoinType::Left => both(left_told),
        JoinType::Right => both(right_told),
        // A row of nulls alone may be there from either side, each without a partner.
        JoinType::Full if left_told || right_told => both(left_told && right_told),
        _ => None,
    }
}

/// Branches whose rows a constant tells apart.
fn of_union(union: &Union, keys: &BTreeMap<TableName, Vec<String>>) -> Option<Unique> {
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
        places.extend(unique(input, keys)?.places);
    }
    Some(Unique { places, is_told: true })
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
