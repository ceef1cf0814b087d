//! `memory:`: a lock manager inside one process. No collisions, true intention modes, first come
//! first served, and circles of waiting are found and broken.
//!
//! ```text
//!   acquire(u1/a1/r1)                               release
//!        │ plan: u1 IX, u1/a1 IX, u1/a1/r1 X           │
//!        ▼                                             ▼
//!   ┌─ Manager ────────────────────────────────────────────────────┐
//!   │  shard = hash of the root: one lock covers the whole path    │
//!   │  ┌─ Table ─────────────────────────────┐  ┌─ Table ─┐        │
//!   │  │ nodes:   path → Node (counts, queue)│  │   …     │  × 64  │
//!   │  │ holds:   owner → Ticket             │  └─────────┘        │
//!   │  │ waiting: owners                     │                     │
//!   │  └─────────────────────────────────────┘                     │
//!   └──────────────────────────────────────────────────────────────┘
//!          │ all free: done, one lock taken once
//!          ▼ not free
//!      Waiting ── Ticket ◄── granted by whoever gives the node back
//! ```
//!
//! One acquire: the plan's nodes are taken in order under the lock of their shards. At the first one
//! that is not free the owner enters that node's queue, keeping what it has; whoever gives the node
//! back grants it to the queue ([`node`] has the rules) and wakes the owner, which goes on. Since all
//! acquires take nodes in one order, only an *extension* can close a circle: while one waits, each
//! new wait is followed through the wait-for graph ([`graph`]), and a circle is broken by failing the
//! youngest extension in it ([`circles`]).

mod circles;
mod graph;
mod hold;
mod manager;
mod moves;
mod node;
mod table;
#[cfg(test)]
mod tests;
mod ticket;
#[cfg(all(test, not(feature = "model")))]
mod verify;
mod waiting;

pub use hold::MemoryHold;
pub(crate) use manager::{Blocked, IfNotFree, Manager};
pub(crate) use waiting::Waiting;

use crate::backend::{AcquireRequest, Backend, FencingHold, Hold, WaitLimit};
use crate::error::{Error, Result, UrlError};
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, ModeSet, SlotMode};
use crate::plan::Slots;
use crate::snapshot::Holder;
use crate::target::Target;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// The backend of `memory:` (its own) and `memory:NAME` (shared by name in this process). Clones share everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::backend::MemoryBackend;
/// use hierlock::{Hierarchy, Hierlock, Target};
///
/// // As `memory:`, of a type that is known: nothing is looked up when it locks.
/// let locks = Hierlock::with_backend(MemoryBackend::new(Hierarchy::default()));
/// let guard = locks.acquire(Target::user("u1")?).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBackend {
    manager: Arc<Manager>,
}

impl MemoryBackend {
    /// A lock manager of its own.
    pub fn new(hierarchy: Hierarchy) -> Self {
        Self { manager: Arc::new(Manager::new(hierarchy)) }
    }

    /// The one of that name, which lives as long as somebody has it.
    ///
    /// # Errors
    /// The name is in use with another tree.
    pub fn named(name: &str, hierarchy: Hierarchy) -> Result<Self> {
        static NAMED: LazyLock<Mutex<HashMap<String, Weak<Manager>>>> =
            LazyLock::new(Mutex::default);
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(manager) = named.get(name).and_then(Weak::upgrade) {
            return match manager.hierarchy() == &hierarchy {
                true => Ok(Self { manager }),
                false => Err(UrlError::OtherLevels {
                    url: format!("memory:{name}").into(),
                    theirs: manager.hierarchy().clone(),
                    ours: hierarchy,
                }
                .into()),
            };
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
        self.manager.hierarchy()
    }

    fn slots(&self) -> Slots {
        Slots::Paths
    }

    fn modes(&self) -> ModeSet {
        manager::MODES
    }

    #[inline]
    async fn acquire(&self, request: AcquireRequest) -> Result<MemoryHold> {
        let AcquireRequest { claims, limit, name } = request;
        let moves = self.manager.moves(claims)?;
        match self.manager.take(moves, name, limit.into()) {
            Ok(hold) => Ok(hold),
            Err(Blocked::On(conflict)) => Err(Error::would_block(conflict)),
            Err(Blocked::Waits(mut waiting)) => {
                waiting.within(limit).await?;
                Ok(waiting.into_hold())
            }
        }
    }

    fn holders(&self) -> Vec<Holder> {
        self.manager.snapshot()
    }
}

impl From<WaitLimit> for IfNotFree {
    fn from(limit: WaitLimit) -> Self {
        match limit.waits() {
            true => IfNotFree::Wait,
            false => IfNotFree::BackOut,
        }
    }
}

impl Waiting {
    /// Waits to the end of it or to the limit.
    async fn within(&mut self, limit: WaitLimit) -> Result<()> {
        match limit.limit(self.finish()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(conflict)) => Err(Error::deadlock(conflict)),
            Err(waited) => Err(Error::timeout(self.conflict(), waited)),
        }
    }
}

impl Hold for MemoryHold {
    async fn extend(&mut self, request: AcquireRequest) -> Result<()> {
        let more = self.manager().moves(request.claims)?;
        match self.take_more(more, request.limit.into()) {
            Ok(()) => Ok(()),
            Err(Blocked::On(conflict)) => Err(Error::would_block(conflict)),
            Err(Blocked::Waits(mut waiting)) => {
                waiting.within(request.limit).await?;
                self.absorb(waiting);
                Ok(())
            }
        }
    }

    async fn release(self) -> Result<()> {
        Ok(())
    }

    fn targets(&self) -> BTreeMap<Target, Mode> {
        MemoryHold::claims(self)
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        MemoryHold::modes(self)
    }

    fn id(&self) -> u64 {
        MemoryHold::id(self)
    }
}

impl FencingHold for MemoryHold {
    async fn token(&self) -> Result<u64> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Whoever held the same before has asked before: its lock was freed in between.
        Ok(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
