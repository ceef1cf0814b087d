//! The queue's promise under murder: jobs are worked on by processes that are killed with -9 at random and
//! started again. Every job is done, none is lost, none stays claimed; how often one ran twice is counted,
//! and each of those is explained: its first worker was killed, or says itself that it gave up (a file of
//! SQLite was busy for too long, or its lease had ended).
//!
//! A job's effect is a row `(job, claim, worker)` in a table, written *before* the job is completed and in a
//! transaction of its own: so a worker that is killed in between leaves a trace, and the job runs again. The
//! same effect written in the transaction that completes the job is there exactly once.

use hierlock::database::Database;
use hierlock::queue::{ClaimedJob, Queue};
use hierlock_bench::toolbox::{Place, Result, Where, write};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const WORKERS: usize = 8;
const LEASE: Duration = Duration::from_secs(5);
const USAGE: &str = "usage: killed [--jobs N] [mysql] [mariadb] [postgres] [sqlite]";
/// One worker is killed about so often.
const MURDER_EVERY: Duration = Duration::from_millis(150);

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
    if !names.iter().all(|name| Where::ALL.iter().any(|at| at.to_string() == *name)) {
        return Err(USAGE.into());
    }
    println!(
        "| database | jobs | seconds | killed | done | lost | left claimed | dead | ran twice | its worker was killed | gave up | exactly-once effects |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let runtime = runtime()?;
    for at in Where::ALL {
        if names.is_empty() || names.contains(&at.to_string()) {
            runtime.block_on(prove(at, jobs))?;
        }
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// A worker that is to be killed.
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
                    write(&database, "INSERT INTO gave_up VALUES (?)", &gave_up, None).await?;
                }
                done
            }
        })
        .await?;
    Ok(())
}

/// One run: its trace, and its effect together with its end.
async fn run(database: &Database, job: &ClaimedJob) -> hierlock::Result<()> {
    let trace = [job.id().into(), job.claim_number().into(), job.worker().into()];
    write(database, "INSERT INTO ran VALUES (?, ?, ?)", &trace, None).await?;
    write(database, "INSERT INTO effects VALUES (?)", &[job.id().into()], Some(job)).await
}

/// A worker process; killed when this is dropped.
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
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn prove(at: Where, jobs: usize) -> Result<()> {
    let place = Place::start(at).await?;
    let mut tx = place.database.begin().await?;
    tx.run("CREATE TABLE ran (job BIGINT, claim BIGINT, worker VARCHAR(64))").await?;
    tx.run("CREATE TABLE effects (job BIGINT PRIMARY KEY)").await?;
    tx.run("CREATE TABLE killed (worker VARCHAR(64) PRIMARY KEY)").await?;
    tx.run("CREATE TABLE gave_up (job BIGINT)").await?;
    tx.commit().await?;
    let queue = place.queue_of(jobs).await?;
    let begun = Instant::now();
    let (mut number, mut killed, mut workers) = (0, Vec::new(), Vec::new());
    let limit = Duration::from_secs(1800);
    let mut last_murder = Instant::now();
    loop {
        workers.retain_mut(|worker: &mut Worker| !matches!(worker.process.try_wait(), Ok(Some(_))));
        let stats = queue.stats().await?;
        let is_over = stats.ready + stats.scheduled + stats.claimed == 0;
        if is_over && workers.is_empty() {
            break;
        }
        while !is_over && workers.len() < WORKERS {
            workers.push(Worker::start(&place.url, number)?);
            number += 1;
        }
        if !is_over && last_murder.elapsed() > MURDER_EVERY {
            last_murder = Instant::now();
            let chosen = begun.elapsed().subsec_nanos() as usize % workers.len();
            let victim = workers.swap_remove(chosen);
            killed.push(victim.name.clone());
        }
        if begun.elapsed() > limit {
            return Err(format!("not done after {limit:?}: {stats:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut tx = place.database.begin().await?;
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
    let of = "FROM (SELECT job FROM ran GROUP BY job HAVING COUNT(*) > 1) t WHERE";
    let by_killed =
        "EXISTS (SELECT 1 FROM ran r JOIN killed k ON k.worker = r.worker WHERE r.job = t.job)";
    let gave_up = "EXISTS (SELECT 1 FROM gave_up g WHERE g.job = t.job)";
    let others = count(&format!("SELECT COUNT(*) {of} NOT {by_killed} AND {gave_up}")).await?;
    let by_killed = count(&format!("SELECT COUNT(*) {of} {by_killed}")).await?;
    let explained = by_killed + others;
    let lost = jobs as i64 - done;
    println!(
        "| {at} | {jobs} | {seconds:.0} | {} | {done} | {lost} | {claimed} | {dead} | {twice} | \
         {by_killed} | {others} | {effects} |",
        killed.len()
    );
    if lost != 0 || claimed != 0 || dead != 0 || effects != jobs as i64 || explained != twice {
        return Err("the promise is broken".into());
    }
    Ok(())
}
