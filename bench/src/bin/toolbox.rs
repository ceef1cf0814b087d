//! Compares the queue and the leases with plain SQL for the same work, on each engine.
//!
//! The contenders take turns in short rounds, so that other load on the machine affects all of them alike. A cell
//! is the lower quartile of its rounds, because a disturbance only makes a round slower.

use hierlock::Target;
use hierlock::lease::{LeaseRequest, Leases};
use hierlock::queue::Queue;
use hierlock_bench::samples::lower_quartile;
use hierlock_bench::toolbox::{BenchDatabase, DatabaseKind, PlainSql, Result, TTL};
use std::sync::Arc;
use std::time::Instant;

const WORKERS: usize = 8;
const USAGE: &str = "usage: toolbox [jobs] [leases] [mysql] [mariadb] [postgres] [sqlite]";

/// The work of one cell.
#[derive(Clone, Copy)]
enum Workload {
    /// All workers together claim `jobs` jobs in batches and complete them.
    Queue { batch: usize, jobs: usize },
    /// Each client leases a node and releases it, `cycles` times.
    Lease { clients: usize, cycles: usize },
}

impl Workload {
    /// Returns the number of rounds. Short rounds need more of them, so that some are not slowed down by other load. The
    /// first one is a warm-up.
    fn rounds(self) -> usize {
        match self {
            Workload::Queue { .. } => 11,
            Workload::Lease { .. } => 41,
        }
    }

    /// Returns the name of the feature on the command line.
    fn feature(self) -> &'static str {
        match self {
            Workload::Queue { .. } => "jobs",
            Workload::Lease { .. } => "leases",
        }
    }
}

const WORKLOADS: [Workload; 4] = [
    Workload::Queue { batch: 1, jobs: 1600 },
    Workload::Queue { batch: 20, jobs: 8000 },
    Workload::Lease { clients: 1, cycles: 60 },
    Workload::Lease { clients: 8, cycles: 20 },
];

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let known_features = WORKLOADS.map(|workload| workload.feature().to_owned());
    let known_databases = DatabaseKind::ALL.map(|kind| kind.to_string());
    if !names.iter().all(|name| known_features.contains(name) || known_databases.contains(name)) {
        return Err(USAGE.into());
    }
    let is_wanted = |name: &str, known: &[String]| {
        names.iter().any(|wanted| wanted == name) || !names.iter().any(|name| known.contains(name))
    };
    let workloads: Vec<Workload> = WORKLOADS
        .into_iter()
        .filter(|workload| is_wanted(workload.feature(), &known_features))
        .collect();
    let runtime = tokio::runtime::Runtime::new()?;
    println!(
        "| database | line | hierlock, µs | its worker, µs | plain SQL, µs | hierlock / plain SQL | worker / plain SQL |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|");
    for kind in DatabaseKind::ALL {
        if is_wanted(&kind.to_string(), &known_databases) {
            runtime.block_on(measure(kind, &workloads))?;
        }
    }
    Ok(())
}

/// Measures the workloads on one engine, in microseconds per job or lease.
async fn measure(kind: DatabaseKind, workloads: &[Workload]) -> Result<()> {
    let bench = BenchDatabase::start(kind).await?;
    for &workload in workloads {
        let mut samples: [Vec<f64>; 3] = Default::default();
        for round in 0..workload.rounds() {
            for turn in 0..3 {
                let contender = (round + turn) % 3;
                let Some(each) = time_round(&bench, workload, contender).await? else { continue };
                if round > 0 {
                    samples[contender].push(each);
                }
            }
        }
        let [hierlock, worker, plain_sql] = samples.map(lower_quartile);
        let speed = |hierlock: Option<f64>| match (hierlock, plain_sql) {
            (Some(hierlock), Some(plain_sql)) => format!("{:.2}", plain_sql / hierlock),
            _ => "–".to_owned(),
        };
        let time = |time: Option<f64>| time.map_or("–".to_owned(), |time| format!("{time:.0}"));
        let name = match workload {
            Workload::Queue { batch, .. } => format!("jobs, {WORKERS} workers, batches of {batch}"),
            Workload::Lease { clients, .. } => format!("leases, clients: {clients}"),
        };
        println!(
            "| {kind} | {name} | {} | {} | {} | {} | {} |",
            time(hierlock),
            time(worker),
            time(plain_sql),
            speed(hierlock),
            speed(worker)
        );
    }
    Ok(())
}

/// Runs one round of one contender (0: hierlock's calls, 1: its worker, 2: plain SQL) and returns microseconds per job
/// or lease.
async fn time_round(
    bench: &BenchDatabase,
    workload: Workload,
    contender: usize,
) -> Result<Option<f64>> {
    match workload {
        Workload::Queue { batch, jobs } => {
            let queue = bench.fill_queue(jobs).await?;
            let started = Instant::now();
            match contender {
                0 => run_workers(|_| claim_until_empty(queue.clone(), batch)).await?,
                1 => run_workers(|number| run_worker(queue.clone(), number, batch)).await?,
                _ => run_workers(|_| run_plain_sql(bench.plain_sql.clone(), batch)).await?,
            }
            let elapsed = started.elapsed();
            let left = queue.stats().await?;
            if left.ready + left.claimed > 0 {
                return Err(format!("{left:?} are left").into());
            }
            Ok(Some(elapsed.as_secs_f64() * 1e6 / jobs as f64))
        }
        Workload::Lease { clients, cycles } => {
            if contender == 1 {
                return Ok(None);
            }
            let leases = Arc::new(Leases::new(bench.database.clone()));
            let started = Instant::now();
            let tasks: Vec<_> = (0..clients)
                .map(|client| {
                    let (leases, plain_sql) = (leases.clone(), bench.plain_sql.clone());
                    tokio::spawn(async move {
                        let user = format!("u{client}");
                        let node = Target::resource(&user, "a1", "r1")?;
                        for _ in 0..cycles {
                            if contender == 0 {
                                let request = LeaseRequest::new(node.clone(), &user).ttl(TTL);
                                leases.acquire(request).await?.release().await?;
                            } else {
                                plain_sql.lease(&node, &user).await?;
                            }
                        }
                        Result::Ok(())
                    })
                })
                .collect();
            for task in tasks {
                task.await??;
            }
            Ok(Some(started.elapsed().as_secs_f64() * 1e6 / (clients * cycles) as f64))
        }
    }
}

async fn run_workers<W>(work: impl Fn(usize) -> W) -> Result<()>
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    let tasks: Vec<_> = (0..WORKERS).map(|number| tokio::spawn(work(number))).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Claims and completes jobs until the queue is empty.
async fn claim_until_empty(queue: Queue, batch: usize) -> Result<()> {
    loop {
        let jobs = queue.claim("w", batch, TTL).await?;
        if jobs.is_empty() {
            return Ok(());
        }
        queue.complete_all(&jobs).await?;
    }
}

async fn run_worker(queue: Queue, number: usize, batch: usize) -> Result<()> {
    let worker = queue.worker(&format!("w{number}")).batch(batch).concurrency(batch).until_empty();
    worker.run(|_| async { Ok::<(), hierlock::Error>(()) }).await?;
    Ok(())
}

async fn run_plain_sql(plain_sql: PlainSql, batch: usize) -> Result<()> {
    while plain_sql.claim_and_complete(batch).await? > 0 {}
    Ok(())
}
