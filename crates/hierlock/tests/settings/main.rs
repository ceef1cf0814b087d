//! Everything that the library does, in a short form, under each setting that an administrator may have made. After
//! every call that reports success another client reads the state.
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
use server::{HostileServer, Place};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{MySqlPool, PgPool};
use std::sync::Arc;
use std::time::{Duration, Instant};

on_each_server!(everything_works_under_each_setting);

/// The failure this prevents: with `autocommit` off by default, success was reported and nothing was committed; and
/// MariaDB could not be used in a strict mode.
async fn everything_works_under_each_setting(engine: Engine) {
    let Some(mut server) = HostileServer::start(engine).await else { return };
    // To debug: a part of the name of the only setting to test.
    let only = std::env::var("HIERLOCK_SETTING").unwrap_or_default();
    let mut failed = Vec::new();
    for setting in list::settings(engine) {
        if (setting.needs_tls && !server.has_tls) || !setting.name.contains(&only) {
            continue;
        }
        let begun = Instant::now();
        let place = Arc::new(server.apply(&setting).await);
        let (tried, setting_tried) = (place.clone(), setting.clone());
        let exercise = tokio::spawn(async move {
            locks::exercise(&tried, setting_tried.is_limit).await;
            toolbox::exercise(&tried, setting_tried.is_for_ours).await;
            if ["defaults", "max_allowed_packet = 65536"].contains(&&*setting_tried.name) {
                toolbox::payloads(&tried).await;
            }
        });
        // The panic message says what failed. The other settings are tested as well.
        let ended = if exercise.await.is_ok() { "works" } else { "FAILS" };
        eprintln!("{engine}: {} {ended}, in {:?}", setting.name, begun.elapsed());
        if ended == "FAILS" {
            failed.push(setting.name.clone());
        }
        server.undo(&setting, &place).await;
    }
    if engine == Engine::Postgres && "search_path = nowhere".contains(&only) {
        check_that_a_missing_schema_is_explained(&mut server).await;
    }
    assert_eq!(failed, [""; 0]);
}

async fn check_that_a_missing_schema_is_explained(server: &mut HostileServer) {
    let setting = list::no_schema();
    let place = server.apply(&setting).await;
    let url = place.with("strategy=striped&buckets=4");
    let made = Provision::connect(&url, Hierarchy::default()).await.unwrap().run(|_| ()).await;
    let database = Database::connect(&place.url).await.unwrap();
    let leases = Leases::new(database.clone()).provision().await;
    let on_demand = Hierlock::connect(&place.with("strategy=on-demand")).await.map(drop);
    for refused in [made.map(drop), leases, on_demand] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("search_path") && said.contains("options[search_path]"), "{said}");
    }
    let tables = "SELECT COUNT(*) FROM pg_tables WHERE tablename LIKE 'hier%'";
    assert_eq!(place.outside().await.number(tables).await, 0);
    // With the advice of the error it works.
    let url = place.with("strategy=striped&buckets=4&options[search_path]=public");
    let made = Provision::connect(&url, Hierarchy::default()).await.unwrap();
    made.run(|_| ()).await.unwrap();
    assert_eq!(place.outside().await.number("SELECT COUNT(*) FROM hier_lock_buckets").await, 12);
    database.close().await;
    server.undo(&setting, &place).await;
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

/// A pool of the program, with few connections and no settings.
enum ProgramPool {
    Innodb(MySqlPool),
    Postgres(PgPool),
}

impl ProgramPool {
    async fn connect(place: &Place) -> Self {
        match place.engine {
            Engine::Postgres => {
                let options = PgPoolOptions::new().max_connections(2);
                ProgramPool::Postgres(options.connect(&place.url).await.unwrap())
            }
            _ => {
                let url = place.url.replacen("mariadb", "mysql", 1);
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
