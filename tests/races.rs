//! An upsert and another writer that began on the same version: the right rows, or an error and the right rows on the
//! next try. In both orders, with files written anew and with rows marked as deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use deltalake::DeltaTable;
use lake::commit::Txn;
use lake::session::Engine;
use lake::stage::Staged;
use lake::table::Definition;
use lake::upsert::{DELETE, Probed, Upsert, WriteMode};
use lake::{Clock, ErrorKind, Lake, RunId, Table, TableName};

use crate::support::parallel;

/// Rows by key: their sequence, which tells the upsert that wrote them.
type Rows = BTreeMap<i64, i64>;
/// Keys with their new sequence, `None` for a delete.
type Changes = &'static [(i64, Option<i64>)];

/// What the table holds before: two rows in each of three files.
const BEFORE: [Changes; 3] =
    [&[(1, Some(1)), (2, Some(1))], &[(3, Some(2)), (4, Some(2))], &[(5, Some(3)), (6, Some(3))]];
/// The upsert: it touches two of the files.
const OURS: Changes = &[(1, Some(10)), (3, None), (9, Some(10))];

#[derive(Debug, Clone, Copy)]
enum Other {
    /// Rows of a file that ours does not touch.
    UpsertElsewhere,
    UpsertTheSame,
    /// A key that ours would insert.
    UpsertTheNew,
    /// Another program's rows, without a transaction.
    Append,
    Optimize,
    /// The library's delete of one of our rows.
    DeleteOurs,
    DeleteElsewhere,
    DeleteAll,
    Restore,
    Vacuum,
    /// A delete of a key that is not there: no file tells of it, but tombstones beside the table do.
    DeleteNothing,
}

const OTHERS: [Other; 11] = [
    Other::UpsertElsewhere,
    Other::UpsertTheSame,
    Other::UpsertTheNew,
    Other::Append,
    Other::Optimize,
    Other::DeleteOurs,
    Other::DeleteElsewhere,
    Other::DeleteAll,
    Other::Restore,
    Other::Vacuum,
    Other::DeleteNothing,
];

impl Other {
    /// What it does to rows.
    fn fold(self, rows: &mut Rows) {
        match self {
            Self::UpsertElsewhere => fold(rows, &[(5, Some(9)), (6, None)]),
            Self::UpsertTheSame => fold(rows, &[(1, Some(9)), (3, Some(9))]),
            Self::UpsertTheNew => fold(rows, &[(9, Some(9))]),
            Self::Append => fold(rows, &[(7, Some(9))]),
            Self::DeleteOurs => drop(rows.remove(&1)),
            Self::DeleteElsewhere => drop(rows.remove(&6)),
            Self::DeleteAll => rows.clear(),
            Self::Restore => {
                rows.clear();
                BEFORE[..2].iter().for_each(|changes| fold(rows, changes));
            }
            Self::Optimize | Self::Vacuum | Self::DeleteNothing => {}
        }
    }

    /// Runs it against the version that `delta` and `table` have open.
    async fn run(self, lake: &Lake, table: Table, delta: DeltaTable) -> Result<(), String> {
        let told = |error: deltalake::DeltaTableError| error.to_string();
        let delete = |predicate: &'static str| delta.clone().delete().with_predicate(predicate);
        match self {
            Self::UpsertElsewhere => once(lake, table, &[(5, Some(9)), (6, None)]).await,
            Self::UpsertTheSame => once(lake, table, &[(1, Some(9)), (3, Some(9))]).await,
            Self::UpsertTheNew => once(lake, table, &[(9, Some(9))]).await,
            Self::DeleteNothing => once(lake, table, &[(99, None)]).await,
            Self::Append => delta.write([row(7, 9)]).await.map(drop).map_err(told),
            Self::Optimize => delta.optimize().await.map(drop).map_err(told),
            Self::DeleteOurs => delete("id = 1").await.map(drop).map_err(told),
            Self::DeleteElsewhere => delete("id = 6").await.map(drop).map_err(told),
            Self::DeleteAll => delta.delete().await.map(drop).map_err(told),
            Self::Restore => delta.restore().with_version_to_restore(2).await.map(drop).map_err(told),
            Self::Vacuum => {
                let vacuum = delta.vacuum().with_retention_period(chrono::Duration::zero());
                vacuum.with_enforce_retention_duration(false).await.map(drop).map_err(told)
            }
        }
    }
}

#[test]
fn an_upsert_and_another_writer_of_one_version() {
    let mut all = Vec::new();
    for other in OTHERS {
        for mode in [WriteMode::CopyOnWrite, WriteMode::MergeOnRead] {
            all.extend([(other, mode, true), (other, mode, false)]);
        }
    }
    let name = |race: &(Other, WriteMode, bool)| format!("{race:?}");
    parallel::all("races", &all, name, |(other, mode, ours_is_second)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(race(*other, *mode, *ours_is_second));
    });
}

async fn race(other: Other, mode: WriteMode, ours_is_second: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let lake = Lake::open("lake", folder.path(), Clock::system(), Engine::default()).expect("a lake");
    let mut table = create(&lake).await;
    for changes in BEFORE {
        upsert(&lake, &mut table, changes, WriteMode::Auto).await;
    }
    let mut rows = Rows::new();
    BEFORE.iter().for_each(|changes| fold(&mut rows, changes));
    let delta = open(&table, folder.path()).await;
    let mut ours = table.clone();
    let probed = probe(&lake, &ours, OURS).await.with_mode(mode);
    if ours_is_second {
        other.run(&lake, table, delta).await.expect("the first of two");
        other.fold(&mut rows);
        fold(&mut rows, OURS);
        match apply(&lake, &mut ours, &probed).await {
            Ok(()) => assert!(!matches!(other, Other::DeleteNothing), "what was remembered must be looked at again"),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                assert!(!matches!(other, Other::Append | Other::Vacuum), "nothing of ours has moved: {error}");
                upsert(&lake, &mut ours, OURS, mode).await;
            }
            Err(error) => panic!("{error}: {:?}", error.causes()),
        }
    } else {
        apply(&lake, &mut ours, &probed).await.expect("the first of two");
        fold(&mut rows, OURS);
        if other.run(&lake, table.clone(), delta).await.is_ok() {
            other.fold(&mut rows);
        }
    }
    assert_eq!(read(&lake).await, rows.into_iter().collect::<Vec<_>>());
}

fn fold(rows: &mut Rows, changes: &[(i64, Option<i64>)]) {
    for (key, sequence) in changes {
        match sequence {
            Some(sequence) => {
                let held = rows.entry(*key).or_insert(*sequence);
                *held = (*held).max(*sequence);
            }
            None => drop(rows.remove(key)),
        }
    }
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(["id", "_sequence_1"].map(|name| Field::new(name, DataType::Int64, false)).to_vec()))
}

fn row(id: i64, sequence: i64) -> RecordBatch {
    let columns = [id, sequence].map(|value| Arc::new(Int64Array::from(vec![value])) as _);
    RecordBatch::try_new(schema(), columns.to_vec()).expect("a row")
}

async fn create(lake: &Lake) -> Table {
    let properties = vec![("delta.enableDeletionVectors".to_owned(), "true".to_owned())];
    let definition = Definition { properties, ..Definition::new(schema()) };
    lake.create_or_open(&TableName::silver("t"), &definition).await.expect("a table")
}

async fn open(table: &Table, folder: &std::path::Path) -> DeltaTable {
    let path = folder.join("lake").join(table.name().folder());
    deltalake::open_table(deltalake::ensure_table_uri(path.to_str().expect("UTF-8")).expect("a URL"))
        .await
        .expect("a table")
}

async fn probe(lake: &Lake, table: &Table, changes: &[(i64, Option<i64>)]) -> Probed {
    let ids = Int64Array::from_iter_values(changes.iter().map(|change| change.0));
    let sequence = Int64Array::from_iter_values(changes.iter().map(|change| change.1.unwrap_or(i64::MAX)));
    let deletes: BooleanArray = changes.iter().map(|change| Some(change.1.is_none())).collect();
    let fields = schema().fields().iter().map(|field| field.as_ref().clone()).collect::<Vec<_>>();
    let fields = fields.into_iter().chain([Field::new(DELETE, DataType::Boolean, false)]).collect::<Vec<_>>();
    let columns = vec![Arc::new(ids) as _, Arc::new(sequence) as _, Arc::new(deletes) as _];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("changes");
    let session = lake.session().expect("a session");
    let staged = Staged::write(session.context().read_batch(batch).expect("changes")).await.expect("staged");
    by_id().probe(lake, table, &staged).await.expect("probed")
}

fn by_id() -> Upsert {
    Upsert { keys: vec!["id".to_owned()], sequence: vec!["_sequence_1".to_owned()] }
}

async fn apply(lake: &Lake, table: &mut Table, probed: &Probed) -> lake::Result<()> {
    let run = RunId::new(lake.clock());
    let txns = vec![Txn::new(run.as_str(), 1)];
    by_id().apply(lake, table, probed, txns, &run, "silver_committed").await.map(drop)
}

async fn upsert(lake: &Lake, table: &mut Table, changes: &[(i64, Option<i64>)], mode: WriteMode) {
    let probed = probe(lake, table, changes).await.with_mode(mode);
    apply(lake, table, &probed).await.expect("applied");
}

/// One try from the version that is open.
async fn once(lake: &Lake, mut table: Table, changes: &[(i64, Option<i64>)]) -> Result<(), String> {
    let probed = probe(lake, &table, changes).await.with_mode(WriteMode::CopyOnWrite);
    apply(lake, &mut table, &probed).await.map_err(|error| error.to_string())
}

async fn read(lake: &Lake) -> Vec<(i64, i64)> {
    let table = lake.existing(&TableName::silver("t")).await.expect("a table");
    let session = lake.session().expect("a session");
    let frame = session.context().read_table(session.provider(&table).await.expect("a scan")).expect("a table");
    let mut rows = Vec::new();
    for batch in frame.collect().await.expect("rows") {
        let column = |name: &str| {
            let column = batch.column_by_name(name).expect("a column");
            column.as_any().downcast_ref::<Int64Array>().expect("numbers").values().to_vec()
        };
        rows.extend(column("id").into_iter().zip(column("_sequence_1")));
    }
    rows.sort_unstable();
    rows
}
