//! Filling, checking and repairing a lock table.

use crate::striped;
use crate::support::{Database, Setup};
use hierlock::sql::{Provision, ProvisionPhase, RowRange, Strategy};
use hierlock::{Buckets, Hierarchy, Target};
use hierlock_sandbox::{Engine, Sandbox, on_each_server};
use std::sync::Mutex;
use std::time::{Duration, Instant};

on_each_server! {
    a_table_is_filled_exactly_once,
    a_table_that_is_not_ready_is_refused,
    an_error_names_the_setting_that_differs,
    missing_rows_are_reported_and_repaired,
    a_repair_does_not_wait_for_holders,
    the_printed_sql_fills_the_same_table,
    the_estimated_size_is_close_to_the_real_size,
    the_rate_limit_is_respected,
    only_one_provisioner_runs_at_a_time,
}

async fn a_table_is_filled_exactly_once(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    // The number of rows is no multiple of the chunk size or of the connections.
    let provision = database.provisioner("&buckets=2503").await.chunk_rows(100).connections(3);
    let events = Mutex::new(Vec::new());
    let report = provision.run(|progress| events.lock().unwrap().push(progress)).await.unwrap();
    assert_eq!((report.rows, report.inserted), (3 * 2503, 3 * 2503));
    database.assert_rows(2503).await;
    let events = events.into_inner().unwrap();
    let filling = events.iter().filter(|event| event.phase == ProvisionPhase::Filling);
    let max_done = filling.map(|event| event.done).max();
    assert_eq!((max_done, events[0].total), (Some(3 * 2503), 3 * 2503));
    assert!(provision.check(|_| ()).await.unwrap().is_clean());

    let report = database.provisioner("").await.run(|_| ()).await.unwrap();
    assert_eq!(
        (report.rows, report.inserted),
        (3 * 2503, 0),
        "`rows` must count the rows of the table, not the inserted ones"
    );
    let locks = database.connect().await;
    drop(locks.acquire(Target::resource("u1", "a1", "r1").unwrap()).await.unwrap());
}

async fn a_table_that_is_not_ready_is_refused(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    let message = database.try_connect("").await.unwrap_err().to_string();
    assert!(message.contains("hierlock provision"), "{message}");
    let provision = database.provisioner("&buckets=500").await.chunk_rows(10);
    // The future is dropped when it has filled some rows.
    let partly_done = tokio::sync::Notify::new();
    tokio::select! {
        _ = provision.run(|progress| if progress.done > 300 { partly_done.notify_one() }) => {
            panic!("the run completed before it was dropped")
        }
        () = partly_done.notified() => {}
    }
    let message = database.try_connect("").await.unwrap_err().to_string();
    assert!(message.contains("not filled yet"), "{message}");
    assert!(!database.check().await.is_ready);
    database.provisioner("").await.run(|_| ()).await.unwrap();
    database.assert_rows(500).await;
    database.connect().await;
}

async fn an_error_names_the_setting_that_differs(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=100").await.run(|_| ()).await.unwrap();
    let other = database.provisioner("&buckets=64").await;
    let message = other.run(|_| ()).await.unwrap_err().to_string();
    assert!(message.contains("100 buckets, not 64"), "{message}");
    assert!(message.contains("--rebucket 64"), "{message}");
    let levels = Hierarchy::new(["org", "team"]).unwrap();
    let other = Provision::connect(&database.url, levels).await.unwrap();
    let message = other.run(|_| ()).await.unwrap_err().to_string();
    assert!(message.contains("user/account/resource, not org/team"), "{message}");
    let by_id = database.url.replace("striped", "per-id");
    let other = Provision::connect(&by_id, Hierarchy::default()).await.unwrap();
    let message = other.run(|_| ()).await.unwrap_err().to_string();
    assert!(message.contains("striped, not per-id"), "{message}");
    // Another table is independent.
    let beside = database.provisioner("&table=beside&buckets=7").await;
    assert_eq!(beside.run(|_| ()).await.unwrap().inserted, 21);
    database.assert_rows(100).await;
}

async fn missing_rows_are_reported_and_repaired(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=5000").await.run(|_| ()).await.unwrap();
    let mut outside = database.outside().await;
    for sql in [
        "DELETE FROM hier_lock_buckets WHERE level = 1 AND bucket BETWEEN 1000 AND 1999",
        "DELETE FROM hier_lock_buckets WHERE level = 1 AND bucket = 5",
        "DELETE FROM hier_lock_buckets WHERE level = 2 AND bucket >= 4990",
        "DELETE FROM hier_lock_buckets WHERE level = 0 AND bucket % 2 = 0 AND bucket < 300",
        "INSERT INTO hier_lock_buckets (level, bucket) VALUES (2, 5000), (3, 0)",
    ] {
        outside.run(sql).await;
    }
    // Chunk boundaries fall into the missing ranges.
    let provision = database.provisioner("").await.chunk_rows(700);
    let check = provision.check(|_| ()).await.unwrap();
    let range = |level, first, last| RowRange { level, first, last };
    let mut expected: Vec<RowRange> = (0..150).map(|n| range(0, 2 * n, 2 * n)).collect();
    expected.extend([range(1, 5, 5), range(1, 1000, 1999), range(2, 4990, 4999)]);
    assert_eq!(check.missing, expected);
    assert_eq!((check.missing_rows, check.extra_rows), (150 + 1001 + 10, 2));
    assert_eq!((check.buckets, &check.rows[..]), (5000, &[4850, 3999, 4990][..]));
    assert!(!check.is_clean());

    let report = provision.repair(|_| ()).await.unwrap();
    assert_eq!(report.inserted, 150 + 1001 + 10);
    let check = provision.check(|_| ()).await.unwrap();
    assert_eq!((check.missing_rows, check.extra_rows), (0, 2));
    outside.run("DELETE FROM hier_lock_buckets WHERE bucket = 5000 OR level = 3").await;
    assert!(database.check().await.is_clean());
}

/// A holder has locked a row in a chunk with missing rows. On InnoDB, an INSERT of the existing row would wait for the
/// holder.
async fn a_repair_does_not_wait_for_holders(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=1000").await.run(|_| ()).await.unwrap();
    let locks = database.connect().await;
    let guard = locks.acquire(Target::user("u1").unwrap()).await.unwrap();
    let bucket = Target::user("u1").unwrap().bucket(Buckets::new(1000).unwrap());
    let delete = format!(
        "DELETE FROM hier_lock_buckets WHERE level = 0 AND bucket IN ({}, {})",
        bucket - 1,
        bucket + 1
    );
    database.outside().await.run(&delete).await;
    let provision = database.provisioner("").await;
    let report = tokio::time::timeout(crate::support::TEST_LIMIT, provision.repair(|_| ())).await;
    assert_eq!(report.expect("the repair did not return within the limit").unwrap().inserted, 2);
    guard.release().await.unwrap();
    assert!(database.check().await.is_clean());
}

async fn the_printed_sql_fills_the_same_table(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    let provision = database.provisioner("&buckets=1234").await.chunk_rows(500);
    let script = provision.print_sql();
    for _ in 0..2 {
        database.outside().await.run(&script).await;
        database.assert_rows(1234).await;
    }
    assert!(provision.check(|_| ()).await.unwrap().is_clean());
    assert_eq!(provision.run(|_| ()).await.unwrap().inserted, 0);
    database.connect().await;
}

async fn the_estimated_size_is_close_to_the_real_size(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    let provision = database.provisioner("&buckets=100000").await;
    let estimate = provision.prediction();
    assert_eq!(estimate.rows, 300_000);
    provision.run(|_| ()).await.unwrap();
    let mut outside = database.outside().await;
    let bytes = match engine {
        Engine::Postgres => {
            outside.number("SELECT pg_total_relation_size('hier_lock_buckets')").await
        }
        _ => {
            outside.rows("ANALYZE TABLE hier_lock_buckets").await;
            let sql = "SELECT DATA_LENGTH FROM information_schema.TABLES WHERE \
                       TABLE_NAME = 'hier_lock_buckets' AND TABLE_SCHEMA = DATABASE()";
            outside.number(sql).await
        }
    };
    let ratio = bytes as f64 / estimate.bytes as f64;
    assert!((0.8..1.25).contains(&ratio), "{bytes} bytes, estimated {}", estimate.bytes);
}

async fn the_rate_limit_is_respected(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    let provision = database.provisioner("&buckets=1000").await.max_rows_per_second(Some(2000));
    let begun = Instant::now();
    provision.run(|_| ()).await.unwrap();
    // 3000 rows take 1.5 seconds, or an eighth of a second less without the pause after the last chunk.
    assert!(begun.elapsed() >= Duration::from_millis(1300), "it took only {:?}", begun.elapsed());
    database.assert_rows(1000).await;
    assert!(database.check().await.is_clean());
}

async fn only_one_provisioner_runs_at_a_time(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    let one = database.provisioner("&buckets=20000").await.chunk_rows(1000);
    let two = database.provisioner("&buckets=20000").await.chunk_rows(700);
    let (one, two) = tokio::join!(one.run(|_| ()), two.run(|_| ()));
    // The second provisioner waited for the first, and found all rows.
    let mut inserted = [one.unwrap().inserted, two.unwrap().inserted];
    inserted.sort_unstable();
    assert_eq!(inserted, [0, 60_000]);
    database.assert_rows(20_000).await;
}

#[tokio::test]
async fn a_table_without_row_locks_is_refused() {
    for engine in [Engine::Mysql, Engine::Mariadb] {
        let Some(database) = striped(engine).await else { continue };
        let create = "CREATE TABLE hier_lock_buckets (level TINYINT UNSIGNED, bucket INT UNSIGNED, \
                      of_100 BOOLEAN, PRIMARY KEY (level, bucket)) ENGINE = MyISAM";
        database.outside().await.run(create).await;
        let provision = database.provisioner("&buckets=100").await;
        let message = provision.run(|_| ()).await.unwrap_err().to_string();
        assert!(message.contains("MyISAM") && message.contains("InnoDB"), "{message}");
    }
}

#[tokio::test]
async fn an_incompatible_table_is_not_changed() {
    let Some(database) = striped(Engine::Mariadb).await else { return };
    let create =
        "CREATE TABLE hier_lock_buckets (level INT, bucket INT, PRIMARY KEY (level, bucket))";
    database.outside().await.run(create).await;
    let provision = database.provisioner("&buckets=100").await;
    let message = provision.run(|_| ()).await.unwrap_err().to_string();
    assert!(message.contains("ADD COLUMN of_100 BOOLEAN"), "{message}");
    database.outside().await.run("ALTER TABLE hier_lock_buckets ADD COLUMN of_100 BOOLEAN").await;
    assert_eq!(provision.run(|_| ()).await.unwrap().inserted, 300);
    database.connect().await;
}

#[tokio::test]
async fn advisory_keys_need_no_provisioning() {
    let setup = Setup { engine: Engine::Postgres, strategy: Strategy::Advisory };
    let Some(database) = Database::empty(setup).await else { return };
    let bare = database.url.split('?').next().unwrap();
    for url in [bare, &database.url] {
        let error = Provision::connect(url, Hierarchy::default()).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("?strategy=striped"), "{error}");
    }
}

/// Provisioning uses the sequence engine of MariaDB, but a server can be started without it.
#[tokio::test]
async fn mariadb_without_the_sequence_engine_is_filled() {
    let options = ["--sequence=OFF"];
    let Some(sandbox) = Sandbox::for_tests_with(Engine::Mariadb, &options) else { return };
    let setup = Setup { engine: Engine::Mariadb, strategy: Strategy::Striped };
    let url = format!("{}?strategy=striped", sandbox.url());
    let database = Database { setup, url };
    let provision = database.provisioner("&buckets=5000").await.chunk_rows(2_000);
    assert!(!provision.print_sql().contains("seq_0"), "{}", provision.print_sql());
    provision.run(|_| ()).await.unwrap();
    database.assert_rows(5_000).await;
    // Fewer buckets: surplus rows are found by generated numbers too.
    let fewer = Buckets::new(3_000).unwrap();
    database.provisioner("").await.rebucket(fewer, |_| ()).await.unwrap();
    database.assert_rows(3_000).await;
}
