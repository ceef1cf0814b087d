//! One task per client that asks the session of each hold whether it is still there, and leaves no idle session in a
//! transaction. It runs only while there is something to keep alive.

use super::hold::HoldInner;
use super::pool::LockPool;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

/// The holds of a client that are kept alive.
#[derive(Default)]
pub(super) struct KeepAlive {
    state: Mutex<KeepAliveState>,
}

impl std::fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeepAlive").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct KeepAliveState {
    holds: HashMap<u64, Weak<HoldInner>>,
    last_number: u64,
    task: Option<KeepAliveTask>,
}

/// A task that runs until this is closed, however it ends.
pub(super) type KeepAliveTask = watch::Receiver<()>;

/// A hold that is kept alive for as long as this lives.
pub(super) struct KeepAliveEntry {
    pool: Arc<LockPool>,
    number: u64,
}

impl Drop for KeepAliveEntry {
    fn drop(&mut self) {
        self.pool.keep_alive.state().holds.remove(&self.number);
    }
}

impl KeepAlive {
    fn state(&self) -> MutexGuard<'_, KeepAliveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeepAliveState {
    /// Returns the task, which is started if none runs.
    fn running_task(&mut self, pool: &Arc<LockPool>, runtime: &Handle) -> KeepAliveTask {
        if let Some(task) = &self.task
            && task.has_changed().is_ok()
        {
            return task.clone();
        }
        let (running, task) = watch::channel(());
        self.task = Some(task.clone());
        runtime.spawn(run(Arc::downgrade(pool), running));
        task
    }
}

/// Keeps a hold alive for as long as what it returns lives.
pub(super) fn register(hold: &Arc<HoldInner>) -> KeepAliveEntry {
    let pool = &hold.pool;
    let mut state = pool.keep_alive.state();
    state.last_number += 1;
    let number = state.last_number;
    state.holds.insert(number, Arc::downgrade(hold));
    state.running_task(pool, &hold.runtime);
    drop(state);
    KeepAliveEntry { pool: pool.clone(), number }
}

/// Returns the task that keeps a hold alive; a closed one if the hold's runtime has ended.
pub(super) fn task_for(hold: &HoldInner) -> KeepAliveTask {
    hold.pool.keep_alive.state().running_task(&hold.pool, &hold.runtime)
}

async fn run(pool: Weak<LockPool>, running: watch::Sender<()>) {
    loop {
        let Some(every) = pool.upgrade().map(|pool| pool.settings.keep_alive) else { return };
        sleep(every).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.server.end_idle_transactions().await;
        let holds: Vec<Arc<HoldInner>> = {
            let mut state = pool.keep_alive.state();
            if state.holds.is_empty() && !pool.server.has_open_transactions() {
                state.task = None;
                drop(running);
                return;
            }
            state.holds.values().filter_map(Weak::upgrade).collect()
        };
        for hold in holds {
            // One that does not answer must not keep the others waiting.
            tokio::spawn(async move { hold.ping().await });
        }
    }
}
