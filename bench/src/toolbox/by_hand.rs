//! What one would write without hierlock, for the same work on the same tables: a pool, a transaction,
//! prepared statements.

use super::{Result, TTL};
use hierlock::{Buckets, Target};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _};
use std::time::Duration;

/// The lock rows of leases, a level.
const BUCKETS: u32 = 256;

/// A pool.
#[derive(Clone)]
pub enum ByHand {
    /// Of MySQL or MariaDB.
    Innodb(MySqlPool),
    /// Of PostgreSQL.
    Postgres(PgPool),
    /// Of a file.
    Sqlite(SqlitePool),
}

const MYSQL_NOW: &str =
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)";
const POSTGRES_NOW: &str = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint";
const SQLITE_NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

impl ByHand {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        Ok(match url.split(':').next().unwrap_or_default() {
            "postgres" => ByHand::Postgres(PgPoolOptions::new().connect(url).await?),
            "sqlite" => {
                let options: SqliteConnectOptions = url.parse()?;
                let options = options
                    .busy_timeout(Duration::from_secs(30))
                    .journal_mode(SqliteJournalMode::Wal);
                ByHand::Sqlite(SqlitePoolOptions::new().connect_with(options).await?)
            }
            _ => {
                let url = url.replacen("mariadb", "mysql", 1);
                ByHand::Innodb(MySqlPoolOptions::new().connect(&url).await?)
            }
        })
    }

    /// Claims so many jobs and completes them; how many there were.
    ///
    /// # Errors
    /// What the database says.
    pub async fn claim_and_complete(&self, most: usize) -> Result<usize> {
        let ttl = TTL.as_millis() as i64;
        let ids: Vec<i64> = match self {
            ByHand::Innodb(pool) => {
                let mut tx = pool
                    .begin_with("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION")
                    .await?;
                let claim = "SELECT id, claim, payload FROM hier_jobs WHERE queue = 'bench' AND state = 0 \
                             ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED";
                let rows: Vec<(i64, i64, String)> =
                    sqlx::query_as(claim).bind(most as i64).fetch_all(&mut *tx).await?;
                let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
                if ids.is_empty() {
                    return Ok(0);
                }
                let claimed = format!(
                    "UPDATE hier_jobs SET state = 2, claim = claim + 1, worker = 'w', due_ms = \
                     {MYSQL_NOW} + ? WHERE id IN ({})",
                    places(ids.len())
                );
                let update = sqlx::query(AssertSqlSafe(claimed)).bind(ttl);
                ids.iter().fold(update, |update, id| update.bind(*id)).execute(&mut *tx).await?;
                tx.commit().await?;
                let delete = format!(
                    "DELETE FROM hier_jobs WHERE id IN ({}) AND state = 2 AND worker = 'w'",
                    places(ids.len())
                );
                let delete = sqlx::query(AssertSqlSafe(delete));
                ids.iter().fold(delete, |delete, id| delete.bind(*id)).execute(pool).await?;
                ids
            }
            ByHand::Postgres(pool) => {
                let claim = format!(
                    "WITH c AS MATERIALIZED (SELECT id FROM hier_jobs WHERE queue = 'bench' AND state \
                     = 0 ORDER BY priority, id LIMIT $1 FOR UPDATE SKIP LOCKED) UPDATE hier_jobs SET \
                     state = 2, claim = claim + 1, worker = 'w', due_ms = {POSTGRES_NOW} + $2 WHERE id \
                     IN (SELECT id FROM c) RETURNING id, claim, payload"
                );
                let rows: Vec<(i64, i64, String)> = sqlx::query_as(AssertSqlSafe(claim))
                    .bind(most as i64)
                    .bind(ttl)
                    .fetch_all(pool)
                    .await?;
                let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
                if !ids.is_empty() {
                    let delete =
                        "DELETE FROM hier_jobs WHERE id = ANY($1) AND state = 2 AND worker = 'w'";
                    sqlx::query(delete).bind(&ids).execute(pool).await?;
                }
                ids
            }
            ByHand::Sqlite(pool) => {
                let claim = format!(
                    "UPDATE hier_jobs SET state = 2, claim = claim + 1, worker = 'w', due_ms = \
                     {SQLITE_NOW} + ? WHERE id IN (SELECT id FROM hier_jobs WHERE queue = 'bench' AND \
                     state = 0 ORDER BY priority, id LIMIT ?) RETURNING id, claim, payload"
                );
                let rows: Vec<(i64, i64, String)> = sqlx::query_as(AssertSqlSafe(claim))
                    .bind(ttl)
                    .bind(most as i64)
                    .fetch_all(pool)
                    .await?;
                let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
                if !ids.is_empty() {
                    let delete = format!(
                        "DELETE FROM hier_jobs WHERE id IN ({}) AND state = 2 AND worker = 'w'",
                        places(ids.len())
                    );
                    let delete = sqlx::query(AssertSqlSafe(delete));
                    ids.iter().fold(delete, |delete, id| delete.bind(*id)).execute(pool).await?;
                }
                ids
            }
        };
        Ok(ids.len())
    }

    /// Leases a node to `owner` if nobody else has it, what is above it or what is below it, and releases it.
    ///
    /// # Errors
    /// What the database says; somebody else has it.
    pub async fn lease(&self, target: &Target, owner: &str) -> Result<()> {
        let nodes: Vec<Target> = (0..target.level())
            .map(|level| target.ancestor(level))
            .chain([target.clone()])
            .collect();
        let keys: Vec<Vec<u8>> = nodes.iter().map(node_key).collect();
        let own = keys.last().ok_or("no node")?.clone();
        let after: Vec<u8> = own.iter().copied().chain([0xff]).collect();
        let path = target.to_string();
        let slots: Vec<(i64, i64)> = nodes
            .iter()
            .map(|node| {
                let buckets = Buckets::new(BUCKETS).unwrap_or_default();
                (node.level() as i64, i64::from(node.bucket(buckets)))
            })
            .collect();
        let ttl = TTL.as_millis() as i64;
        macro_rules! conflicts {
            ($now:expr, $places:expr, $tx:expr) => {{
                let sql = format!(
                    "SELECT owner, expires_ms FROM hier_leases WHERE owner <> {} AND expires_ms > {} AND \
                     (node IN ({}) OR (node > {} AND node < {}))",
                    $places[0],
                    $now,
                    $places[1..=keys.len()].join(", "),
                    $places[keys.len() + 1],
                    $places[keys.len() + 2],
                );
                let query = sqlx::query(AssertSqlSafe(sql)).bind(owner);
                let query = keys.iter().fold(query, |query, key| query.bind(key.clone()));
                let found = query.bind(own.clone()).bind(after.clone()).fetch_all(&mut *$tx).await?;
                if !found.is_empty() {
                    return Err("somebody else has it".into());
                }
            }};
        }
        macro_rules! insert {
            ($now:expr, $places:expr) => {{
                let sql = format!(
                    "INSERT INTO hier_leases (node, path, owner, acquired_ms, expires_ms, ttl_ms) SELECT \
                     {}, {}, {}, n.now, n.now + {}, {} FROM (SELECT {} AS now) n",
                    $places[0], $places[1], $places[2], $places[3], $places[4], $now
                );
                sql
            }};
        }
        let marks: Vec<String> = vec!["?".to_owned(); keys.len() + 5];
        let numbers: Vec<String> =
            (1..=keys.len() + 5).map(|number| format!("${number}")).collect();
        match self {
            ByHand::Innodb(pool) => {
                let mut tx = pool
                    .begin_with("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION")
                    .await?;
                let lock = |mode| {
                    format!(
                        "(SELECT 1 FROM hier_lease_slots WHERE level = ? AND bucket = ? {mode})"
                    )
                };
                let all: Vec<String> = (0..slots.len())
                    .map(|level| {
                        lock(if level + 1 < slots.len() {
                            "LOCK IN SHARE MODE"
                        } else {
                            "FOR UPDATE"
                        })
                    })
                    .collect();
                let query = sqlx::query(AssertSqlSafe(all.join(" UNION ALL ")));
                let query = slots.iter().fold(query, |query, slot| query.bind(slot.0).bind(slot.1));
                query.fetch_all(&mut *tx).await?;
                conflicts!(MYSQL_NOW, marks, tx);
                let sql = insert!(MYSQL_NOW, marks);
                let done = sqlx::query(AssertSqlSafe(sql))
                    .bind(&own)
                    .bind(&path)
                    .bind(owner)
                    .bind(ttl)
                    .bind(ttl)
                    .execute(&mut *tx)
                    .await?;
                tx.commit().await?;
                let token = done.last_insert_id() as i64;
                let delete = "DELETE FROM hier_leases WHERE token = ?";
                sqlx::query(delete).bind(token).execute(pool).await?;
            }
            ByHand::Postgres(pool) => {
                let mut tx = pool.begin().await?;
                let names: Vec<String> = (0..slots.len()).map(|i| format!("t{i}")).collect();
                let from: Vec<String> =
                    names.iter().map(|name| format!("hier_lease_slots {name}")).collect();
                let rows: Vec<String> = (0..slots.len())
                    .map(|i| {
                        format!("t{i}.level = ${} AND t{i}.bucket = ${}", 2 * i + 1, 2 * i + 2)
                    })
                    .collect();
                let modes: Vec<String> = (0..slots.len())
                    .map(|i| match i + 1 < slots.len() {
                        true => format!("FOR KEY SHARE OF t{i}"),
                        false => format!("FOR UPDATE OF t{i}"),
                    })
                    .collect();
                let sql = format!(
                    "SELECT 1 FROM {} WHERE {} {}",
                    from.join(", "),
                    rows.join(" AND "),
                    modes.join(" ")
                );
                let query = sqlx::query(AssertSqlSafe(sql));
                let query = slots.iter().fold(query, |query, slot| query.bind(slot.0).bind(slot.1));
                query.fetch_all(&mut *tx).await?;
                conflicts!(POSTGRES_NOW, numbers, tx);
                let sql = format!("{} RETURNING token", insert!(POSTGRES_NOW, numbers));
                let token: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
                    .bind(&own)
                    .bind(&path)
                    .bind(owner)
                    .bind(ttl)
                    .bind(ttl)
                    .fetch_one(&mut *tx)
                    .await?;
                tx.commit().await?;
                let delete = "DELETE FROM hier_leases WHERE token = $1";
                sqlx::query(delete).bind(token).execute(pool).await?;
            }
            ByHand::Sqlite(pool) => {
                let mut connection = pool.acquire().await?;
                let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
                conflicts!(SQLITE_NOW, marks, tx);
                let sql = insert!(SQLITE_NOW, marks);
                let done = sqlx::query(AssertSqlSafe(sql))
                    .bind(&own)
                    .bind(&path)
                    .bind(owner)
                    .bind(ttl)
                    .bind(ttl)
                    .execute(&mut *tx)
                    .await?;
                tx.commit().await?;
                let delete = "DELETE FROM hier_leases WHERE token = ?";
                sqlx::query(delete)
                    .bind(done.last_insert_rowid())
                    .execute(&mut *connection)
                    .await?;
            }
        }
        Ok(())
    }
}

/// As leases keep a node: the IDs with their lengths, from the root.
fn node_key(target: &Target) -> Vec<u8> {
    target.ids().map(|id| format!("{}:{id},", id.len())).collect::<String>().into_bytes()
}

fn places(count: usize) -> String {
    vec!["?"; count].join(", ")
}
