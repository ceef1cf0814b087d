//! hierlock on real servers beside the straightforward way, its own statement sent by hand, and the floor,
//! as ratios in one run: with the server next door, and with a network in between.
//!
//! The contenders take turns in short rounds, so that whatever else the machine does falls on all of
//! them alike; a cell is the lower quartile of its rounds, for what disturbs a round only ever adds to it.

use hierlock::Hierlock;
use hierlock_bench::servers::{Bench, Floor, Nodes, Setup, Statement, Straightforward};
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

/// Next door; and as far as the next rack, or the next building, may be.
const DISTANCES: [Distance; 2] = [
    Distance { name: "here", one_way: Duration::ZERO, rounds: 41 },
    Distance { name: "0.5 ms away", one_way: Duration::from_micros(500), rounds: 7 },
];

/// What is done in one cell: so many clients, each takes so many resources, so many times in a round.
#[derive(Clone, Copy)]
struct Line {
    name: &'static str,
    clients: usize,
    resources: usize,
    cycles: usize,
}

const LINES: [Line; 3] = [
    Line { name: "1 client", clients: 1, resources: 1, cycles: 40 },
    Line { name: "8 clients", clients: 8, resources: 1, cycles: 20 },
    Line { name: "100 resources", clients: 1, resources: 100, cycles: 6 },
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
            let is_alone = line.clients == 1;
            let of = |other: f64, is_told: bool| match is_told {
                true => format!("{:.2}", ours / other),
                false => "–".to_owned(),
            };
            println!(
                "| {} {} | {} | {} | {ours:.0} | {statement:.0} | {theirs:.0} | {floor:.0} | {:.2} \
                 | {} | {} |",
                setup.engine,
                setup.strategy,
                distance.name,
                line.name,
                theirs / ours,
                of(statement, is_alone),
                of(floor, is_alone && line.resources == 1),
            );
        }
    }
    Ok(())
}

/// All that take turns. The last two have one connection, whatever the number of clients.
struct Contenders {
    locks: Hierlock,
    by_hand: Arc<Straightforward>,
    statement: Option<Statement>,
    floor: Option<Floor>,
}

impl Contenders {
    async fn new(bench: &Bench) -> Result<Self> {
        Ok(Self {
            locks: bench.hierlock().await?,
            by_hand: Arc::new(Straightforward::new(bench).await?),
            statement: Some(Statement::new(bench).await?),
            floor: Some(Floor::new(bench).await?),
        })
    }

    /// Microseconds a cycle: ours, its statement, the straightforward way, the floor.
    async fn run(&mut self, line: Line, rounds: usize) -> Result<[f64; 4]> {
        let mut samples: [Vec<f64>; 4] = Default::default();
        for round in 0..rounds {
            for turn in 0..4 {
                let place = (round + turn) % 4;
                let begun = Instant::now();
                match place {
                    0 => ours(&self.locks, line).await?,
                    1 => self.statement(line).await?,
                    2 => theirs(&self.by_hand, line).await?,
                    _ => self.floor(line).await?,
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

    /// In a task, as the others are.
    async fn statement(&mut self, line: Line) -> Result<()> {
        let mut statement = self.statement.take().ok_or("its last round has failed")?;
        let nodes = Nodes { client: 0, resources: line.resources };
        let round = tokio::spawn(async move {
            for _ in 0..line.cycles {
                statement.cycle(&nodes).await?;
            }
            Ok::<_, sqlx::Error>(statement)
        });
        self.statement = Some(round.await??);
        Ok(())
    }

    async fn floor(&mut self, line: Line) -> Result<()> {
        let mut floor = self.floor.take().ok_or("its last round has failed")?;
        let round = tokio::spawn(async move {
            for _ in 0..line.cycles {
                floor.cycle().await?;
            }
            Ok::<_, sqlx::Error>(floor)
        });
        self.floor = Some(round.await??);
        Ok(())
    }
}

async fn ours(locks: &Hierlock, line: Line) -> Result<()> {
    let Line { clients, resources, cycles, .. } = line;
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

async fn theirs(by_hand: &Arc<Straightforward>, line: Line) -> Result<()> {
    let Line { clients, resources, cycles, .. } = line;
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
