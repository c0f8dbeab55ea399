//! Which facts belong to work that was done.
//!
//! Facts are committed before the rows that they go with, so their work may never come about: the run fails for good,
//! or another attempt at the same batch gets there first. Each attempt therefore brings its facts under a number of its
//! own, and the commit of the rows names that number in the silver table. What counts is what such commits have named.
//!
//! A number is two in one: the *generation*, how many commits of rows had brought facts before, and the *attempt*, how
//! often facts were committed at all. Numbers in the table of facts only rise, and each commit there removes what lost in
//! the generation that is named last. So older generations hold what was done and nothing else, and one number in the
//! silver table tells of all facts.

use datafusion::logical_expr::{Expr, ident, lit};
use serde::{Deserialize, Serialize};

/// The column of the number.
pub(crate) const NUMBER: &str = "number";

/// Attempts of one generation, as a power of two.
const ATTEMPT_BITS: u32 = 24;

/// What is known of numbers: the last one that the silver table names, 0 before it has named any, and what was undone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Done {
    last: i64,
    undone: Vec<Undone>,
}

/// Facts that do not count, since the silver table was taken back to an earlier version: those from the generation of
/// `kept`, the number that the earlier version names, up to `upto`, without `kept` itself. They stay: the table may be
/// taken back once more, to a version of before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Undone {
    kept: i64,
    upto: i64,
}

impl Undone {
    /// What is undone when a table that names `now` is taken back to where it named `then`; and the number that it names
    /// from then on, of which there are no facts. It is two generations on: whoever has not seen the table taken back
    /// and still brings facts has a number in between.
    pub(super) fn new(then: Option<i64>, now: i64) -> (Self, i64) {
        let upto = generation(now) + (2 << ATTEMPT_BITS);
        (Self { kept: then.unwrap_or(0), upto }, upto)
    }

    fn has(self, number: i64) -> bool {
        number >= generation(self.kept) && number < self.upto && number != self.kept
    }

    fn is_undone(self) -> Expr {
        let number = || ident(NUMBER);
        let from = number().gt_eq(lit(generation(self.kept)));
        from.and(number().lt(lit(self.upto))).and(number().not_eq(lit(self.kept)))
    }
}

/// The first number of the generation of a number.
fn generation(number: i64) -> i64 {
    number >> ATTEMPT_BITS << ATTEMPT_BITS
}

impl Done {
    pub(super) fn new(number: Option<i64>, undone: Vec<Undone>) -> Self {
        Self { last: number.unwrap_or(0), undone }
    }

    /// The number of the next facts, when the last ones had the number `held`. `None` when there are no more.
    pub(super) fn next(&self, held: Option<i64>) -> Option<i64> {
        let attempts = held.unwrap_or(0) & (self.after() - self.first() - 1);
        (attempts + 1 < 1 << ATTEMPT_BITS).then_some(self.after() + attempts + 1)
    }

    /// True for facts of work that was done.
    pub(super) fn is_done(&self) -> Expr {
        let number = || ident(NUMBER);
        let done = number().lt(lit(self.first())).or(number().eq(lit(self.last)));
        self.undone.iter().fold(done, |done, undone| done.and(undone.is_undone().is_not_true()))
    }

    /// True for facts of work that was done, may yet be, or was undone.
    pub(super) fn may_count(&self) -> Expr {
        let may = self.is_done().or(ident(NUMBER).gt_eq(lit(self.after())));
        self.undone.iter().fold(may, |may, undone| may.or(undone.is_undone()))
    }

    /// True for a number of work that was not done, and never will be: its generation is over.
    pub(super) fn is_dead(&self, number: i64) -> bool {
        let is_lost = number >= self.first() && number < self.after() && number != self.last;
        is_lost && !self.is_undone(number)
    }

    /// True for a number of work that was undone.
    fn is_undone(&self, number: i64) -> bool {
        self.undone.iter().any(|undone| undone.has(number))
    }

    /// True for numbers of generations that are over, without the last one.
    pub(super) fn is_old(&self, number: i64) -> bool {
        number < self.first()
    }

    /// The first number of the generation named last.
    fn first(&self) -> i64 {
        generation(self.last)
    }

    /// The first number of the next one.
    fn after(&self) -> i64 {
        self.first() + (1 << ATTEMPT_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_generation_only_the_attempt_that_is_named_was_done() {
        let none = Done::default();
        let first = none.next(None).expect("a number");
        let second = none.next(Some(first)).expect("a number");
        assert!(first < second && !none.is_dead(first) && !none.is_dead(second), "nobody knows yet");
        let done = Done::new(Some(second), Vec::new());
        assert!(done.is_dead(first) && !done.is_dead(second));
        let third = done.next(Some(second)).expect("a number");
        assert!(third > second && !done.is_dead(third));
        // Who has not seen that the second is done comes too late: numbers only rise.
        assert!(none.next(Some(third)).expect("a number") < third);
        let done = Done::new(Some(third), Vec::new());
        assert!(done.is_old(second) && !done.is_old(third) && !done.is_dead(second));
        assert_eq!(done.next(Some((1 << ATTEMPT_BITS) - 1)), None);
    }

    #[test]
    fn what_was_undone_counts_no_more_and_what_comes_after_it_does() {
        let first = Done::default().next(None).expect("a number");
        let second = Done::new(Some(first), Vec::new()).next(Some(first)).expect("a number");
        let third = Done::new(Some(second), Vec::new()).next(Some(second)).expect("a number");
        let (undone, number) = Undone::new(Some(first), third);
        let done = Done::new(Some(number), vec![undone]);
        assert!(!done.is_undone(first) && done.is_old(first), "the earlier version names it");
        assert!([second, third].iter().all(|number| done.is_undone(*number) && !done.is_dead(*number)));
        // A run that has not seen that the table was taken back.
        let late = Done::new(Some(third), Vec::new()).next(Some(third)).expect("a number");
        assert!(late < number && done.is_undone(late));
        let next = done.next(Some(late)).expect("a number");
        assert!(next > number && !done.is_undone(next) && !done.is_dead(next));
        // An attempt that lost before the first, and was not yet removed.
        assert!(Done::new(Some(number), vec![Undone::new(Some(first + 1), third).0]).is_undone(first));
        // Back to where the third was named: what had counted there counts again.
        let (undone, again) = Undone::new(Some(third), next);
        let done = Done::new(Some(again), vec![undone]);
        assert!([first, second, third].iter().all(|number| !done.is_undone(*number)));
        assert!([late, number, next].iter().all(|number| done.is_undone(*number)) && again > next);
    }
}
