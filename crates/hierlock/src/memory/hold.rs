//! What an owner has in hand.

use super::manager::{Blocked, IfNotFree, Locked, Manager, back_out, wake};
use super::moves::Moves;
use super::table::{Hold, Wakers};
use super::ticket::{Kind, State, Ticket};
use super::waiting::Waiting;
use crate::mode::{Mode, SlotMode};
use crate::plan::Claim;
use crate::target::Target;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A ticket that is its owner's to end: dropped, it leaves the queue it may stand in, and what it has
/// taken is given back.
#[derive(Debug)]
pub(super) struct Stake {
    pub(super) manager: Arc<Manager>,
    pub(super) ticket: Arc<Ticket>,
}

impl Drop for Stake {
    fn drop(&mut self) {
        let Self { manager, ticket } = &*self;
        let mut wakers = Wakers::new();
        let mut locked = manager.lock(ticket.shards());
        match ticket.kind {
            Kind::Acquire => {
                let hold = locked.table(ticket.owner.home()).remove_hold(ticket.owner);
                if let Some(leaked) = hold.and_then(|hold| hold.extension) {
                    // The future of an extension was forgotten, not dropped.
                    drop(locked);
                    manager.lock(leaked.shards()).abandon(&leaked, &mut wakers);
                    locked = manager.lock(ticket.shards());
                }
            }
            Kind::Extend => {
                if let Some(hold) = locked.hold(ticket.owner) {
                    hold.extension = None;
                }
            }
        }
        locked.abandon(ticket, &mut wakers);
        drop(locked);
        wake(wakers);
    }
}

/// Everything an owner holds: its nodes are given back when it is dropped.
#[derive(Debug)]
#[must_use = "dropping it frees the lock"]
pub struct MemoryHold {
    /// Complete.
    pub(super) stake: Stake,
}

impl MemoryHold {
    /// Takes more, or the same more strongly. Where that has to wait, the way to wait comes back, to
    /// be handed to [`absorb`](Self::absorb) when it is over.
    pub(crate) fn take_more(&mut self, more: Moves, if_not_free: IfNotFree) -> Result<(), Blocked> {
        let Stake { manager, ticket } = &self.stake;
        let more = more.beyond(&ticket.moves);
        let more = Arc::new(Ticket::new(ticket.owner, Kind::Extend, None, more));
        let manager = manager.clone();
        let mut locked = manager.lock(more.shards());
        let free = locked.advance(&more);
        if !free && if_not_free == IfNotFree::BackOut {
            return Err(Blocked::On(back_out(locked, &more)));
        }
        if free {
            self.keep(&mut locked, &more);
            return Ok(());
        }
        if let Some(hold) = locked.hold(more.owner) {
            hold.extension = Some(more.clone());
        }
        let stake = Stake { manager: manager.clone(), ticket: more };
        Err(Blocked::Waits(Waiting::begin(stake, locked)))
    }

    /// The extension was waited for to its end.
    pub(crate) fn absorb(&mut self, waited: Waiting) {
        let more = waited.into_stake();
        let manager = self.stake.manager.clone();
        self.keep(&mut manager.lock(more.ticket.shards()), &more.ticket);
    }

    /// Adds what an extension has taken to what is held.
    fn keep(&mut self, locked: &mut Locked<'_>, more: &Ticket) {
        let merged = Arc::new(self.stake.ticket.merged(more));
        // What it had is the hold's now, and no longer its own to give back.
        more.set(0, State::Going);
        if let Some(hold) = locked.hold(more.owner) {
            *hold = Hold { ticket: merged.clone(), extension: None };
        }
        self.stake.ticket = merged;
    }

    /// What was asked for, each target once, in the strongest mode.
    pub(crate) fn claims(&self) -> BTreeMap<Target, Mode> {
        let mut claims = BTreeMap::new();
        for Claim { target, mode } in &self.stake.ticket.moves.claims {
            let strongest = claims.entry(target.clone()).or_insert(*mode);
            *strongest = (*strongest).max(*mode);
        }
        claims
    }

    /// What is really taken, by node.
    pub(crate) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        let moves = &self.stake.ticket.moves;
        moves.list.iter().map(|step| (moves.node(step), step.mode)).collect()
    }

    pub(crate) fn manager(&self) -> &Manager {
        &self.stake.manager
    }

    /// Names this hold in a snapshot.
    pub(crate) fn id(&self) -> u64 {
        self.stake.ticket.owner.0
    }
}
