//! One reading of a batch: its files decoded side by side, written as Parquet in the order of the batch.
//!
//! Files are decoded on threads that may block, each into a bounded channel; rows are taken from the channels file
//! after file, so that the same batch always gives the same columns and the same files, and encoded meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::datatypes::Schema;
use lake::accounting::Figures;
use lake::quarantine::{QuarantineWriter, Rejected};
use lake::run::RunContext;
use lake::write::{TableWriter, Written};
use lake::{Error, ErrorKind, Lake, Result, Root, Table};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::open::{Fault, OpenFile};
use super::partitioned::Partitioned;
use super::rows::{Origin, table_rows};
use crate::decode::{Chunk, Counts, refused};
use crate::discover::{FolderValue, FoundFile, folder_values};
use crate::evolve::{Evolution, FileNote};
use crate::ledger::Status;
use crate::plan::{Format, SourcePlan};
use crate::spec::BadRecords;

/// Files that are decoded at the same time.
const DECODERS: usize = 2;
/// Chunks that one decoder is ahead of the encoder.
const CHUNKS_AHEAD: usize = 4;
/// Chunks of a file that are held back until more come or the file has ended well. A small file that is broken then
/// leaves no rows behind.
const CHUNKS_HELD: usize = 4;

/// What one reading of a batch gave. Nothing of it is visible.
pub(super) struct Pass {
    /// The data files.
    pub(super) written: Written,
    /// The rejected records.
    pub(super) quarantine: QuarantineWriter,
    /// What became of the records.
    pub(super) figures: Figures,
    /// Files that could not be taken.
    pub(super) failures: Vec<Failure>,
    /// True when rows of a failed file are among the data files, which then are of no use.
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
    pub(super) batch: i64,
}

/// Reads the files of a batch once, to the end even when some of them fail.
///
/// # Errors
/// [`ErrorKind::Store`] when a store fails; the failure of a file is no error here.
pub(super) async fn read(job: Job, files: Vec<FoundFile>) -> Result<Pass> {
    // A task of its own: encoding keeps its thread busy, and the caller may share its thread with other tasks.
    let mut task = tokio::task::JoinSet::new();
    task.spawn(read_all(job, files));
    match task.join_next().await {
        Some(Ok(pass)) => pass,
        Some(Err(error)) => Err(Error::internal("the reading of a batch ended early").with_source(error)),
        None => Err(Error::internal("the reading of a batch was never begun")),
    }
}

async fn read_all(job: Job, files: Vec<FoundFile>) -> Result<Pass> {
    let mut reading = Reading::new(job);
    match reading.files(files).await {
        Ok(()) => reading.finish().await,
        Err(error) => {
            reading.abort().await;
            Err(error)
        }
    }
}

struct Reading {
    job: Job,
    ingested_us: i64,
    writer: TableWriter,
    quarantine: QuarantineWriter,
    evolution: Evolution,
    figures: Figures,
    failures: Vec<Failure>,
    column_notes: Vec<(String, FileNote)>,
    spoiled: bool,
}

/// A file that is being decoded.
struct Decoding {
    file: FoundFile,
    chunks: mpsc::Receiver<Chunk>,
    end: JoinHandle<Result<Counts, Fault>>,
}

/// Rows and rejects of one file that were passed on.
#[derive(Default)]
struct Passed {
    rows: u64,
    rejects: u64,
}

impl Reading {
    fn new(job: Job) -> Self {
        Self {
            ingested_us: job.lake.clock().now_micros(),
            writer: TableWriter::new(&job.table),
            quarantine: QuarantineWriter::new(&job.lake, job.plan.source(), &job.ctx.run),
            evolution: Evolution::with_rules(&job.table.schema(), &job.plan.schema),
            figures: Figures::default(),
            failures: Vec::new(),
            column_notes: Vec::new(),
            spoiled: false,
            job,
        }
    }

    async fn files(&mut self, files: Vec<FoundFile>) -> Result<()> {
        let mut waiting = files.into_iter();
        let mut decoding: VecDeque<Decoding> = waiting.by_ref().take(DECODERS).map(|file| self.start(file)).collect();
        while let Some(current) = decoding.pop_front() {
            self.job.ctx.stop.check()?;
            self.file(current).await?;
            decoding.extend(waiting.next().map(|file| self.start(file)));
        }
        Ok(())
    }

    fn start(&self, file: FoundFile) -> Decoding {
        let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
        let (landing, format) = (self.job.landing.clone(), self.job.plan.format.clone());
        let (planned, bad_records) = (file.clone(), self.job.plan.bad_records);
        let (handle, folders) = (Handle::current(), folder_values(&self.job.plan, &file.path));
        let end = tokio::task::spawn_blocking(move || {
            let open = OpenFile::open(&landing, &planned, &handle)?;
            decode(open, &format, folders, bad_records, &sender)
        });
        Decoding { file, chunks, end }
    }

    /// Takes one file to its end.
    async fn file(&mut self, mut decoding: Decoding) -> Result<()> {
        let origin = Origin { batch: self.job.batch, file: decoding.file, ingested_us: self.ingested_us };
        let (mut held, mut passed) = (Vec::new(), Passed::default());
        let mut began = false;
        let mut taken = Ok(());
        self.evolution.begin_file();
        while let Some(chunk) = decoding.chunks.recv().await {
            self.job.ctx.stop.check()?;
            held.push(chunk);
            if began || held.len() > CHUNKS_HELD {
                began = true;
                taken = self.pass_on(&mut held, &origin, &mut passed).await;
                if taken.is_err() {
                    break;
                }
            }
        }
        // A decoder whose rows are not wanted any more ends by itself.
        drop(decoding.chunks);
        let ended = match (taken, decoding.end.await) {
            (Err(error), _) => Err(Fault::Failed(error)),
            (Ok(()), Ok(Ok(counts))) => {
                let rest = self.pass_on(&mut held, &origin, &mut passed).await;
                rest.map(|()| counts).map_err(Fault::Failed)
            }
            (Ok(()), Ok(Err(fault))) => Err(fault),
            (Ok(()), Err(error)) if error.is_panic() => {
                Err(refused("the reader broke on the content of the file").into())
            }
            (Ok(()), Err(error)) => return Err(Error::internal("a decoder was ended").with_source(error)),
        };
        let (status, reason) = match ended {
            Ok(counts) => {
                let note = self.evolution.end_file();
                self.column_notes.extend(note.map(|note| (origin.file.path.clone(), note)));
                return self.account(&origin, counts, &passed);
            }
            Err(Fault::Gone(reason)) => (Status::Gone, reason.to_owned()),
            Err(Fault::Failed(error)) if is_of_the_file(&error) => (Status::Failed, reason(&error)),
            Err(Fault::Failed(error)) => return Err(error),
        };
        self.evolution.forget_file();
        self.spoiled |= began || passed.rows + passed.rejects > 0;
        self.failures.push(Failure { file: origin.file, status, reason });
        Ok(())
    }

    /// Passes chunks on to the table. Once the pass is spoiled, it only finds out whether they could be placed.
    ///
    /// # Errors
    /// Of the file ([`is_of_the_file`]) when its rows cannot be placed, [`ErrorKind::Store`] when the store fails.
    async fn pass_on(&mut self, held: &mut Vec<Chunk>, origin: &Origin, passed: &mut Passed) -> Result<()> {
        for mut chunk in held.drain(..) {
            if self.spoiled {
                table_rows(chunk, origin, &mut self.evolution)?;
                continue;
            }
            let rejects = std::mem::take(&mut chunk.rejects);
            passed.rejects += rejects.len() as u64;
            if self.job.plan.bad_records == BadRecords::Quarantine {
                for reject in rejects {
                    self.quarantine.push(rejected(&self.job.plan, origin, reject)).await?;
                }
            } else {
                self.figures.dropped += rejects.len() as u64;
            }
            let rows = chunk.columns.num_rows() as u64;
            if rows > 0 {
                let batch = table_rows(chunk, origin, &mut self.evolution)?;
                passed.rows += rows;
                self.writer.write(&batch).await?;
                self.job.ctx.meter.add_rows(rows);
            }
        }
        Ok(())
    }

    /// Every record that the decoder counted must have been passed on as a row or a reject.
    fn account(&mut self, origin: &Origin, counts: Counts, passed: &Passed) -> Result<()> {
        if !self.spoiled && counts.records != passed.rows + passed.rejects {
            let message = format!(
                "the records of {} do not add up: {} read, {} rows and {} rejects passed on",
                origin.file.path, counts.records, passed.rows, passed.rejects
            );
            return Err(Error::new(ErrorKind::Accounting, message));
        }
        self.figures.files += 1;
        self.figures.read += counts.records + counts.skipped;
        self.figures.skipped += counts.skipped;
        self.job.ctx.meter.add_bytes(origin.file.size);
        Ok(())
    }

    async fn finish(mut self) -> Result<Pass> {
        let written = match self.writer.close().await {
            Ok(written) => written,
            Err(error) => {
                self.quarantine.abort().await;
                return Err(error);
            }
        };
        self.figures.appended = written.rows;
        self.figures.quarantined = self.quarantine.rows();
        let table = self.job.table.schema();
        let known = Evolution::of(&table).fields().len();
        let joined = self.evolution.fields().iter().skip(known).cloned();
        let fields: Vec<_> = table.fields().iter().cloned().chain(joined).collect();
        Ok(Pass {
            written,
            quarantine: self.quarantine,
            figures: self.figures,
            failures: self.failures,
            spoiled: self.spoiled,
            column_notes: self.column_notes,
            schema: Arc::new(Schema::new(fields)),
        })
    }

    async fn abort(self) {
        self.writer.abort().await;
        self.quarantine.abort().await;
    }
}

/// Decodes one file to its end, on a thread that may block.
fn decode(
    mut file: OpenFile,
    format: &Format,
    folders: Vec<(String, FolderValue)>,
    bad_records: BadRecords,
    chunks: &mpsc::Sender<Chunk>,
) -> Result<Counts, Fault> {
    let mut decoder = Partitioned::over(file.decoder(format)?, folders);
    while let Some(chunk) = decoder.next_chunk()? {
        if let Some(reject) = chunk.rejects.first().filter(|_| bad_records == BadRecords::Fail) {
            return Err(refused(format!("record {}: {}", reject.row_number, reject.reason)).into());
        }
        if chunks.blocking_send(chunk).is_err() {
            return Err(Error::internal("the rows of a file are not wanted any more").into());
        }
    }
    file.check_unchanged()?;
    Ok(decoder.counts())
}

fn rejected(plan: &SourcePlan, origin: &Origin, reject: crate::decode::Reject) -> Rejected {
    Rejected {
        batch_id: origin.batch,
        file_path: origin.file.path.clone(),
        row_number: reject.row_number,
        refused_by: plan.table.clone(),
        reason_kind: "malformed",
        reason: reject.reason,
        column: None,
        value: None,
        record: Some(reject.raw),
    }
}

/// True for a failure that a file is the cause of, so that only this file is refused: also what the program did not
/// expect of its content must not stop the others.
fn is_of_the_file(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::File | ErrorKind::Data | ErrorKind::Internal)
}

/// The reason for a person: the error, and what to do about it.
fn reason(error: &Error) -> String {
    match error.hint_text() {
        None => error.to_string(),
        Some(hint) => format!("{error}\nhint: {hint}"),
    }
}
