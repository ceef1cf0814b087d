//! The database layer that every part of the toolbox uses.

use crate::support::{Store, TestEngine, number_in, on_every_engine};
use hierlock::database::Database;
use hierlock::retry::{RetryCause, Retryable};
use hierlock_sandbox::Engine;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, SystemTime};

on_every_engine! {
    uncommitted_changes_are_rolled_back,
    a_begin_dropped_at_any_point_leaves_no_transaction_open,
    values_are_read_back_unchanged,
    a_question_mark_in_a_quote_or_comment_is_no_parameter,
    lock_errors_have_a_retry_cause,
    the_clock_of_the_database_can_be_read,
    a_connection_that_died_while_idle_is_replaced,
}

#[tokio::test]
async fn the_error_for_another_url_lists_the_valid_ones() {
    for url in ["memory:", "file:/tmp/x", "oracle://x", "", "nothing"] {
        let error = Database::connect(url).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("sqlite:PATH"), "{url}: {error}");
    }
}

/// A pool of sqlx would retry for half a minute and then report only a timeout.
#[tokio::test]
async fn the_error_for_a_refused_connection_names_the_address() {
    for url in ["mysql://me:secret@127.0.0.1:1/x", "postgres://me:secret@127.0.0.1:1/x"] {
        let error = Database::connect(url).await.unwrap_err().to_string();
        assert!(error.contains("127.0.0.1:1: ") && error.contains("refused"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

/// The clock is in UTC, and the test servers run on this machine.
async fn the_clock_of_the_database_can_be_read(store: Store) {
    let before = SystemTime::now() - Duration::from_secs(5);
    let now = store.database.now().await.unwrap();
    assert!(before < now && now < SystemTime::now() + Duration::from_secs(5), "{now:?}");
}

/// The failure this prevents: on PostgreSQL an apostrophe in a comment, in `E'…'` or in `$$…$$` was taken for a
/// quote, and a `?` after it was sent unchanged.
async fn a_question_mark_in_a_quote_or_comment_is_no_parameter(store: Store) {
    let on_all_engines = [
        "SELECT CAST(? AS CHAR(3)) -- it's what?\n, CAST(? AS CHAR(3))",
        "SELECT /* don't ? */ CAST(? AS CHAR(3)), CAST(? AS CHAR(3)) -- why?",
        "SELECT CAST(? AS CHAR(3)), CAST(? AS CHAR(3)), 'it''s ?'",
    ];
    let on_postgres = [
        r"SELECT CAST(? AS CHAR(3)), CAST(? AS CHAR(3)), E'it\'s ?'",
        "SELECT CAST(? AS CHAR(3)), CAST(? AS CHAR(3)), $$it's ?$$",
        "SELECT CAST(? AS CHAR(3)), CAST(? AS CHAR(3)), '{\"a\": 1}'::jsonb ?? 'a' -- it's",
    ];
    let is_postgres = matches!(store.engine, TestEngine::Server(Engine::Postgres));
    let on_postgres = if is_postgres { &on_postgres[..] } else { &[] };
    for sql in on_all_engines.iter().chain(on_postgres) {
        let rows = store.database.query(sql, ["abc".into(), "xyz".into()]).await.unwrap();
        assert_eq!([0, 1].map(|column| rows[0].text(column).unwrap()), ["abc", "xyz"], "{sql}");
    }
}

const TABLE: &str = "CREATE TABLE t (id BIGINT PRIMARY KEY, word VARCHAR(20))";

async fn uncommitted_changes_are_rolled_back(store: Store) {
    store.run(TABLE).await;
    for end in ["commit", "roll back", "drop"] {
        let mut tx = store.database.begin().await.unwrap();
        tx.execute("INSERT INTO t VALUES (?, ?)", [1.into(), end.into()]).await.unwrap();
        match end {
            "commit" => tx.commit().await.unwrap(),
            "roll back" => tx.rollback().await.unwrap(),
            _ => drop(tx),
        }
        // Waits for a connection that is being closed.
        let mut tx = store.database.begin().await.unwrap();
        let removed = tx.execute("DELETE FROM t", []).await.unwrap();
        assert_eq!(removed, u64::from(end == "commit"), "{end}");
        tx.commit().await.unwrap();
    }
}

async fn a_begin_dropped_at_any_point_leaves_no_transaction_open(store: Store) {
    store.run(TABLE).await;
    for polls in 0..60 {
        let mut left = polls;
        let mut begin = pin!(store.database.begin());
        poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            begin.as_mut().poll(context).map(drop)
        })
        .await;
    }
    // An open transaction would block this.
    let other = store.other().await;
    let mut tx = other.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (1, 'a')", []).await.unwrap();
    tx.commit().await.unwrap();
    if let TestEngine::Server(_) = store.engine {
        let mut outside = crate::servers::OutsideSession::connect(&store.url).await;
        outside.until_busy(0).await;
    }
}

async fn a_connection_that_died_while_idle_is_replaced(store: Store) {
    let TestEngine::Server(_) = store.engine else { return };
    store.database.now().await.unwrap();
    let mut outside = crate::servers::OutsideSession::connect(&store.url).await;
    let sessions = outside.sessions().await;
    assert!(!sessions.is_empty());
    for session in sessions {
        outside.kill(session).await;
    }
    // For a second the connection is lent without a ping; after that the ping finds that it is closed.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    store.database.now().await.unwrap();
    store.database.begin().await.unwrap().commit().await.unwrap();
}

async fn values_are_read_back_unchanged(store: Store) {
    store.run(TABLE).await;
    let mut tx = store.database.begin().await.unwrap();
    let words = [Some("it's ?"), Some("ユーザー"), Some(""), None];
    for (id, word) in (0..).zip(words) {
        let values = [i64::from(id).into(), word.into()];
        tx.execute("INSERT INTO t VALUES (?, ?)", values).await.unwrap();
    }
    let rows = tx.fetch("SELECT id, word FROM t ORDER BY id", []).await.unwrap();
    for (id, word) in (0..).zip(words) {
        let row = &rows[id as usize];
        assert_eq!((row.int(0).unwrap(), row.text_or_null(1).unwrap().as_deref()), (id, word));
    }
    assert_eq!(number_in(&mut tx, "SELECT COUNT(*) FROM t").await, 4);
}

async fn lock_errors_have_a_retry_cause(store: Store) {
    store.run(TABLE).await;
    let mut holder = store.database.begin().await.unwrap();
    holder.execute("INSERT INTO t VALUES (1, 'a')", []).await.unwrap();
    let error = match store.engine {
        TestEngine::Server(_) => {
            let mut tx = store.database.begin().await.unwrap();
            holder.commit().await.unwrap();
            let mut other = store.database.begin().await.unwrap();
            other.execute("UPDATE t SET word = 'b' WHERE id = 1", []).await.unwrap();
            tx.fetch("SELECT id FROM t WHERE id = 1 FOR UPDATE NOWAIT", []).await.unwrap_err()
        }
        TestEngine::Sqlite => {
            let impatient = Database::connect(&format!("{}?mode=rw", store.url)).await.unwrap();
            impatient.begin().await.unwrap_err()
        }
    };
    let cause = error.retry_cause();
    assert!(matches!(cause, Some(RetryCause::NotGranted | RetryCause::Busy)), "{error}");
}
