//! Random models over random histories of their sources, refreshed after every batch: each is what its query gives as a
//! whole, and was refreshed by groups.
//!
//! `MODELS=500` makes that many lakes, `SEED=…` starts elsewhere.

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use gold::{Keys, Plan};
use lake::commit::Txn;
use lake::run::RunContext;
use lake::session::Engine;
use lake::spec::Document;
use lake::stage::Staged;
use lake::table::Definition;
use lake::upsert::{DELETE, Upsert, WriteMode};
use lake::{Clock, Lake, RunId, Table, TableName, columns};

use crate::support::history::Dice;
use crate::support::parallel;
use crate::support::queries;

const LAKES: u64 = 16;
const SEED: u64 = 60_000;
/// Models of one lake, each read by another one.
const TOGETHER: usize = 4;
const ROUNDS: u64 = 4;

#[test]
fn models_refreshed_by_groups_are_what_their_queries_give() {
    let seeds = parallel::seeds(parallel::number("MODELS", LAKES), SEED);
    parallel::all(
        "models",
        &seeds,
        |seed| format!("SEED={seed} MODELS=1"),
        |seed| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(drive(*seed));
        },
    );
}

async fn drive(seed: u64) {
    let mut dice = Dice::new(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine { threads: Some(2), ..Engine::default() };
    let lake = Lake::open("lake", folder.path(), Clock::system(), engine).expect("a lake");
    let mut orders = Source::new(&lake, &mut dice, "orders", orders(), "id").await;
    let mut customers = Source::new(&lake, &mut dice, "customers", customers(), "cid").await;
    let plans = plans(&mut dice);
    for round in 1..=ROUNDS {
        // Both have rows before the first refresh; later one of them may stand still.
        if round == 1 || dice.chance(80) {
            orders.change(&lake, &mut dice, round).await;
        }
        if round == 1 || dice.chance(50) {
            customers.change(&lake, &mut dice, round).await;
        }
        let context = RunContext::new(&lake);
        for plan in &plans {
            let model = plan.model().expect("a model");
            let told = || format!("round {round} of {}\n{}", model.table, model.query);
            let report = gold::run(&lake, plan, &context, chrono_tz::UTC).await;
            let report = report.unwrap_or_else(|error| panic!("{error} {:?} in {}", error.causes(), told()));
            // Many pairs hang on few rows.
            let is_dear = |note: &str| note.contains("more than half of its groups were touched");
            let whole = report.notes.iter().find(|note| note.starts_with("computed as a whole") && !is_dear(note));
            assert!(whole.is_none(), "{whole:?} in {}", told());
            let is_quiet = report.notes.is_empty() && report.state == lake::report::TaskState::Changed;
            assert!(round == 1 || !is_quiet, "not by groups: {}", told());
            let verdict = gold::verify::verify(&lake, model).await.expect("a verdict");
            assert!(verdict.holds(), "{}\n{}", verdict.to_text(), told());
        }
    }
}

/// Models of the tables, and of these models.
fn plans(dice: &mut Dice) -> Vec<Plan> {
    let mut spec = String::from("name: models\ngold:\n");
    for number in 0..TOGETHER {
        let (query, keys) = queries::model(dice);
        let lines = query.lines().map(|line| format!("      {line}\n")).collect::<String>();
        spec.push_str(&format!("  m{number}:\n    query: |\n{lines}    refresh: incremental\n{keys}"));
        if let Some(above) = queries::above(dice, &query, number) {
            spec.push_str(&format!("  above{number}:\n    query: {above}\n    refresh: incremental\n"));
        }
    }
    let document = Document::parse("pipelines.yaml", &spec);
    let mut problems = document.problems();
    let keys_of = |table: &TableName| {
        let key = if table.name == "orders" { "id" } else { "cid" };
        Some(Keys { entity: vec![key.to_owned()], is_row: true })
    };
    let entries = document.section("gold", &mut problems);
    let plans = entries.iter().filter_map(|entry| gold::compile(entry, &keys_of, &mut problems)).collect();
    assert!(problems.is_empty(), "{problems}");
    gold::in_order(plans).expect("an order")
}

/// A silver table whose rows change at random.
struct Source {
    table: Table,
    key: &'static str,
    mode: WriteMode,
}

fn orders() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("cust", DataType::Int64, true),
        Field::new("region", DataType::Utf8, true),
        Field::new("at", columns::timestamp_type(), true),
        Field::new("amount", DataType::Decimal128(12, 2), true),
        Field::new("qty", DataType::Int32, true),
        Field::new(columns::BATCH_ID, DataType::Int64, false),
    ]))
}

fn customers() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("cid", DataType::Int64, false),
        Field::new("country", DataType::Utf8, true),
        Field::new("level", DataType::Int32, true),
        Field::new(columns::BATCH_ID, DataType::Int64, false),
    ]))
}

impl Source {
    async fn new(lake: &Lake, dice: &mut Dice, name: &str, schema: SchemaRef, key: &'static str) -> Self {
        let on = |key: &str| (key.to_owned(), "true".to_owned());
        let (has_feed, has_vectors) = (dice.chance(70), dice.chance(50));
        let mut properties = Vec::new();
        properties.extend(has_feed.then(|| on("delta.enableChangeDataFeed")));
        properties.extend(has_vectors.then(|| on("delta.enableDeletionVectors")));
        let partition_by = (name == "orders" && dice.chance(30)).then(|| "region".to_owned()).into_iter().collect();
        let definition = Definition { partition_by, properties, ..Definition::new(schema) };
        let table = lake.create_or_open(&TableName::silver(name), &definition).await.expect("a table");
        let mode = match dice.below(3) {
            0 => WriteMode::CopyOnWrite,
            1 if has_vectors => WriteMode::MergeOnRead,
            _ => WriteMode::Auto,
        };
        Self { table, key, mode }
    }

    /// Some rows come, change and go.
    async fn change(&mut self, lake: &Lake, dice: &mut Dice, round: u64) {
        // Several commits, so that a feed is made of several.
        for part in 0..=dice.below(2) {
            let changes = self.changes(dice, round);
            let session = lake.session().expect("a session");
            let frame = session.context().read_batch(changes).expect("changes");
            let staged = Staged::write(frame).await.expect("staged");
            let upsert = Upsert { keys: vec![self.key.to_owned()], sequence: Vec::new() };
            let probed = upsert.probe(lake, &self.table, &staged).await.expect("probed").with_mode(self.mode);
            let txns = vec![Txn::new("test", i64::try_from(round * 10 + part).expect("a number"))];
            let run = RunId::new(lake.clock());
            upsert.apply(lake, &mut self.table, &probed, txns, &run, "silver_committed").await.expect("applied");
        }
    }

    fn changes(&self, dice: &mut Dice, round: u64) -> RecordBatch {
        let ids: Vec<i64> = (0..30).filter(|_| dice.chance(30)).collect();
        let deletes: Vec<bool> = ids.iter().map(|_| dice.chance(20)).collect();
        let schema = self.table.schema();
        let is_partitioned = !self.table.partition_columns().expect("partitions").is_empty();
        let columns = schema.fields().iter().map(|field| match field.name().as_str() {
            name if name == self.key => Arc::new(Int64Array::from(ids.clone())) as ArrayRef,
            columns::BATCH_ID => Arc::new(Int64Array::from(vec![round as i64; ids.len()])),
            _ => values(field.data_type(), &ids.iter().map(|_| cell(dice)).collect::<Vec<_>>(), is_partitioned),
        });
        let columns: Vec<ArrayRef> = columns.chain([Arc::new(BooleanArray::from(deletes)) as ArrayRef]).collect();
        let fields = schema.fields().iter().map(|field| field.as_ref().clone());
        let schema = Schema::new(fields.chain([Field::new(DELETE, DataType::Boolean, false)]).collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), columns).expect("changes")
    }
}

fn cell(dice: &mut Dice) -> Option<u64> {
    (!dice.chance(15)).then(|| dice.below(12))
}

/// Few different values of a type. In partition columns an empty text is null, and silver sees to that. Moments are around the changes of the clocks of many zones.
fn values(kind: &DataType, cells: &[Option<u64>], is_partitioned: bool) -> ArrayRef {
    let cells = cells.iter().map(|cell| cell.map(|number| number as i64));
    match kind {
        DataType::Int64 => Arc::new(cells.collect::<Int64Array>()),
        DataType::Int32 => Arc::new(cells.map(|cell| cell.map(|n| n as i32 - 4)).collect::<Int32Array>()),
        DataType::Utf8 => {
            let names = ["north", "south", if is_partitioned { "west" } else { "" }, "NULL"];
            Arc::new(cells.map(|cell| cell.map(|n| names[n as usize % names.len()])).collect::<StringArray>())
        }
        DataType::Decimal128(precision, scale) => {
            let cents = cells.map(|cell| cell.map(|n| i128::from(n * 337 - 900)));
            let cents = cents.collect::<Decimal128Array>().with_precision_and_scale(*precision, *scale);
            Arc::new(cents.expect("decimals"))
        }
        DataType::Timestamp(..) => {
            // 2024-11-03T00:30Z and every 3.5 hours: New York has a day of 25 hours then; and a day in Lord Howe.
            let micros = cells.map(|cell| cell.map(|n| 1_730_593_800_000_000 + n * 12_600_000_000));
            Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
        }
        other => panic!("no values of type {other}"),
    }
}
