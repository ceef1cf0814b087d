//! What is in a queue, for a person or a monitor; and the dead, brought back.

use super::schema::{SCHEMA, State};
use super::take::{Rows, Take, take};
use super::{BATCH, Queue};
use crate::database::{Database, Value};
use crate::error::Result;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many jobs of a queue are in which state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The name of the queue.
    pub queue: String,
    /// Whose turn it is.
    pub ready: u64,
    /// Whose time has not come, after a failure or as they were told.
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

/// Which of the dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dead {
    /// All of a queue.
    All,
    /// Those with these numbers.
    Ids(Vec<i64>),
}

impl Queue {
    /// How many jobs of this queue are in which state.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn stats(&self) -> Result<Stats> {
        let stats = stats(self.database(), Some(self.name())).await?.pop();
        Ok(stats.unwrap_or_else(|| Stats { queue: self.name().to_owned(), ..Stats::default() }))
    }

    /// The same of all queues in a database that have jobs, by name.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn all_stats(database: &Database) -> Result<Vec<Stats>> {
        stats(database, None).await
    }

    /// The dead, the latest first.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn dead(&self, limit: u32) -> Result<Vec<DeadJob>> {
        let sql = format!(
            "SELECT id, payload, attempts, last_error, worker, created_ms, due_ms FROM hier_jobs WHERE \
             queue = ? AND state = {} ORDER BY due_ms DESC LIMIT {limit}",
            State::Dead.code()
        );
        let rows = read(self.database(), "read the dead jobs", &sql, Some(self.name())).await?;
        let dead = rows.iter().map(|row| {
            Ok(DeadJob {
                id: row.int(0)?,
                payload: row.text(1)?,
                attempts: u32::try_from(row.int(2)?).unwrap_or(u32::MAX),
                last_error: row.text_or_null(3)?,
                worker: row.text_or_null(4)?,
                created: UNIX_EPOCH + span(row.int(5)?),
                died: UNIX_EPOCH + span(row.int(6)?),
            })
        });
        dead.collect()
    }

    /// Makes dead jobs ready again, with all their attempts before them; how many.
    ///
    /// # Errors
    /// If the database fails.
    ///
    /// # Cancel safety
    /// Dropped, some are ready and some are still dead.
    pub async fn retry_dead(&self, which: Dead) -> Result<u64> {
        let dead = format!("queue = '{}' AND state = {}", self.name(), State::Dead.code());
        let lists: Vec<String> = match &which {
            Dead::All => vec![dead],
            Dead::Ids(ids) => {
                let listed = ids.chunks(BATCH).map(|ids| {
                    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                    format!("{dead} AND id IN ({})", ids.join(", "))
                });
                listed.collect()
            }
        };
        let mut retried = 0;
        for which in lists {
            loop {
                let again = Take {
                    rows: Rows::Ordered {
                        index: "hier_jobs_due",
                        which: which.clone(),
                        order: "due_ms",
                        most: BATCH,
                    },
                    counts: ("claim", 0),
                    set: "state = 0, attempts = 0, due_ms = {now}, worker = NULL".to_owned(),
                    returns: "",
                };
                let rows = take(self.database(), "bring back dead jobs", again).await?;
                retried += rows.len() as u64;
                if rows.len() < BATCH {
                    break;
                }
            }
        }
        if retried > 0 {
            self.wake();
        }
        Ok(retried)
    }
}

async fn stats(database: &Database, queue: Option<&str>) -> Result<Vec<Stats>> {
    let now = database.driver().now_ms();
    let which = if queue.is_some() { " WHERE queue = ?" } else { "" };
    let sql = format!(
        "SELECT queue, state, COUNT(*), {now} - MIN(due_ms) FROM hier_jobs{which} GROUP BY queue, state \
         ORDER BY queue, state"
    );
    let mut stats: Vec<Stats> = Vec::new();
    for row in read(database, "count the jobs", &sql, queue).await? {
        let queue = row.text(0)?;
        if stats.last().is_none_or(|last| last.queue != queue) {
            stats.push(Stats { queue, ..Stats::default() });
        }
        let Some(stats) = stats.last_mut() else { continue };
        let count = row.int(2)?.unsigned_abs();
        match row.int(1)? {
            state if state == State::Ready.code() => {
                stats.ready = count;
                stats.oldest_ready = Some(span(row.int(3)?));
            }
            state if state == State::Scheduled.code() => stats.scheduled = count,
            state if state == State::Claimed.code() => stats.claimed = count,
            _ => stats.dead += count,
        }
    }
    Ok(stats)
}

async fn read(
    database: &Database,
    doing: &'static str,
    sql: &str,
    queue: Option<&str>,
) -> Result<Vec<crate::database::Row>> {
    let values: Vec<Value> = queue.map(Value::from).into_iter().collect();
    let rows = database.run(|tx| {
        let (sql, values) = (sql.to_owned(), values.clone());
        Box::pin(
            async move { tx.connection().fetch(&sql, values).await.map_err(SCHEMA.failed(doing)) },
        )
    });
    rows.await
}

/// Of milliseconds that the database counted; its clock may have been set back.
fn span(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
