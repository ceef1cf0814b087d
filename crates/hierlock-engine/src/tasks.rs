//! A counter of cleanup tasks, so that a program can wait for them before it ends.

use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Counts tasks that must finish before the program ends. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct TaskTracker(Arc<watch::Sender<usize>>);

/// One counted task. Dropping the token ends the count, also when the runtime shuts down.
#[derive(Debug)]
pub struct TaskToken(TaskTracker);

impl TaskTracker {
    /// Counts one more task, until the token is dropped.
    #[must_use]
    pub fn token(&self) -> TaskToken {
        self.0.send_modify(|count| *count += 1);
        TaskToken(self.clone())
    }

    /// Spawns a task, which counts until it ends.
    pub fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let token = self.token();
        runtime.spawn(async move {
            task.await;
            drop(token);
        });
    }

    /// Returns whether no task is left.
    pub fn is_idle(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Waits until no task is left.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn wait_until_idle(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for TaskToken {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
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
        let tasks = TaskTracker::default();
        runtime().block_on(async {
            tasks.wait_until_idle().await;
            let (first, second) = (tasks.token(), tasks.token());
            drop(first);
            let waited = timeout(Duration::from_millis(1), tasks.wait_until_idle()).await;
            assert!(waited.is_err(), "did not wait for the second task");
            let clone = tasks.clone();
            tasks.spawn(&Handle::current(), async move { drop(second) });
            clone.wait_until_idle().await;
        });
    }

    /// A task that its runtime drops never finishes; waiting must not hang.
    #[test]
    fn a_task_dropped_by_its_runtime_is_not_counted() {
        let tasks = TaskTracker::default();
        let (first, second) = (runtime(), runtime());
        let ended = first.handle().clone();
        tasks.spawn(&ended, std::future::pending());
        drop(first);
        tasks.spawn(&ended, std::future::pending());
        second.block_on(tasks.wait_until_idle());
    }
}
