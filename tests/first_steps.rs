//! What a newcomer does first: specs that write themselves from sample files, the schema for editors, completions.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::parallel;
use crate::support::program::workspace;
use crate::support::project::{Project, files_below, summary_of};

/// A folder without a spec, with files to land.
fn without_spec() -> Project {
    let project = Project::new("");
    fs::remove_file(project.path().join("pipelines.yaml")).expect("no spec");
    project
}

/// Has a spec written about the landing zone, and runs it. What it says of the tables.
fn guessed(project: &Project) -> String {
    project.orchestrator(&["init", "--from", "landing"]).expect(0);
    project.orchestrator(&["validate"]).expect(0);
    let outcome = project.run_with(None).expect(0);
    summary_of(&outcome).assert_accounted();
    fs::read_to_string(project.path().join("pipelines.yaml")).expect("the spec")
}

#[test]
fn init_writes_an_example_that_runs_at_once_and_overwrites_nothing() {
    let project = without_spec();
    let outcome = project.orchestrator(&["init"]).expect(0);
    assert!(outcome.stderr.contains("next:"), "{}", outcome.story());
    project.orchestrator(&["validate"]).expect(0);
    let summary = project.run();
    assert_eq!(project.count("silver.orders"), 3);
    assert_eq!(project.count("quarantine.orders"), 1);
    assert_eq!(summary.tasks.len(), 3);
    let spec = fs::read(project.path().join("pipelines.yaml")).expect("the spec");
    assert!(spec.starts_with(b"# yaml-language-server: $schema=./pipelines.schema.json\n"));
    let schema = fs::read_to_string(project.path().join("pipelines.schema.json")).expect("the schema");
    assert_eq!(schema, project.orchestrator(&["schema"]).expect(0).stdout);
    let again = project.orchestrator(&["init"]).expect(2);
    assert!(again.stderr.contains("overwrites nothing"), "{}", again.story());
    assert_eq!(fs::read(project.path().join("pipelines.yaml")).expect("the spec"), spec);
}

#[test]
fn a_spec_about_plain_files_has_types_keys_sequence_and_deletes() {
    let project = without_spec();
    let orders = b"op;Order ID;customer;zip;ordered;amount;changed_at\n\
        I;1001;Ada;01234;31/05/2024;1250.50;2024-06-01T10:00:00Z\n\
        U;1001;Ada;01234;31/05/2024;1250.75;2024-06-01T11:00:00Z\n\
        D;1002;Grace;80331;30/05/2024;80.00;2024-06-01T12:00:00Z\n\
        I;1002;Grace;80331;30/05/2024;80.00;2024-06-01T09:00:00Z\n";
    let (at, lists) = (
        Some(chrono::DateTime::UNIX_EPOCH),
        ["7,Ada,true\n8,Grace,false\n", "7,Ada,true\n8,Grace,true\n9,Tony,false\n"],
    );
    project.land("orders.csv", orders, at);
    for (number, list) in lists.iter().enumerate() {
        project.land(format!("customers_{number}.csv"), format!("customer_id,name,vip\n{list}").as_bytes(), at);
    }
    let spec = guessed(&project);
    for line in [
        "  orders:",
        "    include: [\"orders*.csv\"]",
        "      delimiter: \";\"",
        "    op: {column: op, insert: [I], update: [U], delete: [D]}",
        "    keys: [order_id]",
        "    sequence_by: [changed_at]",
        "    column_names: {order_id: \"Order ID\"}",
        "    formats: {ordered: \"%d/%m/%Y\"}",
        "      order_id: bigint not null",
        "      zip: string",
        "      ordered: date",
        "      amount: decimal(18,2)",
        "      changed_at: timestamp",
        "  customers:",
        "    # from_snapshot: true",
        "    keys: [customer_id]",
        "      vip: boolean",
        "  orders_per_day:",
    ] {
        assert!(spec.lines().any(|written| written.starts_with(line)), "`{line}` is not in\n{spec}");
    }
    assert_eq!(
        project.content(&[("silver.orders", &["order_id", "zip", "ordered", "amount"])]),
        ["silver.orders: 1001 | 01234 | 2024-05-31 | 1250.75"]
    );
    assert_eq!(project.count("silver.customers"), 3);
    assert_eq!(project.count("gold.orders_per_day"), 1);
    for source in ["orders", "customers"] {
        assert_eq!(project.count(&format!("quarantine.{source}")), 0, "{spec}");
    }
}

#[test]
fn a_column_that_is_nearly_one_of_numbers_is_told() {
    let project = without_spec();
    let rows: String = (1..40).map(|id| format!("{id},{id}.50\n")).collect();
    project.land("orders.csv", format!("order_id,amount\n{rows}40,n/a\n").as_bytes(), None);
    let spec = guessed(&project);
    let told = "      # 39 of 40 values are numbers; the first that is not: `n/a`\n      amount: string\n";
    assert!(spec.contains(told), "{spec}");
    let columns = spec.split("    columns:\n").nth(1).expect("columns").split("\ngold:").next().expect("columns");
    assert!(columns.lines().all(|line| line.chars().count() <= 80), "{spec}");
}

#[test]
fn a_spec_about_the_sample_of_this_repository_makes_its_tables() {
    let example = Project::example();
    example.run();
    let project = without_spec();
    project.land_folder(&workspace().join("landing"), None);
    let spec = guessed(&project);
    assert!(spec.contains("values do not fit and go to quarantine"), "{spec}");
    for (table, columns) in [
        ("silver.orders", &["order_id", "status", "amount", "order_date", "updated_at"][..]),
        ("silver.web_orders", &["order_id", "status", "amount", "order_date", "updated_at"]),
        ("silver.products", &["id", "name", "stock", "price", "updated_at"]),
    ] {
        assert_eq!(project.content(&[(table, columns)]), example.content(&[(table, columns)]), "{table}\n{spec}");
    }
}

#[test]
fn specs_about_the_examples_make_their_tables() {
    // Of so few records one with `abc` among its amounts makes them texts.
    for (name, orders) in [("debezium", 3), ("dms", 4)] {
        let folder = workspace().join("examples").join(name);
        let project = without_spec();
        project.land_folder(&folder.join("landing"), None);
        let spec = guessed(&project);
        assert!(spec.contains(&format!("    cdc: {name} ")), "{name}\n{spec}");
        assert_eq!(project.count("silver.orders"), orders, "{name}\n{spec}");
    }
}

/// Cases whose spec cannot be told from their files; why.
const UNGUESSED: [(&str, &str); 2] =
    [("34-truncated-gz", "its only file is cut"), ("own-21-encodings", "each of its files has another encoding")];

#[test]
fn a_spec_about_the_files_of_every_case_is_right_and_runs() {
    let folders =
        fs::read_dir(workspace().join("tests/cases")).expect("cases").map(|entry| entry.expect("an entry").path());
    let name = |case: &PathBuf| case.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let is_tried = |case: &PathBuf| {
        case.is_dir() && first_delivery(case).is_some() && !UNGUESSED.iter().any(|(known, _)| *known == name(case))
    };
    let mut cases: Vec<PathBuf> = folders.filter(is_tried).collect();
    cases.sort();
    assert!(cases.len() > 60, "{} cases", cases.len());
    parallel::all("guess", &cases, name, |case| {
        let project = without_spec();
        project.land_folder(&first_delivery(case).expect("files"), Some(chrono::DateTime::UNIX_EPOCH));
        let outcome = project.orchestrator(&["init", "--from", "landing"]).expect(0);
        let run = project.run_with(None);
        let spec = fs::read_to_string(project.path().join("pipelines.yaml")).expect("the spec");
        let summary = summary_of(&run);
        let failed: Vec<&str> =
            summary.tasks.iter().filter(|task| task.status == "failed").map(|task| task.task.as_str()).collect();
        assert_eq!(failed, [""; 0], "{}\n{}\n{spec}", outcome.story(), run.story());
        assert!(run.code == Some(0) || !summary.refused().is_empty(), "{}\n{spec}", run.story());
    });
}

/// The folder of the files that land first in a case.
fn first_delivery(case: &Path) -> Option<PathBuf> {
    let names = ["run1", "step1", "landing", "with-schema", "crlf"];
    names.iter().map(|name| case.join(name)).find(|folder| folder.is_dir() && !files_below(folder).is_empty())
}

#[test]
fn what_editors_and_shells_need_is_printed() {
    let project = without_spec();
    let schema: Value = serde_json::from_str(&project.orchestrator(&["schema"]).expect(0).stdout).expect("JSON");
    assert_eq!(schema["title"], "pipelines.yaml");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = project.orchestrator(&["completions", shell]).expect(0).stdout;
        assert!(script.contains("orchestrator") && script.contains("dry-run"), "{shell}: {script}");
    }
    let sample = project.orchestrator(&["sample", "landing", "--rows", "100", "--output", "json"]).expect(0);
    let told: Value = serde_json::from_str(&sample.stdout).expect("JSON");
    assert_eq!(told["events"], 100);
    project.orchestrator(&["init"]).expect(0);
    let graph = project.orchestrator(&["graph", "--output", "json"]).expect(0);
    let graph: Value = serde_json::from_str(&graph.stdout).expect("JSON");
    let tasks = graph["tasks"].as_array().expect("tasks");
    let orders = tasks.iter().find(|task| task["task"] == "silver.orders").expect("a task");
    assert_eq!(orders["needs"], serde_json::json!(["bronze.orders"]));
}

#[test]
fn a_wrong_delimiter_is_told_by_both_layers() {
    let spec = "name: x\nbronze: {s: {path: ./, format: csv}}\nsilver:\n  t:\n    source: s\n    keys: [id]\n    \
                columns: {id: bigint not null, name: string}\n";
    let project = Project::new(spec);
    project.land("a.csv", b"id;name\n1;Ada\n", Some(chrono::DateTime::UNIX_EPOCH));
    let outcome = project.run_with(None).expect(1);
    let told = format!("{}{}", outcome.stdout, outcome.stderr);
    for text in ["`id;name` is one column", "it is inside of `id;name`", "csv: {delimiter: \\\";\\\"}"] {
        assert!(told.contains(text), "`{text}` is not told: {}", outcome.story());
    }
}
