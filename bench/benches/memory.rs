//! Runs every timed workload under Criterion: a group for each workload, a function for each contender.

use criterion::{Criterion, criterion_group, criterion_main};
use hierlock_bench::any_contender::CONTENDERS;
use hierlock_bench::work::WORKLOADS;

fn workloads(criterion: &mut Criterion) {
    for workload in WORKLOADS {
        let mut group = criterion.benchmark_group(workload.name);
        for contender in CONTENDERS {
            // One cycle shows whether the contender supports the workload.
            if contender.time(workload.pattern, 1).is_none() {
                continue;
            }
            group.bench_function(contender.name, |bencher| {
                bencher.iter_custom(|cycles| {
                    contender.time(workload.pattern, cycles).unwrap_or_default()
                });
            });
        }
        group.finish();
    }
}

criterion_group!(memory, workloads);
criterion_main!(memory);
