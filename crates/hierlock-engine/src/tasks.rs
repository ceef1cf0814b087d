//! Trackers of cleanup tasks, so that a program can wait for them before it ends.

use tokio_util::task::TaskTracker;

/// Returns a tracker whose [`wait`](TaskTracker::wait) resolves as soon as no task is left. Tasks can be spawned at any
/// time.
pub fn task_tracker() -> TaskTracker {
    let tasks = TaskTracker::new();
    // `wait` does not resolve before that.
    tasks.close();
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::timeout;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn waits_until_every_task_has_ended() {
        let tasks = task_tracker();
        runtime().block_on(async {
            tasks.wait().await;
            let (first, second) = (tasks.token(), tasks.token());
            drop(first);
            let waited = timeout(Duration::from_millis(1), tasks.wait()).await;
            assert!(waited.is_err(), "did not wait for the second task");
            let clone = tasks.clone();
            tasks.spawn(async move { drop(second) });
            clone.wait().await;
        });
    }

    /// A task that its runtime drops never finishes; waiting must not hang.
    #[test]
    fn a_task_dropped_by_its_runtime_is_not_counted() {
        let tasks = task_tracker();
        let (first, second) = (runtime(), runtime());
        let ended = first.handle().clone();
        tasks.spawn_on(std::future::pending::<()>(), &ended);
        drop(first);
        tasks.spawn_on(std::future::pending::<()>(), &ended);
        second.block_on(tasks.wait());
    }
}
