//! The keep-alive task, one for each client. It checks that the sessions of all holds are alive, and ends the transactions of
//! idle sessions. It runs only while there are holds or such transactions.

use super::{HoldInner, LockPool};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::watch;
use tokio::time::sleep;

/// The holds of a client, and the task that keeps them alive.
#[derive(Debug, Default)]
pub(super) struct KeepAlive {
    /// The holds by the id of their entry in the registry.
    holds: HashMap<u64, Weak<HoldInner>>,
    task: Option<KeepAliveTask>,
}

/// A channel that is closed when the task ends, for any reason.
pub(super) type KeepAliveTask = watch::Receiver<()>;

impl KeepAlive {
    /// Keeps a hold alive until it is [removed](Self::remove).
    pub(super) fn add(&mut self, id: u64, hold: &Arc<HoldInner>) {
        self.holds.insert(id, Arc::downgrade(hold));
        self.task_for(hold);
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.holds.remove(&id);
    }

    /// Returns the task that keeps a hold alive. Starts one if none runs. Returns a closed one if the hold's runtime has
    /// ended.
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
            // Separate tasks, so that a session that does not answer does not delay the others.
            tokio::spawn(async move { hold.ping().await });
        }
    }
}
