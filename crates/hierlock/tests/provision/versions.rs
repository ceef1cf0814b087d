//! The version of the table of agreements.

use crate::striped;
use crate::support::{Database, Setup};
use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Target};
use hierlock_sandbox::{Engine, on_each_server};
use std::path::Path;

on_each_server! {
    provisioning_records_the_version,
    tables_of_an_older_release_are_adopted,
    a_newer_table_of_agreements_is_refused,
    tables_of_the_migration_files_are_filled,
}

const SELECT_VERSION: &str = "SELECT version FROM hier_schema_versions WHERE part = 'locks'";

async fn provisioning_records_the_version(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    for _ in 0..2 {
        database.provisioner("&buckets=64").await.run(|_| ()).await.unwrap();
        assert_eq!(database.outside().await.number(SELECT_VERSION).await, 1);
    }
    let on_demand = Setup { engine, strategy: Strategy::OnDemand };
    let Some(database) = Database::empty(on_demand).await else { return };
    let _ = database.connect().await;
    assert_eq!(database.outside().await.number(SELECT_VERSION).await, 1);
    // An administrator runs the printed script.
    let Some(database) = striped(engine).await else { return };
    let script = database.provisioner("&buckets=64").await.print_sql();
    database.outside().await.run(&script).await;
    assert_eq!(database.outside().await.number(SELECT_VERSION).await, 1);
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
    assert_eq!(outside.number(SELECT_VERSION).await, 1);
    guard.release().await.unwrap();
}

async fn a_newer_table_of_agreements_is_refused(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=64").await.run(|_| ()).await.unwrap();
    let provision = database.provisioner("").await;
    let mut outside = database.outside().await;
    outside.run("UPDATE hier_schema_versions SET version = 2").await;
    let why = "the locks tables are at version 2, made by a newer release of hierlock, and this one \
               knows only version 1; update this program";
    let error = provision.run(|_| ()).await.unwrap_err();
    assert!(error.to_string().contains(why), "{error}");
    // A client that can read the table works. A release with an incompatible table renames what older clients must
    // not read.
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

/// The migration files create the tables, and provisioning fills in the rows.
async fn tables_of_the_migration_files_are_filled(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    let name = if engine == Engine::Postgres { "postgres" } else { "mysql" };
    let file = format!("migrations/{name}/20260101000003_hierlock_locks_1.sql");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    // Ten million rows would take too long.
    let sql = std::fs::read_to_string(file).unwrap().replace("of_10000000", "of_64");
    let mut outside = database.outside().await;
    outside.run(&sql).await;
    let error = database.try_connect("").await.unwrap_err();
    assert!(error.to_string().contains("hierlock provision"), "{error}");
    let made = database.provisioner("&buckets=64").await.run(|_| ()).await.unwrap();
    assert_eq!((made.rows, made.inserted), (192, 192));
    database.assert_rows(64).await;
    database.try_connect("").await.unwrap();
}
