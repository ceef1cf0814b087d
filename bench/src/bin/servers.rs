//! hierlock on real servers beside the straightforward way, its own statement sent by hand, and the floor,
//! as ratios in one run: with the server next door, and with a network in between.
//!
//! The contenders take turns in short rounds, so that whatever else the machine does falls on all of
//! them alike; a cell is the lower quartile of its rounds, for what disturbs a round only ever adds to it.

use hierlock::Hierlock;
use hierlock_bench::servers::{Alone, Bench, Floor, Nodes, Setup, Statement, Straightforward};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How far away the server is.
#[derive(Clone, Copy)]
struct Distance {
    name: &'static str,
    one_way: Duration,
    rounds: usize,
}

/// Next door; as far as the next rack may be, and the next building.
const DISTANCES: [Distance; 3] = [
    Distance { name: "here", one_way: Duration::ZERO, rounds: 41 },
    Distance { name: "0.05 ms away", one_way: Duration::from_micros(50), rounds: 15 },
    Distance { name: "0.5 ms away", one_way: Duration::from_micros(500), rounds: 7 },
];

/// What is done in one cell: so many clients, each takes so many resources, so many times in a round.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    clients: usize,
    resources: usize,
    cycles: usize,
}

const LINES: [Workload; 3] = [
    Workload { name: "1 client", clients: 1, resources: 1, cycles: 40 },
    Workload { name: "8 clients", clients: 8, resources: 1, cycles: 20 },
    Workload { name: "100 resources", clients: 1, resources: 100, cycles: 6 },
];

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    println!(
        "| server | distance | line | hierlock, µs | its statement, µs | straightforward, µs | floor, µs \
         | faster than straightforward | of its statement | of the floor |"
    );
    println!("|---|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for setup in Setup::ALL {
        runtime.block_on(measure(setup))?;
    }
    Ok(())
}

/// The lines of one server.
async fn measure(setup: Setup) -> Result<()> {
    let mut bench = Bench::start(setup).await?;
    for distance in DISTANCES {
        if !distance.one_way.is_zero() {
            bench.move_away(distance.one_way)?;
        }
        let mut contenders = Contenders::new(&bench).await?;
        for line in LINES {
            let [ours, statement, theirs, floor] = contenders.run(line, distance.rounds).await?;
            println!(
                "| {} {} | {} | {} | {ours:.0} | {statement:.0} | {theirs:.0} | {floor:.0} | {:.2} \
                 | {:.2} | {:.2} |",
                setup.engine,
                setup.strategy,
                distance.name,
                line.name,
                theirs / ours,
                ours / statement,
                ours / floor,
            );
        }
    }
    Ok(())
}

/// All that take turns. The last two have a connection for each client.
struct Contenders {
    locks: Hierlock,
    by_hand: Arc<Straightforward>,
    statement: Vec<Statement>,
    floor: Vec<Floor>,
}

impl Contenders {
    async fn new(bench: &Bench) -> Result<Self> {
        Ok(Self {
            locks: bench.hierlock().await?,
            by_hand: Arc::new(Straightforward::new(bench).await?),
            statement: opened(bench).await?,
            floor: opened(bench).await?,
        })
    }

    /// Microseconds a cycle: ours, its statement, the straightforward way, the floor.
    async fn run(&mut self, line: Workload, rounds: usize) -> Result<[f64; 4]> {
        let mut samples: [Vec<f64>; 4] = Default::default();
        for round in 0..rounds {
            for turn in 0..4 {
                let place = (round + turn) % 4;
                let begun = Instant::now();
                match place {
                    0 => ours(&self.locks, line).await?,
                    1 => alone(&mut self.statement, line).await?,
                    2 => theirs(&self.by_hand, line).await?,
                    _ => alone(&mut self.floor, line).await?,
                }
                let each = begun.elapsed().as_secs_f64() * 1e6 / line.cycles as f64;
                // The first warms up.
                if round > 0 {
                    samples[place].push(each);
                }
            }
        }
        Ok(samples.map(lower_quartile))
    }
}

/// Each client in a task, as with the others.
async fn alone<A: Alone>(connections: &mut Vec<A>, line: Workload) -> Result<()> {
    let clients = connections.drain(..line.clients).enumerate();
    let tasks: Vec<_> = clients
        .map(|(client, mut connection)| {
            let nodes = Nodes { client, resources: line.resources };
            tokio::spawn(async move {
                for _ in 0..line.cycles {
                    connection.cycle(&nodes).await?;
                }
                Ok::<A, sqlx::Error>(connection)
            })
        })
        .collect();
    for task in tasks {
        connections.push(task.await??);
    }
    Ok(())
}

/// So many as the line with the most clients needs.
async fn opened<A: Alone>(bench: &Bench) -> Result<Vec<A>> {
    let most = LINES.iter().map(|line| line.clients).max().unwrap_or_default();
    let mut connections = Vec::new();
    for _ in 0..most {
        connections.push(A::open(bench).await?);
    }
    Ok(connections)
}

async fn ours(locks: &Hierlock, line: Workload) -> Result<()> {
    let Workload { clients, resources, cycles, .. } = line;
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (locks, nodes) = (locks.clone(), Nodes { client, resources });
            tokio::spawn(async move {
                for _ in 0..cycles {
                    locks.acquire_all(nodes.targets()).await?.release().await?;
                }
                Ok::<(), hierlock::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn theirs(by_hand: &Arc<Straightforward>, line: Workload) -> Result<()> {
    let Workload { clients, resources, cycles, .. } = line;
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (by_hand, nodes) = (by_hand.clone(), Nodes { client, resources });
            tokio::spawn(async move {
                for _ in 0..cycles {
                    by_hand.cycle(&nodes).await?;
                }
                Ok::<(), sqlx::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

fn lower_quartile(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 4).copied().unwrap_or_default()
}
