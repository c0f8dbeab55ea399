//! Tables taken back to earlier versions: by what they are then, by what the next runs make of it, and by what is refused.

use serde_json::{Value, json};

use crate::processes::start_held;
use crate::support::program;
use crate::support::project::Project;

const SPEC: &str = "
name: restore
storage: ./lakehouse
landing: ./landing
bronze:
  orders_cdc: {path: ./, format: csv, settle: 0s}
silver:
  orders:
    source: orders_cdc
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [id]
    sequence_by: [seq]
    columns: {id: bigint not null, seq: bigint, status: string, amount: bigint}
gold:
  by_status:
    query: SELECT status, count(*) AS orders, sum(amount) AS amount FROM silver.orders GROUP BY status
  orders_daily: {snapshot_of: silver.orders, strategy: changed_only}
";
const SILVER: &str = "silver.orders";
const COLUMNS: [&str; 4] = ["id", "seq", "status", "amount"];

/// A project whose files were each brought through all layers by a run of their own; and the version of silver after each.
fn made(spec: &str, files: &[&str]) -> (Project, Vec<u64>) {
    let project = Project::new(spec);
    let mut versions = Vec::new();
    for (number, lines) in files.iter().enumerate() {
        land(&project, number + 1, lines);
        project.run();
        versions.push(newest(&project, SILVER));
    }
    (project, versions)
}

fn land(project: &Project, number: usize, lines: &str) {
    project.land(format!("{number}.csv"), format!("op,id,seq,status,amount\n{lines}").as_bytes(), None);
}

fn newest(project: &Project, table: &str) -> u64 {
    let told = project.orchestrator(&["table", "history", table, "--limit", "1", "--output", "json"]).expect(0);
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    told[0]["version"].as_u64().expect("a version")
}

fn restore(project: &Project, table: &str, version: u64, more: &[&str]) -> Value {
    let version = version.to_string();
    let args = ["table", "restore", table, "--version", &version, "--yes", "--output", "json"];
    let args: Vec<&str> = args.into_iter().chain(more.iter().copied()).collect();
    serde_json::from_str(&project.orchestrator(&args).expect(0).stdout).expect("JSON")
}

/// The rows of silver, by id.
fn rows(project: &Project) -> Vec<String> {
    project.content(&[(SILVER, &COLUMNS)])
}

fn expected(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| format!("{SILVER}: {line}")).collect()
}

/// Everything that follows from bronze does.
fn assert_sound(project: &Project) {
    project.silver(&["verify", "--rebuild"]).expect(0);
    program::run("gold", project.path(), &["verify"], None).expect(0);
    project.orchestrator(&["table", "verify"]).expect(0);
}

#[test]
fn a_bad_file_is_found_by_diff_and_undone_and_the_pipeline_goes_on() {
    let good = ["I,1,1,new,10\nI,2,1,new,20\nI,3,1,new,30\n", "U,1,2,paid,10\n"];
    let (project, versions) = made(SPEC, &good);
    let bronze = newest(&project, "bronze.orders_cdc");
    land(&project, 3, "U,1,3,lost,0\nU,2,3,lost,0\nD,3,3,lost,0\nI,9,3,lost,0\n");
    project.run();

    // Found.
    let from = versions[1].to_string();
    let told = project.orchestrator(&["table", "diff", SILVER, "--from", &from, "--output", "json"]).expect(0);
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert_eq!([&told["added"], &told["removed"], &told["changed"]], [1, 1, 2], "{told}");
    assert_eq!(told["columns"], json!({"seq": 2, "status": 2, "amount": 2}));
    assert_eq!(told["examples"]["changed"][0]["columns"]["status"], json!({"from": "paid", "to": "lost"}));
    let text = project.orchestrator(&["table", "diff", SILVER, "--from", &from]).expect(0).stdout;
    assert!(text.contains("id 2: seq 1 -> 3, status new -> lost, amount 20 -> 0"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    // Undone: first it is only told.
    let asked = ["table", "restore", SILVER, "--version", &from];
    let (before, outcome) = (newest(&project, SILVER), project.orchestrator(&asked).expect(2));
    assert!(
        outcome.stdout.contains("would become what it was") && outcome.stderr.contains("--yes"),
        "{}",
        outcome.story()
    );
    assert!(outcome.stdout.contains("the next run applies batch 3 of bronze.orders_cdc again"), "{}", outcome.story());
    assert!(outcome.stdout.lines().all(|line| line.chars().count() <= 80), "{}", outcome.story());
    assert_eq!(newest(&project, SILVER), before);
    restore(&project, "bronze.orders_cdc", bronze, &[]);
    let told = restore(&project, SILVER, versions[1], &[]);
    assert_eq!(told["rows"], json!({"from": 3, "to": 3}), "{told}");
    assert_eq!(rows(&project), expected(&["1 | 2 | paid | 10", "2 | 1 | new | 20", "3 | 1 | new | 30"]));

    // It goes on: the bad batch is gone, and what comes next is applied.
    land(&project, 4, "U,2,2,paid,20\n");
    project.run();
    assert_eq!(rows(&project), expected(&["1 | 2 | paid | 10", "2 | 2 | paid | 20", "3 | 1 | new | 30"]));
    let gold = project.content(&[("gold.by_status", &["status", "orders", "amount"])]);
    assert_eq!(gold, ["gold.by_status: new | 1 | 30", "gold.by_status: paid | 2 | 30"]);
    assert_sound(&project);
    project.assert_settled();
    let events = project.query("SELECT message FROM state.event_log WHERE kind = 'restore'");
    assert_eq!(events.len(), 2, "{events:?}");
}

#[test]
fn what_a_wrong_spec_made_is_made_again_by_the_right_one() {
    let wrong = SPEC.replace("    columns: {id", "    select: {status: \"upper(status)\"}\n    columns: {id");
    let (project, versions) = made(SPEC, &["I,1,1,new,10\nI,2,1,new,20\n"]);
    project.respec(&wrong);
    land(&project, 2, "U,1,2,paid,10\nU,2,2,x,many\nI,3,2,new,30\n");
    project.run();
    assert_eq!(rows(&project)[0], "silver.orders: 1 | 2 | PAID | 10");
    let refused = || project.query("SELECT status, reason FROM quarantine.orders_cdc");
    assert_eq!(refused().len(), 1);
    restore(&project, SILVER, versions[0], &[]);
    project.respec(SPEC);
    project.run();
    let right = expected(&["1 | 2 | paid | 10", "2 | 1 | new | 20", "3 | 2 | new | 30"]);
    assert_eq!(rows(&project), right);
    assert_eq!(refused().len(), 1, "what was refused again took its own place");
    assert_sound(&project);
    project.assert_settled();
}

#[test]
fn what_was_remembered_counts_as_it_did_then() {
    let history = ["I,1,1,new,1\nI,2,1,new,2\nI,3,1,new,3\n", "D,1,10,,\n", "D,2,10,,\n"];
    let (project, versions) = made(SPEC, &history);
    let deleted = newest(&project, SILVER);
    restore(&project, SILVER, versions[1], &["--keep-offset"]);
    assert_eq!(rows(&project), expected(&["2 | 1 | new | 2", "3 | 1 | new | 3"]));
    // Gold follows, and silver has nothing to do.
    assert_eq!(project.run().status, "succeeded");
    project.assert_settled();
    assert_eq!(rows(&project), expected(&["2 | 1 | new | 2", "3 | 1 | new | 3"]));
    // The first delete was remembered then, the second was not.
    land(&project, 4, "U,1,5,late,1\nU,2,5,late,2\n");
    project.run();
    assert_eq!(rows(&project), expected(&["2 | 5 | late | 2", "3 | 1 | new | 3"]));
    // A delete on top is remembered like any other.
    land(&project, 5, "D,3,10,,\n");
    project.run();
    land(&project, 6, "U,3,9,late,3\n");
    project.run();
    assert_eq!(rows(&project), expected(&["2 | 5 | late | 2"]));
    // Back to where both deletes were remembered.
    restore(&project, SILVER, deleted, &["--keep-offset"]);
    assert_eq!(rows(&project), expected(&["3 | 1 | new | 3"]));
    land(&project, 7, "U,1,6,late,1\nU,2,6,late,2\nU,3,6,late,3\n");
    project.run();
    assert_eq!(rows(&project), expected(&["3 | 6 | late | 3"]));
    project.assert_settled();
}

#[test]
fn columns_come_back_and_join_again() {
    let spec = SPEC.replace("amount: bigint}", "amount: bigint}\n    undeclared_columns: add");
    let (project, versions) = made(&spec, &["I,1,1,new,10\n"]);
    project.land("2.csv", b"op,id,seq,status,amount,note\nU,1,2,paid,10,hello\n", None);
    project.run();
    assert!(project.types(SILVER).contains_key("note"));
    let told = restore(&project, SILVER, versions[0], &[]);
    assert_eq!(told["columns_removed"], json!(["note string"]), "{told}");
    assert!(!project.types(SILVER).contains_key("note"));
    project.run();
    assert_eq!(project.content(&[(SILVER, &["id", "status", "note"])]), ["silver.orders: 1 | paid | hello"]);
    assert_sound(&project);
}

#[test]
fn gold_is_brought_up_to_date_from_where_it_was() {
    let files = ["I,1,1,new,10\nI,2,1,new,20\n", "U,1,2,paid,10\n", "U,2,3,paid,20\n"];
    let (project, _) = made(SPEC, &files);
    let tables: [(&str, &[&str]); 2] = [
        ("gold.by_status", &["status", "orders", "amount"]),
        ("gold.orders_daily", &["id", "status", "amount", "snapshot_date", "_change"]),
    ];
    let (content, at) = (project.content(&tables), tables.map(|(table, _)| newest(&project, table)));
    for (table, version) in [("gold.by_status", at[0] - 1), ("gold.orders_daily", at[1] - 1)] {
        restore(&project, table, version, &[]);
    }
    assert_ne!(project.content(&tables), content);
    project.run();
    assert_eq!(project.content(&tables), content);
    assert_sound(&project);
    project.assert_settled();
    // To where there was nothing.
    restore(&project, "gold.by_status", 0, &[]);
    restore(&project, "gold.orders_daily", 0, &[]);
    assert_eq!(project.content(&tables), [""; 0]);
    project.run();
    assert_eq!(project.content(&tables), content);
    restore(&project, SILVER, 0, &[]);
    project.run();
    assert_eq!(project.content(&tables), content);
    assert_sound(&project);
}

#[test]
fn what_cannot_be_restored_is_refused_with_the_reason() {
    let (project, versions) = made(SPEC, &["I,1,1,new,10\n", "U,1,2,paid,10\n", "U,1,3,sent,10\n"]);
    let fails = |code: i32, args: &[&str], says: &[&str]| {
        let args: Vec<&str> = ["table", "restore"].into_iter().chain(args.iter().copied()).collect();
        let outcome = project.orchestrator(&args).expect(code);
        for text in says {
            assert!(outcome.stderr.contains(text), "`{text}`: {}", outcome.story());
        }
    };
    fails(2, &[SILVER, "--version", "99"], &["has no version 99", "its newest is"]);
    fails(2, &["files.orders_cdc", "--version", "0"], &["the program's own"]);
    fails(2, &["gold.by_status", "--version", "0", "--keep-offset"], &["for silver tables"]);
    fails(2, &[SILVER], &["--version"]);
    fails(1, &[SILVER, "--timestamp", "2001-01-01"], &["no version of 2001-01-01"]);
    let first = versions[0].to_string();
    project.orchestrator(&["table", "vacuum", SILVER, "--retain", "0s", "--force"]).expect(0);
    fails(1, &[SILVER, "--version", &first, "--yes"], &["cannot be restored", ".parquet` are gone", "vacuum"]);
    project.silver(&["rebuild", "orders"]).expect(0);
    let before = versions[2].to_string();
    fails(1, &[SILVER, "--version", &before, "--yes"], &["silver.orders"]);
}

#[test]
fn a_table_is_restored_once_wherever_it_is_killed_and_beside_a_run() {
    let (base, versions) = made(SPEC, &["I,1,1,new,10\n", "U,1,2,paid,10\nI,2,2,new,20\n"]);
    let version = versions[0].to_string();
    let args = ["table", "restore", SILVER, "--version", &version, "--yes"];
    let end = expected(&["1 | 2 | paid | 10", "2 | 2 | new | 20"]);

    let project = base.copy();
    program::run("orchestrator", project.path(), &args, Some("restore_committed:kill")).expect_killed();
    assert_eq!(rows(&project), expected(&["1 | 1 | new | 10"]), "it was committed");
    project.run();
    assert_eq!(rows(&project), end);
    assert_sound(&project);

    let project = base.copy();
    program::run("orchestrator", project.path(), &args, Some("restore_committed:lost")).expect(0);
    assert_eq!(newest(&project, SILVER), versions[1] + 1, "it happened once");
    assert_eq!(rows(&project), expected(&["1 | 1 | new | 10"]));

    // A run that has read the table before comes second, and begins again from where it is taken back.
    let project = base.copy();
    land(&project, 3, "U,2,3,paid,20\nD,1,3,,\n");
    let (running, held) = start_held(&project, "orchestrator", &["run"], "silver_committed:hold");
    restore(&project, SILVER, versions[0], &[]);
    drop(held);
    running.wait().expect(0);
    assert_eq!(rows(&project), expected(&["2 | 3 | paid | 20"]));
    assert_sound(&project);
    project.assert_settled();

    // A restore that comes second is done on top of what came first.
    let project = base.copy();
    land(&project, 3, "U,2,3,paid,20\n");
    let (running, held) = start_held(&project, "orchestrator", &args, "restore_committed:hold");
    project.run();
    drop(held);
    running.wait().expect(0);
    assert_eq!(rows(&project), expected(&["1 | 1 | new | 10"]));
    project.run();
    assert_eq!(rows(&project), expected(&["1 | 2 | paid | 10", "2 | 3 | paid | 20"]));
    assert_sound(&project);
}

#[test]
fn what_a_table_that_is_made_anew_remembers_counts_though_the_old_one_was_restored() {
    let (project, versions) = made(SPEC, &["I,1,1,new,10\nI,2,1,new,10\n", "D,1,3,,\n", "D,2,3,,\n"]);
    restore(&project, SILVER, versions[0], &[]);
    project.run();
    assert_eq!(rows(&project), expected(&[]));
    project.silver(&["rebuild", "orders"]).expect(0);
    // Older than the deletes, which the new table remembers as well.
    land(&project, 4, "U,1,2,late,11\nU,2,2,late,11\n");
    project.run();
    assert_eq!(rows(&project), expected(&[]));
    assert_sound(&project);
}
