//! Sample input that looks like life: change files of a shop and daily extracts of its products, from a seed.
//!
//! The same options give the same bytes on every machine and with every version of the libraries: all randomness
//! comes from one ChaCha stream per kind of file, and no floating point is involved. Files are written as they are
//! made; what stays in memory is the orders that are still on their way.

mod dice;
mod files;
mod generate;
mod order;
mod products;
mod record;
mod timeline;

#[cfg(test)]
mod tests;

pub(crate) use dice::Dice;
pub(crate) use generate::{DEFAULT_DAYS, DEFAULT_ROWS, DEFAULT_SEED, Options, generate};
