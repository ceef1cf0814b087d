//! Injects every network fault into every operation of leases and queues, on every server. The outcome of a request
//! without a response is unknown. But no call waits for ever, the request can be repeated, no job is done twice or lost,
//! and neither a transaction nor a session is left on the server.

use crate::servers::{OutsideSession, TEST_LIMIT};
use crate::support::{Store, TestEngine, eventually};
use hierlock::Target;
use hierlock::database::Database;
use hierlock::lease::{LeaseRequest, Leases};
use hierlock::queue::{Job, Queue};
use hierlock_sandbox::proxy::{Fault, FaultTrigger, NetworkMode, Proxy};
use hierlock_sandbox::{Engine, on_each_server};
use std::time::{Duration, Instant};

on_each_server!(operations_recover_from_every_network_fault);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Short, so that a lost response is noticed soon.
const ANSWER_LIMIT: Duration = Duration::from_millis(300);

/// The maximum number of requests of an operation before the one that the fault hits: acquiring a lease has four
/// requests, and no operation has more.
const MAX_SKIPPED: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    AcquireLease,
    RenewLease,
    ReleaseLease,
    Claim,
    Complete,
}

impl Operation {
    const ALL: [Operation; 5] = [
        Operation::AcquireLease,
        Operation::RenewLease,
        Operation::ReleaseLease,
        Operation::Claim,
        Operation::Complete,
    ];
}

async fn operations_recover_from_every_network_fault(engine: Engine) {
    let Some(store) = Store::new(TestEngine::Server(engine)).await else { return };
    Leases::new(store.database.clone()).provision().await.unwrap();
    Queue::new(store.database.clone(), "mail").unwrap().provision().await.unwrap();
    let mut outside = OutsideSession::connect(&store.url).await;
    let before = outside.sessions().await.len();
    let started = Instant::now();
    let mut injected = 0;
    for operation in Operation::ALL {
        for fault in Fault::ALL {
            for skipped in 0..=MAX_SKIPPED {
                let case = format!("{fault:?} at {operation:?}, after {skipped} requests");
                let tried = run(&store, operation, FaultTrigger::After(skipped), fault);
                let proxy = tokio::time::timeout(TEST_LIMIT, tried).await;
                let proxy = proxy.unwrap_or_else(|_| panic!("{case}: the operation does not end"));
                let was_injected = proxy.has_injected();
                assert!(was_injected || skipped > 0, "{case}: the fault hit no request");
                injected += usize::from(was_injected);
                // Asks the server on another connection, while the network still hides the client's end from it.
                eventually(&format!("{case}: no session is left"), async || {
                    outside.sessions().await.len() <= before
                })
                .await;
                drop(proxy);
                store.run("DELETE FROM hier_jobs").await;
                if !was_injected {
                    break;
                }
            }
        }
    }
    println!("{engine}: {injected} faults in {:?}", started.elapsed());
}

/// Repeats a call until it succeeds.
async fn until_ok<T>(mut call: impl AsyncFnMut() -> hierlock::Result<T>) -> T {
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) => println!("tried again: {error}"),
        }
    }
}

/// Runs the operation and returns the proxy.
async fn run(store: &Store, operation: Operation, when: FaultTrigger, fault: Fault) -> Proxy {
    let plain = match store.engine {
        TestEngine::Server(Engine::Postgres) => "sslmode=disable",
        _ => "ssl-mode=disabled",
    };
    let proxy = Proxy::start(&format!("{}?{plain}", store.url)).await;
    if fault == Fault::SplitBytes {
        proxy.set_mode(NetworkMode::SplitsBytes);
    }
    let database =
        until_ok(async || Database::builder().answer_limit(ANSWER_LIMIT).connect(&proxy.url).await);
    let database = database.await;
    let leases = Leases::new(database.clone());
    let queue = Queue::new(database.clone(), "mail").unwrap();
    let request = || LeaseRequest::new(Target::user("u").unwrap(), "ada");
    // Acquired without the proxy, whose short limit a busy machine may exceed before the fault.
    let acquired = async || {
        let lease = Leases::new(store.database.clone()).acquire(request()).await.unwrap();
        until_ok(async || leases.resume(lease.token()).await).await
    };
    let rows = async || store.number("SELECT COUNT(*) FROM hier_leases").await;
    let jobs = async || store.number("SELECT COUNT(*) FROM hier_jobs").await;
    let inject = || proxy.inject(when, fault);
    let case = format!("{fault:?} at {operation:?}");
    match operation {
        Operation::AcquireLease => {
            inject();
            match leases.acquire(request()).await {
                Ok(lease) => {
                    assert_eq!(rows().await, 1, "{case}");
                    // Its connection may be closed.
                    let token = lease.token();
                    let released = async || leases.release(token).await.is_ok();
                    eventually(&case, released).await;
                }
                Err(error) => assert!(!error.is_lost() && !error.is_held(), "{case}: {error}"),
            }
        }
        Operation::RenewLease => {
            let mut lease = acquired().await;
            inject();
            if let Err(error) = lease.renew().await {
                assert!(!error.is_lost(), "{case}: {error}");
                eventually(&case, async || lease.renew().await.is_ok()).await;
            }
            assert_eq!(rows().await, 1, "{case}");
            eventually(&case, async || leases.release(lease.token()).await.is_ok()).await;
        }
        Operation::ReleaseLease => {
            let lease = acquired().await;
            let token = lease.token();
            inject();
            if let Err(error) = lease.release().await {
                assert!(!error.is_lost(), "{case}: {error}");
                eventually(&case, async || leases.release(token).await.is_ok()).await;
            }
        }
        Operation::Claim | Operation::Complete => {
            let direct = Queue::new(store.database.clone(), "mail").unwrap();
            direct.enqueue_all([Job::new("x")]).await.unwrap();
            if operation == Operation::Claim {
                inject();
            }
            let claimed = match queue.claim("worker", 10, LONG).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    // The job is not claimed, or claimed without a response: then its lease expires.
                    assert!(!error.is_lost(), "{case}: {error}");
                    let mut again = Vec::new();
                    eventually(&case, async || {
                        // A COMMIT may still be in progress.
                        store.run("UPDATE hier_jobs SET due_ms = 0 WHERE state = 2").await;
                        let _ = queue.promote().await;
                        again = queue.claim("worker", 10, LONG).await.unwrap_or_default();
                        !again.is_empty()
                    })
                    .await;
                    again
                }
            };
            assert_eq!((claimed.len(), jobs().await), (1, 1), "{case}");
            if operation == Operation::Complete {
                inject();
            }
            eventually(&case, async || match claimed[0].complete().await {
                Ok(()) => true,
                // The job was completed before, but the response was lost.
                Err(error) => error.is_lost() && jobs().await == 0,
            })
            .await;
            assert_eq!(jobs().await, 0, "{case}");
        }
    }
    eventually(&case, async || rows().await == 0).await;
    database.close().await;
    proxy
}
