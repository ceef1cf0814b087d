//! The number of buckets that a lock table needs: how many nodes share a bucket, and how often an acquire waits for a lock
//! on a different node because of that. Pure arithmetic; `hierlock size` prints it.
//!
//! ```text
//!   nodes by level ─► Collisions: how many nodes share a bucket, locked or not
//!   locks by level ─► Workload ─► false contention: the chance that an acquire waits for the bucket of another node
//! ```
//!
//! The model:
//!
//! 1. The hash spreads nodes evenly: every node has one of the 2³² values of the hash, each with the same chance,
//!    independent of other nodes and of other levels. If the bucket count does not divide 2³², some buckets get one hash
//!    value more. The formulas include that; it matters above 10⁸ buckets.
//! 2. A lock on a node takes its bucket exclusive, and the bucket of each ancestor shared.
//! 3. An acquire has *false contention* if none of its nodes is held by others, and it still has to wait: a bucket that it
//!    takes exclusive is held for a different node, or a bucket that it takes shared is held exclusive for a different node.
//! 4. Locks held at the same time are on different nodes without common ancestors. With common ancestors there is less
//!    false contention at inner nodes.
//!
//! Then the chance of false contention of an acquire of any level is about *locks held / buckets*, independent of the
//! number of nodes.
//!
//! ```
//! use hierlock::sizing::{Collisions, Workload};
//! use hierlock::{Buckets, Slots};
//!
//! // 200 of 5,000,000 resources are locked at the same time.
//! let workload = Workload::of_leaves(3, 5_000_000, 200);
//! let chance = workload.false_contention(Slots::Buckets(Buckets::new(10_000_000)?), 2);
//! assert_eq!(format!("{chance:.6}"), "0.000020");
//! // At most one acquire in a thousand has false contention:
//! assert_eq!(workload.smallest_buckets(0.001).map(Buckets::count), Some(1_000_000));
//! // Nodes that share their bucket with another node:
//! let collisions = Collisions::expected(Buckets::default(), 5_000_000);
//! assert_eq!(collisions.sharing_nodes.round(), 1_967_348.0);
//! # Ok::<(), hierlock::Error>(())
//! ```

mod collisions;
mod fullest;
mod spread;
#[cfg(test)]
mod tests;
mod workload;

pub use collisions::Collisions;
pub use spread::sharing_chance;
pub use workload::{LevelLoad, Workload};
