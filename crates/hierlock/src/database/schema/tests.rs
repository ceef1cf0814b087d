//! Tests of an upgrade to a second version, which no part has yet: leases with a step that renames a column and adds one.

use super::{Database, Driver, Schema};
use crate::error::Error;
use crate::lease::{Lease, LeaseFilter, LeaseRequest, Leases, SCHEMA};
use hierlock_sandbox::{Engine, Server, on_each_server};

/// The lease tables of an imaginary later release.
const LATER: Schema = Schema { steps: &[SCHEMA.steps[0], second_step], ..SCHEMA };

/// The ALTERs are skipped if they are run again, but the UPDATE is not: so the color shows how often the step was run.
fn second_step(_: Driver) -> Vec<String> {
    let statements = [
        "ALTER TABLE hier_leases RENAME COLUMN reason TO note",
        "ALTER TABLE hier_leases ADD COLUMN color BIGINT",
        "UPDATE hier_leases SET color = COALESCE(color, 6) + 1",
    ];
    statements.map(str::to_owned).to_vec()
}

/// A step that fails after the first statement of [`second_step`].
const INTERRUPTED: Schema = Schema {
    steps: &[SCHEMA.steps[0], |driver| {
        let first = second_step(driver).swap_remove(0);
        vec![first, "SELECT this IS no statement".to_owned()]
    }],
    ..SCHEMA
};

async fn lease(database: &Database, path: &str) -> Result<Lease, Error> {
    let request = LeaseRequest::new(path.parse().unwrap(), "ada").reason("edits");
    Leases::new(database.clone()).acquire(request).await
}

async fn number(database: &Database, sql: &str) -> i64 {
    database.query(sql, []).await.unwrap()[0].int(0).unwrap()
}

async fn version(database: &Database) -> i64 {
    number(database, &SCHEMA.version_query()).await
}

async fn upgrade(database: &Database) {
    LATER.provision(database).await.unwrap();
    assert_eq!(version(database).await, 2);
}

async fn run(database: &Database, sql: &str) {
    let mut tx = database.begin().await.unwrap();
    tx.run(sql).await.unwrap();
    tx.commit().await.unwrap();
}

/// Reads a column that the first version does not have, like a client of the later release.
async fn read_color(database: &Database) -> Result<Vec<crate::database::Row>, Error> {
    database.fetch(LATER.failed("read a color"), "SELECT color FROM hier_leases", &[]).await
}

async fn an_upgrade_keeps_the_rows(database: &Database) {
    let leases = Leases::new(database.clone());
    leases.provision().await.unwrap();
    let token = lease(database, "u1").await.unwrap().token();
    assert_eq!(version(database).await, 1);

    let older = read_color(database).await.unwrap_err();
    assert!(older.is_not_provisioned() && !older.is_newer_schema(), "{older}");
    assert_eq!(
        older.to_string(),
        "the lease tables are at version 1, and this release of hierlock needs version 2; \
         run `hierlock lease provision`"
    );

    upgrade(database).await;
    let count = "SELECT COUNT(*) FROM hier_leases WHERE note = 'edits' AND color = 7 AND token = ";
    assert_eq!(number(database, &format!("{count}{token}")).await, 1);
    assert_eq!(read_color(database).await.unwrap().len(), 1);
    // A second upgrade changes nothing.
    upgrade(database).await;

    // Every call of the older release fails with the same error.
    let newer = "the lease tables are at version 2, made by a newer release of hierlock, and \
                 this one knows only version 1; update this program";
    for error in [
        leases.provision().await.unwrap_err(),
        lease(database, "u2").await.unwrap_err(),
        leases.find(token).await.unwrap_err(),
        leases.list(LeaseFilter::default()).await.unwrap_err(),
    ] {
        assert!(error.is_newer_schema() && !error.is_not_provisioned(), "{error}");
        assert!(!error.is_retryable(), "{error}");
        assert_eq!(error.to_string(), newer);
    }
}

/// Earlier releases stored no version.
async fn tables_without_a_version_are_upgraded(database: &Database) {
    run(database, &(SCHEMA.steps[0])(database.driver()).join(";\n")).await;
    let token = lease(database, "u1").await.unwrap().token();
    let older = read_color(database).await.unwrap_err();
    assert!(older.to_string().contains("are at version 1"), "{older}");
    upgrade(database).await;
    let count = format!("SELECT COUNT(*) FROM hier_leases WHERE token = {token}");
    assert_eq!(number(database, &count).await, 1);
}

async fn concurrent_upgrades_run_the_step_once(database: &Database, url: &str) {
    SCHEMA.provision(database).await.unwrap();
    let _ = lease(database, "u1").await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let database = Database::connect(url).await.unwrap();
        tasks.push(tokio::spawn(async move { LATER.provision(&database).await }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(version(database).await, 2);
    let color = number(database, "SELECT color FROM hier_leases").await;
    assert_eq!(color, 7, "the step was not run exactly once");
}

/// On MySQL and MariaDB the first statement of the step is committed when the second fails; on the others it is not.
async fn an_interrupted_step_is_run_again(database: &Database) {
    SCHEMA.provision(database).await.unwrap();
    let _ = lease(database, "u1").await.unwrap();
    INTERRUPTED.provision(database).await.unwrap_err();
    assert_eq!(version(database).await, 1);
    upgrade(database).await;
    assert_eq!(number(database, "SELECT color FROM hier_leases WHERE note = 'edits'").await, 7);
}

async fn a_dropped_table_is_created_again(database: &Database) {
    upgrade(database).await;
    // The second step alters `hier_leases`.
    for table in ["hier_lease_audit", "hier_leases"] {
        run(database, &format!("DROP TABLE {table}")).await;
        upgrade(database).await;
        assert_eq!(number(database, &format!("SELECT COUNT(*) FROM {table}")).await, 0);
        assert!(read_color(database).await.unwrap().is_empty());
    }
}

/// Runs all checks, each in a new database, whose URL `create` returns.
async fn check_upgrades(mut create: impl AsyncFnMut(&str) -> String) {
    let mut database = async |name: &str| {
        let url = create(name).await;
        (Database::connect(&url).await.unwrap(), url)
    };
    an_upgrade_keeps_the_rows(&database("rows").await.0).await;
    tables_without_a_version_are_upgraded(&database("no_version").await.0).await;
    let (concurrent, url) = database("concurrent").await;
    concurrent_upgrades_run_the_step_once(&concurrent, &url).await;
    an_interrupted_step_is_run_again(&database("interrupted").await.0).await;
    a_dropped_table_is_created_again(&database("dropped").await.0).await;
}

on_each_server!(tables_are_upgraded);

async fn tables_are_upgraded(engine: Engine) {
    let Some(server) = Server::for_tests(engine) else { return };
    let url = server.url().replacen("mariadb:", "mysql:", 1);
    let admin = Database::connect(&url).await.unwrap();
    check_upgrades(async |name| {
        let name = format!("hierlock_schema_{}_{name}", std::process::id());
        // Not in a transaction, where PostgreSQL refuses CREATE DATABASE.
        let sql = format!("CREATE DATABASE {name}");
        admin.execute(super::failed("make a database"), &sql, &[]).await.unwrap();
        let bare = url.split('?').next().unwrap();
        format!("{}/{name}", bare.rsplit_once('/').unwrap().0)
    })
    .await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_tables_are_upgraded() {
    let directory = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite:{}", directory.path().join(name).display());
    check_upgrades(async |name| url(name)).await;
}
