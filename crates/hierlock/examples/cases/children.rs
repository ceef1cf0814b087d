//! A parent may have at most five children. Sixteen writers in two programs add one each.
//!
//! Broken: count, then insert. All writers count zero. No two transactions write the same row, so nothing waits and
//! nothing fails. Right: lock the parent's row first, so that only one transaction at a time counts and inserts.
//! With sqlx:
//!
//! ```ignore
//! let mut tx = pool.begin().await?;
//! sqlx::query("SELECT id FROM parents WHERE id = ? FOR UPDATE").bind(parent).execute(&mut *tx).await?;
//! let sql = "SELECT COUNT(*) FROM children WHERE parent_id = ?";
//! let children: i64 = sqlx::query_scalar(sql).bind(parent).fetch_one(&mut *tx).await?;
//! if children < 5 { /* INSERT */ }
//! tx.commit().await?;
//! ```
//!
//! At MySQL's default isolation level, REPEATABLE READ, read nothing before the lock: the count would use the older
//! snapshot. If there is no parent row, use a hierlock lock: `memory:` within one process, as here; among several
//! processes a lock on the server, in the same transaction:
//!
//! ```ignore
//! locks.acquire_in(&mut tx, [Target::user("parent-1")?]).await?;
//! ```

use super::case_database::{CaseDatabase, CaseTables, Result, read_in};
use super::race::{RaceBarrier, count_confirmed, retry_transaction};
use hierlock::database::Transaction;
use hierlock::{Hierlock, Target};
use std::fmt;

const TABLES: CaseTables = CaseTables {
    names: &["case_parents", "case_children"],
    create: "CREATE TABLE case_parents (id BIGINT PRIMARY KEY); \
           CREATE TABLE case_children (id BIGINT PRIMARY KEY, parent_id BIGINT NOT NULL)",
    insert: "INSERT INTO case_parents VALUES (1)",
};
const COUNT_CHILDREN: &str = "SELECT COUNT(*) FROM case_children WHERE parent_id = 1";
const MAX_CHILDREN: i64 = 5;
const WRITERS: u32 = 16;

/// The result of one method.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChildrenCounts {
    /// How many writers got a confirmation.
    pub(crate) confirmed: i64,
    pub(crate) children: i64,
}

pub(crate) struct ChildrenResults {
    pub(crate) broken: ChildrenCounts,
    /// With the parent's row locked `FOR UPDATE`.
    pub(crate) parent_locked: ChildrenCounts,
    /// With a hierlock lock.
    pub(crate) hierlock: ChildrenCounts,
}

pub(crate) async fn run(db: &CaseDatabase) -> Result<ChildrenResults> {
    db.create_tables(&TABLES).await?;
    let results = ChildrenResults {
        broken: add_children(db, &InsertMethod::CountThenInsert).await?,
        parent_locked: add_children(db, &InsertMethod::LockParentRow).await?,
        hierlock: add_children(db, &InsertMethod::Hierlock(Hierlock::connect("memory:").await?))
            .await?,
    };
    db.drop_tables(&TABLES).await?;
    Ok(results)
}

#[derive(Clone)]
enum InsertMethod {
    CountThenInsert,
    LockParentRow,
    Hierlock(Hierlock),
}

async fn add_children(db: &CaseDatabase, method: &InsertMethod) -> Result<ChildrenCounts> {
    db.reset_tables(&TABLES).await?;
    let programs = [db.clone(), db.connect_again().await?];
    let confirmed = count_confirmed(WRITERS, |child, barrier| {
        let db = programs[usize::from(child % 2 == 0)].clone();
        let method = method.clone();
        async move {
            match method {
                InsertMethod::CountThenInsert => count_then_insert(&db, child, &barrier).await,
                InsertMethod::LockParentRow => {
                    barrier.wait_for_all().await?;
                    retry_transaction(|| lock_parent_row(&db, child, &barrier)).await
                }
                InsertMethod::Hierlock(locks) => {
                    barrier.wait_for_all().await?;
                    retry_transaction(|| lock_with_hierlock(&db, &locks, child, &barrier)).await
                }
            }
        }
    })
    .await?;
    Ok(ChildrenCounts { confirmed, children: db.read_number(COUNT_CHILDREN).await? })
}

/// Broken. Returns true if the child was inserted.
async fn count_then_insert(db: &CaseDatabase, child: i64, barrier: &RaceBarrier) -> Result<bool> {
    let (rows, tx) = db.read_then_begin::<1>(barrier, COUNT_CHILDREN).await?;
    let [children] = rows[0];
    insert_if_below_limit(tx, children, child).await
}

/// Right: locks the parent's row first.
async fn lock_parent_row(db: &CaseDatabase, child: i64, barrier: &RaceBarrier) -> Result<bool> {
    let mut tx = db.begin().await?;
    let for_update = db.for_update();
    let lock = format!("SELECT id FROM case_parents WHERE id = 1{for_update}");
    read_in::<1>(&mut tx, &lock).await?;
    let [children] = read_in(&mut tx, COUNT_CHILDREN).await?[0];
    barrier.pause_first_reader().await;
    insert_if_below_limit(tx, children, child).await
}

/// Right if all writers are in one process.
async fn lock_with_hierlock(
    db: &CaseDatabase,
    locks: &Hierlock,
    child: i64,
    barrier: &RaceBarrier,
) -> Result<bool> {
    // Acquired before the transaction begins, and released after it has ended.
    let _guard = locks.acquire(Target::user("parent-1")?).await?;
    let mut tx = db.begin().await?;
    let [children] = read_in(&mut tx, COUNT_CHILDREN).await?[0];
    barrier.pause_first_reader().await;
    insert_if_below_limit(tx, children, child).await
}

async fn insert_if_below_limit(mut tx: Transaction, children: i64, child: i64) -> Result<bool> {
    if children >= MAX_CHILDREN {
        tx.rollback().await?;
        return Ok(false);
    }
    tx.execute("INSERT INTO case_children VALUES (?, 1)", [child.into()]).await?;
    tx.commit().await?;
    Ok(true)
}

impl fmt::Display for ChildrenCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { confirmed, children } = self;
        write!(f, "{confirmed} confirmations, the parent has {children} children")
    }
}

impl fmt::Display for ChildrenResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{WRITERS} writers in two programs, at most {MAX_CHILDREN} children")?;
        writeln!(f, "broken, count, then insert: {}", self.broken)?;
        writeln!(f, "right, lock the parent's row FOR UPDATE: {}", self.parent_locked)?;
        write!(f, "right, with a hierlock lock: {}", self.hierlock)
    }
}
