//! The tables of leases.

use super::*;
use crate::support::on_every_engine;
use hierlock::lease::LeaseFilter;
use hierlock_sandbox::Engine;

on_every_engine! {
    missing_tables_are_reported,
    concurrent_provisioning_works,
    the_script_provisions_the_tables,
    a_missing_slot_is_reported,
}

async fn missing_tables_are_reported(store: Store) {
    let leases = Leases::new(store.database.clone());
    let mut tx = store.database.begin().await.unwrap();
    let checked = leases.check_token_in(&mut tx, 1).await.unwrap_err();
    tx.rollback().await.unwrap();
    for error in [
        checked,
        leases.acquire(request("u", "ada")).await.unwrap_err(),
        leases.find(1).await.unwrap_err(),
        leases.resume(1).await.unwrap_err(),
        leases.release(1).await.unwrap_err(),
        leases.list(LeaseFilter::default()).await.unwrap_err(),
        leases.release_owner("ada").await.unwrap_err(),
        leases.force_release(1, "root", "why").await.unwrap_err(),
        leases.audit(1).await.unwrap_err(),
        leases.sweep().await.unwrap_err(),
    ] {
        assert!(error.is_not_provisioned(), "{error}");
        assert!(error.to_string().contains("hierlock lease provision"), "{error}");
    }
}

async fn concurrent_provisioning_works(store: Store) {
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let leases = other_client(&store).await;
        tasks.push(tokio::spawn(async move {
            leases.provision().await?;
            leases.acquire(request("u", "ada")).await
        }));
    }
    for task in tasks {
        let _ = task.await.unwrap().unwrap();
    }
    // Again, with existing tables.
    let leases = provision_leases(&store).await;
    assert_eq!(leases.list(LeaseFilter::default()).await.unwrap().len(), 6);
    if has_slots(&store) {
        assert_eq!(store.number("SELECT COUNT(*) FROM hier_lease_slots").await, 8 * 256);
    }
}

async fn the_script_provisions_the_tables(store: Store) {
    let leases = Leases::new(store.database.clone());
    for _ in 0..2 {
        store.run(&leases.script()).await;
    }
    let _ = acquire(&leases, "u/a/r", "ada").await;
    leases.provision().await.unwrap();
    assert_refused(&leases, "u", "bob").await;
}

/// Returns whether the engine has a table of slots, which an acquire locks.
fn has_slots(store: &Store) -> bool {
    matches!(store.engine, TestEngine::Server(Engine::Mysql | Engine::Mariadb))
}

async fn a_missing_slot_is_reported(store: Store) {
    let leases = provision_leases(&store).await;
    if !has_slots(&store) {
        return;
    }
    store.run("DELETE FROM hier_lease_slots WHERE level = 1").await;
    let error = leases.acquire(request("u/a/r", "ada")).await.unwrap_err();
    assert!(error.is_not_provisioned(), "{error}");
    let _ = acquire(&leases, "u", "ada").await;
    leases.provision().await.unwrap();
    let _ = acquire(&leases, "u/a/r", "ada").await;
}
