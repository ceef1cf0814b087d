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

use hierlock_engine::TaskTracker;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Shows the work whether its caller was dropped. Cancelled when the receiver is dropped.
pub(crate) struct CancellationToken(Option<watch::Sender<()>>);

impl CancellationToken {
    #[cfg(feature = "_server")]
    /// Returns a token that is never cancelled, for work that runs only inside the caller's future.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// Waits until the caller is dropped.
    pub(crate) async fn cancelled(&self) {
        match &self.0 {
            Some(caller) => caller.closed().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(watch::Sender::is_closed)
    }
}

/// Work that the caller polls, and that a spawned task finishes if the caller is dropped.
pub(crate) struct Handover<T: 'static> {
    /// The work, and the receiver that is dropped with the caller. None when the work has ended.
    work: Option<(Pin<Box<dyn Future<Output = T> + Send>>, watch::Receiver<()>)>,
    runtime: Handle,
    tasks: TaskTracker,
}

impl<T: Send + 'static> Handover<T> {
    /// `tasks` tracks the task that finishes the work, if one is spawned.
    pub(crate) fn new<W: Future<Output = T> + Send + 'static>(
        runtime: Handle,
        tasks: &TaskTracker,
        work: impl FnOnce(CancellationToken) -> W,
    ) -> Self {
        let (worker, caller) = watch::channel(());
        let work = Box::pin(work(CancellationToken(Some(worker))));
        Self { work: Some((work, caller)), runtime, tasks: tasks.clone() }
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
        if let Some((work, caller)) = self.work.take() {
            // Before the work is polled again, so that it finds its token cancelled.
            drop(caller);
            self.tasks.spawn(&self.runtime, async move { drop(work.await) });
        }
    }
}
