//! The same work on the same tables without hierlock: a pool, a transaction, prepared statements.

mod jobs;
mod leases;

use super::Result;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use std::time::Duration;

/// A pool of connections.
#[derive(Clone)]
pub enum PlainSql {
    /// Of MySQL or MariaDB.
    Innodb(MySqlPool),
    /// Of PostgreSQL.
    Postgres(PgPool),
    /// Of a file.
    Sqlite(SqlitePool),
}

const MYSQL_BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";

impl PlainSql {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        Ok(match url.split(':').next().unwrap_or_default() {
            "postgres" => PlainSql::Postgres(PgPoolOptions::new().connect(url).await?),
            "sqlite" => {
                let options: SqliteConnectOptions = url.parse()?;
                let options = options
                    .busy_timeout(Duration::from_secs(30))
                    .journal_mode(SqliteJournalMode::Wal);
                PlainSql::Sqlite(SqlitePoolOptions::new().connect_with(options).await?)
            }
            _ => {
                let url = url.replacen("mariadb", "mysql", 1);
                PlainSql::Innodb(MySqlPoolOptions::new().connect(&url).await?)
            }
        })
    }
}
