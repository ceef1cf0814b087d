//! The workloads that are timed. Every contender runs the same code.
//!
//! A *cycle* is one acquire and one release. Runtimes, threads and the text of IDs are created before the
//! clock starts; keys and targets are created inside the cycle.

use crate::contenders::{Contender, Path};
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};

/// One line of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name in tables.
    pub name: &'static str,
    /// The resources that are locked, and the threads or tasks that lock them.
    pub pattern: AccessPattern,
    /// The number of cycles in a sample, which takes a few milliseconds.
    pub cycles: u64,
}

/// The resources that a workload locks, and the threads or tasks that lock them.
#[derive(Clone, Copy, Debug)]
pub enum AccessPattern {
    /// One thread locks one resource after the other.
    OneThread,
    /// Two threads, each with a user of its own. They share only the lock manager.
    TwoUsers,
    /// Two threads with different resources of one account. Needs shared locks on ancestors.
    OneAccount,
    /// Many tasks on two worker threads lock the same resource, and each yields while it holds the lock.
    OneResource {
        /// The number of tasks.
        tasks: u32,
    },
    /// One thread locks a hundred resources of one account at once.
    HundredResources,
}

/// All workloads that are timed.
pub const WORKLOADS: [Workload; 6] = [
    Workload { name: "path, 1 thread", pattern: AccessPattern::OneThread, cycles: 6_000 },
    Workload {
        name: "path, 2 threads, a user each",
        pattern: AccessPattern::TwoUsers,
        cycles: 6_000,
    },
    Workload {
        name: "path, 2 threads, one account",
        pattern: AccessPattern::OneAccount,
        cycles: 6_000,
    },
    Workload {
        name: "one resource, 2 tasks",
        pattern: AccessPattern::OneResource { tasks: 2 },
        cycles: 3_000,
    },
    Workload {
        name: "one resource, 64 tasks",
        pattern: AccessPattern::OneResource { tasks: 64 },
        cycles: 3_000,
    },
    Workload {
        name: "100 resources at once",
        pattern: AccessPattern::HundredResources,
        cycles: 100,
    },
];

impl AccessPattern {
    /// Returns whether a contender supports the pattern.
    pub fn is_possible_for<C: Contender>(self) -> bool {
        C::SHARES_ANCESTORS || !matches!(self, AccessPattern::OneAccount)
    }

    /// Runs about `cycles` cycles with nothing else locked, and returns how long `cycles` of them take.
    pub fn time<C: Contender>(self, cycles: u64) -> Duration {
        let contender = Arc::new(current_thread_runtime().block_on(C::new()));
        let time = match self {
            AccessPattern::OneThread => time_one_thread(&*contender, cycles),
            AccessPattern::TwoUsers => {
                time_two_threads(&*contender, [Account::new(1, 0), Account::new(2, 0)], cycles)
            }
            AccessPattern::OneAccount => {
                let accounts = [Account::new(1, 0), Account::new(1, Account::RESOURCES)];
                time_two_threads(&*contender, accounts, cycles)
            }
            AccessPattern::OneResource { tasks } => {
                time_one_resource(contender.clone(), tasks, cycles)
            }
            AccessPattern::HundredResources => time_hundred_resources(&*contender, cycles),
        };
        assert!(contender.is_idle(), "{} still knows nodes after their release", C::NAME);
        time
    }
}

/// Creates a runtime that runs on the current thread only.
pub(crate) fn current_thread_runtime() -> Runtime {
    Builder::new_current_thread()
        .build()
        .expect("a runtime without I/O drivers can always be built")
}

/// An account, with the resources that are locked in turn.
struct Account {
    user: String,
    account: String,
    resources: Vec<String>,
}

impl Account {
    const RESOURCES: usize = 256;

    fn new(user: usize, first: usize) -> Self {
        Self {
            user: format!("user-{user}"),
            account: "account-1".to_owned(),
            resources: (first..first + Self::RESOURCES).map(|r| format!("resource-{r}")).collect(),
        }
    }

    fn path(&self, cycle: u64) -> Path<'_> {
        let resource = &self.resources[cycle as usize % Self::RESOURCES];
        Path { user: &self.user, account: &self.account, resource }
    }
}

/// The start and the end of the cycles of a thread.
struct BusyTime {
    from: Instant,
    to: Instant,
}

async fn run_cycles<C: Contender>(contender: &C, account: &Account, cycles: u64) -> BusyTime {
    let from = Instant::now();
    for cycle in 0..cycles {
        black_box(contender.acquire(account.path(cycle)).await);
    }
    BusyTime { from, to: Instant::now() }
}

fn time_one_thread<C: Contender>(contender: &C, cycles: u64) -> Duration {
    let account = Account::new(1, 0);
    let busy = current_thread_runtime().block_on(run_cycles(contender, &account, cycles));
    busy.to - busy.from
}

/// Runs half of the cycles on each of two threads. Two tasks that never wait might run one after the other on one worker
/// thread.
fn time_two_threads<C: Contender>(contender: &C, accounts: [Account; 2], cycles: u64) -> Duration {
    let each = cycles.div_ceil(2);
    let start = Barrier::new(2);
    let [a, b] = thread::scope(|scope| {
        accounts
            .each_ref()
            .map(|account| {
                scope.spawn(|| {
                    let runtime = current_thread_runtime();
                    start.wait();
                    runtime.block_on(run_cycles(contender, account, each))
                })
            })
            .map(|thread| thread.join().expect("the thread does not panic"))
    });
    scale_to(a.to.max(b.to) - a.from.min(b.from), cycles, each * 2)
}

fn time_one_resource<C: Contender>(contender: Arc<C>, tasks: u32, cycles: u64) -> Duration {
    let each = cycles.div_ceil(tasks.into());
    let runtime =
        Builder::new_multi_thread().worker_threads(2).build().expect("a runtime with two threads");
    let account = Arc::new(Account::new(1, 0));
    let from = Instant::now();
    runtime.block_on(async {
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let (contender, account) = (contender.clone(), account.clone());
            running.spawn(async move {
                for _ in 0..each {
                    let held = contender.acquire(account.path(0)).await;
                    yield_now().await;
                    drop(held);
                }
            });
        }
        while let Some(task) = running.join_next().await {
            task.expect("the task does not panic");
        }
    });
    scale_to(from.elapsed(), cycles, each * u64::from(tasks))
}

fn time_hundred_resources<C: Contender>(contender: &C, cycles: u64) -> Duration {
    let Account { user, account, resources } = Account::new(1, 0);
    // Unordered, and each once: 37 and the number of resources have no common divisor.
    let requested: Vec<String> =
        (0..100).map(|i| resources[i * 37 % Account::RESOURCES].clone()).collect();
    current_thread_runtime().block_on(async {
        let from = Instant::now();
        for _ in 0..cycles {
            black_box(contender.acquire_resources(&user, &account, &requested).await);
        }
        from.elapsed()
    })
}

/// Scales the time of `done` cycles, which may be a few more than `cycles`, to `cycles`.
fn scale_to(time: Duration, cycles: u64, done: u64) -> Duration {
    time.mul_f64(cycles as f64 / done.max(1) as f64)
}
