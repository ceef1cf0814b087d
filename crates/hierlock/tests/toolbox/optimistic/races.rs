//! Concurrent clients.

use super::{begin_at, begin_with_snapshot, bump, is_engine, read_seat, seat};
use crate::servers::OutsideSession;
use crate::support::{Store, TestEngine, eventually, on_every_engine};
use hierlock::optimistic::{Changes, UpdateOutcome, VersionCheck, WaitPolicy, until_current};
use hierlock::retry::{GiveUpReason, RetryCause, Retryable};
use hierlock_sandbox::Engine;
use sqlx::ConnectOptions as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Barrier;

on_every_engine! {
    sixteen_writers_lose_no_update,
    without_a_version_check_updates_are_lost,
    retries_end_if_a_row_stays_stale,
    a_locked_row_stays_current,
    nowait_fails_on_a_locked_row,
    a_version_committed_during_the_wait_is_current,
    an_old_snapshot_does_not_hide_a_change,
    conflicts_and_stale_rows_are_retried,
    a_waiting_update_that_is_dropped_changes_nothing,
}

const WRITERS: u32 = 16;

/// Reads the price and the version.
async fn read(store: &Store) -> hierlock::Result<(i64, i64)> {
    let mut tx = store.database.begin().await?;
    let rows = tx.fetch("SELECT price, version FROM seats WHERE id = 7", []).await?;
    tx.commit().await?;
    Ok((rows[0].int(0)?, rows[0].int(1)?))
}

async fn sixteen_writers_lose_no_update(store: Store) {
    let (seat, store) = (seat(&store).await, Arc::new(store));
    let (barrier, attempts) =
        (Arc::new(Barrier::new(WRITERS as usize)), Arc::new(AtomicU32::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (store, seat) = (store.clone(), seat.clone());
            let (barrier, attempts) = (barrier.clone(), attempts.clone());
            tokio::spawn(async move {
                until_current(1000, |attempt| {
                    let (store, seat, barrier) = (&store, &seat, &barrier);
                    attempts.fetch_add(1, Ordering::Relaxed);
                    async move {
                        let (price, version) = read(store).await?;
                        if attempt == 1 {
                            // All have read the same version.
                            barrier.wait().await;
                        }
                        let mut tx = store.database.begin().await?;
                        let dearer = Changes::new().set("price", price + 1);
                        seat.update(&mut tx, version, dearer).await?.updated()?;
                        tx.commit().await
                    }
                })
                .await
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    let all = i64::from(WRITERS);
    assert_eq!(read_seat(&store).await, (None, 100 + all, 1 + all));
    let attempts = attempts.load(Ordering::Relaxed);
    assert!(attempts >= 2 * WRITERS - 1, "all writers but one must retry: {attempts}");
}

/// The control experiment without the check.
async fn without_a_version_check_updates_are_lost(store: Store) {
    seat(&store).await;
    let (store, barrier) = (Arc::new(store), Arc::new(Barrier::new(WRITERS as usize)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (store, barrier) = (store.clone(), barrier.clone());
            tokio::spawn(async move {
                let (price, _) = read(&store).await.unwrap();
                barrier.wait().await;
                let mut tx = store.database.begin().await.unwrap();
                let dearer = "UPDATE seats SET price = ?, version = version + 1 WHERE id = 7";
                tx.execute(dearer, [(price + 1).into()]).await.unwrap();
                tx.commit().await.unwrap();
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(read_seat(&store).await, (None, 101, 1 + i64::from(WRITERS)));
}

async fn retries_end_if_a_row_stays_stale(store: Store) {
    let seat = seat(&store).await;
    let given_up = until_current(3, |_| async {
        // The version is not read again, so it stays stale.
        let mut tx = store.database.begin().await?;
        seat.bump_if(&mut tx, 9).await?.updated()
    });
    let error = given_up.await.unwrap_err();
    assert_eq!((error.attempts, error.reason), (3, GiveUpReason::MaxAttempts));
    assert!(error.last.is_stale(), "{error}");
}

/// Waits until a session waits for a lock, as the server reports. (SQLite reports nothing; there the second session
/// waits before it can read.)
async fn wait_until_a_session_waits(store: &Store) {
    let TestEngine::Server(engine) = store.engine else { return };
    let mut outside = OutsideSession::connect(&store.url).await;
    eventually("a session waits for a lock", async || match engine {
        Engine::Mysql => {
            let waiting = "SELECT COUNT(*) FROM performance_schema.data_locks \
                           WHERE OBJECT_SCHEMA = DATABASE() AND LOCK_STATUS = 'WAITING'";
            outside.number(waiting).await == 1
        }
        Engine::Mariadb => {
            let sessions = outside.sessions().await;
            let status = outside.rows("SHOW ENGINE INNODB STATUS").await[0].last().unwrap().clone();
            let (_, transactions) = status.split_once("\nTRANSACTIONS\n").unwrap();
            transactions.split("\n---TRANSACTION ").any(|block| {
                let is_of = |id| block.contains(&format!("MariaDB thread id {id},"));
                block.contains("LOCK WAIT") && sessions.iter().any(is_of)
            })
        }
        Engine::Postgres => {
            let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                           AND datname = current_database()";
            outside.number(waiting).await == 1
        }
    })
    .await;
}

/// A session that has locked the row and found it current is not stale later.
async fn a_locked_row_stays_current(store: Store) {
    let (seat, store) = (seat(&store).await, Arc::new(store));
    let mut first = store.database.begin().await.unwrap();
    assert_eq!(seat.lock(&mut first, 1, WaitPolicy::Wait).await.unwrap(), VersionCheck::Current);
    let later = ["lock", "update", "delete"].map(|operation| {
        let (store, seat) = (store.clone(), seat.clone());
        async move {
            let mut tx = store.database.begin().await?;
            match operation {
                "lock" => seat.lock(&mut tx, 1, WaitPolicy::Wait).await?.current(),
                "delete" => seat.delete(&mut tx, 1).await?.current(),
                _ => seat.bump_if(&mut tx, 1).await?.updated().map(drop),
            }
        }
    });
    let later = later.map(tokio::spawn);
    if let TestEngine::Server(_) = store.engine {
        let mut outside = OutsideSession::connect(&store.url).await;
        outside.until_busy(1 + later.len()).await;
    }
    assert!(later.iter().all(|task| !task.is_finished()));
    // Slow work, such as a call to another system, goes here.
    let sold = Changes::new().set("holder", "ada");
    assert_eq!(seat.update(&mut first, 1, sold).await.unwrap(), UpdateOutcome::Updated(2));
    first.commit().await.unwrap();
    for task in later {
        let error = task.await.unwrap().unwrap_err();
        assert!(error.is_stale() && error.to_string().contains("at version 2"), "{error}");
    }
    assert_eq!(read_seat(&store).await, (Some("ada".to_owned()), 100, 2));
}

async fn nowait_fails_on_a_locked_row(store: Store) {
    let seat = seat(&store).await;
    // On SQLite only a transaction that does not announce a write can have begun.
    let mut second = begin_at(&store, "READ COMMITTED").await;
    if store.engine == TestEngine::Sqlite {
        second.run("PRAGMA busy_timeout = 0").await.unwrap();
    }
    let mut first = store.database.begin().await.unwrap();
    assert_eq!(seat.lock(&mut first, 1, WaitPolicy::NoWait).await.unwrap(), VersionCheck::Current);
    let error = seat.lock(&mut second, 1, WaitPolicy::NoWait).await.unwrap_err();
    assert!(error.is_would_block() && error.is_retryable() && !error.is_stale(), "{error}");
    assert_eq!(error.retry_cause(), Some(RetryCause::NotGranted));
    assert!(error.to_string().contains("`seats` is locked by another transaction"), "{error}");
    second.rollback().await.unwrap();

    assert_eq!(seat.bump(&mut first).await.unwrap(), Some(2));
    first.commit().await.unwrap();
    let mut second = store.database.begin().await.unwrap();
    let stale = VersionCheck::Stale { expected: 1, current: 2 };
    assert_eq!(seat.lock(&mut second, 1, WaitPolicy::NoWait).await.unwrap(), stale);
}

/// PostgreSQL finds the row at its old version, which is not the expected one, and does not wait for the new one. With a
/// plain read after that, version 2 would be reported as stale although the row is at 2.
async fn a_version_committed_during_the_wait_is_current(store: Store) {
    let (seat, store) = (seat(&store).await, Arc::new(store));
    let mut first = store.database.begin().await.unwrap();
    assert_eq!(seat.bump(&mut first).await.unwrap(), Some(2));
    let second = tokio::spawn({
        let (store, seat) = (store.clone(), seat.clone());
        async move {
            let mut tx = store.database.begin().await?;
            let outcome = seat.bump_if(&mut tx, 2).await?;
            tx.commit().await.map(|()| outcome)
        }
    });
    wait_until_a_session_waits(&store).await;
    first.commit().await.unwrap();
    assert_eq!(second.await.unwrap().unwrap(), UpdateOutcome::Updated(3));
}

async fn an_old_snapshot_does_not_hide_a_change(store: Store) {
    let seat = seat(&store).await;
    // MariaDB can be configured to compare with the snapshot.
    let settings: &[&str] = if is_engine(&store, Engine::Mariadb) {
        &["SET innodb_snapshot_isolation = OFF", "SET innodb_snapshot_isolation = ON"]
    } else {
        &["SELECT 1"]
    };
    for setting in settings {
        let mut tx = begin_with_snapshot(&store).await;
        tx.run(setting).await.unwrap();
        let seen = seat.version(&mut tx).await.unwrap().unwrap();
        let current = bump(&store, &seat).await;
        assert_eq!(
            seat.version(&mut tx).await.unwrap(),
            Some(seen),
            "the snapshot must not change"
        );
        let sold = Changes::new().set("holder", "bob");
        let outcome = seat.update(&mut tx, seen, sold).await;
        let conflict = match store.engine {
            TestEngine::Sqlite => Some(RetryCause::Busy),
            TestEngine::Server(Engine::Postgres) => Some(RetryCause::Conflict),
            TestEngine::Server(_) if setting.ends_with("ON") => Some(RetryCause::Conflict),
            TestEngine::Server(_) => None,
        };
        match conflict {
            None => assert_eq!(outcome.unwrap(), UpdateOutcome::Stale { expected: seen, current }),
            conflict => assert_eq!(outcome.unwrap_err().retry_cause(), conflict),
        }
        let _ = tx.commit().await;
        assert_eq!(read_seat(&store).await, (None, 100, current));
    }
}

async fn conflicts_and_stale_rows_are_retried(store: Store) {
    let seat = seat(&store).await;
    let version = until_current(3, |attempt| {
        let (store, seat) = (&store, &seat);
        async move {
            let mut tx = begin_with_snapshot(store).await;
            let version = seat.version(&mut tx).await?.unwrap();
            if attempt == 1 {
                bump(store, seat).await;
            }
            let sold = Changes::new().set("holder", "ada");
            let version = seat.update(&mut tx, version, sold).await?.updated()?;
            tx.commit().await.map(|()| version)
        }
    });
    assert_eq!(version.await.unwrap(), 3);
    assert_eq!(read_seat(&store).await, (Some("ada".to_owned()), 100, 3));
}

async fn a_waiting_update_that_is_dropped_changes_nothing(store: Store) {
    let (seat, store) = (seat(&store).await, Arc::new(store));
    let mut first = store.database.begin().await.unwrap();
    seat.lock(&mut first, 1, WaitPolicy::Wait).await.unwrap().current().unwrap();
    let waits = tokio::spawn({
        let (store, seat) = (store.clone(), seat.clone());
        async move {
            let mut tx = store.database.begin().await?;
            seat.bump(&mut tx).await?;
            tx.commit().await
        }
    });
    wait_until_a_session_waits(&store).await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    first.rollback().await.unwrap();
    if let TestEngine::Server(_) = store.engine {
        OutsideSession::connect(&store.url).await.until_busy(0).await;
    }
    assert_eq!(read_seat(&store).await, (None, 100, 1));
}

/// A plain SELECT would let another session write in between.
#[tokio::test]
async fn a_lock_without_immediate_blocks_other_writers() {
    let store = Store::new(TestEngine::Sqlite).await.unwrap();
    let seat = seat(&store).await;
    let mut tx = begin_with_snapshot(&store).await;
    assert_eq!(seat.lock(&mut tx, 1, WaitPolicy::Wait).await.unwrap(), VersionCheck::Current);
    let options: sqlx::sqlite::SqliteConnectOptions = store.url.parse().unwrap();
    let mut other = options.busy_timeout(Duration::ZERO).connect().await.unwrap();
    let error = sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap_err();
    assert_eq!(error.retry_cause(), Some(RetryCause::Busy), "{error}");
    assert_eq!(seat.bump_if(&mut tx, 1).await.unwrap(), UpdateOutcome::Updated(2));
    tx.commit().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
}

/// The blocker is not another writer, so NOWAIT does not help.
#[tokio::test]
async fn a_lock_after_an_old_snapshot_must_be_retried() {
    let store = Store::new(TestEngine::Sqlite).await.unwrap();
    let seat = seat(&store).await;
    let mut tx = begin_with_snapshot(&store).await;
    assert_eq!(seat.version(&mut tx).await.unwrap(), Some(1));
    bump(&store, &seat).await;
    let error = seat.lock(&mut tx, 1, WaitPolicy::NoWait).await.unwrap_err();
    assert_eq!(
        (error.is_would_block(), error.retry_cause()),
        (false, Some(RetryCause::Busy)),
        "{error}"
    );
}

/// FOR UPDATE would wait for every session that inserts a row that refers to this one, only to report that it is
/// stale.
#[tokio::test]
async fn a_stale_update_on_postgres_does_not_wait_for_inserts_of_children() {
    let Some(store) = Store::new(TestEngine::Server(Engine::Postgres)).await else { return };
    let seat = seat(&store).await;
    store.run("CREATE TABLE tickets (seat BIGINT REFERENCES seats (id))").await;
    let mut child = store.database.begin().await.unwrap();
    child.execute("INSERT INTO tickets VALUES (7)", []).await.unwrap();
    let mut tx = store.database.begin().await.unwrap();
    tx.run("SET LOCAL lock_timeout = '2s'").await.unwrap();
    let stale = UpdateOutcome::Stale { expected: 9, current: 1 };
    assert_eq!(seat.bump_if(&mut tx, 9).await.unwrap(), stale);
    assert_eq!(seat.bump_if(&mut tx, 1).await.unwrap(), UpdateOutcome::Updated(2));
    let error = seat.lock(&mut tx, 2, WaitPolicy::Wait).await.unwrap_err();
    assert_eq!(
        (error.is_would_block(), error.retry_cause()),
        (false, Some(RetryCause::NotGranted))
    );
}
