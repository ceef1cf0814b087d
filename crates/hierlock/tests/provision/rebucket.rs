//! Changes of the bucket count while clients lock.

use crate::striped;
use crate::support::TEST_LIMIT;
use hierlock::sql::ProvisionPhase;
use hierlock::{Buckets, Hierlock, Mode, Target};
use hierlock_sandbox::{Engine, on_each_server};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

on_each_server! {
    holds_do_not_overlap_during_a_rebucket,
    clients_connect_while_the_table_is_altered,
    an_interrupted_rebucket_is_completed,
    a_rebucket_waits_for_a_holder_without_blocking_others,
    an_upgrade_during_a_rebucket_does_not_hang,
}

const NODES: usize = 4;
const CLIENTS: usize = 3;
const TASKS: usize = 4;
/// Tasks that connect for each acquire, and so read the agreement each time.
const RECONNECTING_TASKS: usize = 2;

fn buckets(count: u32) -> Buckets {
    Buckets::new(count).unwrap()
}

/// The nodes that all tasks lock.
struct SharedNodes {
    /// Whether each node is held at the moment.
    held: [AtomicBool; NODES],
    /// The number of holds of each task.
    holds: Vec<AtomicU64>,
    is_over: AtomicBool,
}

impl SharedNodes {
    async fn work(&self, connect: impl AsyncFn() -> Hierlock, task: usize) {
        let mut node = task;
        while !self.is_over.load(SeqCst) {
            let locks = connect().await;
            node = (node + 1) % NODES;
            let target = Target::resource("u1", "a1", &format!("r{node}")).unwrap();
            let guard = locks.acquire(target).await.unwrap();
            assert!(!self.held[node].swap(true, SeqCst), "two tasks hold r{node} at once");
            tokio::task::yield_now().await;
            self.held[node].store(false, SeqCst);
            guard.release().await.unwrap();
            self.holds[task].fetch_add(1, SeqCst);
        }
    }

    /// Waits until each task has had three more holds.
    async fn wait_for_progress(&self) {
        let goals: Vec<u64> = self.holds.iter().map(|holds| holds.load(SeqCst) + 3).collect();
        let polls = async {
            while self.holds.iter().zip(&goals).any(|(holds, goal)| holds.load(SeqCst) < *goal) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let done = tokio::time::timeout(TEST_LIMIT, polls).await;
        done.expect("a task did not get its locks within the limit");
    }
}

async fn holds_do_not_overlap_during_a_rebucket(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=500").await.run(|_| ()).await.unwrap();
    let fixed_count = database.try_connect("&buckets=500").await.unwrap();
    let nodes = Arc::new(SharedNodes {
        held: Default::default(),
        holds: (0..CLIENTS * TASKS + RECONNECTING_TASKS).map(|_| AtomicU64::new(0)).collect(),
        is_over: AtomicBool::new(false),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        // Each client notices the change by itself, like a separate process.
        let locks = database.connect().await;
        for task in 0..TASKS {
            let (nodes, locks) = (nodes.clone(), locks.clone());
            let connect = async move || locks.clone();
            tasks.spawn(async move { nodes.work(connect, client * TASKS + task).await });
        }
    }
    for task in 0..RECONNECTING_TASKS {
        let (nodes, url) = (nodes.clone(), database.url.clone());
        let connect = async move || Hierlock::connect(&url).await.unwrap();
        tasks.spawn(async move { nodes.work(connect, CLIENTS * TASKS + task).await });
    }
    nodes.wait_for_progress().await;
    for count in [3000, 40, 5000, 500, 777] {
        let provision = database.provisioner("").await;
        let report = provision.rebucket(buckets(count), |_| ()).await.unwrap();
        assert_eq!(report.rows, u64::from(count) * 3);
        nodes.wait_for_progress().await;
        database.assert_rows(count).await;
    }
    nodes.is_over.store(true, SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert!(database.check().await.is_clean());
    let error = fixed_count.acquire(Target::user("u1").unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("777 buckets, not 500"), "{error}");
    let error = database.try_connect("&buckets=500").await.unwrap_err();
    assert!(error.to_string().contains("777 buckets, not 500"), "{error}");
}

/// The failure this prevents: MariaDB listed the table without its storage engine during an ALTER TABLE, and the client that
/// was just connecting reported a table without row locks.
async fn clients_connect_while_the_table_is_altered(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=100").await.run(|_| ()).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let altering = tokio::spawn({
        let (is_over, mut outside) = (is_over.clone(), database.outside().await);
        async move {
            while !is_over.load(SeqCst) {
                for names in ["level TO lvl", "lvl TO level"] {
                    outside
                        .run(&format!("ALTER TABLE hier_lock_buckets RENAME COLUMN {names}"))
                        .await;
                }
            }
        }
    });
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let url = database.url.clone();
        clients.spawn(async move {
            for _ in 0..100 {
                Hierlock::connect(&url).await.unwrap();
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    is_over.store(true, SeqCst);
    altering.await.unwrap();
}

/// On MySQL and MariaDB a client can die between the rename of the column and the update of the agreement.
async fn an_interrupted_rebucket_is_completed(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=200").await.run(|_| ()).await.unwrap();
    let mut outside = database.outside().await;
    let rename = "ALTER TABLE hier_lock_buckets RENAME COLUMN of_200 TO of_150";
    outside.run(rename).await;
    let provision = database.provisioner("").await;
    let message = provision.check(|_| ()).await.unwrap_err().to_string();
    assert!(message.contains("--rebucket 150"), "{message}");
    // The rows of 200 buckets are the surplus of the interrupted change.
    let report = provision.rebucket(buckets(150), |_| ()).await.unwrap();
    assert_eq!((report.inserted, report.deleted), (0, 150));
    database.assert_rows(150).await;
    assert!(database.check().await.is_clean());
    drop(database.connect().await.acquire(Target::user("u1").unwrap()).await.unwrap());
    // A wrong number of buckets is refused.
    let provision = database.provisioner("&buckets=200").await;
    let message = provision.rebucket(buckets(300), |_| ()).await.unwrap_err().to_string();
    assert!(message.contains("150 buckets, not 200"), "{message}");
}

async fn a_rebucket_waits_for_a_holder_without_blocking_others(engine: Engine) {
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
    // Others get locks while the rename waits for the holder, because it pauses between attempts.
    let others = async {
        while waits.load(SeqCst) < 2 {
            let guard = locks.acquire(Target::user("u2").unwrap()).await.unwrap();
            guard.release().await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(TEST_LIMIT, others).await;
    done.expect("the acquires of others did not return within the limit");
    assert!(!change.is_finished());
    held.release().await.unwrap();
    let report = tokio::time::timeout(TEST_LIMIT, change).await.unwrap().unwrap().unwrap();
    assert_eq!(report.inserted, 450);
    database.assert_rows(250).await;
    drop(locks.acquire(Target::user("u1").unwrap()).await.unwrap());
}

/// The rename waits for the guard, and the next statement of the guard can wait behind the rename. Only the server can detect
/// that cycle.
async fn an_upgrade_during_a_rebucket_does_not_hang(engine: Engine) {
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
    tokio::time::timeout(TEST_LIMIT, until(1)).await.unwrap();
    // The next attempt of the rename comes soon and lasts two seconds, so the upgrade overlaps with it.
    tokio::time::sleep(Duration::from_millis(800)).await;
    let upgraded = tokio::time::timeout(TEST_LIMIT, guard.upgrade())
        .await
        .expect("the upgrade did not return within the limit");
    // PostgreSQL grants the upgrade, MariaDB refuses it. MySQL ends the guard's transaction, and the guard must
    // report that.
    match upgraded {
        Err(error) if error.is_lost() => {
            assert_eq!(engine, Engine::Mysql, "{error}");
            assert!(tokio::time::timeout(TEST_LIMIT, guard.lost()).await.unwrap().is_lost());
        }
        other => {
            assert!(other.is_ok() || other.is_err_and(|error| error.is_deadlock()));
            assert!(
                locks.try_acquire(leaf.clone()).await.unwrap().is_none(),
                "the node is not held"
            );
            guard.release().await.unwrap();
        }
    }
    tokio::time::timeout(TEST_LIMIT, change).await.unwrap().unwrap().unwrap();
    drop(locks.acquire(leaf).await.unwrap());
}
