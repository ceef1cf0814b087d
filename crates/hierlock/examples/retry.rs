//! Sixteen tasks increment one number in a SQLite file: each reads it, then writes it. Without retries most of them would
//! fail; with retries no increment is lost.
//!
//! `cargo run --example retry`

use hierlock::retry::{RetryPolicy, retry};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Connection as _, SqlitePool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const TASKS: u32 = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("numbers.db");
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    // Without a busy timeout SQLite does not wait itself, so that there is something to retry.
    let options = options.busy_timeout(Duration::ZERO);
    let pool = SqlitePoolOptions::new().max_connections(TASKS).connect_with(options).await?;
    sqlx::raw_sql("CREATE TABLE numbers (value INTEGER); INSERT INTO numbers VALUES (0)")
        .execute(&pool)
        .await?;

    let attempts = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (pool, attempts) = (pool.clone(), attempts.clone());
            tokio::spawn(async move {
                let policy = RetryPolicy::default().attempts(1000);
                retry(policy, |_| {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    add_one(&pool)
                })
                .await
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let value: i64 = sqlx::query_scalar("SELECT value FROM numbers").fetch_one(&pool).await?;
    println!("{TASKS} tasks, {} attempts: the number is {value}", attempts.load(Ordering::Relaxed));
    assert_eq!(value, i64::from(TASKS));
    Ok(())
}

/// Makes one attempt: a whole transaction, from its beginning.
async fn add_one(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    let mut connection = pool.acquire().await?;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let value: i64 = sqlx::query_scalar("SELECT value FROM numbers").fetch_one(&mut *tx).await?;
    sqlx::query("UPDATE numbers SET value = ?").bind(value + 1).execute(&mut *tx).await?;
    tx.commit().await
}
