//! Rows that are inserted when they are first locked.

use crate::support::{Database, Setup, TEST_LIMIT, target};
use hierlock::sql::Strategy;
use hierlock_sandbox::Engine;
use std::time::Duration;

/// The engines on which an INSERT waits for locks on the table.
const ENGINES: [Engine; 2] = [Engine::Mysql, Engine::Mariadb];

/// The failure this prevents: a `try` waited as long as the lock was held, in the INSERT of a row that another client had
/// just inserted and locked; and two extensions could wait for each other in their INSERTs, where no server detected a
/// deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_does_not_wait_for_an_insert() {
    for engine in ENGINES {
        let setup = Setup { engine, strategy: Strategy::OnDemand };
        let Some(database) = Database::new(setup).await else { continue };
        let locks = database.connect().await;
        let mut outside = database.outside().await;
        // On an empty table this blocks all inserts.
        outside.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await;
        outside.run("START TRANSACTION").await;
        let _ = outside.rows("SELECT lock_key FROM hier_locks FOR UPDATE").await;
        let tried = tokio::time::timeout(TEST_LIMIT, locks.try_acquire(target("u1"))).await;
        let tried =
            tried.unwrap_or_else(|_| panic!("{engine}: the try did not return in time")).unwrap();
        assert!(tried.is_none(), "{engine}: the try succeeded although the table is locked");
        // A waiting acquire waits longer than the timeout of one INSERT.
        let waits = locks.request(target("u1")).within(Duration::from_millis(700)).acquire().await;
        let error = waits.unwrap_err();
        assert!(error.is_timeout() && error.blocked_on() == Some(&target("u1")), "{error}");
        outside.run("ROLLBACK").await;
        let guard = tokio::time::timeout(TEST_LIMIT, locks.acquire(target("u1"))).await;
        let guard = guard.expect("the acquire of a free node did not return within the limit");
        guard.unwrap().release().await.unwrap();
    }
}
