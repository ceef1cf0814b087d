//! A withdrawal. Eight tellers pay out 60 of the same 100.
//!
//! Broken: read the balance, check it, write what is left. All have read 100, so all pay; and each writes
//! 40: a lost update, and money out of nothing. That it is in a transaction does not help. Right: `FOR UPDATE`, so that
//! what was read is still true when it is written; or one UPDATE that checks by itself. With sqlx:
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

use super::race::{Everyone, again, told_yes};
use super::stage::{Result, Scene, Stage, look_in};
use std::fmt;

const SCENE: Scene = Scene {
    tables: &["case_accounts"],
    make: "CREATE TABLE case_accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
    fill: "INSERT INTO case_accounts VALUES (1, 100)",
};
const READ: &str = "SELECT balance FROM case_accounts WHERE id = 1";
const OPENING: i64 = 100;
const AMOUNT: i64 = 60;
const TELLERS: u32 = 8;

/// What became of the account.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) paid_out: i64,
    pub(crate) left: i64,
}

pub(crate) struct Figures {
    pub(crate) broken: Account,
    /// With `FOR UPDATE`.
    pub(crate) locked: Account,
    /// With one UPDATE that checks.
    pub(crate) checked: Account,
}

pub(crate) async fn run(stage: &Stage) -> Result<Figures> {
    stage.build(&SCENE).await?;
    let figures = Figures {
        broken: all_at_once(stage, Way::ReadThenWrite).await?,
        locked: all_at_once(stage, Way::ForUpdate).await?,
        checked: all_at_once(stage, Way::OneUpdate).await?,
    };
    stage.strike(&SCENE).await?;
    Ok(figures)
}

#[derive(Clone, Copy)]
enum Way {
    ReadThenWrite,
    ForUpdate,
    OneUpdate,
}

async fn all_at_once(stage: &Stage, way: Way) -> Result<Account> {
    stage.reset(&SCENE).await?;
    let paid = told_yes(TELLERS, |_, everyone| {
        let stage = stage.clone();
        async move {
            match way {
                Way::ReadThenWrite => read_then_write(&stage, &everyone).await,
                Way::ForUpdate => {
                    everyone.meet().await?;
                    again(|| for_update(&stage, &everyone)).await
                }
                Way::OneUpdate => {
                    everyone.meet().await?;
                    again(|| one_update(&stage)).await
                }
            }
        }
    })
    .await?;
    Ok(Account { paid_out: paid * AMOUNT, left: stage.number(READ).await? })
}

/// Broken. Is it paid?
async fn read_then_write(stage: &Stage, everyone: &Everyone) -> Result<bool> {
    let (seen, mut tx) = stage.look_then_begin::<1>(everyone, READ).await?;
    let [balance] = seen[0];
    if balance < AMOUNT {
        return Ok(false);
    }
    let sql = "UPDATE case_accounts SET balance = ? WHERE id = 1";
    tx.execute(sql, [(balance - AMOUNT).into()]).await?;
    tx.commit().await?;
    Ok(true)
}

/// Right: the row is locked from the look to the end.
async fn for_update(stage: &Stage, everyone: &Everyone) -> Result<bool> {
    let mut tx = stage.database.begin().await?;
    let sql = format!("{READ}{}", stage.database.for_update());
    let [balance] = look_in(&mut tx, &sql).await?[0];
    everyone.tempt().await;
    if balance >= AMOUNT {
        let sql = "UPDATE case_accounts SET balance = ? WHERE id = 1";
        tx.execute(sql, [(balance - AMOUNT).into()]).await?;
    }
    tx.commit().await?;
    Ok(balance >= AMOUNT)
}

/// Right: where the rule fits into a WHERE, the shortest way.
async fn one_update(stage: &Stage) -> Result<bool> {
    let mut tx = stage.database.begin().await?;
    let sql = "UPDATE case_accounts SET balance = balance - ? WHERE id = 1 AND balance >= ?";
    let changed = tx.execute(sql, [AMOUNT.into(), AMOUNT.into()]).await?;
    tx.commit().await?;
    Ok(changed == 1)
}

impl Account {
    /// What was paid out and never was there.
    pub(crate) fn out_of_nothing(&self) -> i64 {
        self.paid_out + self.left - OPENING
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { paid_out, left } = self;
        write!(f, "paid out {paid_out}, left {left}, out of nothing {}", self.out_of_nothing())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TELLERS} tellers pay out {AMOUNT} of the same {OPENING}")?;
        writeln!(f, "broken, read, then write: {}", self.broken)?;
        writeln!(f, "right, FOR UPDATE: {}", self.locked)?;
        write!(f, "right, one UPDATE that checks: {}", self.checked)
    }
}
