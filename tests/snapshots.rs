//! Snapshots over days, by a manual clock: both strategies say of every day what the table was at its last run, and days
//! that are recorded late, in any order, come out as if each had been recorded in its time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use chrono::NaiveDate;
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

use crate::support::history::Dice;
use crate::support::parallel;

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
    fn new(spec: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::manual("2024-05-02T02:00:00Z".parse().expect("a time"));
        let lake = Lake::open(&folder.path().display().to_string(), Path::new("."), clock, Engine::default());
        let document = Document::parse("pipelines.yaml", spec);
        let mut problems = document.problems();
        let keys = |table: &TableName| {
            (*table == TableName::silver("products"))
                .then(|| gold::Keys { entity: vec!["id".to_owned()], is_row: true })
        };
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
        state_of(&session.sql(query).await.expect("a query").collect().await.expect("rows"))
    }

    async fn copy_of(&self, day: &str) -> BTreeMap<i64, Option<String>> {
        self.state(&format!("SELECT id, name FROM gold.copies WHERE snapshot_date = DATE '{day}'")).await
    }

    /// The state of a day by a query over the changes, which must be what `as_of` says.
    async fn as_of(&self, table: &str, day: &str) -> BTreeMap<i64, Option<String>> {
        let latest = format!(
            "SELECT *, row_number() OVER (PARTITION BY id ORDER BY snapshot_date DESC) AS age FROM gold.{table} \
             WHERE snapshot_date <= DATE '{day}'"
        );
        let state = self.state(&format!("SELECT id, name FROM ({latest}) WHERE age = 1 AND _change <> 'delete'")).await;
        assert_eq!(self.told(table, day).await.expect("a day"), state, "{table} on {day}");
        state
    }

    /// The state of a day as the program tells it, or why it does not.
    async fn told(&self, table: &str, day: &str) -> Result<BTreeMap<i64, Option<String>>, String> {
        let table = self.lake.existing(&TableName::gold(table)).await.expect("a table");
        let session = self.lake.session().expect("a session");
        let day: NaiveDate = day.parse().expect("a day");
        let told = gold::as_of(&session, &table, day).await;
        let told = told.map_err(|error| format!("{error}; {}", error.hint_text().unwrap_or_default()))?;
        let names: Vec<&str> = told.rows.schema().fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["id", "name"], "the columns of the source");
        Ok(state_of(&told.rows.collect().await.expect("rows")))
    }

    /// Records days of all snapshots late; the error of the first that cannot be.
    async fn backfill(&self, first: &str, last: &str) -> Result<(), String> {
        let (first, last): (NaiveDate, NaiveDate) = (first.parse().expect("a day"), last.parse().expect("a day"));
        let context = RunContext::new(&self.lake);
        for plan in &self.plans {
            let Plan::Snapshot(plan) = plan else { panic!("no snapshot") };
            let done = gold::backfill(&self.lake, plan, &context, ZONE, first..=last, |_, _| {}).await;
            done.map_err(|error| {
                let causes = error.causes().join(": ");
                format!("{error}: {causes}; {}", error.hint_text().unwrap_or_default())
            })?;
        }
        Ok(())
    }

    /// All rows of a snapshot, as text.
    async fn rows(&self, table: &str) -> Vec<String> {
        let table = self.lake.existing(&TableName::gold(table)).await.expect("a table");
        let session = self.lake.session().expect("a session");
        session.register(&table).await.expect("a scan");
        let query = format!("SELECT * FROM {} ORDER BY snapshot_date, id", table.name());
        let rows = session.sql(&query).await.expect("a query").collect().await.expect("rows");
        let text = arrow::util::pretty::pretty_format_batches(&rows).expect("text").to_string();
        text.lines().filter(|line| line.starts_with('|')).map(str::to_owned).collect()
    }

    async fn recorded(&self, day: &str) -> BTreeMap<i64, Option<String>> {
        self.state(&format!("SELECT id, _change FROM gold.changes WHERE snapshot_date = DATE '{day}'")).await
    }
}

/// Ids and names.
fn state_of(batches: &[RecordBatch]) -> BTreeMap<i64, Option<String>> {
    let mut state = BTreeMap::new();
    for batch in batches {
        let names = batch.column(1).as_string::<i32>();
        for (row, id) in batch.column(0).as_primitive::<Int64Type>().values().iter().enumerate() {
            let name = names.is_valid(row).then(|| names.value(row).to_owned());
            assert_eq!(state.insert(*id, name), None, "key {id} is there twice");
        }
    }
    state
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
    let mut days = Days::new(SPEC);
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
    let error = days.told("recent", "2024-05-01").await.expect_err("a day that is gone");
    assert_eq!(error, "gold.recent has no state of 2024-05-01; it has the days from 2024-05-04 to 2024-05-06");

    // The day without a run gets one; nothing was done on it, so it is the second again.
    days.backfill("2024-05-03", "2024-05-03").await.expect_err("`recent` keeps no such day");
    for day in ["02", "03"] {
        let day = format!("2024-05-{day}");
        assert_eq!((days.copy_of(&day).await, days.as_of("changes", &day).await), (owned(&second), owned(&second)));
    }
    let error = days.backfill("2024-04-30", "2024-04-30").await.expect_err("a day before the table");
    assert!(error.contains("2024-04-30 cannot be recorded") && error.contains("the table was made later"), "{error}");
    let error = days.backfill("2024-05-07", "2024-05-07").await.expect_err("a day to come");
    assert!(error.contains("2024-05-07 is to come"), "{error}");
}

#[test]
fn a_snapshot_that_becomes_another_table_has_the_days_of_its_new_rows() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(swapped());
}

async fn swapped() {
    let mut days = Days::new(SPEC);
    days.set(&State::from([(1, Some("a"))])).await;
    days.run().await;
    days.next_day().await;
    // A day without a change has no rows, and is recorded all the same.
    days.set(&State::from([(1, Some("a"))])).await;
    days.run().await;
    let recorded = async |days: &Days, table: &str| {
        let plan = days.plans.iter().find(|plan| plan.table().name == table).expect("a plan");
        let Plan::Snapshot(plan) = plan else { panic!("no snapshot") };
        let session = days.lake.session().expect("a session");
        let held = days.lake.existing(&plan.table).await.expect("a table");
        let told = gold::check(&session, &held, plan).await.expect("days").to_json();
        told["days"].as_array().expect("days").iter().map(|day| day["day"].to_string()).collect::<Vec<_>>()
    };
    let tables = ["copies", "changes"];
    for table in tables {
        let held = days.lake.existing(&TableName::gold(table)).await.expect("a table");
        lake::copy::copy_as(&days.lake, &held, &TableName::gold(format!("{table}_then"))).await.expect("a copy");
    }
    days.next_day().await;
    let third = State::from([(1, Some("b")), (2, Some("c"))]);
    days.set(&third).await;
    days.run().await;
    for table in tables {
        let (before, all) = (recorded(&days, table).await, days.rows(table).await);
        let name = TableName::gold(table);
        let then = days.lake.existing(&TableName::gold(format!("{table}_then"))).await.expect("a copy");
        let mut held = days.lake.existing(&name).await.expect("a table");
        let plan = days.plans.iter().find(|plan| *plan.table() == name);
        let along = gold::swapped(plan, &held, &then).await.expect("days");
        let run = RunContext::new(&days.lake).run;
        lake::copy::take_over(&days.lake, &mut held, &then, &[], &along, &run).await.expect("a swap");
        assert_eq!(recorded(&days, table).await, before[..2], "{table} has the days of its new rows");
        assert!(days.told(table, "2024-05-03").await.is_ok(), "{table}: the state of the last day before");
        days.run().await;
        assert_eq!(recorded(&days, table).await, before, "{table}: the present day is recorded again");
        assert_eq!(days.rows(table).await, all, "{table}");
    }
    assert_eq!(days.run().await, [false, false, false]);
    // What comes after is right as well.
    days.next_day().await;
    let fourth = State::from([(2, Some("c")), (3, Some("d"))]);
    days.set(&fourth).await;
    days.run().await;
    assert_eq!(days.as_of("changes", "2024-05-04").await, owned(&fourth));
    assert_eq!(days.as_of("changes", "2024-05-03").await, owned(&third));
}

/// What may happen to a table over days, with days that no run saw.
fn random_states(dice: &mut Dice) -> Vec<Vec<State>> {
    const NAMES: [Option<&str>; 4] = [Some("a"), Some("b"), Some("c"), None];
    let mut state = State::new();
    let mut day = |dice: &mut Dice| {
        let mut states = Vec::new();
        for _ in 0..dice.below(3) {
            for _ in 0..=dice.below(3) {
                let id = dice.below(5) as i64;
                if dice.chance(30) {
                    state.remove(&id);
                } else {
                    state.insert(id, NAMES[dice.below(4) as usize]);
                }
            }
            states.push(state.clone());
        }
        states
    };
    let mut days: Vec<Vec<State>> = (0..8).map(|_| day(dice)).collect();
    days[0].push(State::from([(1, Some("first"))]));
    days
}

/// Tables whose days are recorded late; `SNAPSHOTS=100` makes that many, `SEED=…` starts elsewhere.
const TABLES: u64 = 4;
const SEED: u64 = 90_000;

/// Snapshots of one table that record in order, and late.
const LATE: &str = "
name: late
gold:
  copies: {snapshot_of: silver.products, strategy: full}
  changes: {snapshot_of: silver.products, strategy: changed_only}
  kept: {snapshot_of: silver.products, strategy: changed_only, hard_deletes: ignore}
  few: {snapshot_of: silver.products, strategy: changed_only, columns: [id]}
  named: {snapshot_of: silver.products, strategy: changed_only, columns: [id, name, _batch_id], compare_columns: [name]}
  named_kept: {snapshot_of: silver.products, strategy: changed_only, columns: [id, name, _batch_id], compare_columns: [name], hard_deletes: ignore}
";

#[test]
fn days_recorded_late_in_any_order_are_as_if_recorded_in_their_time() {
    let seeds = parallel::seeds(parallel::number("SNAPSHOTS", TABLES), SEED);
    parallel::all(
        "snapshots",
        &seeds,
        |seed| format!("SEED={seed} SNAPSHOTS=1"),
        |seed| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(late(*seed));
        },
    );
}

async fn late(seed: u64) {
    let mut dice = Dice::new(seed);
    let states = random_states(&mut dice);
    let name = |day: usize| format!("2024-05-{:02}", day + 1);
    // Each day recorded by a run at its end, and the same days recorded late.
    let (mut timely, mut late) = (Days::new(LATE), Days::new(LATE));
    for (day, states) in states.iter().enumerate() {
        for state in states {
            timely.set(state).await;
            late.set(state).await;
            // A run in the middle of the day: the day is recorded again as it was at its end.
            if dice.chance(20) {
                late.run().await;
            }
        }
        timely.run().await;
        if dice.chance(30) {
            late.run().await;
        }
        timely.next_day().await;
        late.next_day().await;
        if dice.chance(20) && day > 0 {
            let day = name(dice.below(day as u64) as usize);
            late.backfill(&day, &day).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
    let mut order: Vec<usize> = (0..states.len()).collect();
    dice.shuffle(&mut order);
    for day in order.into_iter().map(name) {
        late.backfill(&day, &day).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    late.backfill(&name(0), &name(states.len() - 1)).await.expect("nothing is left");
    for table in ["changes", "kept", "few", "named", "named_kept"] {
        assert_eq!(late.rows(table).await, timely.rows(table).await, "{table}, seed {seed}");
    }
    for day in (0..states.len()).map(name) {
        let copy = timely.told("copies", &day).await.expect("a day");
        assert_eq!(timely.as_of("changes", &day).await, copy, "{day}, seed {seed}");
        assert_eq!(late.told("copies", &day).await.expect("a day"), copy, "{day}, seed {seed}");
        assert_eq!(late.as_of("changes", &day).await, copy, "{day}, seed {seed}");
    }
}
