//! One task per client that asks the session of each hold whether it is still there, and leaves no idle session in a
//! transaction. It runs only while there is something to keep alive.

use super::{HoldInner, LockPool};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::watch;
use tokio::time::sleep;

/// The holds of a client that are kept alive.
#[derive(Debug, Default)]
pub(super) struct KeepAlive {
    /// By the number of their entries in the registry.
    holds: HashMap<u64, Weak<HoldInner>>,
    task: Option<KeepAliveTask>,
}

/// A task that runs until this is closed, however it ends.
pub(super) type KeepAliveTask = watch::Receiver<()>;

impl KeepAlive {
    /// Keeps a hold alive until it is [removed](Self::remove).
    pub(super) fn add(&mut self, number: u64, hold: &Arc<HoldInner>) {
        self.holds.insert(number, Arc::downgrade(hold));
        self.task_for(hold);
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.holds.remove(&number);
    }

    /// Returns the task that keeps a hold alive, started if none runs; a closed one if the hold's runtime has ended.
    pub(super) fn task_for(&mut self, hold: &HoldInner) -> KeepAliveTask {
        if let Some(task) = &self.task
            && task.has_changed().is_ok()
        {
            return task.clone();
        }
        let (running, task) = watch::channel(());
        self.task = Some(task.clone());
        hold.runtime.spawn(run(Arc::downgrade(&hold.pool), running));
        task
    }
}

async fn run(pool: Weak<LockPool>, running: watch::Sender<()>) {
    loop {
        let Some(interval) = pool.upgrade().map(|pool| pool.settings.keep_alive) else { return };
        sleep(interval).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.server.end_idle_transactions().await;
        let holds: Vec<Arc<HoldInner>> = {
            let mut keep_alive = pool.keep_alive.lock();
            if keep_alive.holds.is_empty() && !pool.server.has_open_transactions() {
                keep_alive.task = None;
                drop(running);
                return;
            }
            keep_alive.holds.values().filter_map(Weak::upgrade).collect()
        };
        for hold in holds {
            // One that does not answer must not keep the others waiting.
            tokio::spawn(async move { hold.ping().await });
        }
    }
}
