//! A plan that had to wait: how far it got, and how its owner is told. Shared by the queue, by the
//! owner's future, and by its entry in the table.

use super::moves::{Move, Moves};
use crate::sync::{Mutex, lock};
use std::task::{Context, Poll, Waker};

/// Nodes on their way to being taken, by an acquire or an extension.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) moves: Moves,
    /// An extension may come in any order, so it may close a circle; an acquire cannot.
    pub(super) ordered: bool,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    /// How many of the moves are taken.
    taken: usize,
    state: State,
    waker: Option<Waker>,
}

/// Where a pending plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the queue of the first node that is not taken.
    Waiting,
    /// That node was granted: the table counts it, and so does `taken`.
    Granted,
    /// Taken out of the queue to break a circle.
    Victim,
}

impl Pending {
    pub(super) fn new(moves: Moves, taken: usize, ordered: bool) -> Self {
        let progress = Progress { taken, state: State::Waiting, waker: None };
        Self { moves, ordered, progress: Mutex::new(progress) }
    }

    pub(super) fn taken(&self) -> usize {
        lock(&self.progress).taken
    }

    pub(super) fn state(&self) -> State {
        lock(&self.progress).state
    }

    /// The node that is waited for, if one is.
    pub(super) fn waits_at(&self) -> Option<&Move> {
        let progress = lock(&self.progress);
        (progress.state == State::Waiting).then(|| &self.moves.list[progress.taken])
    }

    /// The owner goes on to wait for a later node.
    pub(super) fn wait_again(&self, taken: usize) {
        let mut progress = lock(&self.progress);
        (progress.taken, progress.state) = (taken, State::Waiting);
    }

    /// The owner has taken the rest without waiting.
    pub(super) fn all_taken(&self) {
        lock(&self.progress).taken = self.moves.list.len();
    }

    /// Grants the node that is waited for; the waker is to be woken when no lock is held.
    #[must_use]
    pub(super) fn grant(&self) -> Option<Waker> {
        let mut progress = lock(&self.progress);
        debug_assert_eq!(progress.state, State::Waiting, "a wait ends once");
        progress.taken += 1;
        progress.state = State::Granted;
        progress.waker.take()
    }

    /// Chooses it to break a circle; otherwise as [`grant`](Self::grant).
    #[must_use]
    pub(super) fn choose(&self) -> Option<Waker> {
        let mut progress = lock(&self.progress);
        debug_assert_eq!(progress.state, State::Waiting, "a wait ends once");
        progress.state = State::Victim;
        progress.waker.take()
    }

    /// Ready when it waits no more: how many are taken, unless it was chosen.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Option<usize>> {
        let mut progress = lock(&self.progress);
        match progress.state {
            State::Granted => Poll::Ready(Some(progress.taken)),
            State::Victim => Poll::Ready(None),
            State::Waiting => {
                match &mut progress.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}
