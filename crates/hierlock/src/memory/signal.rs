//! How a waiter is told: by whoever grants it, under the lock of the table it waits in.

use crate::sync::{Mutex, lock};
use std::task::{Context, Poll, Waker};

/// What became of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The node is taken: the table already counts it.
    Granted,
    /// Taken out of the queue to break a circle.
    Victim,
}

/// Shared by a waiter in a queue and the future that waits.
#[derive(Debug, Default)]
pub(super) struct Signal(Mutex<(Option<Outcome>, Option<Waker>)>);

impl Signal {
    /// Sets the outcome; the waker is for the caller to wake when it holds no lock.
    #[must_use]
    pub(super) fn set(&self, outcome: Outcome) -> Option<Waker> {
        let mut state = lock(&self.0);
        debug_assert!(state.0.is_none(), "a wait ends once");
        state.0 = Some(outcome);
        state.1.take()
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        lock(&self.0).0
    }

    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Outcome> {
        let mut state = lock(&self.0);
        match state.0 {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
