//! As one would write it: a pool, BEGIN, SET, a prepared SELECT for each row, ROLLBACK.

use super::{Bench, Nodes};
use hierlock::sql::Strategy;
use hierlock_sandbox::Engine;
use sqlx::{MySqlPool, PgPool};

/// The straightforward way, on whichever server.
pub enum Straightforward {
    /// `FOR SHARE` and `FOR UPDATE`; on MariaDB the older words.
    Innodb(MySqlPool, &'static str),
    /// Rows, `FOR SHARE` and `FOR UPDATE`.
    Rows(PgPool),
    /// Advisory keys.
    Keys(PgPool),
}

impl Straightforward {
    /// Opens its pool.
    ///
    /// # Errors
    /// A server that is gone.
    pub async fn new(bench: &Bench) -> Result<Self, sqlx::Error> {
        let url = bench.bare_url();
        Ok(match (bench.setup.engine, bench.setup.strategy) {
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

    /// Takes and gives back.
    ///
    /// # Errors
    /// A server that is gone.
    pub async fn cycle(&self, nodes: &Nodes) -> Result<(), sqlx::Error> {
        let rows = nodes.rows();
        let leaf = rows.last().map_or(0, |(level, _)| *level);
        match self {
            Self::Innodb(pool, share) => {
                let mut tx = pool.begin().await?;
                sqlx::query("SET SESSION innodb_lock_wait_timeout = 50").execute(&mut *tx).await?;
                for (level, bucket) in rows {
                    let lock = match level == leaf {
                        true => {
                            "SELECT bucket FROM hier_lock_buckets WHERE level = ? AND bucket = ? \
                             FOR UPDATE"
                        }
                        false => share,
                    };
                    sqlx::query(lock).bind(level).bind(bucket).fetch_one(&mut *tx).await?;
                }
                tx.rollback().await
            }
            Self::Rows(pool) => {
                let mut tx = pool.begin().await?;
                sqlx::query("SET LOCAL lock_timeout = '50s'").execute(&mut *tx).await?;
                for (level, bucket) in rows {
                    let lock = match level == leaf {
                        true => {
                            "SELECT bucket FROM hier_lock_buckets WHERE level = $1 AND \
                             bucket = $2 FOR UPDATE"
                        }
                        false => {
                            "SELECT bucket FROM hier_lock_buckets WHERE level = $1 AND \
                             bucket = $2 FOR SHARE"
                        }
                    };
                    sqlx::query(lock).bind(level).bind(bucket).fetch_one(&mut *tx).await?;
                }
                tx.rollback().await
            }
            Self::Keys(pool) => {
                let mut tx = pool.begin().await?;
                sqlx::query("SET LOCAL lock_timeout = '50s'").execute(&mut *tx).await?;
                for (level, bucket) in rows {
                    let lock = match level == leaf {
                        true => "SELECT pg_advisory_xact_lock($1)",
                        false => "SELECT pg_advisory_xact_lock_shared($1)",
                    };
                    let key = i64::from(level) << 32 | i64::from(bucket);
                    sqlx::query(lock).bind(key).execute(&mut *tx).await?;
                }
                tx.rollback().await
            }
        }
    }
}
