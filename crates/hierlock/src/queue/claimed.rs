//! One run of a job: who claimed it ends it, and nobody else.

use super::error::QueueError;
use super::schema::{SCHEMA, State};
use super::take::listed;
use super::{Queue, postgres};
use crate::database::{AnyTransaction, Driver, Row, Value};
use crate::error::Result;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// A job that a worker has claimed. Its ID and [`claim`](Self::claim_number) together are the fencing token of this run:
/// with every claim the second one is higher.
///
/// Dropped, it stays claimed until its lease ends. Clones are the same run.
#[derive(Clone)]
#[must_use = "a claimed job is nobody else's until it is completed or its lease ends"]
pub struct Claimed(Arc<Run>);

struct Run {
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
    settled: OnceLock<Settled>,
    /// Until then it is surely this run's, by our own clock: counted from before the database was asked.
    ours_until: watch::Sender<Instant>,
}

/// How a run was ended by its own worker.
#[derive(Debug)]
pub(super) enum Settled {
    /// In a transaction of the caller's: if that is committed.
    Completed,
    Failed {
        error: String,
        next: Failed,
    },
    GivenBack,
}

/// What became of a job that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It is tried again after this pause.
    Again(Duration),
    /// It was its last attempt.
    Dead,
}

/// Ends a run, if the job is still its own.
const COMPLETE: &str = "DELETE FROM hier_jobs WHERE id = ? AND claim = ? AND state = ?";

fn completed((id, claim): (i64, i64)) -> [Value; 3] {
    [id.into(), claim.into(), State::Claimed.code().into()]
}

/// The longest error text that is kept, in characters.
const MOST_ERROR: usize = 10_000;

impl Claimed {
    pub(super) fn read(
        queue: &Queue,
        worker: &str,
        ours_until: Instant,
        row: &Row,
    ) -> Result<Self> {
        Ok(Self(Arc::new(Run {
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
            settled: OnceLock::new(),
            ours_until: watch::Sender::new(ours_until),
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
        UNIX_EPOCH + Duration::from_millis(u64::try_from(self.0.created_ms).unwrap_or_default())
    }

    pub(super) fn pair(&self) -> (i64, i64) {
        (self.0.id, self.0.claim)
    }

    /// How this run was ended here, if it was.
    pub(super) fn settled(&self) -> Option<&Settled> {
        self.0.settled.get()
    }

    /// Has its lease ended, as far as we know?
    pub(super) fn is_over(&self) -> bool {
        *self.0.ours_until.borrow() <= Instant::now()
    }

    fn settle(&self, settled: Settled) {
        // What came first stays: a completion that was rolled back is followed by a failure.
        let _ = self.0.settled.set(settled);
    }

    fn error_lost(&self) -> QueueError {
        QueueError::Lost { id: self.0.id }
    }

    /// What a heartbeat has found: it is this run's until then, or not any more.
    pub(super) fn is_ours_until(&self, until: Instant) {
        self.0.ours_until.send_replace(until);
    }

    /// Comes back when it is no longer this run's: a [heartbeat](Queue::heartbeat) found that, or none got
    /// through for as long as the lease was. Who goes on does what somebody else may be doing. A run that was
    /// ended here is never lost.
    ///
    /// ```
    /// # use hierlock::queue::Claimed;
    /// # async fn download(_: &str) {}
    /// # async fn handler(job: Claimed) -> Result<(), String> {
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
        let mut ours_until = self.0.ours_until.subscribe();
        loop {
            let until = *ours_until.borrow_and_update();
            tokio::select! {
                () = sleep_until(until) => break,
                // The other end is in this run.
                _ = ours_until.changed() => {}
            }
        }
        if self.settled().is_some() {
            std::future::pending::<()>().await;
        }
    }

    /// It is done, and leaves the queue.
    ///
    /// # Errors
    /// If it is no longer this run's ([`is_lost`](crate::Error::is_lost)), or the database fails.
    ///
    /// # Cancel safety
    /// Dropped, it is done or not.
    pub async fn complete(&self) -> Result<()> {
        match self.0.queue.complete_all(std::slice::from_ref(self)).await?.is_empty() {
            true => Ok(()),
            false => Err(self.error_lost().into()),
        }
    }

    /// It is done if the caller's transaction is committed: together with what was done for it, and so
    /// exactly once.
    ///
    /// # Errors
    /// If it is no longer this run's ([`is_lost`](crate::Error::is_lost)): roll back, for somebody else
    /// does it, or has done it. Or if the database fails, or the transaction is one of another database.
    ///
    /// # Cancel safety
    /// Dropped, it is part of the transaction or not: roll back.
    pub async fn complete_in(&self, tx: &mut impl AnyTransaction) -> Result<()> {
        let mut connection = self.0.queue.wire_of(tx)?;
        let run = self.pair();
        let done = match connection.driver() {
            Driver::Postgres => {
                let done =
                    connection.fetch(postgres::COMPLETE_THESE, postgres::these(&[run])).await;
                done.map(|done| done.len() as u64)
            }
            Driver::Mysql | Driver::Sqlite => {
                connection.execute(COMPLETE, completed(run)).await.map(|done| done.rows)
            }
        };
        if SCHEMA.checked(self.0.queue.database(), "complete a job", done).await? == 0 {
            return Err(self.error_lost().into());
        }
        self.settle(Settled::Completed);
        Ok(())
    }

    /// It could not be done. This is counted in a transaction of its own, and only while the job is
    /// still this run's. It is tried again after a random pause that grows with every failure, unless
    /// this was its last attempt. Of a very long text the beginning is kept.
    ///
    /// Roll back what was done for it first, or this waits for a transaction of
    /// [`complete_in`](Self::complete_in) that is still open.
    ///
    /// # Errors
    /// If it is no longer this run's ([`is_lost`](crate::Error::is_lost)): nothing is counted. Or if the
    /// database fails.
    ///
    /// # Cancel safety
    /// Dropped, it is counted or not.
    pub async fn fail(&self, error: impl fmt::Display) -> Result<Failed> {
        let text: String =
            error.to_string().chars().filter(|c| *c != '\0').take(MOST_ERROR).collect();
        let failed = match self.attempt() >= self.max_attempts() {
            true => Failed::Dead,
            false => Failed::Again(self.0.queue.pause_after(self.attempt())),
        };
        let (state, pause) = match failed {
            Failed::Dead => (State::Dead, Duration::ZERO),
            Failed::Again(pause) => (State::Scheduled, pause),
        };
        let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX / 4);
        let counted = self.0.queue.database().run(|tx| {
            let (run, text) = (self.0.clone(), text.clone());
            Box::pin(async move {
                let mut connection = tx.connection();
                let now = connection.driver().now_ms();
                let sql = format!(
                    "UPDATE hier_jobs SET state = ?, attempts = attempts + 1, due_ms = {now} + ?, \
                     last_error = ? WHERE id = ? AND claim = ? AND state = ?"
                );
                let values = [
                    state.code().into(),
                    pause.into(),
                    text.into(),
                    run.id.into(),
                    run.claim.into(),
                    State::Claimed.code().into(),
                ];
                connection.execute(&sql, values).await.map_err(SCHEMA.failed("count a failure"))
            })
        });
        if counted.await?.rows == 0 {
            return Err(self.error_lost().into());
        }
        self.settle(Settled::Failed { error: text, next: failed });
        Ok(failed)
    }

    /// It was not begun: it is ready again at once, and nothing is counted.
    ///
    /// # Errors
    /// If it is no longer this run's ([`is_lost`](crate::Error::is_lost)), or the database fails.
    ///
    /// # Cancel safety
    /// Dropped, it is given back or not.
    pub async fn give_back(&self) -> Result<()> {
        match self.0.queue.give_back_all(std::slice::from_ref(self)).await? {
            0 => Err(self.error_lost().into()),
            _ => {
                self.settle(Settled::GivenBack);
                Ok(())
            }
        }
    }
}

impl Queue {
    /// Completes all these; the IDs of those that are no longer their run's come back.
    ///
    /// # Errors
    /// If the database fails.
    ///
    /// # Cancel safety
    /// Dropped, they are done or not.
    pub async fn complete_all(&self, jobs: &[Claimed]) -> Result<Vec<i64>> {
        let mut lost = Vec::new();
        for jobs in jobs.chunks(super::BATCH) {
            let pairs: Vec<_> = jobs.iter().map(Claimed::pair).collect();
            let done = match self.database().driver() {
                Driver::Mysql => self.complete_on_innodb(&pairs).await?,
                Driver::Postgres => self.complete_on_postgres(&pairs).await?,
                Driver::Sqlite => self.complete_on_sqlite(&pairs).await?,
            };
            for job in jobs {
                match done.contains(&job.id()) {
                    true => job.settle(Settled::Completed),
                    false => lost.push(job.id()),
                }
            }
        }
        Ok(lost)
    }

    /// A transaction by itself, whose text is the same for all lists of a length.
    async fn complete_on_sqlite(&self, list: &[(i64, i64)]) -> Result<Vec<i64>> {
        let (ids, pairs) = (vec!["?"; list.len()].join(","), vec!["(?,?)"; list.len()].join(","));
        let claimed = State::Claimed.code();
        let sql = format!(
            "DELETE FROM hier_jobs WHERE id IN ({ids}) AND (id, claim) IN (VALUES {pairs}) \
             AND state = {claimed} RETURNING id"
        );
        let ids = list.iter().map(|(id, _)| (*id).into());
        let pairs = list.iter().flat_map(|(id, claim)| [(*id).into(), (*claim).into()]);
        let done = self.database().fetch(&sql, &ids.chain(pairs).collect::<Vec<_>>()).await;
        let done = SCHEMA.checked(self.database(), "complete jobs", done).await?;
        done.iter().map(|row| Ok(row.int(0)?)).collect()
    }

    /// It says only how many rows were deleted. If that is not all, they are done one by one.
    async fn complete_on_innodb(&self, list: &[(i64, i64)]) -> Result<Vec<i64>> {
        if self.delete_all_or_none(list).await? {
            return Ok(list.iter().map(|(id, _)| *id).collect());
        }
        let mut done = Vec::new();
        for pair in list.iter().filter(|_| list.len() > 1) {
            if self.delete_all_or_none(std::slice::from_ref(pair)).await? {
                done.push(pair.0);
            }
        }
        Ok(done)
    }

    async fn delete_all_or_none(&self, list: &[(i64, i64)]) -> Result<bool> {
        const DOING: &str = "complete jobs";
        let failed = || SCHEMA.failed(DOING);
        if let [run] = list {
            let done = self.database().execute(COMPLETE, &completed(*run)).await;
            return Ok(SCHEMA.checked(self.database(), DOING, done).await?.rows == 1);
        }
        let all = list.len() as u64;
        let done = self.database().send(|mut connection| {
            let (_, which) = listed(connection.driver(), list);
            let sql = format!("DELETE j {which}");
            Box::pin(async move {
                let is_all = connection.begin_packet(&sql).await.map_err(failed())?.changed == all;
                let end = if is_all { "COMMIT" } else { "ROLLBACK" };
                connection.run(end).await.map_err(failed())?;
                Ok(is_all)
            })
        });
        done.await
    }
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("id", &self.0.id)
            .field("claim", &self.0.claim)
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
