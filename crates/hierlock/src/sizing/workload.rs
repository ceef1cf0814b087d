//! The locks held at the same time, and the chance that another acquire has false contention with them.

use super::sharing_chance;
use crate::{Buckets, Slots};

/// The nodes of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelLoad {
    /// The number of nodes of the level.
    pub nodes: u64,
    /// The number of clients that hold an exclusive lock on a node of the level, or wait for one, at the same time.
    pub held: u64,
}

/// The nodes and locks of a tree, by level, root first. The [module](super) describes the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The levels, root first.
    pub levels: Vec<LevelLoad>,
}

impl Workload {
    /// Fewer buckets would save nothing.
    const MIN_BUCKETS: u32 = 1000;

    /// Returns a tree of `levels` levels with up to `nodes` nodes each, whose leaves are locked.
    pub fn of_leaves(levels: usize, nodes: u64, held: u64) -> Self {
        let mut levels = vec![LevelLoad { nodes, held: 0 }; levels];
        if let Some(leaves) = levels.last_mut() {
            leaves.held = held;
        }
        Self { levels }
    }

    /// Returns the chance that an exclusive acquire of a node of `level` has to wait only because different nodes share
    /// buckets. Returns 0 if the level does not exist.
    pub fn false_contention(&self, slots: Slots, level: usize) -> f64 {
        let Some((at, below)) = self.levels.get(level..).and_then(<[_]>::split_first) else {
            return 0.0;
        };
        // Its shared buckets conflict with exclusive ones. Its exclusive bucket also conflicts with the ancestors of locks
        // below.
        let above = self.levels[..level].iter().map(|above| (above.nodes, above.held));
        let held = below.iter().fold(at.held, |held, below| held.saturating_add(below.held));
        let free: f64 = above
            .chain([(at.nodes, held)])
            .map(|(nodes, held)| sharing_chance(slots, held.min(nodes.saturating_sub(1))))
            .map(|chance| (-chance).ln_1p())
            .sum();
        -free.exp_m1()
    }

    /// Returns the highest chance of false contention of all levels.
    pub fn highest_false_contention(&self, slots: Slots) -> f64 {
        let levels = 0..self.levels.len();
        levels.map(|level| self.false_contention(slots, level)).fold(0.0, f64::max)
    }

    /// Returns the smallest power of ten, from a thousand on, for which no level has a higher chance of false contention
    /// than `target`. Returns `None` if that would need more buckets than a table can have.
    pub fn smallest_buckets(&self, target: f64) -> Option<Buckets> {
        let powers = std::iter::successors(Some(Self::MIN_BUCKETS), |count| count.checked_mul(10));
        powers
            .filter_map(|count| Buckets::new(count).ok())
            .find(|buckets| self.highest_false_contention(Slots::Buckets(*buckets)) <= target)
    }
}
