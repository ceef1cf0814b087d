//! Many workers in many processes lock several random nodes at once, out of few nodes and fewer buckets. No worker may
//! deadlock, fail or starve, and no two conflicting holds may overlap. Workers record the interval of each hold, with a clock
//! that all processes of a host share, and the test checks the history afterwards.
//!
//! The control experiment does the same work with plain SQL, node by node in the order of IDs. It deadlocks.
//!
//! `HIERLOCK_SOAK_SECONDS` sets the duration.

use crate::child_process::ChildProcess;
use crate::support::{Database, OutsideSession, Setup, TEST_LIMIT, on_each_engine, target};
use fastrand::Rng;
use hierlock::sql::Strategy;
use hierlock::{Hierlock, Mode, Target};
use hierlock_sandbox::{Engine, on_each_server};
use nix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PROCESSES: usize = 8;
const WORKERS: usize = 8;
/// So few buckets that different nodes share rows.
const FEW_BUCKETS: u32 = 5;

on_each_engine!(workers_never_deadlock_fail_starve_or_overlap);

on_each_server!(locking_in_the_order_of_ids_deadlocks);

fn soak_duration() -> Duration {
    let seconds = std::env::var("HIERLOCK_SOAK_SECONDS").ok().map(|text| text.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// Returns the nanoseconds since the host started. All processes see the same clock, and it never goes back.
fn clock_nanos() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// The random choices of one worker.
struct Random(Rng);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit)
    }

    /// Returns one to three nodes of two users, mostly resources.
    fn targets(&mut self) -> Vec<Target> {
        let mut node = || {
            let (u, a, r) = (self.below(2), self.below(2), self.below(4));
            match self.below(8) {
                0 => target(&format!("u{u}")),
                1 | 2 => target(&format!("u{u}/a{a}")),
                _ => target(&format!("u{u}/a{a}/r{r}")),
            }
        };
        let mut targets = vec![node(), node(), node()];
        targets.truncate(1 + self.below(3) as usize);
        targets
    }
}

/// Runs the workers of one process, each with a file for its history.
pub(crate) async fn run_workers(locks: &Hierlock, directory: &Path) {
    let begun = Instant::now();
    let workers = (0..WORKERS).map(|worker| {
        let (locks, process) = (locks.clone(), std::process::id());
        let file = directory.join(format!("{process}-{worker}"));
        tokio::spawn(async move {
            let mut random = Random::new(u64::from(process) << 8 | worker as u64);
            let mut history = String::new();
            while begun.elapsed() < soak_duration() {
                let targets = random.targets();
                let guard = locks.acquire_all(targets.clone()).await.unwrap();
                let since = clock_nanos();
                // A retry would hide a deadlock.
                assert_eq!(guard.statistics().deadlocks, 0, "{targets:?}");
                // Long enough for a conflicting hold to overlap, if locks did not exclude.
                match random.below(3) {
                    0 => tokio::time::sleep(Duration::from_millis(1)).await,
                    _ => tokio::task::yield_now().await,
                }
                let until = clock_nanos();
                guard.release().await.unwrap();
                let paths: Vec<String> = targets.iter().map(Target::to_string).collect();
                writeln!(history, "{since} {until} {}", paths.join(",")).unwrap();
            }
            std::fs::write(file, history).unwrap();
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
}

/// The time during which a worker held its nodes.
#[derive(Debug)]
struct HoldInterval {
    since: u64,
    until: u64,
    worker: String,
    targets: Vec<Target>,
}

impl HoldInterval {
    fn conflicts(&self, other: &HoldInterval) -> bool {
        let related = |a: &Target, b: &Target| a.contains(b) || b.contains(a);
        self.targets.iter().any(|a| other.targets.iter().any(|b| related(a, b)))
    }
}

fn read_history(directory: &Path) -> Vec<HoldInterval> {
    let mut history = Vec::new();
    for file in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let worker = file.file_name().into_string().unwrap();
        for line in std::fs::read_to_string(file.path()).unwrap().lines() {
            let [since, until, paths] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            history.push(HoldInterval {
                since: since.parse().unwrap(),
                until: until.parse().unwrap(),
                worker: worker.clone(),
                targets: paths.split(',').map(target).collect(),
            });
        }
    }
    history.sort_by_key(|hold| hold.since);
    history
}

/// Returns all pairs of conflicting holds that overlap in time. The history is sorted by `since`.
fn overlaps(history: &[HoldInterval]) -> Vec<(&HoldInterval, &HoldInterval)> {
    let mut found = Vec::new();
    let mut current: Vec<&HoldInterval> = Vec::new();
    for hold in history {
        current.retain(|earlier| earlier.until > hold.since);
        found.extend(current.iter().filter(|e| e.conflicts(hold)).map(|e| (*e, hold)));
        current.push(hold);
    }
    found
}

async fn workers_never_deadlock_fail_starve_or_overlap(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut url = format!("{}&connections={WORKERS}", database.url);
    if setup.strategy == Strategy::Striped {
        database.stripe("few", FEW_BUCKETS).await;
        url += "&table=few";
    }
    let processes: Vec<ChildProcess> =
        (0..PROCESSES).map(|_| ChildProcess::spawn("soak", &url, directory.path())).collect();
    tokio::task::spawn_blocking(|| processes.into_iter().for_each(ChildProcess::finish))
        .await
        .unwrap();
    let history = read_history(directory.path());
    let mut progress: BTreeMap<&str, usize> = BTreeMap::new();
    for hold in &history {
        *progress.entry(&hold.worker).or_default() += 1;
    }
    let least = progress.values().min().unwrap();
    println!("{setup:?}: {} holds, at least {least} by each worker", history.len());
    assert_eq!(progress.len(), PROCESSES * WORKERS, "a worker had no hold: {progress:?}");
    let overlaps = overlaps(&history);
    assert!(overlaps.is_empty(), "{} overlaps: {:?}", overlaps.len(), overlaps[0]);
    database.outside().await.until_busy(0).await;
}

#[test]
fn overlaps_in_a_history_are_found() {
    let hold = |since, until, paths: &[&str]| HoldInterval {
        since,
        until,
        worker: String::new(),
        targets: paths.iter().map(|path| target(path)).collect(),
    };
    let history = |last| {
        vec![
            hold(1, 9, &["u1/a1", "u2"]),
            hold(2, 4, &["u1/a2", "u3"]),
            hold(4, 6, &["u3/a1/r1"]),
            hold(5, 7, &[last]),
        ]
    };
    assert!(overlaps(&history("u1/a3")).is_empty());
    assert_eq!(overlaps(&history("u2/a1")).len(), 1);
    assert_eq!(overlaps(&history("u1")).len(), 1);
    assert_eq!(overlaps(&history("u3/a1")).len(), 1);
}

/// Workers lock the rows of their nodes one after the other, in the order of IDs, until one of them is the victim
/// of a deadlock.
async fn locking_in_the_order_of_ids_deadlocks(engine: Engine) {
    let Some(database) = Database::new(Setup { engine, strategy: Strategy::Striped }).await else {
        return;
    };
    database.stripe("few", FEW_BUCKETS).await;
    let locks = Hierlock::connect(&format!("{}&table=few", database.url)).await.unwrap();
    let (found, cycles) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let workers = (0..16).map(|worker| {
        let (locks, url) = (locks.clone(), database.url.clone());
        let (found, cycles) = (found.clone(), cycles.clone());
        tokio::spawn(async move {
            let mut session = OutsideSession::connect(&url).await;
            let mut random = Random::new(worker);
            while !found.load(Ordering::SeqCst) {
                cycles.fetch_add(1, Ordering::SeqCst);
                let targets: BTreeSet<Target> = random.targets().into_iter().collect();
                session.run("BEGIN").await;
                for target in targets {
                    if let Err(error) = lock_row_by_row(&mut session, engine, &locks, target).await
                    {
                        let code = error.as_database_error().unwrap().code().unwrap().into_owned();
                        assert!(["40001", "40P01"].contains(&&*code), "{error}");
                        found.store(true, Ordering::SeqCst);
                        break;
                    }
                }
                session.run("ROLLBACK").await;
            }
        })
    });
    let all = async {
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
    };
    tokio::time::timeout(2 * TEST_LIMIT, all).await.expect("no deadlock within the limit");
    println!("{engine}: a deadlock after {} cycles of plain SQL", cycles.load(Ordering::SeqCst));
}

/// Locks the ancestors shared and the node exclusive.
async fn lock_row_by_row(
    session: &mut OutsideSession,
    engine: Engine,
    locks: &Hierlock,
    target: Target,
) -> Result<(), sqlx::Error> {
    let shared = if engine == Engine::Mariadb { "LOCK IN SHARE MODE" } else { "FOR SHARE" };
    let level = target.level();
    for step in locks.plan([target], Mode::Exclusive).unwrap().steps() {
        let clause = if step.level == level { "FOR UPDATE" } else { shared };
        let sql = format!(
            "SELECT 1 FROM few WHERE level = {} AND bucket = {} {clause}",
            step.level, step.slot
        );
        session.try_run(&sql).await?;
    }
    Ok(())
}
