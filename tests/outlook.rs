//! What `dry-run` and `status` say is what a run does: tables that cannot take the spec, batches that hold nothing.

use serde_json::{Value, json};

use crate::support::project::{Project, summary_of};

const SPEC: &str = "
name: outlook
bronze:
  feed: {path: feed/, format: csv, settle: 0s}
silver:
  now: {source: feed, keys: [id], columns: {id: bigint not null, n: bigint}}
  other: {source: feed, keys: [id], columns: {id: bigint not null, n: bigint}}
gold:
  sums: {query: SELECT sum(n) AS n FROM silver.now}
  told: {query: SELECT count(*) AS n FROM silver.other}
";

/// A task that runs where another fails.
const HANDLER: &str = "
tasks:
  gold.told: {depends_on: [silver.now], run_if: at_least_one_failed}
";

fn land(project: &Project, name: &str, content: &[u8]) {
    project.land(format!("feed/{name}.csv"), content, None);
}

fn json_of(project: &Project, command: &str) -> Value {
    let outcome = project.orchestrator(&[command, "--output", "json"]).expect(0);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

/// What a dry run says of a task.
fn outlook(project: &Project, task: &str) -> Value {
    let told = json_of(project, "dry-run");
    let found = told["tasks"].as_array().expect("tasks").iter().find(|one| one["task"] == task);
    found.unwrap_or_else(|| panic!("no task {task} in {told}")).clone()
}

/// What `status` says that a table has not taken.
fn waiting(project: &Project, table: &str) -> Value {
    let told = json_of(project, "status");
    let found = told["tables"].as_array().expect("tables").iter().find(|one| one["table"] == table);
    found.unwrap_or_else(|| panic!("no table {table} in {told}"))["waiting"].clone()
}

#[test]
fn a_table_that_cannot_take_the_spec_is_told_as_a_run_tells_it() {
    let project = Project::new(&format!("{SPEC}{HANDLER}"));
    land(&project, "1", b"id,n\n1,10\n");
    project.run_with(None).expect(0);
    assert_eq!(outlook(&project, "gold.told")["outlook"], "excluded");
    let spec = SPEC.replace(
        "now: {source: feed, keys: [id], columns: {id: bigint not null, n: bigint}",
        "now: {source: feed, keys: [id], columns: {id: bigint not null, n: int}",
    );
    project.respec(&format!("{spec}{HANDLER}"));
    // Whether there is something new or not.
    for (name, other) in [("", "up_to_date"), ("2", "follows")] {
        if !name.is_empty() {
            land(&project, name, b"id,n\n2,20\n");
        }
        let told = outlook(&project, "silver.now");
        assert_eq!(told["outlook"], "fails", "{told}");
        assert_eq!(
            told["error"]["hint"].as_str().map(|hint| hint.contains("silver rebuild now")),
            Some(true),
            "{told}"
        );
        assert_eq!(outlook(&project, "silver.other")["outlook"], other);
        let skipped = outlook(&project, "gold.sums");
        assert_eq!((&skipped["outlook"], &skipped["why"]), (&json!("skipped"), &json!("silver.now would fail")));
        assert_eq!(outlook(&project, "gold.told")["outlook"], if name.is_empty() { "runs" } else { "follows" });
        let text = project.orchestrator(&["dry-run"]).expect(0);
        assert!(text.stdout.contains("silver.now would fail\n  error: silver.now cannot take"), "{}", text.story());
        assert!(text.stdout.lines().all(|line| line.chars().count() <= 80), "{}", text.story());
        let run = summary_of(&project.run_with(None).expect(1));
        assert_eq!(run.task("silver.now").error.as_ref().expect("an error")["message"], told["why"]);
        assert_eq!(run.task("gold.sums").status, "skipped");
    }
}

#[test]
fn what_only_rows_that_come_run_into_is_foreseen() {
    let project = Project::new(SPEC);
    land(&project, "1", b"id,n\n1,10\n");
    project.run();
    let columns = "columns: {id: bigint not null, n: bigint}";
    project.respec(&SPEC.replacen(columns, &format!("{columns}, partition_by: [n]"), 1));
    assert_eq!(outlook(&project, "silver.now")["outlook"], "up_to_date");
    assert_eq!(project.run().task("silver.now").status, "up_to_date");
    land(&project, "2", b"id,n\n2,20\n");
    let told = outlook(&project, "silver.now");
    assert_eq!((&told["outlook"], &outlook(&project, "silver.other")["outlook"]), (&json!("fails"), &json!("follows")));
    let run = summary_of(&project.run_with(None).expect(1));
    assert_eq!(run.task("silver.now").error.as_ref().expect("an error")["message"], told["why"]);
}

#[test]
fn rules_about_new_columns_come_with_the_rows() {
    let project = Project::new(SPEC);
    land(&project, "1", b"id,n\n1,10\n");
    project.run();
    let columns = "columns: {id: bigint not null, n: bigint}";
    let more = "columns: {id: bigint not null, n: bigint, more: bigint}";
    project.respec(&SPEC.replacen(columns, &format!("{more}, constraints: {{more: more IS NULL OR more > 0}}"), 1));
    assert_eq!(outlook(&project, "silver.now")["outlook"], "up_to_date");
    assert_eq!(project.run().task("silver.now").status, "up_to_date");
    land(&project, "2", b"id,n,more\n2,20,5\n3,30,0\n");
    let run = project.run();
    assert_eq!((run.task("silver.now").applied, run.task("silver.now").quarantined), (1, 1));
    // What rows lack that are there no run can give them.
    let generated = more.replace("more: bigint", "more: bigint, twice: bigint");
    project.respec(&SPEC.replacen(columns, &format!("{generated}, generated: {{twice: n * 2}}"), 1));
    let told = outlook(&project, "silver.now");
    let run = summary_of(&project.run_with(None).expect(1));
    let error = run.task("silver.now").error.as_ref().expect("an error");
    assert_eq!((&error["message"], &told["outlook"]), (&told["why"], &json!("fails")));
    assert!(error["message"].as_str().expect("a text").contains("the new generated column `twice`"), "{error}");
}

#[test]
fn a_source_that_cannot_be_taken_is_told_as_a_run_tells_it() {
    let project = Project::new(SPEC);
    land(&project, "1", b"id,n\n1,10\n");
    project.run();
    let hints = SPEC.replace("settle: 0s}", "settle: 0s, schema_hints: {id: bigint}}");
    let folder = project.landing().join("feed");
    for (spec, moved) in [(hints.as_str(), false), (SPEC, true)] {
        project.respec(spec);
        if moved {
            std::fs::rename(&folder, project.landing().join("elsewhere")).expect("the folder moves");
        }
        let told = outlook(&project, "bronze.feed");
        assert_eq!(
            (&told["outlook"], &outlook(&project, "gold.sums")["outlook"]),
            (&json!("fails"), &json!("skipped"))
        );
        let run = summary_of(&project.run_with(None).expect(1));
        assert_eq!(run.task("bronze.feed").error.as_ref().expect("an error")["message"], told["why"]);
    }
}

#[test]
fn batches_without_a_record_wait_for_nobody() {
    let project = Project::new(SPEC);
    land(&project, "1", b"id,n\n1,10\n");
    project.run();
    land(&project, "2", b"id,id\n2,20\n");
    project.run_with(None).expect(1);
    for table in ["silver.now", "silver.other"] {
        let told = outlook(&project, table);
        assert_eq!((&told["outlook"], &told["why"]), (&json!("up_to_date"), &json!("nothing new")), "{table}");
        assert_eq!(waiting(&project, table), json!({"batches": 0, "rows": 0}), "{table}");
    }
    let status = project.orchestrator(&["status"]).expect(0).stdout;
    assert!(!status.contains("0 rows"), "{status}");
    // A batch behind them is told by its own number.
    land(&project, "3", b"id,n\n3,30\n4,40\n");
    project.bronze(&["run"], None).expect(0);
    assert_eq!(outlook(&project, "silver.now")["why"], "batch 3 of bronze.feed");
    assert_eq!(waiting(&project, "silver.now"), json!({"batches": 1, "rows": 2}));
    project.run();
    project.assert_settled();
}

#[test]
fn batches_that_were_taken_back_wait_for_nobody() {
    let project = Project::new(SPEC);
    land(&project, "1", b"id,n\n1,10\n");
    project.run();
    let history = project.orchestrator(&["table", "history", "bronze.feed", "--limit", "1", "--output", "json"]);
    let history: Value = serde_json::from_str(&history.expect(0).stdout).expect("JSON");
    let version = history[0]["version"].to_string();
    land(&project, "2", b"id,n\n2,20\n");
    project.bronze(&["run"], None).expect(0);
    assert_eq!(outlook(&project, "silver.now")["outlook"], "runs");
    project.orchestrator(&["table", "restore", "bronze.feed", "--version", &version, "--yes"]).expect(0);
    assert_eq!(outlook(&project, "silver.now")["outlook"], "up_to_date");
    assert_eq!(waiting(&project, "silver.now"), json!({"batches": 0, "rows": 0}));
    assert_eq!(project.run().task("silver.now").status, "up_to_date");
}
