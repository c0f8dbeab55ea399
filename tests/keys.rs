//! Records that change a key, told by the row before.

use serde_json::{Value, json};

use crate::support::project::Project;

fn project(columns: &str) -> Project {
    Project::new(&format!(
        "name: keys
bronze:
  feed: {{path: feed/, format: json, settle: 0s}}
silver:
  t:
    source: feed
    cdc: plain
    op: {{column: op, insert: [I], update: [U], delete: [D]}}
    row: after
    before: before
    keys: [id, region]
    sequence_by: [ts bigint]
    {columns}
"
    ))
}

fn rows(project: &Project) -> Vec<Value> {
    let rows = project.query("SELECT id, region, v FROM silver.t ORDER BY id, region NULLS FIRST");
    rows.iter().map(|row| json!([row["id"], row["region"], row["v"]])).collect()
}

#[test]
fn a_key_that_could_not_be_becomes_one_that_can() {
    let project = project("columns: {id: bigint not null, region: string not null, v: string}");
    project.land("feed/1.json", br#"{"op":"I","ts":1,"after":{"id":1,"region":null,"v":"x"}}"#, None);
    assert_eq!(project.run().task("silver.t").quarantined, 1);
    let mended = br#"{"op":"U","ts":2,"before":{"id":1,"region":null,"v":"x"},"after":{"id":1,"region":"EU","v":"x"}}"#;
    project.land("feed/2.json", mended, None);
    project.run();
    assert_eq!(rows(&project), [json!([1, "EU", "x"])]);
}

#[test]
fn an_empty_text_that_a_partition_holds_as_null_is_the_same_key() {
    let project = project("columns: {id: bigint not null, region: string, v: string}\n    partition_by: [region]");
    project.land("feed/1.json", br#"{"op":"I","ts":1,"after":{"id":1,"region":"","v":"x"}}"#, None);
    project.run();
    assert_eq!(rows(&project), [json!([1, null, "x"])]);
    let moved = br#"{"op":"U","ts":2,"before":{"id":1,"region":"","v":"x"},"after":{"id":1,"region":"b","v":"x"}}"#;
    project.land("feed/2.json", moved, None);
    project.run();
    assert_eq!(rows(&project), [json!([1, "b", "x"])]);
}

#[test]
fn a_binary_column_is_no_partition() {
    let project = project("columns: {id: bigint not null, region: string, v: binary}\n    partition_by: [v]");
    let told = project.orchestrator(&["validate"]).expect(2).stderr;
    assert!(told.contains("`v` is binary, and the value of a partition is a text"), "{told}");
}
