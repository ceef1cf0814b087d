//! What a server refuses, and what is made of it: rows that are missing, waits that the server ends by
//! itself, deadlocks with others, and clients that do not agree.

use crate::support::{Database, GENEROUS, Outside, Setup, on_each_engine, on_every_setup, target};
use hierlock::sql::Strategy;
use hierlock::{Error, Hierarchy, Hierlock, Mode, Step};
use hierlock_conformance::until_waiting;
use hierlock_sandbox::Engine;
use std::time::{Duration, Instant};

on_every_setup!(a_missing_row_is_named_and_nothing_is_held, a_deadlock_with_others_is_tried_again);
on_each_engine!(who_does_not_agree_is_told_at_connect);

mod timeouts {
    crate::support::on_every_setup!(@ [a_wait_that_the_server_ends_goes_on]
        mysql: Mysql Striped,
        mysql_per_id: Mysql PerId,
        mariadb: Mariadb Striped,
        mariadb_per_id: Mariadb PerId,
    );
    use super::a_wait_that_the_server_ends_goes_on;
}

fn steps(locks: &Hierlock, paths: &[&str]) -> Vec<Step> {
    let targets = paths.iter().map(|path| target(path));
    locks.plan(targets, Mode::Exclusive).unwrap().steps().collect()
}

/// The condition that finds the row of a step, and its table.
fn row(setup: Setup, step: &Step) -> (&'static str, String) {
    match setup.strategy {
        Strategy::Striped => {
            let Step { level, slot, .. } = step;
            ("hier_lock_buckets", format!("level = {level} AND bucket = {slot}"))
        }
        _ => ("hier_locks", format!("lock_key = '{}'", step.target.key())),
    }
}

/// Half a lock excludes nobody: the acquire must fail as a whole, and say what to do.
async fn a_missing_row_is_named_and_nothing_is_held(setup: Setup) {
    // The others need no rows, or make them.
    if !matches!(setup.strategy, Strategy::Striped | Strategy::PerId) {
        return;
    }
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("connections=1").await;
    let mut outside = database.outside().await;
    let guard = locks.acquire(target("u1")).await.unwrap();
    let session = outside.the_busy_one().await;
    guard.release().await.unwrap();
    // Enough that they are a list, whose rows are only counted.
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
            let said = error.to_string();
            assert!(said.contains(&format!("level {level}")), "{said}");
            assert!(said.contains(&format!("`{node}`")), "{said}");
            if setup.strategy == Strategy::Striped {
                assert!(said.contains(&format!("bucket {slot}")), "{said}");
            }
            // A server may say for a moment that a session is at work whose answer is already here.
            outside.until_busy(0).await;
        }
        // An extension that fails so keeps what the guard had.
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
        assert_eq!(outside.the_busy_one().await, session, "not clean, or not kept");
        guard.release().await.unwrap();
    }
}

/// InnoDB ends a wait by itself (1205) and keeps the transaction with what it had taken. That is not the
/// caller's deadline: what was taken is given back, so that it stands in nobody's way, and the wait
/// begins again.
async fn a_wait_that_the_server_ends_goes_on(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("lock_wait_timeout=1").await;
    let mut outside = database.outside().await;
    let mut holder = database.outside().await;
    let mut steps = steps(&locks, &["u1/a1/r1", "u2"]);
    let (first, last) = (steps.remove(0), steps.pop().unwrap());
    holder.run("BEGIN").await;
    holder.run(&setup.by_hand(&last)).await;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire_all(["u1/a1/r1", "u2"].map(target)).await }
    });
    until_waiting(&locks, 1).await;
    // Somebody waits for what it has already taken, and gets it when it is given back: not before the
    // server has ended the wait.
    let mut between = database.outside().await;
    between.run("BEGIN").await;
    between.run(&setup.by_hand(&first)).await;
    assert!(!waiting.is_finished());
    between.run("ROLLBACK").await;
    holder.run("ROLLBACK").await;
    let guard = waiting.await.unwrap().unwrap();
    println!("{:?}", guard.statistics());
    assert!(guard.statistics().timeouts >= 1, "{:?}", guard.statistics());
    assert_eq!(guard.statistics().deadlocks, 0);
    guard.release().await.unwrap();

    // The caller's own deadline still ends it.
    holder.run("BEGIN").await;
    holder.run(&setup.by_hand(&last)).await;
    let begun = Instant::now();
    let request = locks.request_all(["u1/a1/r1", "u2"].map(target));
    let error = request.within(Duration::from_millis(1300)).acquire().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(1300), "{:?}", begun.elapsed());
    holder.run("ROLLBACK").await;
    outside.until_busy(0).await;
}

/// Whoever locks the same rows the other way round in a transaction of their own can deadlock with us. The
/// server ends one of the two; if it is ours, it begins again.
async fn a_deadlock_with_others_is_tried_again(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let mut other = database.outside().await;
    // PostgreSQL looks for a deadlock once, so long after a wait began. Then the other one must have come.
    if setup.engine == Engine::Postgres {
        let name = database.bare_url().rsplit('/').next().unwrap();
        other.run(&format!("ALTER DATABASE {name} SET deadlock_timeout = '2s'")).await;
        other.run("SET deadlock_timeout = '10s'").await;
    }
    let locks = database.connect().await;
    // On demand: the rows are there.
    locks.acquire_all(["u1", "u2"].map(target)).await.unwrap().release().await.unwrap();
    let steps = steps(&locks, &["u1", "u2"]);
    let [first, second] = &steps[..] else { panic!("{steps:?}") };
    // Ours is to be the victim: InnoDB prefers who has changed less, PostgreSQL who looks first.
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
        other.run(&setup.by_hand(second)).await;
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.acquire_all(["u1", "u2"].map(target)).await }
        });
        // It has the first, and waits for the second.
        until_waiting(&locks, 1).await;
        let crosses = other.try_run(&setup.by_hand(first)).await;
        let is_victim = crosses.is_ok();
        assert!(!is_victim || !waiting.is_finished());
        other.run("ROLLBACK").await;
        let guard = waiting.await.unwrap().unwrap();
        assert_eq!(guard.statistics().deadlocks, u32::from(is_victim));
        guard.release().await.unwrap();
        if is_victim {
            break;
        }
        // It has come too late all the same.
        assert_eq!(setup.engine, Engine::Postgres, "the other one was to win: {crosses:?}");
        assert!(begun.elapsed() < 4 * GENEROUS, "ours never was the victim");
    }
    database.outside().await.until_busy(0).await;
}

/// Each says in a sentence what differs. It is the server that is not as expected, not the call.
fn refused(error: &Error, says: &str) {
    let said = error.to_string();
    assert!(said.contains(says), "`{said}` does not say `{says}`");
    assert!(said.contains("127.0.0.1:"), "{said} does not name the server");
    assert!(!error.is_usage() && !error.is_retryable() && !error.is_not_provisioned(), "{said}");
}

async fn refuses(url: &str, says: &str) {
    refused(&Hierlock::connect(url).await.unwrap_err(), says);
}

async fn meta(outside: &mut Outside, assign: &str) {
    outside.run(&format!("UPDATE hier_lock_meta SET {assign} WHERE space = 'default'")).await;
}

/// A client that locks other rows than the rest would exclude nobody.
async fn who_does_not_agree_is_told_at_connect(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let mut outside = database.outside().await;
    let bare = database.url.split('?').next().unwrap();
    let agreed = setup.strategy.name();
    let with = |parameters: &str| format!("{bare}?{parameters}");

    if setup.strategy == Strategy::Advisory {
        // Nothing is written for keys, so there is nothing to differ from; but rows are not there.
        refuses(&with("strategy=striped"), "no lock table `hier_lock_buckets` yet").await;
        refuses(&with("strategy=per-id"), "no lock table `hier_locks` yet").await;
        return;
    }
    // Another strategy.
    let others: &[&str] = match setup.engine {
        Engine::Postgres => &["striped", "per-id", "on-demand", "advisory"],
        _ => &["striped", "per-id", "on-demand"],
    };
    for other in others.iter().filter(|other| **other != agreed) {
        let url = with(&format!("strategy={other}"));
        refuses(&url, &format!("agreed on the strategy {agreed}, not {other}")).await;
    }
    // Other levels.
    let levels = Hierarchy::new(["org", "team"]).unwrap();
    let error = Hierlock::connect_with(&database.url, levels).await.unwrap_err();
    refused(&error, "user/account/resource, not org/team");
    // Another version of the keys.
    meta(&mut outside, "key_version = 2").await;
    refuses(&database.url, "version 2 of the keys, not 1").await;
    meta(&mut outside, "key_version = 1").await;

    if setup.strategy == Strategy::Striped {
        refuses(&format!("{}&buckets=64", database.url), "4000 buckets, not 64").await;
        meta(&mut outside, "state = 'filling'").await;
        refuses(&database.url, "not filled yet; run `hierlock provision`").await;
        meta(&mut outside, "state = 'ready'").await;
        // Another name is another table, which nobody has made.
        refuses(&format!("{}&table=nobodys", database.url), "no lock table `nobodys` yet").await;
        if setup.engine != Engine::Postgres {
            outside.run("ALTER TABLE hier_lock_buckets ENGINE = MyISAM").await;
            refuses(&database.url, "a table of MyISAM, which has no row locks").await;
            outside.run("ALTER TABLE hier_lock_buckets ENGINE = InnoDB").await;
        }
        // The agreement is there, the table is not: also what comes later is told.
        let locks = database.connect().await;
        outside.run("ALTER TABLE hier_lock_buckets RENAME TO elsewhere").await;
        refuses(&database.url, "`hier_lock_buckets`, which is not there").await;
        let error = locks.acquire(target("u1")).await.unwrap_err();
        assert!(error.to_string().contains("hier_lock_buckets"), "{error}");
        outside.run("ALTER TABLE elsewhere RENAME TO hier_lock_buckets").await;
        drop(locks.acquire(target("u1")).await.unwrap());
    }
    // And now they agree again.
    drop(database.connect().await.acquire(target("u1")).await.unwrap());
}

/// What is said of a server ends up in logs.
#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    for scheme in ["mysql", "mariadb", "postgres"] {
        let url = format!("{scheme}://me:secret@127.0.0.1:1/x");
        let error = Hierlock::connect(&url).await.unwrap_err();
        refused(&error, "cannot connect");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        let url = format!("{scheme}://me:secret@127.0.0.1:port/x");
        let error = Hierlock::connect(&url).await.unwrap_err();
        assert!(error.is_usage() && !error.to_string().contains("secret"), "{error}");
    }
}
