//! A ticket: one owner's plan, how far it got, and how the owner is told. Shared by the owner, by its
//! entry in a table, and, while it waits, by the queue of a node.

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
#[repr(usize)]
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
    pub(super) name: Option<Arc<str>>,
    /// When it was asked for.
    pub(super) since: Instant,
    pub(super) moves: Moves,
    /// How many of the moves are taken.
    taken: AtomicUsize,
    state: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Ticket {
    pub(super) fn new(owner: Owner, kind: Kind, name: Option<Arc<str>>, moves: Moves) -> Self {
        Self {
            owner,
            kind,
            name,
            since: Instant::now(),
            moves,
            taken: AtomicUsize::new(0),
            state: AtomicUsize::new(State::Going as usize),
            waker: Mutex::new(None),
        }
    }

    /// What an owner has after an extension: all of both.
    pub(super) fn merged(&self, more: &Ticket) -> Self {
        let moves = more.moves.merged_with(&self.moves);
        let all = moves.list.len();
        let merged = Self::new(self.owner, self.kind, self.name.clone(), moves);
        merged.set_taken(all);
        Self { since: self.since, ..merged }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    pub(super) fn set_taken(&self, taken: usize) {
        self.taken.store(taken, Ordering::Release);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.taken() == self.moves.list.len()
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            waiting if waiting == State::Waiting as usize => State::Waiting,
            victim if victim == State::Victim as usize => State::Victim,
            _ => State::Going,
        }
    }

    /// The first node that is not taken.
    pub(super) fn next(&self) -> Option<&Move> {
        self.moves.list.get(self.taken())
    }

    /// The node in whose queue it stands.
    pub(super) fn waits_at(&self) -> Option<&Move> {
        self.next().filter(|_| self.state() == State::Waiting)
    }

    /// It enters a queue.
    pub(super) fn wait(&self) {
        self.state.store(State::Waiting as usize, Ordering::Release);
    }

    /// The node that is waited for is granted; the waker is to be woken when no lock is held.
    #[must_use]
    pub(super) fn grant(&self) -> Option<Waker> {
        debug_assert_eq!(self.state(), State::Waiting, "a wait ends once");
        self.set_taken(self.taken() + 1);
        self.end_wait(State::Going)
    }

    /// Chosen to break a circle; otherwise as [`grant`](Self::grant).
    #[must_use]
    pub(super) fn choose(&self) -> Option<Waker> {
        debug_assert_eq!(self.state(), State::Waiting, "a wait ends once");
        self.end_wait(State::Victim)
    }

    fn end_wait(&self, state: State) -> Option<Waker> {
        // First the state, then the waker: whoever leaves a waker looks at the state after locking.
        self.state.store(state as usize, Ordering::Release);
        lock(&self.waker).take()
    }

    /// Ready when it waits no more.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<State> {
        let mut waker = lock(&self.waker);
        match self.state() {
            State::Waiting => {
                match &mut *waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            ended => Poll::Ready(ended),
        }
    }
}
