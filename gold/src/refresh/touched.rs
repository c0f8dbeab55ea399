//! Which groups a change touches: the values of the group columns in rows of the result that differ, before or after.
//!
//! A row of the result differs when something that it is made of does, so the plan is followed from the changed rows of
//! its sources up. On each side, old and new, a join pairs changed rows of one input with all rows of the other as they
//! are on that side; where an outer join fills up with nulls, or a semi or anti join only asks, a changed row of one
//! input touches the rows of the other that it meets on either side. An aggregate differs in the groups of its changed
//! rows. What comes out is never too little; where it costs less it may be too much (a filter on aggregates is left out,
//! and so is the join with a table that does not say which group a row belongs to).

use std::sync::Arc;

use datafusion::common::{Column, DFSchema, DFSchemaRef, JoinType, Result};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Join, LogicalPlan, LogicalPlanBuilder, Operator, Union, binary_expr, ident,
};

use super::scans::{Scans, Side};
use super::through::{columns, is_of, replaced, through};

/// The name under which touched groups are joined.
pub(super) const TOUCHED: &str = "__touched";

/// Follows changes through a plan.
pub(super) struct Follow<'a>(pub(super) &'a Scans);

/// The name of a group column among the touched groups.
pub(super) fn touched_name(number: usize) -> String {
    format!("__group_{number}")
}

impl Follow<'_> {
    /// The values of some expressions in rows of a node that differ, each once, named [`touched_name`]; `None` when no
    /// row differs.
    pub(super) fn groups(&self, node: &LogicalPlan, exprs: &[Expr]) -> Result<Option<LogicalPlan>> {
        let mut parts = self.values(node, exprs, Side::Old)?;
        parts.extend(self.values(node, exprs, Side::New)?);
        let parts = parts.into_iter().map(|(plan, exprs)| {
            let named = exprs.into_iter().enumerate().map(|(number, expr)| expr.alias(touched_name(number)));
            LogicalPlanBuilder::from(plan).project(named.collect::<Vec<_>>())?.build()
        });
        let Some(all) = all_of(parts.collect::<Result<Vec<_>>>()?)? else { return Ok(None) };
        LogicalPlanBuilder::from(all).distinct()?.build().map(Some)
    }

    /// Plans, each with the expressions over it, whose values cover those of the rows of a node that differ on a side.
    fn values(&self, node: &LogicalPlan, exprs: &[Expr], side: Side) -> Result<Vec<(LogicalPlan, Vec<Expr>)>> {
        match node {
            LogicalPlan::Filter(filter) if !is_on_groups(&filter.input) => {}
            LogicalPlan::Union(union) => {
                let mut parts = Vec::new();
                for input in &union.inputs {
                    let below = exprs.iter().map(|expr| replaced(node, expr, &columns(input)));
                    parts.extend(self.values(input, &below.collect::<Result<Vec<_>>>()?, side)?);
                }
                return Ok(parts);
            }
            LogicalPlan::Join(join) => return self.of_join(node, join, exprs, side),
            _ => {
                if let (Some(below), Some(input)) = (through(node, exprs)?, node.inputs().first()) {
                    return self.values(input, &below, side);
                }
            }
        }
        Ok(self.touched(node, side)?.map(|plan| (plan, exprs.to_vec())).into_iter().collect())
    }

    /// Where one input says it all, the other is read for its changes only.
    fn of_join(
        &self,
        node: &LogicalPlan,
        join: &Join,
        exprs: &[Expr],
        side: Side,
    ) -> Result<Vec<(LogicalPlan, Vec<Expr>)>> {
        let by_left = exprs.iter().all(|expr| is_of(&join.left, expr));
        if by_left && keeps_left(join.join_type) {
            let mut parts = self.values(&join.left, exprs, side)?;
            parts.extend(self.met(join, side, true)?.map(|plan| (plan, exprs.to_vec())));
            return Ok(parts);
        }
        let by_right = exprs.iter().all(|expr| is_of(&join.right, expr));
        if by_right && keeps_right(join.join_type) {
            let mut parts = self.values(&join.right, exprs, side)?;
            parts.extend(self.met(join, side, false)?.map(|plan| (plan, exprs.to_vec())));
            return Ok(parts);
        }
        Ok(self.touched(node, side)?.map(|plan| (plan, exprs.to_vec())).into_iter().collect())
    }

    /// The rows of a node that differ on a side, and maybe others; `None` when none does.
    fn touched(&self, node: &LogicalPlan, side: Side) -> Result<Option<LogicalPlan>> {
        match node {
            LogicalPlan::TableScan(scan) => self.0.changed(scan, side),
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => Ok(None),
            LogicalPlan::Join(join) => self.joined(join, side),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate, side),
            LogicalPlan::Union(union) => self.united(union, side),
            LogicalPlan::Distinct(Distinct::All(input)) => self.touched(input, side),
            _ => match node.inputs()[..] {
                [input] => {
                    let Some(input) = self.touched(input, side)? else { return Ok(None) };
                    node.with_new_exprs(node.expressions(), vec![input]).map(Some)
                }
                _ => datafusion::common::internal_err!("changes cannot be followed through {}", node.display()),
            },
        }
    }

    /// The rows that differ, on both sides.
    fn either(&self, node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let sides = [self.touched(node, Side::Old)?, self.touched(node, Side::New)?];
        all_of(sides.into_iter().flatten().collect())
    }

    fn united(&self, union: &Union, side: Side) -> Result<Option<LogicalPlan>> {
        let mut inputs = Vec::new();
        for input in &union.inputs {
            inputs.extend(self.touched(input, side)?.map(Arc::new));
        }
        let schema = nullable(&union.schema)?;
        Ok((!inputs.is_empty()).then_some(LogicalPlan::Union(Union { inputs, schema })))
    }

    /// The groups of changed rows, made of all their rows.
    fn aggregated(&self, aggregate: &Aggregate, side: Side) -> Result<Option<LogicalPlan>> {
        let Some(mut changed) = self.groups(&aggregate.input, &aggregate.group_expr)? else { return Ok(None) };
        let mut rows = self.0.whole(&aggregate.input, side)?;
        if !aggregate.group_expr.is_empty() {
            changed = LogicalPlanBuilder::from(changed).alias(TOUCHED)?.build()?;
            let same = aggregate.group_expr.iter().enumerate().map(|(number, expr)| in_group(expr, number));
            rows = LogicalPlanBuilder::from(rows).join_on(changed, JoinType::LeftSemi, same)?.build()?;
        }
        let (groups, made) = (aggregate.group_expr.clone(), aggregate.aggr_expr.clone());
        Aggregate::try_new(Arc::new(rows), groups, made).map(|made| Some(LogicalPlan::Aggregate(made)))
    }

    fn joined(&self, join: &Join, side: Side) -> Result<Option<LogicalPlan>> {
        use JoinType::{Full, Inner, Left, Right};
        let (kind, mut parts) = (join.join_type, Vec::new());
        // Rows of a full join are those of a left join and those of a right one.
        let (of_left, of_right) = if kind == Full { (Left, Right) } else { (kind, kind) };
        if keeps_left(kind) || kind == Full {
            let met = if kind == Inner { None } else { self.met(join, side, true)? };
            for left in [self.touched(&join.left, side)?, met].into_iter().flatten() {
                parts.push(pair(join, left, self.0.whole(&join.right, side)?, of_left)?);
            }
        }
        if keeps_right(kind) || kind == Full {
            let met = if kind == Inner { None } else { self.met(join, side, false)? };
            for right in [self.touched(&join.right, side)?, met].into_iter().flatten() {
                parts.push(pair(join, self.0.whole(&join.left, side)?, right, of_right)?);
            }
        }
        all_of(parts)
    }

    /// The rows of one input that meet a changed row of the other.
    fn met(&self, join: &Join, side: Side, of_left: bool) -> Result<Option<LogicalPlan>> {
        let (own, other) = if of_left { (&join.left, &join.right) } else { (&join.right, &join.left) };
        let Some(other) = self.either(other)? else { return Ok(None) };
        let own = self.0.whole(own, side)?;
        Ok(Some(match of_left {
            true => pair(join, own, other, JoinType::LeftSemi)?,
            false => pair(join, other, own, JoinType::RightSemi)?,
        }))
    }
}

/// A join of other inputs under the same conditions.
pub(super) fn pair(join: &Join, left: LogicalPlan, right: LogicalPlan, kind: JoinType) -> Result<LogicalPlan> {
    let (on, filter) = (join.on.clone(), join.filter.clone());
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        filter,
        kind,
        join.join_constraint,
        join.null_equality,
        false,
    )?;
    Ok(LogicalPlan::Join(joined))
}

/// True when an expression has a value of a touched group; null is in the group of null.
pub(super) fn in_group(expr: &Expr, number: usize) -> Expr {
    let group = Expr::Column(Column::new(Some(TOUCHED), touched_name(number)));
    binary_expr(expr.clone().unalias(), Operator::IsNotDistinctFrom, group)
}

/// Joins whose result has rows of the left that stand for themselves.
fn keeps_left(kind: JoinType) -> bool {
    matches!(kind, JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark)
}

fn keeps_right(kind: JoinType) -> bool {
    matches!(kind, JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark)
}

/// True when rows of a node are made of groups, so that a filter on them says nothing about the rows below.
fn is_on_groups(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Aggregate(_) => true,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) => {
            node.inputs().first().is_some_and(|input| is_on_groups(input))
        }
        _ => false,
    }
}

/// The rows of plans with the same columns, under the same names. A union knows nothing of the tables that columns are
/// of, so they go through it by number.
fn all_of(mut plans: Vec<LogicalPlan>) -> Result<Option<LogicalPlan>> {
    let Some(first) = plans.first().filter(|_| plans.len() > 1) else { return Ok(plans.pop()) };
    let names = first.schema().iter().map(|(of, field)| (of.cloned(), field.name().clone())).collect::<Vec<_>>();
    let number = |number: usize| format!("__column_{number}");
    let mut all: Option<LogicalPlanBuilder> = None;
    for plan in plans {
        let numbered = columns(&plan).into_iter().enumerate().map(|(place, column)| column.alias(number(place)));
        let plan = LogicalPlanBuilder::from(plan).project(numbered.collect::<Vec<_>>())?;
        all = Some(match all {
            Some(all) => all.union(plan.build()?)?,
            None => plan,
        });
    }
    let named = names.into_iter().enumerate();
    let named = named.map(|(place, (of, name))| ident(number(place)).alias_qualified(of, name));
    all.map(|all| all.project(named.collect::<Vec<_>>())?.build()).transpose()
}

/// The same columns, which may all be null: what changed may be so on one side alone.
fn nullable(schema: &DFSchema) -> Result<DFSchemaRef> {
    let fields = schema.iter().map(|(of, field)| (of.cloned(), Arc::new(field.as_ref().clone().with_nullable(true))));
    Ok(Arc::new(DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())?))
}
