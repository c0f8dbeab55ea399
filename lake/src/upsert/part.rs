//! What decides of the changes, as many of them at a time as may be held.

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::DataType;

use super::{DELETE, Upsert, held_bytes};
use crate::error::{Error, Result};
use crate::lakehouse::Lake;
use crate::stage::Staged;
use crate::table::Table;

/// The columns of some of the changes that decide what they do.
pub(super) struct Part {
    /// The number of the first of them.
    pub(super) first: usize,
    pub(super) keys: Vec<ArrayRef>,
    pub(super) order: Vec<ArrayRef>,
    pub(super) delete: ArrayRef,
}

impl Part {
    /// All changes in parts, in their order.
    pub(super) fn all(
        upsert: &Upsert,
        lake: &Lake,
        table: &Table,
        changes: &Staged,
    ) -> Result<impl Iterator<Item = Result<Self>> + use<>> {
        let columns = Columns::new(upsert, table, changes)?;
        let rows = usize::try_from(changes.rows()).unwrap_or(usize::MAX);
        if u32::try_from(rows).is_err() {
            return Err(Error::internal(format!("{rows} changes are more than one upsert can take")));
        }
        let budget = held_bytes(lake);
        let mut batches = changes.batches(&columns.ascending, 0..rows)?.peekable();
        let mut first = 0;
        Ok(std::iter::from_fn(move || {
            batches.peek()?;
            let (mut held, mut bytes) = (Vec::new(), 0);
            while bytes < budget
                && let Some(batch) = batches.next()
            {
                match batch {
                    Ok(batch) => {
                        bytes += bytes_of(&batch);
                        held.push(batch);
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            let part = columns.part(first, &held);
            first += held.iter().map(RecordBatch::num_rows).sum::<usize>();
            Some(part)
        }))
    }
}

/// Which columns decide, and where they are.
struct Columns {
    /// The places of those of the key, of those of the order, and of the one that says what deletes; and their types.
    places: Vec<(usize, DataType)>,
    /// How many of them are of the key.
    keys: usize,
    /// The places that are read.
    ascending: Vec<usize>,
}

impl Columns {
    fn new(upsert: &Upsert, table: &Table, changes: &Staged) -> Result<Self> {
        let (held, schema) = (table.schema(), changes.schema());
        let order = upsert.order_in(&held);
        let names = upsert.keys.iter().map(String::as_str).chain(order).chain([DELETE]);
        let place = |name: &str| {
            let place = schema.index_of(name)?;
            // The table's type, where it has the column.
            let field = held.field_with_name(name).unwrap_or_else(|_| schema.field(place));
            Ok((place, field.data_type().clone()))
        };
        let places = names.map(place).collect::<Result<Vec<_>>>()?;
        let mut ascending: Vec<usize> = places.iter().map(|(place, _)| *place).collect();
        ascending.sort_unstable();
        ascending.dedup();
        Ok(Self { places, keys: upsert.keys.len(), ascending })
    }

    /// Batches of the columns that are read, as one part.
    fn part(&self, first: usize, batches: &[RecordBatch]) -> Result<Part> {
        let columns = self.places.iter().map(|(place, kind)| self.whole(batches, *place, kind));
        let mut keys = columns.collect::<Result<Vec<_>>>()?;
        let delete = keys.pop().ok_or_else(|| Error::internal("changes without columns"))?;
        let order = keys.split_off(self.keys);
        Ok(Part { first, keys, order, delete })
    }

    fn whole(&self, batches: &[RecordBatch], place: usize, kind: &DataType) -> Result<ArrayRef> {
        let at = self.ascending.binary_search(&place);
        let at = at.map_err(|_| Error::internal("a column is not among those read"))?;
        let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(at).as_ref()).collect();
        let whole = if parts.is_empty() { new_empty_array(kind) } else { concat(&parts)? };
        Ok(if whole.data_type() == kind { whole } else { cast(&whole, kind)? })
    }
}

/// Bytes of the rows of a batch, which may be a part of what its arrays hold.
fn bytes_of(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}
