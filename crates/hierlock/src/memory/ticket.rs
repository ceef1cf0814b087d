//! A ticket: one owner's plan, how far it got, and how the owner is told. Shared by the owner, by its
//! entry in a table, and, while it waits, by the queue of a node.

use super::manager::ShardSet;
use super::moves::{Move, Moves};
use super::node::Owner;
use crate::sync::{AtomicUsize, Mutex, Ordering, lock};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// What a ticket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A new hold. All take their nodes in one order, so they cannot wait in a circle.
    Acquire,
    /// More for a hold. May come in any order, so it may close a circle.
    Extend,
}

/// Where a ticket stands. Changes only under the lock of the shard that is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In nobody's queue: taking nodes, or all of them taken.
    Going,
    /// In the queue of the first node that is not taken.
    Waiting,
    /// Taken out of the queue to break a circle.
    Victim,
}

#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) owner: Owner,
    pub(super) kind: Kind,
    pub(super) name: Option<Arc<String>>,
    /// When it was asked for.
    pub(super) since: Instant,
    pub(super) moves: Moves,
    /// How many of the moves are taken, and the state, in one word: see [`Ticket::set`].
    progress: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Ticket {
    pub(super) fn new(owner: Owner, kind: Kind, name: Option<Arc<String>>, moves: Moves) -> Self {
        let (progress, waker) = (AtomicUsize::new(0), Mutex::new(None));
        Self { owner, kind, name, since: Instant::now(), moves, progress, waker }
    }

    /// What an owner has after an extension: all of both.
    pub(super) fn merged(&self, more: &Ticket) -> Self {
        let moves = more.moves.merged_with(&self.moves);
        let all = moves.list.len();
        let merged = Self::new(self.owner, self.kind, self.name.clone(), moves);
        merged.set(all, State::Going);
        Self { since: self.since, ..merged }
    }

    pub(super) fn set(&self, taken: usize, state: State) {
        self.progress.store(taken << 2 | state as usize, Ordering::Release);
    }

    fn get(&self) -> (usize, State) {
        let progress = self.progress.load(Ordering::Acquire);
        let state = match progress & 3 {
            state if state == State::Waiting as usize => State::Waiting,
            state if state == State::Victim as usize => State::Victim,
            _ => State::Going,
        };
        (progress >> 2, state)
    }

    /// The shards of its nodes, and its owner's home.
    pub(super) fn shards(&self) -> ShardSet {
        self.moves.shards() | 1 << self.owner.home()
    }

    pub(super) fn taken(&self) -> usize {
        self.get().0
    }

    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn state_now(&self) -> State {
        self.get().1
    }

    pub(super) fn is_complete(&self) -> bool {
        self.taken() == self.moves.list.len()
    }

    /// The first node that is not taken.
    pub(super) fn next(&self) -> Option<&Move> {
        self.moves.list.get(self.taken())
    }

    /// The node in whose queue it stands.
    pub(super) fn waits_at(&self) -> Option<&Move> {
        match self.get() {
            (taken, State::Waiting) => self.moves.list.get(taken),
            _ => None,
        }
    }

    /// It enters the queue of the next node.
    pub(super) fn wait(&self) {
        self.set(self.taken(), State::Waiting);
    }

    /// The node that is waited for is granted; the waker is to be woken when no lock is held.
    #[must_use]
    pub(super) fn grant(&self) -> Option<Waker> {
        self.end_wait(1, State::Going)
    }

    /// Chosen to break a circle; otherwise as [`grant`](Self::grant).
    #[must_use]
    pub(super) fn choose(&self) -> Option<Waker> {
        self.end_wait(0, State::Victim)
    }

    fn end_wait(&self, granted: usize, state: State) -> Option<Waker> {
        let (taken, before) = self.get();
        debug_assert_eq!(before, State::Waiting, "a wait ends once");
        // First the state, then the waker: whoever leaves a waker looks at the state after locking.
        self.set(taken + granted, state);
        lock(&self.waker).take()
    }

    /// Ready when it waits no more.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<State> {
        if let (_, ended @ (State::Going | State::Victim)) = self.get() {
            return Poll::Ready(ended);
        }
        let mut waker = lock(&self.waker);
        match self.get() {
            (_, State::Waiting) => {
                match &mut *waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            (_, ended) => Poll::Ready(ended),
        }
    }
}
