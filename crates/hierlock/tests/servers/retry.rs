//! Retries of real conflicts: a transaction that fails is retried, and its changes are made exactly once.

use crate::support::{Database, OutsideSession, Setup, on_every_setup};
use hierlock::retry::{GiveUpReason, RetryCause, RetryPolicy, Retryable, retry};
use hierlock_sandbox::Engine;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{Barrier, Mutex};

on_every_setup!(@ [
        the_victim_of_a_deadlock_is_retried
        a_nowait_refusal_is_retried_only_on_request
        a_permanent_error_is_not_retried
    ]
    mysql: Mysql Striped,
    mariadb: Mariadb Striped,
    postgres: Postgres Advisory,
);

/// Not on MySQL, which has no snapshot conflicts: an update sees the newest row.
mod conflicts {
    crate::support::on_every_setup!(@ [a_snapshot_conflict_is_retried]
        mariadb: Mariadb Striped,
        postgres: Postgres Advisory,
    );
    use super::a_snapshot_conflict_is_retried;
}

const SETUP: &str = "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL);
                     INSERT INTO accounts VALUES (1, 100), (2, 100)";

async fn accounts(setup: Setup) -> Option<(Database, OutsideSession)> {
    let database = Database::empty(setup).await?;
    let mut outside = OutsideSession::connect(&database.url).await;
    outside.run(SETUP).await;
    Some((database, outside))
}

async fn balances(outside: &mut OutsideSession) -> Vec<i64> {
    let rows = outside.rows("SELECT balance FROM accounts ORDER BY id").await;
    rows.iter().map(|row| row[0].parse().unwrap()).collect()
}

/// Moves 10 in a transaction. Rolls back if a statement fails.
async fn transfer(
    session: &Mutex<OutsideSession>,
    [from, to]: [u32; 2],
    between: impl Future<Output = ()>,
) -> Result<(), sqlx::Error> {
    let mut session = session.lock().await;
    session.run("BEGIN").await;
    let step =
        |id: u32, by: i32| format!("UPDATE accounts SET balance = balance + {by} WHERE id = {id}");
    let moved = async {
        session.try_run(&step(from, -10)).await?;
        between.await;
        session.try_run(&step(to, 10)).await
    };
    match moved.await {
        Ok(()) => session.try_run("COMMIT").await,
        Err(error) => {
            session.run("ROLLBACK").await;
            Err(error)
        }
    }
}

async fn the_victim_of_a_deadlock_is_retried(setup: Setup) {
    let Some((database, mut outside)) = accounts(setup).await else { return };
    // In the first attempt both transfers lock their first row before either wants its second.
    let barrier = Arc::new(Barrier::new(2));
    let attempts = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for accounts in [[1, 2], [2, 1]] {
        let session = Mutex::new(OutsideSession::connect(&database.url).await);
        let (barrier, attempts) = (barrier.clone(), attempts.clone());
        tasks.push(tokio::spawn(async move {
            let policy = RetryPolicy::default();
            let transferred = retry(policy, |attempt| {
                attempts.fetch_add(1, Ordering::Relaxed);
                let (session, barrier) = (&session, &barrier);
                async move {
                    let meet = async {
                        if attempt == 1 {
                            barrier.wait().await;
                        }
                    };
                    transfer(session, accounts, meet).await
                }
            });
            transferred.await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(attempts.load(Ordering::Relaxed), 3, "expected one retry of one transfer");
    assert_eq!(balances(&mut outside).await, [100, 100], "expected one transfer each way");
}

/// The second attempt reads the other session's change, so nothing is overwritten.
async fn a_snapshot_conflict_is_retried(setup: Setup) {
    let Some((database, mut outside)) = accounts(setup).await else { return };
    let session = Mutex::new(OutsideSession::connect(&database.url).await);
    let begin = match setup.engine {
        Engine::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        _ => "SET SESSION innodb_snapshot_isolation = ON; BEGIN",
    };
    let other = Mutex::new(OutsideSession::connect(&database.url).await);
    let policy = RetryPolicy::default();
    let added = retry(policy, |attempt| {
        let (session, other) = (&session, &other);
        async move {
            let mut session = session.lock().await;
            session.run(begin).await;
            let read = session.number("SELECT balance FROM accounts WHERE id = 1").await;
            if attempt == 1 {
                let mut other = other.lock().await;
                other.run("UPDATE accounts SET balance = 500 WHERE id = 1").await;
            }
            let update = format!("UPDATE accounts SET balance = {} WHERE id = 1", read + 1);
            if let Err(error) = session.try_run(&update).await {
                session.run("ROLLBACK").await;
                assert_eq!(error.retry_cause(), Some(RetryCause::Conflict), "{error}");
                return Err(error);
            }
            session.try_run("COMMIT").await.map(|()| attempt)
        }
    });
    assert_eq!(added.await.unwrap(), 2);
    assert_eq!(balances(&mut outside).await[0], 501);
}

async fn a_nowait_refusal_is_retried_only_on_request(setup: Setup) {
    let Some((database, mut outside)) = accounts(setup).await else { return };
    let session = Mutex::new(OutsideSession::connect(&database.url).await);
    outside.run("BEGIN").await;
    outside.run("SELECT * FROM accounts WHERE id = 1 FOR UPDATE").await;
    let holder = Mutex::new(outside);
    let claim = |attempt: u32| {
        let (session, holder) = (&session, &holder);
        async move {
            if attempt == 3 {
                holder.lock().await.run("ROLLBACK").await;
            }
            let mut session = session.lock().await;
            session.try_run("SELECT * FROM accounts WHERE id = 1 FOR UPDATE NOWAIT").await
        }
    };
    let error = retry(RetryPolicy::default(), claim).await.unwrap_err();
    assert_eq!((error.attempts, error.reason), (1, GiveUpReason::NotRetryable), "{error}");
    assert_eq!(error.last.retry_cause(), Some(RetryCause::NotGranted));
    retry(RetryPolicy::default().also_if_not_granted(), claim).await.unwrap();
}

async fn a_permanent_error_is_not_retried(setup: Setup) {
    let Some((_, outside)) = accounts(setup).await else { return };
    let session = Mutex::new(outside);
    let error = retry(RetryPolicy::default(), |_| async {
        session.lock().await.try_run("INSERT INTO accounts VALUES (1, 0)").await
    });
    let error = error.await.unwrap_err();
    assert_eq!((error.attempts, error.reason), (1, GiveUpReason::NotRetryable), "{error}");
}
