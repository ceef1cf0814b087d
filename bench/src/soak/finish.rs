//! What is looked at when nothing is done to anybody any more.

use super::arena::Arena;
use super::check::{History, JobCounts, Jobs, Violation, Write, check_jobs, check_writes};
use super::history::Event;
use super::setup::{Part, Place};
use super::{LEASE_OF_JOBS, LONGEST_LEASE, Result, queue, tree};
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

/// How long it may take until everything is free when all processes have ended.
const FREE_WITHIN: Duration = Duration::from_secs(30);
/// How long a queue may take to be empty when no more jobs come.
const EMPTY_WITHIN: Duration = Duration::from_secs(60);
/// How many jobs wait at most.
const BACKLOG: u64 = 200;

/// The jobs whose enqueueing was confirmed.
pub type Added = BTreeSet<i64>;

/// Adds jobs until it is told to stop, past all networks; the server may be away.
///
/// # Errors
/// If the database cannot be used at all.
pub async fn produce(arena: Arc<Arena>, stop: watch::Receiver<bool>) -> Result<Added> {
    let queue = queue(&Database::connect(&arena.database.bare_url).await?)?;
    let (mut number, mut added) = (0, Added::new());
    while !*stop.borrow() && !arena.is_interrupted() {
        let is_short = queue.stats().await.is_ok_and(|stats| stats.ready < BACKLOG);
        if is_short {
            let numbers: Vec<i64> = (number..number + 20).collect();
            number += 20;
            let job = |number: &i64| Job::new(number.to_string()).max_attempts(10_000);
            // If that fails nobody knows whether they were added: they may be done, and need not be.
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
/// If the database cannot be used.
pub async fn until_empty(arena: &Arena) -> Result<()> {
    let queue = queue(&Database::connect(&arena.database.bare_url).await?)?;
    let begun = Instant::now();
    while begun.elapsed() < EMPTY_WITHIN + LEASE_OF_JOBS && !arena.is_interrupted() {
        let stats = queue.stats().await?;
        if stats.ready + stats.scheduled + stats.claimed == 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Reads what became of the jobs, and checks it.
///
/// # Errors
/// If the database cannot be used.
pub async fn jobs(
    arena: &Arena,
    history: &History,
    added: Added,
) -> Result<(JobCounts, Vec<Violation>)> {
    let database = Database::connect(&arena.database.bare_url).await?;
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
        let mut disturbances = history.disturbances.iter();
        if process.killed.is_some()
            || disturbances.any(|d| d.slot.is_none_or(|slot| slot == process.slot))
        {
            jobs.disturbed.insert(*worker);
        }
    }
    Ok(check_jobs(&jobs))
}

/// Reads what was written under leases, and checks it.
///
/// # Errors
/// If the database cannot be used.
pub async fn writes(arena: &Arena, committed: &BTreeMap<u64, u64>) -> Result<Vec<Violation>> {
    let database = Database::connect(&arena.database.bare_url).await?;
    let rows = database.query("SELECT path, token FROM soak_writes ORDER BY id", []).await?;
    let mut writes = Vec::new();
    for row in rows {
        let token = u64::try_from(row.int(1)?)?;
        writes.push(Write { target: row.text(0)?.parse()?, token });
    }
    Ok(check_writes(&writes, committed))
}

/// Makes sure that everything can be had by somebody new, and that the server holds nothing.
pub async fn everything_is_free(arena: &Arena) {
    let checked = match arena.setup.part {
        // Its only worker has looked.
        Part::Locks { .. } if arena.setup.place == Place::Memory => Ok(()),
        Part::Locks { .. } => locks_are_free(arena).await,
        Part::Leases => leases_are_free(arena).await,
        Part::Queue => Ok(()),
    };
    if let Err(error) = checked {
        arena.ledger.violation(format!("not free in the end: {error}"));
    }
}

async fn locks_are_free(arena: &Arena) -> Result<()> {
    if let Place::Server(engine) = arena.setup.place {
        let begun = Instant::now();
        loop {
            match held(arena, engine).await? {
                0 => break,
                held if begun.elapsed() > FREE_WITHIN => {
                    return Err(format!("the server holds {held} locks of nobody").into());
                }
                _ => sleep(Duration::from_millis(200)).await,
            }
        }
    }
    let locks = Hierlock::connect(&arena.database.url).await?;
    for broken in [false, true] {
        let roots = tree::roots();
        let roots = roots.iter().map(|root| tree::locked(root, broken));
        locks.request_all(roots).within(FREE_WITHIN).acquire().await?.release().await?;
    }
    Ok(())
}

/// How many locks the server holds, as it says itself.
async fn held(arena: &Arena, engine: Engine) -> Result<i64> {
    let database = Database::connect(&arena.database.bare_url).await?;
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

async fn leases_are_free(arena: &Arena) -> Result<()> {
    let leases = Leases::new(Database::connect(&arena.database.bare_url).await?);
    for broken in [false, true] {
        for root in tree::roots() {
            let request = LeaseRequest::new(tree::locked(&root, broken), "the last one");
            let lease = leases.acquire(request.wait_up_to(FREE_WITHIN + LONGEST_LEASE)).await?;
            lease.release().await?;
        }
    }
    leases.sweep().await?;
    match leases.list(LeaseFilter::default().also_expired()).await?.len() {
        0 => Ok(()),
        left => Err(format!("{left} leases are left").into()),
    }
}
