//! A table whose rows may be marked as deleted: from when on, how far a file goes before it is written anew, and what the
//! table's own constraints say to an upsert.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use deltalake::DeltaTable;
use lake::commit::Txn;
use lake::session::Engine;
use lake::stage::Staged;
use lake::table::Definition;
use lake::upsert::{DELETE, Upsert, WriteMode};
use lake::{Clock, ErrorKind, Lake, RunId, Table, TableName};

/// A lake with one table of ids and values.
struct Place {
    folder: tempfile::TempDir,
    lake: Lake,
    table: Table,
}

impl Place {
    async fn new(properties: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let lake = Lake::open("lake", folder.path(), Clock::system(), Engine::default()).expect("a lake");
        let properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let definition = Definition { properties, ..Definition::new(schema()) };
        let table = lake.create_or_open(&TableName::silver("t"), &definition).await.expect("a table");
        Self { folder, lake, table }
    }

    /// Rows as pairs of id and value; `None` deletes.
    async fn upsert(&mut self, rows: &[(i64, Option<i64>)]) -> lake::Result<()> {
        let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
        let values: Int64Array = rows.iter().map(|row| row.1).collect();
        let deletes: BooleanArray = rows.iter().map(|row| Some(row.1.is_none())).collect();
        let fields = schema().fields().iter().map(|field| field.as_ref().clone()).collect::<Vec<_>>();
        let fields = fields.into_iter().chain([Field::new(DELETE, DataType::Boolean, false)]).collect::<Vec<_>>();
        let columns = vec![Arc::new(ids) as _, Arc::new(values) as _, Arc::new(deletes) as _];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("changes");
        let session = self.lake.session().expect("a session");
        let staged = Staged::write(session.context().read_batch(batch).expect("changes")).await.expect("staged");
        let upsert = Upsert { keys: vec!["id".to_owned()], sequence: Vec::new() };
        let mode = if self.table.allows_deletion_vectors()? { WriteMode::MergeOnRead } else { WriteMode::Auto };
        let probed = upsert.probe(&self.lake, &self.table, &staged).await?.with_mode(mode);
        let run = RunId::new(self.lake.clock());
        let txns = vec![Txn::new(run.as_str(), 1)];
        upsert.apply(&self.lake, &mut self.table, &probed, txns, &run, "silver_committed").await.map(drop)
    }

    async fn delta(&self) -> DeltaTable {
        let path = self.folder.path().join("lake/silver/t");
        open(&path).await
    }

    /// Of each data file, its rows and how many of them are marked as deleted.
    async fn files(&self) -> Vec<(usize, i64)> {
        let delta = self.delta().await;
        let files = delta.snapshot().expect("a snapshot").log_data();
        let marked = |file: &deltalake::kernel::LogicalFileView| {
            file.deletion_vector_descriptor().map_or(0, |vector| vector.cardinality)
        };
        let mut files: Vec<_> =
            files.iter().map(|file| (file.num_records().expect("a count"), marked(&file))).collect();
        files.sort_unstable();
        files
    }
}

async fn open(path: &Path) -> DeltaTable {
    deltalake::open_table(deltalake::ensure_table_uri(path.to_str().expect("UTF-8")).expect("a URL"))
        .await
        .expect("a table")
}

fn schema() -> Arc<Schema> {
    let fields = [Field::new("id", DataType::Int64, false), Field::new("value", DataType::Int64, true)];
    Arc::new(Schema::new(fields.to_vec()))
}

#[tokio::test]
async fn a_file_that_has_lost_more_than_a_quarter_is_written_anew_and_one_without_rows_goes() {
    let mut place = Place::new(&[("delta.enableDeletionVectors", "true")]).await;
    let rows: Vec<(i64, Option<i64>)> = (0..8).map(|id| (id, Some(id))).collect();
    place.upsert(&rows).await.expect("applied");
    place.upsert(&[(0, None), (1, Some(11))]).await.expect("applied");
    assert_eq!(place.files().await, [(1, 0), (8, 2)], "two of eight are marked");
    place.upsert(&[(2, None)]).await.expect("applied");
    assert_eq!(place.files().await, [(1, 0), (5, 0)], "a third one is too many");
    place.upsert(&[(1, None)]).await.expect("applied");
    assert_eq!(place.files().await, [(5, 0)], "no row is left");
}

#[tokio::test]
async fn vectors_are_allowed_and_forbidden_at_any_time() {
    let mut place = Place::new(&[("delta.enableChangeDataFeed", "true")]).await;
    let rows: Vec<(i64, Option<i64>)> = (0..8).map(|id| (id, Some(id))).collect();
    place.upsert(&rows).await.expect("applied");
    place.upsert(&[(0, None)]).await.expect("applied");
    assert_eq!(place.files().await, [(7, 0)], "no vectors before they are allowed");
    let run = RunId::new(place.lake.clock());
    for _ in 0..2 {
        place.table.allow_deletion_vectors(true, "test:vectors", &run).await.expect("allowed");
    }
    let version = place.table.version();
    let delta = place.delta().await;
    let features = format!("{:?}", delta.snapshot().expect("a snapshot").protocol().writer_features());
    assert!(features.contains("ChangeDataFeed") && features.contains("DeletionVectors"), "{features}");
    place.upsert(&[(1, None)]).await.expect("applied");
    assert_eq!((place.files().await, place.table.version()), (vec![(7, 1)], version + 1));
    place.table.allow_deletion_vectors(false, "test:vectors", &run).await.expect("forbidden");
    place.upsert(&[(2, None)]).await.expect("applied");
    assert_eq!(place.files().await, [(5, 0)], "the marked row went as well");
}

#[tokio::test]
async fn a_row_that_breaks_a_constraint_stops_the_upsert() {
    let mut place = Place::new(&[("delta.constraints.positive", "value > 0")]).await;
    place.upsert(&[(1, Some(1))]).await.expect("applied");
    let version = place.table.version();
    for rows in [[(1, Some(0))], [(2, Some(-1))]] {
        let error = place.upsert(&rows).await.expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains("constraint `positive`: value > 0"), "{error}");
    }
    assert_eq!(place.delta().await.version(), Some(version), "nothing was committed");
    place.upsert(&[(1, None)]).await.expect("a delete has no value to check");
}
