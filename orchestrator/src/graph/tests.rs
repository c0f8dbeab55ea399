//! Graphs of small specs.

use super::*;

fn graph(tasks: &[(&str, &[&str])]) -> Result<Graph, Vec<Cycle>> {
    let name = |text: &str| TableName::parse(text).expect("a table");
    let tasks: Vec<_> =
        tasks.iter().map(|(task, needs)| (name(task), needs.iter().map(|need| name(need)).collect())).collect();
    Graph::new(&tasks)
}

fn shop() -> Graph {
    graph(&[
        ("bronze.orders_cdc", &[]),
        ("bronze.web_cdc", &[]),
        ("silver.orders", &["bronze.orders_cdc"]),
        ("silver.web", &["bronze.web_cdc"]),
        ("gold.sales", &["silver.orders", "silver.web"]),
        ("gold.top", &["gold.sales"]),
        ("gold.status", &["silver.orders"]),
    ])
    .expect("no cycle")
}

#[test]
fn a_task_comes_after_what_it_needs_and_the_order_is_steady() {
    let graph = shop();
    let order: Vec<String> = graph.order().map(ToString::to_string).collect();
    let expected =
        ["bronze.orders_cdc", "bronze.web_cdc", "silver.orders", "silver.web", "gold.sales", "gold.top", "gold.status"];
    assert_eq!(order, expected);
}

#[test]
fn needs_reach_through_tasks_that_are_not_chosen() {
    let name = |text: &str| TableName::parse(text).expect("a table");
    let chosen = BTreeSet::from([name("bronze.orders_cdc"), name("gold.top"), name("silver.web")]);
    let needs = shop().needs_within(&name("gold.top"), &chosen);
    assert_eq!(needs, BTreeSet::from([name("bronze.orders_cdc"), name("silver.web")]));
}

#[test]
fn cycles_are_named_by_their_path() {
    let cycles = graph(&[
        ("gold.a", &["gold.b"]),
        ("gold.b", &["gold.c", "silver.x"]),
        ("gold.c", &["gold.a"]),
        ("gold.self", &["gold.self"]),
        ("silver.x", &[]),
    ])
    .expect_err("two cycles");
    let texts: Vec<String> = cycles.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["gold.a → gold.b → gold.c → gold.a", "gold.self → gold.self"]);
}

#[test]
fn the_tree_shows_every_task_and_what_else_it_needs() {
    assert_eq!(
        shop().draw(Format::Text),
        "\
bronze.orders_cdc
└─ silver.orders
   ├─ gold.sales  (and silver.web)
   │  └─ gold.top
   └─ gold.status
bronze.web_cdc
└─ silver.web
   └─ gold.sales  (and silver.orders)  ↑
"
    );
}

#[test]
fn drawings_for_programs_hold_every_task_and_edge() {
    let mermaid = shop().draw(Format::Mermaid);
    assert!(
        mermaid.starts_with("flowchart LR\n  subgraph bronze\n    bronze_orders_cdc[\"bronze.orders_cdc\"]\n"),
        "{mermaid}"
    );
    assert_eq!(mermaid.matches(" --> ").count(), 6);
    let dot = shop().draw(Format::Dot);
    assert!(dot.contains("  \"silver.web\" -> \"gold.sales\";\n"), "{dot}");
    assert_eq!(dot.matches(" -> ").count(), 6);
}
