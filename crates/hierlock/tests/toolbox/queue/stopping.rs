//! Stopping a worker while its server does not respond. The failure this prevents: it ran for as long as that
//! lasted.

use super::{LONG, add, end_leases, provisioned, states};
use crate::servers::GENEROUS;
use crate::support::{Place, Store, eventually, watched};
use hierlock::queue::{ClaimedJob, JobOutcome, Queue, WorkerSummary};
use hierlock_sandbox::proxy::{NetworkMode, Proxy};
use hierlock_sandbox::{Engine, on_each_server};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

on_each_server!(
    without_a_job_it_ends_at_once,
    forgotten_connections_are_replaced,
    a_job_in_hand_outlives_forgotten_connections,
);

/// A queue behind a network that can go silent, and the same queue without it.
struct Far {
    store: Store,
    proxy: Proxy,
    queue: Queue,
    near: Queue,
    is_at_rest: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Far {
    async fn new(engine: Engine) -> Option<Self> {
        let store = Store::new(Place::Server(engine)).await?;
        let near = provisioned(&store).await;
        let proxy = Proxy::before(&store.url).await;
        let (database, is_at_rest) = watched(&proxy.url).await;
        let queue = Queue::new(database, "mail").unwrap();
        // Now it has an open connection.
        states(&queue).await;
        Some(Self { store, proxy, queue, near, is_at_rest })
    }

    /// Makes the network silent, and returns the request that then waits for a response.
    async fn falls_silent(&self) -> String {
        self.proxy.set_mode(NetworkMode::Stalls);
        eventually("it asks in vain", async || self.proxy.held().is_some()).await;
        String::from_utf8_lossy(&self.proxy.held().unwrap()).into_owned()
    }
}

type Work = JoinHandle<hierlock::Result<WorkerSummary>>;

/// Checks that it ends although the server is silent.
async fn ends(work: Work, limit: Duration) -> WorkerSummary {
    tokio::time::timeout(limit, work).await.expect("it does not end").unwrap().unwrap()
}

async fn without_a_job_it_ends_at_once(engine: Engine) {
    let Some(far) = Far::new(engine).await else { return };
    add(&far.near, ["x"]).await;
    let done = Arc::new(Semaphore::new(0));
    let tells = done.clone();
    let worker = far.queue.worker("w").poll_every(Duration::from_millis(10));
    let worker = worker.on_end(move |_, _| tells.add_permits(1));
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(|_| async { Ok::<_, String>(()) }));
    eventually("it has worked", async || done.available_permits() == 1).await;
    far.falls_silent().await;
    handle.stop();
    assert_eq!(ends(work, GENEROUS).await.done, 1);
}

/// Open connections are dead without a report: the worker finds out, and continues on new ones.
async fn forgotten_connections_are_replaced(engine: Engine) {
    let Some(far) = Far::new(engine).await else { return };
    let worker = far.queue.worker("w").poll_every(Duration::from_millis(10));
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(|_| async { Ok::<_, String>(()) }));
    add(&far.near, ["before"]).await;
    eventually("it works", async || states(&far.near).await == [0, 0, 0, 0]).await;
    far.proxy.stall_opened();
    add(&far.near, ["after"]).await;
    let begun = Instant::now();
    while states(&far.near).await != [0, 0, 0, 0] {
        assert!(begun.elapsed() < 4 * GENEROUS, "it stands still");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{engine}: went on after {:?}", begun.elapsed());
    handle.stop();
    assert_eq!(ends(work, GENEROUS).await.done, 2);
}

/// So is the connection of a heartbeat without a response, before the lease expires.
async fn a_job_in_hand_outlives_forgotten_connections(engine: Engine) {
    let Some(far) = Far::new(engine).await else { return };
    add(&far.near, ["long"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let worker = far.queue.worker("w").lease(Duration::from_secs(12)).poll_every(LONG);
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(move |_| {
        let open = open.clone();
        async move {
            open.acquire().await.unwrap().forget();
            Ok::<_, String>(())
        }
    }));
    eventually("it has begun", async || states(&far.near).await == [0, 0, 1, 0]).await;
    eventually("nothing is said", async || (far.is_at_rest)()).await;
    let until = "SELECT due_ms FROM hier_jobs WHERE state = 2";
    let before = far.store.number(until).await;
    far.proxy.stall_opened();
    eventually("it is extended", async || far.store.number(until).await > before).await;
    gate.add_permits(1);
    handle.stop();
    let worked = ends(work, 4 * GENEROUS).await;
    assert_eq!((worked.done, worked.lost), (1, 0), "{worked:?}");
}

/// Nobody waits for it, and no failure is counted for a job that was not started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_gets_later_is_given_back() {
    let Some(far) = Far::new(Engine::Mariadb).await else { return };
    let worker = far.queue.worker("w").lease(LONG).poll_every(Duration::from_millis(10));
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(|_| async { Ok::<_, String>(()) }));
    // It may also look for jobs that are due.
    while !far.falls_silent().await.contains("hier_jobs_claim") {
        far.proxy.set_mode(NetworkMode::Passes);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    add(&far.near, ["x"]).await;
    handle.stop();
    assert_eq!(ends(work, GENEROUS).await, WorkerSummary::default());
    assert_eq!(states(&far.near).await, [1, 0, 0, 0]);
    far.proxy.set_mode(NetworkMode::Passes);
    let back = "SELECT COUNT(*) FROM hier_jobs WHERE claim = 1 AND state = 0 AND attempts = 0";
    eventually("it was claimed and is back", async || far.store.number(back).await == 1).await;
}

/// Running jobs finish. For a while the worker tries to record that, and then it leaves the jobs to their leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_recorded_comes_back() {
    let Some(far) = Far::new(Engine::Postgres).await else { return };
    add(&far.near, ["good", "bad", "not begun"]).await;
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let told = Arc::new(Mutex::new(BTreeMap::new()));
    let (seen, open, tells) = (begun.clone(), gate.clone(), told.clone());
    let worker = far.queue.worker("w").batch(3).concurrency(2).lease(Duration::from_secs(600));
    let worker = worker.on_end(move |job, ended| {
        tells.lock().unwrap().insert(job.payload().to_owned(), ended.clone());
    });
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(move |job: ClaimedJob| {
        let (seen, open) = (seen.clone(), open.clone());
        async move {
            seen.fetch_add(1, Ordering::SeqCst);
            open.acquire().await.unwrap().forget();
            if job.payload() == "good" { Ok(()) } else { Err("it is bad") }
        }
    }));
    eventually("two have begun", async || begun.load(Ordering::SeqCst) == 2).await;
    far.falls_silent().await;
    handle.stop();
    gate.add_permits(9);
    // It retries for half a minute, which must not be longer.
    let worked = ends(work, 4 * GENEROUS).await;
    assert_eq!((worked.unrecorded, begun.load(Ordering::SeqCst)), (2, 2), "{worked:?}");
    assert_eq!((worked.done, worked.failed, worked.lost, worked.given_back), (0, 0, 0, 0));
    let expected = ["bad", "good"].map(|job| (job.to_owned(), JobOutcome::Unrecorded));
    assert_eq!(*told.lock().unwrap(), BTreeMap::from(expected));

    let Far { store, proxy, near, .. } = far;
    // With all its content.
    drop(proxy);
    assert_eq!(states(&near).await, [0, 0, 3, 0]);
    end_leases(&store).await;
    assert_eq!(near.promote().await.unwrap().returned, 3);
    assert_eq!(states(&near).await, [3, 0, 0, 0]);
}
