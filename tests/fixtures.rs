//! `orchestrator test`: the tests beside a spec pass, fail readably, and find what depends on the order of files.

use std::fs;

use serde_json::Value;

use crate::support::program::{self, workspace};
use crate::support::project::Project;

const SPEC: &str = "
name: tested
bronze: {orders: {path: orders/, format: csv}}
silver:
  orders:
    source: orders
    op: {column: op, delete: [D], insert: [I], update: [U]}
    keys: [id]
    sequence_by: [at]
    columns: {id: bigint not null, status: string, amount: 'decimal(18,2)', at: timestamp}
gold:
  totals: {query: 'SELECT status, sum(amount) AS total FROM silver.orders GROUP BY status'}
";

/// A spec with one test of two deliveries.
fn project() -> Project {
    let project = Project::new(SPEC);
    write(
        &project,
        "given/1/orders/1.csv",
        "op,id,status,amount,at\nI,1,New,10,2024-05-01T10:00:00Z\nI,2,New,5.5,2024-05-01T10:00:00Z\nI,3,New,much,2024-05-01T10:00:00Z\n",
    );
    write(
        &project,
        "given/2/orders/2.csv",
        "op,id,status,amount,at\nU,1,Paid,10,2024-05-01T11:00:00Z\nD,2,,,2024-05-01T12:00:00Z\n",
    );
    write(&project, "expect/silver.orders.csv", "id,status,amount\n1,Paid,10.0\n");
    write(&project, "expect/gold.totals.yaml", "- {status: Paid, total: 10}\n");
    write(&project, "expect/quarantine.orders.json", "[{\"_file_path\": \"orders/1.csv\", \"_row_number\": 3}]");
    project
}

fn write(project: &Project, file: &str, content: &str) {
    let path = project.path().join("tests/changes").join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, content).expect("a file");
}

#[test]
fn a_test_passes_in_every_order_and_leaves_nothing_behind() {
    let project = project();
    let outcome = project.orchestrator(&["test", "--shuffles", "6"]).expect(0);
    assert_eq!(outcome.stdout, "changes  ok  (and 6 other orders)\n1 test, 0 failed\n", "{}", outcome.story());
    assert!(!project.path().join("lakehouse").exists(), "a test wrote into the lake of the spec");
}

#[test]
fn differences_are_told_by_key_and_column() {
    let project = project();
    write(
        &project,
        "expect/silver.orders.csv",
        "id,status,amount,at,stats\n1,New,10.0,2024-05-01T11:00:00Z,\n4,New,,,\n",
    );
    write(&project, "expect/gold.totals.yaml", "[]\n");
    fs::remove_file(project.path().join("tests/changes/expect/quarantine.orders.json")).expect("no file");
    let outcome = project.orchestrator(&["test"]).expect(1);
    for text in [
        "changes  FAILED\n",
        "silver.orders: there is no column `stats`",
        "did you mean `status`?",
        "silver.orders: 2 rows differ\n",
        "    changed     id=1: status: expected New, found Paid\n",
        "    missing     id=4 status=New amount=null at=null\n",
        "    unexpected  status=Paid total=10.00\n",
        "quarantine.orders: records were refused, and no `expect/quarantine.orders.csv` expects them\n",
        "`much` is not a number",
        "1 test, 1 failed\n",
    ] {
        assert!(outcome.stdout.contains(text), "`{text}` is not told: {}", outcome.story());
    }
    let json = project.orchestrator(&["test", "--output", "json"]).expect(1);
    let told: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let of_silver = told["tests"][0]["differences"].as_array().expect("a list").iter();
    let of_silver = of_silver.filter(|one| one["table"] == "silver.orders").collect::<Vec<_>>();
    assert_eq!(of_silver[0]["rows"][0]["columns"]["status"]["found"], "Paid");
    write(&project, "expect/silver.orders.csv", "id,amount\n1,ten\n");
    let outcome = project.orchestrator(&["test"]).expect(1);
    assert!(outcome.stdout.contains("the expected `ten` is no decimal(18,2)"), "{}", outcome.story());
}

#[test]
fn what_depends_on_the_order_of_files_is_found_and_can_be_tried_again() {
    let project = project();
    project.respec(&SPEC.replace("sequence_by: [at]", "sequence_by: []"));
    let outcome = project.orchestrator(&["test"]).expect(0);
    assert!(outcome.stdout.contains("in this order only: a table has no sequence"), "{}", outcome.story());
    write(&project, "test.yaml", "shuffle: true\nnow: 2024-05-02T00:00:00Z\n");
    let outcome = project.orchestrator(&["test", "--shuffles", "20"]).expect(1);
    let seed = outcome.stdout.split("--seed ").nth(1).and_then(|rest| rest.split('`').next()).expect("a seed");
    assert!(outcome.stdout.contains("FAILED  in another order"), "{}", outcome.story());
    let again = project.orchestrator(&["test", "changes", "--shuffles", "1", "--seed", seed]).expect(1);
    assert_eq!(again.stdout, outcome.stdout);
}

#[test]
fn expectations_can_be_written_and_then_hold() {
    let project = project();
    fs::remove_dir_all(project.path().join("tests/changes/expect")).expect("no expectations");
    let outcome = project.orchestrator(&["test"]).expect(2);
    assert!(outcome.stderr.contains("expects nothing") && outcome.stderr.contains("--update"), "{}", outcome.story());
    project.orchestrator(&["test", "--update"]).expect(0);
    let written = fs::read_to_string(project.path().join("tests/changes/expect/silver.orders.csv")).expect("a file");
    assert_eq!(written, "id,status,amount,at\n1,Paid,10.00,2024-05-01T11:00:00Z\n");
    project.orchestrator(&["test"]).expect(0);
}

#[test]
fn wrong_tests_are_told_by_name() {
    let project = project();
    for (file, content, told) in [
        ("test.yaml", "nwo: 2024-05-01T00:00:00Z\n", "unknown field `nwo`"),
        ("test.yaml", "now: today\n", "`now: today` is no moment"),
        ("expect/silver.order.csv", "id\n", "did you mean `silver.orders`?"),
        ("expect/notes.txt", "x", "holds no rows"),
    ] {
        write(&project, file, content);
        let outcome = project.orchestrator(&["test"]).expect(2);
        assert!(outcome.stderr.contains(told), "`{told}` is not told: {}", outcome.story());
        fs::remove_file(project.path().join("tests/changes").join(file)).expect("no file");
    }
    let outcome = project.orchestrator(&["test", "change"]).expect(2);
    assert!(outcome.stderr.contains("did you mean `changes`?"), "{}", outcome.story());
}

#[test]
fn the_tests_of_the_examples_pass() {
    for name in ["debezium", "dms"] {
        let folder = workspace().join("examples").join(name);
        let outcome = program::run("orchestrator", &folder, &["test"], None).expect(0);
        assert!(outcome.stdout.contains("1 test, 0 failed"), "{}", outcome.story());
    }
}
