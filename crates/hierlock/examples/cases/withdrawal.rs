//! A withdrawal. Eight tellers pay out 60 each from the same account with a balance of 100.
//!
//! Broken: read the balance, check it, write the new balance. All tellers read 100, so all pay, and all write 40: a
//! lost update. A transaction alone does not prevent it. Right: `FOR UPDATE`, so that the balance cannot change
//! before it is written; or one UPDATE with the check in its WHERE. With sqlx:
//!
//! ```ignore
//! let mut tx = pool.begin().await?;
//! let sql = "SELECT balance FROM accounts WHERE id = ? FOR UPDATE";
//! let balance: i64 = sqlx::query_scalar(sql).bind(id).fetch_one(&mut *tx).await?;
//! if balance >= 60 {
//!     sqlx::query("UPDATE accounts SET balance = ? WHERE id = ?").bind(balance - 60).bind(id).execute(&mut *tx).await?;
//! }
//! tx.commit().await?;
//! ```

use super::case_database::{CaseDatabase, CaseTables, Result, read_in};
use super::race::{RaceBarrier, count_confirmed, retry_transaction};
use std::fmt;

const TABLES: CaseTables = CaseTables {
    names: &["case_accounts"],
    create: "CREATE TABLE case_accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
    insert: "INSERT INTO case_accounts VALUES (1, 100)",
};
const SELECT_BALANCE: &str = "SELECT balance FROM case_accounts WHERE id = 1";
const OPENING_BALANCE: i64 = 100;
const AMOUNT: i64 = 60;
const TELLERS: u32 = 8;

/// The account afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) paid_out: i64,
    pub(crate) left: i64,
}

pub(crate) struct WithdrawalResults {
    pub(crate) broken: Account,
    /// With `FOR UPDATE`.
    pub(crate) locked: Account,
    /// With one UPDATE and the check in its WHERE.
    pub(crate) checked: Account,
}

pub(crate) async fn run(db: &CaseDatabase) -> Result<WithdrawalResults> {
    db.create_tables(&TABLES).await?;
    let results = WithdrawalResults {
        broken: withdraw_by_tellers(db, WithdrawalMethod::ReadThenWrite).await?,
        locked: withdraw_by_tellers(db, WithdrawalMethod::SelectForUpdate).await?,
        checked: withdraw_by_tellers(db, WithdrawalMethod::SingleUpdate).await?,
    };
    db.drop_tables(&TABLES).await?;
    Ok(results)
}

#[derive(Clone, Copy)]
enum WithdrawalMethod {
    ReadThenWrite,
    SelectForUpdate,
    SingleUpdate,
}

async fn withdraw_by_tellers(db: &CaseDatabase, method: WithdrawalMethod) -> Result<Account> {
    db.reset_tables(&TABLES).await?;
    let paid = count_confirmed(TELLERS, |_, barrier| {
        let db = db.clone();
        async move {
            match method {
                WithdrawalMethod::ReadThenWrite => read_then_write(&db, &barrier).await,
                WithdrawalMethod::SelectForUpdate => {
                    barrier.wait_for_all().await?;
                    retry_transaction(|| select_for_update(&db, &barrier)).await
                }
                WithdrawalMethod::SingleUpdate => {
                    barrier.wait_for_all().await?;
                    retry_transaction(|| single_update(&db)).await
                }
            }
        }
    })
    .await?;
    Ok(Account { paid_out: paid * AMOUNT, left: db.read_number(SELECT_BALANCE).await? })
}

/// Broken. Returns true if the amount is paid out.
async fn read_then_write(db: &CaseDatabase, barrier: &RaceBarrier) -> Result<bool> {
    let (rows, mut tx) = db.read_then_begin::<1>(barrier, SELECT_BALANCE).await?;
    let [balance] = rows[0];
    if balance < AMOUNT {
        return Ok(false);
    }
    let sql = "UPDATE case_accounts SET balance = ? WHERE id = 1";
    tx.execute(sql, [(balance - AMOUNT).into()]).await?;
    tx.commit().await?;
    Ok(true)
}

/// Right: the row is locked from the read to the end of the transaction.
async fn select_for_update(db: &CaseDatabase, barrier: &RaceBarrier) -> Result<bool> {
    let mut tx = db.begin().await?;
    let sql = format!("{SELECT_BALANCE}{}", db.for_update());
    let [balance] = read_in(&mut tx, &sql).await?[0];
    barrier.pause_first_reader().await;
    if balance >= AMOUNT {
        let sql = "UPDATE case_accounts SET balance = ? WHERE id = 1";
        tx.execute(sql, [(balance - AMOUNT).into()]).await?;
    }
    tx.commit().await?;
    Ok(balance >= AMOUNT)
}

/// Right: the shortest version, if the check can be written in a WHERE.
async fn single_update(db: &CaseDatabase) -> Result<bool> {
    let mut tx = db.begin().await?;
    let sql = "UPDATE case_accounts SET balance = balance - ? WHERE id = 1 AND balance >= ?";
    let changed = tx.execute(sql, [AMOUNT.into(), AMOUNT.into()]).await?;
    tx.commit().await?;
    Ok(changed == 1)
}

impl Account {
    /// Returns the amount that was paid out although the account did not have it.
    pub(crate) fn overpaid(&self) -> i64 {
        self.paid_out + self.left - OPENING_BALANCE
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { paid_out, left } = self;
        write!(f, "paid out {paid_out}, left {left}, overpaid {}", self.overpaid())
    }
}

impl fmt::Display for WithdrawalResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{TELLERS} tellers pay out {AMOUNT} each from an account with {OPENING_BALANCE}"
        )?;
        writeln!(f, "broken, read, then write: {}", self.broken)?;
        writeln!(f, "right, FOR UPDATE: {}", self.locked)?;
        write!(f, "right, one UPDATE with the check in its WHERE: {}", self.checked)
    }
}
