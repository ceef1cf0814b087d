//! Another number of buckets while clients lock.

use crate::striped;
use crate::support::GENEROUS;
use hierlock::sql::ProvisionPhase;
use hierlock::{Buckets, Hierlock, Mode, Target};
use hierlock_sandbox::{Engine, on_each_server};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

on_each_server! {
    nobody_overlaps_while_the_count_changes,
    a_change_that_was_cut_short_is_finished,
    a_long_holder_is_waited_for_without_standing_in_the_way,
    a_guard_that_is_upgraded_meanwhile_is_not_stuck,
}

const NODES: usize = 4;
const CLIENTS: usize = 3;
const TASKS: usize = 4;
/// Tasks that connect anew each time, and so count as the agreement says.
const NEWCOMERS: usize = 2;

fn buckets(count: u32) -> Buckets {
    Buckets::new(count).unwrap()
}

/// Nodes that all tasks want, and whether one is being held.
struct Arena {
    held: [AtomicBool; NODES],
    /// How often each task has held one.
    turns: Vec<AtomicU64>,
    over: AtomicBool,
}

impl Arena {
    async fn work(&self, connect: impl AsyncFn() -> Hierlock, task: usize) {
        let mut node = task;
        while !self.over.load(SeqCst) {
            let locks = connect().await;
            node = (node + 1) % NODES;
            let target = Target::resource("u1", "a1", &format!("r{node}")).unwrap();
            let guard = locks.acquire(target).await.unwrap();
            assert!(!self.held[node].swap(true, SeqCst), "two hold r{node} at once");
            tokio::task::yield_now().await;
            self.held[node].store(false, SeqCst);
            guard.release().await.unwrap();
            self.turns[task].fetch_add(1, SeqCst);
        }
    }

    /// Until each task has had some more turns.
    async fn until_all_go_on(&self) {
        let goals: Vec<u64> = self.turns.iter().map(|turns| turns.load(SeqCst) + 3).collect();
        let polls = async {
            while self.turns.iter().zip(&goals).any(|(turns, goal)| turns.load(SeqCst) < *goal) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(GENEROUS, polls).await.expect("a task is stuck");
    }
}

async fn nobody_overlaps_while_the_count_changes(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=500").await.run(|_| ()).await.unwrap();
    let stubborn = database.try_connect("&buckets=500").await.unwrap();
    let arena = Arc::new(Arena {
        held: Default::default(),
        turns: (0..CLIENTS * TASKS + NEWCOMERS).map(|_| AtomicU64::new(0)).collect(),
        over: AtomicBool::new(false),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        // Each notices by itself, as if it were a process.
        let locks = database.connect().await;
        for task in 0..TASKS {
            let (arena, locks) = (arena.clone(), locks.clone());
            let connect = async move || locks.clone();
            tasks.spawn(async move { arena.work(connect, client * TASKS + task).await });
        }
    }
    for newcomer in 0..NEWCOMERS {
        let (arena, url) = (arena.clone(), database.url.clone());
        let connect = async move || Hierlock::connect(&url).await.unwrap();
        tasks.spawn(async move { arena.work(connect, CLIENTS * TASKS + newcomer).await });
    }
    arena.until_all_go_on().await;
    for count in [3000, 40, 5000, 500, 777] {
        let provision = database.provisioner("").await;
        let report = provision.rebucket(buckets(count), |_| ()).await.unwrap();
        assert_eq!(report.rows, u64::from(count) * 3);
        arena.until_all_go_on().await;
        database.assert_rows(count).await;
    }
    arena.over.store(true, SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert!(database.check().await.is_clean());
    let error = stubborn.acquire(Target::user("u1").unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("777 buckets, not 500"), "{error}");
    let error = database.try_connect("&buckets=500").await.unwrap_err();
    assert!(error.to_string().contains("777 buckets, not 500"), "{error}");
}

/// As MySQL and MariaDB leave it if the client dies between the two statements.
async fn a_change_that_was_cut_short_is_finished(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=200").await.run(|_| ()).await.unwrap();
    let mut outside = database.outside().await;
    let rename = "ALTER TABLE hier_lock_buckets RENAME COLUMN of_200 TO of_150";
    outside.run(rename).await;
    let provision = database.provisioner("").await;
    let message = provision.check(|_| ()).await.unwrap_err().to_string();
    assert!(message.contains("--rebucket 150"), "{message}");
    // Grown and then renamed back by hand: the rows above are the surplus of a change.
    let report = provision.rebucket(buckets(150), |_| ()).await.unwrap();
    assert_eq!((report.inserted, report.deleted), (0, 150));
    database.assert_rows(150).await;
    assert!(database.check().await.is_clean());
    drop(database.connect().await.acquire(Target::user("u1").unwrap()).await.unwrap());
    // Wrong about what it was.
    let provision = database.provisioner("&buckets=200").await;
    let message = provision.rebucket(buckets(300), |_| ()).await.unwrap_err().to_string();
    assert!(message.contains("150 buckets, not 200"), "{message}");
}

async fn a_long_holder_is_waited_for_without_standing_in_the_way(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=100").await.run(|_| ()).await.unwrap();
    let locks = database.connect().await;
    let held = locks.acquire(Target::user("u1").unwrap()).await.unwrap();
    let provision = Arc::new(database.provisioner("").await);
    let waits = Arc::new(AtomicU64::new(0));
    let change = tokio::spawn({
        let (provision, waits) = (provision.clone(), waits.clone());
        async move {
            let progress = |progress: hierlock::sql::ProvisionProgress| {
                if progress.phase == ProvisionPhase::WaitingForHolders {
                    waits.fetch_add(1, SeqCst);
                }
            };
            provision.rebucket(buckets(250), progress).await
        }
    });
    // It gives way: others get their turn while it waits for the holder.
    let others = async {
        while waits.load(SeqCst) < 2 {
            let guard = locks.acquire(Target::user("u2").unwrap()).await.unwrap();
            guard.release().await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(GENEROUS, others).await.expect("others are stuck behind the change");
    assert!(!change.is_finished());
    held.release().await.unwrap();
    let report = tokio::time::timeout(GENEROUS, change).await.unwrap().unwrap().unwrap();
    assert_eq!(report.inserted, 450);
    database.assert_rows(250).await;
    drop(locks.acquire(Target::user("u1").unwrap()).await.unwrap());
}

/// The renaming waits for the guard, and the guard's next statement might have to queue behind the
/// renaming: a circle that only the server can see.
async fn a_guard_that_is_upgraded_meanwhile_is_not_stuck(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=100").await.run(|_| ()).await.unwrap();
    let locks = database.connect().await;
    let leaf = Target::resource("u1", "a1", "r1").unwrap();
    let mut guard = locks.request(leaf.clone()).mode(Mode::Shared).acquire().await.unwrap();
    let provision = database.provisioner("").await;
    let waits = Arc::new(AtomicU64::new(0));
    let change = tokio::spawn({
        let waits = waits.clone();
        async move {
            let progress = |progress: hierlock::sql::ProvisionProgress| {
                if progress.phase == ProvisionPhase::WaitingForHolders {
                    waits.fetch_add(1, SeqCst);
                }
            };
            provision.rebucket(buckets(250), progress).await
        }
    });
    let until = async |count| {
        while waits.load(SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(GENEROUS, until(1)).await.unwrap();
    // Its next try comes soon, and lasts two seconds: this meets it.
    tokio::time::sleep(Duration::from_millis(800)).await;
    let upgraded = tokio::time::timeout(GENEROUS, guard.upgrade()).await.expect("it is stuck");
    // PostgreSQL lets it pass, MariaDB refuses. MySQL ends the guard's transaction: the guard must know.
    match upgraded {
        Err(error) if error.is_lost() => {
            assert_eq!(engine, Engine::Mysql, "{error}");
            assert!(tokio::time::timeout(GENEROUS, guard.lost()).await.unwrap().is_lost());
        }
        other => {
            assert!(other.is_ok() || other.is_err_and(|error| error.is_deadlock()));
            assert!(locks.try_acquire(leaf.clone()).await.unwrap().is_none(), "it is not held");
            guard.release().await.unwrap();
        }
    }
    tokio::time::timeout(GENEROUS, change).await.unwrap().unwrap().unwrap();
    drop(locks.acquire(leaf).await.unwrap());
}
