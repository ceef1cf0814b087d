//! Claims jobs and deletes them.

use super::PlainSql;
use crate::toolbox::{Result, TTL};
use sqlx::AssertSqlSafe;

/// A row of a job: id, claim number, payload.
type Job = (i64, i64, String);

const MYSQL_SELECT: &str = "SELECT id, claim, payload FROM hier_jobs WHERE queue = 'bench' AND state = 0 \
                            ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED";
const MYSQL_UPDATE: &str = "UPDATE hier_jobs SET state = 2, claim = claim + 1, worker = 'w', due_ms = \
                            (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000) \
                            + ? WHERE id IN";
const POSTGRES_CLAIM: &str = "WITH c AS MATERIALIZED (SELECT id FROM hier_jobs WHERE queue = 'bench' AND \
                              state = 0 ORDER BY priority, id LIMIT $1 FOR UPDATE SKIP LOCKED) UPDATE \
                              hier_jobs SET state = 2, claim = claim + 1, worker = 'w', due_ms = (EXTRACT(EPOCH \
                              FROM clock_timestamp()) * 1000)::bigint + $2 WHERE id IN (SELECT id FROM c) \
                              RETURNING id, claim, payload";
const POSTGRES_DELETE: &str =
    "DELETE FROM hier_jobs WHERE id = ANY($1) AND state = 2 AND worker = 'w'";
const SQLITE_CLAIM: &str = "UPDATE hier_jobs SET state = 2, claim = claim + 1, worker = 'w', due_ms = \
                            CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?2 WHERE id IN (SELECT id FROM \
                            hier_jobs WHERE queue = 'bench' AND state = 0 ORDER BY priority, id LIMIT ?1) \
                            RETURNING id, claim, payload";

/// Deletes the claimed jobs in one statement, with a placeholder for each.
macro_rules! delete {
    ($ids:expr, $pool:expr) => {{
        let sql = format!(
            "DELETE FROM hier_jobs WHERE id IN ({}) AND state = 2 AND worker = 'w'",
            placeholders($ids.len())
        );
        let delete = sqlx::query(AssertSqlSafe(sql));
        $ids.iter().fold(delete, |delete, id| delete.bind(*id)).execute($pool).await?;
    }};
}

impl PlainSql {
    /// Claims up to `limit` jobs, completes them, and returns their number.
    ///
    /// # Errors
    /// Fails if the database does.
    pub async fn claim_and_complete(&self, limit: usize) -> Result<usize> {
        let (limit, ttl) = (limit as i64, TTL.as_millis() as i64);
        let ids_of = |jobs: Vec<Job>| jobs.into_iter().map(|job| job.0).collect::<Vec<i64>>();
        Ok(match self {
            PlainSql::Innodb(pool) => {
                let mut tx = pool.begin_with(super::MYSQL_BEGIN).await?;
                let jobs = sqlx::query_as(MYSQL_SELECT).bind(limit).fetch_all(&mut *tx).await?;
                let ids = ids_of(jobs);
                if ids.is_empty() {
                    return Ok(0);
                }
                let update = format!("{MYSQL_UPDATE} ({})", placeholders(ids.len()));
                let update = sqlx::query(AssertSqlSafe(update)).bind(ttl);
                ids.iter().fold(update, |update, id| update.bind(*id)).execute(&mut *tx).await?;
                tx.commit().await?;
                delete!(ids, pool);
                ids.len()
            }
            PlainSql::Postgres(pool) => {
                let claim = sqlx::query_as(POSTGRES_CLAIM).bind(limit).bind(ttl);
                let ids = ids_of(claim.fetch_all(pool).await?);
                if !ids.is_empty() {
                    sqlx::query(POSTGRES_DELETE).bind(&ids).execute(pool).await?;
                }
                ids.len()
            }
            PlainSql::Sqlite(pool) => {
                let claim = sqlx::query_as(SQLITE_CLAIM).bind(limit).bind(ttl);
                let ids = ids_of(claim.fetch_all(pool).await?);
                if !ids.is_empty() {
                    delete!(ids, pool);
                }
                ids.len()
            }
        })
    }
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}
