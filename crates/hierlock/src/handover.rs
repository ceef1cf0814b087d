//! Work that must not stop halfway: it runs in the caller's own task, and if the caller drops its future, a spawned task
//! runs it to its end.
//!
//! ```text
//!   caller polls ──► Handover ──► work: talks to the server
//!   caller is dropped ──► the work moves into a task, and finds its token cancelled:
//!                         it cancels its statement on the server, rolls back, and ends
//! ```
//!
//! So no statement is left running and no transaction left open, and an acquire that is not dropped costs no task switch.
//! If the whole runtime ends, the connection is closed, and the server releases all locks.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Work that the caller polls, and that a spawned task finishes if the caller is dropped.
pub(crate) struct Handover<T: 'static> {
    /// The work, and the guard that cancels its token. None when the work has ended.
    work: Option<(Pin<Box<dyn Future<Output = T> + Send>>, DropGuard)>,
    runtime: Handle,
    tasks: TaskTracker,
}

impl<T: Send + 'static> Handover<T> {
    /// The token of the work is cancelled when the caller is dropped. `tasks` tracks the task that then finishes the work.
    pub(crate) fn new<W: Future<Output = T> + Send + 'static>(
        runtime: Handle,
        tasks: &TaskTracker,
        work: impl FnOnce(CancellationToken) -> W,
    ) -> Self {
        let cancellation = CancellationToken::new();
        let work = Box::pin(work(cancellation.clone()));
        Self { work: Some((work, cancellation.drop_guard())), runtime, tasks: tasks.clone() }
    }
}

impl<T: 'static> Future for Handover<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some((work, _)) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: 'static> Drop for Handover<T> {
    fn drop(&mut self) {
        if let Some((work, cancel)) = self.work.take() {
            // Before the work is polled again, so that it finds its token cancelled.
            drop(cancel);
            self.tasks.spawn_on(async move { drop(work.await) }, &self.runtime);
        }
    }
}
