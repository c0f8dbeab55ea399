//! Snapshots over days, by a manual clock: both strategies say of every day what the table was at its last run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use chrono_tz::Tz;
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use gold::Plan;
use lake::commit::{Commit, Txn};
use lake::report::TaskState;
use lake::run::RunContext;
use lake::session::Engine;
use lake::spec::Document;
use lake::table::Definition;
use lake::write::TableWriter;
use lake::{Clock, Lake, TableName};

/// The days end at four in the morning, UTC.
const ZONE: Tz = Tz::America__New_York;
const SPEC: &str = "
name: days
gold:
  copies: {snapshot_of: silver.products, strategy: full}
  changes: {snapshot_of: silver.products, strategy: changed_only}
  recent: {snapshot_of: silver.products, strategy: changed_only, retention: 2 days}
";

type State = BTreeMap<i64, Option<&'static str>>;

struct Days {
    lake: Lake,
    plans: Vec<Plan>,
    writes: i64,
    _folder: tempfile::TempDir,
}

impl Days {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::manual("2024-05-02T02:00:00Z".parse().expect("a time"));
        let lake = Lake::open(&folder.path().display().to_string(), Path::new("."), clock, Engine::default());
        let document = Document::parse("pipelines.yaml", SPEC);
        let mut problems = document.problems();
        let keys = |table: &TableName| (*table == TableName::silver("products")).then(|| vec!["id".to_owned()]);
        let entries = document.section("gold", &mut problems);
        let plans = entries.iter().filter_map(|entry| gold::compile(entry, &keys, &mut problems)).collect();
        assert!(problems.is_empty(), "{problems}");
        Self { lake: lake.expect("a lake"), plans, writes: 0, _folder: folder }
    }

    /// Makes the table hold exactly these rows.
    async fn set(&mut self, state: &State) {
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, true),
            Field::new("_batch_id", DataType::Int64, false),
        ]));
        self.writes += 1;
        let name = TableName::silver("products");
        let mut table = self.lake.create_or_open(&name, &Definition::new(Arc::clone(&schema))).await.expect("a table");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(state.keys().copied().collect::<Int64Array>()),
            Arc::new(state.values().copied().collect::<StringArray>()),
            Arc::new(Int64Array::from(vec![self.writes; state.len()])),
        ];
        let mut writer = TableWriter::new(&table);
        writer.write(&RecordBatch::try_new(schema, columns).expect("rows")).await.expect("a file");
        let added = writer.close().await.expect("files").files.into_iter().map(Action::Add);
        let commit = Commit {
            point: "silver_committed",
            txns: vec![Txn::new("test", self.writes)],
            operation: DeltaOperation::Write { mode: SaveMode::Overwrite, partition_by: None, predicate: None },
            actions: table.removes(|_| true).expect("files").into_iter().chain(added).collect(),
            blind_append: false,
            metrics: BTreeMap::new(),
            run: RunContext::new(&self.lake).run,
        };
        table.commit(commit).await.expect("a commit");
    }

    /// Runs every snapshot; which of them changed.
    async fn run(&self) -> Vec<bool> {
        let context = RunContext::new(&self.lake);
        let mut changed = Vec::new();
        for plan in &self.plans {
            let report = gold::run(&self.lake, plan, &context, ZONE).await.expect("a snapshot");
            changed.push(report.state == TaskState::Changed);
        }
        changed
    }

    async fn next_day(&self) {
        self.lake.clock().sleep(Duration::from_secs(24 * 3600)).await;
    }

    /// The state that a query gives: id and name.
    async fn state(&self, query: &str) -> BTreeMap<i64, Option<String>> {
        let session = self.lake.session().expect("a session");
        for plan in &self.plans {
            let table = self.lake.existing(plan.table()).await.expect("a table");
            session.register(&table).await.expect("a scan");
        }
        let batches = session.sql(query).await.expect("a query").collect().await.expect("rows");
        let mut state = BTreeMap::new();
        for batch in &batches {
            let names = batch.column(1).as_string::<i32>();
            for (row, id) in batch.column(0).as_primitive::<Int64Type>().values().iter().enumerate() {
                let name = names.is_valid(row).then(|| names.value(row).to_owned());
                assert_eq!(state.insert(*id, name), None, "key {id} twice in: {query}");
            }
        }
        state
    }

    async fn copy_of(&self, day: &str) -> BTreeMap<i64, Option<String>> {
        self.state(&format!("SELECT id, name FROM gold.copies WHERE snapshot_date = DATE '{day}'")).await
    }

    async fn as_of(&self, table: &str, day: &str) -> BTreeMap<i64, Option<String>> {
        let latest = format!(
            "SELECT *, row_number() OVER (PARTITION BY id ORDER BY snapshot_date DESC) AS age FROM gold.{table} \
             WHERE snapshot_date <= DATE '{day}'"
        );
        self.state(&format!("SELECT id, name FROM ({latest}) WHERE age = 1 AND _change <> 'delete'")).await
    }

    async fn recorded(&self, day: &str) -> BTreeMap<i64, Option<String>> {
        self.state(&format!("SELECT id, _change FROM gold.changes WHERE snapshot_date = DATE '{day}'")).await
    }
}

fn owned(state: &State) -> BTreeMap<i64, Option<String>> {
    state.iter().map(|(id, name)| (*id, name.map(str::to_owned))).collect()
}

fn changes(expected: &[(i64, &str)]) -> BTreeMap<i64, Option<String>> {
    expected.iter().map(|(id, change)| (*id, Some((*change).to_owned()))).collect()
}

#[test]
fn both_strategies_say_what_every_day_was() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(story());
}

async fn story() {
    let mut days = Days::new();
    let first = State::from([(1, Some("a")), (2, Some("b"))]);
    days.set(&first).await;
    assert_eq!(days.run().await, [true, true, true]);
    assert_eq!(days.run().await, [false, false, false], "the same day again, nothing new");

    // The second day is run twice: what the first of its runs saw is replaced.
    days.next_day().await;
    days.set(&State::from([(1, Some("wrong")), (9, Some("gone by noon"))])).await;
    days.run().await;
    let second = State::from([(1, Some("a2")), (2, Some("b")), (3, Some("c"))]);
    days.set(&second).await;
    assert_eq!(days.run().await, [true, true, true]);

    // The third day has no run. On the fourth a key is gone, on the fifth nothing has happened.
    days.next_day().await;
    days.next_day().await;
    let fourth = State::from([(1, Some("a2")), (3, Some("c"))]);
    days.set(&fourth).await;
    days.run().await;
    days.next_day().await;
    assert_eq!(days.run().await, [true, false, false], "a copy of each day; no change to record");

    // A key comes back, a value becomes null.
    days.next_day().await;
    let sixth = State::from([(1, Some("a2")), (2, Some("b")), (3, None)]);
    days.set(&sixth).await;
    days.run().await;

    let told = [("01", &first), ("02", &second), ("04", &fourth), ("05", &fourth), ("06", &sixth)];
    for (day, state) in told {
        let day = format!("2024-05-{day}");
        assert_eq!(days.copy_of(&day).await, owned(state), "the copy of {day}");
        assert_eq!(days.as_of("changes", &day).await, owned(state), "the changes up to {day}");
    }
    assert_eq!(days.recorded("2024-05-02").await, changes(&[(1, "update"), (3, "insert")]));
    assert_eq!(days.recorded("2024-05-04").await, changes(&[(2, "delete")]));
    assert_eq!(days.recorded("2024-05-06").await, changes(&[(2, "insert"), (3, "update")]));

    // Old days are gone, and the days that are kept are whole all the same.
    for (day, state) in &told[2..] {
        let day = format!("2024-05-{day}");
        assert_eq!(days.as_of("recent", &day).await, owned(state), "what is kept up to {day}");
    }
    assert!(days.as_of("recent", "2024-05-01").await.is_empty());
}
