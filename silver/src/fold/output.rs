//! The changes that come out of a fold: whole rows and deletes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use lake::quarantine::Rejected;
use lake::upsert::DELETE;
use lake::{Result, columns};

use super::group::{Group, Partial};
use super::{CHANGE, Folded, NULL, Place, REMEMBERED, Rows, STORED, Shape};
use crate::generated::Column;
use crate::registers::{Event, Registers, Source};
use crate::set_at::SetAt;

/// Finished changes, and how their columns are put together.
pub(super) struct Output {
    schema: SchemaRef,
    /// For each column of the table its place in the input, and where its values come from.
    columns: Vec<(usize, From)>,
    /// The columns that updates may leave out: the bits that say so (`None` for one that no change has), their names, whether
    /// they need a value.
    registers: Vec<(Option<usize>, String, bool)>,
    /// The generated columns that need a value, with the place of each column of the table that they are made of.
    needed: Vec<(Column, Vec<(String, usize)>)>,
    finished: Vec<Finished>,
}

/// Where the values of a column come from.
#[derive(Clone, Copy)]
enum From {
    Key,
    /// The change that decides: the sequence and the batch.
    Change,
    /// The upsert as a whole.
    Row,
    Register(usize),
    SetAt,
    /// None: the column is computed of the others.
    Generated,
}

struct Finished {
    key: Place,
    change: Place,
    is_delete: bool,
    /// Where the values of the columns are.
    values: Vec<Place>,
    set_at: Option<String>,
}

impl Output {
    pub(super) fn new(shape: &Shape, input: &SchemaRef) -> Result<Self> {
        let is_order = |name: &str| name == columns::BATCH_ID || shape.sequence.iter().any(|part| part == name);
        let mut registers = Vec::new();
        let mut places = Vec::new();
        let generated = shape.generated.columns();
        for field in shape.target.fields() {
            let name = field.name();
            let from = if shape.keys.contains(name) {
                From::Key
            } else if is_order(name) {
                From::Change
            } else if name == columns::SET_AT {
                From::SetAt
            } else if generated.iter().any(|column| column.name == *name) {
                From::Generated
            } else if shape.is_partial {
                let bit = shape.sent.iter().position(|sent| sent == name);
                registers.push((bit, name.clone(), !field.is_nullable()));
                From::Register(registers.len() - 1)
            } else {
                From::Row
            };
            places.push((input.index_of(name)?, from));
        }
        let is_needed =
            |column: &&Column| shape.target.field_with_name(&column.name).is_ok_and(|own| !own.is_nullable());
        let needed = generated.iter().filter(is_needed).map(|column| {
            let inputs = column.inputs.iter().map(|name| Ok((name.clone(), shape.target.index_of(name)?)));
            Ok((column.clone(), inputs.collect::<Result<Vec<_>>>()?))
        });
        let needed = needed.collect::<Result<Vec<_>>>()?;
        let nullable = shape.target.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let fields = nullable.chain([Field::new(DELETE, DataType::Boolean, false)]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { schema, columns: places, registers, needed, finished: Vec::new() })
    }

    /// The columns of the changes that come out.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// How many columns updates may leave out.
    pub(super) fn registers(&self) -> usize {
        self.registers.len()
    }

    /// Tells a group what a row of the input says.
    pub(super) fn tell(&self, group: &mut Group, rows: &Rows<'_>, place: Place, kinds: &[DataType]) -> Result<()> {
        let row = place.1;
        let at = Arc::new(rows.at(row));
        let event = |source| Event { at: Arc::clone(&at), source, place };
        match rows.kind(row) {
            STORED => {
                let set_at = rows.set_at(row, kinds);
                group.stored(&event(Source::Stored), |number| set_at.of(&self.registers[number].1, &at));
            }
            REMEMBERED => group.delete(&event(Source::Remembered)),
            CHANGE => {
                let event = event(Source::Change(rows.is_counted(row).then_some(group.counted)));
                if rows.deletes(row) {
                    group.delete(&event);
                } else {
                    let bits: Vec<Option<usize>> = self.registers.iter().map(|(bit, ..)| *bit).collect();
                    group.upsert(&event, &bits, rows.unsent(row));
                }
            }
            other => return Err(lake::Error::internal(format!("rows of kind {other} cannot be folded"))),
        }
        Ok(())
    }

    /// Ends a group, whose values are in the batches of `pool`.
    pub(super) fn end(
        &mut self,
        mut group: Group,
        truncate: Option<&Event<Place>>,
        (shape, pool): (&Shape, &[RecordBatch]),
        figures: &mut Folded,
    ) -> Result<()> {
        if let Some(truncate) = truncate {
            group.whole.delete(truncate);
            group.base.delete(truncate);
        }
        let mut incomplete = 0;
        let mut is_whole = true;
        if let Some(missing) = self.missing(&group.whole, group.key, pool)? {
            let since = group.whole.delete.as_ref().map(|delete| Arc::clone(&delete.at));
            let is_alive = |partial: &Partial| since.as_ref().is_none_or(|at| partial.at >= *at);
            for partial in group.partial.drain(..).filter(|partial| partial.is_news && is_alive(partial)) {
                incomplete += 1;
                figures.incomplete.push(self.rejected(shape, &partial.at, missing));
            }
            group.whole = group.base;
            is_whole = self.missing(&group.whole, group.key, pool)?.is_none();
        }
        let makers = group.whole.makers().len() as u64;
        figures.applied += makers;
        figures.superseded += group.news.saturating_sub(incomplete + makers);
        figures.stale += group.counted as u64 - group.news;
        self.finish(group.key, (group.has_row, is_whole), &group.whole, figures);
        Ok(())
    }

    fn finish(
        &mut self,
        key: Place,
        (has_row, is_whole): (bool, bool),
        state: &Registers<Place>,
        figures: &mut Folded,
    ) {
        let nothing = || vec![NULL; self.registers.len()];
        let finished = match (&state.upsert, &state.delete) {
            (Some(_), _) if state.is_stored() => return,
            (Some(upsert), _) if is_whole => {
                let set = state.columns.iter().map(|column| column.event.as_ref().map(|event| event.at.as_ref()));
                figures.unset += u64::from(state.columns.iter().any(|column| column.event.is_none()));
                let names = self.registers.iter().map(|(_, name, _)| name.as_str());
                Finished {
                    key,
                    change: upsert.place,
                    is_delete: false,
                    values: state.columns.iter().map(value).collect(),
                    set_at: SetAt::write(names.zip(set), &upsert.at),
                }
            }
            // A late delete has cleared a value that the table must have: there is no such row.
            (Some(row), _) => Finished { key, change: row.place, is_delete: true, values: nothing(), set_at: None },
            (None, Some(delete)) if has_row || matches!(delete.source, Source::Change(_)) => {
                figures.truncated += u64::from(delete.source == Source::Truncate);
                Finished { key, change: delete.place, is_delete: true, values: nothing(), set_at: None }
            }
            (None, _) => return,
        };
        self.finished.push(finished);
    }

    /// A column that needs a value and has none, where there is a row that is not as it was.
    fn missing(&self, state: &Registers<Place>, key: Place, pool: &[RecordBatch]) -> Result<Option<&str>> {
        let Some(upsert) = &state.upsert else { return Ok(None) };
        let mut columns = self.registers.iter().zip(&state.columns);
        if let Some(((_, name, _), _)) = columns.find(|((.., needed), column)| *needed && value(column) == NULL) {
            return Ok(Some(name));
        }
        if state.is_stored() {
            return Ok(None);
        }
        for (column, inputs) in &self.needed {
            let input = |name: &str| {
                let (_, number) = inputs.iter().find(|(input, _)| input == name)?;
                let (place, from) = self.columns[*number];
                let (batch, row) = match from {
                    From::Key => key,
                    From::Change | From::Row => upsert.place,
                    From::Register(register) => value(&state.columns[register]),
                    From::SetAt | From::Generated => NULL,
                };
                Some(pool.get(batch)?.column(place).slice(row, 1))
            };
            let made = column.values(1, input)?;
            // One that cannot be computed is told of when the row is filled.
            if made.bad.is_empty() && made.array.is_null(0) {
                return Ok(Some(&column.name));
            }
        }
        Ok(None)
    }

    fn rejected(&self, shape: &Shape, at: &crate::position::Position, column: &str) -> Rejected {
        let is_generated = self.needed.iter().any(|(needed, _)| needed.name == *column);
        let what = if is_generated { "what it is made of" } else { "it" };
        let (file, row) = at.arrival.as_ref().map(|arrival| (arrival.file.clone(), arrival.row)).unwrap_or_default();
        Rejected {
            batch_id: at.batch,
            file_path: file,
            row_number: row,
            refused_by: shape.table.clone(),
            reason_kind: "incomplete",
            reason: format!(
                "`{column}` must not be null, the update does not bring {what}, and the row is not in the table: \
                 replay it when the row has come"
            ),
            column: Some(column.to_owned()),
            value: None,
            record: None,
            header: None,
        }
    }

    /// The finished changes as a batch; `pool` are the batches at hand.
    pub(super) fn flush(&mut self, pool: &[RecordBatch]) -> Result<RecordBatch> {
        let finished = std::mem::take(&mut self.finished);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.columns.len() + 1);
        for (column, from) in &self.columns {
            let values: Vec<&dyn Array> = pool.iter().map(|batch| batch.column(*column).as_ref()).collect();
            let place = |one: &Finished| match *from {
                From::Key => one.key,
                From::Change => one.change,
                From::Row if one.is_delete => NULL,
                From::Row => one.change,
                From::Register(number) => one.values[number],
                From::SetAt | From::Generated => NULL,
            };
            if let From::SetAt = from {
                columns.push(Arc::new(finished.iter().map(|one| one.set_at.as_deref()).collect::<StringArray>()));
                continue;
            }
            let places: Vec<Place> = finished.iter().map(place).collect();
            columns.push(interleave(&values, &places)?);
        }
        let deletes: BooleanArray = finished.iter().map(|one| Some(one.is_delete)).collect();
        columns.push(Arc::new(deletes));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// The place of a column's value.
fn value(column: &crate::registers::Register<Place>) -> Place {
    column.event.as_ref().filter(|_| !column.is_cleared).map_or(NULL, |event| event.place)
}
