//! Random numbers that are repeatable by their seed.

use fastrand::Rng;

/// A generator. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(Rng);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// Creates generator `number` of many that are derived from one seed.
    pub fn derive(seed: u64, number: u64) -> Self {
        Self::new(Self::new(seed).next_u64() ^ Self::new(number).next_u64())
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number from 0 to `limit` - 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit.max(1))
    }

    /// Returns a number from `from` to `to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Returns true with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
