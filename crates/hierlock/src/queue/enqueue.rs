//! Jobs come into the queue, inside the transaction that wants them done.

use super::job::{EnqueueOutcome, Job, QueueError};
use super::schema::{JobState, SCHEMA};
use super::{Queue, ids};
use crate::database::{AnyTransaction, DatabaseConnection, Driver, Transaction, Value, diagnosed};
use crate::error::Result;

/// How many rows, and how many bytes, go into one statement.
const MAX_ROWS: usize = 500;
const MAX_BYTES: usize = 1 << 20;
/// From so many bytes on, MySQL and MariaDB are asked how many they take. The least that anyone sets is more.
const ASK_PACKET_LIMIT_FROM: usize = 8 << 10;
/// What a packet has beside the payload of a row, at most: the statement, a name, a key and numbers.
const PACKET_RESERVE: usize = 4 << 10;
/// What each of several rows adds to a packet beside its payload, at most: its part of the statement, or other values.
const ROW_RESERVE: usize = 256;

/// The channel on which PostgreSQL says which queue has something new.
pub(super) const CHANNEL: &str = "hier_jobs";

const DOING: &str = "add jobs";

/// # Errors
/// What adds jobs fails if one cannot be kept, or if the caller's transaction is one of another database
/// ([`is_usage`](crate::Error::is_usage)).
///
/// # Cancel safety
/// Dropped, all jobs are added or none; in the caller's transaction, some may be part of it: roll back.
impl Queue {
    /// Adds a job, in a transaction of its own, and wakes workers. One whose unique key is there already is not added.
    pub async fn enqueue(&self, job: Job) -> Result<EnqueueOutcome> {
        // One job has one outcome.
        Ok(self.enqueue_all([job]).await?.remove(0))
    }

    /// Adds a job in the caller's transaction: it is there if that is committed, and never was if it is
    /// rolled back. If one with its unique key is there already, the transaction goes on.
    ///
    /// On PostgreSQL the commit wakes workers. Elsewhere they find it when they poll, or when
    /// [`wake`](Self::wake) is called after the commit.
    pub async fn enqueue_in(
        &self,
        tx: &mut impl AnyTransaction,
        job: Job,
    ) -> Result<EnqueueOutcome> {
        Ok(self.enqueue_all_in(tx, [job]).await?.remove(0))
    }

    /// Adds many in few round trips, all or none, in order. Each with a unique key takes a round trip of its own.
    pub async fn enqueue_all(
        &self,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Result<Vec<EnqueueOutcome>> {
        let jobs = checked(jobs)?;
        let add = async |mut tx: Transaction, _| (self.add_all(&mut tx, &jobs).await, tx);
        let enqueued = self.database().run((SCHEMA, ""), add).await?;
        self.wake();
        Ok(enqueued)
    }

    /// The same in the caller's transaction.
    pub async fn enqueue_all_in(
        &self,
        tx: &mut impl AnyTransaction,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Result<Vec<EnqueueOutcome>> {
        let jobs = checked(jobs)?;
        self.connection_of(tx)?;
        diagnosed(self.database(), self.add_all(tx, &jobs).await).await
    }

    async fn add_all(
        &self,
        tx: &mut impl AnyTransaction,
        jobs: &[Job],
    ) -> Result<Vec<EnqueueOutcome>> {
        let bytes = max_bytes(&mut tx.connection(), jobs).await?;
        let mut enqueued = Vec::with_capacity(jobs.len());
        let mut rest = jobs;
        while !rest.is_empty() {
            let (chunk, others) = rest.split_at(together(rest, bytes));
            match chunk {
                [job] => enqueued.push(self.add_one(tx, job).await?),
                jobs => {
                    let ids = self.insert(tx, jobs).await?;
                    enqueued.extend(ids.into_iter().map(EnqueueOutcome::Added));
                }
            }
            rest = others;
        }
        Ok(enqueued)
    }

    /// Tries until it is added, or the one with its key is found: that one may be done between two looks.
    async fn add_one(&self, tx: &mut impl AnyTransaction, job: &Job) -> Result<EnqueueOutcome> {
        loop {
            if let Some(id) = self.insert(tx, std::slice::from_ref(job)).await?.first() {
                return Ok(EnqueueOutcome::Added(*id));
            }
            // A locking read: a plain one at REPEATABLE READ may not see what was in the way.
            let mut connection = tx.connection();
            let lock =
                if connection.driver() == Driver::Mysql { " LOCK IN SHARE MODE" } else { "" };
            let sql = format!("SELECT id FROM hier_jobs WHERE queue = ? AND unique_key = ?{lock}");
            let values = [self.name().into(), job.unique_key.clone().into()];
            let found = connection.fetch(&sql, values).await.map_err(SCHEMA.failed(DOING))?;
            if let Some(row) = found.first() {
                return Ok(EnqueueOutcome::Duplicate(row.int(0)?));
            }
        }
    }

    /// Returns the IDs of what is added: of all, or of none if it is one whose key is there already.
    async fn insert(&self, tx: &mut impl AnyTransaction, jobs: &[Job]) -> Result<Vec<i64>> {
        let mut connection = tx.connection();
        let driver = connection.driver();
        let now = driver.now_ms();
        let row = format!("(?, ?, ?, {now} * ? + ?, ?, ?, 0, ?, 0, {now})");
        let rows = vec![row; jobs.len()].join(", ");
        let mut values: Vec<Value> = jobs.iter().flat_map(|job| self.values(job)).collect();
        let end = match driver {
            Driver::Mysql => String::new(),
            Driver::Sqlite => " ON CONFLICT DO NOTHING RETURNING id".to_owned(),
            Driver::Postgres => {
                let mut end = " ON CONFLICT (queue, unique_key) DO NOTHING RETURNING id".to_owned();
                if jobs.iter().any(|job| !job.start.is_later()) {
                    // Sent by the commit, once for all rows of a transaction.
                    end += ", pg_notify(?, ?)::text";
                    values.extend([CHANNEL.into(), self.name().into()]);
                }
                end
            }
        };
        let sql = format!(
            "INSERT INTO hier_jobs (queue, state, priority, due_ms, unique_key, payload, attempts, \
             max_attempts, claim, created_ms) VALUES {rows}{end}"
        );
        if driver != Driver::Mysql {
            let rows = connection.fetch(&sql, values).await.map_err(SCHEMA.failed(DOING))?;
            return ids(&rows);
        }
        match connection.execute(&sql, values).await {
            Ok(done) => {
                let step = if jobs.len() > 1 { id_step(&mut connection).await? } else { 1 };
                Ok((0..jobs.len() as i64).map(|n| done.last_insert_id + n * step).collect())
            }
            // Only this statement is undone by it.
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(Vec::new()),
            Err(error) => Err(SCHEMA.failed(DOING)(error)),
        }
    }

    fn values(&self, job: &Job) -> [Value; 8] {
        let state = if job.start.is_later() { JobState::Scheduled } else { JobState::Ready };
        let (clock, plus) = job.start.sum();
        [
            self.name().into(),
            state.code().into(),
            job.priority.into(),
            clock.into(),
            plus.into(),
            job.unique_key.clone().into(),
            job.payload.clone().into(),
            job.max_attempts.into(),
        ]
    }
}

fn checked(jobs: impl IntoIterator<Item = Job>) -> Result<Vec<Job>> {
    let jobs: Vec<Job> = jobs.into_iter().collect();
    jobs.iter().try_for_each(Job::check)?;
    Ok(jobs)
}

fn row_bytes(job: &Job) -> usize {
    job.payload.len() + ROW_RESERVE
}

/// Returns how many bytes of rows go into one statement; refuses a job that has more than the server takes. It is asked
/// before anything is sent: one that gets too much ends the connection, and with it the caller's transaction.
async fn max_bytes(connection: &mut DatabaseConnection<'_>, jobs: &[Job]) -> Result<usize> {
    let bytes: usize = jobs.iter().map(row_bytes).sum();
    if connection.driver() != Driver::Mysql || bytes < ASK_PACKET_LIMIT_FROM {
        return Ok(MAX_BYTES);
    }
    let sql = "SELECT CAST(@@max_allowed_packet AS SIGNED)";
    let rows = connection.fetch(sql, []).await.map_err(SCHEMA.failed(DOING))?;
    let packet = rows.first().map_or(Ok(i64::MAX), |row| row.int(0))?;
    let most = usize::try_from(packet).unwrap_or(0).saturating_sub(PACKET_RESERVE);
    match jobs.iter().map(|job| job.payload.len()).find(|bytes| *bytes > most) {
        Some(bytes) => Err(QueueError::Packet { bytes, most, packet }.into()),
        None => Ok(MAX_BYTES.min(most)),
    }
}

/// How many of the next go into one statement, of at most so many bytes of rows.
fn together(jobs: &[Job], most: usize) -> usize {
    let mut bytes = 0;
    let fits = |job: &&Job| {
        bytes += row_bytes(job);
        job.unique_key.is_none() && bytes <= most
    };
    jobs.iter().take(MAX_ROWS).take_while(fits).count().max(1)
}

/// How far the numbers of rows are apart on MySQL and MariaDB, which name only the first: not 1 in a group of servers.
async fn id_step(connection: &mut DatabaseConnection<'_>) -> Result<i64> {
    let sql = "SELECT CAST(@@auto_increment_increment AS SIGNED)";
    let step = connection.fetch(sql, []).await.map_err(SCHEMA.failed(DOING))?;
    Ok(step.first().map_or(Ok(1), |row| row.int(0))?)
}
