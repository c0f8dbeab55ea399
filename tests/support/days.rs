//! A table over days, by a manual clock, and snapshots of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::NaiveDate;
use chrono_tz::Tz;
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use gold::Plan;
use lake::commit::{Commit, Txn, redefine};
use lake::report::{TaskReport, TaskState};
use lake::restore::Way;
use lake::run::RunContext;
use lake::session::Engine;
use lake::spec::Document;
use lake::table::Definition;
use lake::write::TableWriter;
use lake::{Clock, Lake, Layer, TableName};

/// The days end at four in the morning, UTC.
pub(crate) const ZONE: Tz = Tz::America__New_York;
/// Ids and names.
pub(crate) type State = BTreeMap<i64, Option<&'static str>>;

/// A table `silver.products` and snapshots of it.
pub(crate) struct Days {
    pub(crate) lake: Lake,
    pub(crate) plans: Vec<Plan>,
    /// The table: `silver.products`, whose key is `id`, or another one.
    pub(crate) source: TableName,
    /// True while the table has a second value, `note`.
    pub(crate) has_note: bool,
    /// How its columns are spelled.
    pub(crate) spelled: [&'static str; 2],
    writes: i64,
    folder: tempfile::TempDir,
}

/// The plans of a spec.
fn plans(spec: &str) -> Vec<Plan> {
    let document = Document::parse("pipelines.yaml", spec);
    let mut problems = document.problems();
    let keys = |table: &TableName| {
        (*table == TableName::silver("products")).then(|| gold::Keys { entity: vec!["id".to_owned()], is_row: true })
    };
    let entries = document.section("gold", &mut problems);
    let plans = entries.iter().filter_map(|entry| gold::compile(entry, &keys, &mut problems)).collect();
    assert!(problems.is_empty(), "{problems}");
    plans
}

impl Days {
    pub(crate) fn new(spec: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::manual("2024-05-02T02:00:00Z".parse().expect("a time"));
        let lake = Lake::open(&folder.path().display().to_string(), Path::new("."), clock, Engine::default());
        let (source, spelled) = (TableName::silver("products"), ["id", "name"]);
        Self { lake: lake.expect("a lake"), plans: plans(spec), source, has_note: false, spelled, writes: 0, folder }
    }

    /// The same tables by another spec.
    pub(crate) fn respec(&mut self, spec: &str) {
        self.plans = plans(spec);
    }

    /// Makes the table hold exactly these rows.
    pub(crate) async fn set(&mut self, state: &State) {
        let rows: Vec<_> = state.iter().map(|(id, name)| (*id, *name)).collect();
        self.write(&rows, true).await;
    }

    /// Adds rows to the table, in a file of their own.
    pub(crate) async fn append(&mut self, rows: &[(i64, Option<&'static str>)]) {
        self.write(rows, false).await;
    }

    async fn write(&mut self, rows: &[(i64, Option<&'static str>)], replace: bool) {
        let [id, name] = self.spelled;
        let mut fields = vec![Field::new(id, DataType::Int64, false), Field::new(name, DataType::Utf8, true)];
        self.writes += 1;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|(id, _)| *id).collect::<Int64Array>()),
            Arc::new(rows.iter().map(|(_, name)| *name).collect::<StringArray>()),
        ];
        if self.source.layer == Layer::Silver {
            fields.push(Field::new("_batch_id", DataType::Int64, false));
            columns.push(Arc::new(Int64Array::from(vec![self.writes; rows.len()])));
        }
        if self.has_note {
            let note = |(_, name): &(i64, Option<&str>)| name.map(|name| format!("of {name}"));
            fields.push(Field::new("note", DataType::Utf8, true));
            columns.push(Arc::new(rows.iter().map(note).collect::<StringArray>()));
        }
        let definition = Definition::new(Arc::new(Schema::new(fields)));
        let mut table = self.lake.create_or_open(&self.source, &definition).await.expect("a table");
        let redefined = redefine(&table, &definition).expect("columns");
        let schema = Arc::clone(&definition.schema);
        let mut writer = TableWriter::redefined(&table, &definition);
        writer.write(&RecordBatch::try_new(schema, columns).expect("rows")).await.expect("a file");
        let added = writer.close().await.expect("files").files.into_iter().map(Action::Add);
        let commit = Commit {
            point: "silver_committed",
            txns: vec![Txn::new("test", self.writes)],
            operation: DeltaOperation::Write { mode: SaveMode::Overwrite, partition_by: None, predicate: None },
            actions: redefined.into_iter().chain(table.removes(|_| replace).expect("files")).chain(added).collect(),
            blind_append: false,
            metrics: BTreeMap::new(),
            run: RunContext::new(&self.lake).run,
        };
        table.commit(commit).await.expect("a commit");
    }

    /// Runs every snapshot; which of them changed.
    pub(crate) async fn run(&self) -> Vec<bool> {
        let context = RunContext::new(&self.lake);
        let mut changed = Vec::new();
        for plan in &self.plans {
            let report = gold::run(&self.lake, plan, &context, ZONE).await.expect("a snapshot");
            changed.push(report.state == TaskState::Changed);
        }
        changed
    }

    /// Runs every snapshot; why the first fails that does.
    pub(crate) async fn fails(&self) -> Option<String> {
        let context = RunContext::new(&self.lake);
        for plan in &self.plans {
            if let Err(error) = gold::run(&self.lake, plan, &context, ZONE).await {
                let causes = error.causes().join(": ");
                return Some(format!("{error}: {causes}; {}", error.hint_text().unwrap_or_default()));
            }
        }
        None
    }

    /// Runs every snapshot while the rows of `day` cannot be read; false when one of them fails for it.
    pub(crate) async fn runs_without(&self, table: &str, day: &str) -> bool {
        self.fails_without(&[format!("gold/{table}/snapshot_date={day}")]).await.is_none()
    }

    /// Runs every snapshot while files or folders are not there; why the first fails that does.
    pub(crate) async fn fails_without(&self, paths: &[String]) -> Option<String> {
        let away = self.folder.path().join("_away");
        std::fs::create_dir(&away).expect("a folder");
        let places: Vec<_> = paths
            .iter()
            .enumerate()
            .map(|(n, path)| (self.folder.path().join(path), away.join(n.to_string())))
            .collect();
        for (here, there) in &places {
            std::fs::rename(here, there).expect("a file or folder");
        }
        let fails = self.fails().await;
        for (here, there) in &places {
            std::fs::rename(there, here).expect("what comes back");
        }
        std::fs::remove_dir(&away).expect("an empty folder");
        fails
    }

    /// The data files of the source.
    pub(crate) async fn files(&self) -> Vec<String> {
        let table = self.lake.existing(&self.source).await.expect("a table");
        let paths = table.file_paths().expect("files").into_iter();
        paths.map(|path| format!("{}/{path}", self.source.folder())).collect()
    }

    /// Rows that the newest version of a snapshot wrote, and all that it has.
    pub(crate) async fn rows_written(&self, table: &str) -> (u64, u64) {
        let held = self.lake.existing(&TableName::gold(table)).await.expect("a table");
        let log = self.folder.path().join("gold").join(table).join("_delta_log");
        let commit = std::fs::read_to_string(log.join(format!("{:020}.json", held.version()))).expect("a commit");
        let rows = commit.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an action"));
        let stats = rows.filter_map(|action| action["add"]["stats"].as_str().map(str::to_owned));
        let stats = stats.map(|stats| serde_json::from_str::<serde_json::Value>(&stats).expect("statistics"));
        let written = stats.map(|stats| stats["numRecords"].as_u64().expect("rows")).sum();
        (written, held.row_count().expect("files").expect("rows"))
    }

    /// Takes rows of a snapshot away by hand.
    pub(crate) async fn delete(&self, table: &str, condition: &str) {
        let mut table = self.lake.existing(&TableName::gold(table)).await.expect("a table");
        let doomed = lake::upsert::remove::doomed(&self.lake, &table, condition).await.expect("rows");
        assert!(doomed.rows() > 0, "`{condition}` holds for no row");
        doomed.remove(&self.lake, &mut table, &[], &RunContext::new(&self.lake).run).await.expect("a commit");
    }

    /// Takes a snapshot back to a version, by hand.
    pub(crate) async fn restore(&self, table: &str, version: u64) {
        let mut way = Way::open(&self.lake, &TableName::gold(table), version).await.expect("a version");
        let along = gold::restore::along(&way, &way.moved().await.expect("transactions"));
        way.restore(&along, &RunContext::new(&self.lake).run).await.expect("a commit");
    }

    pub(crate) async fn next_day(&self) {
        self.lake.clock().sleep(Duration::from_secs(24 * 3600)).await;
    }

    /// The state that a query gives: id and values.
    pub(crate) async fn state(&self, query: &str) -> BTreeMap<i64, Option<String>> {
        let session = self.lake.session().expect("a session");
        for plan in &self.plans {
            let table = self.lake.existing(plan.table()).await.expect("a table");
            session.register(&table).await.expect("a scan");
        }
        state_of(&session.sql(query).await.expect("a query").collect().await.expect("rows"))
    }

    pub(crate) async fn copy_of(&self, day: &str) -> BTreeMap<i64, Option<String>> {
        self.state(&format!("SELECT id, name FROM gold.copies WHERE snapshot_date = DATE '{day}'")).await
    }

    /// The state of a day by a query over the changes, which must be what `as_of` says.
    pub(crate) async fn as_of(&self, table: &str, day: &str) -> BTreeMap<i64, Option<String>> {
        let latest = format!(
            "SELECT *, row_number() OVER (PARTITION BY id ORDER BY snapshot_date DESC) AS age FROM gold.{table} \
             WHERE snapshot_date <= DATE '{day}'"
        );
        let held = self.lake.existing(&TableName::gold(table)).await.expect("a table");
        let columns = if held.schema().field_with_name("note").is_ok() { "id, name, note" } else { "id, name" };
        let state =
            self.state(&format!("SELECT {columns} FROM ({latest}) WHERE age = 1 AND _change <> 'delete'")).await;
        assert_eq!(self.told(table, day).await.expect("a day"), state, "{table} on {day}");
        state
    }

    /// The state of a day as the program tells it, or why it does not.
    pub(crate) async fn told(&self, table: &str, day: &str) -> Result<BTreeMap<i64, Option<String>>, String> {
        let table = self.lake.existing(&TableName::gold(table)).await.expect("a table");
        let session = self.lake.session().expect("a session");
        let day: NaiveDate = day.parse().expect("a day");
        let told = gold::as_of(&session, &table, day).await;
        let told = told.map_err(|error| format!("{error}; {}", error.hint_text().unwrap_or_default()))?;
        let names: Vec<&str> = told.rows.schema().fields().iter().map(|field| field.name().as_str()).collect();
        assert!(matches!(names[..], ["id", "name"] | ["id", "name", "note"]), "the columns of the source: {names:?}");
        Ok(state_of(&told.rows.collect().await.expect("rows")))
    }

    /// Records days of all snapshots late, which are told when something changed; the error of the first that cannot be.
    pub(crate) async fn backfill(&self, first: &str, last: &str) -> Result<Vec<(TableName, NaiveDate)>, String> {
        let (first, last): (NaiveDate, NaiveDate) = (first.parse().expect("a day"), last.parse().expect("a day"));
        let context = RunContext::new(&self.lake);
        let mut changed = Vec::new();
        for plan in &self.plans {
            let Plan::Snapshot(plan) = plan else { panic!("no snapshot") };
            let note = |day, report: &TaskReport| {
                if report.state == TaskState::Changed {
                    changed.push((plan.table.clone(), day));
                }
            };
            let done = gold::backfill(&self.lake, plan, &context, ZONE, first..=last, note).await;
            done.map_err(|error| {
                let causes = error.causes().join(": ");
                format!("{error}: {causes}; {}", error.hint_text().unwrap_or_default())
            })?;
        }
        Ok(changed)
    }

    /// All rows of a snapshot, as text: the values that are not null by name, whatever columns the table has.
    pub(crate) async fn rows(&self, table: &str) -> Vec<String> {
        let table = self.lake.existing(&TableName::gold(table)).await.expect("a table");
        let session = self.lake.session().expect("a session");
        session.register(&table).await.expect("a scan");
        let query = format!("SELECT * FROM {} ORDER BY snapshot_date, id", table.name());
        let rows = session.sql(&query).await.expect("a query").collect().await.expect("rows");
        let options = FormatOptions::default();
        let mut told = Vec::new();
        for batch in &rows {
            let schema = batch.schema();
            let columns = batch.columns().iter().zip(schema.fields());
            let columns: BTreeMap<&str, &ArrayRef> = columns.map(|(column, of)| (of.name().as_str(), column)).collect();
            told.extend((0..batch.num_rows()).map(|row| {
                let values = columns.iter().filter(|(_, column)| column.is_valid(row)).map(|(name, column)| {
                    let value = ArrayFormatter::try_new(column, &options).expect("text").value(row).to_string();
                    format!("{name}={value}")
                });
                values.collect::<Vec<_>>().join(" ")
            }));
        }
        told
    }

    pub(crate) async fn recorded(&self, day: &str) -> BTreeMap<i64, Option<String>> {
        self.state(&format!("SELECT id, _change FROM gold.changes WHERE snapshot_date = DATE '{day}'")).await
    }
}

/// Ids and values, those after the first in brackets.
fn state_of(batches: &[RecordBatch]) -> BTreeMap<i64, Option<String>> {
    let mut state = BTreeMap::new();
    for batch in batches {
        let (first, others) = (batch.column(1).as_string::<i32>(), &batch.columns()[2..]);
        for (row, id) in batch.column(0).as_primitive::<Int64Type>().values().iter().enumerate() {
            let mut value = first.is_valid(row).then(|| first.value(row).to_owned());
            for other in others.iter().map(|column| column.as_string::<i32>()).filter(|other| other.is_valid(row)) {
                value = Some(format!("{} ({})", value.unwrap_or_default(), other.value(row)));
            }
            assert_eq!(state.insert(*id, value), None, "key {id} is there twice");
        }
    }
    state
}

pub(crate) fn owned(state: &State) -> BTreeMap<i64, Option<String>> {
    state.iter().map(|(id, name)| (*id, name.map(str::to_owned))).collect()
}
