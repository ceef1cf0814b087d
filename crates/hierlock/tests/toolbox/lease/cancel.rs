//! Dropped futures leave no lease and no transaction.

use super::*;
use crate::servers::{OutsideSession, TEST_LIMIT};
use crate::support::on_every_engine;
use hierlock::Buckets;
use hierlock_sandbox::Engine;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

on_every_engine! {
    an_acquire_dropped_at_any_point_leaves_no_lease,
    an_acquire_dropped_while_it_waits_in_the_server_leaves_no_lease,
    a_waiting_acquire_that_is_dropped_leaves_no_lease,
    a_dropped_release_still_happens,
}

/// Polls a future up to `times` times, then drops it. Returns its output if it was ready.
async fn poll_times<F: Future>(times: usize, future: F) -> Option<F::Output> {
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

async fn assert_nothing_is_left(store: &Store, leases: &Leases) {
    if let TestEngine::Server(_) = store.engine {
        OutsideSession::connect(&store.url).await.until_busy(0).await;
    }
    // A lease that was left would block others for five minutes.
    let lease = leases.acquire(request("u", "bob").wait_up_to(TEST_LIMIT)).await.unwrap();
    assert!(lease.release().await.unwrap());
}

async fn an_acquire_dropped_at_any_point_leaves_no_lease(store: Store) {
    let leases = provision_leases(&store).await;
    let mut dropped = 0;
    for times in (0..12).chain(0..12) {
        // How far the acquire gets with these polls depends on the speed of the responses.
        match poll_times(times, leases.acquire(request("u/a", "ada"))).await {
            Some(lease) => assert!(lease.unwrap().release().await.unwrap()),
            None => dropped += 1,
        }
        assert_nothing_is_left(&store, &leases).await;
    }
    assert!(dropped > 1, "{dropped} dropped");
    assert_eq!(store.number("SELECT COUNT(*) FROM hier_leases").await, 0);
}

/// The acquire is blocked by a lock of another session: before it has its slots, and after.
async fn an_acquire_dropped_while_it_waits_in_the_server_leaves_no_lease(store: Store) {
    let TestEngine::Server(engine) = store.engine else { return };
    let leases = provision_leases(&store).await;
    let user = Target::user("u").unwrap().bucket(Buckets::new(1 << 24).unwrap());
    let slot = format!("SELECT pg_advisory_xact_lock(1818583411, {user})");
    let blocking_statements = match engine {
        // With a transaction id, without which the session does not count as busy.
        Engine::Postgres => [&*slot, "LOCK TABLE hier_leases IN SHARE MODE; SELECT txid_current()"],
        // Locks all rows, and at REPEATABLE READ also inserts into an empty table.
        _ => [
            "SELECT level FROM hier_lease_slots FOR UPDATE",
            "SELECT token FROM hier_leases FOR UPDATE",
        ],
    };
    for blocking_statement in blocking_statements {
        let mut outside = OutsideSession::connect(&store.url).await;
        outside.run("BEGIN").await;
        let _ = outside.rows(blocking_statement).await;
        let acquiring = {
            let leases = leases.clone();
            tokio::spawn(async move { leases.acquire(request("u/a", "ada")).await.map(drop) })
        };
        let mut observer = OutsideSession::connect(&store.url).await;
        observer.until_lock_wait().await;
        acquiring.abort();
        assert!(acquiring.await.unwrap_err().is_cancelled(), "{blocking_statement}");
        outside.run("ROLLBACK").await;
        drop(outside);
        assert_nothing_is_left(&store, &leases).await;
        assert_eq!(
            store.number("SELECT COUNT(*) FROM hier_leases").await,
            0,
            "{blocking_statement}"
        );
    }
}

async fn a_waiting_acquire_that_is_dropped_leaves_no_lease(store: Store) {
    let leases = provision_leases(&store).await;
    let held = acquire(&leases, "u", "eve").await;
    let acquire_and_wait = || leases.acquire(request("u/a", "ada").wait_up_to(TEST_LIMIT));
    for span in [1, 20, 200] {
        let waited = tokio::time::timeout(Duration::from_millis(span), acquire_and_wait()).await;
        assert!(waited.is_err());
    }
    assert!(held.release().await.unwrap());
    assert_nothing_is_left(&store, &leases).await;
}

async fn a_dropped_release_still_happens(store: Store) {
    let leases = provision_leases(&store).await;
    let lease = acquire(&leases, "u", "ada").await;
    let token = lease.token();
    // One poll may be enough.
    let _ = poll_times(1, lease.release()).await;
    let is_gone = async || leases.find(token).await.unwrap().is_none();
    eventually("the lease is released", is_gone).await;
}
