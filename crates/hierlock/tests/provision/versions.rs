//! The schema version of the table of agreements.

use crate::striped;
use crate::support::{Database, Setup};
use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Target};
use hierlock_sandbox::{Engine, on_each_server};
use std::path::Path;

on_each_server! {
    provisioning_records_the_version,
    tables_of_version_1_are_locked_and_upgraded,
    tables_of_an_older_release_are_adopted,
    a_newer_table_of_agreements_is_refused,
    tables_of_the_migration_files_are_filled,
}

const SELECT_VERSION: &str = "SELECT version FROM hier_schema_versions WHERE part = 'locks'";

/// The schema version of this release.
const NEWEST: i64 = 2;

async fn provisioning_records_the_version(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    for _ in 0..2 {
        database.provisioner("&buckets=64").await.run(|_| ()).await.unwrap();
        assert_eq!(database.outside().await.number(SELECT_VERSION).await, NEWEST);
    }
    let on_demand = Setup { engine, strategy: Strategy::OnDemand };
    let Some(database) = Database::empty(on_demand).await else { return };
    let _ = database.connect().await;
    assert_eq!(database.outside().await.number(SELECT_VERSION).await, NEWEST);
    // An administrator runs the printed script.
    let Some(database) = striped(engine).await else { return };
    let script = database.provisioner("&buckets=64").await.print_sql();
    database.outside().await.run(&script).await;
    assert_eq!(database.outside().await.number(SELECT_VERSION).await, NEWEST);
}

async fn tables_of_an_older_release_are_adopted(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=64").await.run(|_| ()).await.unwrap();
    let mut outside = database.outside().await;
    outside.run("DROP TABLE hier_schema_versions").await;
    // Clients work without a version.
    let locks = database.try_connect("").await.unwrap();
    let guard = locks.acquire(Target::user("u1").unwrap()).await.unwrap();
    let again = database.provisioner("").await.run(|_| ()).await.unwrap();
    assert_eq!((again.rows, again.inserted), (192, 0));
    assert_eq!(outside.number(SELECT_VERSION).await, NEWEST);
    guard.release().await.unwrap();
}

/// Version 1 had no table of labels. Holds work without it, and provisioning creates it.
async fn tables_of_version_1_are_locked_and_upgraded(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=64").await.run(|_| ()).await.unwrap();
    let mut outside = database.outside().await;
    outside.run("UPDATE hier_schema_versions SET version = 1 WHERE part = 'locks'").await;
    let has_labels = engine != Engine::Postgres;
    if has_labels {
        outside.run("DROP TABLE hier_lock_sessions").await;
    }
    let locks = database.try_connect("").await.unwrap();
    let guard = locks.acquire(Target::user("u1").unwrap()).await.unwrap();
    let again = database.provisioner("").await.run(|_| ()).await.unwrap();
    assert_eq!((again.rows, again.inserted), (192, 0));
    assert_eq!(outside.number(SELECT_VERSION).await, NEWEST);
    if has_labels {
        assert_eq!(outside.number("SELECT COUNT(*) FROM hier_lock_sessions").await, 0);
    }
    guard.release().await.unwrap();
}

async fn a_newer_table_of_agreements_is_refused(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=64").await.run(|_| ()).await.unwrap();
    let provision = database.provisioner("").await;
    let mut outside = database.outside().await;
    outside.run("UPDATE hier_schema_versions SET version = 3").await;
    let why = "the locks tables are at version 3, made by a newer release of hierlock, and this one \
               knows only version 2; update this program";
    let error = provision.run(|_| ()).await.unwrap_err();
    assert!(error.to_string().contains(why), "{error}");
    // Clients that can read the table work. A release with an incompatible table renames the columns that older clients
    // must not read.
    database.try_connect("").await.unwrap();
    outside.run("ALTER TABLE hier_lock_meta RENAME COLUMN levels TO tree").await;
    for error in [
        database.try_connect("").await.unwrap_err(),
        database.try_connect("&table=other").await.unwrap_err(),
        Provision::connect(&database.url, Hierarchy::default()).await.unwrap_err(),
        provision.check(|_| ()).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// The migration files create the tables, and provisioning inserts the rows.
async fn tables_of_the_migration_files_are_filled(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    let name = if engine == Engine::Postgres { "postgres" } else { "mysql" };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(name);
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.to_string_lossy().contains("_hierlock_locks_")).collect();
    files.sort();
    let mut outside = database.outside().await;
    for file in files {
        // Ten million rows would take too long.
        let sql = std::fs::read_to_string(file).unwrap().replace("of_10000000", "of_64");
        outside.run(&sql).await;
    }
    let error = database.try_connect("").await.unwrap_err();
    assert!(error.to_string().contains("hierlock provision"), "{error}");
    let report = database.provisioner("&buckets=64").await.run(|_| ()).await.unwrap();
    assert_eq!((report.rows, report.inserted), (192, 192));
    database.assert_rows(64).await;
    database.try_connect("").await.unwrap();
}
