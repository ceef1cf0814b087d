//! A claimed job, which only the holder of the claim can end.

use super::Queue;
use super::job::QueueError;
use super::schema::{CLAIMED, DEAD, SCHEDULED, SCHEMA};
use crate::database::{AnyTransaction, Row, time_from_ms};
use crate::error::Result;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// A job that a worker has claimed. Its ID and [claim number](Self::claim_number) together are a fencing token: the methods
/// that end the job fail with [`is_lost`](crate::Error::is_lost) if the claim is lost.
///
/// If it is dropped, the job stays claimed until its lease ends. Clones are the same claim.
///
/// # Cancel safety
/// If the future of a method that ends the job is dropped, the job may or may not be ended.
#[derive(Clone)]
#[must_use = "a claimed job is not run by other workers until its lease ends"]
pub struct ClaimedJob(Arc<JobInner>);

struct JobInner {
    queue: Queue,
    id: i64,
    claim: i64,
    worker: String,
    payload: String,
    attempts: i64,
    max_attempts: i64,
    priority: i64,
    unique_key: Option<String>,
    created_ms: i64,
    /// How its own worker ended the job. An end in the caller's transaction counts only if that is committed.
    outcome: OnceLock<JobOutcome>,
    /// The end of the lease by the local monotonic clock, counted from before the statement that set it.
    owned_until: watch::Sender<Instant>,
}

/// The outcome of a job, as its worker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobOutcome {
    /// The job is completed and deleted.
    Done,
    /// A failure was counted.
    #[non_exhaustive]
    Failed {
        /// The error.
        error: String,
        /// Whether the job is retried.
        next: FailureOutcome,
    },
    /// The handler gave the job back.
    GivenBack,
    /// The claim was lost.
    Lost,
    /// The handler has returned, but the outcome could not be written to the database. The job becomes ready again when its
    /// lease ends.
    Unrecorded,
}

/// What happens next to a failed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOutcome {
    /// The job is retried after this pause.
    RetryAfter(Duration),
    /// This was the last attempt.
    Dead,
}

const MAX_ERROR_CHARS: usize = 10_000;

impl ClaimedJob {
    pub(super) fn read(queue: &Queue, worker: &str, until: Instant, row: &Row) -> Result<Self> {
        Ok(Self(Arc::new(JobInner {
            queue: queue.clone(),
            worker: worker.to_owned(),
            id: row.int(0)?,
            claim: row.int(1)?,
            payload: row.text(2)?,
            attempts: row.int(3)?,
            max_attempts: row.int(4)?,
            priority: row.int(5)?,
            unique_key: row.text_or_null(6)?,
            created_ms: row.int(7)?,
            outcome: OnceLock::new(),
            owned_until: watch::Sender::new(until),
        })))
    }

    getters! { self:
        /// Returns the ID of the job.
        id -> i64 = self.0.id;
        /// Returns how often the job has been claimed, this claim included.
        claim_number -> i64 = self.0.claim;
        /// Returns the payload.
        payload -> &str = &self.0.payload;
        /// Returns the name of the worker that has claimed the job.
        worker -> &str = &self.0.worker;
        /// Returns the number of this attempt, from 1.
        attempt -> u32 = u32::try_from(self.0.attempts + 1).unwrap_or(u32::MAX);
        /// Returns the maximum number of attempts.
        max_attempts -> u32 = u32::try_from(self.0.max_attempts).unwrap_or(u32::MAX);
        /// Returns the priority; a lower number goes first.
        priority -> i64 = self.0.priority;
        /// Returns the unique key, if there is one.
        unique_key -> Option<&str> = self.0.unique_key.as_deref();
        /// Returns when the job was added, by the database's clock.
        created_at -> SystemTime = time_from_ms(self.0.created_ms);
    }

    pub(super) fn claim(&self) -> (i64, i64) {
        (self.0.id, self.0.claim)
    }

    /// Returns how its own worker ended the job, if it did.
    pub(super) fn outcome(&self) -> Option<&JobOutcome> {
        self.0.outcome.get()
    }

    /// Records the first outcome; later ones are ignored, such as a failure after a completion that was rolled back.
    pub(super) fn record(&self, outcome: JobOutcome) {
        let _ = self.0.outcome.set(outcome);
    }

    /// Records the outcome. Fails if the claim was lost.
    fn end(&self, is_owned: bool, outcome: JobOutcome) -> Result<()> {
        if !is_owned {
            return Err(QueueError::Lost { id: self.0.id }.into());
        }
        self.record(outcome);
        Ok(())
    }

    /// Returns whether the lease has ended by the local clock.
    pub(super) fn is_expired(&self) -> bool {
        *self.0.owned_until.borrow() <= Instant::now()
    }

    /// Sets the end of the lease, after a heartbeat.
    pub(super) fn set_owned_until(&self, until: Instant) {
        self.0.owned_until.send_replace(until);
    }

    /// Waits until the claim is lost: a [heartbeat](Queue::heartbeat) has found that, or no heartbeat succeeded during the
    /// lease. Another worker may run the job then. A job that its own worker has ended is never lost.
    ///
    /// ```
    /// # use hierlock::queue::ClaimedJob;
    /// # async fn download(_: &str) {}
    /// # async fn handler(job: ClaimedJob) -> Result<(), String> {
    /// tokio::select! {
    ///     () = download(job.payload()) => Ok(()),
    ///     () = job.lost() => Err("another worker may run the job now".to_owned()),
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        let mut owned_until = self.0.owned_until.subscribe();
        loop {
            let until = *owned_until.borrow_and_update();
            tokio::select! {
                () = sleep_until(until) => break,
                // Never an error: the sender is in this job.
                _ = owned_until.changed() => {}
            }
        }
        if self.outcome().is_some() {
            std::future::pending::<()>().await;
        }
    }

    /// Completes the job and deletes it from the queue.
    pub async fn complete(&self) -> Result<()> {
        let lost = self.0.queue.complete_all(std::slice::from_ref(self)).await?;
        self.end(lost.is_empty(), JobOutcome::Done)
    }

    /// Completes the job in the caller's transaction, which also contains the work of the job. So the work is committed
    /// exactly once. If this fails, roll back: another worker runs or has run the job, or the transaction is one of another
    /// database.
    pub async fn complete_in(&self, tx: &mut impl AnyTransaction) -> Result<()> {
        self.end(self.0.queue.delete_in(tx, self.claim()).await?, JobOutcome::Done)
    }

    /// Counts a failure, in its own transaction. The job is retried after a random pause that grows with every failure,
    /// unless this was its last attempt. A very long error text is truncated.
    ///
    /// Roll back the work of the job first: this waits for an open transaction of [`complete_in`](Self::complete_in).
    pub async fn fail(&self, error: impl fmt::Display) -> Result<FailureOutcome> {
        let text = error.to_string();
        let text: String = text.chars().filter(|c| *c != '\0').take(MAX_ERROR_CHARS).collect();
        let (next, state, pause) = if self.attempt() >= self.max_attempts() {
            (FailureOutcome::Dead, DEAD, Duration::ZERO)
        } else {
            let pause = self.0.queue.backoff.pause_after(self.attempt());
            (FailureOutcome::RetryAfter(pause), SCHEDULED, pause)
        };
        let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX / 4);
        let sql = format!(
            "UPDATE hier_jobs SET state = ?, attempts = attempts + 1, due_ms = {} + ?, \
             last_error = ? WHERE id = ? AND claim = ? AND state = {CLAIMED}",
            self.0.queue.database().driver().now_ms()
        );
        let values =
            [state.into(), pause.into(), (&text).into(), self.0.id.into(), self.0.claim.into()];
        let failed = SCHEMA.failed("count a failure");
        let updated = self.0.queue.database().execute(failed, &sql, &values).await?;
        self.end(updated.rows > 0, JobOutcome::Failed { error: text, next })?;
        Ok(next)
    }

    /// Gives the job back as if it had not been started: it is ready again at once, and no failure is counted.
    pub async fn give_back(&self) -> Result<()> {
        let count = self.0.queue.give_back_all(std::slice::from_ref(self)).await?;
        self.end(count > 0, JobOutcome::GivenBack)
    }
}

impl fmt::Debug for ClaimedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedJob")
            .field("id", &self.0.id)
            .field("claim", &self.0.claim)
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
