//! Values that updates did not send: the row keeps what it has.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};

use super::rescue::Restored;
use super::resolve::{ColumnSource, find};
use super::view::Viewed;
use super::{Decoder, Fate, reject};

/// Which columns each record did not send, as bits by the places of the columns among those of the changes.
pub(super) struct Unsent(Vec<Option<Vec<u8>>>);

impl Unsent {
    /// All were sent, in so many records.
    pub(super) fn none(rows: usize) -> Self {
        Self(vec![None; rows])
    }

    pub(super) fn add(&mut self, row: usize, column: usize) {
        let bits = self.0[row].get_or_insert_default();
        if bits.len() <= column / 8 {
            bits.resize(column / 8 + 1, 0);
        }
        bits[column / 8] |= 1 << (column % 8);
    }

    /// A column that was held for unsent has its value from elsewhere.
    pub(super) fn remove(&mut self, row: usize, column: usize) {
        let Some(bits) = &mut self.0[row] else { return };
        if let Some(byte) = bits.get_mut(column / 8) {
            *byte &= !(1 << (column % 8));
        }
        if bits.iter().all(|byte| *byte == 0) {
            self.0[row] = None;
        }
    }

    /// Whether a record did not send a column.
    pub(super) fn has(&self, row: usize, column: usize) -> bool {
        let bits = self.0[row].as_ref().and_then(|bits| bits.get(column / 8));
        bits.is_some_and(|byte| byte & (1 << (column % 8)) != 0)
    }

    /// Whether a record did not send every column.
    pub(super) fn is_partial(&self, row: usize) -> bool {
        self.0[row].is_some()
    }

    /// The names of what records did not send, of these columns, as JSON arrays; null for records that sent everything.
    pub(super) fn names<'a>(&self, columns: impl Iterator<Item = &'a str>) -> StringArray {
        let columns: Vec<&str> = columns.collect();
        let of = |row: usize| {
            let left_out = columns.iter().enumerate().filter(|(column, _)| self.has(row, *column));
            serde_json::Value::from(left_out.map(|(_, name)| *name).collect::<Vec<_>>()).to_string()
        };
        (0..self.0.len()).map(|row| self.is_partial(row).then(|| of(row))).collect()
    }

    /// The bits as a column, null for records that sent everything.
    pub(super) fn column(&self) -> BinaryArray {
        self.0.iter().map(Option::as_deref).collect()
    }
}

impl Decoder {
    /// Notes which values of a column were not sent, and takes those out that only stand for one.
    pub(super) fn without_unsent(
        &self,
        (number, column): (usize, &ColumnSource),
        values: ArrayRef,
        (viewed, restored): (&Viewed<'_>, &Restored),
        fates: &mut [Fate],
        unsent: &mut Unsent,
    ) -> ArrayRef {
        let partial = &self.plan.partial;
        if !partial.is_on() && partial.placeholders.is_empty() {
            return values;
        }
        let is_key = self.plan.keys.contains(&column.name);
        let is_bound = self.plan.is_bound(column.nullable);
        let texts = values.as_string_opt::<i32>().filter(|_| !partial.placeholders.is_empty());
        let placeholder = |row: usize| {
            let text = texts.filter(|texts| texts.is_valid(row)).map(|texts| texts.value(row));
            text.filter(|text| partial.placeholders.iter().any(|known| known == text))
        };
        let place = find(self.view.bronze(), &column.source);
        let is_absent = |row: usize| {
            viewed.is_absent(row, &column.source) && !place.is_some_and(|place| restored.is_explicit_null(place, row))
        };
        let mut stands_for = Vec::new();
        for (row, fate) in fates.iter_mut().enumerate().take(values.len()) {
            if !matches!(fate, Fate::Upsert) {
                continue;
            }
            if let Some(text) = placeholder(row) {
                if is_key || is_bound {
                    let what = if is_key { "is a key" } else { self.plan.why_bound() };
                    let reason = format!("`{}` did not change and was not sent, and {what}", column.name);
                    reject(fate, "unchanged", reason, Some(&column.name), Some(text.to_owned()));
                }
                stands_for.push(row);
                unsent.add(row, number);
            } else if !is_key
                && partial.is_on()
                && values.is_null(row)
                && (partial.null || partial.absent && is_absent(row))
            {
                unsent.add(row, number);
            }
        }
        match texts.filter(|_| !stands_for.is_empty()) {
            Some(texts) => {
                let kept = texts.iter().enumerate();
                let kept = kept.map(|(row, text)| text.filter(|_| stands_for.binary_search(&row).is_err()));
                Arc::new(kept.collect::<StringArray>())
            }
            None => values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_bits_for_what_it_did_not_send() {
        let mut unsent = Unsent::none(2);
        unsent.add(1, 9);
        unsent.add(1, 0);
        assert!(unsent.has(1, 9) && unsent.has(1, 0) && !unsent.has(1, 1) && !unsent.has(0, 0));
        assert!(unsent.is_partial(1) && !unsent.is_partial(0));
        let column = unsent.column();
        assert!(column.is_null(0) && column.value(1) == [1, 2]);
        unsent.remove(0, 3);
        unsent.remove(1, 9);
        assert!(unsent.is_partial(1) && unsent.has(1, 0) && !unsent.has(1, 9));
        unsent.remove(1, 0);
        assert!(!unsent.is_partial(1) && unsent.column().is_null(1), "it sent everything");
    }
}
