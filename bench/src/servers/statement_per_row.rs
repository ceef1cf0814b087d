//! The straightforward way to lock: a pool, BEGIN, SET, a prepared SELECT for each row, ROLLBACK.

use super::{BenchServer, Nodes};
use hierlock::sql::Strategy;
use hierlock_sandbox::Engine;
use sqlx::{MySqlPool, PgPool};

/// A pool, with the kind of lock that its server takes.
pub enum StatementPerRow {
    /// `FOR UPDATE` and the given statement for a shared lock, which MariaDB spells differently.
    Innodb(MySqlPool, &'static str),
    /// Rows with `FOR SHARE` and `FOR UPDATE`.
    Rows(PgPool),
    /// Advisory keys.
    Keys(PgPool),
}

impl StatementPerRow {
    /// Opens the pool.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    pub async fn new(server: &BenchServer) -> Result<Self, sqlx::Error> {
        let url = server.bare_url();
        Ok(match (server.setup.engine, server.setup.strategy) {
            (Engine::Mysql, _) => Self::Innodb(
                MySqlPool::connect(&url).await?,
                "SELECT bucket FROM hier_lock_buckets WHERE level = ? AND bucket = ? FOR SHARE",
            ),
            (Engine::Mariadb, _) => Self::Innodb(
                MySqlPool::connect(&url).await?,
                "SELECT bucket FROM hier_lock_buckets WHERE level = ? AND bucket = ? \
                 LOCK IN SHARE MODE",
            ),
            (Engine::Postgres, Strategy::Advisory) => Self::Keys(PgPool::connect(&url).await?),
            (Engine::Postgres, _) => Self::Rows(PgPool::connect(&url).await?),
        })
    }

    /// Locks and releases the nodes once.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    pub async fn cycle(&self, nodes: &Nodes) -> Result<(), sqlx::Error> {
        let rows = nodes.rows();
        let leaf = rows.last().map_or(0, |(level, _)| *level);
        match self {
            Self::Innodb(pool, share) => {
                let mut tx = pool.begin().await?;
                sqlx::query("SET SESSION innodb_lock_wait_timeout = 50").execute(&mut *tx).await?;
                for (level, bucket) in rows {
                    let lock = if level == leaf {
                        "SELECT bucket FROM hier_lock_buckets WHERE level = ? AND bucket = ? \
                         FOR UPDATE"
                    } else {
                        share
                    };
                    sqlx::query(lock).bind(level).bind(bucket).fetch_one(&mut *tx).await?;
                }
                tx.rollback().await
            }
            Self::Rows(pool) => {
                let mut tx = pool.begin().await?;
                sqlx::query("SET LOCAL lock_timeout = '50s'").execute(&mut *tx).await?;
                for (level, bucket) in rows {
                    let lock = if level == leaf {
                        "SELECT bucket FROM hier_lock_buckets WHERE level = $1 AND \
                         bucket = $2 FOR UPDATE"
                    } else {
                        "SELECT bucket FROM hier_lock_buckets WHERE level = $1 AND \
                         bucket = $2 FOR SHARE"
                    };
                    sqlx::query(lock).bind(level).bind(bucket).fetch_one(&mut *tx).await?;
                }
                tx.rollback().await
            }
            Self::Keys(pool) => {
                let mut tx = pool.begin().await?;
                sqlx::query("SET LOCAL lock_timeout = '50s'").execute(&mut *tx).await?;
                for (level, bucket) in rows {
                    let lock = if level == leaf {
                        "SELECT pg_advisory_xact_lock($1)"
                    } else {
                        "SELECT pg_advisory_xact_lock_shared($1)"
                    };
                    let key = i64::from(level) << 32 | i64::from(bucket);
                    sqlx::query(lock).bind(key).execute(&mut *tx).await?;
                }
                tx.rollback().await
            }
        }
    }
}
