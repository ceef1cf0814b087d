//! How fast a lock table is filled: hierlock beside other ways, on servers of its own, as one table.
//!
//! The ways take turns, so that whatever else the machine does falls on all of them alike; a cell is the
//! median of its rounds.

use hierlock_bench::filling::{Place, Result, Way};
use hierlock_sandbox::Engine;
use std::io::{IsTerminal, Write, stderr};

const ROWS: u32 = 3_000_000;
const ROUNDS: usize = 3;
const ENGINES: [Engine; 3] = [Engine::Mysql, Engine::Mariadb, Engine::Postgres];
const USAGE: &str = "usage: provision [--rows N] [--rounds N] [mysql] [mariadb] [postgres]";

struct Asked {
    rows: u32,
    rounds: usize,
    engines: Vec<Engine>,
}

fn main() -> Result<()> {
    let asked = asked()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut table = Vec::new();
    for engine in &asked.engines {
        // One server at a time, so that none disturbs another.
        let place = match Place::new(*engine, asked.rows) {
            Ok(place) => place,
            Err(error) => {
                eprintln!("{engine}: left out, because {error}");
                continue;
            }
        };
        table.push((*engine, runtime.block_on(rates(*engine, &place, &asked))?));
        // What is known so far, for whoever does not wait for the rest.
        progress("");
        print(&table, asked.rows);
    }
    Ok(())
}

fn asked() -> Result<Asked> {
    let mut asked = Asked { rows: ROWS, rounds: ROUNDS, engines: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rows" => asked.rows = arguments.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?,
            "--rounds" => {
                asked.rounds = arguments.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?
            }
            name => asked.engines.push(name.parse().map_err(|_| USAGE)?),
        }
    }
    if asked.engines.is_empty() {
        asked.engines = ENGINES.to_vec();
    }
    Ok(asked)
}

/// Rows a second of each way, if it can be done.
async fn rates(engine: Engine, place: &Place, asked: &Asked) -> Result<Vec<Option<f64>>> {
    let ways = Way::ALL.len();
    let mut rounds = vec![Vec::new(); ways];
    // A new server makes its files larger the first time, at the cost of whoever comes first: not counted.
    progress(&format!("{engine}, warming up"));
    place.fill(Way::ALL[0]).await?;
    for round in 0..asked.rounds {
        // Nobody is always first, nor always after the same one. There are eight ways, so every odd stride
        // meets them all.
        let stride = 2 * round + 1;
        for turn in 0..ways {
            let place_of_way = (round + turn * stride) % ways;
            let way = Way::ALL[place_of_way];
            progress(&format!("{engine}, round {round}: {}", way.name()));
            let time = place.fill(way).await?;
            rounds[place_of_way]
                .extend(time.map(|time| f64::from(asked.rows) / time.as_secs_f64()));
        }
    }
    Ok(rounds.into_iter().map(median).collect())
}

fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

fn print(table: &[(Engine, Vec<Option<f64>>)], rows: u32) {
    println!("{rows} rows; thousands of rows a second, and how many times as fast hierlock is\n");
    print!("| {:<12} |", "way");
    for (engine, _) in table {
        print!(" {:>10} | {:>6} |", engine.to_string(), "ratio");
    }
    print!("\n|{}|", "-".repeat(14));
    for _ in table {
        print!("{}:|{}:|", "-".repeat(11), "-".repeat(7));
    }
    println!();
    for (number, way) in Way::ALL.iter().enumerate() {
        print!("| {:<12} |", way.name());
        for (_, rates) in table {
            let rate =
                rates[number].map_or("–".to_owned(), |rate| format!("{:.0}", rate / 1000.0));
            let ratio = match (rates[0], rates[number]) {
                (Some(ours), Some(other)) => format!("{:.2}", ours / other),
                _ => "–".to_owned(),
            };
            print!(" {rate:>10} | {ratio:>6} |");
        }
        println!();
    }
    println!();
}

/// What is being measured now, for someone who watches. Nothing depends on it.
fn progress(what: &str) {
    let mut watched = stderr();
    if watched.is_terminal() {
        let _ = write!(watched, "\r\x1b[K{what}");
    }
}
