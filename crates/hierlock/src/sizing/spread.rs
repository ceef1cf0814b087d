//! How a hash spreads nodes over slots.

use crate::{Buckets, Slots};

/// Slots with the same chance to get a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotGroup {
    pub(super) slots: f64,
    /// The chance of each slot to get a node.
    pub(super) chance: f64,
}

impl SlotGroup {
    /// Returns the chance that a slot gets at least one of `nodes` nodes.
    pub(super) fn hit_chance(self, nodes: u64) -> f64 {
        if nodes == 0 {
            return 0.0; // Also if the chance of a slot is 1, where the logarithm below is infinite.
        }
        -(nodes as f64 * (-self.chance).ln_1p()).exp_m1()
    }
}

/// Returns the buckets in two groups: the first, of the size of the remainder of 2³², has one hash value more per bucket.
pub(super) fn bucket_groups(buckets: Buckets) -> [SlotGroup; 2] {
    const HASHES: u64 = 1 << 32;
    let count = u64::from(buckets.count());
    let (each, rest) = (HASHES / count, HASHES % count);
    let group = |slots: u64, hashes: u64| SlotGroup {
        slots: slots as f64,
        // Above 1 only for an empty group: a single bucket has all hashes, and there is none more.
        chance: (hashes as f64 / HASHES as f64).min(1.0),
    };
    [group(rest, each + 1), group(count - rest, each)]
}

/// Returns the chance that a node has the slot of at least one of `others` different nodes of its level.
///
/// ```
/// use hierlock::sizing::sharing_chance;
/// use hierlock::{Buckets, Slots};
/// assert_eq!(sharing_chance(Slots::Buckets(Buckets::new(1)?), 1), 1.0);
/// assert!(sharing_chance(Slots::Keys, 1_000_000) < 1e-12);
/// # Ok::<(), hierlock::Error>(())
/// ```
pub fn sharing_chance(slots: Slots, others: u64) -> f64 {
    let even = |bits: i32| SlotGroup { slots: 2_f64.powi(bits), chance: 2_f64.powi(-bits) };
    let chance_in = |group: SlotGroup| group.slots * group.chance * group.hit_chance(others);
    match slots {
        Slots::Buckets(buckets) => bucket_groups(buckets).map(chance_in).iter().sum(),
        Slots::Keys => chance_in(even(64)),
        Slots::Bytes => chance_in(even(60)),
        Slots::Paths => 0.0,
    }
}
