//! One task that goes its round among all holds of a backend: asks each connection whether it is still
//! there, and leaves no idle one in a transaction. It is on duty only while there is something to watch.

use super::kept::Kept;
use super::pool::LockPool;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

#[derive(Default)]
pub(super) struct Watchman {
    post: Mutex<Post>,
}

impl std::fmt::Debug for Watchman {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchman").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Post {
    watched: HashMap<u64, Weak<Kept>>,
    last: u64,
    /// Closed when the task has ended, however it did.
    duty: Option<Duty>,
}

/// Somebody is on duty until this is closed.
pub(super) type Duty = watch::Receiver<()>;

/// A hold's place in the round.
pub(super) struct Watched {
    pool: Arc<LockPool>,
    number: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.pool.watchman.post().watched.remove(&self.number);
    }
}

impl Watchman {
    fn post(&self) -> std::sync::MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Post {
    /// Somebody on duty, called if nobody is.
    fn on_duty(&mut self, pool: &Arc<LockPool>, runtime: &Handle) -> Duty {
        if let Some(duty) = &self.duty
            && duty.has_changed().is_ok()
        {
            return duty.clone();
        }
        let (on, duty) = watch::channel(());
        self.duty = Some(duty.clone());
        runtime.spawn(rounds(Arc::downgrade(pool), on));
        duty
    }
}

/// Has a hold watched for as long as what comes back lives.
pub(super) fn watch_over(kept: &Arc<Kept>) -> Watched {
    let pool = &kept.pool;
    let mut post = pool.watchman.post();
    post.last += 1;
    let number = post.last;
    post.watched.insert(number, Arc::downgrade(kept));
    post.on_duty(pool, &kept.runtime);
    drop(post);
    Watched { pool: pool.clone(), number }
}

/// Who is on duty for a hold; a closed one if its runtime has ended.
pub(super) fn duty_for(kept: &Kept) -> Duty {
    kept.pool.watchman.post().on_duty(&kept.pool, &kept.runtime)
}

async fn rounds(pool: Weak<LockPool>, on: watch::Sender<()>) {
    loop {
        let Some(every) = pool.upgrade().map(|pool| pool.settings.keep_alive) else { return };
        sleep(every).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.server.end_idle_transactions().await;
        let watched: Vec<Arc<Kept>> = {
            let mut post = pool.watchman.post();
            if post.watched.is_empty() && !pool.server.has_open_transactions() {
                post.duty = None;
                drop(on);
                return;
            }
            post.watched.values().filter_map(Weak::upgrade).collect()
        };
        for kept in watched {
            // One that does not answer must not keep the others waiting.
            tokio::spawn(async move { kept.ping().await });
        }
    }
}
