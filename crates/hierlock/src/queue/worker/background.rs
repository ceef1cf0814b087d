//! The background tasks of a worker: heartbeats for its jobs, and on PostgreSQL a listener for new jobs.

use crate::database::{heartbeat_limit, with_time_limit};
use crate::queue::{ClaimedJob, Queue};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

#[derive(Clone, Default)]
pub(super) struct ActiveJobs(Arc<Mutex<HashMap<i64, ClaimedJob>>>);

impl ActiveJobs {
    pub(super) fn add(&self, jobs: &[ClaimedJob]) {
        self.0.lock().extend(jobs.iter().map(|job| (job.id(), job.clone())));
    }

    /// Removes these claims. A newer claim of the same job is not removed.
    pub(super) fn remove(&self, jobs: &[ClaimedJob]) {
        let mut active = self.0.lock();
        for job in jobs {
            if active.get(&job.id()).is_some_and(|other| other.claim() == job.claim()) {
                active.remove(&job.id());
            }
        }
    }
}

/// Starts the tasks, which end when the set is dropped.
pub(super) fn start(queue: &Queue, active: &ActiveJobs, lease: Duration) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(send_heartbeats(queue.clone(), active.clone(), lease));
    #[cfg(feature = "postgres")]
    if let Some(pool) = queue.database().listener() {
        tasks.spawn(listen(queue.clone(), pool));
    }
    tasks
}

/// Sends three heartbeats per lease, and sooner after one that failed or was not answered.
async fn send_heartbeats(queue: Queue, active: ActiveJobs, lease: Duration) {
    let mut beat = interval((lease / 3).max(Duration::from_millis(1)));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let jobs: Vec<ClaimedJob> = active.0.lock().values().cloned().collect();
        if jobs.is_empty() {
            continue;
        }
        let heartbeat = queue.heartbeat(&jobs, lease);
        match with_time_limit(heartbeat_limit(lease), "extend leases", heartbeat).await {
            Ok(lost) => {
                // A job that was completed just now is reported as lost, and is not active any more either.
                let lost = jobs.into_iter().filter(|job| lost.contains(&job.id()));
                active.remove(&lost.collect::<Vec<_>>());
            }
            Err(error) => {
                tracing::warn!(%error, "a heartbeat failed");
                beat.reset_after(lease / 12);
            }
        }
    }
}

/// Wakes workers when PostgreSQL notifies of new jobs.
#[cfg(feature = "postgres")]
async fn listen(queue: Queue, pool: sqlx::PgPool) {
    loop {
        if let Err(error) = listen_on_connection(&queue, &pool).await {
            let error = crate::database::error_message(&error);
            tracing::warn!(error, "cannot listen for new jobs; they are found by polling");
        }
        tokio::time::sleep(super::stop::RETRY_PAUSE).await;
    }
}

#[cfg(feature = "postgres")]
async fn listen_on_connection(queue: &Queue, pool: &sqlx::PgPool) -> sqlx::Result<()> {
    let mut listener = sqlx::postgres::PgListener::connect_with(pool).await?;
    listener.listen(crate::queue::enqueue::CHANNEL).await?;
    // Jobs may have been added before LISTEN.
    queue.wake();
    loop {
        match listener.try_recv().await? {
            Some(notification) if notification.payload() != queue.name() => {}
            // The notification is for this queue, or the connection was lost and notifications may have been missed.
            _ => queue.wake(),
        }
    }
}
