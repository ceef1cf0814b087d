//! Claims, heartbeats, and the promotion of jobs that are due or whose lease has ended.

use super::batch_update::{BatchUpdate, RowSelection, claimed_rows};
use super::claimed_job::ClaimedJob;
use super::inspect::read;
use super::job::{check_name, millis};
use super::schema::{CLAIMED, SCHEDULED, SCHEMA};
use super::{BATCH, Queue};
use crate::database::{Driver, LockWaitPolicy, Row};
use crate::error::Result;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// The numbers of jobs that [`promote`](Queue::promote) has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromotionCounts {
    /// Scheduled jobs that were due and are ready now.
    pub ready: u64,
    /// Jobs whose lease has ended and that are ready again, with one more failure.
    pub returned: u64,
    /// Jobs whose lease has ended in their last attempt and that are dead now.
    pub dead: u64,
}

impl Queue {
    /// The maximum number of jobs of one claim.
    pub const MAX_CLAIM: usize = 10_000;

    /// Claims up to `most` ready jobs, by priority, then age; never more than [`MAX_CLAIM`](Self::MAX_CLAIM). No other
    /// worker waits for them or gets them until the lease ends. Fails with [`is_usage`](crate::Error::is_usage) if the name
    /// of the worker or the lease is invalid.
    ///
    /// # Cancel safety
    /// If the future is dropped, a task gives back the claimed jobs.
    pub async fn claim(
        &self,
        worker: &str,
        most: usize,
        lease: Duration,
    ) -> Result<Vec<ClaimedJob>> {
        check_name("worker", worker)?;
        let lease = millis("lease", lease, 1)?;
        if most == 0 {
            return Ok(Vec::new());
        }
        let (queue, worker) = (self.clone(), worker.to_owned());
        let claim = self.database().run_to_end(|cancellation| async move {
            let claimed = queue.claim_now(&worker, most.min(Self::MAX_CLAIM), lease).await?;
            if cancellation.is_cancelled() {
                queue.give_back_all(&claimed).await?;
            }
            Ok(claimed)
        });
        claim.await
    }

    async fn claim_now(&self, worker: &str, most: usize, lease: i64) -> Result<Vec<ClaimedJob>> {
        const OPERATION: &str = "claim jobs";
        let owned_until = Instant::now() + Duration::from_millis(lease.unsigned_abs());
        let rows = if self.database().driver() == Driver::Postgres {
            let sql = format!("SELECT id, claim{CLAIM_COLUMNS} FROM hier_jobs_claim(?, ?, ?, ?)");
            let values = [self.name().into(), worker.into(), (most as i64).into(), lease.into()];
            self.database().fetch(SCHEMA.failed(OPERATION), &sql, &values).await?
        } else {
            claim_update(self.name(), worker, most, lease).run(self.database(), OPERATION).await?
        };
        let claimed = rows.iter().map(|row| ClaimedJob::read(self, worker, owned_until, row));
        let mut claimed = claimed.collect::<Result<Vec<_>>>()?;
        claimed.sort_by_key(|job| (job.priority(), job.id()));
        Ok(claimed)
    }

    /// Extends the leases of these jobs to `lease` from now on. Returns the IDs of jobs whose claim is lost, for which
    /// [`lost`](ClaimedJob::lost) returns. Does not wait for locked rows. Fails with [`is_usage`](crate::Error::is_usage)
    /// if the lease is invalid.
    ///
    /// # Cancel safety
    /// If the future is dropped, the leases may or may not be extended.
    pub async fn heartbeat(&self, jobs: &[ClaimedJob], lease: Duration) -> Result<Vec<i64>> {
        let lease_ms = millis("lease", lease, 1)?;
        let mut lost = Vec::new();
        for jobs in jobs.chunks(BATCH) {
            let sent_at = Instant::now();
            let claims: Vec<_> = jobs.iter().map(ClaimedJob::claim).collect();
            let from = claimed_rows(self.database().driver(), &claims);
            let rows = RowSelection::ByClaim { claims, policy: LockWaitPolicy::Skip };
            let extend = BatchUpdate::new(rows, format!("due_ms = {{now}} + {lease_ms}"));
            let mut rows = extend.run(self.database(), "extend the leases of jobs").await?;
            // A missing job is lost, or its row is locked by a transaction that may roll back.
            if rows.len() < jobs.len() {
                let sql = format!("SELECT j.id, j.claim {from}");
                rows.extend(read(self.database(), "check the claims of jobs", &sql, &[]).await?);
            }
            let held = rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?)));
            let held = held.collect::<Result<HashSet<(i64, i64)>>>()?;
            for job in jobs {
                let is_held = held.contains(&job.claim());
                job.set_owned_until(if is_held { sent_at + lease } else { sent_at });
                if !is_held {
                    lost.push(job.id());
                }
            }
        }
        Ok(lost)
    }

    /// Makes jobs ready that are due, or whose lease has ended. The end of a lease counts as a failure, so a job that
    /// always kills its worker is dead in the end. A [worker](Self::worker) calls this every time it polls.
    ///
    /// # Cancel safety
    /// If the future is dropped, some jobs may not be ready yet.
    pub async fn promote(&self) -> Result<PromotionCounts> {
        let promote = promote_scheduled(self.name());
        let ready = promote.run_for_all(self.database(), "make jobs ready", |_| Ok(())).await?;
        let mut counts = PromotionCounts { ready, ..PromotionCounts::default() };
        let count = |row: &Row| {
            let is_dead = row.int(1)? >= row.int(2)?;
            *(if is_dead { &mut counts.dead } else { &mut counts.returned }) += 1;
            Ok(())
        };
        return_expired(self.name())
            .run_for_all(self.database(), "return expired jobs", count)
            .await?;
        Ok(counts)
    }

    /// Makes claimed jobs ready again without counting a failure, and returns their number. Jobs whose claim is lost are
    /// not changed.
    pub(super) async fn give_back_all(&self, jobs: &[ClaimedJob]) -> Result<u64> {
        let mut count = 0;
        for jobs in jobs.chunks(BATCH) {
            let claims = jobs.iter().map(ClaimedJob::claim).collect();
            // No other waiter holds some of these rows, so this cannot deadlock.
            let rows = RowSelection::ByClaim { claims, policy: LockWaitPolicy::Wait };
            let give_back = BatchUpdate::new(rows, "state = 0, due_ms = {now}, worker = NULL");
            count += give_back.run(self.database(), "give back jobs").await?.len() as u64;
        }
        if count > 0 {
            self.wake();
        }
        Ok(count)
    }
}

/// The columns of a claim, after its ID and number.
const CLAIM_COLUMNS: &str = ", payload, attempts, max_attempts, priority, unique_key, created_ms";

pub(super) fn claim_update(queue: &str, worker: &str, most: usize, lease: i64) -> BatchUpdate {
    BatchUpdate {
        rows: RowSelection::ByIndex {
            index: "hier_jobs_claim",
            condition: format!("queue = '{queue}' AND state = 0"),
            order: "priority, id",
            limit: most,
        },
        set: format!("state = 2, worker = '{worker}', due_ms = {{now}} + {lease}"),
        counter: ("claim", 1),
        returning: CLAIM_COLUMNS,
    }
}

pub(super) fn promote_scheduled(queue: &str) -> BatchUpdate {
    BatchUpdate::new(due(queue, SCHEDULED), "state = 0")
}

/// Makes claimed jobs ready or dead whose lease has ended.
pub(super) fn return_expired(queue: &str) -> BatchUpdate {
    let set = "state = CASE WHEN {n} >= max_attempts THEN 3 ELSE 0 END, due_ms = {now}, \
               last_error = 'the lease of its worker ended before it was done'";
    let update = BatchUpdate::new(due(queue, CLAIMED), set);
    BatchUpdate { counter: ("attempts", 1), returning: ", max_attempts", ..update }
}

fn due(queue: &str, state: i64) -> RowSelection {
    let condition = format!("queue = '{queue}' AND state = {state} AND due_ms <= {{now}}");
    RowSelection::by_due_time(condition)
}
