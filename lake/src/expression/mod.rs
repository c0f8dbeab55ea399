//! SQL expressions of the spec over one row: what they may hold, the columns that they name, and their values.
//!
//! An expression gives the same value for a row whenever it is asked and whatever rows stand beside it. So what looks at
//! other rows (aggregates, windows, subqueries) and what depends on the moment or on chance (`now()`, `random()`) is
//! refused, whole numbers that overflow are an error, and an error is one of its row alone.

mod evaluate;
mod parse;
#[cfg(test)]
mod tests;

pub use evaluate::{Scalar, Values, by_row, physical};
pub(crate) use evaluate::{planned, strict};
pub use parse::Expression;
