//! The keys of the changes, to be looked up by many threads at once.
//!
//! A hash table of row numbers with open addressing, behind a filter of a few bits a key that tells most rows of a table
//! apart from all changes at once. Only what passes both is compared, value by value; null equals null.

use std::cmp::Ordering;

use arrow::array::{ArrayRef, make_comparator};
use arrow::compute::SortOptions;
use datafusion::common::hash_utils::{RandomState, create_hashes};

use crate::error::{Error, Result};

/// Slots for each key, at least.
const SLOTS_PER_KEY: usize = 2;
/// Bits of the filter for each key, at least.
const BITS_PER_KEY: usize = 8;
const SEED: u64 = 0x006d_6564_616c;
const EMPTY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Index {
    keys: Vec<ArrayRef>,
    state: RandomState,
    filter: Vec<u64>,
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The upper half of the hash.
    tag: u32,
    /// The number of the change; [`EMPTY`] for none.
    change: u32,
}

/// A row that has the key of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) row: u32,
    pub(super) change: u32,
}

impl Index {
    /// The index of changes with these key columns.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when two changes have the same key.
    pub(super) fn new(keys: Vec<ArrayRef>) -> Result<Self> {
        let rows = rows_of(&keys);
        if u32::try_from(rows).is_err() {
            return Err(Error::internal(format!("{rows} changes are more than one upsert can take")));
        }
        let state = RandomState::with_seed(SEED);
        let filter = vec![0; (rows * BITS_PER_KEY).next_power_of_two().max(64) / 64];
        let slots = vec![Slot { tag: 0, change: EMPTY }; (rows * SLOTS_PER_KEY).next_power_of_two().max(2)];
        let mut index = Self { keys, state, filter, slots };
        index.fill(rows)?;
        Ok(index)
    }

    fn fill(&mut self, rows: usize) -> Result<()> {
        let hashes = self.hashes(&self.keys, rows)?;
        let same = Comparison::new(&self.keys, &self.keys)?;
        for (change, hash) in hashes.into_iter().enumerate() {
            let (word, bit) = self.bit(hash);
            self.filter[word] |= bit;
            let mut at = self.slot(hash);
            while self.slots[at].change != EMPTY {
                let held = self.slots[at];
                if held.tag == tag(hash) && same.of(change, held.change as usize) == Ordering::Equal {
                    return Err(Error::internal("two changes of one upsert have the same key"));
                }
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = Slot { tag: tag(hash), change: u32::try_from(change).unwrap_or(EMPTY) };
        }
        Ok(())
    }

    /// The rows of a batch with these key columns that have the key of a change, in their order.
    pub(super) fn matches(&self, keys: &[ArrayRef]) -> Result<Vec<Match>> {
        let rows = rows_of(keys);
        let hashes = self.hashes(keys, rows)?;
        let same = Comparison::new(keys, &self.keys)?;
        let mut matches = Vec::new();
        for (row, hash) in hashes.into_iter().enumerate() {
            let (word, bit) = self.bit(hash);
            if self.filter[word] & bit == 0 {
                continue;
            }
            let mut at = self.slot(hash);
            while self.slots[at].change != EMPTY {
                let held = self.slots[at];
                if held.tag == tag(hash) && same.of(row, held.change as usize) == Ordering::Equal {
                    matches.push(Match { row: u32::try_from(row).unwrap_or(EMPTY), change: held.change });
                    break;
                }
                at = (at + 1) & (self.slots.len() - 1);
            }
        }
        Ok(matches)
    }

    fn hashes(&self, keys: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
        let mut hashes = vec![0; rows];
        create_hashes(keys, &self.state, &mut hashes)?;
        Ok(hashes)
    }

    fn bit(&self, hash: u64) -> (usize, u64) {
        let bit = (hash >> 20) as usize & (self.filter.len() * 64 - 1);
        (bit / 64, 1 << (bit % 64))
    }

    fn slot(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn rows_of(columns: &[ArrayRef]) -> usize {
    columns.first().map_or(0, |column| column.len())
}

/// Rows of one batch beside rows of another, column by column; null comes first and equals null.
pub(super) struct Comparison {
    columns: Vec<arrow::array::DynComparator>,
}

impl Comparison {
    pub(super) fn new(left: &[ArrayRef], right: &[ArrayRef]) -> Result<Self> {
        let options = SortOptions { descending: false, nulls_first: true };
        let columns = left.iter().zip(right);
        let columns = columns.map(|(left, right)| Ok(make_comparator(left.as_ref(), right.as_ref(), options)?));
        Ok(Self { columns: columns.collect::<Result<_>>()? })
    }

    pub(super) fn of(&self, left: usize, right: usize) -> Ordering {
        let parts = self.columns.iter().map(|compare| compare(left, right));
        parts.fold(Ordering::Equal, Ordering::then)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn keys(numbers: Vec<Option<i64>>, texts: Vec<Option<&str>>) -> Vec<ArrayRef> {
        vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringArray::from(texts))]
    }

    #[test]
    fn keys_are_found_by_all_their_parts_and_null_meets_null() {
        let index = Index::new(keys(vec![Some(1), None, Some(1)], vec![Some("a"), Some("a"), None])).expect("an index");
        let rows = keys(vec![None, Some(1), Some(2), Some(1), None], vec![Some("a"), None, Some("a"), Some("b"), None]);
        let found: Vec<(u32, u32)> =
            index.matches(&rows).expect("matches").iter().map(|found| (found.row, found.change)).collect();
        assert_eq!(found, [(0, 1), (1, 2)]);
    }

    #[test]
    fn many_keys_are_all_found_and_no_other() {
        let numbers = |from: i64, step: usize| -> Vec<ArrayRef> {
            vec![Arc::new(Int64Array::from_iter_values((from..from + 20_000).step_by(step)))]
        };
        let index = Index::new(numbers(0, 3)).expect("an index");
        let found = index.matches(&numbers(0, 1)).expect("matches");
        assert_eq!(found.len(), 20_000_usize.div_ceil(3));
        assert!(found.iter().all(|found| found.row == found.change * 3));
    }

    #[test]
    fn two_changes_of_a_key_are_refused_and_no_changes_are_not() {
        let twice = keys(vec![None, None], vec![Some("a"), Some("a")]);
        assert!(Index::new(twice).expect_err("an error").to_string().contains("same key"));
        let none = Index::new(keys(Vec::new(), Vec::new())).expect("an index");
        assert_eq!(none.matches(&keys(vec![Some(1)], vec![None])).expect("matches"), []);
    }
}
