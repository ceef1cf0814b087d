//! What is timed: the lines of the comparison, each the same code for every contender.
//!
//! A *cycle* is one acquire and one release. Whatever a cycle needs besides (runtimes, threads, the
//! text of IDs) is made before the clock starts; keys and targets are made inside.

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
    /// In tables.
    pub name: &'static str,
    /// What is done.
    pub work: Work,
    /// How often, for a sample of a few milliseconds.
    pub cycles: u64,
}

/// What is done over and over.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// One resource, one thread, nobody else.
    OneThread,
    /// One resource for each of two threads, which have nothing in common but the lock manager.
    TwoUsers,
    /// One resource for each of two threads, of one account: only for those who share ancestors.
    OneAccount,
    /// The same resource for many tasks on two workers, each of which yields while it holds it.
    OneResource {
        /// How many tasks.
        tasks: u32,
    },
    /// A hundred resources of one account at once, one thread.
    Hundred,
}

/// Every line that is timed.
pub const LINES: [Workload; 6] = [
    Workload { name: "path, 1 thread", work: Work::OneThread, cycles: 6_000 },
    Workload { name: "path, 2 threads, a user each", work: Work::TwoUsers, cycles: 6_000 },
    Workload { name: "path, 2 threads, one account", work: Work::OneAccount, cycles: 6_000 },
    Workload { name: "one resource, 2 tasks", work: Work::OneResource { tasks: 2 }, cycles: 3_000 },
    Workload {
        name: "one resource, 64 tasks",
        work: Work::OneResource { tasks: 64 },
        cycles: 3_000,
    },
    Workload { name: "100 resources at once", work: Work::Hundred, cycles: 100 },
];

impl Work {
    /// Whether a contender can do it at all.
    pub fn suits<C: Contender>(self) -> bool {
        C::SHARES_ANCESTORS || !matches!(self, Work::OneAccount)
    }

    /// Does about so many cycles, with nothing else locked; how long that many take.
    pub fn time<C: Contender>(self, cycles: u64) -> Duration {
        let contender = Arc::new(here().block_on(C::new()));
        let time = match self {
            Work::OneThread => one_thread(&*contender, cycles),
            Work::TwoUsers => {
                two_threads(&*contender, [Account::new(1, 0), Account::new(2, 0)], cycles)
            }
            Work::OneAccount => {
                let apart = [Account::new(1, 0), Account::new(1, Account::RESOURCES)];
                two_threads(&*contender, apart, cycles)
            }
            Work::OneResource { tasks } => one_resource(contender.clone(), tasks, cycles),
            Work::Hundred => hundred(&*contender, cycles),
        };
        assert!(contender.is_idle(), "{} remembers what it released", C::NAME);
        time
    }
}

/// A runtime of this thread alone.
pub(crate) fn here() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime without drivers needs nothing")
}

/// An account, and some of its resources to go round in.
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

/// From when to when a thread was busy.
struct Busy {
    from: Instant,
    to: Instant,
}

async fn go_round<C: Contender>(contender: &C, account: &Account, cycles: u64) -> Busy {
    let from = Instant::now();
    for cycle in 0..cycles {
        black_box(contender.acquire(account.path(cycle)).await);
    }
    Busy { from, to: Instant::now() }
}

fn one_thread<C: Contender>(contender: &C, cycles: u64) -> Duration {
    let account = Account::new(1, 0);
    let busy = here().block_on(go_round(contender, &account, cycles));
    busy.to - busy.from
}

/// Each of the threads does half of the cycles. Threads, not tasks: two tasks that never wait may
/// well be run by one worker, one after the other.
fn two_threads<C: Contender>(contender: &C, accounts: [Account; 2], cycles: u64) -> Duration {
    let each = cycles.div_ceil(2);
    let start = Barrier::new(2);
    let [a, b] = thread::scope(|scope| {
        accounts
            .each_ref()
            .map(|account| {
                scope.spawn(|| {
                    let runtime = here();
                    start.wait();
                    runtime.block_on(go_round(contender, account, each))
                })
            })
            .map(|thread| thread.join().expect("a thread that only locks"))
    });
    share(a.to.max(b.to) - a.from.min(b.from), cycles, each * 2)
}

fn one_resource<C: Contender>(contender: Arc<C>, tasks: u32, cycles: u64) -> Duration {
    let each = cycles.div_ceil(tasks.into());
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("two threads");
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
            task.expect("a task that only locks");
        }
    });
    share(from.elapsed(), cycles, each * u64::from(tasks))
}

fn hundred<C: Contender>(contender: &C, cycles: u64) -> Duration {
    let Account { user, account, resources } = Account::new(1, 0);
    // In no order, each once: 37 and the length have no divisor in common.
    let asked: Vec<String> =
        (0..100).map(|i| resources[i * 37 % Account::RESOURCES].clone()).collect();
    here().block_on(async {
        let from = Instant::now();
        for _ in 0..cycles {
            black_box(contender.acquire_resources(&user, &account, &asked).await);
        }
        from.elapsed()
    })
}

/// What `asked` cycles take if `done` of them, a few more, took this long.
fn share(time: Duration, asked: u64, done: u64) -> Duration {
    time.mul_f64(asked as f64 / done.max(1) as f64)
}
