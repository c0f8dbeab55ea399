//! Files put together in several commits, while another writer has come between: what it wrote stays, and no row comes
//! twice.

use std::sync::Arc;

use arrow::array::{BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use lake::commit::Txn;
use lake::optimize::Optimize;
use lake::session::Engine;
use lake::stage::Staged;
use lake::table::Definition;
use lake::upsert::{DELETE, Upsert, WriteMode};
use lake::{Clock, Lake, RunId, Table, TableName};

/// The columns: a key, the partition that it is in, a value.
const COLUMNS: [&str; 3] = ["id", "part", "value"];
const PARTS: i64 = 4;

async fn upsert(lake: &Lake, table: &mut Table, rows: &[[i64; 3]], mode: WriteMode) {
    let fields = COLUMNS.map(|name| Field::new(name, DataType::Int64, false));
    let fields = fields.into_iter().chain([Field::new(DELETE, DataType::Boolean, false)]);
    let columns = (0..3).map(|place| Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row[place]))) as _);
    let columns = columns.chain([Arc::new(BooleanArray::from(vec![false; rows.len()])) as _]);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns.collect());
    let session = lake.session().expect("a session");
    let staged = session.context().read_batch(batch.expect("changes")).expect("changes");
    let staged = Staged::write(staged).await.expect("staged");
    let upsert = Upsert { keys: vec!["part".to_owned(), "id".to_owned()], sequence: Vec::new() };
    let probed = upsert.probe(lake, table, &staged).await.expect("probed").with_mode(mode);
    let run = RunId::new(lake.clock());
    let txns = vec![Txn::new(run.as_str(), 1)];
    upsert.apply(lake, table, &probed, txns, &run, "silver_committed").await.expect("applied");
}

async fn rows(lake: &Lake, table: &Table) -> Vec<[i64; 3]> {
    let session = lake.session().expect("a session");
    session.register(table).await.expect("a scan");
    let query = format!("SELECT id, part, value FROM {} ORDER BY part, id", table.name());
    let batches = session.sql(&query).await.expect("a query").collect().await.expect("rows");
    let mut rows = Vec::new();
    for batch in &batches {
        let column = |place: usize| {
            let column = arrow::compute::cast(batch.column(place), &DataType::Int64).expect("numbers");
            column.as_any().downcast_ref::<Int64Array>().expect("numbers").values().to_vec()
        };
        let columns = [column(0), column(1), column(2)];
        rows.extend((0..batch.num_rows()).map(|row| [columns[0][row], columns[1][row], columns[2][row]]));
    }
    rows
}

#[tokio::test]
async fn files_that_another_has_taken_are_left_in_every_group() {
    for mode in [WriteMode::CopyOnWrite, WriteMode::MergeOnRead] {
        let folder = tempfile::tempdir().expect("a folder");
        let lake = Lake::open("lake", folder.path(), Clock::system(), Engine::default()).expect("a lake");
        let fields = COLUMNS.map(|name| Field::new(name, DataType::Int64, false));
        let definition = Definition {
            partition_by: vec!["part".to_owned()],
            properties: vec![("delta.enableDeletionVectors".to_owned(), "true".to_owned())],
            ..Definition::new(Arc::new(Schema::new(fields.to_vec())))
        };
        let mut table = lake.create_or_open(&TableName::silver("t"), &definition).await.expect("a table");
        for first in [0, 10] {
            let all: Vec<[i64; 3]> =
                (0..PARTS).flat_map(|part| (first..first + 10).map(move |id| [id, part, 1])).collect();
            upsert(&lake, &mut table, &all, mode).await;
        }
        let mut stale = table.clone();
        // Two of the partitions move on after the files were chosen, one of them the first that is committed.
        upsert(&lake, &mut table, &[[3, 0, 2], [3, 2, 2]], mode).await;
        let expected = rows(&lake, &table).await;

        let asked = Optimize { bins_per_commit: 1, ..Optimize::default() };
        let done = asked.run(&lake, &mut stale, &RunId::new(lake.clock())).await.expect("put together");
        assert_eq!((done.bins_skipped, done.files_removed), (2, 4), "{mode:?}: {done:?}");
        assert_eq!(rows(&lake, &stale).await, expected, "{mode:?}");
        let again = asked.run(&lake, &mut stale, &RunId::new(lake.clock())).await.expect("put together");
        assert_eq!(again.bins_skipped, 0);
        assert_eq!(rows(&lake, &stale).await, expected, "{mode:?}");
    }
}
