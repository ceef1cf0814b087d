//! Money between accounts. Ann pays Bob while Bob pays Ann.
//!
//! Broken: each transfer locks the payer, then the payee. Two opposite ones have what the other wants,
//! and the server ends one of them. Right: both rows are locked in the order of their keys, whichever way the
//! money goes. With sqlx:
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
//! Trying again ([`retry`]) gets everyone there too, but does the work again; the order costs nothing.
//!
//! SQLite has one writer at a time and no such deadlock. What goes wrong there is `BEGIN` without `IMMEDIATE`:
//! it begins as a reader, and cannot become the writer when somebody else has been faster.

use super::race::{Everyone, together};
use super::stage::{Result, Scene, Stage, look_in};
use hierlock::retry::{RetryCause, RetryPolicy, Retryable as _, retry};
use sqlx::{AssertSqlSafe, SqlitePool};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Six accounts of 100 each.
const SCENE: Scene = Scene {
    tables: &["case_accounts"],
    make: "CREATE TABLE case_accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
    fill: "INSERT INTO case_accounts VALUES \
           (1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 100)",
};

const PAIRS: [i64; 3] = [1, 3, 5];

/// How some transfers ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) done: u32,
    /// Chosen to end a deadlock.
    pub(crate) deadlocks: u32,
    /// Told that the file is busy: SQLite.
    pub(crate) busy: u32,
    /// What all accounts have together afterwards.
    pub(crate) total: i64,
}

pub(crate) struct Figures {
    /// Three pairs of opposite transfers.
    pub(crate) broken: Tally,
    /// The same, each tried again until it is done.
    pub(crate) retried: Retried,
    /// The same in order.
    pub(crate) right: Tally,
    /// Eight tellers, twelve transfers each, all over the accounts.
    pub(crate) crowd: Tally,
}

pub(crate) struct Retried {
    pub(crate) done: u32,
    pub(crate) attempts: u32,
}

pub(crate) async fn run(stage: &Stage) -> Result<Figures> {
    stage.build(&SCENE).await?;
    stage.reset(&SCENE).await?;
    let broken = pairs(stage, Order::AsGiven).await?;
    stage.reset(&SCENE).await?;
    let retried = retried(stage).await?;
    stage.reset(&SCENE).await?;
    let right = pairs(stage, Order::Sorted).await?;
    let crowd = crowd(stage).await?;
    stage.strike(&SCENE).await?;
    Ok(Figures { broken, retried, right, crowd })
}

#[derive(Clone, Copy)]
enum Order {
    AsGiven,
    Sorted,
}

/// 1 and 2 pay each other at the same moment, and so do 3 and 4, and 5 and 6.
async fn pairs(stage: &Stage, order: Order) -> Result<Tally> {
    let mut tally = Tally::default();
    for low in PAIRS {
        let ended = together(2, |number, both| {
            let stage = stage.clone();
            let [from, to] = way(low, number);
            async move {
                both.meet().await?;
                Ok(match order {
                    Order::AsGiven => as_given(&stage, from, to, Some(&both)).await,
                    Order::Sorted => sorted(&stage, from, to).await,
                })
            }
        });
        tally.add(ended.await?)?;
    }
    tally.total = total(stage).await?;
    Ok(tally)
}

async fn retried(stage: &Stage) -> Result<Retried> {
    let mut retried = Retried { done: 0, attempts: 0 };
    for low in PAIRS {
        let ended = together(2, |number, both| {
            let stage = stage.clone();
            let [from, to] = way(low, number);
            async move {
                let policy = RetryPolicy::default().attempts(20);
                let attempts = AtomicU32::new(0);
                let done = retry(policy, |attempt| {
                    attempts.store(attempt, Ordering::Relaxed);
                    // They meet once; later one may be alone.
                    as_given(&stage, from, to, (attempt == 1).then_some(&*both))
                });
                done.await.map_err(|given_up| given_up.last)?;
                Ok(attempts.into_inner())
            }
        });
        for attempts in ended.await? {
            retried.attempts += attempts;
            retried.done += 1;
        }
    }
    Ok(retried)
}

/// Which way the money goes: the two of a pair are opposite.
fn way(low: i64, number: i64) -> [i64; 2] {
    if number == 1 { [low, low + 1] } else { [low + 1, low] }
}

async fn crowd(stage: &Stage) -> Result<Tally> {
    let ended = together(8, |number, everyone| {
        let stage = stage.clone();
        async move {
            everyone.meet().await?;
            let mut ended = Vec::new();
            for step in 0..12 {
                let from = (number + step) % 6 + 1;
                let to = (from + number % 5) % 6 + 1;
                ended.push(sorted(&stage, from, to).await);
            }
            Ok(ended)
        }
    });
    let mut tally = Tally::default();
    for ended in ended.await? {
        tally.add(ended)?;
    }
    tally.total = total(stage).await?;
    Ok(tally)
}

/// Broken: the payer, then the payee. Those who meet have both locked their payer before either wants the payee.
async fn as_given(stage: &Stage, from: i64, to: i64, both: Option<&Everyone>) -> Result<()> {
    if let Some(pool) = stage.sqlite() {
        return as_a_reader(pool, from, to, both).await;
    }
    let mut tx = stage.database.begin().await?;
    look_in::<1>(&mut tx, &lock(stage, from)).await?;
    if let Some(both) = both {
        both.meet().await?;
    }
    look_in::<1>(&mut tx, &lock(stage, to)).await?;
    for sql in moves(from, to) {
        tx.run(&sql).await?;
    }
    Ok(tx.commit().await?)
}

/// Broken, on SQLite: a reader who wants to write.
async fn as_a_reader(pool: &SqlitePool, from: i64, to: i64, both: Option<&Everyone>) -> Result<()> {
    // `BEGIN`, which is DEFERRED.
    let mut tx = pool.begin().await?;
    let _balance: i64 = sqlx::query_scalar("SELECT balance FROM case_accounts WHERE id = ?")
        .bind(from)
        .fetch_one(&mut *tx)
        .await?;
    if let Some(both) = both {
        both.meet().await?;
    }
    for sql in moves(from, to) {
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

/// Right: in the order of the keys. On SQLite `BEGIN IMMEDIATE` has done it already.
async fn sorted(stage: &Stage, from: i64, to: i64) -> Result<()> {
    let mut tx = stage.database.begin().await?;
    for id in [from.min(to), from.max(to)] {
        look_in::<1>(&mut tx, &lock(stage, id)).await?;
    }
    for sql in moves(from, to) {
        tx.run(&sql).await?;
    }
    Ok(tx.commit().await?)
}

fn lock(stage: &Stage, id: i64) -> String {
    let for_update = stage.database.for_update();
    format!("SELECT balance FROM case_accounts WHERE id = {id}{for_update}")
}

fn moves(from: i64, to: i64) -> [String; 2] {
    [(from, -10), (to, 10)].map(|(id, by)| {
        format!("UPDATE case_accounts SET balance = balance + {by} WHERE id = {id}")
    })
}

async fn total(stage: &Stage) -> Result<i64> {
    let balances = stage.look("SELECT balance FROM case_accounts").await?;
    Ok(balances.iter().map(|[balance]| balance).sum())
}

impl Tally {
    fn add(&mut self, ended: Vec<Result<()>>) -> Result<()> {
        for ended in ended {
            match ended {
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

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, deadlocks, busy, total } = self;
        write!(f, "{done} done, {deadlocks} ended by a deadlock, {busy} refused as busy; ")?;
        write!(f, "all accounts together have {total}")
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "three pairs pay each other 10 at the same moment")?;
        writeln!(f, "broken, payer first (SQLite: a reader who wants to write): {}", self.broken)?;
        let Retried { done, attempts } = self.retried;
        writeln!(f, "broken, tried again: {done} done, in {attempts} attempts")?;
        writeln!(f, "right, in the order of the keys: {}", self.right)?;
        write!(f, "right, eight tellers at once: {}", self.crowd)
    }
}
