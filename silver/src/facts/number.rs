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

/// The column of the number.
pub(crate) const NUMBER: &str = "number";

/// Attempts of one generation, as a power of two.
const ATTEMPT_BITS: u32 = 24;

/// The last number that the silver table names; the default before it has named any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Done(i64);

impl Done {
    pub(super) fn new(number: Option<i64>) -> Self {
        Self(number.unwrap_or(0))
    }

    /// The number of the next facts, when the last ones had the number `held`. `None` when there are no more.
    pub(super) fn next(self, held: Option<i64>) -> Option<i64> {
        let attempts = held.unwrap_or(0) & (self.after() - self.first() - 1);
        (attempts + 1 < 1 << ATTEMPT_BITS).then_some(self.after() + attempts + 1)
    }

    /// True for facts of work that was done.
    pub(super) fn is_done(self) -> Expr {
        let number = || ident(NUMBER);
        number().lt(lit(self.first())).or(number().eq(lit(self.0)))
    }

    /// True for facts of work that was done, or may yet be.
    pub(super) fn may_count(self) -> Expr {
        self.is_done().or(ident(NUMBER).gt_eq(lit(self.after())))
    }

    /// True for a number of work that was not done, and never will be: its generation is over.
    pub(super) fn is_dead(self, number: i64) -> bool {
        number >= self.first() && number < self.after() && number != self.0
    }

    /// True for numbers of generations that are over, without the last one.
    pub(super) fn is_old(self, number: i64) -> bool {
        number < self.first()
    }

    /// The first number of the generation named last.
    fn first(self) -> i64 {
        self.0 >> ATTEMPT_BITS << ATTEMPT_BITS
    }

    /// The first number of the next one.
    fn after(self) -> i64 {
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
        let done = Done::new(Some(second));
        assert!(done.is_dead(first) && !done.is_dead(second));
        let third = done.next(Some(second)).expect("a number");
        assert!(third > second && !done.is_dead(third));
        // Who has not seen that the second is done comes too late: numbers only rise.
        assert!(none.next(Some(third)).expect("a number") < third);
        let done = Done::new(Some(third));
        assert!(done.is_old(second) && !done.is_old(third) && !done.is_dead(second));
        assert_eq!(done.next(Some((1 << ATTEMPT_BITS) - 1)), None);
    }
}
