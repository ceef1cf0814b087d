//! What is in a queue, for a person or a monitor; and the dead, brought back.

use super::batch_update::{BatchUpdate, RowSelection, joined};
use super::schema::{JobState, SCHEMA};
use super::{BATCH, Queue};
use crate::database::{Database, Row, Transaction, Value, time_from_ms};
use crate::error::Result;
use std::time::{Duration, SystemTime};

/// How many jobs of a queue are in which state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// The name of the queue.
    pub queue: String,
    /// Which a worker may claim.
    pub ready: u64,
    /// Which wait for their time, after a failure or as they were told.
    pub scheduled: u64,
    /// Which a worker has.
    pub claimed: u64,
    /// Which failed too often.
    pub dead: u64,
    /// For how long the oldest one that is ready has been so.
    pub oldest_ready: Option<Duration>,
}

/// A job that failed too often.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadJob {
    /// Its number.
    pub id: i64,
    /// What was to be done.
    pub payload: String,
    /// How often it failed.
    pub attempts: u32,
    /// What it failed with at last.
    pub last_error: Option<String>,
    /// Who ran it last.
    pub worker: Option<String>,
    /// When it was added.
    pub created: SystemTime,
    /// When it failed for the last time.
    pub died: SystemTime,
}

/// Which dead jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadJobFilter {
    /// All of a queue.
    All,
    /// Those with these numbers.
    Ids(Vec<i64>),
}

impl Queue {
    /// Counts the jobs of this queue by their state.
    pub async fn stats(&self) -> Result<QueueStats> {
        let stats = stats(self.database(), Some(self.name())).await?.pop();
        Ok(stats.unwrap_or_else(|| QueueStats {
            queue: self.name().to_owned(),
            ..QueueStats::default()
        }))
    }

    /// The same for all queues in a database that have jobs, by name.
    pub async fn all_stats(database: &Database) -> Result<Vec<QueueStats>> {
        stats(database, None).await
    }

    /// Lists dead jobs, the latest first.
    pub async fn dead(&self, limit: u32) -> Result<Vec<DeadJob>> {
        let sql = format!(
            "SELECT id, payload, attempts, last_error, worker, created_ms, due_ms FROM hier_jobs WHERE \
             queue = ? AND state = {} ORDER BY due_ms DESC LIMIT {limit}",
            JobState::Dead.code()
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

    /// Makes dead jobs ready again, with all their attempts before them; returns how many.
    ///
    /// # Cancel safety
    /// Dropped, some are ready and some are still dead.
    pub async fn retry_dead(&self, which: DeadJobFilter) -> Result<u64> {
        let dead = format!("queue = '{}' AND state = {}", self.name(), JobState::Dead.code());
        let listed = |ids: &[i64]| format!("{dead} AND id IN ({})", joined(ids));
        let conditions = match &which {
            DeadJobFilter::All => vec![dead],
            DeadJobFilter::Ids(ids) => ids.chunks(BATCH).map(listed).collect(),
        };
        let mut retried = 0;
        for condition in conditions {
            let set = "state = 0, attempts = 0, due_ms = {now}, worker = NULL";
            let again = BatchUpdate::new(RowSelection::by_due_time(condition), set);
            let doing = "bring back dead jobs";
            retried += again.run_for_all(self.database(), doing, |_| Ok(())).await?;
        }
        if retried > 0 {
            self.wake();
        }
        Ok(retried)
    }
}

async fn stats(database: &Database, queue: Option<&str>) -> Result<Vec<QueueStats>> {
    let now = database.driver().now_ms();
    let which = if queue.is_some() { " WHERE queue = ?" } else { "" };
    let sql = format!(
        "SELECT queue, state, COUNT(*), {now} - MIN(due_ms) FROM hier_jobs{which} GROUP BY queue, state \
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
        let state = row.int(1)?;
        // As `JobState` says.
        *(match state {
            0 => &mut stats.ready,
            1 => &mut stats.scheduled,
            2 => &mut stats.claimed,
            _ => &mut stats.dead,
        }) += count;
        if state == JobState::Ready.code() {
            // The database's clock may have been set back.
            let age = u64::try_from(row.int(3)?).unwrap_or_default();
            stats.oldest_ready = Some(Duration::from_millis(age));
        }
    }
    Ok(stats)
}

/// Reads in a transaction of our own: at the level of a program's pool it might wait for rows that are locked.
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
