//! What the changes of each key come to together with the row that the table holds: for updates that do not send every
//! column, and for truncates. Where a run has neither, the last change of each key is all there is to know.
//!
//! Stored rows, remembered deletes and changes are sorted by key; then [`Registers`] take one key after the other. What
//! comes out is one change for each key whose row changes: a whole row, or a delete.

mod group;
mod output;

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, cast, ident, lit};
use futures::{Stream, TryStreamExt, stream};
use lake::quarantine::Rejected;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Error, Result, TableName, columns};

use self::group::Group;
use self::output::Output;
use crate::change::UNSENT;
use crate::generated::Generated;
use crate::history::COUNTED;
use crate::order::oldest_first;
use crate::position::{Position, Positions};
use crate::read::Once;
use crate::registers::{Event, Source};
use crate::set_at::SetAt;
use crate::truncates::Truncate;

/// What a row stands for: one of the constants below.
const KIND: &str = "__kind";
const STORED: i32 = 0;
const REMEMBERED: i32 = 1;
const CHANGE: i32 = 2;

/// A value: which of the batches at hand, which row of it.
type Place = (usize, usize);
/// The batch of nulls is always the first of those at hand.
const NULL: Place = (0, 0);

/// How a table is folded.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) table: TableName,
    /// The columns of the table.
    pub(crate) target: SchemaRef,
    /// The columns of the changes, by whose places their bits say what updates did not send. The table may have them in
    /// another order: columns that join come last there.
    pub(crate) sent: Vec<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) sequence: Vec<String>,
    /// Whether updates may not send every column.
    pub(crate) is_partial: bool,
    /// The truncate of this run, if it is newer than the one that is remembered.
    pub(crate) truncate: Option<Truncate>,
    /// The truncate that is remembered.
    pub(crate) remembered: Option<Truncate>,
    /// The columns that are computed of whole rows.
    pub(crate) generated: Generated,
}

/// What became of the changes.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    /// Changes that the rows and deletes are made of.
    pub(crate) applied: u64,
    /// Changes that others of this run have overtaken.
    pub(crate) superseded: u64,
    /// Changes that say nothing new.
    pub(crate) stale: u64,
    /// Updates of rows that are not there, without a value that the table must have.
    pub(crate) incomplete: Vec<Rejected>,
    /// Rows that the truncate removes.
    pub(crate) truncated: u64,
    /// Rows that have a column which no change has set.
    pub(crate) unset: u64,
}

impl Shape {
    /// Folds changes into the rows of the table that have their keys, and of a truncate also those that it touches.
    /// All frames have the columns of the changes; `stored` and `remembered` may lack those that order arrivals.
    pub(crate) async fn fold(
        self,
        changes: DataFrame,
        stored: DataFrame,
        remembered: Option<DataFrame>,
        session: &Session,
    ) -> Result<(Staged, Folded)> {
        let schema: SchemaRef = Arc::new(changes.schema().as_arrow().clone());
        let mut all = of_kind(changes, &schema, CHANGE)?.union(of_kind(stored, &schema, STORED)?)?;
        if let Some(remembered) = remembered {
            all = all.union(of_kind(remembered, &schema, REMEMBERED)?)?;
        }
        let keys = self.keys.iter().map(|key| ident(key).sort(true, true)).chain([ident(KIND).sort(true, true)]);
        let sorted = all.sort(keys.chain(oldest_first(&self.sequence)).collect())?;
        let schema: SchemaRef = Arc::new(sorted.schema().as_arrow().clone());
        let figures = Arc::new(Mutex::new(Folded::default()));
        let folder = Folder::new(self, &schema, Arc::clone(&figures))?;
        let output = folder.output.schema();
        let stream = Once::new(Arc::clone(&output), folder.run(sorted.execute_stream().await?));
        let table = StreamingTable::try_new(output, vec![Arc::new(stream)])?;
        let staged = Staged::write(session.context().read_table(Arc::new(table))?).await?;
        let mut folded = figures.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((staged, std::mem::take(&mut *folded)))
    }
}

/// The rows with the columns of `schema`, null where they have none.
fn of_kind(rows: DataFrame, schema: &SchemaRef, kind: i32) -> Result<DataFrame> {
    let held = rows.schema().as_arrow().clone();
    let column = |name: &str, kind: &DataType| -> Result<Expr> {
        Ok(match held.index_of(name) {
            Ok(_) => cast(ident(name), kind.clone()).alias(name),
            Err(_) => lit(ScalarValue::try_from(kind)?).alias(name),
        })
    };
    let columns = schema.fields().iter().map(|field| column(field.name(), field.data_type()));
    let columns = columns.chain([Ok(lit(kind).alias(KIND))]).collect::<Result<Vec<_>>>()?;
    Ok(rows.select(columns)?)
}

/// Takes sorted rows, gives changes.
struct Folder {
    shape: Arc<Shape>,
    output: Output,
    converter: RowConverter,
    keys: Vec<usize>,
    kinds: Vec<DataType>,
    /// The batches at hand: nulls, the truncates, and those of the open group.
    pool: Vec<RecordBatch>,
    /// How many of them stay.
    fixed: usize,
    truncate: Option<Event<Place>>,
    remembered: Option<Event<Place>>,
    open: Option<(Vec<u8>, Group)>,
    figures: Arc<Mutex<Folded>>,
}

impl Folder {
    fn new(shape: Shape, input: &SchemaRef, figures: Arc<Mutex<Folded>>) -> Result<Self> {
        let output = Output::new(&shape, input)?;
        let keys = shape.keys.iter().map(|key| Ok(input.index_of(key)?)).collect::<Result<Vec<_>>>()?;
        let fields = keys.iter().map(|key| SortField::new(input.field(*key).data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        let kinds = crate::position::kinds(input, &shape.sequence)?;
        let nulls = input.fields().iter().map(|field| arrow::array::new_null_array(field.data_type(), 1));
        let nullable = input.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let nullable: SchemaRef = Arc::new(arrow::datatypes::Schema::new(nullable.collect::<Vec<_>>()));
        let mut pool = vec![RecordBatch::try_new(Arc::clone(&nullable), nulls.collect())?];
        let mut event = |truncate: &Option<Truncate>, source| -> Result<Option<Event<Place>>> {
            let Some(truncate) = truncate else { return Ok(None) };
            let columns = nullable.fields().iter().map(|field| match truncate.row.column_by_name(field.name()) {
                Some(column) => Arc::clone(column),
                None => arrow::array::new_null_array(field.data_type(), 1),
            });
            pool.push(RecordBatch::try_new(Arc::clone(&nullable), columns.collect())?);
            Ok(Some(Event { at: Arc::new(truncate.at.clone()), source, place: (pool.len() - 1, 0) }))
        };
        let truncate = event(&shape.truncate, Source::Truncate)?;
        let remembered = event(&shape.remembered, Source::Remembered)?;
        let fixed = pool.len();
        let shape = Arc::new(shape);
        Ok(Self { shape, output, converter, keys, kinds, pool, fixed, truncate, remembered, open: None, figures })
    }

    fn run(
        self,
        rows: SendableRecordBatchStream,
    ) -> impl Stream<Item = datafusion::error::Result<RecordBatch>> + Send + 'static {
        stream::try_unfold(Some((self, rows)), |state| async move {
            let Some((mut folder, mut rows)) = state else { return Ok(None) };
            match rows.try_next().await? {
                Some(batch) => Ok(Some((folder.take(batch)?, Some((folder, rows))))),
                None => Ok(Some((folder.end()?, None))),
            }
        })
    }

    /// Takes a batch and gives what is finished.
    fn take(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let keys: Vec<ArrayRef> = self.keys.iter().map(|key| Arc::clone(batch.column(*key))).collect();
        let keys = self.converter.convert_columns(&keys)?;
        let rows = Rows::of(&batch, &self.shape.sequence)?;
        self.pool.push(batch.clone());
        let number = self.pool.len() - 1;
        for row in 0..batch.num_rows() {
            let key = keys.row(row);
            if self.open.as_ref().is_none_or(|(open, _)| open.as_slice() != key.as_ref()) {
                self.close()?;
                let group = Group::new((number, row), self.output.registers(), self.remembered.as_ref());
                self.open = Some((key.as_ref().to_vec(), group));
            }
            if let Some((_, group)) = &mut self.open {
                self.output.tell(group, &rows, (number, row), &self.kinds)?;
            }
        }
        self.flush()
    }

    fn end(&mut self) -> Result<RecordBatch> {
        self.close()?;
        self.flush()
    }

    /// Ends the open group: its key has no more rows.
    fn close(&mut self) -> Result<()> {
        let Some((_, group)) = self.open.take() else { return Ok(()) };
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        self.output.end(group, self.truncate.as_ref(), (&self.shape, &self.pool), &mut figures)
    }

    /// The finished changes. Of the batches at hand those stay that the open group needs.
    fn flush(&mut self) -> Result<RecordBatch> {
        let flushed = self.shape.generated.fill(self.output.flush(&self.pool)?, &self.shape.keys)?;
        let mut needed = vec![false; self.pool.len()];
        needed[..self.fixed].fill(true);
        if let Some((_, group)) = &mut self.open {
            group.each_place(|place| needed[place.0] = true);
        }
        let mut moved = vec![0; self.pool.len()];
        let mut kept = Vec::new();
        for (number, batch) in self.pool.drain(..).enumerate() {
            moved[number] = kept.len();
            if needed[number] {
                kept.push(batch);
            }
        }
        if let Some((_, group)) = &mut self.open {
            group.each_place(|place| place.0 = moved[place.0]);
        }
        self.pool = kept;
        Ok(flushed)
    }
}

/// The columns of a batch that say what its rows are.
struct Rows<'a> {
    kind: &'a ArrayRef,
    delete: &'a ArrayRef,
    unsent: Option<&'a ArrayRef>,
    counted: Option<&'a ArrayRef>,
    set_at: Option<&'a ArrayRef>,
    positions: Positions<'a>,
}

impl<'a> Rows<'a> {
    fn of(batch: &'a RecordBatch, sequence: &[String]) -> Result<Self> {
        let column = |name: &str| {
            batch.column_by_name(name).ok_or_else(|| Error::internal(format!("changes have no column `{name}`")))
        };
        Ok(Self {
            kind: column(KIND)?,
            delete: column(lake::upsert::DELETE)?,
            unsent: batch.column_by_name(UNSENT),
            counted: batch.column_by_name(COUNTED),
            set_at: batch.column_by_name(columns::SET_AT),
            positions: Positions::of(batch, sequence)?,
        })
    }

    fn kind(&self, row: usize) -> i32 {
        self.kind.as_primitive::<Int32Type>().value(row)
    }

    fn at(&self, row: usize) -> Position {
        self.positions.at(row)
    }

    fn deletes(&self, row: usize) -> bool {
        let delete = self.delete.as_boolean();
        delete.is_valid(row) && delete.value(row)
    }

    fn is_counted(&self, row: usize) -> bool {
        self.counted.is_none_or(|counted| counted.as_boolean().value(row))
    }

    /// The bits of the columns that a change did not send.
    fn unsent(&self, row: usize) -> Option<&'a [u8]> {
        self.unsent.map(|unsent| unsent.as_binary::<i32>()).filter(|unsent| unsent.is_valid(row)).map(|u| u.value(row))
    }

    fn set_at(&self, row: usize, kinds: &[DataType]) -> SetAt {
        let text = self.set_at.map(|column| column.as_string::<i32>()).filter(|column| column.is_valid(row));
        text.map(|text| SetAt::read(text.value(row), kinds)).unwrap_or_default()
    }
}
