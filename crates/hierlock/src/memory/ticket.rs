//! A ticket: one owner's plan, how far it got, and how the owner is told. Shared by the owner, by its
//! entry in a table, and, while it waits, by the queue of a node.

use super::manager::ShardSet;
use super::node::Owner;
use crate::mode::SlotMode;
use crate::plan::{PlanStep, PlanSteps};
use crate::sync::{AtomicUsize, Mutex, Ordering, lock};
use crate::target::Target;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// What a ticket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketKind {
    /// A new hold. All take their nodes in one order, so they cannot deadlock.
    Acquire,
    /// More for a hold. May come in any order, so it may close a cycle of waits.
    Extend,
}

/// Where a ticket stands. Changes only under the lock of the shard that is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketState {
    /// In nobody's queue: taking nodes, or all of them taken.
    Active = 0,
    /// In the queue of the first node that is not taken.
    Waiting = 1,
    /// Taken out of the queue to break a deadlock.
    Victim = 2,
}

#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) owner: Owner,
    pub(super) kind: TicketKind,
    pub(super) name: Option<Arc<String>>,
    /// When it was asked for.
    pub(super) since: Instant,
    pub(super) steps: PlanSteps,
    /// How many of the steps are taken, and the state, in one word: see [`Ticket::set`].
    progress: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Ticket {
    pub(super) fn new(
        owner: Owner,
        kind: TicketKind,
        name: Option<Arc<String>>,
        steps: PlanSteps,
    ) -> Self {
        let (progress, waker) = (AtomicUsize::new(0), Mutex::new(None));
        Self { owner, kind, name, since: Instant::now(), steps, progress, waker }
    }

    /// What an owner has after an extension: all of both.
    pub(super) fn merged(&self, more: &Ticket) -> Self {
        let steps = more.steps.merged_with(&self.steps);
        let all = steps.list.len();
        let merged = Self::new(self.owner, self.kind, self.name.clone(), steps);
        merged.set(all, TicketState::Active);
        Self { since: self.since, ..merged }
    }

    pub(super) fn set(&self, taken: usize, state: TicketState) {
        self.progress.store(taken << 2 | state as usize, Ordering::Release);
    }

    fn get(&self) -> (usize, TicketState) {
        let progress = self.progress.load(Ordering::Acquire);
        let state = match progress & 3 {
            0 => TicketState::Active,
            1 => TicketState::Waiting,
            _ => TicketState::Victim,
        };
        (progress >> 2, state)
    }

    /// The shards of its nodes, and that of its owner.
    pub(super) fn shards(&self) -> ShardSet {
        self.steps.shards() | 1 << self.owner.shard()
    }

    pub(super) fn taken(&self) -> usize {
        self.get().0
    }

    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn state(&self) -> TicketState {
        self.get().1
    }

    /// The nodes that are taken.
    pub(super) fn modes(&self) -> impl Iterator<Item = (Target, SlotMode)> {
        let taken = self.steps.list[..self.taken()].iter();
        taken.map(|step| (self.steps.node(step), step.mode))
    }

    pub(super) fn is_complete(&self) -> bool {
        self.taken() == self.steps.list.len()
    }

    /// The first node that is not taken.
    pub(super) fn next(&self) -> Option<&PlanStep> {
        self.steps.list.get(self.taken())
    }

    /// The node in whose queue it stands.
    pub(super) fn waits_at(&self) -> Option<&PlanStep> {
        match self.get() {
            (taken, TicketState::Waiting) => self.steps.list.get(taken),
            _ => None,
        }
    }

    /// It enters the queue of the next node.
    pub(super) fn wait(&self) {
        self.set(self.taken(), TicketState::Waiting);
    }

    /// The node that is waited for is granted; the waker is to be woken when no lock is held.
    #[must_use]
    pub(super) fn grant(&self) -> Option<Waker> {
        self.end_wait(1, TicketState::Active)
    }

    /// Chosen to break a deadlock; otherwise as [`grant`](Self::grant).
    #[must_use]
    pub(super) fn make_victim(&self) -> Option<Waker> {
        self.end_wait(0, TicketState::Victim)
    }

    fn end_wait(&self, granted: usize, state: TicketState) -> Option<Waker> {
        let (taken, before) = self.get();
        debug_assert_eq!(before, TicketState::Waiting, "a wait ends once");
        // First the state, then the waker: whoever leaves a waker looks at the state after locking.
        self.set(taken + granted, state);
        lock(&self.waker).take()
    }

    /// Ready when it waits no more.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<TicketState> {
        let mut waker = lock(&self.waker);
        match self.get() {
            (_, TicketState::Waiting) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            (_, ended) => Poll::Ready(ended),
        }
    }
}
