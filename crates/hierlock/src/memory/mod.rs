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

pub(crate) use hold::MemoryHold;
pub(crate) use manager::{Blocked, IfNotFree, Manager, Obstacle};
pub(crate) use waiting::Waiting;

use crate::backend::{Backend, Demand, Hold, Patience};
use crate::error::{Result, UrlError};
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, SlotMode};
use crate::plan::{Claim, Plan};
use crate::snapshot::Holder;
use crate::target::Target;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// The backend of `memory:` (its own) and `memory:NAME` (shared by name in this process).
#[derive(Clone, Debug)]
pub(crate) struct MemoryBackend {
    manager: Arc<Manager>,
}

impl MemoryBackend {
    pub(crate) fn new(hierarchy: Hierarchy) -> Self {
        Self { manager: Arc::new(Manager::new(hierarchy)) }
    }

    /// The one of that name, as long as somebody has it.
    pub(crate) fn named(name: &str, hierarchy: Hierarchy) -> Result<Self> {
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

    fn plan(&self, claims: SmallVec<[Claim; 1]>) -> Result<Plan> {
        self.manager.plan(claims)
    }

    #[inline]
    async fn acquire(&self, demand: Demand) -> Result<MemoryHold> {
        let Demand { claims, patience, name } = demand;
        let moves = self.manager.moves(claims)?;
        match self.manager.take(moves, name, patience.into()) {
            Ok(hold) => Ok(hold),
            Err(Blocked::On(obstacle)) => Err(obstacle.would_block()),
            Err(Blocked::Waits(mut waiting)) => {
                waiting.within(patience).await?;
                Ok(waiting.into_hold())
            }
        }
    }

    fn holders(&self) -> Vec<Holder> {
        self.manager.snapshot()
    }
}

impl From<Patience> for IfNotFree {
    fn from(patience: Patience) -> Self {
        match patience.waits() {
            true => IfNotFree::Wait,
            false => IfNotFree::BackOut,
        }
    }
}

impl Waiting {
    /// Waits to the end of it or of one's patience.
    async fn within(&mut self, patience: Patience) -> Result<()> {
        match patience.limit(self.finish()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(circle)) => Err(circle.deadlock()),
            Err(waited) => Err(self.obstacle().timeout(waited)),
        }
    }
}

impl Hold for MemoryHold {
    async fn extend(&mut self, demand: Demand) -> Result<()> {
        let more = self.manager().moves(demand.claims)?;
        match MemoryHold::extend(self, more, demand.patience.into()) {
            Ok(()) => Ok(()),
            Err(Blocked::On(obstacle)) => Err(obstacle.would_block()),
            Err(Blocked::Waits(mut waiting)) => {
                waiting.within(demand.patience).await?;
                self.absorb(waiting);
                Ok(())
            }
        }
    }

    async fn release(self) -> Result<()> {
        Ok(())
    }

    fn claims(&self) -> BTreeMap<Target, Mode> {
        MemoryHold::claims(self)
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        MemoryHold::modes(self)
    }

    fn id(&self) -> u64 {
        MemoryHold::id(self)
    }

    async fn token(&self) -> Result<u64> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Whoever held the same before has asked before: its lock was freed in between.
        Ok(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    async fn lost(&self) -> crate::Error {
        std::future::pending().await
    }
}
