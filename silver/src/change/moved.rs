//! A record that changes its key is two changes: the delete of the old key and the upsert of the new one.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::kernels::zip::zip;
use lake::Result;
use lake::columns::NOT_SENT;
use lake::expression::Values;
use lake::schema::ColumnType;
use lake::upsert::DELETE;

use super::derived::Input;
use super::unsent::Unsent;
use super::view::Viewed;
use super::{Decoder, Fate, UNSENT, record, reject, reject_value, without_empty};

/// The keys that records had before.
pub(super) struct OldKeys {
    /// Whether the record changes its key, by row.
    changed: Vec<bool>,
    /// The old keys by their places among the columns of the table.
    keys: Vec<(usize, ArrayRef)>,
}

impl OldKeys {
    /// Deletes of the old keys, for the upserts among the records; `all` are the changes of all records.
    pub(super) fn deletes(self, all: &RecordBatch, fates: &[Fate]) -> Result<RecordBatch> {
        let mut columns = all.columns().to_vec();
        for (position, key) in self.keys {
            columns[position] = key;
        }
        let delete = all.schema().index_of(DELETE)?;
        columns[delete] = Arc::new(BooleanArray::from(vec![true; all.num_rows()]));
        for name in [UNSENT, NOT_SENT] {
            if let Ok(unsent) = all.schema().index_of(name) {
                columns[unsent] = new_null_array(columns[unsent].data_type(), all.num_rows());
            }
        }
        let changed = fates.iter().zip(&self.changed);
        let changed: BooleanArray =
            changed.map(|(fate, changed)| Some(*changed && matches!(fate, Fate::Upsert))).collect();
        Ok(filter_record_batch(&RecordBatch::try_new(all.schema(), columns)?, &changed)?)
    }
}

/// What a column held before; what it holds now where the record does not say.
fn old_texts(viewed: &Viewed<'_>, new: ArrayRef, name: &str) -> ArrayRef {
    let Some(texts) = new.as_string_opt::<i32>() else { return new };
    let old = (0..texts.len()).map(|row| match viewed.old(row, name) {
        Some(value) => value.map(Cow::into_owned),
        None => texts.is_valid(row).then(|| texts.value(row).to_owned()),
    });
    Arc::new(old.collect::<StringArray>())
}

impl Decoder {
    /// The keys that records had before, where a record changes its key.
    pub(super) fn old_keys(
        &self,
        viewed: &Viewed<'_>,
        records: &[ArrayRef],
        typed: &[ArrayRef],
        fates: &mut [Fate],
    ) -> Result<Option<OldKeys>> {
        let rows = fates.len();
        if self.plan.paths.before.is_none() {
            return Ok(None);
        }
        let mut changed = vec![false; rows];
        let mut keys = Vec::new();
        for position in self.resolved.key_positions() {
            let column = &self.resolved.columns()[*position];
            let (old, failed) = match self.derived.of(&column.name) {
                Some(made) => {
                    let old = |input: &Input| old_texts(viewed, input.of(records, rows), &input.name);
                    let Values { array, failed } = made.values(rows, old)?;
                    (array, failed)
                }
                None => (old_texts(viewed, column.of(records, rows), &column.source), Vec::new()),
            };
            let mut cast = column.cast(&old);
            cast.bad.extend(failed);
            for (row, text) in cast.bad {
                if matches!(fates[row], Fate::Upsert) {
                    reject_value(&mut fates[row], format!("before: {text}"), &column.name, record::value(&old, row));
                }
            }
            let is_partition = self.plan.partition_by.contains(&column.name);
            let array = if is_partition { without_empty(cast.array)? } else { cast.array };
            let differs = distinct(&array, &typed[*position])?;
            changed.iter_mut().enumerate().for_each(|(row, changed)| *changed |= differs.value(row));
            keys.push((*position, array));
        }
        // Old values without a key say nothing about it, and where a part must not be null no row was without it.
        let nullable = |position: usize| self.resolved.columns()[position].nullable;
        for (row, changed) in changed.iter_mut().enumerate() {
            *changed &= keys.iter().any(|(_, key)| key.is_valid(row));
            *changed &= keys.iter().all(|(position, key)| nullable(*position) || key.is_valid(row));
        }
        Ok(changed.contains(&true).then_some(OldKeys { changed, keys }))
    }

    /// Gives records that change their key the values that they did not send but had before, where they say so. The row
    /// under the old key goes, so one that still lacks a value is refused as a whole.
    pub(super) fn whole_under_new_key(
        &self,
        old: &OldKeys,
        viewed: &Viewed<'_>,
        typed: &mut [ArrayRef],
        fates: &mut [Fate],
        unsent: &mut Unsent,
    ) -> Result<()> {
        let moves = |row: &usize| old.changed[*row] && unsent.is_partial(*row) && matches!(fates[*row], Fate::Upsert);
        let moved: Vec<usize> = (0..fates.len()).filter(moves).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let placeholders = &self.plan.partial.placeholders;
        for (number, column) in self.resolved.columns().iter().enumerate() {
            // What an expression makes, and what only the schema beside the record tells how to read, is not in the image.
            let is_coded = viewed.has_schemas() && matches!(column.kind, ColumnType::Binary | ColumnType::Decimal(..));
            if is_coded || self.derived.of(&column.name).is_some() {
                continue;
            }
            let mut texts: Vec<Option<String>> = vec![None; fates.len()];
            let mut known = vec![false; fates.len()];
            for row in moved.iter().copied().filter(|row| unsent.has(*row, number)) {
                let Some(before) = viewed.old(row, &column.source) else { continue };
                if before.as_deref().is_some_and(|text| placeholders.iter().any(|known| known == text)) {
                    continue;
                }
                (texts[row], known[row]) = (before.map(Cow::into_owned), true);
            }
            if !known.contains(&true) {
                continue;
            }
            let texts: ArrayRef = Arc::new(texts.into_iter().collect::<StringArray>());
            let cast = column.cast(&texts);
            for (row, text) in cast.bad {
                let value = record::value(&texts, row);
                reject_value(&mut fates[row], format!("before: {text}"), &column.name, value);
            }
            typed[number] = zip(&BooleanArray::from(known.clone()), &cast.array, &typed[number])?;
            for row in known.iter().enumerate().filter(|(_, known)| **known).map(|(row, _)| row) {
                unsent.remove(row, number);
            }
        }
        // Where null means that a value was not sent, a row of nulls may be all that there is.
        for row in moved.into_iter().filter(|row| !self.plan.partial.null && unsent.is_partial(*row)) {
            let lacking = self.resolved.columns().iter().enumerate().find(|(number, _)| unsent.has(row, *number));
            let Some((_, column)) = lacking else { continue };
            let reason = format!(
                "the record changes the key and does not bring `{}`, nor what it was before; the row under the old key stays",
                column.name
            );
            reject(&mut fates[row], "incomplete", reason, Some(&column.name), None);
        }
        Ok(())
    }
}
