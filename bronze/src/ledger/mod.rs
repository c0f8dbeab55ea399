//! The file ledger of a source: which files are which batch, and what became of them.
//!
//! It is a Delta table of its own, `_state/files/<source>`, with two applications: `<source>` at version N says that
//! batches 1 to N are planned, and `<source>:notes` counts the commits that note what became of files (refused, or
//! left alone). Both are compare-and-set: a commit follows from what was read, so the loser of a race reads again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::columns::{BATCH_ID, timestamp_type};
use lake::commit::{Commit, Outcome, Txn};
use lake::table::Definition;
use lake::write::{TableWriter, discard};
use lake::{Error, ErrorKind, Lake, Result, RunId, Table, TableName};

use crate::discover::FoundFile;

mod read;

/// What the ledger says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is part of a batch.
    Planned,
    /// It could not be read, or was refused; nothing of it is in the table.
    Failed,
    /// It was gone, or had other content, when its batch was read; it is taken when it is there again.
    Gone,
    /// It came again with other content and was left alone.
    Ignored,
}

impl Status {
    const ALL: [Self; 4] = [Self::Planned, Self::Failed, Self::Gone, Self::Ignored];

    fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::Ignored => "ignored",
        }
    }
}

/// One row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The batch; none for a file that never was in one.
    pub batch: Option<i64>,
    /// The file as it was listed.
    pub file: FoundFile,
    /// What the ledger says of it.
    pub status: Status,
    /// Why, unless it is planned.
    pub reason: Option<String>,
}

/// The ledger of one source, as it was read last.
#[derive(Debug)]
pub struct Ledger {
    lake: Lake,
    name: TableName,
    table: Option<Table>,
    planned: i64,
    notes: i64,
    entries: Vec<Entry>,
    by_path: HashMap<String, Vec<usize>>,
}

impl Ledger {
    /// Reads the ledger of a source; it need not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] or [`ErrorKind::Table`] when it cannot be read.
    pub async fn open(lake: &Lake, source: &str) -> Result<Self> {
        let mut ledger = Self {
            lake: lake.clone(),
            name: TableName::files(source),
            table: None,
            planned: 0,
            notes: 0,
            entries: Vec::new(),
            by_path: HashMap::new(),
        };
        ledger.reload().await?;
        Ok(ledger)
    }

    /// Reads again what is there now, if anything was committed since.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub async fn reload(&mut self) -> Result<()> {
        let before = self.table.as_ref().map(Table::version);
        match &mut self.table {
            Some(table) => table.reload().await?,
            None => self.table = self.lake.table(&self.name).await?,
        }
        match &self.table {
            Some(table) if before != Some(table.version()) => self.read().await,
            _ => Ok(()),
        }
    }

    /// The last batch that is planned; 0 before the first.
    pub fn planned(&self) -> i64 {
        self.planned
    }

    /// How many commits have noted what became of files.
    pub fn notes(&self) -> i64 {
        self.notes
    }

    /// True for a file whose content was taken, is about to be, or is not to be.
    pub fn knows(&self, file: &FoundFile) -> bool {
        let mut same = self.entries_of(&file.path).filter(|entry| entry.file.is_same(file));
        same.any(|entry| match entry.status {
            Status::Planned => !self.is_out(entry),
            Status::Failed | Status::Ignored => true,
            Status::Gone => false,
        })
    }

    /// Why a file was refused, when it was.
    pub fn failure(&self, file: &FoundFile) -> Option<&str> {
        let mut same = self.entries_of(&file.path).filter(|entry| entry.file.is_same(file));
        same.find(|entry| entry.status == Status::Failed)?.reason.as_deref()
    }

    /// True when other content was taken, or is about to be, under the path of `file`.
    pub fn is_overwritten_by(&self, file: &FoundFile) -> bool {
        let mut others = self.entries_of(&file.path).filter(|entry| !entry.file.is_same(file));
        others.any(|entry| entry.status == Status::Planned && !self.is_out(entry))
    }

    /// The files of a batch that are not noted as failed or gone.
    pub fn batch(&self, batch: i64) -> Vec<FoundFile> {
        let planned = self.entries.iter().filter(|entry| entry.batch == Some(batch) && entry.status == Status::Planned);
        planned.filter(|entry| !self.is_out(entry)).map(|entry| entry.file.clone()).collect()
    }

    /// The files of a batch that are noted as failed or gone.
    pub fn failures(&self, batch: i64) -> impl Iterator<Item = &Entry> {
        let failed = |entry: &&Entry| matches!(entry.status, Status::Failed | Status::Gone);
        self.entries.iter().filter(move |entry| entry.batch == Some(batch)).filter(failed)
    }

    /// True for a planned file that is noted as failed or gone for its batch.
    fn is_out(&self, planned: &Entry) -> bool {
        self.entries_of(&planned.file.path).any(|entry| {
            entry.batch == planned.batch
                && matches!(entry.status, Status::Failed | Status::Gone)
                && entry.file.is_same(&planned.file)
        })
    }

    /// Plans `batch`, which must be above all that are planned. False when another run planned it first: the ledger then holds what that run did.
    ///
    /// # Errors
    /// As [`Table::commit`], except a lost race.
    pub async fn plan(&mut self, batch: i64, files: &[FoundFile], run: &RunId) -> Result<bool> {
        debug_assert!(batch > self.planned);
        let entry =
            |file: &FoundFile| Entry { batch: Some(batch), file: file.clone(), status: Status::Planned, reason: None };
        let entries = files.iter().map(entry).collect();
        self.append(entries, Txn::new(&self.name.name, batch), "ledger_committed", run).await
    }

    /// Notes what became of files. False when the ledger moved on since it was read: it then holds what another run
    /// wrote, from which the decision must be made again.
    ///
    /// # Errors
    /// As [`Table::commit`], except a lost race.
    pub async fn note(&mut self, entries: Vec<Entry>, run: &RunId) -> Result<bool> {
        let txn = Txn::new(notes_app(&self.name.name), self.notes + 1);
        self.append(entries, txn, "files_failed_committed", run).await
    }

    async fn append(&mut self, entries: Vec<Entry>, txn: Txn, point: &'static str, run: &RunId) -> Result<bool> {
        let table = match self.table.take() {
            Some(table) => table,
            None => self.lake.create_or_open(&self.name, &definition()).await?,
        };
        let table = self.table.insert(table);
        let before = table.version();
        let mut writer = TableWriter::new(table);
        writer.write(&rows(&entries, run, self.lake.clock().now_micros())?).await?;
        let written = writer.close().await?;
        let commit = Commit {
            point,
            txns: vec![txn.clone()],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: written.files.iter().cloned().map(Action::Add).collect(),
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: run.clone(),
        };
        let ours = match table.commit(commit).await {
            Ok(Outcome::Committed { version }) if version == before + 1 => {
                self.add(entries, &txn);
                return Ok(true);
            }
            Ok(Outcome::Committed { .. }) => true,
            Ok(Outcome::AlreadyApplied { .. }) => false,
            Err(error) if error.kind() == ErrorKind::Conflict => false,
            Err(error) => return Err(error),
        };
        if !ours {
            discard(table, &written.files).await;
            table.reload().await?;
        }
        self.read().await?;
        Ok(ours)
    }

    /// Takes over what was committed just now, without reading the table again.
    fn add(&mut self, entries: Vec<Entry>, txn: &Txn) {
        match txn.app == self.name.name {
            true => self.planned = txn.version,
            false => self.notes = txn.version,
        }
        for entry in entries {
            self.by_path.entry(entry.file.path.clone()).or_default().push(self.entries.len());
            self.entries.push(entry);
        }
    }

    fn entries_of(&self, path: &str) -> impl Iterator<Item = &Entry> {
        self.by_path.get(path).into_iter().flatten().map(|index| &self.entries[*index])
    }
}

fn notes_app(source: &str) -> String {
    format!("{source}:notes")
}

/// The columns of a ledger.
fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(BATCH_ID, DataType::Int64, true),
        Field::new("path", DataType::Utf8, false),
        Field::new("size", DataType::Int64, false),
        Field::new("modification_time", timestamp_type(), false),
        Field::new("etag", DataType::Utf8, true),
        Field::new("status", DataType::Utf8, false),
        Field::new("reason", DataType::Utf8, true),
        Field::new("recorded_at", timestamp_type(), false),
        Field::new("run_id", DataType::Utf8, false),
    ]))
}

fn definition() -> Definition {
    Definition {
        description: Some("which files are which batch, and what became of them".into()),
        ..Definition::new(schema())
    }
}

fn rows(entries: &[Entry], run: &RunId, now_us: i64) -> Result<RecordBatch> {
    let times = |times: Vec<i64>| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")) };
    let texts = |of: &dyn Fn(&Entry) -> Option<String>| -> ArrayRef {
        Arc::new(entries.iter().map(of).collect::<StringArray>())
    };
    let size = |entry: &Entry| i64::try_from(entry.file.size).unwrap_or(i64::MAX);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(entries.iter().map(|entry| entry.batch).collect::<Int64Array>()),
        texts(&|entry| Some(entry.file.path.clone())),
        Arc::new(entries.iter().map(size).collect::<Int64Array>()),
        times(entries.iter().map(|entry| entry.file.modified_us).collect()),
        texts(&|entry| entry.file.etag.clone()),
        texts(&|entry| Some(entry.status.as_str().to_owned())),
        texts(&|entry| entry.reason.clone()),
        times(vec![now_us; entries.len()]),
        texts(&|_| Some(run.to_string())),
    ];
    RecordBatch::try_new(schema(), columns).map_err(|error| Error::internal("ledger rows").with_source(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lake::session::Engine;
    use lake::{Clock, Root};
    use object_store::path::Path;

    fn file(path: &str, modified_us: i64) -> FoundFile {
        FoundFile { path: path.into(), size: 1, modified_us, etag: None, location: Ok(Path::from(path)) }
    }

    fn ledger(rows: &[(Option<i64>, FoundFile, Status)]) -> Ledger {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::open(".", folder.path()).expect("a root");
        let mut ledger = Ledger {
            lake: Lake::new(root, Clock::system(), Engine::default()),
            name: TableName::files("s"),
            table: None,
            planned: 0,
            notes: 0,
            entries: Vec::new(),
            by_path: HashMap::new(),
        };
        let reason = |status| (status != Status::Planned).then(|| "a reason".to_owned());
        let entry = |(batch, file, status): &(Option<i64>, FoundFile, Status)| Entry {
            batch: *batch,
            file: file.clone(),
            status: *status,
            reason: reason(*status),
        };
        ledger.add(rows.iter().map(entry).collect(), &Txn::new("s", 9));
        ledger
    }

    fn paths(files: Vec<FoundFile>) -> Vec<String> {
        files.into_iter().map(|file| file.path).collect()
    }

    #[test]
    fn a_file_is_its_path_and_its_content_never_a_mark_in_time() {
        let ledger = ledger(&[(Some(1), file("a", 5), Status::Planned)]);
        assert_eq!((ledger.planned(), ledger.notes()), (9, 0));
        assert!(ledger.knows(&file("a", 5)));
        assert!(!ledger.knows(&file("b", 5)) && !ledger.knows(&file("b", 1)));
        assert!(!ledger.knows(&file("a", 4)) && ledger.is_overwritten_by(&file("a", 4)));
        assert!(!ledger.is_overwritten_by(&file("a", 5)) && !ledger.is_overwritten_by(&file("b", 5)));
        let versioned = |etag: &str, modified_us| FoundFile { etag: Some(etag.into()), ..file("a", modified_us) };
        assert!(versioned("x", 1).is_same(&versioned("x", 2)), "the version of a store says more than a time");
        assert!(!versioned("x", 1).is_same(&versioned("y", 1)));
    }

    #[test]
    fn a_refused_file_is_remembered_and_its_correction_is_no_overwrite() {
        let ledger = ledger(&[
            (Some(1), file("a", 5), Status::Planned),
            (Some(1), file("b", 5), Status::Planned),
            (Some(1), file("a", 5), Status::Failed),
            (None, file("c", 5), Status::Ignored),
        ]);
        assert_eq!(paths(ledger.batch(1)), ["b"]);
        assert_eq!(ledger.failures(1).count(), 1);
        assert!(ledger.knows(&file("a", 5)) && ledger.failure(&file("a", 5)) == Some("a reason"));
        assert!(!ledger.knows(&file("a", 6)) && !ledger.is_overwritten_by(&file("a", 6)));
        assert!(ledger.is_overwritten_by(&file("b", 6)));
        assert!(ledger.knows(&file("c", 5)) && ledger.failure(&file("c", 5)).is_none());
    }

    #[test]
    fn a_file_that_was_gone_is_taken_when_it_is_back() {
        let gone = [(Some(1), file("a", 5), Status::Planned), (Some(1), file("a", 5), Status::Gone)];
        let before = ledger(&gone);
        assert!(before.batch(1).is_empty() && before.failures(1).count() == 1);
        assert!(!before.knows(&file("a", 5)) && before.failure(&file("a", 5)).is_none());
        assert!(!before.is_overwritten_by(&file("a", 6)));
        let [planned, gone] = gone;
        let back = ledger(&[planned, gone, (Some(2), file("a", 5), Status::Planned)]);
        assert!(back.knows(&file("a", 5)));
        assert_eq!((paths(back.batch(1)), paths(back.batch(2))), (vec![], vec!["a".to_owned()]));
    }
}
