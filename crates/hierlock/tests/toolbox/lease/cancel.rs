//! What nobody waits for any more leaves nothing behind.

use super::*;
use crate::servers::{GENEROUS, Outside};
use crate::support::on_every_engine;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

on_every_engine! {
    an_acquire_dropped_at_any_point_leaves_no_lease,
    a_patient_acquire_dropped_while_it_waits_leaves_no_lease,
    a_release_that_is_dropped_happens,
}

/// Polls so often, and drops it.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut left = times;
    let mut future = pin!(future);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

async fn nothing_is_left(store: &Store, leases: &Leases) {
    if let Place::Server(_) = store.place {
        Outside::connect(&store.url).await.until_busy(0).await;
    }
    // Whatever was left behind would be in the way for five minutes.
    let lease = leases.acquire(request("u", "bob").wait_up_to(GENEROUS)).await.unwrap();
    assert!(lease.release().await.unwrap());
}

async fn an_acquire_dropped_at_any_point_leaves_no_lease(store: Store) {
    let leases = provisioned(&store).await;
    let (mut dropped, mut gained) = (0, 0);
    for times in 0..60 {
        match polled(times, leases.acquire(request("u/a", "ada"))).await {
            Some(lease) => {
                gained += 1;
                assert!(lease.unwrap().release().await.unwrap());
            }
            None => dropped += 1,
        }
        nothing_is_left(&store, &leases).await;
        if gained == 3 {
            break;
        }
    }
    assert!(dropped > 3 && gained == 3, "{dropped} dropped, {gained} gained");
    assert_eq!(store.number("SELECT COUNT(*) FROM hier_leases").await, 0);
}

async fn a_patient_acquire_dropped_while_it_waits_leaves_no_lease(store: Store) {
    let leases = provisioned(&store).await;
    let held = acquire(&leases, "u", "eve").await;
    let patient = || leases.acquire(request("u/a", "ada").wait_up_to(GENEROUS));
    for span in [1, 20, 200] {
        let waited = tokio::time::timeout(Duration::from_millis(span), patient()).await;
        assert!(waited.is_err());
    }
    assert!(held.release().await.unwrap());
    nothing_is_left(&store, &leases).await;
}

async fn a_release_that_is_dropped_happens(store: Store) {
    let leases = provisioned(&store).await;
    let lease = acquire(&leases, "u", "ada").await;
    let token = lease.token();
    assert!(polled(1, lease.release()).await.is_none());
    let is_gone = async || leases.find(token).await.unwrap().is_none();
    eventually("it is released", is_gone).await;
}
