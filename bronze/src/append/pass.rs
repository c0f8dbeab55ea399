//! One reading of a batch: its files decoded side by side, their rows encoded side by side.
//!
//! ```text
//! files ──► decoders (threads that may block) ──► parts ──► lanes (a Parquet encoder each) ──► data files
//! ```
//!
//! Files are begun in the order of the batch, and the columns that each begins with join the table in that order,
//! however fast each decoder is; keys that come up later in a file of JSON join as they come. A part of any file may be
//! taken by any lane.

mod decoders;
mod lanes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use lake::accounting::Figures;
use lake::quarantine::{Before, QuarantineWriter};
use lake::run::RunContext;
use lake::write::{Written, discard};
use lake::{Error, ErrorKind, Lake, Result, Root, Table};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::decoders::Turns;
use super::partitioned::add_folders;
use super::rows::{Origin, table_rows};
use crate::decode::{Chunk, Counts, Reject, refused};
use crate::discover::{FoundFile, folder_values};
use crate::evolve::{Evolution, FileColumns, FileNote, Headers};
use crate::ledger::Status;
use crate::plan::SourcePlan;

/// Parts that wait for each lane at most.
const PARTS_AHEAD: usize = 4;
/// Bytes of files that make another lane, and so another data file, worthwhile.
const LANE_BYTES: u64 = 16 * 1024 * 1024;

/// What one reading of a batch gave. Nothing of it is visible.
pub(super) struct Pass {
    /// The data files.
    pub(super) written: Written,
    /// The rejected records.
    pub(super) quarantine: QuarantineWriter,
    /// What the quarantine held of the batch when the reading began.
    pub(super) before: Before,
    /// What became of the records.
    pub(super) figures: Figures,
    /// Files that could not be taken.
    pub(super) failures: Vec<Failure>,
    /// True when rows of a failed file were among the data files, which then are of no use and removed.
    pub(super) spoiled: bool,
    /// The columns of the table with those that joined.
    pub(super) schema: Arc<Schema>,
    /// What is worth a note about the columns of files, by path.
    pub(super) column_notes: Vec<(String, FileNote)>,
}

/// A file that could not be taken.
pub(super) struct Failure {
    pub(super) file: FoundFile,
    pub(super) status: Status,
    pub(super) reason: String,
}

/// What a pass needs to know.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) lake: Lake,
    pub(super) landing: Root,
    pub(super) plan: SourcePlan,
    pub(super) ctx: RunContext,
    pub(super) table: Table,
    pub(super) before: Before,
    pub(super) batch: i64,
}

/// Reads the files of a batch once, to the end even when some of them fail.
///
/// # Errors
/// [`ErrorKind::Store`] when a store fails; the failure of a file is no error here.
pub(super) async fn read(job: Job, files: Vec<FoundFile>) -> Result<Pass> {
    let bytes: u64 = files.iter().map(|file| file.size).sum();
    let threads = threads(&job.lake);
    let lane_count = usize::try_from(bytes / LANE_BYTES).unwrap_or(usize::MAX).saturating_add(1).min(threads);
    let pass = Arc::new(Reading::new(job, files));
    let (sender, receiver) = mpsc::channel(PARTS_AHEAD * lane_count);
    let decoders = decoders::start(&pass, threads, sender);
    let lanes = lanes::start(&pass, lane_count, receiver);
    let written = lanes::join(&pass, lanes).await;
    join(&pass, decoders).await;
    match Arc::into_inner(pass) {
        Some(pass) => pass.finish(written).await,
        None => Err(Error::internal("the reading of a batch is not over")),
    }
}

/// Threads that decode, and lanes that encode, at most.
fn threads(lake: &Lake) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    lake.engine().threads.unwrap_or_else(cores).max(1)
}

/// What decoders and lanes share.
struct Reading {
    job: Job,
    origins: Vec<Origin>,
    /// The next file to begin.
    next: AtomicUsize,
    turns: Turns,
    columns: Mutex<Columns>,
    headers: Headers,
    /// The header of each file that has one and belongs to the source.
    met: Mutex<Vec<Option<Vec<String>>>>,
    quarantine: tokio::sync::Mutex<QuarantineWriter>,
    /// What was passed on of each file.
    passed: Vec<Passed>,
    /// Rejects that were dropped because the spec says so.
    dropped: AtomicU64,
    /// How each file ended.
    ends: Mutex<Vec<Option<Result<Counts, Failed>>>>,
    /// Rows of a failed file were passed on.
    spoiled: AtomicBool,
    /// Why the reading ended early.
    fatal: Mutex<Option<Error>>,
    over: AtomicBool,
}

/// The columns of the table as they grow, and those of each file that has begun.
struct Columns {
    evolution: Evolution,
    files: Vec<Option<FileColumns>>,
}

/// Rows and rejects of one file that were passed on.
#[derive(Default)]
struct Passed {
    rows: AtomicU64,
    rejects: AtomicU64,
}

/// Why nothing of a file may be taken.
struct Failed {
    status: Status,
    reason: String,
}

/// Rows of one file as the table has them, and the records that are none.
struct Rows {
    batch: RecordBatch,
    rejects: Vec<Reject>,
}

impl Reading {
    fn new(job: Job, files: Vec<FoundFile>) -> Self {
        let ingested_us = job.lake.clock().now_micros();
        let quarantine = QuarantineWriter::after(&job.lake, &job.before, &job.ctx.run);
        let origin = |file: FoundFile| {
            let folders = folder_values(&job.plan, &file.path);
            Origin { batch: job.batch, file, folders, ingested_us }
        };
        let origins: Vec<Origin> = files.into_iter().map(origin).collect();
        let (schema, plan) = (job.table.schema(), &job.plan);
        Self {
            headers: Headers::new(&plan.table, &schema, &plan.schema, &plan.partition_columns),
            met: Mutex::new(origins.iter().map(|_| None).collect()),
            next: AtomicUsize::new(0),
            turns: Turns::new(origins.len()),
            columns: Mutex::new(Columns {
                evolution: Evolution::with_rules(&schema, &plan.schema),
                files: origins.iter().map(|_| None).collect(),
            }),
            quarantine: tokio::sync::Mutex::new(quarantine),
            passed: origins.iter().map(|_| Passed::default()).collect(),
            dropped: AtomicU64::new(0),
            ends: Mutex::new(origins.iter().map(|_| None).collect()),
            spoiled: AtomicBool::new(false),
            fatal: Mutex::new(None),
            over: AtomicBool::new(false),
            origins,
            job,
        }
    }

    /// Rows of the `index`-th file as the table has them. What the content does to break it is the file's failure.
    fn place(&self, index: usize, chunk: impl FnOnce() -> Result<Chunk>) -> Result<Rows> {
        guarded(|| {
            let mut chunk = chunk()?;
            let rejects = std::mem::take(&mut chunk.rejects);
            add_folders(&mut chunk, &self.origins[index].folders)?;
            let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
            let Columns { evolution, files } = &mut *columns;
            let file = files[index].get_or_insert_with(|| evolution.begin_file());
            let batch = table_rows(chunk, &self.origins[index], evolution, file)?;
            Ok(Rows { batch, rejects })
        })
    }

    /// Holds the header of a file against the columns of its source, before any of its rows is passed on.
    fn meet(&self, index: usize, header: Option<SchemaRef>) -> Result<()> {
        let Some(header) = header else { return Ok(()) };
        let names: Vec<String> = header.fields().iter().map(|field| field.name().clone()).collect();
        self.headers.check(&names)?;
        self.met.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(names);
        Ok(())
    }

    /// Notes how a file ended; what is known of it already stays when it says that the file failed.
    fn end(&self, index: usize, end: Result<Counts, Failed>) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(ends[index], Some(Err(_))) {
            ends[index] = Some(end);
        }
    }

    fn spoil(&self) {
        self.spoiled.store(true, Ordering::SeqCst);
    }

    fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::SeqCst)
    }

    /// Ends the reading; the first reason counts.
    fn stop(&self, error: Error) {
        self.fatal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Refuses the files of a first batch that do not belong to its source, which only all of them together tell. The
    /// batch is then read again without them.
    fn refuse_strangers(&self) -> Result<()> {
        let mut met = std::mem::take(&mut *self.met.lock().unwrap_or_else(PoisonError::into_inner));
        let is_read = |index: usize| {
            let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
            matches!(ends[index], Some(Ok(_)))
        };
        (0..met.len()).filter(|index| !is_read(*index)).for_each(|index| met[index] = None);
        for (index, error) in self.headers.strangers(&met) {
            let refusal = failed(error)?;
            self.ends.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(Err(refusal));
            self.spoil();
        }
        Ok(())
    }

    async fn finish(self, written: Written) -> Result<Pass> {
        let strangers = self.refuse_strangers();
        let quarantine = self.quarantine.into_inner();
        let fatal = self.fatal.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ends = self.ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        let spoiled = self.spoiled.load(Ordering::SeqCst);
        let mut figures = Figures {
            appended: written.rows,
            quarantined: quarantine.rows(),
            dropped: self.dropped.load(Ordering::SeqCst),
            ..Figures::default()
        };
        let Columns { evolution, files } = self.columns.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (mut failures, mut column_notes) = (Vec::new(), Vec::new());
        let account = || {
            if let Some(error) = fatal {
                return Err(error);
            }
            strangers?;
            for (((origin, end), passed), file) in self.origins.iter().zip(ends).zip(&self.passed).zip(files) {
                match end {
                    None => return Err(Error::internal(format!("{} was never read", origin.file.path))),
                    Some(Err(Failed { status, reason })) => {
                        failures.push(Failure { file: origin.file.clone(), status, reason });
                    }
                    Some(Ok(counts)) => {
                        add(&mut figures, origin, counts, passed, spoiled)?;
                        self.job.ctx.meter.add_bytes(origin.file.size);
                        let note = file.and_then(|file| evolution.note(&file));
                        column_notes.extend(note.map(|note| (origin.file.path.clone(), note)));
                    }
                }
            }
            Ok(())
        };
        if let Err(error) = account() {
            discard(&self.job.table, &written.files).await;
            quarantine.abort().await;
            return Err(error);
        }
        let schema = grown(&self.job.table.schema(), &evolution);
        Ok(Pass { written, quarantine, before: self.job.before, figures, failures, spoiled, schema, column_notes })
    }
}

/// Every record that the decoder counted must have been passed on as a row or a reject.
fn add(figures: &mut Figures, origin: &Origin, counts: Counts, passed: &Passed, spoiled: bool) -> Result<()> {
    let (rows, rejects) = (passed.rows.load(Ordering::SeqCst), passed.rejects.load(Ordering::SeqCst));
    if !spoiled && counts.records != rows + rejects {
        let message = format!(
            "the records of {} do not add up: {} read, {rows} rows and {rejects} rejects passed on",
            origin.file.path, counts.records
        );
        return Err(Error::new(ErrorKind::Accounting, message));
    }
    figures.files += 1;
    figures.read += counts.records + counts.skipped;
    figures.skipped += counts.skipped;
    Ok(())
}

/// The columns of the table with those that joined.
fn grown(table: &Schema, evolution: &Evolution) -> Arc<Schema> {
    let known = Evolution::of(table).fields().len();
    let joined = evolution.fields().iter().skip(known).cloned();
    Arc::new(Schema::new(table.fields().iter().cloned().chain(joined).collect::<Vec<_>>()))
}

/// Work on the content of a file. A panic is the file's failure: nothing else must stand still for it.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done,
        Err(_) => Err(refused("the reader broke on the content of the file")),
    }
}

/// What an error says of the file whose content it met; an error of the store, which says nothing of it, comes back.
fn failed(error: Error) -> Result<Failed> {
    match error.kind() {
        ErrorKind::File | ErrorKind::Data | ErrorKind::Internal => {
            let reason = match error.hint_text() {
                None => error.to_string(),
                Some(hint) => format!("{error}\nhint: {hint}"),
            };
            Ok(Failed { status: Status::Failed, reason })
        }
        _ => Err(error),
    }
}

/// Waits for tasks to end; one that broke ends the reading.
async fn join<T: 'static>(pass: &Reading, mut tasks: JoinSet<T>) -> Vec<T> {
    let mut done = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(value) => done.push(value),
            Err(error) => pass.stop(Error::internal("a task of the reading ended early").with_source(error)),
        }
    }
    done
}
