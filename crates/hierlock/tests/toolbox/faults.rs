//! Faults of a network at every operation of leases and queues. Nobody can know what became of a request that was not
//! answered; but it can be repeated, and nothing is done twice or lost.
//!
//! Not tried here is a fault in the middle of a transaction that the server does not hear of: then the server keeps that
//! transaction until its own network gives up.

use crate::servers::GENEROUS;
use crate::support::{Place, Store, eventually};
use hierlock::Target;
use hierlock::database::Database;
use hierlock::lease::{LeaseRequest, Leases};
use hierlock::queue::{Job, Queue};
use hierlock_sandbox::proxy::{Fault, Mood, Proxy, When};
use hierlock_sandbox::{Engine, on_each_server};
use std::time::Duration;

on_each_server!(every_fault_at_every_operation);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    AcquireLease,
    RenewLease,
    ReleaseLease,
    Claim,
    Complete,
}

async fn every_fault_at_every_operation(engine: Engine) {
    use Operation::{AcquireLease, Claim, Complete, ReleaseLease, RenewLease};
    let Some(store) = Store::new(Place::Server(engine)).await else { return };
    Leases::new(store.database.clone()).provision().await.unwrap();
    Queue::new(store.database.clone(), "mail").unwrap().provision().await.unwrap();
    for operation in [AcquireLease, RenewLease, ReleaseLease, Claim, Complete] {
        // What is answered in vain has been done by then.
        let answered = match operation {
            AcquireLease => Some(When::Says("COMMIT")),
            RenewLease | ReleaseLease => Some(When::After(0)),
            Claim | Complete => None,
        };
        let heard = [Fault::HalfCloseToServer, Fault::SplitBytes].map(|f| (When::After(0), f));
        let unheard = [Fault::ResetClient, Fault::HalfCloseToClient];
        let unheard = answered.into_iter().flat_map(|when| unheard.map(|fault| (when, fault)));
        for (when, fault) in heard.into_iter().chain(unheard) {
            println!("{engine}: {fault:?} at {operation:?}");
            let tried = tokio::time::timeout(GENEROUS, run(&store, operation, when, fault)).await;
            tried.unwrap_or_else(|_| panic!("{fault:?} at {operation:?}: it does not end"));
            store.run("DELETE FROM hier_jobs").await;
        }
    }
}

async fn run(store: &Store, operation: Operation, when: When, fault: Fault) {
    let plain = match store.place {
        Place::Server(Engine::Postgres) => "sslmode=disable",
        _ => "ssl-mode=disabled",
    };
    let proxy = Proxy::before(&format!("{}?{plain}", store.url)).await;
    if fault == Fault::SplitBytes {
        proxy.becomes(Mood::SplitsBytes);
    }
    let database = Database::connect(&proxy.url).await.unwrap();
    let leases = Leases::new(database.clone());
    let queue = Queue::new(database, "mail").unwrap();
    let request = || LeaseRequest::new(Target::user("u").unwrap(), "ada");
    let rows = async || store.number("SELECT COUNT(*) FROM hier_leases").await;
    let jobs = async || store.number("SELECT COUNT(*) FROM hier_jobs").await;
    let strike = || proxy.strikes(when, fault);
    let case = format!("{fault:?} at {operation:?}");
    match operation {
        Operation::AcquireLease => {
            strike();
            match leases.acquire(request()).await {
                Ok(lease) => {
                    assert_eq!(rows().await, 1, "{case}");
                    // Its connection may be gone.
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
                    // It is nobody's, or that of a worker that was not told: then its time ends.
                    assert!(!error.is_lost(), "{case}: {error}");
                    store.run("UPDATE hier_jobs SET due_ms = 0 WHERE state = 2").await;
                    let mut again = Vec::new();
                    eventually(&case, async || {
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
                // Done already, when nobody was told.
                Err(error) => error.is_lost() && jobs().await == 0,
            })
            .await;
            assert_eq!(jobs().await, 0, "{case}");
        }
    }
    assert!(proxy.has_struck(), "{case}: it met no request");
    eventually(&case, async || rows().await == 0).await;
}
