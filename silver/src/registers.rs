//! What the changes of one key come to, whatever the order in which they are told: each column holds the value of the
//! newest change that set it, a delete clears what is older than it, and the newest of all says whether there is a row.

use std::sync::Arc;

use crate::position::Position;

/// Where a change is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The row of the table.
    Stored,
    /// A delete or truncate of an earlier run.
    Remembered,
    /// The truncate of this run.
    Truncate,
    /// A change of this run, by its number where it is counted.
    Change(Option<usize>),
}

/// A change and where its values are.
#[derive(Debug, Clone)]
pub(crate) struct Event<P> {
    pub(crate) at: Arc<Position>,
    pub(crate) source: Source,
    pub(crate) place: P,
}

/// A column: the change that set it, and whether that change cleared it.
#[derive(Debug, Clone)]
pub(crate) struct Register<P> {
    pub(crate) event: Option<Event<P>>,
    pub(crate) is_cleared: bool,
}

/// The state of one key.
#[derive(Debug, Clone)]
pub(crate) struct Registers<P> {
    /// The newest upsert.
    pub(crate) upsert: Option<Event<P>>,
    /// The newest delete.
    pub(crate) delete: Option<Event<P>>,
    /// The columns.
    pub(crate) columns: Vec<Register<P>>,
}

impl<P: Copy> Registers<P> {
    /// Nothing yet, for a row of so many columns.
    pub(crate) fn new(columns: usize) -> Self {
        let column = Register { event: None, is_cleared: false };
        Self { upsert: None, delete: None, columns: vec![column; columns] }
    }

    /// Takes a row as the table holds it; `set_at` says when each column was set, `None` for never.
    pub(crate) fn stored(&mut self, row: &Event<P>, set_at: impl Fn(usize) -> Option<Arc<Position>>) {
        self.upsert = Some(row.clone());
        for (number, column) in self.columns.iter_mut().enumerate() {
            *column = Register { event: set_at(number).map(|at| Event { at, ..row.clone() }), is_cleared: false };
        }
    }

    /// Takes an upsert that sets some of the columns; true when it said something new.
    pub(crate) fn upsert(&mut self, event: &Event<P>, sets: impl Fn(usize) -> bool) -> bool {
        if self.delete.as_ref().is_some_and(|delete| event.at < delete.at) {
            return false;
        }
        let mut is_news = !is_older(event, self.upsert.as_ref());
        if is_news {
            self.upsert = Some(event.clone());
        }
        for (_, column) in self.columns.iter_mut().enumerate().filter(|(number, _)| sets(*number)) {
            if !is_older(event, column.event.as_ref()) {
                *column = Register { event: Some(event.clone()), is_cleared: false };
                is_news = true;
            }
        }
        is_news
    }

    /// Takes a delete of all that is older than it; true when it said something new.
    pub(crate) fn delete(&mut self, event: &Event<P>) -> bool {
        if is_older(event, self.delete.as_ref()) {
            return false;
        }
        self.delete = Some(event.clone());
        let mut is_news = self.upsert.as_ref().is_none_or(|upsert| upsert.at < event.at);
        if is_news {
            self.upsert = None;
        }
        for column in &mut self.columns {
            if column.event.as_ref().is_none_or(|held| held.at < event.at) {
                *column = Register { event: Some(event.clone()), is_cleared: true };
                is_news = true;
            }
        }
        is_news
    }

    /// The changes of this run that the result is made of.
    pub(crate) fn makers(&self) -> Vec<usize> {
        let whole = self.upsert.as_ref().or(self.delete.as_ref());
        let columns = self.upsert.iter().flat_map(|_| &self.columns).filter_map(|column| column.event.as_ref());
        let number = |event: &Event<P>| match event.source {
            Source::Change(number) => number,
            Source::Stored | Source::Remembered | Source::Truncate => None,
        };
        let mut makers: Vec<usize> = whole.into_iter().chain(columns).filter_map(number).collect();
        makers.sort_unstable();
        makers.dedup();
        makers
    }

    /// Whether the row is what the table held.
    pub(crate) fn is_stored(&self) -> bool {
        let is_stored = |event: &Event<P>| event.source == Source::Stored;
        self.upsert.as_ref().is_some_and(is_stored)
            && self.columns.iter().all(|column| column.event.as_ref().is_none_or(is_stored))
    }
}

/// Of the same position the later told wins.
fn is_older<P>(event: &Event<P>, held: Option<&Event<P>>) -> bool {
    held.is_some_and(|held| event.at < held.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::at;

    /// Position, and which of two columns an upsert sets; `None` is a delete.
    type Told = (i128, Option<[bool; 2]>);

    fn event((number, _): Told) -> Event<i128> {
        Event { at: Arc::new(at(number, 1, 1)), source: Source::Change(None), place: number }
    }

    fn tell(told: &[Told]) -> Registers<i128> {
        let mut registers = Registers::new(2);
        for told in told {
            match told.1 {
                Some(sets) => registers.upsert(&event(*told), |number| sets[number]),
                None => registers.delete(&event(*told)),
            };
        }
        registers
    }

    /// The row: for each column the change that gave its value.
    fn row(registers: &Registers<i128>) -> Option<[Option<i128>; 2]> {
        registers.upsert.as_ref()?;
        let value = |column: &Register<i128>| column.event.as_ref().filter(|_| !column.is_cleared).map(|e| e.place);
        Some([value(&registers.columns[0]), value(&registers.columns[1])])
    }

    /// The plain meaning: changes in their order.
    fn fold(told: &[Told]) -> Option<[Option<i128>; 2]> {
        let mut told = told.to_vec();
        told.sort_by_key(|(number, _)| *number);
        told.into_iter().fold(None, |row: Option<[Option<i128>; 2]>, (number, sets)| {
            let mut row = row.unwrap_or_default();
            let sets = sets?;
            (0..2).filter(|column| sets[*column]).for_each(|column| row[column] = Some(number));
            Some(row)
        })
    }

    #[test]
    fn any_order_of_any_changes_gives_what_their_own_order_gives() {
        let kinds = [None, Some([true, true]), Some([true, false]), Some([false, true]), Some([false, false])];
        for history in 0..kinds.len().pow(4) {
            let kind = |place: u32| kinds[history / kinds.len().pow(place) % kinds.len()];
            let told: Vec<Told> = (0..4).map(|place| (i128::from(place), kind(place))).collect();
            let expected = fold(&told);
            for order in permutations(4) {
                let shuffled: Vec<Told> = order.iter().map(|place| told[*place]).collect();
                assert_eq!(row(&tell(&shuffled)), expected, "{shuffled:?}");
                let twice: Vec<Told> = shuffled.iter().chain(&shuffled[..2]).copied().collect();
                assert_eq!(row(&tell(&twice)), expected, "{twice:?}");
            }
        }
    }

    fn permutations(length: usize) -> Vec<Vec<usize>> {
        if length == 0 {
            return vec![Vec::new()];
        }
        let shorter = permutations(length - 1);
        let grown = shorter.iter().flat_map(|order| {
            (0..=order.len()).map(|place| {
                let mut order = order.clone();
                order.insert(place, length - 1);
                order
            })
        });
        grown.collect()
    }

    #[test]
    fn a_change_that_says_nothing_new_is_told_apart() {
        let full = Some([true, true]);
        let mut registers = tell(&[(1, full), (5, Some([true, false]))]);
        assert!(registers.upsert(&event((3, None)), |number| number == 1), "it fills the other column");
        assert!(!registers.upsert(&event((2, None)), |_| true));
        assert!(registers.delete(&event((4, None))), "it clears what was set before it");
        assert!(!registers.upsert(&event((3, None)), |_| true));
        assert_eq!(row(&registers), Some([Some(5), None]));
        assert!(!registers.delete(&event((2, None))));
    }

    #[test]
    fn the_row_of_the_table_counts_whatever_is_remembered_beside_it() {
        let mut registers = tell(&[(1, None)]);
        registers.stored(&event((5, None)), |number| (number == 0).then(|| Arc::new(at(3, 1, 1))));
        assert_eq!(row(&registers), Some([Some(5), None]));
        assert!(registers.upsert(&event((2, None)), |_| true), "nothing had set the second column");
        assert_eq!(row(&registers), Some([Some(5), Some(2)]));
    }

    #[test]
    fn the_makers_of_a_row_are_those_whose_values_it_has() {
        let mut registers = Registers::new(2);
        let change = |number: usize| Event {
            at: Arc::new(at(number as i128, 1, 1)),
            source: Source::Change(Some(number)),
            place: number,
        };
        for number in 0..3 {
            registers.upsert(&change(number), |column| column == 0 || number == 0);
        }
        assert_eq!(registers.makers(), [0, 2]);
        registers.delete(&change(3));
        assert_eq!(registers.makers(), [3]);
    }
}
