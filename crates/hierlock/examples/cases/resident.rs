//! Two resident batches, the same program on two servers, work through one table of jobs. Each job pays somebody.
//!
//! 1. Broken: both have the same list, and both pay for its first job. Right: read the job again, locked, and look
//!    whether it is still new; or let SKIP LOCKED give each another one.
//! 2. Broken: a failure is counted in the transaction that failed, and rolled back with it. Right: roll back, then count in a
//!    transaction of its own. Now there is a gap between the two.
//! 3. Broken: in the gap the other one fails too, and counts; one outage counts twice. Right: count only from the number
//!    that was read.
//! 4. Broken: in the gap the other one succeeds, and the job that is done is marked as failed. Right: count only
//!    while the job is still new. Or leave no gap: a savepoint undoes the work and keeps the lock.
//!
//! With sqlx:
//!
//! ```ignore
//! let mut tx = pool.begin().await?;
//! let sql = "SELECT id, failures FROM jobs WHERE status = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
//! let job = sqlx::query_as::<_, Job>(sql).fetch_optional(&mut *tx).await?;
//! // … the work; if it fails: tx.rollback(), and then
//! let sql = "UPDATE jobs SET failures = failures + 1 WHERE id = ? AND status = 'new' AND failures = ?";
//! sqlx::query(sql).bind(job.id).bind(job.failures).execute(&pool).await?;
//! ```
//!
//! `hierlock::queue` is all of this, made.

use super::race::{Everyone, again, together};
use super::stage::{Result, Scene, Stage, look_in};
use hierlock::database::Transaction;
use std::fmt;

/// The index is the order in which jobs are taken: otherwise SKIP LOCKED locks what it only looks at.
const SCENE: Scene = Scene {
    tables: &["case_jobs", "case_payments"],
    make: "CREATE TABLE case_jobs \
           (id BIGINT PRIMARY KEY, status VARCHAR(10) NOT NULL, failures BIGINT NOT NULL); \
           CREATE INDEX case_jobs_next ON case_jobs (status, id); \
           CREATE TABLE case_payments (id BIGINT PRIMARY KEY, job_id BIGINT NOT NULL)",
    fill: "INSERT INTO case_jobs VALUES (1, 'new', 0)",
};
const JOBS: i64 = 20;

/// Job 1 afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) payments: i64,
    pub(crate) is_done: bool,
    pub(crate) failures: i64,
}

pub(crate) struct Figures {
    pub(crate) same_job_broken: Job,
    pub(crate) same_job_right: Job,
    /// With SKIP LOCKED: how many of 20 jobs were paid, and how many payments there were.
    pub(crate) skip_locked: [i64; 2],
    /// Fails twice, one after the other.
    pub(crate) rolled_back_broken: Job,
    pub(crate) rolled_back_right: Job,
    /// Both fail, at once.
    pub(crate) both_fail_broken: Job,
    pub(crate) both_fail_right: Job,
    /// One fails, the other succeeds in the gap.
    pub(crate) other_succeeds_broken: Job,
    pub(crate) other_succeeds_right: Job,
    /// With a savepoint: was the job locked between failure and count?
    pub(crate) savepoint: Job,
    pub(crate) has_no_gap: bool,
}

pub(crate) async fn run(stage: &Stage) -> Result<Figures> {
    stage.build(&SCENE).await?;
    let (savepoint, has_no_gap) = savepoint(stage).await?;
    let figures = Figures {
        same_job_broken: same_job(stage, JobSource::FromList).await?,
        same_job_right: same_job(stage, JobSource::ReadAgain).await?,
        skip_locked: skip_locked(stage).await?,
        rolled_back_broken: fails_twice(stage, Count::Inside).await?,
        rolled_back_right: fails_twice(stage, Count::IfUnchanged).await?,
        both_fail_broken: in_the_gap(stage, Count::ById, Work::Fails).await?,
        both_fail_right: in_the_gap(stage, Count::IfUnchanged, Work::Fails).await?,
        other_succeeds_broken: in_the_gap(stage, Count::ById, Work::Succeeds).await?,
        other_succeeds_right: in_the_gap(stage, Count::IfUnchanged, Work::Succeeds).await?,
        savepoint,
        has_no_gap,
    };
    stage.strike(&SCENE).await?;
    Ok(figures)
}

/// The work of a job, by one of the two batches.
async fn pay(tx: &mut Transaction, batch: i64, job: i64) -> Result<()> {
    let payment = batch * 1000 + job;
    tx.execute("INSERT INTO case_payments VALUES (?, ?)", [payment.into(), job.into()]).await?;
    tx.execute("UPDATE case_jobs SET status = 'done' WHERE id = ?", [job.into()]).await?;
    Ok(())
}

// 1. Both take the same job.

#[derive(Clone, Copy)]
enum JobSource {
    FromList,
    ReadAgain,
}

async fn same_job(stage: &Stage, source: JobSource) -> Result<Job> {
    stage.reset(&SCENE).await?;
    let programs = [stage.clone(), stage.another().await?];
    together(2, |batch, both| {
        let stage = programs[usize::from(batch == 2)].clone();
        async move {
            match source {
                JobSource::FromList => from_list(&stage, batch, &both).await,
                JobSource::ReadAgain => {
                    let list = stage.look::<1>(LIST).await?;
                    both.meet().await?;
                    for [job] in list {
                        again(|| read_again(&stage, batch, job, &both)).await?;
                    }
                    Ok(())
                }
            }
        }
    })
    .await?;
    Job::read(stage).await
}

const LIST: &str = "SELECT id FROM case_jobs WHERE status = 'new' ORDER BY id";

/// Broken: what is on the list is believed.
async fn from_list(stage: &Stage, batch: i64, both: &Everyone) -> Result<()> {
    let (list, mut tx) = stage.look_then_begin::<1>(both, LIST).await?;
    for [job] in list {
        pay(&mut tx, batch, job).await?;
    }
    Ok(tx.commit().await?)
}

/// Right: what is on the list is asked again, under a lock.
async fn read_again(stage: &Stage, batch: i64, job: i64, both: &Everyone) -> Result<()> {
    let mut tx = stage.database.begin().await?;
    if lock_if_new(stage, &mut tx, job).await?.is_some() {
        both.tempt().await;
        pay(&mut tx, batch, job).await?;
    }
    Ok(tx.commit().await?)
}

/// How often it has failed, if it is still to be done.
async fn lock_if_new(stage: &Stage, tx: &mut Transaction, job: i64) -> Result<Option<i64>> {
    let for_update = stage.database.for_update();
    let sql =
        format!("SELECT failures FROM case_jobs WHERE id = {job} AND status = 'new'{for_update}");
    Ok(look_in(tx, &sql).await?.first().map(|[failures]| *failures))
}

/// Right: four workers in two programs, none of which ever waits for another on a server.
async fn skip_locked(stage: &Stage) -> Result<[i64; 2]> {
    stage.reset(&SCENE).await?;
    let more: Vec<String> = (2..=JOBS).map(|id| format!("({id}, 'new', 0)")).collect();
    stage.run(&format!("INSERT INTO case_jobs VALUES {}", more.join(", "))).await?;
    let programs = [stage.clone(), stage.another().await?];
    together(4, |worker, everyone| {
        let stage = programs[usize::from(worker % 2 == 0)].clone();
        async move {
            everyone.meet().await?;
            while again(|| next(&stage, worker, &everyone)).await? {}
            Ok(())
        }
    })
    .await?;
    let paid = stage.number("SELECT COUNT(DISTINCT job_id) FROM case_payments").await?;
    Ok([paid, stage.number("SELECT COUNT(*) FROM case_payments").await?])
}

/// Does the next job that nobody has. False if there is none.
async fn next(stage: &Stage, worker: i64, everyone: &Everyone) -> Result<bool> {
    let mut tx = stage.database.begin().await?;
    let sql = format!("{LIST} LIMIT 1{}", stage.skip_locked());
    let taken = look_in(&mut tx, &sql).await?;
    if let Some([job]) = taken.first() {
        everyone.tempt().await;
        pay(&mut tx, worker, *job).await?;
    }
    tx.commit().await?;
    Ok(!taken.is_empty())
}

// 2 to 4. How failures are counted.

#[derive(Clone, Copy)]
enum Count {
    /// In the transaction that has failed.
    Inside,
    /// In one of its own, whatever has happened meanwhile.
    ById,
    /// In one of its own, if the job is as it was read.
    IfUnchanged,
}

#[derive(Clone, Copy)]
enum Work {
    Fails,
    Succeeds,
}

async fn fails_twice(stage: &Stage, how: Count) -> Result<Job> {
    stage.reset(&SCENE).await?;
    for batch in [1, 2] {
        if let Some(read) = fail(stage, batch, how).await? {
            count(stage, read, how).await?;
        }
    }
    Job::read(stage).await
}

/// The first fails. Before it has counted that, the second takes the job.
async fn in_the_gap(stage: &Stage, how: Count, second: Work) -> Result<Job> {
    stage.reset(&SCENE).await?;
    let other = stage.another().await?;
    let first_read = fail(stage, 1, how).await?;
    match second {
        Work::Succeeds => read_again(&other, 2, 1, &Everyone::new(1)).await?,
        Work::Fails => {
            if let Some(read) = fail(&other, 2, how).await? {
                count(&other, read, how).await?;
            }
        }
    }
    if let Some(read) = first_read {
        count(stage, read, how).await?;
    }
    Job::read(stage).await
}

/// Takes job 1, does half of it, and rolls back. How often it had failed before.
async fn fail(stage: &Stage, batch: i64, how: Count) -> Result<Option<i64>> {
    let mut tx = stage.database.begin().await?;
    let read = lock_if_new(stage, &mut tx, 1).await?;
    if read.is_some() {
        pay(&mut tx, batch, 1).await?;
        if let Count::Inside = how {
            tx.run("UPDATE case_jobs SET failures = failures + 1 WHERE id = 1").await?;
        }
    }
    tx.rollback().await?;
    Ok(read)
}

async fn count(stage: &Stage, read: i64, how: Count) -> Result<()> {
    let sql = match how {
        Count::Inside => return Ok(()),
        // As it comes back into the list, it is new again.
        Count::ById => {
            "UPDATE case_jobs SET failures = failures + 1, status = 'new' WHERE id = 1".to_owned()
        }
        Count::IfUnchanged => format!(
            "UPDATE case_jobs SET failures = failures + 1 \
             WHERE id = 1 AND status = 'new' AND failures = {read}"
        ),
    };
    stage.run(&sql).await
}

/// Right, without a gap. Also: was the job still locked when the work had been undone?
async fn savepoint(stage: &Stage) -> Result<(Job, bool)> {
    stage.reset(&SCENE).await?;
    let mut tx = stage.database.begin().await?;
    lock_if_new(stage, &mut tx, 1).await?;
    tx.run("SAVEPOINT work").await?;
    pay(&mut tx, 1, 1).await?;
    tx.run("ROLLBACK TO SAVEPOINT work").await?;
    let is_locked = stage.another().await?.is_locked("case_jobs", 1).await?;
    tx.run("UPDATE case_jobs SET failures = failures + 1 WHERE id = 1").await?;
    tx.commit().await?;
    Ok((Job::read(stage).await?, is_locked))
}

impl Job {
    async fn read(stage: &Stage) -> Result<Self> {
        let payments = "SELECT COUNT(*) FROM case_payments WHERE job_id = 1";
        let done = "SELECT COUNT(*) FROM case_jobs WHERE id = 1 AND status = 'done'";
        Ok(Self {
            payments: stage.number(payments).await?,
            is_done: stage.number(done).await? == 1,
            failures: stage.number("SELECT failures FROM case_jobs WHERE id = 1").await?,
        })
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payments, is_done, failures } = self;
        let state = if *is_done { "done" } else { "new" };
        write!(f, "paid {payments} times, {failures} failures counted, {state}")
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [paid, payments] = self.skip_locked;
        writeln!(f, "two batches take jobs from one table")?;
        writeln!(f, "1 broken, from the list: {}", self.same_job_broken)?;
        writeln!(f, "1 right, read again under a lock: {}", self.same_job_right)?;
        writeln!(f, "1 right, SKIP LOCKED: {paid} of {JOBS} jobs paid, by {payments} payments")?;
        writeln!(f, "2 broken, two failures, counted inside: {}", self.rolled_back_broken)?;
        writeln!(f, "2 right, counted after the rollback: {}", self.rolled_back_right)?;
        writeln!(f, "3 broken, one outage, both fail: {}", self.both_fail_broken)?;
        writeln!(f, "3 right, counted from what was read: {}", self.both_fail_right)?;
        writeln!(f, "4 broken, the other one succeeds: {}", self.other_succeeds_broken)?;
        writeln!(f, "4 right, counted only while it is new: {}", self.other_succeeds_right)?;
        let gap = if self.has_no_gap { "no gap" } else { "a gap" };
        write!(f, "4 right, with a savepoint: {}, {gap}", self.savepoint)
    }
}
