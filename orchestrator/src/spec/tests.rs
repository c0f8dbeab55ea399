//! Whole specs: what is wrong between their parts, and the tasks of a right one.

use std::time::Duration;

use lake::spec::Document;

use super::*;

const SPEC: &str = "\
name: shop
bronze:
  orders_cdc: {path: orders/, format: csv}
  products_feed: {path: products/, format: csv}
silver:
  orders:
    source: orders_cdc
    keys: [id]
    columns: {id: bigint not null, amount: 'decimal(18,2)'}
  products:
    source: products_feed
    keys: [id]
    columns: {id: bigint not null}
gold:
  sales:
    query: SELECT sum(amount) AS total FROM silver.orders
  refused:
    query: SELECT reason, count(*) AS n FROM quarantine.orders_cdc GROUP BY reason
  daily: {snapshot_of: silver.products}
";

fn compile(spec: &str) -> Result<Project, Problems> {
    Project::compile(&Document::parse("pipelines.yaml", spec), &BTreeMap::new())
}

/// Every problem: `line path: message (hint)`.
fn problems(spec: &str) -> Vec<String> {
    let Err(problems) = compile(spec) else { return Vec::new() };
    let json = problems.to_json();
    let list = json["problems"].as_array().expect("a list").iter();
    list.map(|problem| {
        let text = |key: &str| problem[key].as_str().unwrap_or_default().to_owned();
        let hint = if problem["hint"].is_null() { String::new() } else { format!(" ({})", text("hint")) };
        format!("{} {}: {}{hint}", problem["line"], text("path"), text("message"))
    })
    .collect()
}

fn with(from: &str, to: &str) -> String {
    assert!(SPEC.contains(from), "{from}");
    SPEC.replace(from, to)
}

#[test]
fn a_right_spec_is_tasks_in_their_order() {
    let project = compile(&format!("{SPEC}tasks:\n  gold.sales: {{depends_on: [gold.daily], disabled: true}}\n"))
        .expect("a right spec");
    let order: Vec<String> = project.graph.order().map(ToString::to_string).collect();
    let expected = [
        "bronze.orders_cdc",
        "bronze.products_feed",
        "silver.orders",
        "silver.products",
        "gold.refused",
        "gold.daily",
        "gold.sales",
    ];
    assert_eq!(order, expected);
    let needs = |task: &str| {
        let task = TableName::parse(task).expect("a table");
        project.graph.needs(&task).into_iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(needs("gold.sales"), ["silver.orders", "gold.daily"]);
    // Rows come into a quarantine from both layers.
    assert_eq!(needs("gold.refused"), ["bronze.orders_cdc", "silver.orders"]);
    let chosen = project.select(&[]).expect("all");
    assert!(!chosen.contains(&TableName::gold("sales")) && chosen.len() == 6);
}

#[test]
fn selection_knows_names_only() {
    let project = compile(SPEC).expect("a right spec");
    assert_eq!(project.select(&["gold.sales".to_owned()]).expect("a task"), [TableName::gold("sales")].into());
    let error = |name: &str| project.select(&[name.to_owned()]).expect_err("no task");
    assert_eq!(error("gold.sale").to_string(), "there is no task `gold.sale`");
    assert_eq!(error("gold.sale").hint_text(), Some("did you mean `gold.sales`?"));
    assert_eq!(error("orders").hint_text(), Some("did you mean `silver.orders`?"));
}

#[test]
fn tasks_say_how_they_are_retried() {
    let spec = format!("{SPEC}tasks:\n  silver.orders: {{max_retries: 0, min_retry_interval: 250ms, timeout: 30m}}\n");
    let project = compile(&spec).expect("a right spec");
    let policy = project.task(&TableName::silver("orders")).expect("a task").policy;
    let (wait, timeout) = (Duration::from_millis(250), Some(Duration::from_secs(1_800)));
    assert_eq!((policy.max_retries, policy.min_retry_interval, policy.timeout), (0, wait, timeout));
    assert_eq!(project.task(&TableName::gold("sales")).expect("a task").policy, Policy::default());
}

#[test]
fn names_are_resolved_across_the_layers() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "source: orders_cdc",
            "source: orders_cd",
            &["7 silver.orders.source: `orders_cd` is not a source of `bronze` (did you mean `orders_cdc`?)"],
        ),
        (
            "FROM silver.orders",
            "FROM silver.order",
            &["16 gold.sales.query: there is no table `silver.order` (did you mean `silver.orders`?)"],
        ),
        (
            "FROM silver.orders",
            "FROM gold.orders",
            &["16 gold.sales.query: there is no table `gold.orders` (did you mean `silver.orders`?)"],
        ),
        (
            "FROM quarantine.orders_cdc",
            "FROM quarantine.orders",
            &["18 gold.refused.query: there is no table `quarantine.orders` (did you mean `quarantine.orders_cdc`?)"],
        ),
        (
            "snapshot_of: silver.products",
            "snapshot_of: silver.product",
            &["19 gold.daily.snapshot_of: there is no table `silver.product` (did you mean `silver.products`?)"],
        ),
    ];
    for (from, to, expected) in cases {
        assert_eq!(problems(&with(from, to)), *expected, "{to}");
    }
}

#[test]
fn circles_are_named_by_their_path() {
    let spec = with("FROM silver.orders", "FROM gold.daily").replace("silver.products}", "gold.sales}");
    assert_eq!(
        problems(&spec),
        ["15 gold.sales: tasks need one another in a circle: gold.sales → gold.daily → gold.sales \
          (an arrow reads `needs`; take one of them away)"]
    );
    let spec = format!("{SPEC}tasks: {{silver.orders: {{depends_on: [gold.sales]}}}}\n");
    assert_eq!(
        problems(&spec),
        ["6 silver.orders: tasks need one another in a circle: silver.orders → gold.sales → silver.orders \
          (an arrow reads `needs`; take one of them away)"]
    );
}

#[test]
fn the_section_of_tasks_names_tasks() {
    let cases: &[(&str, &[&str])] = &[
        (
            "silver.order: {max_retries: 1}",
            &["21 tasks.\"silver.order\": there is no task `silver.order` (did you mean `silver.orders`?)"],
        ),
        (
            "silver.orders: {depends_on: [gold.sale]}",
            &["21 tasks.\"silver.orders\".depends_on[0]: there is no task `gold.sale` (did you mean `gold.sales`?)"],
        ),
        (
            "silver.orders: {run_if: all_dune}",
            &["21 tasks.\"silver.orders\".run_if: unknown value `all_dune` (did you mean `all_done`?)"],
        ),
        (
            "silver.orders: {timeout: 0s}",
            &["21 tasks.\"silver.orders\".timeout: a task needs some time (leave it out for no limit)"],
        ),
        (
            "silver.orders: {max_retry: 1}",
            &["21 tasks.\"silver.orders\".max_retry: unknown key `max_retry` (did you mean `max_retries`?)"],
        ),
        (
            "silver.orders: {max_retries: -1}",
            &["21 tasks.\"silver.orders\".max_retries: `-1` is too small: at least 0"],
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(problems(&format!("{SPEC}tasks:\n  {line}\n")), *expected, "{line}");
    }
}

#[test]
fn all_problems_come_at_once() {
    let spec = with("name: shop", "nam: shop")
        .replace("format: csv}\n  products", "formt: csv}\n  products")
        .replace("keys: [id]\n    columns: {id: bigint not null}", "keys: id\n    columns: {id: bigint not null}")
        .replace("SELECT sum(amount) AS total FROM silver.orders", "SELECT sum(amount AS total FROM silver.orders");
    let found = problems(&spec);
    let paths: Vec<&str> = found.iter().map(|problem| problem.split(' ').nth(1).unwrap_or_default()).collect();
    for path in ["nam:", "name:", "bronze.orders_cdc.formt:", "silver.products.keys:", "gold.sales.query:"] {
        assert!(paths.contains(&path), "{path} is not in {found:#?}");
    }
}

/// Every option that has a name, whether this version knows what to do with it or not.
const OPTIONS: &[(&str, &str)] = &[
    (
        "",
        "name storage landing timezone engine bronze silver gold tasks schedule trigger max_concurrent_runs queue \
         maintenance notifications",
    ),
    (
        "bronze.orders_cdc",
        "path include exclude default_excludes recursive partition_columns format compression encoding csv settle \
         include_existing_files on_overwrite order max_files_per_batch max_bytes_per_batch schema_evolution_mode \
         schema_hints bad_records duplicate_columns clean_source",
    ),
    ("bronze.orders_cdc.csv", "header columns leading_op delimiter quote escape comment null_values empty_is_null"),
    (
        "silver.orders",
        "source cdc row before delete_row op on_unknown_op delete_flag apply_as_deletes apply_as_truncates keys \
         unique_key on_null_key sequence_by from_snapshot partial_updates ignore_null_updates unchanged_placeholder \
         truncates columns formats zones column_names column_list except_column_list undeclared_columns select \
         on_cast_error expectations stored_as_scd_type track_history_column_list track_history_except_column_list \
         delete_mode tombstone_retention partition_by zorder_by write_mode deletion_vectors change_data_feed \
         properties constraints generated",
    ),
    ("silver.orders.op", "column insert update delete truncate preimage ignore"),
    ("silver.orders.delete_flag", "column values when"),
    (
        "gold.sales",
        "query refresh keys expectations partition_by zorder_by reset_allowed snapshot_of strategy columns \
         compare_columns hard_deletes retention",
    ),
    (
        "tasks.\"silver.orders\"",
        "depends_on run_if max_retries min_retry_interval retry_on_timeout timeout memory threads disabled",
    ),
];

#[test]
fn no_documented_option_is_an_unknown_key() {
    for (place, keys) in OPTIONS {
        let mut spec = String::new();
        let mut indent = String::new();
        let steps: Vec<&str> = match place.strip_prefix("tasks.") {
            Some(_) => vec!["tasks", "silver.orders"],
            None => place.split('.').filter(|step| !step.is_empty()).collect(),
        };
        for step in steps {
            spec.push_str(&format!("{indent}{step}:\n"));
            indent.push_str("  ");
        }
        for key in keys.split_whitespace() {
            spec.push_str(&format!("{indent}{key}:\n"));
        }
        let unknown: Vec<String> =
            problems(&spec).into_iter().filter(|problem| problem.contains("unknown key")).collect();
        assert_eq!(unknown, Vec::<String>::new(), "in {place}");
        spec.push_str(&format!("{indent}no_such_option:\n"));
        assert!(problems(&spec).iter().any(|problem| problem.contains("unknown key `no_such_option`")), "in {place}");
    }
}

#[test]
fn how_a_source_writes_its_rows_is_checked_before_it_is_read() {
    let table = |options: &str| {
        let columns = "columns: {id: bigint not null, amount: 'decimal(18,2)'}";
        assert!(SPEC.contains(columns));
        problems(&SPEC.replace(columns, &format!("columns: {{id: bigint not null, at: timestamp}}\n    {options}")))
    };
    let only = |options: &str| {
        let problems = table(options).join("\n").replace("silver.orders.", "");
        problems.lines().filter(|line| !line.contains("`amount`")).collect::<Vec<_>>().join("\n")
    };
    for (options, expected) in [
        ("zones: {at: Europe/Lisbon}", ""),
        ("formats: {at: '%d/%m/%Y %H:%M'}", ""),
        ("sequence_by: [ts timestamp]\n    zones: {ts: Europe/Lisbon}", ""),
        ("undeclared_columns: add\n    except_column_list: [whatever]", ""),
        ("cdc: debezium", ""),
        ("zones: {at: Europe/Lisbom}", "`Europe/Lisbom` is not a time zone"),
        ("zones: {id: Europe/Lisbon}", "`id` is no text that zones say something about"),
        ("zones: {att: Europe/Lisbon}", "`att` is neither a declared column nor a part of the sequence"),
        ("formats: {at: '%H:%M'}", "does not say which day it is"),
        ("except_column_list: [whatever]", "`whatever` is not a declared column"),
        ("cdc: debezium\n    undeclared_columns: add", "declare every column in `columns`"),
        ("before: old", "`before` says where values are, and `row` does not"),
        ("unchanged_placeholder: x", ""),
        ("cdc: goldengate", ""),
        ("partial_updates: true", "set `ignore_null_updates`"),
        ("ignore_null_updates: true\n    delete_mode: soft", ""),
        ("cdc: goldengate\n    stored_as_scd_type: 2", ""),
        ("ignore_null_updates: true\n    from_snapshot: true", "says nothing of full extracts"),
        ("op: {column: op, delete: [T], truncate: [T]}", "`T` is a value of `delete` as well"),
    ] {
        let found = only(options);
        assert_eq!(found.is_empty(), expected.is_empty(), "{options}: {found}");
        assert!(found.contains(expected), "{options}: {found}");
    }
}
