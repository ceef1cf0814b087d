//! The guard, which renews its lease and releases it on drop.

use super::*;
use crate::support::on_every_engine;
use hierlock::lease::{LeaseFilter, LeaseLoss};

on_every_engine! {
    a_guard_renews_its_lease_and_releases_it_on_drop,
    a_guard_reports_a_forced_release,
    a_lease_that_cannot_be_renewed_is_lost,
    a_lease_is_not_renewed_after_leave,
}

const TTL: Duration = Duration::from_secs(3);

fn short() -> LeaseRequest {
    request("u", "ada").ttl(TTL)
}

async fn a_guard_renews_its_lease_and_releases_it_on_drop(store: Store) {
    let leases = provision_leases(&store).await;
    let guard = leases.acquire(short()).await.unwrap().keep();
    let (token, first) = (guard.lease().token(), guard.lease().expires_at());
    let long_after = first + TTL;
    eventually("the lease is renewed beyond its first ttl", async || {
        assert!(leases.find(token).await.unwrap().is_some(), "the lease was lost");
        guard.expires_at() > long_after
    })
    .await;
    drop(guard);
    let all = || LeaseFilter::default().also_expired();
    let is_gone = async || leases.list(all()).await.unwrap().is_empty();
    eventually("the lease is released", is_gone).await;

    let guard = leases.acquire(request("u", "ada")).await.unwrap().keep();
    assert!(guard.release().await.unwrap());
    assert!(is_gone().await);
}

async fn a_guard_reports_a_forced_release(store: Store) {
    let leases = provision_leases(&store).await;
    let guard = leases.acquire(short()).await.unwrap().keep();
    leases.force_release(guard.lease().token(), "root", "holidays").await.unwrap().unwrap();
    let lost = tokio::time::timeout(crate::servers::TEST_LIMIT, guard.lost()).await.unwrap();
    assert!(lost.is_lost() && lost.to_string().contains("root ended it"), "{lost}");
    assert!(guard.lost().await.is_lost(), "a second call must return the same error");
    assert!(!guard.release().await.unwrap());
}

async fn a_lease_that_cannot_be_renewed_is_lost(store: Store) {
    let leases = provision_leases(&store).await;
    let database = store.other().await;
    let guard = Leases::new(database.clone()).acquire(short()).await.unwrap().keep();
    database.close().await;
    let lost = tokio::time::timeout(crate::servers::TEST_LIMIT, guard.lost()).await.unwrap();
    let Some(LeaseLoss::NotRenewed { why }) = lost.lost_lease() else { panic!("{lost}") };
    assert!(why.contains("closed"), "{why}");
    wait_until_expired(&leases, guard.lease()).await;
}

async fn a_lease_is_not_renewed_after_leave(store: Store) {
    let leases = provision_leases(&store).await;
    let lease = leases.acquire(short()).await.unwrap().keep().leave();
    assert!(leases.find(lease.token()).await.unwrap().is_some());
    wait_until_expired(&leases, &lease).await;
}
