//! Jobs change hands: claimed by a worker, kept by a heartbeat, brought back when their time has come.

use super::claimed::Claimed;
use super::job::{millis, plain};
use super::schema::{SCHEMA, State};
use super::take::{Rows, Take, listed, take};
use super::{BATCH, Queue};
use crate::database::{Busy, Driver};
use crate::error::Result;
use crate::handover::Handover;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// What a [`promote`](Queue::promote) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promoted {
    /// Scheduled jobs whose time has come: ready.
    pub ready: u64,
    /// Jobs whose lease has ended: ready again, with a failure counted.
    pub returned: u64,
    /// Jobs whose lease has ended for the last time that they are allowed: dead.
    pub dead: u64,
}

impl Queue {
    /// How many jobs are claimed at once at most.
    pub const MOST: usize = 10_000;

    /// Claims up to `most` jobs that are ready, by priority, then age; never more than
    /// [`MOST`](Self::MOST). They are this worker's until the
    /// lease ends, and no other worker waits for them or gets them.
    ///
    /// # Errors
    /// If the name of the worker or the lease cannot be, or the database fails.
    ///
    /// # Cancel safety
    /// Dropped, it gives back what it gets.
    pub async fn claim(&self, worker: &str, most: usize, lease: Duration) -> Result<Vec<Claimed>> {
        plain("worker", worker)?;
        let lease = millis("lease", lease, 1)?;
        if most == 0 {
            return Ok(Vec::new());
        }
        let (queue, worker) = (self.clone(), worker.to_owned());
        let tasks = self.database().tasks();
        let claim = Handover::new(Handle::current(), tasks, |interest| async move {
            let claimed = queue.claim_now(&worker, most.min(Self::MOST), lease).await?;
            if interest.is_lost() {
                queue.give_back_all(&claimed).await?;
            }
            Ok(claimed)
        });
        claim.await
    }

    async fn claim_now(&self, worker: &str, most: usize, lease: i64) -> Result<Vec<Claimed>> {
        let ours_until = Instant::now() + Duration::from_millis(lease.unsigned_abs());
        let rows = match self.database().driver() {
            Driver::Postgres => self.claim_on_postgres(worker, most, lease, CLAIMED).await?,
            Driver::Mysql | Driver::Sqlite => {
                let claims = claims(self.name(), worker, most, lease);
                take(self.database(), "claim jobs", claims).await?
            }
        };
        let claimed = rows.iter().map(|row| Claimed::read(self, worker, ours_until, row));
        let mut claimed = claimed.collect::<Result<Vec<_>>>()?;
        claimed.sort_by_key(|job| (job.priority(), job.id()));
        Ok(claimed)
    }

    /// Extends the leases of all these to `lease` from now. The IDs of those that are no longer their
    /// worker's come back, and their runs [learn](Claimed::lost) it; what somebody does with one of them at this
    /// moment is not waited for.
    ///
    /// # Errors
    /// If the lease cannot be, or the database fails.
    ///
    /// # Cancel safety
    /// Dropped, the leases are extended or not.
    pub async fn heartbeat(&self, jobs: &[Claimed], lease: Duration) -> Result<Vec<i64>> {
        let lease_ms = millis("lease", lease, 1)?;
        let mut lost: BTreeSet<i64> = jobs.iter().map(Claimed::id).collect();
        for jobs in jobs.chunks(BATCH) {
            let asked = Instant::now();
            let list: Vec<_> = jobs.iter().map(Claimed::pair).collect();
            let extend = Take {
                rows: Rows::Listed { pairs: list.clone(), busy: Busy::Skip },
                counts: ("claim", 0),
                set: format!("due_ms = {{now}} + {lease_ms}"),
                returns: "",
            };
            let doing = "extend the leases of jobs";
            for row in take(self.database(), doing, extend).await? {
                lost.remove(&row.int(0)?);
            }
            // Who is not among them is not theirs, or just now locked by somebody who may undo what he does.
            if jobs.iter().any(|job| lost.contains(&job.id())) {
                for id in self.still_claimed(list).await? {
                    lost.remove(&id);
                }
            }
            for job in jobs {
                let is_lost = lost.contains(&job.id());
                job.is_ours_until(if is_lost { asked } else { asked + lease });
            }
        }
        Ok(lost.into_iter().collect())
    }

    async fn still_claimed(&self, list: Vec<(i64, i64)>) -> Result<Vec<i64>> {
        let found = self.database().run(|tx| {
            let (with, from) = listed(self.database().driver(), &list);
            Box::pin(async move {
                let mut connection = tx.connection();
                let with = if with.is_empty() { with } else { format!("WITH {with} ") };
                let sql = format!("{with}SELECT j.id {from}");
                let found =
                    connection.packet(&sql).await.map_err(SCHEMA.failed("look for jobs"))?;
                found.rows.iter().map(|row| Ok(row.int(0)?)).collect()
            })
        });
        found.await
    }

    /// Makes scheduled jobs ready whose time has come, and those whose lease has ended, which counts as a
    /// failure: what kills its worker again and again is dead in the end. A [worker](Self::worker) does
    /// this every time it polls.
    ///
    /// # Errors
    /// If the database fails.
    ///
    /// # Cancel safety
    /// Dropped, some are ready and some are not yet.
    pub async fn promote(&self) -> Result<Promoted> {
        let mut promoted = Promoted::default();
        loop {
            let rows = take(self.database(), "make jobs ready", scheduled(self.name())).await?;
            promoted.ready += rows.len() as u64;
            if rows.len() < BATCH {
                break;
            }
        }
        loop {
            let rows = take(self.database(), "bring back jobs", expired(self.name())).await?;
            for row in &rows {
                match row.int(1)? >= row.int(2)? {
                    true => promoted.dead += 1,
                    false => promoted.returned += 1,
                }
            }
            if rows.len() < BATCH {
                return Ok(promoted);
            }
        }
    }

    /// They were never begun: no failure is counted. Those that are no longer their worker's stay as
    /// they are.
    pub(super) async fn give_back_all(&self, jobs: &[Claimed]) -> Result<u64> {
        let mut given = 0;
        for jobs in jobs.chunks(BATCH) {
            let back = Take {
                // Nobody else who waits has some of them: this is no deadlock.
                rows: Rows::Listed {
                    pairs: jobs.iter().map(Claimed::pair).collect(),
                    busy: Busy::Wait,
                },
                counts: ("claim", 0),
                set: "state = 0, due_ms = {now}, worker = NULL".to_owned(),
                returns: "",
            };
            given += take(self.database(), "give back jobs", back).await?.len() as u64;
        }
        if given > 0 {
            self.wake();
        }
        Ok(given)
    }
}

/// The columns of a claim, behind its ID and number.
const CLAIMED: &str = ", payload, attempts, max_attempts, priority, unique_key, created_ms";

pub(super) fn claims(queue: &str, worker: &str, most: usize, lease: i64) -> Take {
    Take {
        rows: Rows::Ordered {
            index: "hier_jobs_claim",
            which: format!("queue = '{queue}' AND state = 0"),
            order: "priority, id",
            most,
        },
        counts: ("claim", 1),
        set: format!("state = 2, worker = '{worker}', due_ms = {{now}} + {lease}"),
        returns: CLAIMED,
    }
}

pub(super) fn scheduled(queue: &str) -> Take {
    Take {
        rows: due(queue, State::Scheduled),
        counts: ("attempts", 0),
        set: "state = 0".to_owned(),
        returns: "",
    }
}

pub(super) fn expired(queue: &str) -> Take {
    Take {
        rows: due(queue, State::Claimed),
        counts: ("attempts", 1),
        set: "state = CASE WHEN {n} >= max_attempts THEN 3 ELSE 0 END, due_ms = {now}, \
              last_error = 'the lease of its worker ended before it was done'"
            .to_owned(),
        returns: ", max_attempts",
    }
}

/// What something happens to now.
fn due(queue: &str, state: State) -> Rows {
    let state = state.code();
    Rows::Ordered {
        index: "hier_jobs_due",
        which: format!("queue = '{queue}' AND state = {state} AND due_ms <= {{now}}"),
        order: "due_ms",
        most: BATCH,
    }
}
