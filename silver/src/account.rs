//! What became of the records of each file, over the whole life of a table.
//!
//! The figures of a run say what happened in it, and depend on how the files were batched. This account does not: it
//! decodes what has landed by the present spec, asks the quarantine what it holds, and counts which changes are in
//! effect, file by file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{and, concat_batches, filter_record_batch, not, partition};
use arrow::datatypes::Int64Type;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{ident, lit};
use datafusion::physical_plan::streaming::PartitionStream;
use futures::StreamExt;
use lake::columns::{self, FileOrder};
use lake::quarantine::{Filter, Places, Quarantine, Rejected, Status};
use lake::session::Session;
use lake::{Error, ErrorKind, Lake, Result, Table, TableName};

use crate::change::{Decoded, Decoder};
use crate::dedup;
use crate::history::is_needed;
use crate::plan::TablePlan;
use crate::read::{Once, Range, Wanted, records};
use crate::truncates::Truncate;

const COUNT: &str = "__count";

/// What became of the records of one file. `records + added` is the sum of all that follows but `unexplained`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fates {
    /// Records that have landed.
    pub records: u64,
    /// Changes beyond one a record.
    pub added: u64,
    /// Changes that decide what the table holds: the last one of each key, in a table with history each one that is told.
    pub in_effect: u64,
    /// Changes overtaken by another of their key, or by a truncate, whenever either arrived.
    pub superseded: u64,
    /// Changes in quarantine.
    pub quarantined: u64,
    /// Changes left out by an expectation, and records discarded from quarantine.
    pub dropped: u64,
    /// Changes that the spec says to ignore.
    pub ignored: u64,
    /// Records, counted as quarantined, that the present spec refuses and no quarantine holds.
    pub unexplained: u64,
}

/// The account of a table.
#[derive(Debug)]
pub struct Account {
    /// The table.
    pub table: TableName,
    /// The version that was asked.
    pub version: u64,
    /// The last batch of bronze that it has.
    pub batch: i64,
    /// By batch and path of each file, below the landing root.
    pub files: BTreeMap<(i64, String), Fates>,
    /// Records of later batches.
    pub waiting: u64,
}

impl Fates {
    /// These and more, as one.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            records: self.records + more.records,
            added: self.added + more.added,
            in_effect: self.in_effect + more.in_effect,
            superseded: self.superseded + more.superseded,
            quarantined: self.quarantined + more.quarantined,
            dropped: self.dropped + more.dropped,
            ignored: self.ignored + more.ignored,
            unexplained: self.unexplained + more.unexplained,
        }
    }

    /// True when every record is somewhere.
    pub fn adds_up(&self) -> bool {
        let sum = self.in_effect + self.superseded + self.quarantined + self.dropped + self.ignored;
        self.records + self.added == sum && self.unexplained == 0
    }
}

/// Makes up the account of a table by reading all that its source has.
///
/// # Errors
/// [`ErrorKind::Table`] when there is no table or it has applied nothing yet; what reading and decoding fail with.
pub async fn account(lake: &Lake, plan: &TablePlan) -> Result<Account> {
    let table = lake.existing(&plan.table).await?;
    let source = TableName::bronze(&plan.source);
    let bronze = lake.existing(&source).await?;
    let Some(batch) = table.txn_version(&format!("{}:{source}", plan.table)).await? else {
        let message = format!("{} has applied nothing of {source} yet", plan.table);
        return Err(Error::new(ErrorKind::Table, message).hint("bring it up to date: `silver run`"));
    };
    let session = lake.session()?;
    let plan = Arc::new(plan.clone());
    let decoder = Arc::new(Decoder::new(Arc::clone(&plan), &bronze.schema(), FileOrder::of(&bronze)?, &session)?);
    let books = Arc::new(Books::open(lake, &plan, Arc::clone(&decoder)).await?);
    let range = Range { after: i64::MIN, upto: batch };
    let changes = decoded(&bronze, range, &books, &session).await?;
    let memory = lake.engine().memory_bytes;
    let (last, _) = dedup::last(changes, &plan.once_per(), decoder.sequence(), memory).await?;
    let truncate = books.entries().truncate.clone();
    let last = last.frame(&session).await?;
    let last = match &truncate {
        Some(truncate) => last.filter(truncate.outdates(decoder.sequence())?.is_not_true())?,
        None => last,
    };
    books.enter_last(last, truncate).await?;
    let waiting = crate::read::count(&bronze, Range { after: batch, upto: i64::MAX }, &session).await?;
    let files = std::mem::take(&mut books.entries().files);
    Ok(Account { table: plan.table.clone(), version: table.version(), batch, files, waiting })
}

/// The changes of what has landed, entered into the books on their way.
async fn decoded(bronze: &Table, range: Range, books: &Arc<Books>, session: &Session) -> Result<DataFrame> {
    let wanted = Wanted::Range { range, except: Arc::default() };
    let streams = records(bronze, &wanted, session).await?.execute_stream_partitioned().await?;
    let schema = books.decoder.schema();
    let partitions = streams.into_iter().map(|stream| {
        let books = Arc::clone(books);
        let entered = stream.map(move |batch| Ok(books.enter(&batch?)?));
        Arc::new(Once::new(Arc::clone(&schema), entered)) as Arc<dyn PartitionStream>
    });
    let table = StreamingTable::try_new(Arc::clone(&schema), partitions.collect())?;
    Ok(session.context().read_table(Arc::new(table))?)
}

/// The account while it is made up.
struct Books {
    decoder: Arc<Decoder>,
    /// Records in quarantine that may go on some day, and those that were discarded there.
    open: Places,
    discarded: Places,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    files: BTreeMap<(i64, String), Fates>,
    /// The newest, of a table that keeps current rows only.
    truncate: Option<Truncate>,
}

impl Books {
    async fn open(lake: &Lake, plan: &TablePlan, decoder: Arc<Decoder>) -> Result<Self> {
        let (mut open, mut discarded) = (Places::default(), Places::default());
        if let Some(quarantine) = Quarantine::open(lake, &plan.source).await? {
            let of = |status| Filter { refused_by: Some(plan.table.clone()), status, ..Filter::default() };
            open = quarantine.places_of(&of(vec![Status::Open, Status::Replaying])).await?;
            discarded = quarantine.places_of(&of(vec![Status::Discarded])).await?;
        }
        Ok(Self { decoder, open, discarded, entries: Mutex::default() })
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The changes of some records that can be in effect.
    fn enter(&self, records: &RecordBatch) -> Result<RecordBatch> {
        let places = [columns::BATCH_ID, columns::FILE_PATH].map(|name| records.column_by_name(name).cloned());
        let places: Vec<ArrayRef> = places.into_iter().flatten().collect();
        let mut changes = Vec::new();
        // Records of one file stand together.
        for rows in partition(&places)?.ranges() {
            changes.push(self.enter_file(&records.slice(rows.start, rows.len()))?);
        }
        Ok(concat_batches(&self.decoder.schema(), &changes)?)
    }

    fn enter_file(&self, records: &RecordBatch) -> Result<RecordBatch> {
        let file = place(records, 0)?;
        let wanted = filter_record_batch(records, &not(&self.discarded.mask(records)?)?)?;
        let Decoded { changes, truncates, rejected, refused, added, ignored, dropped, .. } =
            self.decoder.decode(&wanted)?;
        let discarded = (records.num_rows() - wanted.num_rows()) as u64;
        let (changes, held) = self.without_held(&changes, &rejected)?;
        let (truncates, truncates_held) = self.without_held(&truncates, &rejected)?;
        let is_unexplained =
            |record: &&Rejected| self.open.get(record.batch_id, &record.file_path, record.row_number).is_none();
        let is_past = is_needed(self.decoder.plan());
        let more = Fates {
            records: records.num_rows() as u64,
            added,
            // Each tells of the past, where there is one.
            in_effect: if is_past { truncates.num_rows() as u64 } else { 0 },
            // Until it is known which are the last.
            superseded: (changes.num_rows() + if is_past { 0 } else { truncates.num_rows() }) as u64,
            quarantined: refused + held + truncates_held,
            dropped: dropped + discarded,
            ignored,
            unexplained: rejected.iter().filter(is_unexplained).count() as u64,
        };
        let newest = Truncate::newest_of(&truncates, self.decoder.sequence())?.filter(|_| !is_past);
        let mut entries = self.entries();
        entries.truncate = Truncate::newer(entries.truncate.take(), newest);
        let fates = entries.files.entry(file).or_default();
        *fates = fates.and(more);
        Ok(changes)
    }

    /// The rows whose records are not in quarantine, and how many others there are. A record that is refused now as it
    /// was then is there for some of its changes only.
    fn without_held(&self, rows: &RecordBatch, rejected: &[Rejected]) -> Result<(RecordBatch, u64)> {
        if self.open.is_empty() || rows.num_rows() == 0 {
            return Ok((rows.clone(), 0));
        }
        let mut refused = Places::default();
        for record in rejected {
            refused.add(record.batch_id, &record.file_path, record.row_number, 0);
        }
        let held: BooleanArray = and(&self.open.mask(rows)?, &not(&refused.mask(rows)?)?)?;
        Ok((filter_record_batch(rows, &not(&held)?)?, held.true_count() as u64))
    }

    /// Turns changes that are the last from superseded ones into those in effect.
    async fn enter_last(&self, last: DataFrame, truncate: Option<Truncate>) -> Result<()> {
        let by = [columns::BATCH_ID, columns::FILE_PATH].map(ident).to_vec();
        let counts = last.aggregate(by, vec![count(lit(1)).alias(COUNT)])?.collect().await?;
        let mut entries = self.entries();
        let mut enter = |file: (i64, String), count: u64| {
            let fates = entries.files.entry(file).or_default();
            fates.in_effect += count;
            fates.superseded = fates.superseded.checked_sub(count)?;
            Some(())
        };
        let lost = || Error::internal("more changes are the last of their key than there are changes");
        for batch in &counts {
            let counts = batch.column_by_name(COUNT).and_then(|column| column.as_primitive_opt::<Int64Type>());
            let counts = counts.ok_or_else(lost)?;
            for row in 0..batch.num_rows() {
                let count = u64::try_from(counts.value(row)).map_err(|_| lost())?;
                enter(place(batch, row)?, count).ok_or_else(lost)?;
            }
        }
        match truncate {
            Some(truncate) => enter(place(&truncate.row, 0)?, 1).ok_or_else(lost),
            None => Ok(()),
        }
    }
}

/// The batch and the file of a row.
fn place(rows: &RecordBatch, row: usize) -> Result<(i64, String)> {
    let missing = || Error::internal("rows do not say where they come from");
    let batch = rows.column_by_name(columns::BATCH_ID).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let path = rows.column_by_name(columns::FILE_PATH).ok_or_else(missing)?;
    let path = arrow::compute::cast(&path.slice(row, 1), &arrow::datatypes::DataType::Utf8)?;
    Ok((batch.ok_or_else(missing)?.value(row), path.as_string::<i32>().value(0).to_owned()))
}
