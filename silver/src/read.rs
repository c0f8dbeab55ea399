//! The records of bronze that a silver table has not seen, decoded on all cores as a table of changes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{filter_record_batch, not};
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::dataframe::DataFrame;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ident, lit};
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{Stream, StreamExt};
use lake::quarantine::{Again, Places, QuarantineWriter, Rejected};
use lake::run::RunContext;
use lake::session::Session;
use lake::{Error, Result, Table, columns};
use tokio::sync::mpsc;

use crate::change::{Decoded, Decoder};
use crate::expect::Tested;
use crate::truncates::Found;

/// Batches of rejected rows waiting to be encoded.
const REJECTED_WAITING_MAX: usize = 16;

/// Batches that are named one by one when their records are looked for; of more, the first and the last are.
const BATCHES_NAMED_MAX: usize = 200;

/// The bronze batches of one run: above `after`, up to `upto`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) after: i64,
    pub(crate) upto: i64,
}

/// Counts of decoding, over all streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) read: u64,
    /// Changes beyond one a record.
    pub(crate) added: u64,
    pub(crate) rejected: u64,
    pub(crate) ignored: u64,
    pub(crate) dropped: u64,
    pub(crate) held: Vec<Tested>,
    /// Where files are full extracts: the batches and files that records were kept out of.
    pub(crate) incomplete: BTreeSet<(i64, String)>,
    /// Truncates among the changes, and which.
    pub(crate) truncates: u64,
    pub(crate) truncated: Found,
    /// Updates that did not send every column.
    pub(crate) partial: u64,
}

/// Which records are read.
#[derive(Clone)]
pub(crate) enum Wanted {
    /// Those of some batches; `except` are left out, and counted as dropped.
    Range { range: Range, except: Arc<Places> },
    /// These alone.
    Only(Arc<Places>),
    /// Those of some batches once more, in silence.
    Again { range: Range, except: Arc<Places> },
    /// Those that arrived in the same batches as `these`, without `except`. What cannot go on is passed over: it was
    /// told when it arrived.
    Beside { these: Arc<Places>, except: Arc<Places> },
}

/// Where rejected rows go.
pub(crate) enum Rejects {
    /// Into quarantine.
    Refused(QuarantineWriter),
    /// Back into quarantine, from where they come: the writer, when each was first seen, the number of the replay.
    Again(QuarantineWriter, Arc<Places>, i64),
}

/// What was read, after all of it was.
pub(crate) struct Read {
    pub(crate) tally: Tally,
    pub(crate) writer: QuarantineWriter,
    /// The places of those that went back.
    pub(crate) refused: Places,
}

/// Changes as they are decoded: the frame can be computed once, then [`finish`](Changes::finish) has the counts.
pub(crate) struct Changes {
    pub(crate) frame: DataFrame,
    tally: Arc<Mutex<Tally>>,
    collector: tokio::task::JoinHandle<Result<(QuarantineWriter, Places)>>,
}

/// The records of `range`, counted by the table itself.
pub(crate) async fn count(bronze: &Table, range: Range, session: &Session) -> Result<u64> {
    let wanted = Wanted::Range { range, except: Arc::default() };
    Ok(records(bronze, &wanted, session).await?.count().await? as u64)
}

/// The records that are wanted, before any is left out.
pub(crate) async fn records(bronze: &Table, wanted: &Wanted, session: &Session) -> Result<DataFrame> {
    let batch_id = ident(columns::BATCH_ID);
    let wanted = match wanted {
        Wanted::Range { range, .. } | Wanted::Again { range, .. } => {
            batch_id.clone().gt(lit(range.after)).and(batch_id.lt_eq(lit(range.upto)))
        }
        Wanted::Only(places) | Wanted::Beside { these: places, .. } => {
            let batches = places.batches();
            let (first, last) = (batches.first().copied().unwrap_or(0), batches.last().copied().unwrap_or(0));
            let between = batch_id.clone().between(lit(first), lit(last));
            if batches.len() > BATCHES_NAMED_MAX {
                between
            } else {
                between.and(batch_id.in_list(batches.into_iter().map(lit).collect(), false))
            }
        }
    };
    Ok(session.context().read_table(session.provider(bronze).await?)?.filter(wanted)?)
}

/// Begins to read records.
pub(crate) async fn changes(
    bronze: &Table,
    wanted: Wanted,
    decoder: &Arc<Decoder>,
    rejects: Rejects,
    session: &Session,
    ctx: &RunContext,
) -> Result<Changes> {
    let records = records(bronze, &wanted, session).await?;
    let mut streams = records.execute_stream_partitioned().await?;
    if streams.is_empty() {
        streams.push(Box::pin(EmptyRecordBatchStream::new(bronze.schema())));
    }
    let tally = Arc::new(Mutex::new(Tally::default()));
    let (sender, receiver) = mpsc::channel(REJECTED_WAITING_MAX);
    let collector = tokio::spawn(collect(receiver, rejects));
    let partitions = streams.into_iter().map(|stream| {
        let decoding = Decoding {
            decoder: Arc::clone(decoder),
            tally: Arc::clone(&tally),
            rejected: sender.clone(),
            wanted: wanted.clone(),
            ctx: ctx.clone(),
        };
        Arc::new(Once::new(decoder.schema(), decoding.run(stream))) as Arc<dyn PartitionStream>
    });
    let table = StreamingTable::try_new(decoder.schema(), partitions.collect())?;
    let frame = session.context().read_table(Arc::new(table))?;
    Ok(Changes { frame, tally, collector })
}

impl Changes {
    /// The counts and the rejected rows, after the frame was computed.
    pub(crate) async fn finish(self) -> Result<Read> {
        drop(self.frame);
        let collected = self.collector.await;
        let collected = collected.map_err(|error| Error::internal("the quarantine ended early").with_source(error));
        let (writer, refused) = collected??;
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Read { tally, writer, refused })
    }
}

/// Decodes one stream of records.
struct Decoding {
    decoder: Arc<Decoder>,
    tally: Arc<Mutex<Tally>>,
    rejected: mpsc::Sender<Vec<Rejected>>,
    wanted: Wanted,
    ctx: RunContext,
}

impl Decoding {
    fn run(
        self,
        records: SendableRecordBatchStream,
    ) -> impl Stream<Item = datafusion::error::Result<RecordBatch>> + Send + 'static {
        let decoding = Arc::new(self);
        records.then(move |batch| {
            let decoding = Arc::clone(&decoding);
            async move { Ok(decoding.one(&batch?).await?) }
        })
    }

    async fn one(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.ctx.stop.check()?;
        let (batch, left_out) = self.wanted.of(batch)?;
        let decoded = self.decoder.decode(&batch)?;
        let Decoded { changes, truncates, rejected, refused, read, added, ignored, dropped, held, partial } = decoded;
        self.ctx.meter.add_rows(read);
        let found = truncates.num_rows() as u64;
        {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.truncated.add(truncates, self.decoder.plan())?;
            if let Wanted::Beside { .. } | Wanted::Again { .. } = self.wanted {
                return Ok(changes);
            }
            tally.read += read;
            tally.added += added;
            tally.truncates += found;
            tally.partial += partial;
            tally.dropped += left_out.num_rows() as u64;
            tally.rejected += refused;
            tally.ignored += ignored;
            tally.dropped += dropped;
            if self.decoder.takes_extracts() {
                let refused = rejected.iter().map(|record| (record.batch_id, record.file_path.clone()));
                tally.incomplete.extend(refused);
                tally.incomplete.extend(files_of(&left_out)?);
            }
            tally.held.resize(held.len(), Tested::default());
            tally.held.iter_mut().zip(held).for_each(|(total, more)| total.add(more));
        }
        if !rejected.is_empty() && self.rejected.send(rejected).await.is_err() {
            return Err(Error::internal("the quarantine ended before the records"));
        }
        Ok(changes)
    }
}

impl Wanted {
    /// The same records once more.
    pub(crate) fn again(self) -> Self {
        match self {
            Self::Range { range, except } => Self::Again { range, except },
            other => other,
        }
    }

    /// The rows of a batch that are wanted, and those that a decision left out.
    fn of(&self, batch: &RecordBatch) -> Result<(RecordBatch, RecordBatch)> {
        let mask = match self {
            Self::Range { except, .. } | Self::Again { except, .. } if except.is_empty() => {
                return Ok((batch.clone(), batch.slice(0, 0)));
            }
            Self::Only(these) => these.mask(batch)?,
            Self::Range { except, .. } | Self::Again { except, .. } | Self::Beside { except, .. } => {
                not(&except.mask(batch)?)?
            }
        };
        let rows = filter_record_batch(batch, &mask)?;
        let left_out = match self {
            Self::Range { .. } => filter_record_batch(batch, &not(&mask)?)?,
            Self::Only(_) | Self::Again { .. } | Self::Beside { .. } => batch.slice(0, 0),
        };
        Ok((rows, left_out))
    }
}

/// The batches and files of records.
fn files_of(records: &RecordBatch) -> Result<BTreeSet<(i64, String)>> {
    let missing = || Error::internal("records do not say where they come from");
    let batches = records.column_by_name(columns::BATCH_ID).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let paths = records.column_by_name(columns::FILE_PATH).and_then(|column| column.as_string_opt::<i32>());
    let (batches, paths) = (batches.ok_or_else(missing)?, paths.ok_or_else(missing)?);
    Ok((0..records.num_rows()).map(|row| (batches.value(row), paths.value(row).to_owned())).collect())
}

async fn collect(mut receiver: mpsc::Receiver<Vec<Rejected>>, rejects: Rejects) -> Result<(QuarantineWriter, Places)> {
    let mut refused = Places::default();
    match rejects {
        Rejects::Refused(mut writer) => {
            while let Some(rows) = receiver.recv().await {
                for row in rows {
                    writer.push(row).await?;
                }
            }
            Ok((writer, refused))
        }
        Rejects::Again(mut writer, seen, replay) => {
            while let Some(rows) = receiver.recv().await {
                for row in rows {
                    let first_seen_us = seen.get(row.batch_id, &row.file_path, row.row_number).unwrap_or_default();
                    refused.add(row.batch_id, &row.file_path, row.row_number, 0);
                    writer.push_again(row, Again { first_seen_us, replay }).await?;
                }
            }
            Ok((writer, refused))
        }
    }
}

/// A stream that can be read once, as a partition of a table.
pub(crate) struct Once {
    schema: SchemaRef,
    stream: Mutex<Option<SendableRecordBatchStream>>,
}

impl Once {
    pub(crate) fn new(
        schema: SchemaRef,
        stream: impl Stream<Item = datafusion::error::Result<RecordBatch>> + Send + 'static,
    ) -> Self {
        let stream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), Box::pin(stream)));
        Self { schema, stream: Mutex::new(Some(stream)) }
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.unwrap_or_else(|| {
            let again = Err(Error::internal("changes can be read once").into());
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter([again])))
        })
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("records as they are decoded")
    }
}
