//! What differs between two versions of a table: rows are told apart by what a model groups by, and the last change is meant
//! where no version is named.

use serde_json::{Value, json};

use crate::support::project::Project;

const SPEC: &str = "
name: differences
bronze:
  feed: {path: feed/, format: csv, settle: 0s}
silver:
  orders: {source: feed, keys: [id], columns: {id: bigint not null, day: date, amount: bigint}}
gold:
  by_day: {query: 'SELECT day, count(*) AS orders, sum(amount) AS amount FROM silver.orders GROUP BY day'}
  large: {query: SELECT * FROM gold.by_day WHERE amount > 1, keys: [day]}
  bare: {query: SELECT amount FROM silver.orders}
";

fn land(project: &Project, name: &str, rows: &str) {
    project.land(format!("feed/{name}.csv"), format!("id,day,amount\n{rows}").as_bytes(), None);
    project.run();
}

fn diff(project: &Project, args: &[&str]) -> Value {
    let args: Vec<&str> = ["table", "diff"].iter().chain(args).chain(&["--output", "json"]).copied().collect();
    serde_json::from_str(&project.orchestrator(&args).expect(0).stdout).expect("JSON")
}

#[test]
fn rows_of_models_are_told_apart_by_what_they_group_by() {
    let project = Project::new(SPEC);
    land(&project, "1", "1,2024-05-01,10\n2,2024-05-01,20\n3,2024-05-02,5\n");
    land(&project, "2", "2,2024-05-01,25\n4,2024-05-03,7\n");
    for model in ["gold.by_day", "gold.large"] {
        let told = diff(&project, &[model]);
        assert_eq!([&told["added"], &told["removed"], &told["changed"]], [1, 0, 1], "{told}");
        assert_eq!(told["keys"], json!(["day"]), "{told}");
        let changed = &told["examples"]["changed"][0];
        assert_eq!(changed["key"], json!({"day": "2024-05-01"}), "{told}");
        assert_eq!(changed["columns"], json!({"amount": {"from": 30, "to": 35}}), "{told}");
    }
    let told = diff(&project, &["gold.bare"]);
    assert_eq!((&told["keys"], &told["added"]), (&json!([]), &json!(2)), "{told}");

    // An older version may have been grouped in another way.
    let spec = SPEC.replace(
        "SELECT day, count(*) AS orders, sum(amount) AS amount FROM silver.orders GROUP BY day",
        "SELECT day, amount, 1 AS orders FROM silver.orders GROUP BY day, amount",
    );
    project.respec(&spec);
    assert_eq!(diff(&project, &["gold.by_day"])["keys"], json!(["day", "amount"]));
    let spec = SPEC.replace(
        "SELECT day, count(*) AS orders, sum(amount) AS amount FROM silver.orders GROUP BY day",
        "SELECT orders, max(day) AS day, max(amount) AS amount FROM gold.counted GROUP BY orders",
    );
    let spec = format!(
        "{spec}  counted: {{query: 'SELECT day, count(*) AS orders, sum(amount) AS amount FROM silver.orders GROUP BY day'}}\n"
    );
    project.respec(&spec);
    project.run();
    let told = diff(&project, &["gold.by_day"]);
    assert_eq!(told["keys"], json!([]), "`orders` does not tell the rows of the older version apart: {told}");
}

#[test]
fn the_last_change_is_meant_where_no_version_is_named() {
    let project = Project::new(SPEC);
    land(&project, "1", "1,2024-05-01,10\n");
    land(&project, "2", "1,2024-05-01,11\n");
    let told = diff(&project, &["silver.orders"]);
    let newest = told["to"].as_u64().expect("a version");
    assert_eq!((told["from"].as_u64(), &told["changed"]), (Some(newest - 1), &json!(1)), "{told}");
    let before = (newest - 1).to_string();
    let told = diff(&project, &["silver.orders", "--to", &before]);
    assert_eq!((told["from"].as_u64(), told["to"].as_u64()), (Some(newest - 2), Some(newest - 1)), "{told}");
    let first = project.orchestrator(&["table", "diff", "silver.orders", "--to", "0"]).expect(2);
    assert!(first.stderr.contains("silver.orders has no version before version 0"), "{}", first.story());
}
