//! The heartbeat, which ends with its guard.

use super::*;
use crate::support::on_every_engine;
use hierlock::lease::{LeaseFilter, LeaseLoss};

on_every_engine! {
    a_renewed_lease_outlives_its_time_and_ends_with_its_guard,
    the_loser_is_told,
    what_cannot_be_renewed_is_lost,
    a_lease_that_is_left_is_not_renewed,
}

const TTL: Duration = Duration::from_secs(3);

fn short() -> LeaseRequest {
    request("u", "ada").ttl(TTL)
}

async fn a_renewed_lease_outlives_its_time_and_ends_with_its_guard(store: Store) {
    let leases = provisioned(&store).await;
    let guard = leases.acquire(short()).await.unwrap().keep();
    let (token, first) = (guard.lease().token(), guard.lease().expires_at());
    let long_after = first + TTL;
    eventually("it is renewed beyond its time", async || {
        assert!(leases.find(token).await.unwrap().is_some(), "it was lost");
        guard.expires_at() > long_after
    })
    .await;
    drop(guard);
    let all = || LeaseFilter::default().also_expired();
    let is_gone = async || leases.list(all()).await.unwrap().is_empty();
    eventually("it is released", is_gone).await;

    let guard = leases.acquire(request("u", "ada")).await.unwrap().keep();
    assert!(guard.release().await.unwrap());
    assert!(is_gone().await);
}

async fn the_loser_is_told(store: Store) {
    let leases = provisioned(&store).await;
    let guard = leases.acquire(short()).await.unwrap().keep();
    leases.force_release(guard.lease().token(), "root", "holidays").await.unwrap().unwrap();
    let lost = tokio::time::timeout(crate::servers::GENEROUS, guard.lost()).await.unwrap();
    assert!(lost.is_lost() && lost.to_string().contains("root ended it"), "{lost}");
    assert!(guard.lost().await.is_lost(), "asked again, it says the same");
    assert!(!guard.release().await.unwrap());
}

async fn what_cannot_be_renewed_is_lost(store: Store) {
    let leases = provisioned(&store).await;
    let far = store.other().await;
    let guard = Leases::new(far.clone()).acquire(short()).await.unwrap().keep();
    far.close().await;
    let lost = tokio::time::timeout(crate::servers::GENEROUS, guard.lost()).await.unwrap();
    let Some(LeaseLoss::NotRenewed { why }) = lost.lost_lease() else { panic!("{lost}") };
    assert!(why.contains("closed"), "{why}");
    until_expired(&leases, guard.lease()).await;
}

async fn a_lease_that_is_left_is_not_renewed(store: Store) {
    let leases = provisioned(&store).await;
    let lease = leases.acquire(short()).await.unwrap().keep().leave();
    assert!(leases.find(lease.token()).await.unwrap().is_some());
    until_expired(&leases, &lease).await;
}
