//! The checks after the last fault: jobs are done, writes are in order, and no lock is held. Also adds the jobs.

use super::check::{History, JobCounts, Jobs, Violation, Write, check_jobs, check_writes};
use super::history::Event;
use super::setup::{Part, SoakBackend};
use super::setup_run::SetupRun;
use super::{JOB_LEASE_TTL, MAX_LEASE_TTL, Result, queue, tree};
use hierlock::Hierlock;
use hierlock::database::Database;
use hierlock::lease::{LeaseFilter, LeaseRequest, Leases};
use hierlock::queue::Job;
use hierlock_sandbox::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;

/// The time limit for all locks to become free after all processes have ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for a queue to become empty after the last job was added.
const EMPTY_QUEUE_TIMEOUT: Duration = Duration::from_secs(60);
/// No jobs are added while this many are ready.
const MAX_READY_JOBS: u64 = 200;

/// The jobs whose enqueueing was confirmed.
pub type AddedJobs = BTreeSet<i64>;

/// Adds jobs until `stop` is set. Connects to the server without a proxy. The server may be down for a while.
///
/// # Errors
/// Fails if the database cannot be used at all.
pub async fn produce(run: Arc<SetupRun>, stop: watch::Receiver<bool>) -> Result<AddedJobs> {
    let queue = queue(&Database::connect(&run.database.bare_url).await?)?;
    let (mut number, mut added) = (0, AddedJobs::new());
    while !*stop.borrow() && !run.is_interrupted() {
        let needs_jobs = queue.stats().await.is_ok_and(|stats| stats.ready < MAX_READY_JOBS);
        if needs_jobs {
            let numbers: Vec<i64> = (number..number + 20).collect();
            number += 20;
            let job = |number: &i64| Job::new(number.to_string()).max_attempts(10_000);
            // If this fails it is unknown whether the jobs were added, so their effects are not required.
            if queue.enqueue_all(numbers.iter().map(job)).await.is_ok() {
                added.extend(numbers);
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(added)
}

/// Waits until the queue is empty.
///
/// # Errors
/// Fails if the database cannot be used.
pub async fn wait_until_empty(run: &SetupRun) -> Result<()> {
    let queue = queue(&Database::connect(&run.database.bare_url).await?)?;
    let started = Instant::now();
    while started.elapsed() < EMPTY_QUEUE_TIMEOUT + JOB_LEASE_TTL && !run.is_interrupted() {
        let stats = queue.stats().await?;
        if stats.ready + stats.scheduled + stats.claimed == 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Reads the jobs and their effects, and checks them.
///
/// # Errors
/// Fails if the database cannot be used.
pub async fn check_jobs_left(
    run: &SetupRun,
    history: &History,
    added: AddedJobs,
) -> Result<(JobCounts, Vec<Violation>)> {
    let database = Database::connect(&run.database.bare_url).await?;
    let mut jobs = Jobs { added, ..Jobs::default() };
    for row in database.query("SELECT job FROM soak_effects", []).await? {
        *jobs.effects.entry(row.int(0)?).or_default() += 1;
    }
    let stats = queue(&database)?.stats().await?;
    jobs.left = [
        ("ready", stats.ready),
        ("scheduled", stats.scheduled),
        ("claimed", stats.claimed),
        ("dead", stats.dead),
    ]
    .into();
    for line in &history.lines {
        let job = i64::from(line.visit.number);
        match line.event {
            Event::Run => jobs.runs.entry(job).or_default().push(line.visit.worker),
            Event::Fail => _ = jobs.failed.insert(job),
            _ => {}
        }
    }
    for (worker, process) in &history.processes {
        let mut faults = history.faults.iter();
        if process.killed.is_some()
            || faults.any(|fault| fault.slot.is_none_or(|slot| slot == process.slot))
        {
            jobs.faulted.insert(*worker);
        }
    }
    Ok(check_jobs(&jobs))
}

/// Reads the writes under leases, and checks them against the history.
///
/// # Errors
/// Fails if the database cannot be used.
pub async fn check_writes_left(
    run: &SetupRun,
    committed: &BTreeMap<u64, u64>,
) -> Result<Vec<Violation>> {
    let database = Database::connect(&run.database.bare_url).await?;
    let rows = database.query("SELECT path, token FROM soak_writes ORDER BY id", []).await?;
    let mut writes = Vec::new();
    for row in rows {
        let token = u64::try_from(row.int(1)?)?;
        writes.push(Write { target: row.text(0)?.parse()?, token });
    }
    Ok(check_writes(&writes, committed))
}

/// Records a violation unless a new client can lock everything and the server holds no locks.
pub async fn check_everything_is_free(run: &SetupRun) {
    let result = match run.setup.part {
        // The only worker of `memory:` has checked this itself.
        Part::Locks { .. } if run.setup.backend == SoakBackend::Memory => Ok(()),
        Part::Locks { .. } => check_locks_are_free(run).await,
        Part::Leases => check_leases_are_free(run).await,
        Part::Queue => Ok(()),
    };
    if let Err(error) = result {
        run.log.add_violation(format!("not free at the end: {error}"));
    }
}

async fn check_locks_are_free(run: &SetupRun) -> Result<()> {
    if let SoakBackend::Server(engine) = run.setup.backend {
        let started = Instant::now();
        loop {
            match count_server_locks(run, engine).await? {
                0 => break,
                held if started.elapsed() > RELEASE_TIMEOUT => {
                    return Err(format!("the server holds {held} locks without an owner").into());
                }
                _ => sleep(Duration::from_millis(200)).await,
            }
        }
    }
    let locks = Hierlock::connect(&run.database.url).await?;
    for broken in [false, true] {
        let roots = tree::roots();
        let roots = roots.iter().map(|root| tree::node_to_lock(root, broken));
        locks.request_all(roots).within(RELEASE_TIMEOUT).acquire().await?.release().await?;
    }
    Ok(())
}

/// Returns the number of locks that the server reports.
async fn count_server_locks(run: &SetupRun, engine: Engine) -> Result<i64> {
    let database = Database::connect(&run.database.bare_url).await?;
    let sql = match engine {
        Engine::Mysql => "SELECT COUNT(*) FROM performance_schema.data_locks",
        Engine::Mariadb => {
            "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_lock_structs > 0"
        }
        Engine::Postgres => {
            "SELECT (SELECT COUNT(*) FROM pg_locks WHERE locktype IN ('advisory', 'tuple')) + \
             (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL)"
        }
    };
    let rows = database.query(sql, []).await?;
    let held = rows.first().map(|row| row.int(0)).transpose()?;
    database.close().await;
    Ok(held.unwrap_or_default())
}

async fn check_leases_are_free(run: &SetupRun) -> Result<()> {
    let leases = Leases::new(Database::connect(&run.database.bare_url).await?);
    for broken in [false, true] {
        for root in tree::roots() {
            let request = LeaseRequest::new(tree::node_to_lock(&root, broken), "final check");
            let lease = leases.acquire(request.wait_up_to(RELEASE_TIMEOUT + MAX_LEASE_TTL)).await?;
            lease.release().await?;
        }
    }
    leases.sweep().await?;
    match leases.list(LeaseFilter::default().also_expired()).await?.len() {
        0 => Ok(()),
        left => Err(format!("{left} leases are left").into()),
    }
}
