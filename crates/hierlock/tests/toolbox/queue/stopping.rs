//! Stopping a worker while its server does not respond. The failure this prevents: the worker ran until the server
//! responded again.

use super::{LONG, add, end_leases, provision_queue, states};
use crate::servers::TEST_LIMIT;
use crate::support::{Store, TestEngine, database_with_idle_check, eventually};
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
    a_worker_without_a_job_stops_at_once,
    silent_connections_are_replaced,
    a_running_job_keeps_its_lease_when_connections_go_silent,
);

/// A queue behind a proxy that can go silent, and the same queue with a direct connection.
struct QueueBehindProxy {
    store: Store,
    proxy: Proxy,
    queue: Queue,
    direct: Queue,
    is_idle: Box<dyn Fn() -> bool + Send + Sync>,
}

impl QueueBehindProxy {
    async fn new(engine: Engine) -> Option<Self> {
        let store = Store::new(TestEngine::Server(engine)).await?;
        let direct = provision_queue(&store).await;
        let proxy = Proxy::start(&store.url).await;
        let (database, is_idle) = database_with_idle_check(&proxy.url).await;
        let queue = Queue::new(database, "mail").unwrap();
        // Opens a connection.
        states(&queue).await;
        Some(Self { store, proxy, queue, direct, is_idle })
    }

    /// Makes the proxy silent, and returns the request that then waits for a response.
    async fn stall(&self) -> String {
        self.proxy.set_mode(NetworkMode::Stalls);
        eventually("a request is held", async || self.proxy.held().is_some()).await;
        String::from_utf8_lossy(&self.proxy.held().unwrap()).into_owned()
    }
}

type Work = JoinHandle<hierlock::Result<WorkerSummary>>;

/// Waits until the worker ends, within a limit.
async fn wait_for_end(work: Work, limit: Duration) -> WorkerSummary {
    tokio::time::timeout(limit, work).await.expect("the worker did not end").unwrap().unwrap()
}

async fn a_worker_without_a_job_stops_at_once(engine: Engine) {
    let Some(setup) = QueueBehindProxy::new(engine).await else { return };
    add(&setup.direct, ["x"]).await;
    let done = Arc::new(Semaphore::new(0));
    let ended = done.clone();
    let worker = setup.queue.worker("w").poll_every(Duration::from_millis(10));
    let worker = worker.on_end(move |_, _| ended.add_permits(1));
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(|_| async { Ok::<_, String>(()) }));
    eventually("the job is done", async || done.available_permits() == 1).await;
    setup.stall().await;
    handle.stop();
    assert_eq!(wait_for_end(work, TEST_LIMIT).await.done, 1);
}

/// Open connections go silent without an error: the worker detects it, and continues on new ones.
async fn silent_connections_are_replaced(engine: Engine) {
    let Some(setup) = QueueBehindProxy::new(engine).await else { return };
    let worker = setup.queue.worker("w").poll_every(Duration::from_millis(10));
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(|_| async { Ok::<_, String>(()) }));
    add(&setup.direct, ["before"]).await;
    eventually("the first job is done", async || states(&setup.direct).await == [0, 0, 0, 0]).await;
    // The job is deleted before the worker has the response, and counts only with the response.
    eventually("all connections are idle", async || (setup.is_idle)()).await;
    setup.proxy.stall_opened();
    add(&setup.direct, ["after"]).await;
    let started = Instant::now();
    while states(&setup.direct).await != [0, 0, 0, 0] {
        assert!(started.elapsed() < 4 * TEST_LIMIT, "the worker does not continue");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{engine}: continued after {:?}", started.elapsed());
    handle.stop();
    assert_eq!(wait_for_end(work, TEST_LIMIT).await.done, 2);
}

/// The connection of a heartbeat is replaced too, before the lease expires.
async fn a_running_job_keeps_its_lease_when_connections_go_silent(engine: Engine) {
    let Some(setup) = QueueBehindProxy::new(engine).await else { return };
    add(&setup.direct, ["long"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let worker = setup.queue.worker("w").lease(Duration::from_secs(12)).poll_every(LONG);
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(move |_| {
        let open = open.clone();
        async move {
            open.acquire().await.unwrap().forget();
            Ok::<_, String>(())
        }
    }));
    eventually("the job is claimed", async || states(&setup.direct).await == [0, 0, 1, 0]).await;
    eventually("all connections are idle", async || (setup.is_idle)()).await;
    let until = "SELECT due_ms FROM hier_jobs WHERE state = 2";
    let before = setup.store.number(until).await;
    setup.proxy.stall_opened();
    eventually("the lease is extended", async || setup.store.number(until).await > before).await;
    gate.add_permits(1);
    handle.stop();
    let summary = wait_for_end(work, 4 * TEST_LIMIT).await;
    assert_eq!((summary.done, summary.lost), (1, 0), "{summary:?}");
}

/// The worker does not wait for its claim, and no failure is counted for a job that was not started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_claim_gives_back_its_jobs() {
    let Some(setup) = QueueBehindProxy::new(Engine::Mariadb).await else { return };
    let worker = setup.queue.worker("w").lease(LONG).poll_every(Duration::from_millis(10));
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(|_| async { Ok::<_, String>(()) }));
    // The held request may also be a promotion.
    while !setup.stall().await.contains("hier_jobs_claim") {
        setup.proxy.set_mode(NetworkMode::Passes);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    add(&setup.direct, ["x"]).await;
    handle.stop();
    assert_eq!(wait_for_end(work, TEST_LIMIT).await, WorkerSummary::default());
    assert_eq!(states(&setup.direct).await, [1, 0, 0, 0]);
    setup.proxy.set_mode(NetworkMode::Passes);
    let back = "SELECT COUNT(*) FROM hier_jobs WHERE claim = 1 AND state = 0 AND attempts = 0";
    eventually("the job was claimed and is ready again", async || {
        setup.store.number(back).await == 1
    })
    .await;
}

/// Running jobs finish. For a while the worker tries to record that, and then it leaves the jobs to their leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unrecorded_jobs_become_ready_again() {
    let Some(setup) = QueueBehindProxy::new(Engine::Postgres).await else { return };
    add(&setup.direct, ["good", "bad", "not started"]).await;
    let (started, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let outcomes = Arc::new(Mutex::new(BTreeMap::new()));
    let (counter, open, recorded) = (started.clone(), gate.clone(), outcomes.clone());
    let worker = setup.queue.worker("w").batch(3).concurrency(2).lease(Duration::from_secs(600));
    let worker = worker.on_end(move |job, ended| {
        recorded.lock().unwrap().insert(job.payload().to_owned(), ended.clone());
    });
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(move |job: ClaimedJob| {
        let (counter, open) = (counter.clone(), open.clone());
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            open.acquire().await.unwrap().forget();
            if job.payload() == "good" { Ok(()) } else { Err("it is bad") }
        }
    }));
    eventually("two jobs are running", async || started.load(Ordering::SeqCst) == 2).await;
    setup.stall().await;
    handle.stop();
    gate.add_permits(9);
    // The worker retries for half a minute and not longer.
    let summary = wait_for_end(work, 4 * TEST_LIMIT).await;
    assert_eq!((summary.unrecorded, started.load(Ordering::SeqCst)), (2, 2), "{summary:?}");
    assert_eq!((summary.done, summary.failed, summary.lost, summary.given_back), (0, 0, 0, 0));
    let expected = ["bad", "good"].map(|job| (job.to_owned(), JobOutcome::Unrecorded));
    assert_eq!(*outcomes.lock().unwrap(), BTreeMap::from(expected));

    let QueueBehindProxy { store, proxy, direct, .. } = setup;
    // Discards the held requests.
    drop(proxy);
    assert_eq!(states(&direct).await, [0, 0, 3, 0]);
    end_leases(&store).await;
    assert_eq!(direct.promote().await.unwrap().returned, 3);
    assert_eq!(states(&direct).await, [3, 0, 0, 0]);
}
