//! Truncates among the changes of keys: each is a delete of every key that is alive where it stands.
//!
//! They are remembered once and not by key. A fold that may need them puts, behind each upsert, the first truncate that
//! comes after it; one that finds the key deleted already says nothing. Where a truncate has deleted a row, the row's
//! mark or end tells of it and not of a delete of the key: a truncate that comes late may stand before it.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, UInt32Array};
use arrow::array::{StringArray, new_null_array};
use arrow::compute::{cast, concat, concat_batches, take, take_record_batch};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef};
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::functions_window::expr_fn::lead;
use datafusion::logical_expr::{Expr, ExprFunctionExt, WindowFrame, ident, lit};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use lake::session::Session;
use lake::stage::Staged;
use lake::upsert::{DELETE, older};
use lake::{Error, Result, Table, columns};

use super::Incoming;
use super::events::{COUNTED, Events, NEW, OF_TRUNCATE, OLD_FILE, ORIGIN, REMEMBERED, ROW, TRUNCATE};
use super::partial::counted;
use crate::change::{CHANGE_NUMBER, FILE_RANK, FILE_TIME, OP_RANK, RANK_IN_FILE};
use crate::plan::Kept;
use crate::position::{Part, Position, Positions};
use crate::truncates::{Truncate, Truncates};

/// Whether a delete of a key stands where a truncate stands: its mark on a row would be taken for that of the truncate.
pub(super) const COINCIDES: &str = "__coincides";
const EARLIER: &str = "__earlier_delete";
const TOLD_HERE: &str = "__told_here";
/// The row number of the mark of a row: it came after all that is known at its place.
const OF_MARK: i64 = i64::MAX;

/// The place of a delete as a table keeps it.
type Place = (Vec<Part>, i64);

/// The truncates that a fold must know.
#[derive(Debug)]
pub(super) struct Truncated {
    /// All, the oldest first: what orders them, as changes have it.
    list: RecordBatch,
    at: Vec<Position>,
    /// Whether each only stands beside changes that come from quarantine: it is remembered as well.
    beside: Vec<bool>,
    /// The places of all, and of those that are remembered.
    places: BTreeSet<Place>,
    remembered: BTreeSet<Place>,
    /// The first and the last of those that arrived.
    arrived: Option<(Truncate, Truncate)>,
    keeps_versions: bool,
}

impl Truncated {
    /// `None` where none can matter: there are none, or all changes are newer than those that are remembered, of which
    /// the rows tell then. They do not tell an update that leaves out columns what a truncate before it took away.
    pub(super) async fn of(
        events: &Events<'_>,
        remembered: Option<&Truncates<'_>>,
        arrived: Incoming<'_>,
        session: &Session,
    ) -> Result<Option<Self>> {
        let Incoming { changes, truncates: own, beside, again } = arrived;
        let Some(remembered) = remembered else { return Ok(None) };
        if own.all.is_empty() {
            let Some(newest) = remembered.newest() else { return Ok(None) };
            let are_told = !again && !events.plan.partial.is_on();
            if are_told && !is_any_late(events, newest, changes, session).await? {
                return Ok(None);
            }
        }
        let sequence = events.plan.sequence_columns();
        let keeps_versions = matches!(events.plan.kept, Kept::History(_));
        let schema = list_schema(events)?;
        let ordered = |rows: &[RecordBatch], remembered| -> Result<Vec<RecordBatch>> {
            rows.iter().map(|rows| ordered(rows, &schema, remembered)).collect()
        };
        let (known, own_rows) = (ordered(remembered.all(), true)?, ordered(&own.all, false)?);
        let parts: Vec<String> = sequence.iter().cloned().chain([OP_RANK.to_owned()]).collect();
        let places = |lists: &[RecordBatch]| -> Result<BTreeSet<Place>> {
            let mut places = BTreeSet::new();
            for list in lists {
                let positions = Positions::of(list, &parts)?;
                places.extend((0..list.num_rows()).map(|row| place(&positions.at(row), keeps_versions)));
            }
            Ok(places)
        };
        let remembered = places(&known)?;
        let mut all = [known, own_rows].concat();
        let places = places(&all)?;
        let counted = all.iter().map(RecordBatch::num_rows).sum();
        all.extend(ordered(&beside.all, false)?);
        let list = concat_batches(&schema, &all)?;
        let positions = Positions::of(&list, &parts)?;
        let mut order: Vec<(Position, usize)> = (0..list.num_rows()).map(|row| (positions.at(row), row)).collect();
        order.sort();
        let rows = UInt32Array::from_iter_values(order.iter().map(|(_, row)| u32::try_from(*row).unwrap_or(u32::MAX)));
        let list = take_record_batch(&list, &rows)?;
        let beside = order.iter().map(|(_, row)| *row >= counted).collect();
        let at = order.into_iter().map(|(at, _)| at).collect();
        let mut bounds: Option<(Truncate, Truncate)> = None;
        for rows in &own.all {
            for row in 0..rows.num_rows() {
                let Some(truncate) = Truncate::newest_of(&rows.slice(row, 1), &sequence)? else { continue };
                bounds = Some(match bounds {
                    None => (truncate.clone(), truncate),
                    Some((first, last)) if truncate.at < first.at => (truncate, last),
                    Some((first, last)) if truncate.at > last.at => (first, truncate),
                    Some(bounds) => bounds,
                });
            }
        }
        Ok(Some(Self { list, at, beside, places, remembered, arrived: bounds, keeps_versions }))
    }

    /// The number of the first that comes after a change. What was there before knows of one that is remembered by that
    /// alone.
    fn after(&self, at: &Position, is_new: bool) -> Option<usize> {
        let next = self.at.partition_point(|truncate| truncate <= at);
        (next..self.at.len()).find(|number| is_new || !self.beside[*number])
    }

    /// The keys of changes and of the rows that a truncate which arrived may change.
    pub(super) async fn touched(
        &self,
        events: &Events<'_>,
        table: &Table,
        changes: &Staged,
        session: &Session,
    ) -> Result<Staged> {
        let Some((first, last)) = &self.arrived else { return Ok(changes.clone()) };
        let target = events.target();
        let keys = events.plan.keys.iter().map(|key| {
            let kind = target.field_with_name(key)?.data_type().clone();
            Ok(datafusion::logical_expr::cast(ident(key), kind).alias(key))
        });
        let keys: Vec<Expr> = keys.collect::<Result<Vec<_>>>()?;
        let rows = session.context().read_table(session.provider(table).await?)?;
        let hit = rows.filter(is_hit(events, first, last)?)?.select(keys.clone())?;
        let own = changes.frame(session).await?.select(keys)?;
        Staged::write(own.union(hit)?.distinct()?).await
    }

    /// The changes with the truncates that delete their keys.
    pub(super) async fn among(self, all: DataFrame, events: &Events<'_>, session: &Session) -> Result<DataFrame> {
        let keeps_versions = self.keeps_versions;
        let held: SchemaRef = Arc::new(all.schema().as_arrow().clone());
        let fields = held.fields().iter().map(|field| field.as_ref().clone());
        let schema =
            Arc::new(Schema::new(fields.chain([Field::new(COINCIDES, DataType::Boolean, false)]).collect::<Vec<_>>()));
        let weaver = Arc::new(Weaver {
            parts: events.plan.sequence_columns().into_iter().chain([OP_RANK.to_owned()]).collect(),
            keys: events.plan.keys.clone(),
            schema: Arc::clone(&schema),
            truncated: self,
        });
        let streams = all.execute_stream_partitioned().await?.into_iter().map(|stream| {
            let weaver = Arc::clone(&weaver);
            let woven = stream.map(move |batch| Ok(weaver.weave(&batch?)?));
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), woven)) as SendableRecordBatchStream
        });
        let woven = Staged::write_streams(Arc::clone(&schema), streams.collect()).await?;
        let woven = woven.frame(session).await?;
        let columns: Vec<Expr> = schema.fields().iter().map(|field| ident(field.name())).collect();
        let woven = if keeps_versions { woven } else { without_told(woven, events)?.select(columns.clone())? };
        let earlier = lead(ident(DELETE), Some(1), None).partition_by(events.keys());
        let earlier = earlier.order_by(events.newest_first()).build()?.alias(EARLIER);
        let is_idle = ident(ORIGIN).eq(lit(TRUNCATE)).and(ident(EARLIER).is_not_false());
        Ok(woven.window(vec![earlier])?.filter(is_idle.is_not_true())?.select(columns)?)
    }
}

/// The changes without remembered truncates whose place among the changes of a key is known: by the mark of the row, which
/// came last there, or by a delete that is remembered with its place. Otherwise upserts at the same place came later: before
/// them was nothing to delete.
fn without_told(woven: DataFrame, events: &Events<'_>) -> Result<DataFrame> {
    let place = events.plan.sequence_columns().into_iter().chain([columns::BATCH_ID.to_owned()]).map(ident);
    let place: Vec<Expr> = events.keys().into_iter().chain(place).collect();
    let is_truncate = || ident(ORIGIN).eq(lit(TRUNCATE));
    let is_mark = is_truncate().and(ident(columns::ROW_NUMBER).eq(lit(OF_MARK)));
    let tells = is_mark.or(ident(ORIGIN).eq(lit(REMEMBERED)).and(ident(DELETE)));
    let told = counted(tells, &place, &[], WindowFrame::new(None), TOLD_HERE)?;
    let is_remembered = is_truncate().and(ident(columns::ROW_NUMBER).eq(lit(OF_TRUNCATE)));
    Ok(woven.window(vec![told])?.filter(is_remembered.and(ident(TOLD_HERE).gt(lit(0_i64))).is_not_true())?)
}

/// Puts truncates among changes.
struct Weaver {
    truncated: Truncated,
    parts: Vec<String>,
    keys: Vec<String>,
    schema: SchemaRef,
}

impl Weaver {
    fn weave(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let column = |name: &str| {
            batch.column_by_name(name).ok_or_else(|| Error::internal(format!("changes have no column `{name}`")))
        };
        let positions = Positions::of(batch, &self.parts)?;
        let deletes = column(DELETE)?.as_boolean();
        let mut origins = column(ORIGIN)?.as_primitive::<Int32Type>().values().to_vec();
        let mut numbers = column(columns::ROW_NUMBER)?.as_primitive::<Int64Type>().values().to_vec();
        let mut coincides = vec![false; batch.num_rows()];
        let (mut of, mut by) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let (at, number) = (positions.at(row), u32::try_from(row).unwrap_or(u32::MAX));
            if !deletes.value(row) {
                if let Some(next) = self.truncated.after(&at, origins[row] == NEW) {
                    of.push(number);
                    by.push(u32::try_from(next).unwrap_or(u32::MAX));
                }
                continue;
            }
            let place = place(&at, self.truncated.keeps_versions);
            if origins[row] == ROW && self.truncated.remembered.contains(&place) {
                origins[row] = TRUNCATE;
                if !self.truncated.keeps_versions {
                    numbers[row] = OF_MARK;
                }
            } else {
                coincides[row] = self.truncated.places.contains(&place);
            }
        }
        let own = self.schema.fields().iter().map(|field| -> Result<ArrayRef> {
            Ok(match field.name().as_str() {
                ORIGIN => Arc::new(Int32Array::from(origins.clone())),
                columns::ROW_NUMBER => Arc::new(Int64Array::from(numbers.clone())),
                COINCIDES => Arc::new(BooleanArray::from(coincides.clone())),
                name => Arc::clone(column(name)?),
            })
        });
        let own = own.collect::<Result<Vec<_>>>()?;
        let (of, by) = (UInt32Array::from(of), UInt32Array::from(by));
        let woven = self.schema.fields().iter().zip(own).map(|(field, own)| {
            let truncates = self.of_truncates(field, &own, &of, &by)?;
            Ok(concat(&[own.as_ref(), cast(&truncates, own.data_type())?.as_ref()])?)
        });
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), woven.collect::<Result<Vec<_>>>()?)?)
    }

    /// A column of the truncates `by` for the keys of the changes `of`.
    fn of_truncates(&self, field: &Field, own: &ArrayRef, of: &UInt32Array, by: &UInt32Array) -> Result<ArrayRef> {
        let name = field.name();
        if self.keys.contains(name) {
            return Ok(take(own, of, None)?);
        }
        if let Some(column) = self.truncated.list.column_by_name(name) {
            return Ok(take(column, by, None)?);
        }
        Ok(match name.as_str() {
            DELETE => Arc::new(BooleanArray::from(vec![true; by.len()])),
            COINCIDES | COUNTED => Arc::new(BooleanArray::from(vec![false; by.len()])),
            ORIGIN => Arc::new(Int32Array::from(vec![TRUNCATE; by.len()])),
            _ => new_null_array(field.data_type(), by.len()),
        })
    }
}

/// Where a delete stands for the table: where versions are kept its batch does not count.
fn place(at: &Position, keeps_versions: bool) -> Place {
    (at.parts.clone(), if keeps_versions { 0 } else { at.batch })
}

/// What orders truncates.
fn list_schema(events: &Events<'_>) -> Result<SchemaRef> {
    let base = events.base();
    let parts = events.plan.sequence_columns();
    let parts = parts.iter().map(|name| Ok(base.field_with_name(name)?.clone())).collect::<Result<Vec<_>>>()?;
    let numbers = |names: &[&str], kind: DataType| -> Vec<Field> {
        names.iter().map(|name| Field::new(*name, kind.clone(), false)).collect()
    };
    let long = numbers(&[columns::BATCH_ID, FILE_TIME, columns::ROW_NUMBER], DataType::Int64);
    let short = numbers(&[OP_RANK, FILE_RANK, RANK_IN_FILE, CHANGE_NUMBER], DataType::Int32);
    let path = numbers(&[columns::FILE_PATH], DataType::Utf8);
    Ok(Arc::new(Schema::new(parts.into_iter().chain(long).chain(short).chain(path).collect::<Vec<_>>())))
}

/// What orders some truncates; of those that are remembered that is before all else at their place that is known.
fn ordered(rows: &RecordBatch, schema: &SchemaRef, remembered: bool) -> Result<RecordBatch> {
    let count = rows.num_rows();
    let columns = schema.fields().iter().map(|field| -> Result<ArrayRef> {
        let is_kept = field.name().starts_with(columns::SEQUENCE_PREFIX) || field.name() == columns::BATCH_ID;
        if is_kept || !remembered {
            let missing = || Error::internal(format!("truncates have no column `{}`", field.name()));
            return Ok(cast(rows.column_by_name(field.name()).ok_or_else(missing)?, field.data_type())?);
        }
        Ok(match field.name().as_str() {
            FILE_RANK => Arc::new(Int32Array::from(vec![OLD_FILE; count])),
            columns::ROW_NUMBER => Arc::new(Int64Array::from(vec![OF_TRUNCATE; count])),
            columns::FILE_PATH => Arc::new(StringArray::from(vec![""; count])),
            FILE_TIME => Arc::new(Int64Array::from(vec![0; count])),
            _ => Arc::new(Int32Array::from(vec![0; count])),
        })
    });
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<Vec<_>>>()?)?)
}

/// Whether a change is not newer than the newest truncate that is remembered.
async fn is_any_late(events: &Events<'_>, newest: &Truncate, changes: &Staged, session: &Session) -> Result<bool> {
    let sequence = events.plan.sequence_columns();
    let is_newer = match events.plan.kept {
        // Changes of one sequence are at one place there.
        Kept::History(_) => older(&newest.turned(&sequence, false)?),
        Kept::Current | Kept::Marked => newest.precedes(&sequence)?,
    };
    let late = changes.frame(session).await?.filter(is_newer.is_not_true())?;
    Ok(late.limit(0, Some(1))?.count().await? > 0)
}

/// True for rows that a truncate from the first to the last may change.
fn is_hit(events: &Events<'_>, first: &Truncate, last: &Truncate) -> Result<Expr> {
    let plan = events.plan;
    let sequence = plan.sequence_columns();
    if let Kept::History(_) = plan.kept {
        let begins_after = older(&last.turned(&sequence, false)?);
        let ends = events.end_parts();
        let own = first.turned(&sequence, false)?.into_iter().map(|(truncate, _)| truncate);
        let ends_after = older(&own.zip(ends).collect::<Vec<_>>());
        let is_open = ident(columns::END_AT).is_null().or(ends_after);
        return Ok(begins_after.is_not_true().and(is_open));
    }
    let marks = (0..plan.sequence.len()).map(columns::deleted_sequence).chain([columns::DELETED_BATCH_ID.to_owned()]);
    let own = first.turned(&sequence, true)?.into_iter().map(|(truncate, _)| truncate);
    let was_deleted = older(&marks.map(ident).zip(own).collect::<Vec<_>>());
    let is_deleted = ident(columns::IS_DELETED).and(was_deleted);
    let is_hit = last.precedes(&sequence)?.is_not_true().and(is_deleted.is_not_true());
    // What an update left out it has from the changes before it.
    Ok(match plan.partial.is_on() {
        true => is_hit.or(ident(columns::NOT_SENT).is_not_null()),
        false => is_hit,
    })
}
