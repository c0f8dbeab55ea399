//! Which tasks a run is of: `--select`, `--exclude`, `--full-refresh`, and what a dry run says of them.

use serde_json::Value;

use crate::support::project::{Project, summary_of};

const SPEC: &str = "
name: small
bronze:
  a_feed: {path: a/, format: csv, settle: 0s}
  b_feed: {path: b/, format: csv, settle: 0s}
silver:
  a: {source: a_feed, keys: [id], columns: {id: bigint not null, n: bigint}}
  b: {source: b_feed, keys: [id], columns: {id: bigint not null, n: bigint}}
gold:
  sum_a: {query: SELECT sum(n) AS n FROM silver.a}
  sum_b: {query: SELECT sum(n) AS n FROM silver.b}
  top: {query: SELECT n FROM gold.sum_b}
  days: {snapshot_of: silver.a}
tasks:
  gold.days: {disabled: true}
";

fn project() -> Project {
    let project = Project::new(SPEC);
    project.land("a/1.csv", b"id,n\n1,10\n2,20\n", None);
    project.land("b/1.csv", b"id,n\n1,10\n", None);
    project
}

/// The tasks that a selection means, by what a dry run would run.
fn meant(project: &Project, args: &[&str]) -> Vec<String> {
    let args: Vec<&str> = ["dry-run", "--output", "json"].iter().chain(args).copied().collect();
    let told: Value = serde_json::from_str(&project.orchestrator(&args).expect(0).stdout).expect("JSON");
    let tasks = told["tasks"].as_array().expect("tasks").iter().filter(|task| task["outlook"] != "left_out");
    tasks.map(|task| task["task"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn names_layers_patterns_and_what_is_around_them() {
    let project = project();
    let all = ["bronze.a_feed", "bronze.b_feed", "silver.a", "silver.b", "gold.sum_a", "gold.sum_b", "gold.top"];
    assert_eq!(meant(&project, &[]), all);
    for (args, expected) in [
        (&["--select", "silver.a"][..], &["silver.a"][..]),
        (&["--select", "silver"], &["silver.a", "silver.b"]),
        (&["--select", "*.sum_*,bronze.a*"], &["bronze.a_feed", "gold.sum_a", "gold.sum_b"]),
        (&["--select", "+gold.sum_b"], &["bronze.b_feed", "silver.b", "gold.sum_b"]),
        (&["--select", "1+gold.sum_b"], &["silver.b", "gold.sum_b"]),
        (&["--select", "silver.b+1"], &["silver.b", "gold.sum_b"]),
        (&["--select", "silver.b+"], &["silver.b", "gold.sum_b", "gold.top"]),
        (&["--exclude", "bronze", "--exclude", "silver.a+"], &["silver.b", "gold.sum_b", "gold.top"]),
        (&["--select", "gold.days"], &["gold.days"]),
        (&["--select", "gold.d*,gold.top"], &["gold.top"]),
    ] {
        assert_eq!(meant(&project, args), expected, "{args:?}");
    }
    for (args, text) in [
        (&["run", "--select", "gold.tip"][..], "did you mean `gold.top`?"),
        (&["run", "--select", "+sum_a"], "did you mean `gold.sum_a`?"),
        (&["run", "--select", "gold.x*"], "no task is called `gold.x*`"),
        (&["run", "--select", "silver", "--exclude", "silver.*"], "no task is left"),
    ] {
        let outcome = project.orchestrator(args).expect(2);
        assert!(outcome.stderr.contains(text), "{}", outcome.story());
    }
    assert!(!project.exists("bronze.a_feed"));
}

#[test]
fn a_selection_runs_only_what_it_means() {
    let project = project();
    let outcome = project.orchestrator(&["run", "--select", "+gold.sum_a", "--output", "json"]).expect(0);
    let summary = summary_of(&outcome);
    let tasks: Vec<&str> = summary.tasks.iter().map(|task| task.task.as_str()).collect();
    assert_eq!(tasks, ["bronze.a_feed", "silver.a", "gold.sum_a"]);
    assert!(!project.exists("silver.b") && project.count("gold.sum_a") == 1);
    let dry = ["run", "--dry-run", "--select", "silver.b+", "--output", "json"];
    let told: Value = serde_json::from_str(&project.orchestrator(&dry).expect(0).stdout).expect("JSON");
    let same = ["dry-run", "--select", "silver.b+", "--output", "json"];
    assert_eq!(told, serde_json::from_str::<Value>(&project.orchestrator(&same).expect(0).stdout).expect("JSON"));
    assert!(!project.exists("silver.b"), "a dry run runs nothing");
}

#[test]
fn full_refresh_makes_tables_anew_where_that_can_be() {
    let project = project();
    project.run();
    let before = project.versions();
    let args = ["run", "--full-refresh", "silver.a,gold.sum_b", "--select", "gold.sum_a", "--output", "json"];
    let summary = summary_of(&project.orchestrator(&args).expect(0));
    let tasks: Vec<&str> = summary.tasks.iter().map(|task| task.task.as_str()).collect();
    assert_eq!(tasks, ["silver.a", "gold.sum_a", "gold.sum_b"]);
    let after = project.versions();
    for (table, grows) in [("silver/a", true), ("gold/sum_b", true), ("silver/b", false), ("bronze/a_feed", false)] {
        assert_eq!(after[table] > before[table], grows, "{table}");
    }
    assert_eq!(project.query("SELECT n FROM gold.sum_a")[0]["n"], 30);
    let dry = project.orchestrator(&["dry-run", "--full-refresh", "silver.a"]).expect(0);
    assert!(dry.stdout.contains("it is made anew"), "{}", dry.story());
    for (task, text) in [("bronze.a_feed", "it keeps every record for ever"), ("gold.days", "its days are history")] {
        let outcome = project.orchestrator(&["run", "--full-refresh", task]).expect(2);
        assert!(outcome.stderr.contains(text) && outcome.stderr.contains("hint: "), "{}", outcome.story());
    }
}
