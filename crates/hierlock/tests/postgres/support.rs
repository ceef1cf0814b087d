//! One server for all tests here, a database for each.

use hierlock::Hierlock;
use hierlock_sandbox::{Engine, Server};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A database of its own: advisory keys of others do not matter in it.
pub(crate) struct Database {
    pub(crate) url: String,
}

impl Database {
    /// None where PostgreSQL is not installed and this is not CI.
    pub(crate) async fn new() -> Option<Self> {
        // Ends with this process, however that ends.
        static SERVER: OnceLock<Option<Server>> = OnceLock::new();
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let server = SERVER.get_or_init(|| Server::for_tests(Engine::Postgres)).as_ref()?;
        let name = format!(
            "hierlock_test_{}_{}",
            std::process::id(),
            DATABASES.fetch_add(1, Ordering::Relaxed)
        );
        let mut connection = PgConnection::connect(server.url()).await.unwrap();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create).execute(&mut connection).await.unwrap();
        let (server, _) = server.url().rsplit_once('/').unwrap();
        Some(Self { url: format!("{server}/{name}") })
    }

    pub(crate) async fn connect(&self) -> Hierlock {
        Hierlock::connect(&self.url).await.unwrap()
    }

    /// A number that the server knows.
    pub(crate) async fn ask(&self, sql: &str) -> i64 {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).fetch_one(&mut connection).await.unwrap().get(0)
    }

    /// How many advisory locks are held, or waited for, in this database.
    pub(crate) async fn locks(&self) -> i64 {
        let here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        self.ask(&format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND {here}"))
            .await
    }

    /// Ends every connection of hierlock to this database, as an administrator would.
    pub(crate) async fn terminate_all(&self) -> i64 {
        self.ask(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE application_name = 'hierlock' AND datname = current_database()",
        )
        .await
    }

    /// How many sessions in this database were ended by somebody's command. Known from version 14 on.
    pub(crate) async fn forced_ends(&self) -> i64 {
        let known = "SELECT current_setting('server_version_num')::bigint / 140000";
        if self.ask(known).await == 0 {
            return 0;
        }
        // Told by a session when it ends, and not before.
        self.ask("SELECT sessions_killed FROM pg_stat_database WHERE datname = current_database()")
            .await
    }

    /// How many connections of hierlock are inside a transaction.
    pub(crate) async fn transactions(&self) -> i64 {
        self.ask(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hierlock' \
             AND datname = current_database() AND state <> 'idle'",
        )
        .await
    }
}
