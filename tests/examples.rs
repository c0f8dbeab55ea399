//! The examples are what their first lines say: one command makes right tables of them, and a second has nothing to do.

use std::collections::BTreeSet;
use std::fs;

use crate::support::program::workspace;
use crate::support::project::Project;

const ORDERS: [&str; 5] = ["order_id", "customer_id", "status", "amount", "note"];

/// Runs an example twice and compares its orders.
fn check(example: &str, columns: &[&str], orders: &[&str], quarantined: i64) -> Project {
    let project = Project::of(&workspace().join("examples").join(example));
    project.run();
    let lines = project.content(&[("silver.orders", columns)]);
    let expected: Vec<String> = orders.iter().map(|line| format!("silver.orders: {line}")).collect();
    assert_eq!(lines, expected, "{example}");
    let refused = if project.exists("quarantine.orders_cdc") { project.count("quarantine.orders_cdc") } else { 0 };
    assert_eq!(refused, quarantined, "{example}");
    let totals = project.query("SELECT sum(orders) AS orders FROM gold.orders_by_status");
    assert_eq!(totals[0]["orders"], orders.len(), "{example}");
    project.assert_settled();
    project
}

#[test]
fn debezium() {
    let columns = [&ORDERS[..], &["order_date", "updated_at"]].concat();
    let orders = [
        "1001 | C-7 | Shipped | 129.90 | leave at the door | 2024-05-01 | 2024-05-01T10:01:30Z",
        "1004 | C-9 | Cancelled | 74.50 | changed my mind | 2024-05-01 | 2024-05-01T10:03:20Z",
        "2003 | C-7 | Paid | 2500.00 | zażółć | 2024-05-01 | 2024-05-01T10:02:00Z",
    ];
    let project = check("debezium", &columns, &orders, 0);
    assert_eq!(project.count("bronze.orders_cdc"), 11, "two lines of null are no records");
}

#[test]
fn dms() {
    let orders = [
        "1001 | C-7 | Shipped | 129.90 | leave at the door, please",
        "1003 | C-7 | Paid | 2500.00 | she said \"soon\"",
        "1004 | C-9 | Cancelled | 74.50 | changed my mind",
    ];
    let project = check("dms", &ORDERS, &orders, 1);
    let refused = project.query("SELECT _file_path, _row_number, value FROM quarantine.orders_cdc");
    assert_eq!(refused[0]["_file_path"], "shop/orders/20240501-101500456.csv");
    assert_eq!((refused[0]["_row_number"].as_i64(), refused[0]["value"].as_str()), (Some(3), Some("abc")));
}

#[test]
fn every_example_is_told_of_and_run() {
    let folders = fs::read_dir(workspace().join("examples")).expect("examples");
    let names: BTreeSet<String> =
        folders.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["debezium", "dms"], "a test for each");
    let readme = fs::read_to_string(workspace().join("README.md")).expect("the README");
    for name in names {
        assert!(readme.contains(&format!("examples/{name}/pipelines.yaml")), "the README does not tell of {name}");
    }
}
