//! Every timed line under Criterion: a group a line, a function a contender.

use criterion::{Criterion, criterion_group, criterion_main};
use hierlock_bench::entrants::ENTRANTS;
use hierlock_bench::work::LINES;

fn lines(criterion: &mut Criterion) {
    for line in LINES {
        let mut group = criterion.benchmark_group(line.name);
        for entrant in ENTRANTS {
            // One cycle is enough to learn whether it can.
            if entrant.time(line.work, 1).is_none() {
                continue;
            }
            group.bench_function(entrant.name, |bencher| {
                bencher.iter_custom(|cycles| entrant.time(line.work, cycles).unwrap_or_default());
            });
        }
        group.finish();
    }
}

criterion_group!(memory, lines);
criterion_main!(memory);
