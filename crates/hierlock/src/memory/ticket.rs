//! A ticket: the plan of one owner, its progress, and its waker. Shared by the owner, by its entry in a table, and, while
//! it waits, by the queue of a node.

use super::manager::ShardSet;
use super::node::Owner;
use crate::plan::{PlanStep, PlanSteps};
use crate::sync::{AtomicUsize, Mutex, Ordering, lock};
use crate::{SlotMode, Target};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// The purpose of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketKind {
    /// A new hold. All acquires take their nodes in one order, so they cannot deadlock.
    Acquire,
    /// An extension of a hold. Its nodes may come in any order, so it may close a cycle of waits.
    Extend,
}

/// The state of a ticket. Changes only while the shard of the node is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketState {
    /// In no queue: taking nodes, or all of them taken.
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
    pub(super) since: Instant,
    pub(super) steps: PlanSteps,
    /// The number of taken steps and the state, in one word: see [`Ticket::set`].
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

    /// Returns the ticket of the same owner after an extension: complete, with the steps of both.
    pub(super) fn extended(&self, steps: PlanSteps) -> Self {
        let taken = steps.list.len();
        let extended = Self::new(self.owner, self.kind, self.name.clone(), steps);
        extended.set(taken, TicketState::Active);
        Self { since: self.since, ..extended }
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

    /// Returns the shards of its nodes, and that of its owner.
    pub(super) fn shards(&self) -> ShardSet {
        self.steps.shards() | 1 << self.owner.shard()
    }

    pub(super) fn taken(&self) -> usize {
        self.get().0
    }

    pub(super) fn modes(&self) -> impl Iterator<Item = (Target, SlotMode)> {
        let taken = self.steps.list[..self.taken()].iter();
        taken.map(|step| (self.steps.node(step), step.mode))
    }

    pub(super) fn is_complete(&self) -> bool {
        self.taken() == self.steps.list.len()
    }

    /// Returns the first step that is not taken.
    pub(super) fn next(&self) -> Option<&PlanStep> {
        self.steps.list.get(self.taken())
    }

    /// Returns the step in whose queue the ticket waits.
    pub(super) fn waits_at(&self) -> Option<&PlanStep> {
        match self.get() {
            (taken, TicketState::Waiting) => self.steps.list.get(taken),
            _ => None,
        }
    }

    /// Marks the ticket as waiting for the next step.
    pub(super) fn wait(&self) {
        self.set(self.taken(), TicketState::Waiting);
    }

    /// Marks the waiting step as taken. Returns the waker, to be woken when no shard is locked.
    #[must_use]
    pub(super) fn grant(&self) -> Option<Waker> {
        self.end_wait(1, TicketState::Active)
    }

    /// Marks the ticket as the victim of a deadlock. Returns the waker as [`grant`](Self::grant) does.
    #[must_use]
    pub(super) fn make_victim(&self) -> Option<Waker> {
        self.end_wait(0, TicketState::Victim)
    }

    fn end_wait(&self, granted: usize, state: TicketState) -> Option<Waker> {
        let (taken, before) = self.get();
        debug_assert_eq!(before, TicketState::Waiting, "a wait ends once");
        // First the state, then the waker: `poll` reads the state after it has locked the waker.
        self.set(taken + granted, state);
        lock(&self.waker).take()
    }

    /// Ready when the ticket does not wait.
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
