//! The file ledger of a source: which files are which batch, and what became of them.
//!
//! It is a Delta table of its own, `_state/files/<source>`, with four applications: `<source>` at version N says that
//! batches 1 to N are planned; `<source>:notes` counts the commits that note what became of files; `<source>:settled`
//! at N says that the notes about the files of batch N have been held against its rows; `<source>:packed` counts the
//! commits that made one file of many. All are compare-and-set: a commit follows from what was read, so the loser of a
//! race reads again.

use std::collections::HashMap;

use lake::{Lake, Result, Table, TableName};

use crate::discover::FoundFile;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod read;
mod replay;
mod write;

#[cfg(test)]
mod tests;

/// What the ledger says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is part of a batch.
    Planned,
    /// It could not be read, or was refused; nothing of it is in the table.
    Failed,
    /// It was gone, or had other content, when its batch was read; it is taken when it is there again.
    Gone,
    /// Its rows are in the table, whatever was noted of it for its batch: a run had read it when another could not.
    Taken,
    /// It came again with other content and was left alone.
    Ignored,
    /// It was there when the source was started, which takes only what comes later.
    Existing,
    /// It is to be taken once more: what was said of it up to its batch does not count.
    Again,
    /// No file: the batch is records of quarantine that are replayed.
    Replay,
}

/// One row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The batch; none for a file that never was in one. For [`Status::Again`] the last batch that was planned then.
    pub batch: Option<i64>,
    /// The file as it was listed.
    pub file: FoundFile,
    /// What the ledger says of it.
    pub status: Status,
    /// Why, unless it is planned.
    pub reason: Option<String>,
    /// When it was recorded, in microseconds since the epoch; 0 before it is.
    pub recorded_us: i64,
}

/// The ledger of one source, as it was read last.
#[derive(Debug)]
pub struct Ledger {
    lake: Lake,
    name: TableName,
    table: Option<Table>,
    marks: Marks,
    entries: Vec<Entry>,
    by_path: HashMap<String, Vec<usize>>,
    /// When each batch was planned, in microseconds since the epoch.
    planned_us: HashMap<i64, i64>,
}

/// How far the applications of a ledger have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Marks {
    planned: i64,
    notes: i64,
    settled: i64,
    packed: i64,
}

impl Status {
    const ALL: [Self; 8] = [
        Self::Planned,
        Self::Failed,
        Self::Gone,
        Self::Taken,
        Self::Ignored,
        Self::Existing,
        Self::Again,
        Self::Replay,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::Taken => "taken",
            Self::Ignored => "ignored",
            Self::Existing => "existing",
            Self::Again => "again",
            Self::Replay => "replay",
        }
    }
}

impl Entry {
    /// What is to be noted of a file.
    pub fn new(batch: Option<i64>, file: &FoundFile, status: Status, reason: impl Into<String>) -> Self {
        Self { batch, file: file.clone(), status, reason: Some(reason.into()), recorded_us: 0 }
    }
}

impl Ledger {
    /// Reads the ledger of a source; it need not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](lake::ErrorKind::Store) or [`ErrorKind::Table`](lake::ErrorKind::Table) when it cannot be
    /// read.
    pub async fn open(lake: &Lake, source: &str) -> Result<Self> {
        let mut ledger = Self::empty(lake, source);
        ledger.reload().await?;
        Ok(ledger)
    }

    fn empty(lake: &Lake, source: &str) -> Self {
        Self {
            lake: lake.clone(),
            name: TableName::files(source),
            table: None,
            marks: Marks::default(),
            entries: Vec::new(),
            by_path: HashMap::new(),
            planned_us: HashMap::new(),
        }
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
        self.marks.planned
    }

    /// How many commits have noted what became of files.
    pub fn notes(&self) -> i64 {
        self.marks.notes
    }

    /// True when no run has planned or noted anything yet.
    pub fn is_new(&self) -> bool {
        self.marks.planned == 0 && self.marks.notes == 0
    }

    /// True for a batch with notes that have not been held against its rows.
    pub fn is_unsettled(&self, batch: i64) -> bool {
        self.marks.settled < batch && self.failures(batch).next().is_some()
    }

    /// True for a file whose content was taken, is about to be, or is not to be.
    pub fn knows(&self, file: &FoundFile) -> bool {
        self.counting(file).any(|entry| match entry.status {
            Status::Planned => !self.is_out(entry),
            Status::Failed | Status::Ignored | Status::Existing => true,
            Status::Gone | Status::Taken | Status::Again | Status::Replay => false,
        })
    }

    /// Why a file was refused, when it was.
    pub fn failure(&self, file: &FoundFile) -> Option<&str> {
        let failed = |entry: &&Entry| entry.status == Status::Failed && !self.is_taken_after_all(entry);
        self.counting(file).find(failed)?.reason.as_deref()
    }

    /// The batch that holds the content of a file, planned or in the table, and when it was planned, in microseconds
    /// since the epoch.
    pub fn taken(&self, file: &FoundFile) -> Option<(i64, i64)> {
        let planned = self.counting(file).filter(|entry| entry.status == Status::Planned && !self.is_out(entry));
        planned.filter_map(|entry| Some((entry.batch?, entry.recorded_us))).max()
    }

    /// What the ledger says last of the content of a file that is not in a batch: failed, ignored, there before the
    /// start.
    pub fn left_out(&self, file: &FoundFile) -> Option<&Entry> {
        let left = |entry: &&Entry| matches!(entry.status, Status::Failed | Status::Ignored | Status::Existing);
        self.counting(file).filter(|entry| !self.is_taken_after_all(entry)).find(left)
    }

    /// True for a file that was asked for once more.
    pub fn is_wanted_again(&self, file: &FoundFile) -> bool {
        self.void_upto(file).is_some()
    }

    /// When a batch was planned, in microseconds since the epoch.
    pub fn planned_at_us(&self, batch: i64) -> Option<i64> {
        self.planned_us.get(&batch).copied()
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
        let of_batch = self.entries.iter().filter(move |entry| entry.batch == Some(batch)).filter(failed);
        of_batch.filter(|entry| !self.is_taken_after_all(entry))
    }

    /// True for a planned file that is noted as failed or gone for its batch, and whose rows are not in the table.
    fn is_out(&self, planned: &Entry) -> bool {
        let of_it = || self.entries_of(&planned.file.path).filter(|entry| entry.is_about(planned));
        of_it().any(|entry| matches!(entry.status, Status::Failed | Status::Gone)) && !self.is_taken_after_all(planned)
    }

    fn is_taken_after_all(&self, noted: &Entry) -> bool {
        self.entries_of(&noted.file.path).any(|entry| entry.status == Status::Taken && entry.is_about(noted))
    }

    /// The last batch up to which what was said of the content of `file` does not count.
    fn void_upto(&self, file: &FoundFile) -> Option<i64> {
        let again = self.entries_of(&file.path).filter(|entry| entry.status == Status::Again);
        again.filter(|entry| entry.file.is_same(file)).filter_map(|entry| entry.batch).max()
    }

    /// The entries about the content of `file` that count.
    fn counting(&self, file: &FoundFile) -> impl Iterator<Item = &Entry> {
        let void = self.void_upto(file);
        let counts = move |entry: &&Entry| void.is_none_or(|void| entry.batch.is_some_and(|batch| batch > void));
        self.entries_of(&file.path).filter(|entry| entry.file.is_same(file)).filter(counts)
    }

    fn put(&mut self, entry: Entry) {
        if let (Some(batch), Status::Planned | Status::Replay) = (entry.batch, entry.status) {
            self.planned_us.entry(batch).or_insert(entry.recorded_us);
        }
        self.by_path.entry(entry.file.path.clone()).or_default().push(self.entries.len());
        self.entries.push(entry);
    }

    fn entries_of(&self, path: &str) -> impl Iterator<Item = &Entry> {
        self.by_path.get(path).into_iter().flatten().map(|index| &self.entries[*index])
    }
}

impl Entry {
    /// True when both are about the same content in the same batch.
    fn is_about(&self, other: &Self) -> bool {
        self.batch == other.batch && self.file.is_same(&other.file)
    }
}
