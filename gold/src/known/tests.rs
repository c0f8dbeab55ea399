//! Queries of models against columns.

use arrow::datatypes::{DataType, Field, Schema};
use lake::spec::Document;

use super::*;
use crate::plan::Plan;

fn orders() -> (TableName, SchemaRef) {
    let fields = [("id", DataType::Int64), ("status", DataType::Utf8), ("amount", DataType::Decimal128(18, 2))];
    let fields = fields.map(|(name, kind)| Field::new(name, kind, true));
    (TableName::silver("orders"), Arc::new(Schema::new(fields.to_vec())))
}

/// The problems of a gold section: `path: message (hint)`.
fn problems(gold: &str) -> Vec<String> {
    let lines: String = gold.lines().map(|line| format!("  {line}\n")).collect();
    let document = Document::parse("pipelines.yaml", &format!("name: shop\ngold:\n{lines}"));
    let mut problems = document.problems();
    let entries = document.section("gold", &mut problems);
    let plans: Vec<Plan> = entries.iter().filter_map(|entry| crate::compile(entry, &|_| None, &mut problems)).collect();
    let models: Vec<&ModelPlan> = plans.iter().filter_map(Plan::model).collect();
    let place = |model: &ModelPlan| SpecPath::of(["gold", &model.table.name]);
    check_models(&models, [orders()], place, &mut problems).expect("a session");
    let told = problems.in_file_order().into_iter().map(|(_, problem)| match &problem.hint {
        Some(hint) => format!("{}: {} ({hint})", problem.path, problem.message),
        None => format!("{}: {}", problem.path, problem.message),
    });
    told.collect()
}

#[test]
fn a_right_model_has_no_problems_and_others_may_read_it() {
    let gold = "top:\n  query: SELECT max(total) AS most FROM gold.sums\nsums:\n  query: SELECT status, sum(amount) AS total FROM silver.orders GROUP BY status\n  keys: [status]";
    assert_eq!(problems(gold), [""; 0]);
}

#[test]
fn a_wrong_column_is_told_with_its_line_and_the_nearest_name() {
    let wrong =
        "sums:\n  query: |\n    SELECT status,\n      sum(amont) AS total\n    FROM silver.orders GROUP BY status";
    let told = "gold.sums.query: there is no column `amont`, asked for in line 2 of the query (did you mean `amount`?)";
    assert_eq!(problems(wrong), [told]);
    let of_model =
        "top:\n  query: SELECT s.totl FROM gold.sums s\nsums:\n  query: SELECT sum(amount) AS total FROM silver.orders";
    assert_eq!(problems(of_model), ["gold.top.query: there is no column `totl` in `s` (did you mean `total`?)"]);
}

#[test]
fn names_and_types_of_the_result_are_checked() {
    let unnamed = problems("x:\n  query: SELECT count(*) FROM silver.orders");
    assert!(unnamed[0].starts_with("gold.x.query: column 1 of gold.x is named `count(*)`"), "{unnamed:?}");
    let twice = problems("x:\n  query: SELECT a.id, b.id FROM silver.orders a JOIN silver.orders b ON a.id = b.id");
    assert!(twice[0].contains("two columns named `id`"), "{twice:?}");
    let kind = problems("x:\n  query: SELECT sum(status) AS s FROM silver.orders");
    assert!(kind[0].starts_with("gold.x.query: ") && kind[0].contains("sum"), "{kind:?}");
}

#[test]
fn options_name_columns_of_the_result() {
    let wrong = "x:\n  query: SELECT status, count(*) AS n FROM silver.orders GROUP BY status\n  partition_by: [statu]\n  keys: [m]\n  column_descriptions: {n: how many, m: what}";
    let told = [
        "gold.x.partition_by[0]: the query has no column `statu` (did you mean `status`?)",
        "gold.x.keys[0]: the query has no column `m` (did you mean `n`?)",
        "gold.x.column_descriptions.m: the query has no column `m` (did you mean `n`?)",
    ];
    assert_eq!(problems(wrong), told);
}

#[test]
fn what_is_not_known_is_left_to_the_run() {
    assert_eq!(problems("x:\n  query: SELECT anything FROM bronze.orders_cdc"), [""; 0]);
}
