//! hierlock on real servers beside the straightforward way and the floor, as ratios in one run.
//!
//! The contenders take turns in short rounds, so that whatever else the machine does falls on all of
//! them alike; a cell is the median of its rounds.

use hierlock::Hierlock;
use hierlock_bench::servers::{Bench, Floor, Nodes, Setup, Straightforward};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 31;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    println!(
        "| server | line | hierlock, µs | straightforward, µs | floor, µs | faster than straightforward | of the floor |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|");
    for setup in Setup::ALL {
        runtime.block_on(measure(setup))?;
    }
    Ok(())
}

/// The lines of one server.
async fn measure(setup: Setup) -> Result<()> {
    let bench = Bench::start(setup).await?;
    let locks = bench.hierlock().await?;
    let by_hand = Arc::new(Straightforward::new(&bench).await?);
    let mut floor = Floor::new(&bench).await?;
    for (name, clients, resources, cycles) in
        [("1 client", 1, 1, 60), ("8 clients", 8, 1, 25), ("100 resources", 1, 100, 4)]
    {
        let mut rounds: [Vec<f64>; 3] = Default::default();
        for round in 0..ROUNDS {
            for turn in 0..3 {
                let place = (round + turn) % 3;
                let begun = Instant::now();
                match place {
                    0 => ours(&locks, clients, resources, cycles).await?,
                    1 => theirs(&by_hand, clients, resources, cycles).await?,
                    // In a task, as the others are.
                    _ => {
                        floor = tokio::spawn(async move {
                            for _ in 0..cycles {
                                floor.cycle().await?;
                            }
                            Ok::<Floor, sqlx::Error>(floor)
                        })
                        .await??;
                    }
                }
                let each = begun.elapsed().as_secs_f64() * 1e6 / cycles as f64;
                // The first warms up.
                if round > 0 {
                    rounds[place].push(each);
                }
            }
        }
        let [ours, theirs, floor] = rounds.map(median);
        let floor_ratio = if clients == 1 && resources == 1 {
            format!("{:.2}", ours / floor)
        } else {
            "–".into()
        };
        println!(
            "| {} {} | {name} | {ours:.0} | {theirs:.0} | {floor:.0} | {:.2} | {floor_ratio} |",
            setup.engine,
            setup.strategy,
            theirs / ours
        );
    }
    Ok(())
}

async fn ours(locks: &Hierlock, clients: usize, resources: usize, cycles: usize) -> Result<()> {
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

async fn theirs(
    by_hand: &Arc<Straightforward>,
    clients: usize,
    resources: usize,
    cycles: usize,
) -> Result<()> {
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

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}
