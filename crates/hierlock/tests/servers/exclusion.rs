//! The check that locks exclude each other. It leaves nothing locked, with any result.

use crate::support::{Database, Setup, TEST_LIMIT, on_each_engine, on_every_setup, target};
use hierlock::sql::{Exclusion, Strategy};
use std::time::Duration;

on_every_setup!(the_check_shows_that_locks_exclude);
on_each_engine!(a_dropped_check_leaves_nothing_locked, a_check_skips_locked_slots);

async fn the_check_shows_that_locks_exclude(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_sql().await;
    let mut outside = database.outside().await;
    for _ in 0..2 {
        let exclusion = locks.check_exclusion().await.unwrap();
        assert!(matches!(exclusion, Exclusion::Shown { .. }), "{exclusion:?}");
        outside.until_busy(0).await;
        // In the second round there is a row by ID to lock.
        let _guard = locks.acquire(target("u1/a1/r1")).await.unwrap();
    }
    database.connect_with("check_exclusion=true").await;
}

/// Dropping the check at any moment ends its sessions on the server, also one that waits.
async fn a_dropped_check_leaves_nothing_locked(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_sql().await;
    let mut outside = database.outside().await;
    for millis in [1, 3, 7, 12, 20, 40, 80] {
        let limit = Duration::from_millis(millis);
        let _ = tokio::time::timeout(limit, locks.check_exclusion()).await;
        locks.close(TEST_LIMIT).await.unwrap();
        outside.until_busy(0).await;
    }
    assert!(locks.check_exclusion().await.unwrap().is_shown());
}

/// The check does not wait for a slot that another client has locked. If all slots are locked, the result is unknown.
async fn a_check_skips_locked_slots(setup: Setup) {
    if setup.strategy != Strategy::Striped {
        return;
    }
    let Some(database) = Database::new(setup).await else { return };
    database.stripe("narrow", 1).await;
    let url = format!("{}?strategy=striped&table=narrow", database.bare_url());
    let locks = hierlock::Hierlock::connect_sql(&url).await.unwrap();
    let guard = locks.acquire(target("u1/a1/r1")).await.unwrap();
    let exclusion = locks.check_exclusion().await.unwrap();
    assert!(matches!(&exclusion, Exclusion::Unknown { .. }), "{exclusion:?}");
    guard.release().await.unwrap();
    assert!(locks.check_exclusion().await.unwrap().is_shown());
}
