//! Locks and data in one transaction: the caller's, or the lock's own.

use crate::support::{Database, OutsideSession, Setup, TEST_LIMIT, on_every_setup};

use hierlock::{Target, TransactionState};
use hierlock_conformance::{is_free, until_free, until_waiting};
use hierlock_sandbox::Engine;
use hierlock_sandbox::proxy::{NetworkMode, Proxy};
use sqlx::{MySqlConnection, MySqlPool, PgConnection, PgPool};
use std::time::Duration;

on_every_setup!(
    locks_in_a_transaction_end_with_it,
    acquire_in_locks_in_a_transaction_of_the_toolbox,
    acquire_in_waits_for_others_and_blocks_them,
    a_timeout_of_acquire_in_leaves_the_transaction_usable,
    a_dropped_acquire_in_ends_its_wait,
    a_rollback_on_a_stalled_connection_fails_at_once,
    work_is_committed_with_the_lock,
    work_is_rolled_back_with_the_lock,
    work_that_ends_the_transaction_loses_the_lock,
    failed_work_is_not_committed,
    dropped_work_keeps_the_lock,
    fencing_tokens_ascend,
);

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Runs a test with the pool of the server's driver.
macro_rules! with_pool {
    ($database:expr, $pool:ident => $test:expr) => {
        match $database.setup.engine {
            Engine::Postgres => {
                let $pool = PgPool::connect($database.bare_url()).await.unwrap();
                $test
            }
            _ => {
                let url = $database.bare_url().replacen("mariadb", "mysql", 1);
                let $pool = MySqlPool::connect(&url).await.unwrap();
                $test
            }
        }
    };
}

async fn locks_in_a_transaction_end_with_it(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_sql().await;
    with_pool!(database, pool => {
        for commits in [true, false] {
            let mut tx = pool.begin().await.unwrap();
            let taken = locks.acquire_in(&mut tx, [target("u1/a1"), target("u2")]).await.unwrap();
            assert_eq!(taken.len(), 3);
            assert!(!is_free(&locks, "u1").await && !is_free(&locks, "u2/a2").await);
            assert!(is_free(&locks, "u1/a2").await);
            // More locks in the same transaction, and locks that it already has.
            locks.acquire_in(&mut tx, [target("u3"), target("u1/a1")]).await.unwrap();
            assert!(!is_free(&locks, "u3").await);
            if commits {
                tx.commit().await.unwrap();
            } else {
                tx.rollback().await.unwrap();
            }
            for path in ["u1", "u2", "u3"] {
                assert!(is_free(&locks, path).await, "{path}");
            }
        }
    });
}

/// So one transaction can have a lock, a lease and a version.
async fn acquire_in_locks_in_a_transaction_of_the_toolbox(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_sql().await;
    let toolbox = hierlock::database::Database::connect(database.bare_url()).await.unwrap();
    let mut tx = toolbox.begin().await.unwrap();
    locks.acquire_in(&mut tx, [target("u1/a1")]).await.unwrap();
    assert!(!is_free(&locks, "u1").await && is_free(&locks, "u1/a2").await);
    tx.commit().await.unwrap();
    assert!(is_free(&locks, "u1").await);
    // A transaction of another kind of database is refused, because it could not lock.
    let elsewhere = hierlock::database::Database::connect("sqlite::memory:").await.unwrap();
    let mut tx = elsewhere.begin().await.unwrap();
    let error = locks.acquire_in(&mut tx, [target("u1/a1")]).await.unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("not one of"), "{error}");
}

async fn acquire_in_waits_for_others_and_blocks_them(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_sql().await;
    with_pool!(database, pool => {
        let guard = locks.acquire(target("u1")).await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        let waits = {
            let locks = locks.clone();
            tokio::spawn(async move {
                locks.acquire_in(&mut tx, [target("u1/a1/r1")]).await.map(|_| tx)
            })
        };
        until_waiting(&locks, 1).await;
        guard.release().await.unwrap();
        let tx = waits.await.unwrap().unwrap();
        let waits = tokio::spawn({
            let locks = locks.clone();
            async move { locks.acquire(target("u1")).await }
        });
        until_waiting(&locks, 1).await;
        tx.rollback().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
    });
}

async fn a_timeout_of_acquire_in_leaves_the_transaction_usable(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_sql().await;
    with_pool!(database, pool => {
        let held = locks.acquire(target("u2/a1/r1")).await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        locks.acquire_in(&mut tx, [target("u3")]).await.unwrap();
        let several = [target("u1"), target("u2/a1/r1")];
        let request = locks.request_all(several.clone()).within(Duration::from_millis(60));
        let error = request.acquire_in(&mut tx).await.unwrap_err();
        assert!(error.is_timeout() && error.to_string().contains("`u2/a1/r1`"), "{error}");
        assert_state(&error, setup, TransactionState::KeepsSome);
        let error = locks.request_all(several).no_wait().acquire_in(&mut tx).await.unwrap_err();
        assert!(error.is_would_block(), "{error}");
        assert_state(&error, setup, TransactionState::KeepsSome);
        // As reported, PostgreSQL has released `u1`, and InnoDB keeps it until the transaction ends.
        let keeps_locks = setup.engine != Engine::Postgres;
        assert_eq!(!is_free(&locks, "u1").await, keeps_locks);
        assert!(!is_free(&locks, "u3").await);
        sqlx::raw_sql("SELECT 1").execute(&mut *tx).await.unwrap();
        held.release().await.unwrap();
        locks.acquire_in(&mut tx, [target("u2")]).await.unwrap();
        tx.commit().await.unwrap();
        assert!(is_free(&locks, "u1").await && is_free(&locks, "u2").await);
    });
}

fn assert_state(error: &hierlock::Error, setup: Setup, on_innodb: TransactionState) {
    let expected = match setup.engine {
        Engine::Postgres => TransactionState::AsBefore,
        _ => on_innodb,
    };
    assert_eq!(error.transaction_state(), Some(expected), "{error}");
}

/// Otherwise the statement would continue to wait, and the caller's next statement would wait for it.
async fn a_dropped_acquire_in_ends_its_wait(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_sql().await;
    with_pool!(database, pool => {
        let _held = locks.acquire(target("u1/a1/r1")).await.unwrap();
        for _ in 0..5 {
            let mut tx = pool.begin().await.unwrap();
            tokio::select! {
                taken = locks.acquire_in(&mut tx, [target("u1")]) => panic!("{taken:?}"),
                () = until_waiting(&locks, 1) => {}
            }
            let rollback = tokio::time::timeout(TEST_LIMIT, tx.rollback()).await;
            // The error of the cancelled statement may be read here.
            let _ = rollback.expect("the rollback did not return within the limit");
            assert!(is_free(&locks, "u1/a1/r2").await);
        }
        pool.close().await;
    });
    let mut outside = database.outside().await;
    until_no_lock_wait(&mut outside, setup).await;
}

async fn until_no_lock_wait(outside: &mut OutsideSession, setup: Setup) {
    let sql = match setup.engine {
        Engine::Postgres => "SELECT count(*)::text FROM pg_locks WHERE NOT granted",
        Engine::Mysql => "SELECT COUNT(*) FROM performance_schema.data_lock_waits",
        Engine::Mariadb => "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'",
    };
    // Other tests use the same server, so one moment without waits is enough.
    let polls = async {
        while outside.number(sql).await > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TEST_LIMIT, polls).await.expect("a lock wait did not end in time");
}

/// Runs a test with the connection type of the server's driver.
macro_rules! with_work {
    ($setup:expr, $work:ident::<$c:ident> => $test:expr) => {
        match $setup.engine {
            Engine::Postgres => {
                type $c = PgConnection;
                $test
            }
            _ => {
                type $c = MySqlConnection;
                $test
            }
        }
    };
}

/// Creates the table `numbers` with one row.
async fn with_numbers(database: &Database) -> OutsideSession {
    let mut outside = database.outside().await;
    outside.run("CREATE TABLE numbers (id INT PRIMARY KEY, value INT NOT NULL)").await;
    outside.run("INSERT INTO numbers VALUES (1, 10)").await;
    outside
}

const VALUE: &str = "SELECT value FROM numbers WHERE id = 1";

/// The failure this prevents: an acquire without a response left its statement unfinished on the connection. A ROLLBACK
/// there waited for responses that never came, or read those of other statements.
async fn a_rollback_on_a_stalled_connection_fails_at_once(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("silence_ms=500").await.as_sql().unwrap();
    let proxy = Proxy::start(database.bare_url()).await;
    let behind = hierlock::database::Database::connect(&proxy.url).await.unwrap();
    let mut tx = behind.begin().await.unwrap();
    proxy.set_mode(NetworkMode::Stalls);
    let error = locks.acquire_in(&mut tx, [target("u1")]).await.unwrap_err();
    assert_eq!(error.transaction_state(), Some(TransactionState::Gone), "{error}");
    let ended = tokio::time::timeout(TEST_LIMIT, tx.rollback())
        .await
        .expect("the rollback did not return within the limit");
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("the connection was given up"), "{error}");
    // The connection did not return to its pool.
    proxy.set_mode(NetworkMode::Passes);
    let mut tx = behind.begin().await.unwrap();
    locks.acquire_in(&mut tx, [target("u1")]).await.unwrap();
    tx.commit().await.unwrap();
    until_free(&locks, "u1").await;
}

async fn work_is_committed_with_the_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, mut outside) = (database.connect_sql().await, with_numbers(&database).await);
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    with_work!(setup, work::<C> => {
        for _ in 0..2 {
            let mut work = guard.transaction::<C>().await.unwrap();
            let add = "UPDATE numbers SET value = value + 1 WHERE id = 1";
            sqlx::raw_sql(add).execute(&mut *work).await.unwrap();
        }
    });
    assert_eq!(outside.number(VALUE).await, 10);
    assert!(!is_free(&locks, "u1").await);
    guard.commit().await.unwrap();
    assert_eq!(outside.number(VALUE).await, 12);
    assert!(is_free(&locks, "u1").await);
}

async fn work_is_rolled_back_with_the_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, mut outside) = (database.connect_sql().await, with_numbers(&database).await);
    for drops in [true, false] {
        let mut guard = locks.acquire(target("u1")).await.unwrap();
        with_work!(setup, work::<C> => {
            let mut work = guard.transaction::<C>().await.unwrap();
            sqlx::raw_sql("UPDATE numbers SET value = 0").execute(&mut *work).await.unwrap();
        });
        if drops {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        until_free(&locks, "u1").await;
        assert_eq!(outside.number(VALUE).await, 10);
    }
    // A request for the connection type of another driver fails, and the guard can still be released.
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    let error = match setup.engine {
        Engine::Postgres => guard.transaction::<MySqlConnection>().await.map(drop).unwrap_err(),
        _ => guard.transaction::<PgConnection>().await.map(drop).unwrap_err(),
    };
    assert!(error.to_string().contains(setup.engine.name()), "{error}");
    guard.release().await.unwrap();
}

async fn work_that_ends_the_transaction_loses_the_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, _outside) = (database.connect_sql().await, with_numbers(&database).await);
    for ending in ["COMMIT", "ROLLBACK"] {
        let mut guard = locks.acquire(target("u1")).await.unwrap();
        with_work!(setup, work::<C> => {
            let mut work = guard.transaction::<C>().await.unwrap();
            sqlx::raw_sql(ending).execute(&mut *work).await.unwrap();
        });
        let error = tokio::time::timeout(TEST_LIMIT, guard.lost()).await.unwrap();
        assert!(error.is_lost(), "{error}");
        assert!(guard.commit().await.unwrap_err().is_lost());
        assert!(is_free(&locks, "u1").await);
    }
}

async fn failed_work_is_not_committed(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, mut outside) = (database.connect_sql().await, with_numbers(&database).await);
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    with_work!(setup, work::<C> => {
        let mut work = guard.transaction::<C>().await.unwrap();
        sqlx::raw_sql("UPDATE numbers SET value = 11").execute(&mut *work).await.unwrap();
        let duplicate = "INSERT INTO numbers VALUES (1, 1)";
        sqlx::raw_sql(duplicate).execute(&mut *work).await.unwrap_err();
    });
    assert!(!is_free(&locks, "u1").await);
    let committed = guard.commit().await;
    // On InnoDB only the failed statement is rolled back, and the rest can be committed.
    match setup.engine {
        Engine::Postgres => {
            let error = committed.unwrap_err();
            assert!(error.to_string().contains("nothing was committed"), "{error}");
            assert_eq!(outside.number(VALUE).await, 10);
        }
        _ => {
            committed.unwrap();
            assert_eq!(outside.number(VALUE).await, 11);
        }
    }
    assert!(is_free(&locks, "u1").await);
}

/// A future that is dropped during a statement leaves it running. The statement is cancelled when the connection is returned
/// to the guard.
async fn dropped_work_keeps_the_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, _outside) = (database.connect_sql().await, with_numbers(&database).await);
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    let sleep = match setup.engine {
        Engine::Postgres => "SELECT pg_sleep(600)",
        _ => "SELECT SLEEP(600)",
    };
    with_work!(setup, work::<C> => {
        let mut work = guard.transaction::<C>().await.unwrap();
        let sleeps = sqlx::raw_sql(sleep).execute(&mut *work);
        assert!(tokio::time::timeout(Duration::from_millis(50), sleeps).await.is_err());
    });
    assert!(!is_free(&locks, "u1").await);
    guard.extend([target("u2")]).await.unwrap();
    guard.release().await.unwrap();
    assert!(is_free(&locks, "u1").await);
}

/// Even if the statement of a waiter was sent before another client got its token.
async fn fencing_tokens_ascend(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, others) = (database.connect_sql().await, database.connect_sql().await);
    let mut last = 0;
    for round in 0..5 {
        let first = locks.acquire(target("u1")).await.unwrap();
        let token = first.token().await.unwrap();
        assert!(token > last, "round {round}: {token} after {last}");
        assert!(first.token().await.unwrap() >= token);
        let waits = tokio::spawn({
            let others = others.clone();
            async move { others.acquire(target("u1")).await.unwrap() }
        });
        until_waiting(&others, 1).await;
        let other = locks.acquire(target("u2")).await.unwrap();
        let other_token = other.token().await.unwrap();
        first.release().await.unwrap();
        let second = waits.await.unwrap();
        last = second.token().await.unwrap();
        assert!(last > token && last > other_token, "round {round}");
    }
}
