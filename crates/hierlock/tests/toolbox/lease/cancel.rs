//! A dropped future leaves nothing behind.

use super::*;
use crate::servers::{GENEROUS, Outside};
use crate::support::on_every_engine;
use hierlock::Buckets;
use hierlock_sandbox::Engine;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

on_every_engine! {
    an_acquire_dropped_at_any_point_leaves_no_lease,
    an_acquire_dropped_while_it_waits_in_the_server_leaves_no_lease,
    a_patient_acquire_dropped_while_it_waits_leaves_no_lease,
    a_release_that_is_dropped_happens,
}

/// Polls a future up to `times` times, then drops it. Returns its output if it was ready.
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
    // A lease that was left would block others for five minutes.
    let lease = leases.acquire(request("u", "bob").wait_up_to(GENEROUS)).await.unwrap();
    assert!(lease.release().await.unwrap());
}

async fn an_acquire_dropped_at_any_point_leaves_no_lease(store: Store) {
    let leases = provisioned(&store).await;
    let mut dropped = 0;
    for times in (0..12).chain(0..12) {
        // How far it gets with these polls depends on the speed of the responses.
        match polled(times, leases.acquire(request("u/a", "ada"))).await {
            Some(lease) => assert!(lease.unwrap().release().await.unwrap()),
            None => dropped += 1,
        }
        nothing_is_left(&store, &leases).await;
    }
    assert!(dropped > 1, "{dropped} dropped");
    assert_eq!(store.number("SELECT COUNT(*) FROM hier_leases").await, 0);
}

/// Blocked by a lock of another session: before it has its slots, and after.
async fn an_acquire_dropped_while_it_waits_in_the_server_leaves_no_lease(store: Store) {
    let Place::Server(engine) = store.place else { return };
    let leases = provisioned(&store).await;
    let user = Target::user("u").unwrap().bucket(Buckets::new(1 << 24).unwrap());
    let slot = format!("SELECT pg_advisory_xact_lock(1818583411, {user})");
    let obstacles = match engine {
        // With a transaction id, without which the session does not count as busy.
        Engine::Postgres => [&*slot, "LOCK TABLE hier_leases IN SHARE MODE; SELECT txid_current()"],
        // Locks all rows, and at REPEATABLE READ also inserts into an empty table.
        _ => [
            "SELECT level FROM hier_lease_slots FOR UPDATE",
            "SELECT token FROM hier_leases FOR UPDATE",
        ],
    };
    for obstacle in obstacles {
        let mut outside = Outside::connect(&store.url).await;
        outside.run("BEGIN").await;
        let _ = outside.rows(obstacle).await;
        let acquiring = {
            let leases = leases.clone();
            tokio::spawn(async move { leases.acquire(request("u/a", "ada")).await.map(drop) })
        };
        let mut observer = Outside::connect(&store.url).await;
        // The blocker and the session that waits for it.
        observer.until_busy(2).await;
        acquiring.abort();
        assert!(acquiring.await.unwrap_err().is_cancelled(), "{obstacle}");
        outside.run("ROLLBACK").await;
        drop(outside);
        nothing_is_left(&store, &leases).await;
        assert_eq!(store.number("SELECT COUNT(*) FROM hier_leases").await, 0, "{obstacle}");
    }
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
    // One poll may be enough.
    let _ = polled(1, lease.release()).await;
    let is_gone = async || leases.find(token).await.unwrap().is_none();
    eventually("it is released", is_gone).await;
}
