//! The changes of one key while they are told.

use std::sync::Arc;

use super::Place;
use crate::position::Position;
use crate::registers::{Event, Registers, Source};

/// One key.
pub(super) struct Group {
    /// A row that holds the key.
    pub(super) key: Place,
    /// Everything.
    pub(super) whole: Registers<Place>,
    /// Everything but the upserts of this run: what remains when they cannot go on.
    pub(super) base: Registers<Place>,
    /// Whether the table has a row.
    pub(super) has_row: bool,
    /// Changes that are counted.
    pub(super) counted: usize,
    /// Those of them that said something new.
    pub(super) news: u64,
    /// Counted updates that did not send every column.
    pub(super) partial: Vec<Partial>,
}

/// An update that did not send every column.
pub(super) struct Partial {
    pub(super) at: Arc<Position>,
    pub(super) is_news: bool,
}

impl Group {
    pub(super) fn new(key: Place, columns: usize, remembered: Option<&Event<Place>>) -> Self {
        let mut whole = Registers::new(columns);
        let base = Registers::new(columns);
        let _ = remembered.is_some_and(|event| whole.delete(event));
        let base = if remembered.is_some() { whole.clone() } else { base };
        Self { key, whole, base, has_row: false, counted: 0, news: 0, partial: Vec::new() }
    }

    /// A row as the table holds it.
    pub(super) fn stored(&mut self, row: &Event<Place>, set_at: impl Fn(usize) -> Option<Arc<Position>>) {
        self.has_row = true;
        self.whole.stored(row, &set_at);
        self.base.stored(row, &set_at);
    }

    /// A delete, also one that is remembered.
    pub(super) fn delete(&mut self, event: &Event<Place>) {
        let is_news = self.whole.delete(event);
        self.base.delete(event);
        self.count(event, is_news);
    }

    /// An upsert of this run, with the bits of what it did not send, and which of them is for which column.
    pub(super) fn upsert(&mut self, event: &Event<Place>, of_columns: &[Option<usize>], unsent: Option<&[u8]>) {
        let sets =
            |register: usize| of_columns[register].is_some_and(|bit| unsent.is_none_or(|bits| !has_bit(bits, bit)));
        let is_news = self.whole.upsert(event, sets);
        self.count(event, is_news);
        if unsent.is_some() && matches!(event.source, Source::Change(Some(_))) {
            self.partial.push(Partial { at: Arc::clone(&event.at), is_news });
        }
    }

    fn count(&mut self, event: &Event<Place>, is_news: bool) {
        if let Source::Change(Some(_)) = event.source {
            self.counted += 1;
            self.news += u64::from(is_news);
        }
    }

    /// Every place that the group holds.
    pub(super) fn each_place(&mut self, mut with: impl FnMut(&mut Place)) {
        with(&mut self.key);
        for registers in [&mut self.whole, &mut self.base] {
            let whole = registers.upsert.iter_mut().chain(&mut registers.delete);
            let columns = registers.columns.iter_mut().filter_map(|column| column.event.as_mut());
            whole.chain(columns).for_each(|event| with(&mut event.place));
        }
    }
}

/// Whether a bit is set; what the bits do not reach is not.
pub(super) fn has_bit(bits: &[u8], number: usize) -> bool {
    bits.get(number / 8).is_some_and(|byte| byte & (1 << (number % 8)) != 0)
}
