//! `memory:`: a lock manager inside one process. It has no slot collisions, has intention modes, grants in the order of
//! requests, and detects and breaks deadlocks.
//!
//! ```text
//!   acquire(u1/a1/r1)                               release
//!        │ plan: u1 IX, u1/a1 IX, u1/a1/r1 X           │
//!        ▼                                             ▼
//!   ┌─ Manager ────────────────────────────────────────────────────┐
//!   │  shard = hash of the root: one lock covers the whole path    │
//!   │  ┌─ Table ─────────────────────────────┐  ┌─ Table ─┐        │
//!   │  │ nodes:   path → Node (counts, queue)│  │   …     │  × 64  │
//!   │  │ owners:  owner → Ticket             │  └─────────┘        │
//!   │  │ waiting: owners                     │                     │
//!   │  └─────────────────────────────────────┘                     │
//!   └──────────────────────────────────────────────────────────────┘
//!          │ all free: done, one mutex locked once
//!          ▼ not free
//!      Ticket waits ◄── granted by the owner that releases the node
//! ```
//!
//! One acquire: the nodes of the plan are taken in order, with their shards locked. At the first node that is not free
//! the owner enters that node's queue, and keeps the nodes that it has. The owner that releases the node grants it to the
//! queue ([`node`] has the rules) and wakes the waiter, which continues. Since all acquires take nodes in one order, only
//! an *extension* can close a cycle: while one waits, each new wait is searched for a cycle in the wait-for graph
//! ([`wait_graph`]), and a deadlock is broken by failing the youngest extension in it ([`deadlock`]).

mod deadlock;
mod hold;
mod manager;
mod node;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod ticket;
mod wait_graph;

pub use hold::MemoryHold;
use manager::Manager;

use crate::backend::{AcquireRequest, Backend};
use crate::error::UrlError;
use crate::{Hierarchy, Holder, ModeSet, Result, Slots};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// The modes of `memory:`: all of them.
pub(crate) const MODES: ModeSet = ModeSet::Intentions;

/// The backend of `memory:` (not shared) and `memory:NAME` (shared by name in this process). Clones share all locks.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::backend::MemoryBackend;
/// use hierlock::{Hierarchy, Hierlock, Target};
///
/// // As `memory:`, but the type is known at compile time.
/// let locks = Hierlock::with_backend(MemoryBackend::new(Hierarchy::default()));
/// let guard = locks.acquire(Target::user("u1")?).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBackend {
    manager: Arc<Manager>,
}

impl MemoryBackend {
    /// Makes a new lock manager.
    pub fn new(hierarchy: Hierarchy) -> Self {
        Self { manager: Arc::new(Manager::new(hierarchy)) }
    }

    /// Returns the lock manager of that name, which lives as long as a backend or a hold uses it. Fails if the name is in
    /// use with another tree.
    pub fn named(name: &str, hierarchy: Hierarchy) -> Result<Self> {
        static NAMED: Mutex<BTreeMap<String, Weak<Manager>>> = Mutex::new(BTreeMap::new());
        let mut named = NAMED.lock();
        if let Some(manager) = named.get(name).and_then(Weak::upgrade) {
            if manager.hierarchy == hierarchy {
                return Ok(Self { manager });
            }
            let url = format!("memory:{name}").into();
            let theirs = manager.hierarchy.clone();
            return Err(UrlError::OtherLevels { url, theirs, ours: hierarchy }.into());
        }
        named.retain(|_, manager| manager.strong_count() > 0);
        let backend = Self::new(hierarchy);
        named.insert(name.to_owned(), Arc::downgrade(&backend.manager));
        Ok(backend)
    }
}

impl Backend for MemoryBackend {
    type Hold = MemoryHold;

    fn hierarchy(&self) -> &Hierarchy {
        &self.manager.hierarchy
    }

    fn slots(&self) -> Slots {
        Slots::Paths
    }

    fn modes(&self) -> ModeSet {
        MODES
    }

    #[inline]
    async fn acquire(&self, request: AcquireRequest) -> Result<MemoryHold> {
        let AcquireRequest { claims, limit, name } = request;
        let hold = MemoryHold::begin(&self.manager, claims, name, limit)?;
        if !hold.is_complete() {
            hold.wait(limit).await?;
        }
        Ok(hold)
    }

    fn holders(&self) -> Vec<Holder> {
        self.manager.snapshot()
    }
}
