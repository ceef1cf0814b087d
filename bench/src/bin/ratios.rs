//! Runs every workload with every contender and prints one table with times, bytes and ratios.
//!
//! The contenders take turns in short rounds, so that other load on the machine affects all of them alike. A
//! cell is the median of its rounds.

use hierlock_bench::allocator::CountingAllocator;
use hierlock_bench::any_contender::CONTENDERS;
use hierlock_bench::bytes::MEMORY_WORKLOADS;
use hierlock_bench::samples::{median, show_progress};
use hierlock_bench::work::{WORKLOADS, Workload};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const ROUNDS: usize = 51;
const PATHS: usize = 1_000_000;

/// Nanoseconds or bytes of each contender, or `None` if it does not support the workload. Less is better.
type Cells = [Option<f64>; CONTENDERS.len()];

fn main() {
    let mut table = vec![header()];
    for workload in WORKLOADS {
        show_progress(workload.name);
        table.push(row(&format!("{}, ns", workload.name), time_workload(workload)));
    }
    for workload in MEMORY_WORKLOADS {
        show_progress(workload.name);
        let memory = CONTENDERS.map(|contender| contender.measure_bytes(workload.layout, PATHS));
        let per_hold = memory.map(|memory| memory.map(|memory| memory.per_hold));
        let left = memory.map(|memory| memory.map(|memory| memory.left as f64));
        table.push(row(&format!("held, {}, B a hold", workload.name), per_hold));
        table.push(row(&format!("released, {}, B left in all", workload.name), left));
    }
    show_progress("");
    print_table(&table);
}

/// Returns nanoseconds per cycle.
fn time_workload(workload: Workload) -> Cells {
    let Workload { pattern, cycles, .. } = workload;
    let mut rounds = [const { Vec::new() }; CONTENDERS.len()];
    for round in 0..ROUNDS {
        // The order changes in each round, so that no contender is always first.
        for turn in 0..CONTENDERS.len() {
            let index = (round + turn) % CONTENDERS.len();
            let time = CONTENDERS[index].time(pattern, cycles);
            rounds[index].extend(time.map(|time| time.as_nanos() as f64 / cycles as f64));
        }
    }
    rounds.map(median)
}

fn header() -> Vec<String> {
    let [ours, others @ ..] = CONTENDERS.map(|contender| contender.name);
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

/// Prints Markdown that is aligned for a terminal.
fn print_table(table: &[Vec<String>]) {
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
