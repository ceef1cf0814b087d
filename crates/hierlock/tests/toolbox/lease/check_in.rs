//! The lease is checked in the transaction of the write.

use super::*;
use crate::servers::{OutsideSession, TEST_LIMIT};
use crate::support::on_every_engine;
use hierlock::lease::LeaseLoss;
use hierlock_sandbox::Engine;

on_every_engine! {
    a_write_fails_once_the_lease_is_lost,
    a_transaction_of_sqlx_can_check_a_lease,
    an_old_snapshot_does_not_hide_a_forced_release,
    a_forced_release_waits_for_a_checked_write,
    a_checked_write_is_protected_beyond_the_expiry,
    several_transactions_can_check_one_lease,
    a_failed_check_blocks_no_acquire,
    a_failed_check_at_repeatable_read_blocks_acquires_until_the_rollback,
}

async fn a_write_fails_once_the_lease_is_lost(store: Store) {
    let leases = provision_leases(&store).await;
    let lease = acquire(&leases, "u", "ada").await;
    let mut tx = store.database.begin().await.unwrap();
    lease.check_in(&mut tx).await.unwrap();
    leases.check_token_in(&mut tx, lease.token()).await.unwrap();
    tx.commit().await.unwrap();

    leases.force_release(lease.token(), "root", "holidays").await.unwrap().unwrap();
    let mut tx = store.database.begin().await.unwrap();
    for error in [
        lease.check_in(&mut tx).await.unwrap_err(),
        leases.check_token_in(&mut tx, lease.token()).await.unwrap_err(),
    ] {
        let Some(LeaseLoss::Forced { actor, .. }) = error.lost_lease() else { panic!("{error}") };
        assert_eq!(actor, "root");
    }
    tx.rollback().await.unwrap();

    let over = acquire_expired(&leases, "u", "ada").await;
    let mut tx = store.database.begin().await.unwrap();
    let error = over.check_in(&mut tx).await.unwrap_err();
    assert_eq!(error.lost_lease(), Some(&LeaseLoss::Expired { at: over.expires_at() }), "{error}");
    let error = leases.check_token_in(&mut tx, 1_000_000).await.unwrap_err();
    assert_eq!(error.lost_lease(), Some(&LeaseLoss::Gone), "{error}");
    tx.rollback().await.unwrap();
}

/// Runs an expression with a pool of sqlx for the engine.
macro_rules! with_pool {
    ($store:expr, $pool:ident => $run:expr) => {
        match $store.engine {
            TestEngine::Server(Engine::Postgres) => {
                let $pool = sqlx::PgPool::connect(&$store.url).await.unwrap();
                $run
            }
            TestEngine::Server(_) => {
                let url = $store.url.replacen("mariadb:", "mysql:", 1);
                let $pool = sqlx::MySqlPool::connect(&url).await.unwrap();
                $run
            }
            TestEngine::Sqlite => {
                let $pool = sqlx::SqlitePool::connect(&$store.url).await.unwrap();
                $run
            }
        }
    };
}

async fn a_transaction_of_sqlx_can_check_a_lease(store: Store) {
    let leases = provision_leases(&store).await;
    let lease = acquire(&leases, "u", "ada").await;
    with_pool!(store, pool => {
        let leases = Leases::new(pool.clone());
        let mut tx = pool.begin().await.unwrap();
        lease.check_in(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        leases.force_release(lease.token(), "root", "holidays").await.unwrap().unwrap();
        let mut tx = pool.begin().await.unwrap();
        assert!(lease.check_in(&mut tx).await.unwrap_err().is_lost());
        tx.rollback().await.unwrap();
    });
}

/// At REPEATABLE READ a plain read would still find the lease. The write must not be committed.
async fn an_old_snapshot_does_not_hide_a_forced_release(store: Store) {
    let leases = provision_leases(&store).await;
    store.run("CREATE TABLE notes (id BIGINT PRIMARY KEY)").await;
    let lease = acquire(&leases, "u", "ada").await;
    let isolation = match store.engine {
        TestEngine::Server(Engine::Postgres) => "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        _ => "SELECT 1",
    };
    with_pool!(store, pool => {
        let mut tx = pool.begin().await.unwrap();
        sqlx::query(isolation).execute(&mut *tx).await.unwrap();
        let seen: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM hier_leases").fetch_one(&mut *tx).await.unwrap();
        assert_eq!(seen, 1);
        leases.force_release(lease.token(), "root", "holidays").await.unwrap().unwrap();
        let checked = lease.check_in(&mut tx).await;
        if let (Err(error), TestEngine::Server(Engine::Mysql | Engine::Mariadb)) = (&checked, store.engine) {
            assert!(error.to_string().contains("root ended it"), "{error}");
        }
        if checked.is_ok() {
            // On SQLite the snapshot is old, so nothing can be written.
            let written = sqlx::query("INSERT INTO notes VALUES (1)").execute(&mut *tx).await;
            if written.is_ok() {
                let _ = tx.commit().await;
            }
        }
    });
    assert_eq!(store.number("SELECT COUNT(*) FROM notes").await, 0);
}

async fn a_forced_release_waits_for_a_checked_write(store: Store) {
    let leases = provision_leases(&store).await;
    let mut lease = acquire(&leases, "u", "ada").await;
    let mut tx = store.database.begin().await.unwrap();
    lease.check_in(&mut tx).await.unwrap();
    let forcing = {
        let (leases, token) = (other_client(&store).await, lease.token());
        tokio::spawn(async move { leases.force_release(token, "root", "at once!").await })
    };
    if let TestEngine::Server(_) = store.engine {
        OutsideSession::connect(&store.url).await.until_lock_wait().await;
    }
    let before = crate::support::number_in(&mut tx, &clock_of(store.engine)).await;
    tx.commit().await.unwrap();
    forcing.await.unwrap().unwrap().unwrap();
    let released = leases.audit(1).await.unwrap()[0].released;
    let released = released.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    assert!(released >= before, "ended {} ms before the transaction", before - released);
    assert!(lease.renew().await.unwrap_err().is_lost());
}

async fn a_checked_write_is_protected_beyond_the_expiry(store: Store) {
    let leases = provision_leases(&store).await;
    let lease = leases.acquire(request("u", "ada").ttl(Duration::from_secs(3))).await.unwrap();
    let mut tx = store.database.begin().await.unwrap();
    lease.check_in(&mut tx).await.unwrap();
    wait_until_expired(&leases, &lease).await;
    if let TestEngine::Server(_) = store.engine {
        let error = assert_refused(&leases, "u/a", "bob").await;
        let holder = error.lease_holder().unwrap();
        assert!(holder.is_expired && holder.token == lease.token(), "{holder:?}");
        assert!(error.to_string().contains("has checked it"), "{error}");
        assert_eq!(leases.sweep().await.unwrap(), 0);
    }
    tx.commit().await.unwrap();
    let _ = acquire(&leases, "u/a", "bob").await;
    assert_eq!(store.number("SELECT COUNT(*) FROM hier_leases").await, 1);
}

async fn several_transactions_can_check_one_lease(store: Store) {
    let TestEngine::Server(engine) = store.engine else { return };
    let leases = provision_leases(&store).await;
    let mut lease = acquire(&leases, "u", "ada").await;
    let mut one = store.database.begin().await.unwrap();
    let mut two = store.database.begin().await.unwrap();
    lease.check_in(&mut one).await.unwrap();
    lease.check_in(&mut two).await.unwrap();
    if engine == Engine::Postgres {
        lease.renew().await.unwrap();
        lease.check_in(&mut two).await.unwrap();
    }
    assert_refused(&leases, "u/a", "bob").await;
    one.commit().await.unwrap();
    two.commit().await.unwrap();
    assert!(lease.release().await.unwrap());
}

/// A token that never existed. For an old token MySQL and MariaDB may still find the deleted row.
const UNUSED_TOKEN: i64 = 1_000_000;

/// Starts an acquire of another client, while a transaction with a failed check is open.
async fn acquire_beside(store: &Store) -> tokio::task::JoinHandle<Lease> {
    let leases = other_client(store).await;
    tokio::spawn(async move { acquire(&leases, "v", "bob").await })
}

async fn a_failed_check_blocks_no_acquire(store: Store) {
    let TestEngine::Server(_) = store.engine else { return };
    let leases = provision_leases(&store).await;
    let mut tx = store.database.begin().await.unwrap();
    assert!(leases.check_token_in(&mut tx, UNUSED_TOKEN).await.unwrap_err().is_lost());
    let acquiring = acquire_beside(&store).await;
    let lease = tokio::time::timeout(TEST_LIMIT, acquiring).await;
    let lease = lease.expect("the acquire was blocked").unwrap();
    assert!(lease.release().await.unwrap());
    tx.rollback().await.unwrap();
}

/// MySQL and MariaDB lock the gap of a missing row, and a new lease is in that gap. The acquire waits for the rollback, as
/// documented, and then continues.
async fn a_failed_check_at_repeatable_read_blocks_acquires_until_the_rollback(store: Store) {
    let TestEngine::Server(Engine::Mysql | Engine::Mariadb) = store.engine else { return };
    let leases = provision_leases(&store).await;
    let pool =
        sqlx::MySqlPool::connect(&store.url.replacen("mariadb:", "mysql:", 1)).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert!(leases.check_token_in(&mut tx, UNUSED_TOKEN).await.unwrap_err().is_lost());
    let acquiring = acquire_beside(&store).await;
    OutsideSession::connect(&store.url).await.until_lock_wait().await;
    assert!(!acquiring.is_finished());
    tx.rollback().await.unwrap();
    let lease = tokio::time::timeout(TEST_LIMIT, acquiring).await;
    let lease = lease.expect("the acquire did not return after the rollback").unwrap();
    assert!(lease.release().await.unwrap());
}
