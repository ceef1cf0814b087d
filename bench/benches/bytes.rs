//! Bytes for each of many paths held at once, and what stays when all are released.

use hierlock_bench::allocator::Counting;
use hierlock_bench::bytes::LOADS;
use hierlock_bench::entrants::ENTRANTS;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    // `cargo test --benches` only wants to know that it works.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let paths = if measuring { 1_000_000 } else { 1_000 };
    println!("{paths} paths held at once");
    for load in LOADS {
        println!("\n{}", load.name);
        for entrant in ENTRANTS {
            if let Some(weight) = entrant.weigh(load.shape, paths) {
                let (name, per_hold, left) = (entrant.name, weight.per_hold, weight.left);
                println!("  {name:<18}{per_hold:>8.0} B a hold{left:>14} B left");
            }
        }
    }
}
