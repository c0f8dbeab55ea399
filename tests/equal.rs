//! Models that are refreshed by groups are what a full computation gives, where the two might part: keys that come later,
//! nulls, texts that partitions take for null, nested values, conditions that change with time.

use crate::support::program;
use crate::support::project::Project;

const SPEC: &str = "
name: equal
bronze:
  feed: {path: feed/, format: csv, settle: 0s}
silver:
  orders:
    source: feed
    cdc: plain
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [id]
    sequence_by: [ts bigint]
    columns: {id: bigint not null, day: date, amount: 'decimal(12,2)'}
gold:
  m:
";

/// A lake with two orders of one day, one of another and one of none; and a model of them.
fn project(model: &str) -> Project {
    let project = Project::new(&format!("{SPEC}{model}"));
    land(&project, "1", "I,1,2024-05-01,10.00,1\nI,2,2024-05-01,20.00,1\nI,3,2024-05-02,5.00,1\nI,4,,7.00,1\n");
    project
}

fn land(project: &Project, name: &str, rows: &str) {
    project.land(format!("feed/{name}.csv"), format!("op,id,day,amount,ts\n{rows}").as_bytes(), None);
}

fn respec(project: &Project, model: &str) {
    project.respec(&format!("{SPEC}{model}"));
}

/// The whole output of a run.
fn run(project: &Project, code: i32) -> String {
    let outcome = project.orchestrator(&["run"]).expect(code);
    format!("{}{}", outcome.stdout, outcome.stderr)
}

fn verify(project: &Project, code: i32) -> String {
    let outcome = program::run("gold", project.path(), &["verify", "m"], None).expect(code);
    format!("{}{}", outcome.stdout, outcome.stderr)
}

#[test]
fn keys_that_come_later_are_asked_of_all_rows() {
    let query = "    query: SELECT day AS k, amount FROM silver.orders\n";
    let project = project(query);
    run(&project, 0);
    respec(&project, &format!("{query}    keys: [k]\n"));
    land(&project, "2", "U,3,2024-05-02,6.00,2\n");
    let told = run(&project, 1);
    assert!(told.contains("the query of gold.m has several rows with the same `k`"), "{told}");
    land(&project, "3", "D,2,,,3\n");
    let told = run(&project, 0);
    assert!(told.contains("computed as a whole, because its `keys` have changed"), "{told}");
    land(&project, "4", "U,1,2024-05-01,11.00,4\n");
    let told = run(&project, 0);
    assert!(told.contains("refreshed 1 group by `k`"), "{told}");
    verify(&project, 0);
}

#[test]
fn two_sides_without_a_day_are_two_rows() {
    let side = |what: &str| format!("(SELECT day, {what} FROM silver.orders GROUP BY day)");
    let (left, right) = (side("count(*) AS n"), side("sum(amount) AS total"));
    let project = project(&format!(
        "    query: SELECT a.day AS l, b.day AS r, n, total FROM {left} a FULL JOIN {right} b ON a.day = b.day\n"
    ));
    run(&project, 0);
    for (batch, amount) in [(2, "8.00"), (3, "9.00")] {
        land(&project, &batch.to_string(), &format!("U,4,,{amount},{batch}\n"));
        let told = run(&project, 0);
        assert!(!told.contains("refreshed"), "no column tells these rows apart: {told}");
        verify(&project, 0);
    }
    let rows = project.query("SELECT count(*) AS n FROM gold.m WHERE l IS NULL AND r IS NULL");
    assert_eq!(rows[0]["n"], 2, "one from each side");
}

#[test]
fn an_empty_text_in_a_partition_is_null_in_every_refresh() {
    let query = "    query: SELECT id, CASE WHEN amount > 15 THEN '' ELSE 'low' END AS size FROM silver.orders\n    \
                 partition_by: [size]\n    expectations: {sized: {check: size IS NOT NULL, action: drop}}\n";
    let project = project(query);
    run(&project, 0);
    land(&project, "2", "U,1,2024-05-01,30.00,2\n");
    let told = run(&project, 0);
    assert!(told.contains("refreshed 1 group by `id`"), "{told}");
    let ids: Vec<_> = project.query("SELECT id FROM gold.m ORDER BY id").iter().map(|row| row["id"].clone()).collect();
    assert_eq!(ids, [3, 4]);
    verify(&project, 0);
}

#[test]
fn lists_and_maps_follow_by_groups() {
    let project = project(
        "    query: |\n      SELECT day, array_agg(amount ORDER BY amount) AS amounts, map([max(id)], [max(amount)]) AS last,\n      \
         named_struct('n', count(*)) AS told FROM silver.orders GROUP BY day\n",
    );
    run(&project, 0);
    land(&project, "2", "U,2,2024-05-01,1.00,2\n");
    let told = run(&project, 0);
    assert!(told.contains("refreshed 1 group by `day`"), "{told}");
    verify(&project, 0);
    assert_eq!(
        project.query("SELECT amounts[1] AS first FROM gold.m WHERE day = DATE '2024-05-01'")[0]["first"],
        "1.00"
    );
}

#[test]
fn what_is_left_out_by_the_time_of_day_is_asked_in_every_run() {
    let query = "    query: SELECT id, day FROM silver.orders\n";
    let drop = "    expectations: {old: {check: day < current_date, action: drop}}\n";
    let project = project(&format!("{query}{drop}"));
    run(&project, 0);
    let told = run(&project, 0);
    assert!(told.contains("computed in every run, because it asks for `current_date`"), "{told}");
    respec(&project, &format!("{query}{drop}    refresh: incremental\n"));
    let told = project.orchestrator(&["validate"]).expect(2).stderr;
    assert!(told.contains("`current_date` differs from run to run"), "{told}");
}

#[test]
fn a_table_that_is_behind_the_spec_is_not_called_broken() {
    let query = "    query: SELECT id, amount FROM silver.orders\n";
    let project = project(query);
    run(&project, 0);
    verify(&project, 0);
    respec(&project, &format!("{query}    expectations: {{large: {{check: amount > 6, action: drop}}}}\n"));
    let told = verify(&project, 1);
    assert!(told.contains("gold.m was made otherwise than the spec says now") && told.contains("gold run"), "{told}");
    run(&project, 0);
    verify(&project, 0);
}

#[test]
fn a_run_that_fails_before_its_commit_leaves_no_files() {
    let project = project("    query: SELECT id, amount FROM silver.orders\n");
    project.bronze(&["run"], None).expect(0);
    program::run("silver", project.path(), &["run"], None).expect(0);
    program::run("gold", project.path(), &["run"], Some("gold_data_written:fail")).expect(1);
    let folder = project.path().join("lakehouse/gold/m");
    let files = || {
        let names = std::fs::read_dir(&folder).expect("a folder").map(|file| file.expect("a file").file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".parquet")).count()
    };
    assert_eq!(files(), 0);
    run(&project, 0);
    assert_eq!(files(), 1);
}
