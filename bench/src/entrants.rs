//! The contenders as values, so that a program can go through them in a loop.

use crate::bytes::{Shape, Weight};
use crate::contenders::{Contender, Memory, Pool, RwLockMap};
use crate::work::Work;
use std::time::Duration;

/// One contender: its work, or `None` where it cannot do it.
#[derive(Clone, Copy, Debug)]
pub struct Entrant {
    /// In tables.
    pub name: &'static str,
    time: fn(Work, u64) -> Option<Duration>,
    weigh: fn(Shape, usize) -> Option<Weight>,
}

/// All of them, hierlock first.
pub const ENTRANTS: [Entrant; 3] =
    [Entrant::of::<Memory>(), Entrant::of::<RwLockMap>(), Entrant::of::<Pool>()];

impl Entrant {
    const fn of<C: Contender>() -> Self {
        Self {
            name: C::NAME,
            time: |work, cycles| work.suits::<C>().then(|| work.time::<C>(cycles)),
            weigh: |shape, paths| shape.suits::<C>().then(|| shape.weigh::<C>(paths)),
        }
    }

    /// How long so many cycles take.
    pub fn time(&self, work: Work, cycles: u64) -> Option<Duration> {
        (self.time)(work, cycles)
    }

    /// How many bytes so many paths take.
    pub fn weigh(&self, shape: Shape, paths: usize) -> Option<Weight> {
        (self.weigh)(shape, paths)
    }
}
