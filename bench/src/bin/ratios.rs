//! Every line for every contender, side by side, as one table of ratios.
//!
//! The contenders take turns in short rounds, so that whatever else the machine does falls on all
//! of them alike; a cell is the median of its rounds.

use hierlock_bench::allocator::Counting;
use hierlock_bench::bytes::LOADS;
use hierlock_bench::entrants::ENTRANTS;
use hierlock_bench::work::{LINES, Workload};
use std::io::{IsTerminal, Write, stderr};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 51;
const PATHS: usize = 1_000_000;

/// For each contender, if it can: nanoseconds or bytes. Less is better.
type Cells = [Option<f64>; ENTRANTS.len()];

fn main() {
    let mut table = vec![header()];
    for line in LINES {
        progress(line.name);
        table.push(row(&format!("{}, ns", line.name), timed(line)));
    }
    for load in LOADS {
        progress(load.name);
        let weights = ENTRANTS.map(|entrant| entrant.weigh(load.shape, PATHS));
        let per_hold = weights.map(|weight| weight.map(|weight| weight.per_hold));
        let left = weights.map(|weight| weight.map(|weight| weight.left as f64));
        table.push(row(&format!("held, {}, B a hold", load.name), per_hold));
        table.push(row(&format!("released, {}, B left in all", load.name), left));
    }
    progress("");
    print(&table);
}

/// Nanoseconds a cycle.
fn timed(line: Workload) -> Cells {
    let Workload { work, cycles, .. } = line;
    let mut rounds = [const { Vec::new() }; ENTRANTS.len()];
    for round in 0..ROUNDS {
        // Nobody is always first, nor always after the same one.
        for turn in 0..ENTRANTS.len() {
            let place = (round + turn) % ENTRANTS.len();
            let time = ENTRANTS[place].time(work, cycles);
            rounds[place].extend(time.map(|time| time.as_nanos() as f64 / cycles as f64));
        }
    }
    rounds.map(median)
}

fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

fn header() -> Vec<String> {
    let [ours, others @ ..] = ENTRANTS.map(|entrant| entrant.name);
    let mut cells = vec!["line".to_owned(), ours.to_owned()];
    cells.extend(others.map(str::to_owned));
    cells.extend(others.map(|other| format!("vs {other}")));
    cells
}

fn row(name: &str, values: Cells) -> Vec<String> {
    let [ours, others @ ..] = values;
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0}"));
    let ratio = |other: Option<f64>| match (ours, other) {
        (Some(ours), Some(other)) if ours > 0.0 => format!("{:.2}", other / ours),
        _ => "–".to_owned(),
    };
    let mut cells = vec![name.to_owned()];
    cells.extend(values.map(shown));
    cells.extend(others.map(ratio));
    cells
}

/// As Markdown that also reads well in a terminal.
fn print(table: &[Vec<String>]) {
    let width = |column: usize| {
        table.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..table[0].len()).map(width).collect();
    for (number, row) in table.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        println!("| {} |", cells.join(" | "));
        if number == 0 {
            let rule = |(column, &width): (usize, &usize)| match column {
                0 => "-".repeat(width + 2),
                _ => format!("{}:", "-".repeat(width + 1)),
            };
            let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
            println!("|{}|", rules.join("|"));
        }
    }
    println!("\nRatios above 1: hierlock is faster, or smaller.");
}

/// What is being measured now, for someone who watches. Nothing depends on it.
fn progress(what: &str) {
    let mut watched = stderr();
    if watched.is_terminal() {
        let _ = write!(watched, "\r\x1b[K{what}");
    }
}
