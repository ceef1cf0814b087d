//! The queue and the leases beside plain SQL for the same work, as ratios in one run, on each engine.
//!
//! They take turns in short rounds, so that whatever else the machine does falls on both alike; a cell is
//! the lower quartile of its rounds, for what disturbs a round only ever adds to it.

use hierlock::Target;
use hierlock::lease::{LeaseRequest, Leases};
use hierlock::queue::Queue;
use hierlock_bench::toolbox::{ByHand, Place, Result, TTL, Where};
use std::sync::Arc;
use std::time::Instant;

const WORKERS: usize = 8;
const USAGE: &str = "usage: toolbox [jobs] [leases] [mysql] [mariadb] [postgres] [sqlite]";

/// What is done in one cell.
#[derive(Clone, Copy)]
enum Workload {
    /// So many jobs are claimed in such batches by all workers, and completed.
    Queue { batch: usize, jobs: usize },
    /// So many clients lease a node and release it, so many times each.
    Lease { clients: usize, cycles: usize },
}

impl Workload {
    /// Short ones need more, to find some that nothing disturbed. The first warms up.
    fn rounds(self) -> usize {
        match self {
            Workload::Queue { .. } => 11,
            Workload::Lease { .. } => 41,
        }
    }

    /// What it is of.
    fn of(self) -> &'static str {
        match self {
            Workload::Queue { .. } => "jobs",
            Workload::Lease { .. } => "leases",
        }
    }
}

const LINES: [Workload; 4] = [
    Workload::Queue { batch: 1, jobs: 1600 },
    Workload::Queue { batch: 20, jobs: 8000 },
    Workload::Lease { clients: 1, cycles: 60 },
    Workload::Lease { clients: 8, cycles: 20 },
];

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let known_lines = LINES.map(|line| line.of().to_owned());
    let known_places = Where::ALL.map(|at| at.to_string());
    if !names.iter().all(|name| known_lines.contains(name) || known_places.contains(name)) {
        return Err(USAGE.into());
    }
    let is_wanted = |name: &str, known: &[String]| {
        names.iter().any(|wanted| wanted == name) || !names.iter().any(|name| known.contains(name))
    };
    let lines: Vec<Workload> =
        LINES.into_iter().filter(|line| is_wanted(line.of(), &known_lines)).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    println!(
        "| database | line | hierlock, µs | its worker, µs | by hand, µs | hierlock / by hand | worker / by hand |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|");
    for at in Where::ALL {
        if is_wanted(&at.to_string(), &known_places) {
            runtime.block_on(measure(at, &lines))?;
        }
    }
    Ok(())
}

/// The lines of one engine: microseconds a job, or a lease.
async fn measure(at: Where, lines: &[Workload]) -> Result<()> {
    let place = Place::start(at).await?;
    for &line in lines {
        let mut samples: [Vec<f64>; 3] = Default::default();
        for round in 0..line.rounds() {
            for turn in 0..3 {
                let contender = (round + turn) % 3;
                let Some(each) = once(&place, line, contender).await? else { continue };
                if round > 0 {
                    samples[contender].push(each);
                }
            }
        }
        let [ours, worker, theirs] = samples.map(lower_quartile);
        let speed = |ours: Option<f64>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => format!("{:.2}", theirs / ours),
            _ => "–".to_owned(),
        };
        let time = |time: Option<f64>| time.map_or("–".to_owned(), |time| format!("{time:.0}"));
        let name = match line {
            Workload::Queue { batch, .. } => format!("jobs, {WORKERS} workers, batches of {batch}"),
            Workload::Lease { clients, .. } => format!("leases, clients: {clients}"),
        };
        println!(
            "| {at} | {name} | {} | {} | {} | {} | {} |",
            time(ours),
            time(worker),
            time(theirs),
            speed(ours),
            speed(worker)
        );
    }
    Ok(())
}

/// One round of one contender: hierlock's own calls, its worker, plain SQL. Microseconds each.
async fn once(place: &Place, line: Workload, contender: usize) -> Result<Option<f64>> {
    match line {
        Workload::Queue { batch, jobs } => {
            let queue = place.queue_of(jobs).await?;
            let begun = Instant::now();
            match contender {
                0 => each_worker(|_| claims(queue.clone(), batch)).await?,
                1 => each_worker(|number| works(queue.clone(), number, batch)).await?,
                _ => each_worker(|_| by_hand(place.by_hand.clone(), batch)).await?,
            }
            let took = begun.elapsed();
            let left = queue.stats().await?;
            if left.ready + left.claimed > 0 {
                return Err(format!("{left:?} are left").into());
            }
            Ok(Some(took.as_secs_f64() * 1e6 / jobs as f64))
        }
        Workload::Lease { clients, cycles } => {
            if contender == 1 {
                return Ok(None);
            }
            let leases = Arc::new(Leases::new(place.database.clone()));
            let begun = Instant::now();
            let tasks: Vec<_> = (0..clients)
                .map(|client| {
                    let (leases, by_hand) = (leases.clone(), place.by_hand.clone());
                    tokio::spawn(async move {
                        let user = format!("u{client}");
                        let node = Target::resource(&user, "a1", "r1")?;
                        for _ in 0..cycles {
                            if contender == 0 {
                                let request = LeaseRequest::new(node.clone(), &user).ttl(TTL);
                                leases.acquire(request).await?.release().await?;
                            } else {
                                by_hand.lease(&node, &user).await?;
                            }
                        }
                        Result::Ok(())
                    })
                })
                .collect();
            for task in tasks {
                task.await??;
            }
            Ok(Some(begun.elapsed().as_secs_f64() * 1e6 / (clients * cycles) as f64))
        }
    }
}

async fn each_worker<W>(work: impl Fn(usize) -> W) -> Result<()>
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    let tasks: Vec<_> = (0..WORKERS).map(|number| tokio::spawn(work(number))).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Until there is nothing left.
async fn claims(queue: Queue, batch: usize) -> Result<()> {
    loop {
        let jobs = queue.claim("w", batch, TTL).await?;
        if jobs.is_empty() {
            return Ok(());
        }
        queue.complete_all(&jobs).await?;
    }
}

async fn works(queue: Queue, number: usize, batch: usize) -> Result<()> {
    let worker = queue.worker(&format!("w{number}")).batch(batch).concurrency(batch).until_empty();
    worker.run(|_| async { Ok::<(), hierlock::Error>(()) }).await?;
    Ok(())
}

async fn by_hand(by_hand: ByHand, batch: usize) -> Result<()> {
    while by_hand.claim_and_complete(batch).await? > 0 {}
    Ok(())
}

fn lower_quartile(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 4).copied()
}
