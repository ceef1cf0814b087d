//! Two resident batches, the same program on two servers, run the jobs of one table. Each job makes a payment.
//!
//! 1. Broken: both read the same list, and both run its first job. Right: read the job again with a lock, and check
//!    that it is still new; or use SKIP LOCKED, so that each batch gets another job.
//! 2. Broken: a failure is counted in the transaction that failed, and rolled back with it. Right: roll back, then
//!    count in a separate transaction. Between the two the job is unlocked.
//! 3. Broken: meanwhile the other batch fails too, and counts: one outage counts twice. Right: increment only if the
//!    count is still the one that was read.
//! 4. Broken: meanwhile the other batch succeeds, and the finished job becomes new again. Right: count only if the job
//!    is still new. Or never unlock the job: a savepoint undoes the work and keeps the lock.
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
//! `hierlock::queue` does all four.

use super::case_database::{CaseDatabase, CaseTables, Result, read_in};
use super::race::{RaceBarrier, retry_transaction, run_tasks};
use hierlock::database::Transaction;
use std::fmt;

/// The index has the order in which jobs are claimed: without it SKIP LOCKED also locks rows that it only scans.
const TABLES: CaseTables = CaseTables {
    names: &["case_jobs", "case_payments"],
    create: "CREATE TABLE case_jobs \
           (id BIGINT PRIMARY KEY, status VARCHAR(10) NOT NULL, failures BIGINT NOT NULL); \
           CREATE INDEX case_jobs_next ON case_jobs (status, id); \
           CREATE TABLE case_payments (id BIGINT PRIMARY KEY, job_id BIGINT NOT NULL)",
    insert: "INSERT INTO case_jobs VALUES (1, 'new', 0)",
};
const JOBS: i64 = 20;

/// Job 1 afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) payments: i64,
    pub(crate) is_done: bool,
    pub(crate) failures: i64,
}

pub(crate) struct ResidentResults {
    pub(crate) same_job_broken: Job,
    pub(crate) same_job_right: Job,
    /// With SKIP LOCKED: the number of jobs with a payment, of 20, and the number of payments.
    pub(crate) skip_locked: [i64; 2],
    /// The job fails twice, one time after the other.
    pub(crate) rolled_back_broken: Job,
    pub(crate) rolled_back_right: Job,
    /// Both batches fail. The second fails before the first has counted.
    pub(crate) both_fail_broken: Job,
    pub(crate) both_fail_right: Job,
    /// The first batch fails. The second succeeds before the first has counted.
    pub(crate) other_succeeds_broken: Job,
    pub(crate) other_succeeds_right: Job,
    /// With a savepoint.
    pub(crate) savepoint: Job,
    /// True if the job was locked between failure and count.
    pub(crate) stays_locked: bool,
}

pub(crate) async fn run(db: &CaseDatabase) -> Result<ResidentResults> {
    db.create_tables(&TABLES).await?;
    let (savepoint, stays_locked) = fail_with_savepoint(db).await?;
    let results = ResidentResults {
        same_job_broken: take_same_job(db, JobSource::List).await?,
        same_job_right: take_same_job(db, JobSource::LockedRow).await?,
        skip_locked: run_skip_locked(db).await?,
        rolled_back_broken: fail_twice(db, FailureCounting::InFailedTransaction).await?,
        rolled_back_right: fail_twice(db, FailureCounting::IfUnchanged).await?,
        both_fail_broken: second_before_count(db, FailureCounting::ById, WorkResult::Failure)
            .await?,
        both_fail_right: second_before_count(db, FailureCounting::IfUnchanged, WorkResult::Failure)
            .await?,
        other_succeeds_broken: second_before_count(db, FailureCounting::ById, WorkResult::Success)
            .await?,
        other_succeeds_right: second_before_count(
            db,
            FailureCounting::IfUnchanged,
            WorkResult::Success,
        )
        .await?,
        savepoint,
        stays_locked,
    };
    db.drop_tables(&TABLES).await?;
    Ok(results)
}

/// Runs a job in one of the batches: makes the payment and marks the job as done.
async fn pay(tx: &mut Transaction, batch: i64, job: i64) -> Result<()> {
    let payment = batch * 1000 + job;
    tx.execute("INSERT INTO case_payments VALUES (?, ?)", [payment.into(), job.into()]).await?;
    tx.execute("UPDATE case_jobs SET status = 'done' WHERE id = ?", [job.into()]).await?;
    Ok(())
}

// 1. Both batches claim the same job.

#[derive(Clone, Copy)]
enum JobSource {
    List,
    LockedRow,
}

async fn take_same_job(db: &CaseDatabase, source: JobSource) -> Result<Job> {
    db.reset_tables(&TABLES).await?;
    let programs = [db.clone(), db.connect_again().await?];
    run_tasks(2, |batch, barrier| {
        let db = programs[usize::from(batch == 2)].clone();
        async move {
            match source {
                JobSource::List => pay_from_list(&db, batch, &barrier).await,
                JobSource::LockedRow => {
                    let list = db.read::<1>(SELECT_NEW_JOBS).await?;
                    barrier.wait_for_all().await?;
                    for [job] in list {
                        retry_transaction(|| pay_if_new(&db, batch, job, &barrier)).await?;
                    }
                    Ok(())
                }
            }
        }
    })
    .await?;
    Job::read(db).await
}

const SELECT_NEW_JOBS: &str = "SELECT id FROM case_jobs WHERE status = 'new' ORDER BY id";

/// Broken: runs every job of the list without checking it again.
async fn pay_from_list(db: &CaseDatabase, batch: i64, barrier: &RaceBarrier) -> Result<()> {
    let (list, mut tx) = db.read_then_begin::<1>(barrier, SELECT_NEW_JOBS).await?;
    for [job] in list {
        pay(&mut tx, batch, job).await?;
    }
    Ok(tx.commit().await?)
}

/// Right: reads the job again with a lock, and runs it if it is still new.
async fn pay_if_new(db: &CaseDatabase, batch: i64, job: i64, barrier: &RaceBarrier) -> Result<()> {
    let mut tx = db.begin().await?;
    if lock_if_new(db, &mut tx, job).await?.is_some() {
        barrier.pause_first_reader().await;
        pay(&mut tx, batch, job).await?;
    }
    Ok(tx.commit().await?)
}

/// Locks a job. Returns its number of failures, or `None` if it is not new.
async fn lock_if_new(db: &CaseDatabase, tx: &mut Transaction, job: i64) -> Result<Option<i64>> {
    let for_update = db.for_update();
    let sql =
        format!("SELECT failures FROM case_jobs WHERE id = {job} AND status = 'new'{for_update}");
    Ok(read_in(tx, &sql).await?.first().map(|[failures]| *failures))
}

/// Right: four workers in two programs. On a server none of them waits for another.
async fn run_skip_locked(db: &CaseDatabase) -> Result<[i64; 2]> {
    db.reset_tables(&TABLES).await?;
    let rows: Vec<String> = (2..=JOBS).map(|id| format!("({id}, 'new', 0)")).collect();
    db.run(&format!("INSERT INTO case_jobs VALUES {}", rows.join(", "))).await?;
    let programs = [db.clone(), db.connect_again().await?];
    run_tasks(4, |worker, barrier| {
        let db = programs[usize::from(worker % 2 == 0)].clone();
        async move {
            barrier.wait_for_all().await?;
            while retry_transaction(|| pay_next_job(&db, worker, &barrier)).await? {}
            Ok(())
        }
    })
    .await?;
    let paid = db.read_number("SELECT COUNT(DISTINCT job_id) FROM case_payments").await?;
    Ok([paid, db.read_number("SELECT COUNT(*) FROM case_payments").await?])
}

/// Runs the next job that is not locked. Returns false if there is none.
async fn pay_next_job(db: &CaseDatabase, worker: i64, barrier: &RaceBarrier) -> Result<bool> {
    let mut tx = db.begin().await?;
    let sql = format!("{SELECT_NEW_JOBS} LIMIT 1{}", db.skip_locked());
    let claimed = read_in(&mut tx, &sql).await?;
    if let Some([job]) = claimed.first() {
        barrier.pause_first_reader().await;
        pay(&mut tx, worker, *job).await?;
    }
    tx.commit().await?;
    Ok(!claimed.is_empty())
}

// 2 to 4. How failures are counted.

#[derive(Clone, Copy)]
enum FailureCounting {
    /// In the transaction that failed.
    InFailedTransaction,
    /// In a separate transaction, without a check.
    ById,
    /// In a separate transaction, only if the job has not changed.
    IfUnchanged,
}

#[derive(Clone, Copy)]
enum WorkResult {
    Failure,
    Success,
}

async fn fail_twice(db: &CaseDatabase, counting: FailureCounting) -> Result<Job> {
    db.reset_tables(&TABLES).await?;
    for batch in [1, 2] {
        if let Some(read) = fail_job(db, batch, counting).await? {
            count_failure(db, read, counting).await?;
        }
    }
    Job::read(db).await
}

/// The first batch fails. Before it has counted the failure, the second batch claims the job.
async fn second_before_count(
    db: &CaseDatabase,
    counting: FailureCounting,
    second: WorkResult,
) -> Result<Job> {
    db.reset_tables(&TABLES).await?;
    let other = db.connect_again().await?;
    let first_read = fail_job(db, 1, counting).await?;
    match second {
        WorkResult::Success => pay_if_new(&other, 2, 1, &RaceBarrier::new(1)).await?,
        WorkResult::Failure => {
            if let Some(read) = fail_job(&other, 2, counting).await? {
                count_failure(&other, read, counting).await?;
            }
        }
    }
    if let Some(read) = first_read {
        count_failure(db, read, counting).await?;
    }
    Job::read(db).await
}

/// Claims job 1, runs it, and rolls back. Returns its number of failures before, or `None` if it is not new.
async fn fail_job(db: &CaseDatabase, batch: i64, counting: FailureCounting) -> Result<Option<i64>> {
    let mut tx = db.begin().await?;
    let read = lock_if_new(db, &mut tx, 1).await?;
    if read.is_some() {
        pay(&mut tx, batch, 1).await?;
        if let FailureCounting::InFailedTransaction = counting {
            tx.run("UPDATE case_jobs SET failures = failures + 1 WHERE id = 1").await?;
        }
    }
    tx.rollback().await?;
    Ok(read)
}

async fn count_failure(db: &CaseDatabase, read: i64, counting: FailureCounting) -> Result<()> {
    let sql = match counting {
        FailureCounting::InFailedTransaction => return Ok(()),
        // Also sets the job to new, so that it is claimed again.
        FailureCounting::ById => {
            "UPDATE case_jobs SET failures = failures + 1, status = 'new' WHERE id = 1".to_owned()
        }
        FailureCounting::IfUnchanged => format!(
            "UPDATE case_jobs SET failures = failures + 1 \
             WHERE id = 1 AND status = 'new' AND failures = {read}"
        ),
    };
    db.run(&sql).await
}

/// Right: the job stays locked until the failure is counted. Also returns whether it was locked after the work was
/// undone.
async fn fail_with_savepoint(db: &CaseDatabase) -> Result<(Job, bool)> {
    db.reset_tables(&TABLES).await?;
    let mut tx = db.begin().await?;
    lock_if_new(db, &mut tx, 1).await?;
    tx.run("SAVEPOINT work").await?;
    pay(&mut tx, 1, 1).await?;
    tx.run("ROLLBACK TO SAVEPOINT work").await?;
    let is_locked = db.connect_again().await?.is_locked("case_jobs", 1).await?;
    tx.run("UPDATE case_jobs SET failures = failures + 1 WHERE id = 1").await?;
    tx.commit().await?;
    Ok((Job::read(db).await?, is_locked))
}

impl Job {
    async fn read(db: &CaseDatabase) -> Result<Self> {
        let payments = "SELECT COUNT(*) FROM case_payments WHERE job_id = 1";
        let done = "SELECT COUNT(*) FROM case_jobs WHERE id = 1 AND status = 'done'";
        Ok(Self {
            payments: db.read_number(payments).await?,
            is_done: db.read_number(done).await? == 1,
            failures: db.read_number("SELECT failures FROM case_jobs WHERE id = 1").await?,
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

impl fmt::Display for ResidentResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [paid, payments] = self.skip_locked;
        writeln!(f, "two batches run the jobs of one table")?;
        writeln!(f, "1 broken, run the jobs of a list: {}", self.same_job_broken)?;
        writeln!(f, "1 right, read the job again with a lock: {}", self.same_job_right)?;
        writeln!(f, "1 right, SKIP LOCKED: {paid} of {JOBS} jobs paid, with {payments} payments")?;
        writeln!(
            f,
            "2 broken, two failures, counted in the transaction that failed: {}",
            self.rolled_back_broken
        )?;
        writeln!(f, "2 right, counted after the rollback: {}", self.rolled_back_right)?;
        writeln!(f, "3 broken, one outage, both batches fail: {}", self.both_fail_broken)?;
        writeln!(f, "3 right, counted only if the count is unchanged: {}", self.both_fail_right)?;
        writeln!(f, "4 broken, the other batch succeeds: {}", self.other_succeeds_broken)?;
        writeln!(
            f,
            "4 right, counted only if the job is still new: {}",
            self.other_succeeds_right
        )?;
        let lock = if self.stays_locked { "never unlocked" } else { "unlocked before the count" };
        write!(f, "4 right, with a savepoint: {}, {lock}", self.savepoint)
    }
}
