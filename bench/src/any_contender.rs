//! The contenders as values, so that a program can loop over them.

use crate::bytes::{MemoryUse, PathLayout};
use crate::contenders::{Contender, Memory, Pool, RwLockMap};
use crate::work::AccessPattern;
use std::time::Duration;

/// A contender without its type. Its methods return `None` for a workload that it does not support.
#[derive(Clone, Copy, Debug)]
pub struct AnyContender {
    /// The name in tables.
    pub name: &'static str,
    time: fn(AccessPattern, u64) -> Option<Duration>,
    measure_bytes: fn(PathLayout, usize) -> Option<MemoryUse>,
}

/// All contenders, hierlock first.
pub const CONTENDERS: [AnyContender; 3] =
    [AnyContender::of::<Memory>(), AnyContender::of::<RwLockMap>(), AnyContender::of::<Pool>()];

impl AnyContender {
    const fn of<C: Contender>() -> Self {
        Self {
            name: C::NAME,
            time: |pattern, cycles| {
                pattern.is_possible_for::<C>().then(|| pattern.time::<C>(cycles))
            },
            measure_bytes: |layout, paths| {
                layout.is_possible_for::<C>().then(|| layout.measure_bytes::<C>(paths))
            },
        }
    }

    /// Returns how long `cycles` cycles take.
    pub fn time(&self, pattern: AccessPattern, cycles: u64) -> Option<Duration> {
        (self.time)(pattern, cycles)
    }

    /// Returns how many bytes `paths` paths take.
    pub fn measure_bytes(&self, layout: PathLayout, paths: usize) -> Option<MemoryUse> {
        (self.measure_bytes)(layout, paths)
    }
}
