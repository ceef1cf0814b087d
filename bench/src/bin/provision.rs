//! Measures how fast a lock table is filled by hierlock and by other methods, on throw-away servers.
//!
//! The methods take turns, so that other load on the machine affects all of them alike. A cell is the median
//! of its rounds.

use hierlock_bench::filling::{FillMethod, FillServer, Result};
use hierlock_bench::samples::{median, show_progress};
use hierlock_sandbox::Engine;

const ROWS: u32 = 3_000_000;
const ROUNDS: usize = 3;
const ENGINES: [Engine; 3] = [Engine::Mysql, Engine::Mariadb, Engine::Postgres];
const USAGE: &str = "usage: provision [--rows N] [--rounds N] [mysql] [mariadb] [postgres]";

struct Args {
    rows: u32,
    rounds: usize,
    engines: Vec<Engine>,
}

fn main() -> Result<()> {
    let args = parse_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut table = Vec::new();
    for engine in &args.engines {
        // Only one server runs at a time, because servers would slow each other down.
        let server = match FillServer::new(*engine, args.rows) {
            Ok(server) => server,
            Err(error) => {
                eprintln!("{engine}: left out, because {error}");
                continue;
            }
        };
        table.push((*engine, runtime.block_on(measure_rates(*engine, &server, &args))?));
        // Prints the results so far, in case the run is interrupted.
        show_progress("");
        print_table(&table, args.rows);
    }
    Ok(())
}

fn parse_args() -> Result<Args> {
    let mut args = Args { rows: ROWS, rounds: ROUNDS, engines: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rows" => args.rows = arguments.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?,
            "--rounds" => {
                args.rounds = arguments.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?
            }
            name => args.engines.push(name.parse().map_err(|_| USAGE)?),
        }
    }
    if args.engines.is_empty() {
        args.engines = ENGINES.to_vec();
    }
    Ok(args)
}

/// Returns the rows per second of each method, or `None` if the method is not possible on this machine.
async fn measure_rates(
    engine: Engine,
    server: &FillServer,
    args: &Args,
) -> Result<Vec<Option<f64>>> {
    let methods = FillMethod::ALL.len();
    let mut rounds = vec![Vec::new(); methods];
    // The first fill is not counted, because a new server extends its files in it.
    show_progress(&format!("{engine}, warming up"));
    server.fill(FillMethod::ALL[0]).await?;
    for round in 0..args.rounds {
        // The order changes in each round: no method is always first, or always after the same one. There are eight
        // methods, so every odd stride visits them all.
        let stride = 2 * round + 1;
        for turn in 0..methods {
            let index = (round + turn * stride) % methods;
            let method = FillMethod::ALL[index];
            show_progress(&format!("{engine}, round {round}: {}", method.name()));
            let time = server.fill(method).await?;
            rounds[index].extend(time.map(|time| f64::from(args.rows) / time.as_secs_f64()));
        }
    }
    Ok(rounds.into_iter().map(median).collect())
}

fn print_table(table: &[(Engine, Vec<Option<f64>>)], rows: u32) {
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
    for (number, method) in FillMethod::ALL.iter().enumerate() {
        print!("| {:<12} |", method.name());
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
