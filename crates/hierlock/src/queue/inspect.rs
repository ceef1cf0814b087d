//! Statistics of queues, and dead jobs, which can be retried.

use super::batch_update::{BatchUpdate, RowSelection, join_numbers};
use super::schema::{CLAIMED, DEAD, READY, SCHEDULED, SCHEMA};
use super::{BATCH, Queue};
use crate::database::{Database, Row, Transaction, Value, time_from_ms};
use crate::error::Result;
use std::time::{Duration, SystemTime};

/// The numbers of jobs of a queue by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// The name of the queue.
    pub queue: String,
    /// The number of jobs that can be claimed.
    pub ready: u64,
    /// The number of jobs that are not due yet, after a failure or because they were added for later.
    pub scheduled: u64,
    /// The number of claimed jobs.
    pub claimed: u64,
    /// The number of jobs that failed too often.
    pub dead: u64,
    /// The time for which the oldest ready job has been ready.
    pub oldest_ready: Option<Duration>,
}

/// A job that failed too often.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadJob {
    /// The ID of the job.
    pub id: i64,
    /// The payload.
    pub payload: String,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The last error.
    pub last_error: Option<String>,
    /// The name of the last worker.
    pub worker: Option<String>,
    /// The time when the job was added.
    pub created: SystemTime,
    /// The time of the last failure.
    pub died: SystemTime,
}

/// A filter of dead jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadJobFilter {
    /// All dead jobs of a queue.
    All,
    /// Dead jobs with these IDs.
    Ids(Vec<i64>),
}

impl Queue {
    /// Counts the jobs of this queue by state.
    pub async fn stats(&self) -> Result<QueueStats> {
        let stats = stats(self.database(), Some(self.name())).await?.pop();
        let empty = || QueueStats { queue: self.name().to_owned(), ..QueueStats::default() };
        Ok(stats.unwrap_or_else(empty))
    }

    /// Counts the jobs of all queues in a database that have jobs, sorted by name.
    pub async fn all_stats(database: &Database) -> Result<Vec<QueueStats>> {
        stats(database, None).await
    }

    /// Returns dead jobs, the latest first.
    pub async fn dead(&self, limit: u32) -> Result<Vec<DeadJob>> {
        let sql = format!(
            "SELECT id, payload, attempts, last_error, worker, created_ms, due_ms FROM hier_jobs WHERE \
             queue = ? AND state = {DEAD} ORDER BY due_ms DESC LIMIT {limit}"
        );
        let name = [self.name().into()];
        let rows = read(self.database(), "read the dead jobs", &sql, &name).await?;
        let dead = rows.iter().map(|row| {
            Ok(DeadJob {
                id: row.int(0)?,
                payload: row.text(1)?,
                attempts: u32::try_from(row.int(2)?).unwrap_or(u32::MAX),
                last_error: row.text_or_null(3)?,
                worker: row.text_or_null(4)?,
                created: time_from_ms(row.int(5)?),
                died: time_from_ms(row.int(6)?),
            })
        });
        dead.collect()
    }

    /// Makes dead jobs ready again, with all their attempts, and returns their number.
    ///
    /// # Cancel safety
    /// If the future is dropped, some jobs may still be dead.
    pub async fn retry_dead(&self, filter: DeadJobFilter) -> Result<u64> {
        let is_dead = format!("queue = '{}' AND state = {DEAD}", self.name());
        let with_ids = |ids: &[i64]| format!("{is_dead} AND id IN ({})", join_numbers(ids));
        let conditions = match &filter {
            DeadJobFilter::All => vec![is_dead],
            DeadJobFilter::Ids(ids) => ids.chunks(BATCH).map(with_ids).collect(),
        };
        let mut retried = 0;
        for condition in conditions {
            let set = "state = 0, attempts = 0, due_ms = {now}, worker = NULL";
            let retry = BatchUpdate::new(RowSelection::by_due_time(condition), set);
            let doing = "retry dead jobs";
            retried += retry.run_for_all(self.database(), doing, |_| Ok(())).await?;
        }
        if retried > 0 {
            self.wake();
        }
        Ok(retried)
    }
}

async fn stats(database: &Database, queue: Option<&str>) -> Result<Vec<QueueStats>> {
    let now = database.driver().now_ms();
    let condition = if queue.is_some() { " WHERE queue = ?" } else { "" };
    let sql = format!(
        "SELECT queue, state, COUNT(*), {now} - MIN(due_ms) FROM hier_jobs{condition} GROUP BY queue, state \
         ORDER BY queue, state"
    );
    let mut stats: Vec<QueueStats> = Vec::new();
    let name: Vec<Value> = queue.map(Value::from).into_iter().collect();
    for row in read(database, "count the jobs", &sql, &name).await? {
        let queue = row.text(0)?;
        if stats.last().is_none_or(|last| last.queue != queue) {
            stats.push(QueueStats { queue, ..QueueStats::default() });
        }
        let Some(stats) = stats.last_mut() else { continue };
        let count = row.int(2)?.unsigned_abs();
        match row.int(1)? {
            READY => {
                stats.ready = count;
                // The database's clock may have been set back.
                let age = u64::try_from(row.int(3)?).unwrap_or_default();
                stats.oldest_ready = Some(Duration::from_millis(age));
            }
            SCHEDULED => stats.scheduled = count,
            CLAIMED => stats.claimed = count,
            _ => stats.dead = count,
        }
    }
    Ok(stats)
}

/// Reads in a new transaction at READ COMMITTED: at the isolation level of the program's pool the read might wait for
/// locked rows.
pub(super) async fn read(
    database: &Database,
    doing: &'static str,
    sql: &str,
    values: &[Value],
) -> Result<Vec<Row>> {
    let read = async |mut tx: Transaction, _| {
        let rows = tx.connection().fetch(sql, values.iter().cloned()).await;
        (rows.map_err(SCHEMA.failed(doing)), tx)
    };
    database.run((SCHEMA, ""), read).await
}
