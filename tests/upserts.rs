//! The upsert engine on random tables, against a plain fold and against the library's MERGE: same rows, same feed.
//!
//! `UPSERTS=1000` makes that many tables, `SEED=…` starts elsewhere.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{Column, TableReference};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use delta_kernel::engine::arrow_data::EngineDataArrowExt;
use delta_kernel::table_changes::TableChanges;
use deltalake::DeltaTable;
use deltalake::delta_datafusion::DeltaCdfTableProvider;
use lake::commit::Txn;
use lake::copy::{copy_as, take_over};
use lake::optimize::Optimize;
use lake::restore::{Along, Way};
use lake::session::Engine;
use lake::stage::Staged;
use lake::table::Definition;
use lake::upsert::{DELETE, Upsert, older, same_key};
use lake::{Clock, Lake, RunId, Table, TableName, columns};

use crate::support::history::Dice;
use crate::support::parallel;
use crate::support::tables::{Changes, Feed, Fold, Shape, texts};

const TABLES: u64 = 60;
const SEED: u64 = 7_000;

#[test]
fn tables_hold_what_the_fold_holds_and_what_merge_makes() {
    let seeds = parallel::seeds(parallel::number("UPSERTS", TABLES), SEED);
    parallel::all(
        "tables",
        &seeds,
        |seed| format!("SEED={seed} UPSERTS=1"),
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
    let shape = Shape::new(&mut dice);
    let folder = tempfile::tempdir().expect("a folder");
    let lake = Lake::open("lake", folder.path(), Clock::system(), Engine::default()).expect("a lake");
    // With so little memory changes are looked for, and put in their places, a few at a time.
    let memory_bytes = dice.chance(30).then_some(400);
    let tight = Engine { memory_bytes, ..Engine::default() };
    let tight = Lake::open("lake", folder.path(), Clock::system(), tight).expect("a lake");
    let mut ours = create(&lake, "ours", &shape).await;
    let mut merged = open(&create(&lake, "merged", &shape.for_merge()).await, folder.path()).await;
    let mut fold = Fold::default();
    for batch in 1..=2 + dice.below(6) {
        let changes = shape.changes(&mut dice, batch);
        let (figures, feed) = fold.apply(&shape, &changes);
        let session = lake.session().expect("a session");
        let (whole, rows_each) = (changes.batch(&shape), 1 + dice.below(4) as usize);
        let pieces = (0..whole.num_rows().max(1)).step_by(rows_each);
        let pieces: Vec<RecordBatch> =
            pieces.map(|first| whole.slice(first, rows_each.min(whole.num_rows() - first))).collect();
        let frame = session.context().read_batches(pieces).expect("changes");
        let staged = Staged::write(frame).await.expect("staged");
        let upsert = Upsert { keys: shape.keys.clone(), sequence: shape.sequence.clone() };
        let probed = upsert.probe(&tight, &ours, &staged).await.expect("probed").with_mode(shape.mode);
        assert_eq!(probed.figures, figures, "batch {batch} of {shape:?}");
        let txns = vec![Txn::new("test", batch as i64)];
        let run = RunId::new(lake.clock());
        upsert.apply(&tight, &mut ours, &probed, txns, &run, "silver_committed").await.expect("applied");

        let expected = fold.texts(&shape);
        let provider = session.provider(&ours).await.expect("a scan");
        let held = session.context().read_table(provider).expect("a table");
        assert_eq!(sorted(&shape, held).await, expected, "batch {batch} of {shape:?}");
        let delta = open(&ours, folder.path()).await;
        assert_eq!(rows(&shape, &delta).await, expected, "read by the library, batch {batch} of {shape:?}");
        assert_eq!(ours.row_count().expect("counts"), Some(expected.len() as u64), "rows that the log counts");
        if shape.has_feed {
            let held = plain(feed_of(&shape, &delta).await, shape.has_vectors);
            assert_eq!(held, plain(feed.clone(), shape.has_vectors), "feed of batch {batch} of {shape:?}");
            let other = plain(feed_by_another(&shape, &delta).await, shape.has_vectors);
            assert_eq!(other, held, "feed by another reader, batch {batch} of {shape:?}");
        }
        if shape.has_feed && dice.chance(30) {
            restored(folder.path(), &ours, &shape, &mut dice).await;
        }
        if dice.chance(30) {
            optimize(&lake, &mut ours, &shape, &mut dice).await;
            let held = session.context().read_table(session.provider(&ours).await.expect("a scan")).expect("a table");
            assert_eq!(sorted(&shape, held).await, expected, "put together after batch {batch} of {shape:?}");
            let delta = open(&ours, folder.path()).await;
            assert_eq!(rows(&shape, &delta).await, expected, "read by the library, put together, of {shape:?}");
        }
        if shape.has_float_keys() {
            continue; // MERGE leaves out files by bounds that NaN is not in.
        }
        merged = merge(&shape, merged, &changes).await;
        assert_eq!(rows(&shape, &merged).await, expected, "merged, batch {batch} of {shape:?}");
        if shape.has_feed && !feed.is_empty() {
            let held = plain(feed_of(&shape, &merged).await, false);
            assert_eq!(held, plain(feed, false), "feed of a merge, batch {batch} of {shape:?}");
        }
    }
}

/// Puts the files of a table together, in some order of some columns or in none; a second time there is nothing to gain,
/// and the feed of it is empty.
async fn optimize(lake: &Lake, table: &mut Table, shape: &Shape, dice: &mut Dice) {
    let columns = shape.fields.iter().map(|field| &field.0).filter(|name| !shape.partition_by.contains(name));
    let columns: Vec<String> = columns.cloned().collect();
    let column = |dice: &mut Dice| columns[dice.below(columns.len() as u64) as usize].clone();
    let mut zorder_by: Vec<String> = (0..dice.below(4)).map(|_| column(dice)).collect();
    zorder_by.dedup();
    let asked = Optimize { zorder_by, full: dice.chance(20), ..Optimize::default() };
    let (before, run) = (table.version(), RunId::new(lake.clock()));
    let planned = asked.plan(table).expect("a plan");
    let done = asked.run(lake, table, &run).await.unwrap_or_else(|error| panic!("{asked:?}, {shape:?}: {error:?}"));
    assert_eq!((done.files_removed, done.rows_purged), (planned.files_removed, planned.rows_purged));
    assert_eq!(table.version(), before + u64::from(done.files_removed > 0), "one commit, or none");
    let again = Optimize { full: false, ..asked }.plan(table).expect("a plan");
    assert_eq!(again.files_removed, 0, "nothing is left to gain, {done:?}, {shape:?}");
    if shape.has_feed && done.files_removed > 0 {
        let folder = lake.root().local_path().expect("a folder").parent().expect("a folder").to_owned();
        let scan = open(table, &folder).await.scan_cdf().with_starting_version(table.version());
        let provider = DeltaCdfTableProvider::try_new(scan).expect("a feed");
        let frame = SessionContext::new().read_table(Arc::new(provider)).expect("a feed");
        assert_eq!(frame.count().await.expect("rows"), 0, "no row has changed, {shape:?}");
    }
}

/// Takes a copy of a table back to some version, or lets it become what it was then; the feed says what that changed.
async fn restored(folder: &std::path::Path, table: &Table, shape: &Shape, dice: &mut Dice) {
    let aside = tempfile::tempdir().expect("a folder");
    let lake = Lake::open("lake", folder, Clock::system(), Engine::default()).expect("a lake");
    let copied = Lake::open("lake", aside.path(), Clock::system(), Engine::default()).expect("a lake");
    lake.copy_table(table.name(), &copied, table.name()).await.expect("a copy");
    let (version, run) = (dice.below(table.version()), RunId::new(lake.clock()));
    let mut way = Way::open(&copied, table.name(), version).await.expect("a version");
    let before = rows(shape, &open(&way.now, aside.path()).await).await;
    if dice.chance(50) {
        way.restore(&Along::default(), &run).await.expect("restored");
    } else {
        let then = copy_as(&copied, &way.then, &TableName::silver("then")).await.expect("a copy");
        take_over(&copied, &mut way.now, &then, &[], &Along::default(), &run).await.expect("swapped");
    }
    let delta = open(&way.now, aside.path()).await;
    let mut after = rows(shape, &delta).await;
    for feed in [feed_of(shape, &delta).await, feed_by_another(shape, &delta).await] {
        let mut held = before.clone();
        for (change, row) in &feed {
            match change.as_str() {
                "insert" => held.push(row.clone()),
                "delete" => {
                    let place = held.iter().position(|held| held == row);
                    held.swap_remove(place.unwrap_or_else(|| panic!("{row} went, and was not there, {shape:?}")));
                }
                other => panic!("a change of type {other}"),
            }
        }
        held.sort();
        after.sort();
        assert_eq!(held, after, "to version {version} of {shape:?}");
    }
}

async fn create(lake: &Lake, name: &str, shape: &Shape) -> Table {
    let on = |key: &str| (key.to_owned(), "true".to_owned());
    let mut properties = Vec::new();
    properties.extend(shape.has_feed.then(|| on("delta.enableChangeDataFeed")));
    properties.extend(shape.has_vectors.then(|| on("delta.enableDeletionVectors")));
    let partition_by = shape.partition_by.clone();
    let definition = Definition { partition_by, properties, ..Definition::new(shape.schema()) };
    let definition = definition.with_stats_columns(&shape.columns_with_stats());
    lake.create_or_open(&TableName::silver(name), &definition).await.expect("a table")
}

/// The table as the library alone sees it.
async fn open(table: &Table, folder: &std::path::Path) -> DeltaTable {
    let path = folder.join("lake").join(table.name().folder());
    let url = deltalake::ensure_table_uri(path.to_str().expect("UTF-8")).expect("a URL");
    deltalake::open_table(url).await.expect("a table")
}

async fn rows(shape: &Shape, delta: &DeltaTable) -> Vec<String> {
    let context: SessionContext = deltalake::delta_datafusion::create_session().into();
    delta.update_datafusion_session(&context.state()).expect("a session");
    let provider = delta.table_provider().await.expect("a scan");
    sorted(shape, context.read_table(provider).expect("a table")).await
}

/// The rows of a table as text, sorted.
async fn sorted(shape: &Shape, frame: DataFrame) -> Vec<String> {
    let mut texts: Vec<String> = batches(shape, frame, &[]).await.iter().flat_map(texts).collect();
    texts.sort();
    texts
}

/// Rows with the columns of the shape in its types.
async fn batches(shape: &Shape, frame: DataFrame, more: &[&str]) -> Vec<RecordBatch> {
    let names = shape.fields.iter().map(|field| field.0.as_str()).chain(more.iter().copied());
    let columns: Vec<Expr> = names.map(datafusion::logical_expr::ident).collect();
    let batches = frame.select(columns).expect("columns").collect().await.expect("rows");
    let schema = shape.schema();
    let plain = |batch: &RecordBatch| {
        let kinds = schema.fields().iter().map(|field| field.data_type().clone());
        let kinds = kinds.chain(more.iter().map(|_| arrow::datatypes::DataType::Utf8));
        let columns = batch
            .columns()
            .iter()
            .zip(kinds)
            .map(|(column, kind)| arrow::compute::cast(column, &kind).expect("a type"));
        let fields = batch
            .schema()
            .fields()
            .iter()
            .zip(columns.clone())
            .map(|(field, column)| arrow::datatypes::Field::new(field.name(), column.data_type().clone(), true))
            .collect::<Vec<_>>();
        RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns.collect()).expect("rows")
    };
    batches.iter().map(plain).collect()
}

/// What the library reads as the feed of the newest version.
async fn feed_of(shape: &Shape, delta: &DeltaTable) -> Feed {
    let version = delta.version().expect("a version");
    let scan = delta.clone().scan_cdf().with_starting_version(version).with_ending_version(version);
    let context: SessionContext = deltalake::delta_datafusion::create_session().into();
    let provider = DeltaCdfTableProvider::try_new(scan).expect("a feed");
    let frame = context.read_table(Arc::new(provider)).expect("a feed");
    rows_of_feed(shape, frame).await
}

async fn rows_of_feed(shape: &Shape, frame: DataFrame) -> Feed {
    let mut feed = Vec::new();
    for batch in batches(shape, frame, &["_change_type"]).await {
        let rows = batch.project(&(0..shape.fields.len()).collect::<Vec<_>>()).expect("columns");
        let types = texts(&batch.project(&[shape.fields.len()]).expect("a column"));
        feed.extend(types.into_iter().zip(texts(&rows)));
    }
    feed
}

/// The same as another reader has it.
async fn feed_by_another(shape: &Shape, delta: &DeltaTable) -> Feed {
    let (url, version) = (delta.table_url().clone(), delta.version().expect("a version"));
    let engine = delta.log_store().engine(None);
    let read = tokio::task::spawn_blocking(move || {
        let changes = TableChanges::try_new(url, engine.as_ref(), version, Some(version)).expect("a feed");
        let scan = changes.into_scan_builder().build().expect("a feed");
        let batches = scan.execute(engine).expect("a feed");
        batches.map(|batch| batch.and_then(|batch| batch.try_into_record_batch()).expect("rows")).collect::<Vec<_>>()
    });
    let mut feed = Vec::new();
    for batch in read.await.expect("a feed") {
        let context = SessionContext::new();
        let frame = context.read_batch(batch).expect("rows");
        feed.extend(rows_of_feed(shape, frame).await);
    }
    feed
}

/// A feed to be compared: with vectors an update reads as a delete and an insert.
fn plain(mut feed: Feed, has_vectors: bool) -> Feed {
    for (change_type, _) in feed.iter_mut().filter(|_| has_vectors) {
        *change_type = match change_type.as_str() {
            "update_preimage" => "delete".to_owned(),
            "update_postimage" => "insert".to_owned(),
            _ => continue,
        };
    }
    feed.sort();
    feed
}

/// The same changes by the library's MERGE.
async fn merge(shape: &Shape, delta: DeltaTable, changes: &Changes) -> DeltaTable {
    let context: SessionContext = deltalake::delta_datafusion::create_session().into();
    let source = context.read_batch(changes.batch(shape)).expect("changes");
    let of = |table: &'static str, name: &str| Expr::Column(Column::new(Some(TableReference::bare(table)), name));
    let schema = shape.schema();
    let same = shape.keys.iter().map(|key| same_key(&schema, key, of("target", key), of("source", key)));
    let same = same.reduce(Expr::and).expect("keys");
    let order = shape.sequence.iter().map(String::as_str).chain([columns::BATCH_ID]);
    let stale = older(&order.map(|name| (of("source", name), of("target", name))).collect::<Vec<_>>());
    let delete = of("source", DELETE);
    let newer = stale.is_not_true();
    let names: Vec<&str> = shape.fields.iter().map(|field| field.0.as_str()).collect();
    let merge = delta.merge(source, same).with_source_alias("source").with_target_alias("target");
    let merge = merge.with_session_state(Arc::new(context.state()));
    let merge =
        merge.when_matched_delete(|clause| clause.predicate(delete.clone().and(newer.clone()))).expect("a clause");
    let merge = merge.when_matched_update(|clause| {
        let clause = clause.predicate(newer.clone());
        names.iter().fold(clause, |clause, name| clause.update(Column::from_name(*name), of("source", name)))
    });
    let merge = merge.expect("a clause").when_not_matched_insert(|clause| {
        let clause = clause.predicate(delete.is_not_true());
        names.iter().fold(clause, |clause, name| clause.set(Column::from_name(*name), of("source", name)))
    });
    merge.expect("a clause").await.expect("merged").0
}
