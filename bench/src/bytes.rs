//! Measures memory: bytes for each of many paths held at once, and bytes left after all are released.

use crate::allocator::LiveByteCounter;
use crate::contenders::{Contender, Path};
use crate::work::current_thread_runtime;
use std::fmt::Write;

/// The ancestors that the held paths share.
#[derive(Clone, Copy, Debug)]
pub enum PathLayout {
    /// Each path has a user and an account of its own, so three nodes per path.
    SeparateUsers,
    /// A hundred resources in an account and ten accounts in a user. Needs shared locks on ancestors.
    SharedAccounts,
}

/// One line of the comparison that measures bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryWorkload {
    /// The name in tables.
    pub name: &'static str,
    /// The paths that are held.
    pub layout: PathLayout,
}

/// All workloads that measure bytes.
pub const MEMORY_WORKLOADS: [MemoryWorkload; 2] = [
    MemoryWorkload { name: "a user for each", layout: PathLayout::SeparateUsers },
    MemoryWorkload { name: "100 to an account", layout: PathLayout::SharedAccounts },
];

/// Live bytes, including the guards that the caller holds.
#[derive(Clone, Copy, Debug)]
pub struct MemoryUse {
    /// Bytes for each path while all are held.
    pub per_hold: f64,
    /// Total bytes after every path is released, while the lock manager still exists.
    pub left: isize,
}

impl PathLayout {
    /// Returns whether a contender can hold these paths at the same time.
    pub fn is_possible_for<C: Contender>(self) -> bool {
        C::SHARES_ANCESTORS || matches!(self, PathLayout::SeparateUsers)
    }

    /// Holds `paths` distinct paths and counts the bytes. Returns zeros unless
    /// [`CountingAllocator`](crate::allocator::CountingAllocator) is the program's allocator.
    pub fn measure_bytes<C: Contender>(self, paths: usize) -> MemoryUse {
        current_thread_runtime().block_on(async {
            let contender = C::new().await;
            let mut ids = Ids::default();
            let count = LiveByteCounter::start();
            let mut held = Vec::with_capacity(paths);
            for number in 0..paths {
                held.push(contender.acquire(ids.path(self, number)).await);
            }
            // The IDs are not memory of the contender.
            drop(ids);
            let per_hold = count.bytes() as f64 / paths as f64;
            drop(held);
            assert!(contender.is_idle(), "{} still knows nodes after their release", C::NAME);
            MemoryUse { per_hold, left: count.bytes() }
        })
    }
}

/// Buffers for the IDs of one path, reused for the next.
#[derive(Default)]
struct Ids {
    user: String,
    account: String,
    resource: String,
}

impl Ids {
    fn path(&mut self, layout: PathLayout, number: usize) -> Path<'_> {
        let [user, account, resource] = match layout {
            PathLayout::SeparateUsers => [number, 1, 1],
            PathLayout::SharedAccounts => [number / 1000, number / 100 % 10, number % 100],
        };
        let Self { user: u, account: a, resource: r } = self;
        for (text, kind, id) in [
            (&mut *u, "user", user),
            (&mut *a, "account", account),
            (&mut *r, "resource", resource),
        ] {
            text.clear();
            write!(text, "{kind}-{id}").expect("writing to a String cannot fail");
        }
        Path { user: u, account: a, resource: r }
    }
}
