//! What goes on beside the loop of a worker, and ends with it: heartbeats for the jobs in hand, and on
//! PostgreSQL an ear for new ones.

use crate::database::{answered, heartbeat_within};
use crate::queue::{Claimed, Queue};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// The jobs that a worker has.
#[derive(Clone, Default)]
pub(super) struct Hand(Arc<Mutex<HashMap<i64, Claimed>>>);

impl Hand {
    pub(super) fn add(&self, jobs: &[Claimed]) {
        let mut hand = self.0.lock();
        hand.extend(jobs.iter().map(|job| (job.id(), job.clone())));
    }

    /// A newer run of the same job stays.
    pub(super) fn remove(&self, jobs: &[Claimed]) {
        let mut hand = self.0.lock();
        for job in jobs {
            if hand.get(&job.id()).is_some_and(|held| held.pair() == job.pair()) {
                hand.remove(&job.id());
            }
        }
    }

    fn all(&self) -> Vec<Claimed> {
        self.0.lock().values().cloned().collect()
    }
}

/// Tasks that end when it is dropped.
pub(super) struct Beside {
    _tasks: JoinSet<()>,
}

impl Beside {
    pub(super) fn start(queue: &Queue, hand: &Hand, lease: Duration) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(heartbeats(queue.clone(), hand.clone(), lease));
        #[cfg(feature = "postgres")]
        if let Some(pool) = queue.database().listener() {
            tasks.spawn(notifications::listen(queue.clone(), pool));
        }
        Self { _tasks: tasks }
    }
}

/// Three in the time of a lease, and sooner after one that failed. One that is not answered fails, for the
/// network may have forgotten its connection, and not others.
async fn heartbeats(queue: Queue, hand: Hand, lease: Duration) {
    let mut beat = interval((lease / 3).max(Duration::from_millis(1)));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let jobs = hand.all();
        if jobs.is_empty() {
            continue;
        }
        let heartbeat = queue.heartbeat(&jobs, lease);
        match answered(heartbeat_within(lease), "extend leases", heartbeat).await {
            Ok(lost) => {
                // One that has just been completed is not lost, and not in the hand any more either.
                let lost = jobs.into_iter().filter(|job| lost.contains(&job.id()));
                hand.remove(&lost.collect::<Vec<_>>());
            }
            Err(error) => {
                tracing::warn!(%error, "a heartbeat failed");
                beat.reset_after(lease / 12);
            }
        }
    }
}

/// New jobs, as PostgreSQL tells of them.
#[cfg(feature = "postgres")]
mod notifications {
    use crate::database::error_message;
    use crate::queue::Queue;
    use crate::queue::enqueue::CHANNEL;
    use sqlx::PgPool;
    use sqlx::postgres::PgListener;
    use std::time::Duration;
    use tokio::time::sleep;

    /// How long it waits before it connects again to listen.
    const RECONNECT_DELAY: Duration = Duration::from_secs(1);

    pub(super) async fn listen(queue: Queue, pool: PgPool) {
        loop {
            if let Err(error) = hear(&queue, &pool).await {
                tracing::warn!(
                    error = error_message(&error),
                    "cannot listen for new jobs; they are found by polling"
                );
            }
            sleep(RECONNECT_DELAY).await;
        }
    }

    async fn hear(queue: &Queue, pool: &PgPool) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        // Something may have come before.
        queue.wake();
        loop {
            match listener.try_recv().await? {
                Some(said) if said.payload() != queue.name() => {}
                Some(_) => queue.wake(),
                // It was cut off, and is not any more: nobody knows what was said meanwhile.
                None => queue.wake(),
            }
        }
    }
}
