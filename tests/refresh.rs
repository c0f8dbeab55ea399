//! Models that follow their sources, as a user sees them: what is told of a refresh, what breaks it, what must hold
//! before a commit.

use std::fs;

use serde_json::Value;

use crate::support::program;
use crate::support::project::Project;

const SPEC: &str = "
name: refresh
storage: ./lakehouse
landing: ./landing
bronze:
  orders_cdc: {path: orders/, format: csv, settle: 0s}
silver:
  orders:
    source: orders_cdc
    cdc: plain
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [id]
    sequence_by: [ts bigint]
    columns: {id: bigint not null, day: date, amount: 'decimal(12,2)', price: double}
gold:
  daily:
    query: SELECT day, count(*) AS n, sum(amount) AS total FROM silver.orders GROUP BY day
";

fn project(spec: &str) -> Project {
    let project = Project::new(spec);
    land(&project, "1", "I,1,2024-05-01,10.00,1\nI,2,2024-05-01,20.00,1\nI,3,2024-05-02,5.00,1\n");
    project
}

fn land(project: &Project, name: &str, rows: &str) {
    project.land(format!("orders/{name}.csv"), format!("op,id,day,amount,ts\n{rows}").as_bytes(), None);
}

fn gold(project: &Project, args: &[&str]) -> program::Outcome {
    program::run("gold", project.path(), args, None)
}

/// The whole output of a run.
fn run(project: &Project, code: i32) -> String {
    let outcome = project.orchestrator(&["run"]).expect(code);
    format!("{}{}", outcome.stdout, outcome.stderr)
}

fn totals(project: &Project) -> Vec<String> {
    let rows = project.query("SELECT day, n, total FROM gold.daily ORDER BY day NULLS FIRST");
    rows.iter().map(|row| format!("{} {} {}", row["day"], row["n"], row["total"]).replace('"', "")).collect()
}

#[test]
fn a_refresh_replaces_the_groups_of_old_and_new_values() {
    let project = project(SPEC);
    run(&project, 0);
    // 1 moves to a new day, 3 goes and leaves its day empty, 4 has no day.
    land(&project, "2", "U,1,2024-05-03,10.00,2\nD,3,,,2\nI,4,,7.00,2\n");
    let told = run(&project, 0);
    assert!(told.contains("gold.daily: refreshed 4 groups by `day`, of which 1 is gone"), "{told}");
    assert_eq!(totals(&project), ["null 1 7.00", "2024-05-01 1 20.00", "2024-05-03 1 10.00"]);
    let verdict = gold(&project, &["verify", "daily"]).expect(0);
    assert!(verdict.stdout.contains("ok      the table is what its query gives"), "{}", verdict.stdout);
    let history = project.orchestrator(&["table", "history", "gold.daily", "--output", "json"]).expect(0);
    let history: Value = serde_json::from_str(&history.stdout).expect("JSON");
    assert_eq!(history.to_string().matches("MERGE").count(), 1, "one commit: {history}");
}

#[test]
fn what_cannot_be_followed_is_computed_as_a_whole_and_told() {
    let project = project(SPEC);
    run(&project, 0);
    let other = SPEC.replace("count(*) AS n", "count(amount) AS n");
    project.respec(&other.replace("GROUP BY day", "GROUP BY day\n    reset_allowed: false"));
    let told = run(&project, 1);
    assert!(told.contains("gold.daily would be computed anew as a whole, because its query has changed"), "{told}");
    project.respec(&other);
    assert!(run(&project, 0).contains("computed as a whole, because its query has changed"));

    // Another table under the name of the source.
    fs::remove_dir_all(project.table_folder("silver.orders")).expect("removed");
    assert!(run(&project, 0).contains("computed as a whole, because silver.orders is another table than before"));

    // A version that is gone from the log of the source.
    land(&project, "2", "U,1,2024-05-03,10.00,2\n");
    project.orchestrator(&["run", "--select", "bronze.orders_cdc,silver.orders"]).expect(0);
    land(&project, "3", "U,2,2024-05-04,10.00,3\n");
    let feed = project.table_folder("silver.orders").join("_change_data");
    fs::remove_dir_all(&feed).expect("a feed");
    let told = run(&project, 0);
    assert!(told.contains("is gone, which tells what changed"), "{told}");
    gold(&project, &["verify"]).expect(0);
}

#[test]
fn rows_of_another_program_are_found_and_replaced() {
    let project = project(SPEC);
    run(&project, 0);
    let before = totals(&project);
    // The files of the last version in a commit that no run made.
    let log = project.table_folder("gold.daily").join("_delta_log");
    let newest = fs::read_dir(&log).expect("a log").flatten().map(|entry| entry.path());
    let newest = newest.filter(|path| path.extension().is_some_and(|kind| kind == "json")).max().expect("a commit");
    let number: u64 = newest.file_stem().and_then(|stem| stem.to_str()).expect("a name").parse().expect("a number");
    let text = fs::read_to_string(&newest).expect("a commit");
    let add: Value = serde_json::from_str(text.lines().find(|line| line.starts_with("{\"add\"")).expect("a file"))
        .expect("an action");
    let remove =
        serde_json::json!({"remove": {"path": add["add"]["path"], "dataChange": true, "deletionTimestamp": 0}});
    fs::write(log.join(format!("{:020}.json", number + 1)), format!("{remove}\n")).expect("written");
    assert!(totals(&project).is_empty());
    let told = run(&project, 0);
    assert!(told.contains("computed as a whole, because its version 2 is by another program"), "{told}");
    assert_eq!(totals(&project), before);
    assert!(!run(&project, 0).contains("computed as a whole"));
    // Taken back to it, the table is as that program left it; taken back to one of our own, as we did.
    let restore = |version: &str| {
        project.orchestrator(&["table", "restore", "gold.daily", "--version", version, "--yes"]).expect(0);
        run(&project, 0)
    };
    let told = restore("2");
    assert!(told.contains("computed as a whole, because its version 2 is by another program"), "{told}");
    assert_eq!(totals(&project), before);
    let told = restore("1");
    assert!(!told.contains("computed as a whole"), "{told}");
    assert_eq!(totals(&project), before);
}

#[test]
fn keys_and_empty_partitions_are_held_when_the_whole_is_computed() {
    let model = "  keyed:\n    query: SELECT amount AS k, id FROM silver.orders\n    keys: [k]\n";
    let keyed = project(&format!("{SPEC}{model}"));
    land(&keyed, "0", "I,8,2024-05-01,10.00,1\n");
    let told = run(&keyed, 1);
    assert!(told.contains("gold.keyed has several rows with the same `k`"), "{told}");

    let parted = "  parted:\n    query: \"SELECT CASE WHEN id > 1 THEN '' ELSE 'x' END AS name, count(*) AS n FROM silver.orders GROUP BY 1\"\n    partition_by: [name]\n";
    let parted = project(&format!("{SPEC}{parted}"));
    for round in 2..4 {
        run(&parted, 0);
        assert_eq!(parted.query("SELECT name FROM gold.parted WHERE name IS NULL").len(), 1);
        gold(&parted, &["verify", "parted"]).expect(0);
        land(&parted, &format!("{round}"), &format!("I,{round}0,2024-05-01,1.00,1\n"));
    }
    let told = gold(&parted, &["explain", "parted"]).expect(0).stdout;
    assert!(told.contains("`name` is in `partition_by`, where an empty text becomes null"), "{told}");
}

#[test]
fn a_table_says_what_the_spec_says_of_it() {
    let spec = |about: &str| SPEC.replace("GROUP BY day\n", &format!("GROUP BY day\n{about}"));
    let first = "    description: Sales of each day\n    column_descriptions: {day: day of the sales}\n    properties: {owner: sales}\n";
    let project = project(&spec(first));
    let described = || {
        let told = project.orchestrator(&["table", "describe", "gold.daily", "--output", "json"]).expect(0).stdout;
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let day = &told["columns"][0]["description"];
        format!("{} {} {day}", told["description"], told["properties"]["owner"]).replace('"', "")
    };
    run(&project, 0);
    assert_eq!(described(), "Sales of each day sales day of the sales");
    // Without new rows, and with some: no word of it has the rows computed anew.
    project.respec(&spec(&first.replace("sales", "shop")));
    run(&project, 0);
    assert_eq!(described(), "Sales of each day shop day of the shop");
    let told = project.orchestrator(&["table", "describe", "gold.daily"]).expect(0).stdout;
    assert!(told.contains("day of the shop"), "{told}");
    project.respec(SPEC);
    land(&project, "2", "U,1,2024-05-03,10.00,2\n");
    let told = run(&project, 0);
    assert!(told.contains("refreshed 2 groups by `day`"), "{told}");
    let now = described();
    assert!(now.starts_with("SELECT day") && now.ends_with(" shop day of the shop"), "{now}");
    let versions = project.versions();
    run(&project, 0);
    assert_eq!(project.versions(), versions);
}

#[test]
fn a_column_that_is_described_and_not_there_is_named_and_makes_no_commits() {
    let days = "  days:\n    snapshot_of: silver.orders\n    strategy: changed_only\n";
    let project = project(&format!("{SPEC}{days}"));
    run(&project, 0);
    let versions = project.versions();
    project.respec(&format!("{SPEC}{days}    column_descriptions: {{amont: what was paid}}\n"));
    run(&project, 0);
    assert_eq!(project.versions(), versions);
    land(&project, "2", "U,1,2024-05-03,10.00,2\n");
    let told = run(&project, 1);
    let wrong = "gold.days has no column `amont` (`column_descriptions`)";
    assert!(told.contains(wrong) && told.contains("did you mean `amount`?"), "{told}");
    assert_eq!(project.versions()["gold/days"], versions["gold/days"]);
}

#[test]
fn a_dry_run_says_how_a_model_would_follow() {
    let project = project(SPEC);
    let told = project.orchestrator(&["dry-run"]).expect(0).stdout;
    assert!(!told.contains("by group"), "{told}");
    run(&project, 0);
    land(&project, "2", "U,1,2024-05-03,10.00,2\n");
    let told = project.orchestrator(&["dry-run"]).expect(0).stdout;
    assert!(told.contains("if silver.orders brings something; by group of `day`"), "{told}");
    project.respec(&SPEC.replace("sum(amount)", "max(amount)"));
    let told = project.orchestrator(&["dry-run", "--output", "json"]).expect(0).stdout;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let how = told["tasks"].as_array().expect("tasks").last().expect("a task")["how"].to_string();
    assert!(how.contains("computed as a whole, because its query has changed"), "{how}");
}

#[test]
fn explain_says_how_and_why() {
    let more = "  floats:\n    query: SELECT day, sum(price) AS s FROM silver.orders GROUP BY day\n  all:\n    query: SELECT count(*) AS n FROM silver.orders\n";
    let project = project(&format!("{SPEC}{more}"));
    run(&project, 0);
    let told = gold(&project, &["explain", "daily"]).expect(0).stdout;
    assert!(told.starts_with("gold.daily is refreshed by group of `day`."), "{told}");
    assert!(told.contains("silver.orders version 1, which is in\nChange data feeds tell what changed, or"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    let told = gold(&project, &["explain", "--output", "json"]).expect(0).stdout;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let of = |name: &str| {
        told.as_array().expect("models").iter().find(|model| model["table"] == name).expect("the model").clone()
    };
    assert_eq!((&of("gold.daily")["refresh"], &of("gold.all")["refresh"]), (&"incremental".into(), &"full".into()));
    assert!(of("gold.floats")["because"][0].as_str().expect("a reason").contains("cast them to DECIMAL"));
    assert!(of("gold.all")["because"][0].as_str().expect("a reason").contains("no GROUP BY"));

    let asked = SPEC.replace("SELECT day, count(*) AS n, sum(amount) AS total", "SELECT count(*) AS n");
    project.respec(&asked.replace("GROUP BY day", "\n    refresh: incremental"));
    let refused = project.orchestrator(&["validate"]).expect(2).stderr;
    assert!(refused.contains("gold.daily.refresh") && refused.contains("there is no GROUP BY"), "{refused}");
}

#[test]
fn verify_finds_a_table_that_was_changed_and_rebuild_mends_it() {
    let project = project(SPEC);
    run(&project, 0);
    // The rows of another query under the name of this one.
    let folder = project.table_folder("gold.daily").join("_delta_log");
    project.respec(&SPEC.replace("sum(amount) AS total", "sum(amount + 1) AS total"));
    run(&project, 0);
    let commit = folder.join(format!("{:020}.json", 2));
    let text = fs::read_to_string(&commit).expect("a commit").replace("sum(amount + 1)", "sum(amount)");
    fs::write(&commit, text).expect("written");
    project.respec(SPEC);
    let verdict = gold(&project, &["verify", "daily"]).expect(1);
    assert!(verdict.stdout.contains("BROKEN  rows that differ: 2"), "{}", verdict.stdout);
    assert!(verdict.stdout.contains("day 2024-05-02: total is 6.00 and should be 5.00"), "{}", verdict.stdout);
    gold(&project, &["rebuild", "daily"]).expect(0);
    gold(&project, &["verify", "daily"]).expect(0);
    assert_eq!(totals(&project), ["2024-05-01 2 30.00", "2024-05-02 1 5.00"]);
}

#[test]
fn rows_that_break_a_rule_never_become_visible() {
    let checks = "    expectations:\n      positive: {check: total >= 0, action: fail}\n      small: {check: n < 2}\n    checks:\n      unique: {columns: [total]}\n      not_null: {columns: [day], severity: warn}\n      row_count: {min: 1, max: 3}\n";
    let project = project(&format!("{SPEC}{checks}"));
    let told = run(&project, 0);
    assert!(told.contains("expectation `small` (n < 2) is not met by 1 row of 2"), "{told}");
    let before = totals(&project);

    land(&project, "2", "I,9,2024-05-09,-1.00,1\n");
    let told = run(&project, 1);
    assert!(told.contains("expectation `positive` (total >= 0) is not met by 1 row of 1: day 2024-05-09"), "{told}");
    assert_eq!(totals(&project), before);
    // It is mended; the new day has the total of another day, which no group that is computed shows.
    land(&project, "3", "U,9,2024-05-09,5.00,2\n");
    let told = run(&project, 1);
    assert!(told.contains("`unique` (total) is broken by 1 value: total 5.00, 2 times"), "{told}");
    assert_eq!(totals(&project), before);
    land(&project, "4", "U,9,,6.00,3\n");
    let told = run(&project, 0);
    assert!(told.contains("`not_null` (day) is broken by 1 row: day NULL"), "{told}");
    land(&project, "5", "I,10,2024-06-01,1.00,1\n");
    assert!(run(&project, 1).contains("`row_count` is 4, not at least 1 and at most 3"));
}

#[test]
fn rows_are_left_out_and_other_tables_are_asked() {
    let checks = "    expectations:\n      many: {check: n > 1, action: drop}\n    checks:\n      relationships: {of_orders: {column: n, to: silver.orders, field: id, severity: warn}}\n      freshness: {column: day, within: 2 days, severity: warn}\n";
    let project = project(&format!("{SPEC}{checks}"));
    let told = run(&project, 0);
    assert_eq!(totals(&project), ["2024-05-01 2 30.00"]);
    assert!(told.contains("`freshness`: the newest `day` is 2024-05-01, older than 2 days"), "{told}");
    land(&project, "2", "D,2,,,2\nU,3,2024-05-01,1.00,2\n");
    let told = run(&project, 0);
    assert!(told.contains("`relationships.of_orders` (n in silver.orders.id) is broken by 1 row"), "{told}");
    assert_eq!(totals(&project), ["2024-05-01 2 11.00"]);
    gold(&project, &["verify"]).expect(0);
    let wrong = checks.replace("n > 1", "m > 1").replace("column: day", "column: dy");
    project.respec(&format!("{SPEC}{wrong}"));
    let refused = project.orchestrator(&["validate"]).expect(2).stderr;
    assert!(refused.contains("gold.daily.expectations.many.check"), "{refused}");
    assert!(refused.contains("gold.daily.checks.freshness.column") && refused.contains("`day`"), "{refused}");
}

#[test]
fn two_runs_at_once_leave_what_one_would() {
    let project = project(SPEC);
    run(&project, 0);
    for round in 2..5 {
        land(
            &project,
            &format!("{round}"),
            &format!("U,1,2024-05-0{round},10.00,{round}\nI,1{round},2024-05-0{round},1.00,{round}\n"),
        );
        let runs = [project.start_run(), project.start_run()];
        for run in runs {
            assert!(matches!(run.wait().code, Some(0 | 1)));
        }
        run(&project, 0);
        gold(&project, &["verify"]).expect(0);
    }
}

/// The bytes of the source that the last refresh read, and all that there are.
fn last_refresh(project: &Project) -> (u64, u64) {
    let sql = "SELECT details FROM state.event_log WHERE kind = 'model_refreshed' ORDER BY at DESC LIMIT 1";
    let details = project.query(sql)[0]["details"].as_str().expect("a text").to_owned();
    let details: Value = serde_json::from_str(&details).expect("JSON");
    let bytes = |name: &str| details[name].as_u64().unwrap_or_else(|| panic!("no {name}: {details}"));
    (bytes("source_bytes"), bytes("all_bytes"))
}

#[test]
fn files_without_a_touched_group_are_not_read() {
    for options in ["", "    deletion_vectors: true\n"] {
        let spec = SPEC.replace("gold:\n", &format!("{options}gold:\n"));
        let project = project(&spec);
        for day in 3..9 {
            run(&project, 0);
            // A file of its own: no key of it was there before.
            land(&project, &format!("{day}"), &format!("I,{day}0,2024-05-0{day},1.00,1\n"));
        }
        run(&project, 0);
        land(&project, "late", "U,50,2024-05-05,7.00,2\n");
        run(&project, 0);
        let (read, all) = last_refresh(&project);
        assert!(read * 3 < all, "{read} of {all} bytes were read for one of eight days");
        gold(&project, &["verify"]).expect(0);
    }
}

#[test]
fn a_vector_or_a_log_that_is_gone_leads_to_the_whole() {
    let spec = SPEC.replace("gold:\n", "    deletion_vectors: true\n    write_mode: merge_on_read\ngold:\n");
    let update = |project: &Project, round: u64| {
        land(project, &format!("{round}"), &format!("U,{},2024-05-0{round},10.00,{round}\n", round % 3 + 1));
        project.orchestrator(&["run", "--select", "bronze.orders_cdc,silver.orders"]).expect(0);
    };
    // Enough rows, so that a marked one is no reason to write the file anew.
    let many: String = (100..140).map(|id| format!("I,{id},2024-04-01,1.00,1\n")).collect();
    // The vector that the version before had is gone: what lies between the two cannot be told.
    let vectors = project(&spec);
    land(&vectors, "many", &many);
    run(&vectors, 0);
    update(&vectors, 2);
    run(&vectors, 0);
    update(&vectors, 3);
    let held = |project: &Project| {
        let files = std::fs::read_dir(project.table_folder("silver.orders")).expect("a folder").flatten();
        files
            .map(|file| file.path())
            .filter(|path| path.to_string_lossy().contains("deletion_vector"))
            .collect::<Vec<_>>()
    };
    let mut files = held(&vectors);
    assert_eq!(files.len(), 2, "{files:?}");
    files.sort_by_key(|file| file.metadata().and_then(|data| data.modified()).expect("a time"));
    fs::remove_file(&files[0]).expect("a vector");
    let told = run(&vectors, 0);
    assert!(
        told.contains("computed as a whole, because") && told.contains("is gone, which tells what changed"),
        "{told}"
    );
    gold(&vectors, &["verify"]).expect(0);

    // A log that begins after the version that the model has.
    let log = project(&spec);
    run(&log, 0);
    for round in 2..8 {
        update(&log, round);
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = log.table_folder("silver.orders");
    runtime.block_on(async {
        let url = deltalake::ensure_table_uri(folder.display().to_string()).expect("a place");
        let table = deltalake::open_table(url).await.expect("a table");
        deltalake::checkpoints::create_checkpoint(&table, None).await.expect("a checkpoint");
    });
    for version in 0..5 {
        fs::remove_file(folder.join("_delta_log").join(format!("{version:020}.json"))).expect("an old commit");
    }
    let told = run(&log, 0);
    assert!(told.contains("computed as a whole, because version 2 of silver.orders is gone from its log"), "{told}");
    gold(&log, &["verify"]).expect(0);
}

#[test]
fn a_source_that_was_made_of_another_kind_is_compared_as_a_whole() {
    const KINDS: &str = "
name: kinds
storage: ./lakehouse
landing: ./landing
timezone: Etc/GMT+12
bronze:
  s: {path: ./, format: csv, settle: 0s}
silver:
  t:
    source: s
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [id]
    sequence_by: [\"ts bigint\"]
    columns: {id: bigint not null, day: date, note: string}
    stored_as_scd_type: 2
gold:
  daily: {query: 'SELECT day, count(*) AS n FROM silver.t GROUP BY day'}
  days: {snapshot_of: silver.t, strategy: changed_only}
";
    let project = Project::new(KINDS);
    project.land("1.csv", b"op,id,day,note,ts\nI,1,2024-05-01,a,1\nU,1,2024-05-01,b,2\nI,2,2024-05-02,c,1\n", None);
    run(&project, 0);
    // Rows of the present alone, in folders by day; and a day later somewhere.
    let other = KINDS.replace("    stored_as_scd_type: 2\n", "    partition_by: [day]\n");
    project.respec(&other.replace("Etc/GMT+12", "Etc/GMT-14"));
    program::run("silver", project.path(), &["rebuild", "t"], None).expect(0);
    run(&project, 0);
    gold(&project, &["verify"]).expect(0);
    let sql = "SELECT snapshot_date, count(*) AS n FROM gold.days GROUP BY snapshot_date";
    let days = project.query(sql);
    assert_eq!((days.len(), days[0]["n"].as_i64()), (1, Some(2)), "nothing that is recorded has changed: {days:?}");
}

#[test]
fn groups_that_are_named_twice_and_sums_beside_distinct_counts_follow_their_changes() {
    let query = "SELECT day AS d1, day AS d2, sum(amount) AS total, count(DISTINCT price) AS prices FROM silver.orders GROUP BY day, day";
    let project = project(&format!("{SPEC}  twice: {{query: \"{query}\"}}\n"));
    run(&project, 0);
    land(&project, "2", "U,1,2024-05-02,10.00,2\nD,2,,,2\n");
    let told = run(&project, 0);
    assert!(told.contains("gold.twice: refreshed 2 groups by `d1`, of which 1 is gone"), "{told}");
    let rows = project.query("SELECT d1, d2, total, prices FROM gold.twice");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["d2"], "2024-05-02");
    assert_eq!(project.types("gold.twice")["total"], "decimal(22,2)");
    gold(&project, &["verify", "twice"]).expect(0);
}
