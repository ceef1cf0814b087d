//! What is weighed: many paths held at once, and what stays when all are released.

use crate::allocator::Count;
use crate::contenders::{Contender, Path};
use crate::work::here;
use std::fmt::Write;

/// How the held paths hang together.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A user and an account for each path: three nodes a path.
    Apart,
    /// A hundred resources to an account, ten accounts to a user: only for those who share ancestors.
    Together,
}

/// A line of the comparison: bytes, not time.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// In tables.
    pub name: &'static str,
    /// What is held.
    pub shape: Shape,
}

/// Every load that is weighed.
pub const LOADS: [Load; 2] = [
    Load { name: "a user for each", shape: Shape::Apart },
    Load { name: "100 to an account", shape: Shape::Together },
];

/// Live bytes, the guards in the caller's hands included.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// For each path, while all are held.
    pub per_hold: f64,
    /// In all, when every path is released and the lock manager is still there.
    pub left: isize,
}

impl Shape {
    /// Whether a contender can hold it at all.
    pub fn suits<C: Contender>(self) -> bool {
        C::SHARES_ANCESTORS || matches!(self, Shape::Apart)
    }

    /// Holds so many distinct paths. Zeros, unless [`Counting`](crate::allocator::Counting) is the
    /// program's allocator.
    pub fn weigh<C: Contender>(self, paths: usize) -> Weight {
        here().block_on(async {
            let contender = C::new().await;
            let mut ids = Ids::default();
            let count = Count::start();
            let mut held = Vec::with_capacity(paths);
            for number in 0..paths {
                held.push(contender.acquire(ids.path(self, number)).await);
            }
            // What the IDs still own is not the contender's.
            drop(ids);
            let per_hold = count.live() as f64 / paths as f64;
            drop(held);
            assert!(contender.is_idle(), "{} remembers what it released", C::NAME);
            Weight { per_hold, left: count.live() }
        })
    }
}

/// Texts that are written over for each path.
#[derive(Default)]
struct Ids {
    user: String,
    account: String,
    resource: String,
}

impl Ids {
    fn path(&mut self, shape: Shape, number: usize) -> Path<'_> {
        let [user, account, resource] = match shape {
            Shape::Apart => [number, 1, 1],
            Shape::Together => [number / 1000, number / 100 % 10, number % 100],
        };
        let Self { user: u, account: a, resource: r } = self;
        for (text, kind, id) in [
            (&mut *u, "user", user),
            (&mut *a, "account", account),
            (&mut *r, "resource", resource),
        ] {
            text.clear();
            write!(text, "{kind}-{id}").expect("a String takes everything");
        }
        Path { user: u, account: a, resource: r }
    }
}
