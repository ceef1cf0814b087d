//! How many nodes of a level share a bucket, locked or not.

use super::fullest::fullest_bucket;
use super::{sharing_chance, spread::bucket_groups};
use crate::{Buckets, Slots};

/// The expected collisions of the nodes of one level.
///
/// All values but [`fullest_bucket`](Self::fullest_bucket) are means.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Collisions {
    /// The number of nodes that share their bucket with at least one other node.
    pub sharing_nodes: f64,
    /// The number of pairs of nodes with the same bucket.
    pub pairs: f64,
    /// The number of other nodes in the bucket of a node, which are blocked while the node is locked.
    pub neighbours: f64,
    /// The number of buckets with at least one node.
    pub used_buckets: f64,
    /// The median of the number of nodes in the fullest bucket.
    pub fullest_bucket: u64,
}

impl Collisions {
    /// Returns the expected collisions of `nodes` nodes of a level.
    pub fn expected(buckets: Buckets, nodes: u64) -> Self {
        let groups = bucket_groups(buckets);
        let others = nodes.saturating_sub(1);
        let same_bucket: f64 = groups.map(|group| group.slots * group.chance.powi(2)).iter().sum();
        let neighbours = others as f64 * same_bucket;
        Self {
            sharing_nodes: nodes as f64 * sharing_chance(Slots::Buckets(buckets), others),
            pairs: nodes as f64 * neighbours / 2.0,
            neighbours,
            used_buckets: groups.map(|group| group.slots * group.hit_chance(nodes)).iter().sum(),
            fullest_bucket: fullest_bucket(buckets, nodes),
        }
    }
}
