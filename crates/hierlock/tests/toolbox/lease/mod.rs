//! Leases, on every engine.

mod admin;
mod cancel;
mod check_in;
mod connection_loss;
mod exclusion;
mod guard;
mod lifecycle;
mod provision;

use crate::support::{Store, TestEngine, eventually};
use hierlock::lease::{Lease, LeaseRequest, Leases};
use hierlock::{Error, Hierarchy, Target};
use std::time::Duration;

/// Returns a tree of eight levels.
fn tree() -> Hierarchy {
    Hierarchy::new(["1", "2", "3", "4", "5", "6", "7", "8"]).unwrap()
}

async fn provision_leases(store: &Store) -> Leases {
    let leases = Leases::new(store.database.clone()).with_hierarchy(tree());
    leases.provision().await.unwrap();
    leases
}

/// Returns leases of the same database with other connections.
async fn other_client(store: &Store) -> Leases {
    Leases::new(store.other().await).with_hierarchy(tree())
}

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

fn request(path: &str, owner: &str) -> LeaseRequest {
    LeaseRequest::new(target(path), owner)
}

async fn acquire(leases: &Leases, path: &str, owner: &str) -> Lease {
    let acquired = leases.acquire(request(path, owner)).await;
    acquired.unwrap_or_else(|error| panic!("{path} for {owner}: {error}"))
}

async fn assert_refused(leases: &Leases, path: &str, owner: &str) -> Error {
    let error = leases.acquire(request(path, owner)).await.unwrap_err();
    assert!(error.is_held(), "{error}");
    error
}

/// Acquires a lease and waits until it has expired.
async fn acquire_expired(leases: &Leases, path: &str, owner: &str) -> Lease {
    let request = request(path, owner).ttl(Duration::from_millis(1));
    let lease = leases.acquire(request).await.unwrap();
    wait_until_expired(leases, &lease).await;
    lease
}

async fn wait_until_expired(leases: &Leases, lease: &Lease) {
    let is_over = async || leases.find(lease.token()).await.unwrap().is_none();
    eventually("the lease expires", is_over).await;
}

/// Returns the clock of the database in milliseconds.
async fn clock(store: &Store) -> i64 {
    store.number(&clock_of(store.engine)).await
}

fn clock_of(engine: TestEngine) -> String {
    match engine {
        TestEngine::Server(hierlock_sandbox::Engine::Postgres) => {
            "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint".to_owned()
        }
        TestEngine::Server(_) => {
            "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)".to_owned()
        }
        TestEngine::Sqlite => {
            "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)".to_owned()
        }
    }
}
