//! Measures the bytes for each of many paths held at once, and the bytes left after all are released.

use hierlock_bench::allocator::CountingAllocator;
use hierlock_bench::any_contender::CONTENDERS;
use hierlock_bench::bytes::MEMORY_WORKLOADS;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() {
    // `cargo test --benches` only checks that this runs.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let paths = if is_bench { 1_000_000 } else { 1_000 };
    println!("{paths} paths held at once");
    for workload in MEMORY_WORKLOADS {
        println!("\n{}", workload.name);
        for contender in CONTENDERS {
            if let Some(memory_use) = contender.measure_bytes(workload.layout, paths) {
                let (name, per_hold, left) = (contender.name, memory_use.per_hold, memory_use.left);
                println!("  {name:<18}{per_hold:>8.0} B a hold{left:>14} B left");
            }
        }
    }
}
