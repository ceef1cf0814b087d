//! Failures on servers: missing rows, lock wait timeouts, deadlocks with other SQL, and clients with other settings.

use crate::support::{
    Database, OutsideSession, Setup, TEST_LIMIT, on_each_engine, on_every_setup, target,
};
use hierlock::sql::Strategy;
use hierlock::{Error, Hierarchy, Hierlock, Mode, Step};
use hierlock_conformance::until_waiting;
use hierlock_sandbox::Engine;
use std::time::{Duration, Instant};

on_every_setup!(a_missing_row_is_named_and_nothing_is_held, a_deadlock_with_foreign_sql_is_retried);
on_each_engine!(a_client_with_other_settings_cannot_connect);

mod timeouts {
    crate::support::on_every_setup!(@ [a_wait_continues_after_a_timeout_of_the_server]
        mysql: Mysql Striped,
        mysql_per_id: Mysql PerId,
        mariadb: Mariadb Striped,
        mariadb_per_id: Mariadb PerId,
    );
    use super::a_wait_continues_after_a_timeout_of_the_server;
}

fn steps(locks: &Hierlock, paths: &[&str]) -> Vec<Step> {
    let targets = paths.iter().map(|path| target(path));
    locks.plan(targets, Mode::Exclusive).unwrap().steps().collect()
}

/// Returns the table and the condition of the row of a step.
fn row(setup: Setup, step: &Step) -> (&'static str, String) {
    match setup.strategy {
        Strategy::Striped => {
            let Step { level, slot, .. } = step;
            ("hier_lock_buckets", format!("level = {level} AND bucket = {slot}"))
        }
        _ => ("hier_locks", format!("lock_key = '{}'", step.target.key())),
    }
}

/// The acquire must fail as a whole, and the error must name the missing row.
async fn a_missing_row_is_named_and_nothing_is_held(setup: Setup) {
    // The other strategies need no rows, or insert them.
    if !matches!(setup.strategy, Strategy::Striped | Strategy::PerId) {
        return;
    }
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("connections=1").await;
    let mut outside = database.outside().await;
    let guard = locks.acquire(target("u1")).await.unwrap();
    let session = outside.busy_session().await;
    guard.release().await.unwrap();
    // Enough nodes that the statement uses a list, whose rows are only counted.
    let many = ["u1/a1/r1", "u1/a1/r2", "u1/a1/r3", "u1/a1/r4", "u1/a1/r5"];
    database.make_rows(&many.map(str::to_owned)).await;
    for missing in 0..3 {
        let steps = steps(&locks, &["u1/a1/r1"]);
        let (table, condition) = row(setup, &steps[missing]);
        outside.run(&format!("DELETE FROM {table} WHERE {condition}")).await;
        let few = ["u1/a1/r1", "u7"];
        for (paths, is_try) in [(&few[..], false), (&few, true), (&many, false), (&many, true)] {
            let request = locks.request_all(paths.iter().map(|path| target(path)));
            let error = if is_try {
                request.try_acquire().await.map(drop).unwrap_err()
            } else {
                request.acquire().await.unwrap_err()
            };
            let Step { level, slot, target: node, .. } = &steps[missing];
            assert!(error.is_not_provisioned() && !error.is_retryable(), "{error}");
            let message = error.to_string();
            assert!(message.contains(&format!("level {level}")), "{message}");
            assert!(message.contains(&format!("`{node}`")), "{message}");
            if setup.strategy == Strategy::Striped {
                assert!(message.contains(&format!("bucket {slot}")), "{message}");
            }
            // A server may list a session as active for a moment after its response has arrived.
            outside.until_busy(0).await;
        }
        // After a failed extension the guard holds what it held before.
        if setup.engine == Engine::Postgres {
            let mut guard = locks.acquire(target("u8")).await.unwrap();
            assert!(guard.extend([target("u1/a1/r1")]).await.unwrap_err().is_not_provisioned());
            assert_eq!(guard.modes().len(), 1);
            guard.release().await.unwrap();
        }
        let insert = match setup.strategy {
            Strategy::Striped => format!(
                "INSERT INTO {table} (level, bucket) VALUES ({}, {})",
                steps[missing].level, steps[missing].slot
            ),
            _ => format!("INSERT INTO {table} VALUES ('{}')", steps[missing].target.key()),
        };
        outside.run(&insert).await;
        let guard = locks.acquire(target("u1/a1/r1")).await.unwrap();
        assert_eq!(
            outside.busy_session().await,
            session,
            "expected the guard on the first session, and no other busy session"
        );
        guard.release().await.unwrap();
    }
}

/// InnoDB ends a wait by its own timeout (1205) and keeps the transaction with its locks. The caller's deadline is not over,
/// so the client releases the locks, which would block others, and starts the wait again.
async fn a_wait_continues_after_a_timeout_of_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("lock_wait_timeout=1").await;
    let mut outside = database.outside().await;
    let mut holder = database.outside().await;
    let mut steps = steps(&locks, &["u1/a1/r1", "u2"]);
    let (first, last) = (steps.remove(0), steps.pop().unwrap());
    holder.run("BEGIN").await;
    holder.run(&setup.lock_statement(&last)).await;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire_all(["u1/a1/r1", "u2"].map(target)).await }
    });
    until_waiting(&locks, 1).await;
    // Another session waits for the first row of the acquire. It gets the row when the server has ended the wait.
    let mut second_waiter = database.outside().await;
    second_waiter.run("BEGIN").await;
    second_waiter.run(&setup.lock_statement(&first)).await;
    assert!(!waiting.is_finished());
    second_waiter.run("ROLLBACK").await;
    holder.run("ROLLBACK").await;
    let guard = waiting.await.unwrap().unwrap();
    println!("{:?}", guard.statistics());
    assert!(guard.statistics().timeouts >= 1, "{:?}", guard.statistics());
    assert_eq!(guard.statistics().deadlocks, 0);
    guard.release().await.unwrap();

    // The caller's own deadline still applies.
    holder.run("BEGIN").await;
    holder.run(&setup.lock_statement(&last)).await;
    let begun = Instant::now();
    let request = locks.request_all(["u1/a1/r1", "u2"].map(target));
    let error = request.within(Duration::from_millis(1300)).acquire().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(1300), "ended after {:?}", begun.elapsed());
    holder.run("ROLLBACK").await;
    outside.until_busy(0).await;
}

/// SQL that locks the same rows in the opposite order can deadlock with an acquire. The server rolls one of the two back. If
/// it is the acquire, the client retries it.
async fn a_deadlock_with_foreign_sql_is_retried(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let mut other = database.outside().await;
    // PostgreSQL checks for a deadlock once, `deadlock_timeout` after a wait began. The other session must wait by then.
    if setup.engine == Engine::Postgres {
        let name = database.bare_url().rsplit('/').next().unwrap();
        other.run(&format!("ALTER DATABASE {name} SET deadlock_timeout = '2s'")).await;
        other.run("SET deadlock_timeout = '10s'").await;
    }
    let locks = database.connect().await;
    // With on-demand this inserts the rows.
    locks.acquire_all(["u1", "u2"].map(target)).await.unwrap().release().await.unwrap();
    let steps = steps(&locks, &["u1", "u2"]);
    let [first, second] = &steps[..] else { panic!("{steps:?}") };
    // The acquire should be the victim: InnoDB chooses the transaction with fewer changes, PostgreSQL the session that
    // checks first.
    let weight = match setup.engine {
        Engine::Postgres => String::new(),
        _ => {
            other.run("CREATE TABLE heavy (n INT PRIMARY KEY)").await;
            let rows: Vec<String> = (0..500).map(|n| format!("({n})")).collect();
            format!("INSERT INTO heavy VALUES {}", rows.join(","))
        }
    };
    let begun = Instant::now();
    loop {
        other.run("BEGIN").await;
        if !weight.is_empty() {
            other.run(&weight).await;
        }
        other.run(&setup.lock_statement(second)).await;
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.acquire_all(["u1", "u2"].map(target)).await }
        });
        // The acquire holds the first row and waits for the second.
        until_waiting(&locks, 1).await;
        let other_result = other.try_run(&setup.lock_statement(first)).await;
        let is_victim = other_result.is_ok();
        assert!(!is_victim || !waiting.is_finished());
        other.run("ROLLBACK").await;
        let guard = waiting.await.unwrap().unwrap();
        assert_eq!(guard.statistics().deadlocks, u32::from(is_victim));
        guard.release().await.unwrap();
        if is_victim {
            break;
        }
        // The other session waited too late and became the victim.
        assert_eq!(setup.engine, Engine::Postgres, "the other session failed: {other_result:?}");
        assert!(begun.elapsed() < 4 * TEST_LIMIT, "the acquire was never the victim");
    }
    database.outside().await.until_busy(0).await;
}

/// Checks that the message of an error contains `expected` and the server, and that the error is not classified as a wrong
/// call.
fn assert_refused(error: &Error, expected: &str) {
    let message = error.to_string();
    assert!(message.contains(expected), "`{message}` does not contain `{expected}`");
    assert!(message.contains("127.0.0.1:"), "`{message}` does not name the server");
    assert!(!error.is_usage() && !error.is_retryable() && !error.is_not_provisioned(), "{message}");
}

async fn assert_connect_is_refused(url: &str, expected: &str) {
    assert_refused(&Hierlock::connect(url).await.unwrap_err(), expected);
}

async fn update_meta(outside: &mut OutsideSession, assign: &str) {
    outside.run(&format!("UPDATE hier_lock_meta SET {assign} WHERE space = 'default'")).await;
}

/// A client with other settings would lock other rows, and exclude nobody.
async fn a_client_with_other_settings_cannot_connect(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let mut outside = database.outside().await;
    let bare = database.url.split('?').next().unwrap();
    let agreed = setup.strategy.name();
    let with = |parameters: &str| format!("{bare}?{parameters}");

    if setup.strategy == Strategy::Advisory {
        // Advisory keys store no agreement, so it cannot differ. But the tables of other strategies do not exist.
        assert_connect_is_refused(
            &with("strategy=striped"),
            "no lock table `hier_lock_buckets` yet",
        )
        .await;
        assert_connect_is_refused(&with("strategy=per-id"), "no lock table `hier_locks` yet").await;
        return;
    }
    // Another strategy.
    let others: &[&str] = match setup.engine {
        Engine::Postgres => &["striped", "per-id", "on-demand", "advisory"],
        _ => &["striped", "per-id", "on-demand"],
    };
    for other in others.iter().filter(|other| **other != agreed) {
        let url = with(&format!("strategy={other}"));
        assert_connect_is_refused(&url, &format!("agreed on the strategy {agreed}, not {other}"))
            .await;
    }
    // Other levels.
    let levels = Hierarchy::new(["org", "team"]).unwrap();
    let error = Hierlock::connect_with(&database.url, levels).await.unwrap_err();
    assert_refused(&error, "user/account/resource, not org/team");
    // Another version of the keys.
    update_meta(&mut outside, "key_version = 2").await;
    assert_connect_is_refused(&database.url, "version 2 of the keys, not 1").await;
    update_meta(&mut outside, "key_version = 1").await;

    if setup.strategy == Strategy::Striped {
        assert_connect_is_refused(&format!("{}&buckets=64", database.url), "4000 buckets, not 64")
            .await;
        update_meta(&mut outside, "state = 'filling'").await;
        assert_connect_is_refused(&database.url, "not filled yet; run `hierlock provision`").await;
        update_meta(&mut outside, "state = 'ready'").await;
        // Another name is another table, which does not exist.
        assert_connect_is_refused(
            &format!("{}&table=nobodys", database.url),
            "no lock table `nobodys` yet",
        )
        .await;
        if setup.engine != Engine::Postgres {
            outside.run("ALTER TABLE hier_lock_buckets ENGINE = MyISAM").await;
            assert_connect_is_refused(&database.url, "a table of MyISAM, which has no row locks")
                .await;
            outside.run("ALTER TABLE hier_lock_buckets ENGINE = InnoDB").await;
        }
        // The agreement exists, but the table does not. Errors after connecting name the table too.
        let locks = database.connect().await;
        outside.run("ALTER TABLE hier_lock_buckets RENAME TO elsewhere").await;
        assert_connect_is_refused(&database.url, "`hier_lock_buckets`, which does not exist").await;
        let error = locks.acquire(target("u1")).await.unwrap_err();
        assert!(error.to_string().contains("hier_lock_buckets"), "{error}");
        outside.run("ALTER TABLE elsewhere RENAME TO hier_lock_buckets").await;
        drop(locks.acquire(target("u1")).await.unwrap());
    }
    // The agreement is as before, so clients can connect again.
    drop(database.connect().await.acquire(target("u1")).await.unwrap());
}

/// Error messages end up in logs.
#[tokio::test]
async fn an_unreachable_server_is_named_without_the_password() {
    for scheme in ["mysql", "mariadb", "postgres"] {
        let url = format!("{scheme}://me:secret@127.0.0.1:1/x");
        let error = Hierlock::connect(&url).await.unwrap_err();
        assert_refused(&error, "cannot connect");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        let url = format!("{scheme}://me:secret@127.0.0.1:port/x");
        let error = Hierlock::connect(&url).await.unwrap_err();
        assert!(error.is_usage() && !error.to_string().contains("secret"), "{error}");
    }
}
