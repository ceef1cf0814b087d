//! Money between accounts. Ann pays Bob while Bob pays Ann.
//!
//! Broken: each transfer locks the payer, then the payee. Two opposite transfers deadlock, and the server rolls one
//! of them back. Right: lock both rows in the order of their keys, whoever pays. With sqlx:
//!
//! ```ignore
//! let mut tx = pool.begin().await?;
//! for id in [from.min(to), from.max(to)] {
//!     sqlx::query("SELECT balance FROM accounts WHERE id = ? FOR UPDATE").bind(id).execute(&mut *tx).await?;
//! }
//! // … move the money …
//! tx.commit().await?;
//! ```
//!
//! With [`retry`] all transfers succeed too, but the work is repeated; the order of the locks costs nothing.
//!
//! SQLite has one writer at a time and no such deadlock. There the mistake is `BEGIN` without `IMMEDIATE`: the
//! transaction starts as a reader, and cannot write after another one has committed.

use super::case_database::{CaseDatabase, CaseTables, Result, read_in};
use super::race::{RaceBarrier, run_tasks};
use hierlock::retry::{RetryCause, RetryPolicy, Retryable as _, retry};
use sqlx::{AssertSqlSafe, SqlitePool};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Six accounts of 100 each.
const TABLES: CaseTables = CaseTables {
    names: &["case_accounts"],
    create: "CREATE TABLE case_accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
    insert: "INSERT INTO case_accounts VALUES \
           (1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 100)",
};

/// The lower key of each pair of accounts.
const LOWER_KEYS: [i64; 3] = [1, 3, 5];

/// The number of transfers by their result.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TransferCounts {
    pub(crate) done: u32,
    /// Rolled back by the server to end a deadlock.
    pub(crate) deadlocks: u32,
    /// Failed because the file was busy (SQLite).
    pub(crate) busy: u32,
    /// The sum of all balances afterwards.
    pub(crate) total: i64,
}

pub(crate) struct TransferResults {
    /// Three pairs of opposite transfers.
    pub(crate) broken: TransferCounts,
    /// Three pairs of opposite transfers, each with retries.
    pub(crate) retried: RetryResult,
    /// Three pairs of opposite transfers, with locks in the order of the keys.
    pub(crate) right: TransferCounts,
    /// Eight tellers at the same time, with twelve transfers each between all accounts.
    pub(crate) many_tellers: TransferCounts,
}

pub(crate) struct RetryResult {
    pub(crate) done: u32,
    pub(crate) attempts: u32,
}

pub(crate) async fn run(db: &CaseDatabase) -> Result<TransferResults> {
    db.create_tables(&TABLES).await?;
    db.reset_tables(&TABLES).await?;
    let broken = transfer_in_pairs(db, LockOrder::PayerFirst).await?;
    db.reset_tables(&TABLES).await?;
    let retried = transfer_with_retries(db).await?;
    db.reset_tables(&TABLES).await?;
    let right = transfer_in_pairs(db, LockOrder::ByKey).await?;
    let many_tellers = transfer_by_tellers(db).await?;
    db.drop_tables(&TABLES).await?;
    Ok(TransferResults { broken, retried, right, many_tellers })
}

#[derive(Clone, Copy)]
enum LockOrder {
    PayerFirst,
    ByKey,
}

/// Accounts 1 and 2 pay each other at the same time; then 3 and 4; then 5 and 6.
async fn transfer_in_pairs(db: &CaseDatabase, order: LockOrder) -> Result<TransferCounts> {
    let mut counts = TransferCounts::default();
    for lower in LOWER_KEYS {
        let results = run_tasks(2, |number, barrier| {
            let db = db.clone();
            let [from, to] = payer_and_payee(lower, number);
            async move {
                barrier.wait_for_all().await?;
                Ok(match order {
                    LockOrder::PayerFirst => lock_payer_first(&db, from, to, Some(&barrier)).await,
                    LockOrder::ByKey => lock_by_key(&db, from, to).await,
                })
            }
        });
        counts.add(results.await?)?;
    }
    counts.total = total_balance(db).await?;
    Ok(counts)
}

async fn transfer_with_retries(db: &CaseDatabase) -> Result<RetryResult> {
    let mut result = RetryResult { done: 0, attempts: 0 };
    for lower in LOWER_KEYS {
        let results = run_tasks(2, |number, barrier| {
            let db = db.clone();
            let [from, to] = payer_and_payee(lower, number);
            async move {
                let policy = RetryPolicy::default().attempts(20);
                let attempts = AtomicU32::new(0);
                let done = retry(policy, |attempt| {
                    attempts.store(attempt, Ordering::Relaxed);
                    // Only the first attempts wait for each other: later the other task may be done.
                    lock_payer_first(&db, from, to, (attempt == 1).then_some(&*barrier))
                });
                done.await.map_err(|given_up| given_up.last)?;
                Ok(attempts.into_inner())
            }
        });
        for attempts in results.await? {
            result.attempts += attempts;
            result.done += 1;
        }
    }
    Ok(result)
}

/// Returns the payer and the payee of a task. The two tasks of a pair have them the other way round.
fn payer_and_payee(lower: i64, number: i64) -> [i64; 2] {
    if number == 1 { [lower, lower + 1] } else { [lower + 1, lower] }
}

async fn transfer_by_tellers(db: &CaseDatabase) -> Result<TransferCounts> {
    let results = run_tasks(8, |number, barrier| {
        let db = db.clone();
        async move {
            barrier.wait_for_all().await?;
            let mut results = Vec::new();
            for step in 0..12 {
                let from = (number + step) % 6 + 1;
                let to = (from + number % 5) % 6 + 1;
                results.push(lock_by_key(&db, from, to).await);
            }
            Ok(results)
        }
    });
    let mut counts = TransferCounts::default();
    for results in results.await? {
        counts.add(results)?;
    }
    counts.total = total_balance(db).await?;
    Ok(counts)
}

/// Broken: locks the payer, then the payee. With a barrier, both tasks have locked their payer before either locks
/// its payee.
async fn lock_payer_first(
    db: &CaseDatabase,
    from: i64,
    to: i64,
    barrier: Option<&RaceBarrier>,
) -> Result<()> {
    if let Some(pool) = db.sqlite() {
        return begin_deferred(pool, from, to, barrier).await;
    }
    let mut tx = db.begin().await?;
    read_in::<1>(&mut tx, &select_for_update(db, from)).await?;
    if let Some(barrier) = barrier {
        barrier.wait_for_all().await?;
    }
    read_in::<1>(&mut tx, &select_for_update(db, to)).await?;
    for sql in update_statements(from, to) {
        tx.run(&sql).await?;
    }
    Ok(tx.commit().await?)
}

/// Broken, on SQLite: reads in a deferred transaction, then writes.
async fn begin_deferred(
    pool: &SqlitePool,
    from: i64,
    to: i64,
    barrier: Option<&RaceBarrier>,
) -> Result<()> {
    // A plain `BEGIN` is `BEGIN DEFERRED`.
    let mut tx = pool.begin().await?;
    let _balance: i64 = sqlx::query_scalar("SELECT balance FROM case_accounts WHERE id = ?")
        .bind(from)
        .fetch_one(&mut *tx)
        .await?;
    if let Some(barrier) = barrier {
        barrier.wait_for_all().await?;
    }
    for sql in update_statements(from, to) {
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

/// Right: locks in the order of the keys. On SQLite `BEGIN IMMEDIATE` has locked the file already.
async fn lock_by_key(db: &CaseDatabase, from: i64, to: i64) -> Result<()> {
    let mut tx = db.begin().await?;
    for id in [from.min(to), from.max(to)] {
        read_in::<1>(&mut tx, &select_for_update(db, id)).await?;
    }
    for sql in update_statements(from, to) {
        tx.run(&sql).await?;
    }
    Ok(tx.commit().await?)
}

fn select_for_update(db: &CaseDatabase, id: i64) -> String {
    let for_update = db.for_update();
    format!("SELECT balance FROM case_accounts WHERE id = {id}{for_update}")
}

fn update_statements(from: i64, to: i64) -> [String; 2] {
    [(from, -10), (to, 10)].map(|(id, amount)| {
        format!("UPDATE case_accounts SET balance = balance + {amount} WHERE id = {id}")
    })
}

async fn total_balance(db: &CaseDatabase) -> Result<i64> {
    let balances = db.read("SELECT balance FROM case_accounts").await?;
    Ok(balances.iter().map(|[balance]| balance).sum())
}

impl TransferCounts {
    fn add(&mut self, results: Vec<Result<()>>) -> Result<()> {
        for result in results {
            match result {
                Ok(()) => self.done += 1,
                Err(error) => match error.retry_cause() {
                    Some(RetryCause::Deadlock) => self.deadlocks += 1,
                    Some(RetryCause::Busy) => self.busy += 1,
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }
}

impl fmt::Display for TransferCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, deadlocks, busy, total } = self;
        write!(f, "{done} done, {deadlocks} rolled back by a deadlock, {busy} failed as busy; ")?;
        write!(f, "the sum of all balances is {total}")
    }
}

impl fmt::Display for TransferResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the accounts of three pairs pay each other 10 at the same time")?;
        writeln!(f, "broken, lock the payer first (SQLite: plain BEGIN): {}", self.broken)?;
        let RetryResult { done, attempts } = self.retried;
        writeln!(f, "broken, with retries: {done} done, in {attempts} attempts")?;
        writeln!(f, "right, lock in the order of the keys: {}", self.right)?;
        write!(f, "right, eight tellers at the same time: {}", self.many_tellers)
    }
}
