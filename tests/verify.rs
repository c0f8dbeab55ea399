//! `silver verify` finds every way in which a table can be wrong, and nothing in one that is right.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::commit::{Commit, Txn};
use lake::run::RunContext;
use lake::session::Engine;
use lake::write::TableWriter;
use lake::{Clock, Lake, TableName};
use serde_json::Value;

use crate::support::program::Outcome;
use crate::support::project::Project;

const SPEC: &str = "
name: verify
storage: ./lakehouse
landing: ./landing
bronze:
  orders_cdc: {path: ./, format: csv, settle: 0s}
silver:
  orders:
    source: orders_cdc
    cdc: plain
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [id]
    sequence_by: [ts]
    columns: {id: bigint, status: string, ts: timestamp}
";

fn verify(project: &Project, code: i32) -> (Value, Outcome) {
    let outcome = project.silver(&["verify", "--rebuild", "--output", "json"]).expect(code);
    (serde_json::from_str::<Value>(&outcome.stdout).expect("JSON")[0].take(), outcome)
}

/// Exchanges the rows of `silver.orders` behind the program's back.
#[tokio::main(flavor = "current_thread")]
async fn replace_rows(project: &Project, rows: &[(Option<i64>, &str)]) {
    let storage = project.path().join("lakehouse").display().to_string();
    let lake = Lake::open(&storage, Path::new("."), Clock::system(), Engine::default()).expect("a lake");
    let mut table = lake.existing(&TableName::silver("orders")).await.expect("the table");
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>())),
        ("status", Arc::new(rows.iter().map(|row| Some(row.1)).collect::<StringArray>())),
        ("ts", Arc::new(TimestampMicrosecondArray::from(vec![1_714_557_600_000_000; rows.len()]).with_timezone("UTC"))),
        (
            "_sequence_1",
            Arc::new(TimestampMicrosecondArray::from(vec![1_714_557_600_000_000; rows.len()]).with_timezone("UTC")),
        ),
        ("_batch_id", Arc::new(Int64Array::from(vec![1; rows.len()]))),
    ];
    let mut writer = TableWriter::new(&table);
    writer.write(&RecordBatch::try_from_iter(columns).expect("rows")).await.expect("a file");
    let added = writer.close().await.expect("files").files.into_iter().map(Action::Add);
    let commit = Commit {
        point: "silver_committed",
        txns: vec![Txn::new("test", i64::try_from(table.version()).expect("a version"))],
        operation: DeltaOperation::Write { mode: SaveMode::Overwrite, partition_by: None, predicate: None },
        actions: table.removes(|_| true).expect("files").into_iter().chain(added).collect(),
        blind_append: false,
        metrics: std::collections::BTreeMap::new(),
        run: RunContext::new(&lake).run,
    };
    table.commit(commit).await.expect("committed");
}

#[test]
fn a_right_table_holds_and_a_wrong_one_is_told_by_its_keys() {
    let project = Project::new(SPEC);
    project.land(
        "1.csv",
        b"op,id,status,ts\nI,1,new,2024-05-01T10:00:00Z\nI,2,new,2024-05-01T10:00:00Z\nI,3,x,soon\n",
        None,
    );
    project.run();
    project.land("2.csv", b"op,id,status,ts\nI,3,new,2024-05-01T10:00:00Z\nD,4,,2024-05-01T10:00:00Z\n", None);
    project.run();
    let quarantine = project.count("quarantine.orders_cdc");
    let versions = project.versions();
    let (verdict, _) = verify(&project, 0);
    assert_eq!((verdict["holds"].as_bool(), verdict["rows"].as_i64()), (Some(true), Some(3)), "{verdict}");
    assert_eq!(verdict["checks"].as_array().map(Vec::len), Some(6), "{verdict}");
    assert_eq!((project.versions(), project.count("quarantine.orders_cdc")), (versions, quarantine), "it only looks");

    replace_rows(&project, &[(Some(1), "new"), (Some(2), "paid"), (Some(2), "paid"), (Some(9), "new"), (None, "new")]);
    let (verdict, outcome) = verify(&project, 1);
    assert!(outcome.stderr.contains("silver.orders does not keep its promises"), "{}", outcome.story());
    let told: Vec<(u64, Vec<&str>)> = verdict["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .map(|check| {
            let examples = check["examples"].as_array().expect("examples").iter().filter_map(Value::as_str);
            (check["offenders"].as_u64().expect("a count"), examples.collect())
        })
        .collect();
    let at = "ts 2024-05-01T10:00:00Z, _sequence_1 2024-05-01T10:00:00Z";
    let null = format!("id NULL, status new, {at}");
    assert_eq!(told[0], (1, vec!["id 2"]));
    assert_eq!(told[1], (1, vec![format!("{null}, _batch_id 1").as_str()]));
    assert_eq!(told[2], (1, vec![format!("id 3, status new, {at}").as_str()]));
    let mut surplus = told[3].clone();
    surplus.1.sort_unstable();
    assert_eq!(surplus, (2, vec![format!("id 9, status new, {at}").as_str(), null.as_str()]));
    assert_eq!(told[4], (2, vec!["id 2: status is paid and should be new"; 2]));
    assert_eq!(told[5], (0, Vec::new()), "no column joined later");
}

#[test]
fn a_table_that_is_behind_is_not_compared() {
    let project = Project::new(SPEC);
    project.land("1.csv", b"op,id,status,ts\nI,1,new,2024-05-01T10:00:00Z\n", None);
    project.run();
    project.land("2.csv", b"op,id,status,ts\nI,2,new,2024-05-01T10:00:00Z\n", None);
    project.run_layer("bronze");
    let outcome = project.silver(&["verify", "--rebuild"]).expect(1);
    assert!(outcome.stderr.contains("has not applied all of bronze.orders_cdc"), "{}", outcome.story());
    project.silver(&["verify", "orders"]).expect(0);
}

#[test]
fn a_refused_file_leaves_nothing_to_be_brought_up_to_date() {
    let project = Project::new(
        "name: refused\nstorage: ./lakehouse\nlanding: ./landing\nbronze:\n  s: {path: ./, format: csv, settle: 0s}\n\
         silver:\n  t: {source: s, keys: [id], sequence_by: [], columns: {id: bigint not null}}\n",
    );
    project.land("1.csv", b"id\n1\n", None);
    project.run();
    project.land("2.csv", &[0x50, 0x4b, 0x03, 0x04, 0, 0xff, 0xfe, 0, 0], None);
    let told = project.orchestrator(&["run"]).expect(1);
    assert!(!told.stderr.contains("has no rows yet") && !told.stdout.contains("has no rows yet"), "{}", told.story());
    project.silver(&["verify", "--rebuild"]).expect(0);
}
