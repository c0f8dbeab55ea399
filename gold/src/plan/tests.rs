//! Entries of a spec to plans, or to what is wrong with them.

use lake::spec::Document;

use super::*;

/// The plans of a gold section, and each problem as `path: message (hint)`.
fn compiled(gold: &str) -> (Vec<Plan>, Vec<String>) {
    let lines: String = gold.lines().map(|line| format!("  {line}\n")).collect();
    let document = Document::parse("pipelines.yaml", &format!("name: shop\ngold:\n{lines}"));
    let mut problems = document.problems();
    let keys_of =
        |table: &TableName| (table.name == "products").then(|| Keys { entity: vec!["id".to_owned()], is_row: true });
    let entries = document.section("gold", &mut problems);
    let plans = entries.iter().filter_map(|entry| compile(entry, &keys_of, &mut problems)).collect();
    let told = problems.in_file_order().into_iter().map(|(_, problem)| match &problem.hint {
        Some(hint) => format!("{}: {} ({hint})", problem.path, problem.message),
        None => format!("{}: {}", problem.path, problem.message),
    });
    (plans, told.collect())
}

fn problem(gold: &str) -> String {
    let (plans, mut problems) = compiled(gold);
    assert!(plans.is_empty() && problems.len() == 1, "{plans:?} {problems:?}");
    problems.remove(0)
}

#[test]
fn a_query_is_a_model_of_the_tables_that_it_names() {
    let (plans, problems) =
        compiled("daily:\n  query: SELECT 1 AS a FROM silver.orders\n  partition_by: [a]\n  refresh: full");
    assert_eq!(problems, [""; 0]);
    let Plan::Model(plan) = &plans[0] else { panic!("a model") };
    assert_eq!(plan.sources, BTreeSet::from([TableName::silver("orders")]));
    assert_eq!((plan.refresh, plan.partition_by.as_slice()), (Refresh::Full, ["a".to_owned()].as_slice()));
}

#[test]
fn a_snapshot_takes_the_keys_of_its_silver_table() {
    let (plans, problems) =
        compiled("days:\n  snapshot_of: silver.products\n  strategy: changed_only\n  retention: 365 days");
    assert_eq!(problems, [""; 0]);
    let Plan::Snapshot(plan) = &plans[0] else { panic!("a snapshot") };
    assert_eq!(plan.keys, ["id"]);
    assert_eq!((plan.strategy, plan.retention_days), (Strategy::ChangedOnly, Some(365)));
}

#[test]
fn an_entry_is_one_or_the_other() {
    assert_eq!(
        problem("x: {}"),
        "gold.x: the table has no rows to hold (give it `query: SELECT …`, or `snapshot_of: silver.…`)"
    );
    let both = problem("x:\n  query: SELECT 1 AS a\n  snapshot_of: silver.products");
    assert!(both.starts_with("gold.x.snapshot_of: a table is either a model"), "{both}");
    let foreign = problem("x:\n  query: SELECT 1 AS a\n  strategy: full");
    assert!(foreign.starts_with("gold.x.strategy: `strategy` belongs to a snapshot"), "{foreign}");
    let foreign = problem("x:\n  snapshot_of: silver.products\n  zorder_by: [id]");
    assert!(foreign.starts_with("gold.x.zorder_by: `zorder_by` belongs to a model"), "{foreign}");
    let foreign = problem("x:\n  snapshot_of: silver.products\n  keys: [id]");
    assert!(foreign.contains("`keys` belongs to `strategy: changed_only`"), "{foreign}");
}

#[test]
fn properties_are_those_that_may_be_set() {
    let wrong = problem("x:\n  query: SELECT 1 AS a\n  properties: {delta.appendOnly: \"true\"}");
    assert!(wrong.starts_with("gold.x.properties.") && wrong.contains("`delta.appendOnly` cannot be set"), "{wrong}");
    let wrong = problem("x:\n  snapshot_of: silver.products\n  properties: {delta.logRetentionDuration: 9 days}");
    assert!(wrong.contains("`9 days` is no value of `delta.logRetentionDuration`"), "{wrong}");
}

#[test]
fn changed_only_needs_keys_that_it_keeps() {
    let keys = problem("x:\n  snapshot_of: gold.daily\n  strategy: changed_only");
    assert!(keys.starts_with("gold.x.keys: `changed_only` needs `keys`"), "{keys}");
    let other = problem("x:\n  snapshot_of: silver.products\n  strategy: changed_only\n  keys: [name]");
    assert!(other.contains("silver.products has the keys `id`"), "{other}");
    let lost = problem("x:\n  snapshot_of: silver.products\n  strategy: changed_only\n  columns: [name]");
    assert!(lost.contains("the key `id` is not among the kept columns"), "{lost}");
}

#[test]
fn every_problem_of_a_query_is_told() {
    let (_, problems) = compiled("x:\n  query: SELECT * FROM orders JOIN sliver.orders ON true");
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[1].contains("did you mean `silver`?"), "{problems:?}");
}

#[test]
fn days_are_whole() {
    assert!(problem("x:\n  snapshot_of: silver.products\n  retention: 36h").contains("not a number of whole days"));
}
