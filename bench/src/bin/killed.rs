//! Checks that the queue loses no job while workers are killed: worker processes receive SIGKILL at random and are started
//! again. Every job must be done; none may be lost or left claimed. A job that ran twice must have a reason: its first
//! worker was killed, or recorded that it gave up (a file of SQLite was busy for too long, or its lease had expired).
//!
//! A run first writes a trace `(job, claim, worker)` in a separate transaction, so interrupted runs are counted too. Its
//! effect is written in the transaction that completes the job, so each job has exactly one effect.

use hierlock::database::Database;
use hierlock::queue::{ClaimedJob, Queue};
use hierlock_bench::toolbox::{BenchDatabase, DatabaseKind, Result, write_in_transaction};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const WORKERS: usize = 8;
const LEASE: Duration = Duration::from_secs(5);
const USAGE: &str = "usage: killed [--jobs N] [mysql] [mariadb] [postgres] [sqlite]";
/// The time between two kills.
const KILL_INTERVAL: Duration = Duration::from_millis(150);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut jobs, mut names) = (100_000, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--work" => {
                let url = arguments.next().ok_or(USAGE)?;
                let name = arguments.next().ok_or(USAGE)?;
                return runtime()?.block_on(work(&url, &name));
            }
            "--jobs" => jobs = arguments.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?,
            name => names.push(name.to_owned()),
        }
    }
    if !names.iter().all(|name| DatabaseKind::ALL.iter().any(|kind| kind.to_string() == *name)) {
        return Err(USAGE.into());
    }
    println!(
        "| database | jobs | seconds | killed | done | lost | left claimed | dead | ran twice | its worker was killed | gave up | exactly-once effects |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let runtime = runtime()?;
    for kind in DatabaseKind::ALL {
        if names.is_empty() || names.contains(&kind.to_string()) {
            runtime.block_on(run_workers(kind, jobs))?;
        }
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Runs jobs until the queue is empty, or until the process is killed.
async fn work(url: &str, name: &str) -> Result<()> {
    let database = Database::connect(url).await?;
    let queue = Queue::new(database.clone(), "bench")?;
    let worker = queue.worker(name).batch(20).concurrency(20).lease(LEASE);
    let worker = worker.poll_every(Duration::from_millis(200)).until_empty();
    worker
        .run(move |job| {
            let database = database.clone();
            async move {
                let done = run(&database, &job).await;
                if done.is_err() {
                    let gave_up = [job.id().into()];
                    write_in_transaction(
                        &database,
                        "INSERT INTO gave_up VALUES (?)",
                        &gave_up,
                        None,
                    )
                    .await?;
                }
                done
            }
        })
        .await?;
    Ok(())
}

/// Runs one job: writes its trace, then its effect together with its completion.
async fn run(database: &Database, job: &ClaimedJob) -> hierlock::Result<()> {
    let trace = [job.id().into(), job.claim_number().into(), job.worker().into()];
    write_in_transaction(database, "INSERT INTO ran VALUES (?, ?, ?)", &trace, None).await?;
    write_in_transaction(database, "INSERT INTO effects VALUES (?)", &[job.id().into()], Some(job))
        .await
}

/// A worker process. Dropping it kills the process.
struct Worker {
    process: Child,
    name: String,
}

impl Worker {
    fn start(url: &str, number: usize) -> Result<Self> {
        let name = format!("w{number}");
        let process =
            Command::new(std::env::current_exe()?).args(["--work", url, &name]).spawn()?;
        Ok(Self { process, name })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts and kills workers until all jobs are done, then prints and checks the counts.
async fn run_workers(kind: DatabaseKind, jobs: usize) -> Result<()> {
    let bench = BenchDatabase::start(kind).await?;
    let mut tx = bench.database.begin().await?;
    tx.run("CREATE TABLE ran (job BIGINT, claim BIGINT, worker VARCHAR(64))").await?;
    tx.run("CREATE TABLE effects (job BIGINT PRIMARY KEY)").await?;
    tx.run("CREATE TABLE killed (worker VARCHAR(64) PRIMARY KEY)").await?;
    tx.run("CREATE TABLE gave_up (job BIGINT)").await?;
    tx.commit().await?;
    let queue = bench.fill_queue(jobs).await?;
    let started = Instant::now();
    let (mut number, mut killed, mut workers) = (0, Vec::new(), Vec::new());
    let limit = Duration::from_secs(1800);
    let mut last_kill = Instant::now();
    loop {
        workers.retain_mut(|worker: &mut Worker| !matches!(worker.process.try_wait(), Ok(Some(_))));
        let stats = queue.stats().await?;
        let is_over = stats.ready + stats.scheduled + stats.claimed == 0;
        if is_over && workers.is_empty() {
            break;
        }
        while !is_over && workers.len() < WORKERS {
            workers.push(Worker::start(&bench.url, number)?);
            number += 1;
        }
        if !is_over && last_kill.elapsed() > KILL_INTERVAL {
            last_kill = Instant::now();
            let chosen = started.elapsed().subsec_nanos() as usize % workers.len();
            let victim = workers.swap_remove(chosen);
            killed.push(victim.name.clone());
        }
        if started.elapsed() > limit {
            return Err(format!("not done after {limit:?}: {stats:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let mut tx = bench.database.begin().await?;
    for name in &killed {
        tx.execute("INSERT INTO killed VALUES (?)", [name.into()]).await?;
    }
    let mut count = async |sql: &str| -> Result<i64> { Ok(tx.fetch(sql, []).await?[0].int(0)?) };
    let done = count("SELECT COUNT(DISTINCT job) FROM ran").await?;
    let effects = count("SELECT COUNT(*) FROM effects").await?;
    let claimed = count("SELECT COUNT(*) FROM hier_jobs WHERE state = 2").await?;
    let dead = count("SELECT COUNT(*) FROM hier_jobs WHERE state = 3").await?;
    let twice =
        count("SELECT COUNT(*) FROM (SELECT job FROM ran GROUP BY job HAVING COUNT(*) > 1) t")
            .await?;
    let from_twice = "FROM (SELECT job FROM ran GROUP BY job HAVING COUNT(*) > 1) t WHERE";
    let by_killed =
        "EXISTS (SELECT 1 FROM ran r JOIN killed k ON k.worker = r.worker WHERE r.job = t.job)";
    let gave_up = "EXISTS (SELECT 1 FROM gave_up g WHERE g.job = t.job)";
    let others =
        count(&format!("SELECT COUNT(*) {from_twice} NOT {by_killed} AND {gave_up}")).await?;
    let by_killed = count(&format!("SELECT COUNT(*) {from_twice} {by_killed}")).await?;
    let explained = by_killed + others;
    let lost = jobs as i64 - done;
    println!(
        "| {kind} | {jobs} | {seconds:.0} | {} | {done} | {lost} | {claimed} | {dead} | {twice} | \
         {by_killed} | {others} | {effects} |",
        killed.len()
    );
    if lost != 0 || claimed != 0 || dead != 0 || effects != jobs as i64 || explained != twice {
        return Err("a job was lost, left over, or run twice without a reason".into());
    }
    Ok(())
}
