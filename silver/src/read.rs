//! The records of bronze that a silver table has not seen, decoded on all cores as a table of changes.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::dataframe::DataFrame;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ident, lit};
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{Stream, StreamExt};
use lake::quarantine::{QuarantineWriter, Rejected};
use lake::run::RunContext;
use lake::session::Session;
use lake::{Error, Result, Table, columns};
use tokio::sync::mpsc;

use crate::change::{Decoded, Decoder};

/// Batches of rejected rows waiting to be encoded.
const REJECTED_WAITING_MAX: usize = 16;

/// The bronze batches of one run: above `after`, up to `upto`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) after: i64,
    pub(crate) upto: i64,
}

/// Counts of decoding, over all streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) rejected: u64,
    pub(crate) ignored: u64,
    pub(crate) dropped: u64,
    pub(crate) warned: Vec<u64>,
}

/// Where rejected rows go.
pub(crate) struct Rejects {
    pub(crate) writer: QuarantineWriter,
    /// The batches up to this one have theirs in quarantine already.
    pub(crate) written_upto: i64,
}

/// Changes as they are decoded: the frame can be computed once, then [`finish`](Changes::finish) has the counts.
pub(crate) struct Changes {
    pub(crate) frame: DataFrame,
    tally: Arc<Mutex<Tally>>,
    collector: tokio::task::JoinHandle<Result<QuarantineWriter>>,
}

/// The records of `range`, counted by the table itself.
pub(crate) async fn count(bronze: &Table, range: Range, session: &Session) -> Result<u64> {
    Ok(records(bronze, range, session).await?.count().await? as u64)
}

async fn records(bronze: &Table, range: Range, session: &Session) -> Result<DataFrame> {
    let batch_id = ident(columns::BATCH_ID);
    let wanted = batch_id.clone().gt(lit(range.after)).and(batch_id.lt_eq(lit(range.upto)));
    Ok(session.context().read_table(session.provider(bronze).await?)?.filter(wanted)?)
}

/// Begins to read the records of `range`.
pub(crate) async fn changes(
    bronze: &Table,
    range: Range,
    decoder: &Arc<Decoder>,
    rejects: Rejects,
    session: &Session,
    ctx: &RunContext,
) -> Result<Changes> {
    let records = records(bronze, range, session).await?;
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
    pub(crate) async fn finish(self) -> Result<(Tally, QuarantineWriter)> {
        drop(self.frame);
        let writer = self.collector.await;
        let writer = writer.map_err(|error| Error::internal("the quarantine ended early").with_source(error))??;
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((tally, writer))
    }
}

/// Decodes one stream of records.
struct Decoding {
    decoder: Arc<Decoder>,
    tally: Arc<Mutex<Tally>>,
    rejected: mpsc::Sender<Vec<Rejected>>,
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
        let Decoded { changes, rejected, read, ignored, dropped, warned } = self.decoder.decode(batch)?;
        self.ctx.meter.add_rows(read);
        {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.rejected += rejected.len() as u64;
            tally.ignored += ignored;
            tally.dropped += dropped;
            tally.warned.resize(warned.len(), 0);
            tally.warned.iter_mut().zip(warned).for_each(|(total, more)| *total += more);
        }
        if !rejected.is_empty() && self.rejected.send(rejected).await.is_err() {
            return Err(Error::internal("the quarantine ended before the records"));
        }
        Ok(changes)
    }
}

async fn collect(mut receiver: mpsc::Receiver<Vec<Rejected>>, rejects: Rejects) -> Result<QuarantineWriter> {
    let Rejects { mut writer, written_upto } = rejects;
    while let Some(rows) = receiver.recv().await {
        for row in rows.into_iter().filter(|row| row.batch_id > written_upto) {
            writer.push(row).await?;
        }
    }
    Ok(writer)
}

/// A stream that can be read once, as a partition of a table.
struct Once {
    schema: SchemaRef,
    stream: Mutex<Option<SendableRecordBatchStream>>,
}

impl Once {
    fn new(
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
