//! Runs a future on a thread that belongs to no runtime, or to another one.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Runs a future on this thread. A runtime of this module drives timers and sockets.
pub(super) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let _entered = runtime().map(Runtime::enter);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs a future on this thread. Returns `None` if it is not ready within `limit`.
pub(super) fn wait_at_most<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    wait_for(async { tokio::time::timeout(limit, future).await.ok() })
}

/// Returns the runtime of the process, which has one worker thread. If the thread cannot be started, waits that need no
/// timer still work.
fn runtime() -> Option<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("hierlock-blocking")
                .enable_all()
                .build()
                .inspect_err(|error| tracing::warn!(%error, "no runtime for blocking calls"))
                .ok()
        })
        .as_ref()
}
