//! One claim of a job: who has it ends it, and nobody else.

use super::Queue;
use super::job::QueueError;
use super::schema::{JobState, SCHEMA};
use crate::database::{AnyTransaction, Row, Transaction, Value, time_from_ms};
use crate::error::Result;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// A job that a worker has claimed. Its ID and [claim number](Self::claim_number) together are a fencing token: what
/// ends the job fails with [`is_lost`](crate::Error::is_lost) if it is no longer this worker's.
///
/// Dropped, it stays claimed until its lease ends. Clones are the same claim.
///
/// # Cancel safety
/// If one of their futures is dropped, the job is ended or not.
#[derive(Clone)]
#[must_use = "a claimed job is nobody else's until it is completed or its lease ends"]
pub struct ClaimedJob(Arc<Inner>);

struct Inner {
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
    /// How it was ended by its own worker. In a transaction of the caller's it is done only if that is committed.
    outcome: OnceLock<JobOutcome>,
    /// Until then it is surely this worker's, by our own clock: counted from before the database was asked.
    owned_until: watch::Sender<Instant>,
}

/// What became of a job that was begun, as its worker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobOutcome {
    /// It is done, and has left the queue.
    Done,
    /// A failure was counted.
    #[non_exhaustive]
    Failed {
        /// Why it failed.
        error: String,
        /// How it goes on.
        next: FailureOutcome,
    },
    /// Its handler gave it back.
    GivenBack,
    /// It was no longer this worker's.
    Lost,
    /// The handler has come back, and the database could not be told: the job comes back when its lease ends.
    Unrecorded,
}

/// What becomes of a job that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOutcome {
    /// It is tried again after this pause.
    RetryAfter(Duration),
    /// It was its last attempt.
    Dead,
}

const MAX_ERROR_CHARS: usize = 10_000;

impl ClaimedJob {
    pub(super) fn read(queue: &Queue, worker: &str, until: Instant, row: &Row) -> Result<Self> {
        Ok(Self(Arc::new(Inner {
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

    /// The number of the job.
    pub fn id(&self) -> i64 {
        self.0.id
    }

    /// How often it has been claimed, this time included.
    pub fn claim_number(&self) -> i64 {
        self.0.claim
    }

    /// What is to be done.
    pub fn payload(&self) -> &str {
        &self.0.payload
    }

    /// Who claimed it.
    pub fn worker(&self) -> &str {
        &self.0.worker
    }

    /// The how many-th attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.0.attempts + 1).unwrap_or(u32::MAX)
    }

    /// How many there are.
    pub fn max_attempts(&self) -> u32 {
        u32::try_from(self.0.max_attempts).unwrap_or(u32::MAX)
    }

    /// Lower goes first.
    pub fn priority(&self) -> i64 {
        self.0.priority
    }

    /// Its unique key, if it has one.
    pub fn unique_key(&self) -> Option<&str> {
        self.0.unique_key.as_deref()
    }

    /// When it was added, by the database's clock.
    pub fn created_at(&self) -> SystemTime {
        time_from_ms(self.0.created_ms)
    }

    pub(super) fn claim(&self) -> (i64, i64) {
        (self.0.id, self.0.claim)
    }

    /// How it was ended here, if it was.
    pub(super) fn outcome(&self) -> Option<&JobOutcome> {
        self.0.outcome.get()
    }

    /// What came first stays: a completion that was rolled back is followed by a failure.
    pub(super) fn record(&self, outcome: JobOutcome) {
        let _ = self.0.outcome.set(outcome);
    }

    /// Records the outcome; fails if it was no longer this worker's.
    fn end(&self, is_ours: bool, outcome: JobOutcome) -> Result<()> {
        if !is_ours {
            return Err(QueueError::Lost { id: self.0.id }.into());
        }
        self.record(outcome);
        Ok(())
    }

    /// Returns whether its lease has ended, as far as we know.
    pub(super) fn is_expired(&self) -> bool {
        *self.0.owned_until.borrow() <= Instant::now()
    }

    /// A heartbeat has found that it is this worker's until then, or not any more.
    pub(super) fn set_owned_until(&self, until: Instant) {
        self.0.owned_until.send_replace(until);
    }

    /// Waits until it is no longer this worker's: a [heartbeat](Queue::heartbeat) found that, or none got through
    /// during the lease. Somebody else may be doing it then. A job that was ended here is never lost.
    ///
    /// ```
    /// # use hierlock::queue::ClaimedJob;
    /// # async fn download(_: &str) {}
    /// # async fn handler(job: ClaimedJob) -> Result<(), String> {
    /// tokio::select! {
    ///     () = download(job.payload()) => Ok(()),
    ///     () = job.lost() => Err("somebody else does it now".to_owned()),
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropped, nothing has happened.
    pub async fn lost(&self) {
        let mut owned_until = self.0.owned_until.subscribe();
        loop {
            let until = *owned_until.borrow_and_update();
            tokio::select! {
                () = sleep_until(until) => break,
                // The other end is in this job.
                _ = owned_until.changed() => {}
            }
        }
        if self.outcome().is_some() {
            std::future::pending::<()>().await;
        }
    }

    /// Completes it: it leaves the queue.
    pub async fn complete(&self) -> Result<()> {
        let lost = self.0.queue.complete_all(std::slice::from_ref(self)).await?;
        self.end(lost.is_empty(), JobOutcome::Done)
    }

    /// Completes it if the caller's transaction is committed: together with what was done for it, and so exactly once.
    /// If this fails, roll back: somebody else does it, or has done it, or the transaction is one of another database.
    pub async fn complete_in(&self, tx: &mut impl AnyTransaction) -> Result<()> {
        self.end(self.0.queue.delete_in(tx, self.claim()).await?, JobOutcome::Done)
    }

    /// Counts a failure, in a transaction of its own. The job is tried again after a random pause that grows with every
    /// failure, unless this was its last attempt. Of a very long text the beginning is kept.
    ///
    /// Roll back what was done for it first: this waits for an open transaction of [`complete_in`](Self::complete_in).
    pub async fn fail(&self, error: impl fmt::Display) -> Result<FailureOutcome> {
        let text = error.to_string();
        let text: String = text.chars().filter(|c| *c != '\0').take(MAX_ERROR_CHARS).collect();
        let (next, state, pause) = if self.attempt() >= self.max_attempts() {
            (FailureOutcome::Dead, JobState::Dead, Duration::ZERO)
        } else {
            let pause = self.0.queue.backoff.pause_after(self.attempt());
            (FailureOutcome::RetryAfter(pause), JobState::Scheduled, pause)
        };
        let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX / 4);
        let sql = format!(
            "UPDATE hier_jobs SET state = ?, attempts = attempts + 1, due_ms = {} + ?, \
             last_error = ? WHERE id = ? AND claim = ? AND state = ?",
            self.0.queue.database().driver().now_ms()
        );
        let values: [Value; 6] = [
            state.code().into(),
            pause.into(),
            (&text).into(),
            self.0.id.into(),
            self.0.claim.into(),
            JobState::Claimed.code().into(),
        ];
        let count = async |mut tx: Transaction, _| {
            let counted = tx.connection().execute(&sql, values.clone()).await;
            (counted.map_err(SCHEMA.failed("count a failure")), tx)
        };
        let counted = self.0.queue.database().run((SCHEMA, ""), count).await?;
        self.end(counted.rows > 0, JobOutcome::Failed { error: text, next })?;
        Ok(next)
    }

    /// Gives it back, as if it had not been begun: it is ready again at once, and nothing is counted.
    pub async fn give_back(&self) -> Result<()> {
        let given = self.0.queue.give_back_all(std::slice::from_ref(self)).await?;
        self.end(given > 0, JobOutcome::GivenBack)
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
