//! Compares hierlock on real servers with a statement per row, with its own statement alone, and with two bare round
//! trips: on the loopback, and with network latency.
//!
//! The contenders take turns in short rounds, so that other load on the machine affects all of them alike. A cell
//! is the lower quartile of its rounds, because a disturbance only makes a round slower.

use hierlock::Hierlock;
use hierlock_bench::samples::lower_quartile;
use hierlock_bench::servers::{
    BenchServer, DedicatedConnection, LabelledStatement, Nodes, RoundTripFloor, ServerSetup,
    SingleStatement, StatementPerRow,
};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The network latency between client and server.
#[derive(Clone, Copy)]
struct Latency {
    name: &'static str,
    one_way: Duration,
    rounds: usize,
}

/// No latency, that of the next rack, and that of the next building.
const LATENCIES: [Latency; 3] = [
    Latency { name: "local", one_way: Duration::ZERO, rounds: 41 },
    Latency { name: "0.05 ms away", one_way: Duration::from_micros(50), rounds: 15 },
    Latency { name: "0.5 ms away", one_way: Duration::from_micros(500), rounds: 7 },
];

/// The numbers of clients, of resources that each client locks, and of cycles of each client in a round.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    clients: usize,
    resources: usize,
    cycles: usize,
}

const WORKLOADS: [Workload; 3] = [
    Workload { name: "1 client", clients: 1, resources: 1, cycles: 40 },
    Workload { name: "8 clients", clients: 8, resources: 1, cycles: 20 },
    Workload { name: "100 resources", clients: 1, resources: 100, cycles: 6 },
];

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    println!(
        "| server | distance | line | hierlock, µs | its statement, µs | labelled, µs | straightforward, µs \
         | floor, µs | faster than straightforward | of its statement | labelled of its statement \
         | of the floor |"
    );
    println!("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for setup in ServerSetup::ALL {
        runtime.block_on(measure(setup))?;
    }
    Ok(())
}

/// Measures all workloads on one server.
async fn measure(setup: ServerSetup) -> Result<()> {
    let mut server = BenchServer::start(setup).await?;
    for latency in LATENCIES {
        if !latency.one_way.is_zero() {
            server.add_latency(latency.one_way)?;
        }
        let mut contenders = Contenders::new(&server).await?;
        for workload in WORKLOADS {
            let [hierlock, statement, labelled, per_row, floor] =
                contenders.run(workload, latency.rounds).await?;
            println!(
                "| {} {} | {} | {} | {hierlock:.0} | {statement:.0} | {labelled:.0} | {per_row:.0} | {floor:.0} \
                 | {:.2} | {:.2} | {:.2} | {:.2} |",
                setup.engine,
                setup.strategy,
                latency.name,
                workload.name,
                per_row / hierlock,
                hierlock / statement,
                labelled / statement,
                hierlock / floor,
            );
        }
    }
    Ok(())
}

/// The contenders, which take turns. The last three have a connection for each client.
struct Contenders {
    locks: Hierlock,
    statement_per_row: Arc<StatementPerRow>,
    statement: Vec<SingleStatement>,
    labelled: Vec<LabelledStatement>,
    floor: Vec<RoundTripFloor>,
}

impl Contenders {
    async fn new(server: &BenchServer) -> Result<Self> {
        Ok(Self {
            locks: server.hierlock().await?,
            statement_per_row: Arc::new(StatementPerRow::new(server).await?),
            statement: open_connections(server).await?,
            labelled: open_connections(server).await?,
            floor: open_connections(server).await?,
        })
    }

    /// Returns microseconds per cycle: hierlock, its statement, the same with a label, a statement per row, two
    /// round trips.
    async fn run(&mut self, workload: Workload, rounds: usize) -> Result<[f64; 5]> {
        let mut samples: [Vec<f64>; 5] = Default::default();
        for round in 0..rounds {
            for turn in 0..samples.len() {
                let contender = (round + turn) % samples.len();
                let started = Instant::now();
                match contender {
                    0 => run_hierlock(&self.locks, workload).await?,
                    1 => run_dedicated(&mut self.statement, workload).await?,
                    2 => run_dedicated(&mut self.labelled, workload).await?,
                    3 => run_statement_per_row(&self.statement_per_row, workload).await?,
                    _ => run_dedicated(&mut self.floor, workload).await?,
                }
                let each = started.elapsed().as_secs_f64() * 1e6 / workload.cycles as f64;
                // The first round is a warm-up.
                if round > 0 {
                    samples[contender].push(each);
                }
            }
        }
        Ok(samples.map(|samples| lower_quartile(samples).unwrap_or_default()))
    }
}

/// Runs each client in a task, as for the other contenders.
async fn run_dedicated<C: DedicatedConnection>(
    connections: &mut Vec<C>,
    workload: Workload,
) -> Result<()> {
    let clients = connections.drain(..workload.clients).enumerate();
    let tasks: Vec<_> = clients
        .map(|(client, mut connection)| {
            let nodes = Nodes { client, resources: workload.resources };
            tokio::spawn(async move {
                for _ in 0..workload.cycles {
                    connection.cycle(&nodes).await?;
                }
                Ok::<C, sqlx::Error>(connection)
            })
        })
        .collect();
    for task in tasks {
        connections.push(task.await??);
    }
    Ok(())
}

/// Opens as many connections as the workload with the most clients needs.
async fn open_connections<C: DedicatedConnection>(server: &BenchServer) -> Result<Vec<C>> {
    let max_clients = WORKLOADS.iter().map(|workload| workload.clients).max().unwrap_or_default();
    let mut connections = Vec::new();
    for _ in 0..max_clients {
        connections.push(C::open(server).await?);
    }
    Ok(connections)
}

async fn run_hierlock(locks: &Hierlock, workload: Workload) -> Result<()> {
    let Workload { clients, resources, cycles, .. } = workload;
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

async fn run_statement_per_row(
    statement_per_row: &Arc<StatementPerRow>,
    workload: Workload,
) -> Result<()> {
    let Workload { clients, resources, cycles, .. } = workload;
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (statement_per_row, nodes) =
                (statement_per_row.clone(), Nodes { client, resources });
            tokio::spawn(async move {
                for _ in 0..cycles {
                    statement_per_row.cycle(&nodes).await?;
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
