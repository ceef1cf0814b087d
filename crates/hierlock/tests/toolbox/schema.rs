//! Versions of the tables of leases and queues, and the migration files.

use crate::support::{Store, TestEngine, on_every_engine};
use hierlock::lease::{LeaseFilter, LeaseRequest, Leases};
use hierlock::queue::{Job, Queue};
use hierlock_sandbox::Engine;
use sqlx::migrate::Migrator;
use std::path::{Path, PathBuf};
use std::time::Duration;

on_every_engine! {
    provisioning_stores_the_version,
    tables_without_a_version_keep_their_rows,
    newer_tables_are_refused,
    a_dropped_table_or_function_is_created_again,
    migration_files_create_the_same_tables,
}

/// The beginnings of the checksums of the migration files, as sqlx records them. A released file never changes:
/// sqlx would refuse to run where it was applied.
const CHECKSUMS: [(&str, &[&str]); 3] = [
    ("mysql", &["5879e044123b40d8", "f08bbe286e6518cb", "cced5a98180e2793", "3aa733121b798bc7"]),
    ("postgres", &["e5290523ad88aa6d", "ecd73bd1f7d91ebf", "de287ad50742ac32"]),
    ("sqlite", &["43e8d4ebf801b24a", "99045672012a4cb2"]),
];

/// Returns the folder of migration files for the engine of a store.
fn migrations(store: &Store) -> PathBuf {
    let folder = match store.engine {
        TestEngine::Server(Engine::Postgres) => "postgres",
        TestEngine::Server(_) => "mysql",
        TestEngine::Sqlite => "sqlite",
    };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder)
}

const VERSIONS: &str = "SELECT version FROM hier_schema_versions WHERE part = ";

fn request(path: &str) -> LeaseRequest {
    LeaseRequest::new(path.parse().unwrap(), "ada")
}

fn parts(store: &Store) -> (Leases, Queue) {
    (Leases::new(store.database.clone()), Queue::new(store.database.clone(), "mail").unwrap())
}

async fn provision(store: &Store) -> (Leases, Queue) {
    let (leases, queue) = parts(store);
    leases.provision().await.unwrap();
    queue.provision().await.unwrap();
    (leases, queue)
}

async fn assert_version_one(store: &Store) {
    for part in ["lease", "queue"] {
        assert_eq!(store.number(&format!("{VERSIONS}'{part}'")).await, 1, "{part}");
    }
}

/// Checks that leases and jobs can be created, found and ended.
async fn assert_usable(leases: &Leases, queue: &Queue) {
    let lease = leases.acquire(request("u9/a9/r9")).await.unwrap();
    assert!(lease.release().await.unwrap());
    queue.enqueue(Job::new("hello")).await.unwrap();
    let claimed = queue.claim("w", 10, Duration::from_secs(60)).await.unwrap();
    assert!(queue.complete_all(&claimed).await.unwrap().is_empty());
}

async fn provisioning_stores_the_version(store: Store) {
    for _ in 0..2 {
        let (leases, queue) = provision(&store).await;
        assert_version_one(&store).await;
        assert_usable(&leases, &queue).await;
    }
    // Running the scripts by hand records the version too.
    store.run("DELETE FROM hier_schema_versions").await;
    let (leases, queue) = parts(&store);
    store.run(&leases.script()).await;
    store.run(&queue.script()).await;
    assert_version_one(&store).await;
}

/// Returns the statements of the release without versions: those of the first version, without the version itself.
fn statements_without_version(store: &Store) -> String {
    let files = ["20260101000001_hierlock_lease_1.sql", "20260101000002_hierlock_queue_1.sql"];
    let files = files.map(|file| std::fs::read_to_string(migrations(store).join(file)).unwrap());
    let statements: Vec<&str> = files.iter().flat_map(|file| file.split(";\n")).collect();
    let is_not_about_versions = |statement: &&str| {
        !statement.contains("hier_schema_versions") && !statement.trim().is_empty()
    };
    statements.into_iter().filter(is_not_about_versions).collect::<Vec<_>>().join(";\n")
}

async fn tables_without_a_version_keep_their_rows(store: Store) {
    store.run(&statements_without_version(&store)).await;
    let versions = store.database.query("SELECT version FROM hier_schema_versions", []).await;
    versions.expect_err("the table of versions must not exist yet");
    let (leases, queue) = parts(&store);
    // Leases and jobs also work without a version.
    let lease = leases.acquire(request("u1/a1")).await.unwrap();
    queue.enqueue(Job::new("kept").unique("once")).await.unwrap();
    provision(&store).await;
    assert_version_one(&store).await;
    assert_eq!(leases.find(lease.token()).await.unwrap().unwrap().owner, "ada");
    let claimed = queue.claim("w", 10, Duration::from_secs(60)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].payload(), "kept");
    assert_usable(&leases, &queue).await;
}

/// The tables have a later version and renamed columns.
async fn newer_tables_are_refused(store: Store) {
    let (leases, queue) = provision(&store).await;
    let lease = leases.acquire(request("u1")).await.unwrap();
    queue.enqueue(Job::new("a")).await.unwrap();
    let job = queue.claim("w", 1, Duration::from_secs(60)).await.unwrap().pop().unwrap();
    store.run("UPDATE hier_schema_versions SET version = 3").await;
    // Statements that still work continue to work: the version is not checked beforehand.
    assert_usable(&leases, &queue).await;
    store.run("ALTER TABLE hier_leases RENAME COLUMN expires_ms TO ends_ms").await;
    store.run("ALTER TABLE hier_jobs RENAME COLUMN claim TO run").await;
    store.run("ALTER TABLE hier_jobs RENAME COLUMN payload TO body").await;

    let mut errors = vec![
        ("lease", leases.provision().await.unwrap_err()),
        ("lease", leases.acquire(request("u2")).await.unwrap_err()),
        ("lease", leases.find(lease.token()).await.unwrap_err()),
        ("lease", leases.release(lease.token()).await.unwrap_err()),
        ("lease", leases.list(LeaseFilter::default()).await.unwrap_err()),
        ("lease", leases.force_release(lease.token(), "root", "why").await.unwrap_err()),
        ("lease", leases.sweep().await.unwrap_err()),
        ("queue", queue.provision().await.unwrap_err()),
        ("queue", queue.enqueue(Job::new("b")).await.unwrap_err()),
        ("queue", queue.claim("w", 1, Duration::from_secs(60)).await.unwrap_err()),
        ("queue", job.complete().await.unwrap_err()),
        ("queue", job.fail("why").await.unwrap_err()),
        // A worker does not retry for ever.
        ("queue", queue.worker("w").run(async |_| Ok::<_, String>(())).await.unwrap_err()),
    ];
    let mut tx = store.database.begin().await.unwrap();
    errors.push(("lease", lease.check_in(&mut tx).await.unwrap_err()));
    tx.rollback().await.unwrap();
    let mut tx = store.database.begin().await.unwrap();
    errors.push(("queue", queue.enqueue_in(&mut tx, Job::new("c")).await.unwrap_err()));
    tx.rollback().await.unwrap();
    let mut tx = store.database.begin().await.unwrap();
    errors.push(("queue", job.complete_in(&mut tx).await.unwrap_err()));
    tx.rollback().await.unwrap();
    for (part, error) in errors {
        assert!(error.is_newer_schema(), "{error}");
        assert!(!error.is_not_provisioned() && !error.is_retryable(), "{error}");
        let expected = format!("the {part} tables are at version 3, made by a newer release");
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(error.to_string().contains("update this program"), "{error}");
    }
}

async fn a_dropped_table_or_function_is_created_again(store: Store) {
    let (leases, queue) = provision(&store).await;
    // On PostgreSQL functions depend on the table.
    let cascade = match store.engine {
        TestEngine::Server(Engine::Postgres) => " CASCADE",
        _ => "",
    };
    store.run(&format!("DROP TABLE hier_jobs{cascade}")).await;
    store.run("DROP TABLE hier_lease_audit").await;
    assert!(queue.enqueue(Job::new("a")).await.unwrap_err().is_not_provisioned());
    provision(&store).await;
    assert_usable(&leases, &queue).await;
    assert!(leases.audit(1).await.unwrap().is_empty());
    if store.engine == TestEngine::Server(Engine::Postgres) {
        store.run("DROP FUNCTION hier_jobs_complete").await;
        provision(&store).await;
        assert_usable(&leases, &queue).await;
    }
}

/// The files work in the migrations folder of a program, together with one of its own migrations.
async fn migration_files_create_the_same_tables(store: Store) {
    let (files, url) = (migrations(&store), store.url.replacen("mariadb:", "mysql:", 1));
    let released = Migrator::new(&*files).await.unwrap();
    let checksums = released.iter().map(|file| {
        file.checksum[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    });
    let (_, expected) =
        CHECKSUMS.iter().find(|(folder, _)| files.ends_with(folder)).expect("no checksums");
    assert_eq!(checksums.collect::<Vec<_>>(), *expected);
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(files).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let own = folder.path().join("20250101000000_accounts.sql");
    std::fs::write(own, "CREATE TABLE accounts (id BIGINT PRIMARY KEY)").unwrap();

    let migrator = Migrator::new(folder.path()).await.unwrap();
    macro_rules! migrate {
        ($pool:ty) => {{
            let pool = <$pool>::connect(&url).await.unwrap();
            for _ in 0..2 {
                migrator.run(&pool).await.unwrap();
            }
            pool.close().await;
        }};
    }
    match store.engine {
        TestEngine::Server(Engine::Postgres) => migrate!(sqlx::PgPool),
        TestEngine::Server(_) => migrate!(sqlx::MySqlPool),
        TestEngine::Sqlite => migrate!(sqlx::SqlitePool),
    }
    assert_version_one(&store).await;
    let (leases, queue) = parts(&store);
    assert_usable(&leases, &queue).await;
    // Provisioning changes nothing.
    provision(&store).await;
    assert_usable(&leases, &queue).await;
}
