//! All operations of the library under each server setting that an administrator may have changed. After every call that
//! reports success, another client reads the state.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod list;
mod locks;
mod server;
mod toolbox;

use hierlock::database::Database;
use hierlock::lease::Leases;
use hierlock::sql::Provision;
use hierlock::{Hierarchy, Hierlock};
use hierlock_sandbox::{Engine, Sandbox, on_each_server};
use server::{SettingsServer, TestDatabase};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{MySqlPool, PgPool};
use std::sync::Arc;
use std::time::{Duration, Instant};

on_each_server!(all_operations_work_under_each_setting);

/// The failures this prevents: with `autocommit` off by default, calls succeeded and nothing was committed; and MariaDB could
/// not be used in a strict mode.
async fn all_operations_work_under_each_setting(engine: Engine) {
    let Some(mut server) = SettingsServer::start(engine).await else { return };
    // To debug: a part of the name of the only setting to test.
    let only = std::env::var("HIERLOCK_SETTING").unwrap_or_default();
    let mut failed = Vec::new();
    for setting in list::settings(engine) {
        if (setting.needs_tls && !server.has_tls) || !setting.name.contains(&only) {
            continue;
        }
        let begun = Instant::now();
        let test_database = Arc::new(server.apply(&setting).await);
        let exercise = tokio::spawn({
            let (test_database, setting) = (test_database.clone(), setting.clone());
            async move {
                locks::exercise(&test_database, setting.is_limit).await;
                toolbox::exercise(&test_database, setting.skips_program_pools).await;
                if ["defaults", "max_allowed_packet = 65536"].contains(&&*setting.name) {
                    toolbox::payloads(&test_database).await;
                }
            }
        });
        // A panic names the failed check. The other settings are tested as well.
        let works = exercise.await.is_ok();
        let result = if works { "works" } else { "FAILS" };
        eprintln!("{engine}: {} {result}, in {:?}", setting.name, begun.elapsed());
        if !works {
            failed.push(setting.name.clone());
        }
        server.undo(&setting, &test_database).await;
    }
    if engine == Engine::Postgres && "search_path = nowhere".contains(&only) {
        check_missing_schema_error(&mut server).await;
    }
    assert_eq!(failed, [""; 0], "these settings fail");
}

/// Checks that errors explain a missing schema.
async fn check_missing_schema_error(server: &mut SettingsServer) {
    let setting = list::no_schema();
    let test_database = server.apply(&setting).await;
    let url = test_database.with("strategy=striped&buckets=4");
    let provision = Provision::connect(&url, Hierarchy::default()).await.unwrap();
    let provisioned = provision.run(|_| ()).await.map(drop);
    let database = Database::connect(&test_database.url).await.unwrap();
    let leases = Leases::new(database.clone()).provision().await;
    let on_demand = Hierlock::connect(&test_database.with("strategy=on-demand")).await.map(drop);
    for result in [provisioned, leases, on_demand] {
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains("search_path") && message.contains("options[search_path]"),
            "{message}"
        );
    }
    let tables = "SELECT COUNT(*) FROM pg_tables WHERE tablename LIKE 'hier%'";
    assert_eq!(test_database.outside().await.number(tables).await, 0);
    // The fix that the error suggests works.
    let url = test_database.with("strategy=striped&buckets=4&options[search_path]=public");
    let provision = Provision::connect(&url, Hierarchy::default()).await.unwrap();
    provision.run(|_| ()).await.unwrap();
    assert_eq!(
        test_database.outside().await.number("SELECT COUNT(*) FROM hier_lock_buckets").await,
        12
    );
    database.close().await;
    server.undo(&setting, &test_database).await;
}

/// With `innodb_rollback_on_timeout` MariaDB rolls back a whole transaction when NOWAIT is refused. The failure
/// this prevents: a guard lost all of its locks without a report when an upgrade or an extension was refused.
#[tokio::test]
async fn mariadb_with_rollback_on_timeout_is_refused() {
    let options = ["--innodb-rollback-on-timeout=ON"];
    let Some(server) = Sandbox::for_tests_with(Engine::Mariadb, &options) else { return };
    let url = format!("{}?ssl-mode=disabled&strategy=on-demand", server.url());
    let error = Hierlock::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("innodb_rollback_on_timeout"), "{error}");
    let provision = Provision::connect(&url, Hierarchy::default()).await;
    assert!(provision.unwrap_err().to_string().contains("innodb_rollback_on_timeout"));
}

/// A pool of the program, with few connections and the default settings of its sessions.
enum ProgramPool {
    Innodb(MySqlPool),
    Postgres(PgPool),
}

impl ProgramPool {
    async fn connect(test_database: &TestDatabase) -> Self {
        match test_database.engine {
            Engine::Postgres => {
                let options = PgPoolOptions::new().max_connections(2);
                ProgramPool::Postgres(options.connect(&test_database.url).await.unwrap())
            }
            _ => {
                let url = test_database.url.replacen("mariadb", "mysql", 1);
                let options = MySqlPoolOptions::new().max_connections(2);
                ProgramPool::Innodb(options.connect(&url).await.unwrap())
            }
        }
    }

    async fn close(&self) {
        match self {
            ProgramPool::Innodb(pool) => pool.close().await,
            ProgramPool::Postgres(pool) => pool.close().await,
        }
    }
}

/// Longer than the time limits, which are a second.
const LONGER_THAN_LIMIT: Duration = Duration::from_millis(1300);
