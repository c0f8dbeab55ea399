//! `count(DISTINCT x)` beside sums.
//!
//! The planner makes one distinct aggregate two groupings, the inner one by the value as well: that keeps values that many
//! groups have on disk when memory is short. Sums beside it become sums of sums, which are of a wider decimal than the
//! query says, so those queries are left as they are.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};

/// The planner's rule, for aggregates without sums.
#[derive(Debug, Default)]
struct WithoutSums(SingleDistinctToGroupBy);

/// The rules of the planner, this one in its place.
pub(super) fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let own = WithoutSums::default();
    let rules = Optimizer::new().rules.into_iter();
    rules.map(|rule| if rule.name() == own.name() { Arc::new(WithoutSums::default()) as _ } else { rule }).collect()
}

impl OptimizerRule for WithoutSums {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Aggregate(aggregate) if has_sum(aggregate) => Ok(Transformed::no(plan)),
            _ => self.0.rewrite(plan, config),
        }
    }
}

fn has_sum(aggregate: &Aggregate) -> bool {
    let is_sum = |expr: &Expr| match expr {
        Expr::AggregateFunction(call) => call.func.name() == "sum" && !call.params.distinct,
        _ => false,
    };
    aggregate.aggr_expr.iter().any(is_sum)
}
