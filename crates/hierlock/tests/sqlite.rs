//! The toolbox on SQLite, which needs no server.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::queue::{Job, Queue};
use hierlock::retry::{GiveUpReason, RetryCause, RetryPolicy, Retryable, retry};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePoolOptions};
use sqlx::{ConnectOptions, Executor};
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;

/// Opens a connection without a busy timeout.
async fn connect(file: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    options.busy_timeout(Duration::ZERO).connect().await.unwrap()
}

#[tokio::test]
async fn a_busy_file_is_retried() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.db");
    let mut first = connect(&file).await;
    first.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)").await.unwrap();
    first.execute("BEGIN IMMEDIATE").await.unwrap();
    let (first, second) = (Mutex::new(first), Mutex::new(connect(&file).await));
    let write = |attempt: u32| {
        let (first, second) = (&first, &second);
        async move {
            if attempt == 3 {
                first.lock().await.execute("COMMIT").await?;
            }
            let mut second = second.lock().await;
            second.execute("BEGIN IMMEDIATE").await?;
            second.execute("INSERT INTO t VALUES (1)").await?;
            second.execute("COMMIT").await.map(|_| attempt)
        }
    };
    let impatient = retry(RetryPolicy::default().attempts(2), write).await.unwrap_err();
    assert_eq!(impatient.reason, GiveUpReason::MaxAttempts);
    assert_eq!(impatient.last.retry_cause(), Some(RetryCause::Busy), "{}", impatient.last);
    assert_eq!(retry(RetryPolicy::default(), write).await.unwrap(), 3);

    let again = retry(RetryPolicy::default(), |_| async {
        second.lock().await.execute("INSERT INTO t VALUES (1)").await
    });
    assert_eq!(again.await.unwrap_err().attempts, 1, "a permanent error is not retried");
}

/// The failure this prevents: a connection that had seen a table before another connection created its unique index
/// failed with "ON CONFLICT clause does not match any PRIMARY KEY or UNIQUE constraint", since SQLite does not read the
/// schema again before it reports this error.
#[tokio::test]
async fn a_connection_sees_an_index_that_another_one_has_created() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.db");
    let mut other = connect(&file).await;
    let options = SqliteConnectOptions::new().filename(&file);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let queue = Queue::new(pool.clone(), "mail").unwrap();
    for statement in queue.script().split(";\n").filter(|text| !text.is_empty()) {
        if statement.contains("INDEX") {
            pool.execute("SELECT COUNT(*) FROM hier_jobs").await.unwrap();
        }
        other.execute(sqlx::AssertSqlSafe(statement.to_owned())).await.unwrap();
    }
    assert!(queue.enqueue(Job::new("x")).await.unwrap().is_added());
}
