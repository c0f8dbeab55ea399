//! The only randomness of the sample: a ChaCha stream, and integer draws from it that no library version can change.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A seeded source of draws.
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// The draws of one kind of file; streams of one seed are independent of each other.
    pub(crate) fn new(seed: u64, stream: u8) -> Self {
        let mut bytes = [0_u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8] = stream;
        Self(ChaCha8Rng::from_seed(bytes))
    }

    /// A number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.0.next_u64()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True this many times in a thousand.
    pub(crate) fn per_mille(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// One of the words.
    pub(crate) fn pick(&mut self, words: &[&'static str]) -> &'static str {
        let index = self.below(words.len() as u64);
        words.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or_default()
    }

    /// A number from `first` to about `last`, small ones far more often: each doubling is as likely as the next, as
    /// in a Zipf distribution of exponent 1.
    pub(crate) fn skewed(&mut self, first: u64, last: u64) -> u64 {
        let octaves = u64::from((last / first).ilog2()) + 1;
        let low = first << self.below(octaves);
        let high = (2 * low - 1).min(last);
        self.between(low, high)
    }
}
