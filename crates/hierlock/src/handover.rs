//! Work that must not stop halfway: the caller runs it, in the caller's own task, and if the caller goes
//! away a task of our own runs it to its end.
//!
//! ```text
//!   caller polls ──► Handover ──► work: talks to the server
//!   caller is dropped ──► the work moves into a task, and finds its token cancelled:
//!                         it cancels on the server, gives back, and ends
//! ```
//!
//! So no statement is left running and no transaction left open, and an acquire that is not disturbed costs no switch
//! between tasks. If the whole runtime goes away, so does the connection, and the server frees everything.

use hierlock_engine::TaskTracker;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Tells work that its caller has gone. Cancelled when the receiver is dropped.
pub(crate) struct CancellationToken(Option<watch::Sender<()>>);

impl CancellationToken {
    #[cfg(feature = "_server")]
    /// Returns a token that is never cancelled: for work that its caller drops as a whole, if at all.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// Waits until the caller has gone.
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

/// Work that its caller runs, and a task finishes if the caller is dropped.
pub(crate) struct Handover<T: 'static> {
    /// And the receiver that is dropped when the caller goes. None when it has ended.
    work: Option<(Pin<Box<dyn Future<Output = T> + Send>>, watch::Receiver<()>)>,
    runtime: Handle,
    tasks: TaskTracker,
}

impl<T: Send + 'static> Handover<T> {
    /// If it comes to a task, that one is counted.
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
            // Before it is run again: it must find its token cancelled.
            drop(caller);
            self.tasks.spawn(&self.runtime, async move { drop(work.await) });
        }
    }
}
