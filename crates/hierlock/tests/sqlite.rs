//! The toolbox on SQLite, which needs no server.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::retry::{GiveUpReason, RetryCause, RetryPolicy, Retryable, retry};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
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
