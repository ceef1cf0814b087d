//! The hold of one owner: it begins, waits, is extended, and is released.

use super::manager::{LockedShards, Manager};
use super::table::OwnerEntry;
use super::ticket::{Ticket, TicketKind, TicketState};
use crate::backend::{AcquireRequest, FencingHold, Hold, WaitLimit};
use crate::error::LockConflict;
use crate::plan::Claims;
use crate::sync::Ordering::SeqCst;
use crate::{Claim, Error, Mode, Result, SlotMode, Target};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The locks of one acquire in memory. Dropping the hold releases them.
// Inside `memory` a hold may also be incomplete, or an extension that waits. Dropping it leaves the queue and releases the
// nodes that it has taken; what its owner held before stays held.
#[derive(Debug)]
#[must_use = "dropping the hold releases the lock"]
pub struct MemoryHold {
    pub(super) manager: Arc<Manager>,
    ticket: Arc<Ticket>,
}

impl MemoryHold {
    /// Takes nodes for a new owner, in order, until one is not free. Then enters the queue of that node, or fails and holds
    /// nothing, if `limit` does not wait.
    pub(super) fn begin(
        manager: &Arc<Manager>,
        claims: Claims,
        name: Option<Arc<String>>,
        limit: WaitLimit,
    ) -> Result<Self> {
        let steps = manager.steps(claims)?;
        let shards = steps.shards();
        let owner = manager.new_owner(shards.trailing_zeros() as usize);
        let ticket = Arc::new(Ticket::new(owner, TicketKind::Acquire, name, steps));
        let mut locked = manager.lock(shards);
        let complete = locked.advance(&ticket);
        if !complete && !limit.waits() {
            return Err(Error::would_block(back_out(locked, &ticket)));
        }
        locked.table(owner.shard()).add_owner(ticket.clone());
        let hold = Self { manager: manager.clone(), ticket };
        if !complete {
            hold.enter_queue(locked);
        }
        Ok(hold)
    }

    /// Takes more nodes, or the same nodes in a stronger mode. If that has to wait, returns an extension to
    /// [wait](Self::wait) for and then to pass to [`absorb`](Self::absorb).
    pub(super) fn begin_extension(
        &mut self,
        claims: Claims,
        limit: WaitLimit,
    ) -> Result<Option<MemoryHold>> {
        let manager = self.manager.clone();
        let steps = manager.steps(claims)?.without_held(&self.ticket.steps);
        let ticket = Arc::new(Ticket::new(self.ticket.owner, TicketKind::Extend, None, steps));
        let mut locked = manager.lock(ticket.shards());
        if locked.advance(&ticket) {
            self.merge(&mut locked, &ticket);
            return Ok(None);
        }
        if !limit.waits() {
            return Err(Error::would_block(back_out(locked, &ticket)));
        }
        if let Some(entry) = locked.owner(ticket.owner) {
            entry.extension = Some(ticket.clone());
        }
        // Before the extension is in a queue, so that every later wait searches for deadlocks.
        manager.waiting_extensions.fetch_add(1, SeqCst);
        let extension = Self { manager: manager.clone(), ticket };
        extension.enter_queue(locked);
        Ok(Some(extension))
    }

    /// Adds a complete extension to the hold.
    pub(super) fn absorb(&mut self, extension: MemoryHold) {
        debug_assert!(extension.is_complete());
        let ticket = &extension.ticket;
        self.merge(&mut extension.manager.lock(ticket.shards()), ticket);
    }

    /// Adds the nodes of an extension's ticket to this hold.
    fn merge(&mut self, locked: &mut LockedShards<'_>, extension: &Ticket) {
        // The plan of all claims has the nodes of both plans, each in the stronger mode.
        let claims = self.ticket.steps.claims.iter().chain(&extension.steps.claims).cloned();
        let steps = self.manager.steps(claims.collect()).expect("every claim was planned before");
        self.ticket = Arc::new(self.ticket.extended(steps));
        // The nodes belong to the new ticket now, so dropping the extension must not release them.
        extension.set(0, TicketState::Active);
        if let Some(entry) = locked.owner(extension.owner) {
            *entry = OwnerEntry { ticket: self.ticket.clone(), extension: None };
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.ticket.is_complete()
    }

    /// Waits until all nodes are taken. Fails at the limit, or as the victim of a deadlock.
    ///
    /// # Cancel safety
    /// Can be called again without losing the place in the queue. Dropping the `MemoryHold` itself gives up.
    pub(super) async fn wait(&self, limit: WaitLimit) -> Result<()> {
        let timeout = |waited| Err(Error::timeout(self.conflict(), waited));
        limit.limit(self.wait_until_complete()).await.unwrap_or_else(timeout)
    }

    async fn wait_until_complete(&self) -> Result<()> {
        let Self { manager, ticket } = self;
        loop {
            if poll_fn(|context| ticket.poll(context)).await == TicketState::Victim {
                return Err(Error::deadlock(self.conflict()));
            }
            // One more node was granted. Takes the following nodes as far as they are free.
            if ticket.is_complete() {
                return Ok(());
            }
            let mut locked = manager.lock(ticket.shards());
            if locked.advance(ticket) {
                return Ok(());
            }
            self.enter_queue(locked);
        }
    }

    /// Enters the queue of the first node that is not taken.
    fn enter_queue(&self, mut locked: LockedShards<'_>) {
        if let Some(step) = self.ticket.next() {
            locked.table(step.shard()).enqueue(step, self.ticket.clone());
        }
        drop(locked);
        self.manager.break_deadlocks_of(self.ticket.owner);
    }

    /// Returns what blocks this hold now.
    fn conflict(&self) -> LockConflict {
        self.manager.lock(self.ticket.shards()).conflict_of(&self.ticket)
    }
}

/// Releases the nodes that a ticket has taken, and returns what blocked it.
fn back_out(mut locked: LockedShards<'_>, ticket: &Ticket) -> LockConflict {
    let conflict = locked.conflict_of(ticket);
    locked.abandon(ticket);
    conflict
}

impl Drop for MemoryHold {
    fn drop(&mut self) {
        let Self { manager, ticket } = &*self;
        let mut locked = manager.lock(ticket.shards());
        match ticket.kind {
            TicketKind::Acquire => {
                let entry = locked.table(ticket.owner.shard()).remove_owner(ticket.owner);
                if let Some(leaked) = entry.and_then(|entry| entry.extension) {
                    // The future of the extension was leaked by `mem::forget`.
                    drop(locked);
                    manager.lock(leaked.shards()).abandon(&leaked);
                    locked = manager.lock(ticket.shards());
                }
            }
            TicketKind::Extend => {
                manager.waiting_extensions.fetch_sub(1, SeqCst);
                if let Some(entry) = locked.owner(ticket.owner) {
                    entry.extension = None;
                }
            }
        }
        locked.abandon(ticket);
    }
}

impl Hold for MemoryHold {
    async fn extend(&mut self, request: AcquireRequest) -> Result<()> {
        if let Some(extension) = self.begin_extension(request.claims, request.limit)? {
            extension.wait(request.limit).await?;
            self.absorb(extension);
        }
        Ok(())
    }

    async fn release(self) -> Result<()> {
        Ok(())
    }

    fn targets(&self) -> BTreeMap<Target, Mode> {
        let claims = self.ticket.steps.claims.iter().cloned();
        claims.map(|Claim { target, mode }| (target, mode)).collect()
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.ticket.modes().collect()
    }

    fn id(&self) -> u64 {
        self.ticket.owner.0
    }
}

impl FencingHold for MemoryHold {
    async fn token(&self) -> Result<u64> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // An earlier holder has called this before its release, so it got a smaller number.
        Ok(LAST.fetch_add(1, Relaxed) + 1)
    }
}
