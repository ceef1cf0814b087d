//! Adds jobs to a queue, also inside the caller's transaction.

use super::job::{EnqueueOutcome, Job, QueueError};
use super::schema::{READY, SCHEDULED, SCHEMA};
use super::{Queue, ids};
use crate::database::{
    AnyTransaction, DatabaseConnection, Driver, Transaction, Value, diagnose_schema,
};
use crate::error::Result;

/// The maximum number of rows, and of bytes, of one statement.
const MAX_ROWS: usize = 500;
const MAX_BYTES: usize = 1 << 20;
/// From this number of bytes on, MySQL and MariaDB are asked for `max_allowed_packet`, which is never set lower.
const ASK_PACKET_LIMIT_FROM: usize = 8 << 10;
/// The maximum size of a packet without the payload of its row: the statement, a name, a key and numbers.
const PACKET_RESERVE: usize = 4 << 10;
/// The maximum size that each of several rows adds to a packet besides its payload.
const ROW_RESERVE: usize = 256;

/// The channel on which PostgreSQL notifies workers of new jobs; the payload is the queue.
pub(super) const CHANNEL: &str = "hier_jobs";

const OPERATION: &str = "add jobs";

/// # Errors
/// Methods that add jobs fail if a job is invalid, or if the caller's transaction is one of another database
/// ([`is_usage`](crate::Error::is_usage)).
///
/// # Cancel safety
/// If the future is dropped, all jobs are added or none; in the caller's transaction, some may be added: roll back.
impl Queue {
    /// Adds a job, in its own transaction, and wakes workers. A job whose unique key is in the queue already is not added.
    pub async fn enqueue(&self, job: Job) -> Result<EnqueueOutcome> {
        // One job has one outcome.
        Ok(self.enqueue_all([job]).await?.remove(0))
    }

    /// Adds a job in the caller's transaction: the job exists only if that is committed. If the unique key is in the queue
    /// already, the transaction can continue.
    ///
    /// On PostgreSQL the commit wakes workers. On the other engines they find the job when they poll, or when
    /// [`wake`](Self::wake) is called after the commit.
    pub async fn enqueue_in(
        &self,
        tx: &mut impl AnyTransaction,
        job: Job,
    ) -> Result<EnqueueOutcome> {
        Ok(self.enqueue_all_in(tx, [job]).await?.remove(0))
    }

    /// Adds many jobs in few round trips, all or none, in order. Each job with a unique key takes its own round trip.
    pub async fn enqueue_all(
        &self,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Result<Vec<EnqueueOutcome>> {
        let jobs = check_all(jobs)?;
        let add = async |mut tx: Transaction, _| (self.add_all(&mut tx, &jobs).await, tx);
        let enqueued = self.database().run((SCHEMA, ""), add).await?;
        self.wake();
        Ok(enqueued)
    }

    /// Adds many jobs in the caller's transaction.
    pub async fn enqueue_all_in(
        &self,
        tx: &mut impl AnyTransaction,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Result<Vec<EnqueueOutcome>> {
        let jobs = check_all(jobs)?;
        self.connection_of(tx)?;
        diagnose_schema(self.database(), self.add_all(tx, &jobs).await).await
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
            let (chunk, others) = rest.split_at(chunk_length(rest, bytes));
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

    /// Tries until the job is added, or the job with the same key is found: that job may be completed in between.
    async fn add_one(&self, tx: &mut impl AnyTransaction, job: &Job) -> Result<EnqueueOutcome> {
        loop {
            if let Some(id) = self.insert(tx, std::slice::from_ref(job)).await?.first() {
                return Ok(EnqueueOutcome::Added(*id));
            }
            // A locking read, since a plain read at REPEATABLE READ may not see the conflicting row.
            let mut connection = tx.connection();
            let is_mysql = connection.driver() == Driver::Mysql;
            let lock = if is_mysql { " LOCK IN SHARE MODE" } else { "" };
            let sql = format!("SELECT id FROM hier_jobs WHERE queue = ? AND unique_key = ?{lock}");
            let values = [self.name().into(), job.unique_key.clone().into()];
            let found = connection.fetch(&sql, values).await.map_err(SCHEMA.failed(OPERATION))?;
            if let Some(row) = found.first() {
                return Ok(EnqueueOutcome::Duplicate(row.int(0)?));
            }
        }
    }

    /// Inserts jobs and returns their IDs. Returns none for a single job whose key is in the queue already.
    async fn insert(&self, tx: &mut impl AnyTransaction, jobs: &[Job]) -> Result<Vec<i64>> {
        let mut connection = tx.connection();
        let driver = connection.driver();
        let now = driver.now_ms();
        let row = format!("(?, ?, ?, {now} * ? + ?, ?, ?, 0, ?, 0, {now})");
        let rows = vec![row; jobs.len()].join(", ");
        let mut values: Vec<Value> = jobs.iter().flat_map(|job| self.values(job)).collect();
        let mut end = String::new();
        if driver != Driver::Mysql {
            end += " ON CONFLICT (queue, unique_key) DO NOTHING RETURNING id";
        }
        if driver == Driver::Postgres && jobs.iter().any(|job| !job.start.is_later()) {
            // Sent at the commit, once for all rows of a transaction.
            end += ", pg_notify(?, ?)::text";
            values.extend([CHANNEL.into(), self.name().into()]);
        }
        let sql = format!(
            "INSERT INTO hier_jobs (queue, state, priority, due_ms, unique_key, payload, attempts, \
             max_attempts, claim, created_ms) VALUES {rows}{end}"
        );
        if driver != Driver::Mysql {
            let rows = connection.fetch(&sql, values).await.map_err(SCHEMA.failed(OPERATION))?;
            return ids(&rows);
        }
        match connection.execute(&sql, values).await {
            Ok(done) => {
                // Only the first ID is returned. The step to the next is not 1 in a replication group.
                let step = match jobs {
                    [_] => 1,
                    _ => variable(&mut connection, "auto_increment_increment").await?,
                };
                Ok((0..jobs.len() as i64).map(|n| done.last_insert_id + n * step).collect())
            }
            // Only this statement is rolled back.
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(Vec::new()),
            Err(error) => Err(SCHEMA.failed(OPERATION)(error)),
        }
    }

    fn values(&self, job: &Job) -> [Value; 8] {
        let state = if job.start.is_later() { SCHEDULED } else { READY };
        let (clock, offset) = job.start.clock_and_offset();
        [
            self.name().into(),
            state.into(),
            job.priority.into(),
            clock.into(),
            offset.into(),
            job.unique_key.clone().into(),
            job.payload.clone().into(),
            job.max_attempts.into(),
        ]
    }
}

fn check_all(jobs: impl IntoIterator<Item = Job>) -> Result<Vec<Job>> {
    let jobs: Vec<Job> = jobs.into_iter().collect();
    jobs.iter().try_for_each(Job::check)?;
    Ok(jobs)
}

fn row_bytes(job: &Job) -> usize {
    job.payload.len() + ROW_RESERVE
}

/// Returns the maximum size of the rows of one statement. Fails if a job is larger than the server's limit. The server is
/// asked before the jobs are sent, since it ends the connection, and the caller's transaction, after a packet that is too
/// large.
async fn max_bytes(connection: &mut DatabaseConnection<'_>, jobs: &[Job]) -> Result<usize> {
    let bytes: usize = jobs.iter().map(row_bytes).sum();
    if connection.driver() != Driver::Mysql || bytes < ASK_PACKET_LIMIT_FROM {
        return Ok(MAX_BYTES);
    }
    let packet = variable(connection, "max_allowed_packet").await?;
    let most = usize::try_from(packet).unwrap_or(0).saturating_sub(PACKET_RESERVE);
    match jobs.iter().map(|job| job.payload.len()).find(|bytes| *bytes > most) {
        Some(bytes) => Err(QueueError::Packet { bytes, most, packet }.into()),
        None => Ok(MAX_BYTES.min(most)),
    }
}

/// Returns how many of the next jobs go into one statement of at most `max_bytes` of rows.
fn chunk_length(jobs: &[Job], max_bytes: usize) -> usize {
    let mut bytes = 0;
    let fits = |job: &&Job| {
        bytes += row_bytes(job);
        job.unique_key.is_none() && bytes <= max_bytes
    };
    jobs.iter().take(MAX_ROWS).take_while(fits).count().max(1)
}

/// Reads a number that is a variable of MySQL and MariaDB.
async fn variable(connection: &mut DatabaseConnection<'_>, name: &str) -> Result<i64> {
    // Without an explicit LIMIT, `sql_select_limit = 0` would return no row.
    let sql = format!("SELECT CAST(@@{name} AS SIGNED) LIMIT 1");
    let rows = connection.fetch(&sql, []).await.map_err(SCHEMA.failed(OPERATION))?;
    Ok(rows[0].int(0)?)
}
