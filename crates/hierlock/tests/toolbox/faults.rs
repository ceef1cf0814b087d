//! Every network fault, at every operation of leases and queues, on every server. It is unknown what became of a
//! request without a response. But nobody waits for ever, the request can be repeated, nothing is done twice or
//! lost, and neither a transaction nor a session is left on the server.

use crate::servers::{GENEROUS, Outside};
use crate::support::{Place, Store, eventually};
use hierlock::Target;
use hierlock::database::Database;
use hierlock::lease::{LeaseRequest, Leases};
use hierlock::queue::{Job, Queue};
use hierlock_sandbox::proxy::{Fault, FaultTrigger, NetworkMode, Proxy};
use hierlock_sandbox::{Engine, on_each_server};
use std::time::{Duration, Instant};

on_each_server!(every_fault_at_every_operation);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Short, so that a lost response is noticed soon.
const ANSWER_LIMIT: Duration = Duration::from_millis(300);

/// The greatest number of requests of an operation before the one that the fault hits: acquiring a lease has four,
/// and no operation has a fifth.
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

async fn every_fault_at_every_operation(engine: Engine) {
    let Some(store) = Store::new(Place::Server(engine)).await else { return };
    Leases::new(store.database.clone()).provision().await.unwrap();
    Queue::new(store.database.clone(), "mail").unwrap().provision().await.unwrap();
    let mut outside = Outside::connect(&store.url).await;
    let before = outside.sessions().await.len();
    let begun = Instant::now();
    let mut struck = 0;
    for operation in Operation::ALL {
        for fault in Fault::ALL {
            for skipped in 0..=MAX_SKIPPED {
                let case = format!("{fault:?} at {operation:?}, after {skipped} requests");
                let tried = run(&store, operation, FaultTrigger::After(skipped), fault);
                let proxy = tokio::time::timeout(GENEROUS, tried).await;
                let proxy = proxy.unwrap_or_else(|_| panic!("{case}: it does not end"));
                let has_struck = proxy.has_injected();
                assert!(has_struck || skipped > 0, "{case}: it met no request");
                struck += usize::from(has_struck);
                // Read from the server on another connection, while the network still hides the client's end from
                // it.
                eventually(&format!("{case}: a session is left"), async || {
                    outside.sessions().await.len() <= before
                })
                .await;
                drop(proxy);
                store.run("DELETE FROM hier_jobs").await;
                if !has_struck {
                    break;
                }
            }
        }
    }
    println!("{engine}: {struck} faults in {:?}", begun.elapsed());
}

/// Runs the operation and returns the proxy.
async fn run(store: &Store, operation: Operation, when: FaultTrigger, fault: Fault) -> Proxy {
    let plain = match store.place {
        Place::Server(Engine::Postgres) => "sslmode=disable",
        _ => "ssl-mode=disabled",
    };
    let proxy = Proxy::before(&format!("{}?{plain}", store.url)).await;
    if fault == Fault::SplitBytes {
        proxy.set_mode(NetworkMode::SplitsBytes);
    }
    let database = Database::builder().answer_limit(ANSWER_LIMIT).connect(&proxy.url).await;
    let database = database.unwrap();
    let leases = Leases::new(database.clone());
    let queue = Queue::new(database.clone(), "mail").unwrap();
    let request = || LeaseRequest::new(Target::user("u").unwrap(), "ada");
    let rows = async || store.number("SELECT COUNT(*) FROM hier_leases").await;
    let jobs = async || store.number("SELECT COUNT(*) FROM hier_jobs").await;
    let strike = || proxy.inject(when, fault);
    let case = format!("{fault:?} at {operation:?}");
    match operation {
        Operation::AcquireLease => {
            strike();
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
            let mut lease = leases.acquire(request()).await.unwrap();
            strike();
            if let Err(error) = lease.renew().await {
                assert!(!error.is_lost(), "{case}: {error}");
                eventually(&case, async || lease.renew().await.is_ok()).await;
            }
            assert_eq!(rows().await, 1, "{case}");
            eventually(&case, async || leases.release(lease.token()).await.is_ok()).await;
        }
        Operation::ReleaseLease => {
            let lease = leases.acquire(request()).await.unwrap();
            let token = lease.token();
            strike();
            if let Err(error) = lease.release().await {
                assert!(!error.is_lost(), "{case}: {error}");
                eventually(&case, async || leases.release(token).await.is_ok()).await;
            }
        }
        Operation::Claim | Operation::Complete => {
            queue.enqueue_all([Job::new("x")]).await.unwrap();
            if operation == Operation::Claim {
                strike();
            }
            let claimed = match queue.claim("worker", 10, LONG).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    // It belongs to nobody, or to a worker that was not told: then its lease expires.
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
                strike();
            }
            eventually(&case, async || match claimed[0].complete().await {
                Ok(()) => true,
                // It was done already, but the response was lost.
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
