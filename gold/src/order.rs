//! Gold tables behind those that they read.

use std::collections::BTreeSet;

use lake::TableName;

use crate::plan::Plan;

/// The plans, each behind those of its sources that are among them; otherwise in the order in which they came.
///
/// # Errors
/// The tables that need one another in a circle, and those that wait for them.
pub fn in_order(plans: Vec<Plan>) -> Result<Vec<Plan>, Vec<TableName>> {
    let mut waiting = plans;
    let mut ordered = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let open: BTreeSet<TableName> = waiting.iter().map(|plan| plan.table().clone()).collect();
        let (ready, blocked): (Vec<Plan>, Vec<Plan>) =
            waiting.into_iter().partition(|plan| plan.sources().is_disjoint(&open));
        if ready.is_empty() {
            return Err(open.into_iter().collect());
        }
        ordered.extend(ready);
        waiting = blocked;
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ModelPlan;
    use crate::spec::Refresh;

    fn model(name: &str, sources: &[&str]) -> Plan {
        Plan::Model(ModelPlan {
            table: TableName::gold(name),
            query: String::new(),
            sources: sources.iter().filter_map(|source| TableName::parse(source)).collect(),
            source_keys: std::collections::BTreeMap::new(),
            unstable: BTreeSet::new(),
            refresh: Refresh::Auto,
            partition_by: Vec::new(),
            zorder_by: Vec::new(),
            keys: Vec::new(),
            reset_allowed: true,
            checks: crate::plan::ChecksPlan::default(),
            about: crate::plan::About::default(),
            rebuild: false,
        })
    }

    #[test]
    fn a_table_stands_behind_those_that_it_reads() {
        let plans =
            vec![model("top", &["gold.day", "silver.a"]), model("day", &["silver.a"]), model("b", &["silver.b"])];
        let ordered = in_order(plans).expect("an order");
        let names: Vec<String> = ordered.iter().map(|plan| plan.table().to_string()).collect();
        assert_eq!(names, ["gold.day", "gold.b", "gold.top"]);
    }

    #[test]
    fn a_circle_is_no_order() {
        let plans = vec![model("a", &["gold.b"]), model("b", &["gold.a"]), model("c", &[])];
        assert_eq!(in_order(plans), Err(vec![TableName::gold("a"), TableName::gold("b")]));
    }
}
