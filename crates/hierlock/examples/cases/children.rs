//! At most five children of a parent, with sixteen who want to add one, in two programs.
//!
//! Broken: count, then insert. All have counted none. Nobody has written a row of anybody else, so nothing
//! waits and nothing fails. Right: the parent's row stands for all its children; who locks it counts and inserts
//! alone. With sqlx:
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
//! At MySQL's default level, REPEATABLE READ, nothing may be read before the lock: the count would be that
//! of the snapshot. Where there is no row for the parent, a lock of hierlock stands for it: in one program
//! `memory:`, as here; among several, on the server, inside the same transaction:
//!
//! ```ignore
//! locks.acquire_in(&mut tx, [Target::user("parent-1")?]).await?;
//! ```

use super::race::{Everyone, again, told_yes};
use super::stage::{Result, Scene, Stage, look_in};
use hierlock::database::Transaction;
use hierlock::{Hierlock, Target};
use std::fmt;

const SCENE: Scene = Scene {
    tables: &["case_parents", "case_children"],
    make: "CREATE TABLE case_parents (id BIGINT PRIMARY KEY); \
           CREATE TABLE case_children (id BIGINT PRIMARY KEY, parent_id BIGINT NOT NULL)",
    fill: "INSERT INTO case_parents VALUES (1)",
};
const COUNT: &str = "SELECT COUNT(*) FROM case_children WHERE parent_id = 1";
const MOST: i64 = 5;
const WRITERS: u32 = 16;

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) told_yes: i64,
    pub(crate) children: i64,
}

pub(crate) struct Figures {
    pub(crate) broken: Family,
    /// The parent's row `FOR UPDATE`.
    pub(crate) parent_locked: Family,
    /// A lock of hierlock.
    pub(crate) hierlock: Family,
}

pub(crate) async fn run(stage: &Stage) -> Result<Figures> {
    stage.build(&SCENE).await?;
    let figures = Figures {
        broken: sixteen(stage, &Way::CountThenInsert).await?,
        parent_locked: sixteen(stage, &Way::ParentLocked).await?,
        hierlock: sixteen(stage, &Way::Hierlock(Hierlock::connect("memory:").await?)).await?,
    };
    stage.strike(&SCENE).await?;
    Ok(figures)
}

#[derive(Clone)]
enum Way {
    CountThenInsert,
    ParentLocked,
    Hierlock(Hierlock),
}

async fn sixteen(stage: &Stage, way: &Way) -> Result<Family> {
    stage.reset(&SCENE).await?;
    let programs = [stage.clone(), stage.another().await?];
    let told_yes = told_yes(WRITERS, |child, everyone| {
        let stage = programs[usize::from(child % 2 == 0)].clone();
        let way = way.clone();
        async move {
            match way {
                Way::CountThenInsert => count_then_insert(&stage, child, &everyone).await,
                Way::ParentLocked => {
                    everyone.meet().await?;
                    again(|| parent_locked(&stage, child, &everyone)).await
                }
                Way::Hierlock(locks) => {
                    everyone.meet().await?;
                    again(|| under_hierlock(&stage, &locks, child, &everyone)).await
                }
            }
        }
    })
    .await?;
    Ok(Family { told_yes, children: stage.number(COUNT).await? })
}

/// Broken. Was there room?
async fn count_then_insert(stage: &Stage, child: i64, everyone: &Everyone) -> Result<bool> {
    let (seen, tx) = stage.look_then_begin::<1>(everyone, COUNT).await?;
    let [children] = seen[0];
    insert_if_room(tx, children, child).await
}

/// Right: the parent's row first.
async fn parent_locked(stage: &Stage, child: i64, everyone: &Everyone) -> Result<bool> {
    let mut tx = stage.database.begin().await?;
    let for_update = stage.database.for_update();
    let lock = format!("SELECT id FROM case_parents WHERE id = 1{for_update}");
    look_in::<1>(&mut tx, &lock).await?;
    let [children] = look_in(&mut tx, COUNT).await?[0];
    everyone.tempt().await;
    insert_if_room(tx, children, child).await
}

/// Right, where all writers are in one process.
async fn under_hierlock(
    stage: &Stage,
    locks: &Hierlock,
    child: i64,
    everyone: &Everyone,
) -> Result<bool> {
    // Held until the transaction has ended, which is begun after it.
    let _guard = locks.acquire(Target::user("parent-1")?).await?;
    let mut tx = stage.database.begin().await?;
    let [children] = look_in(&mut tx, COUNT).await?[0];
    everyone.tempt().await;
    insert_if_room(tx, children, child).await
}

async fn insert_if_room(mut tx: Transaction, children: i64, child: i64) -> Result<bool> {
    if children >= MOST {
        tx.rollback().await?;
        return Ok(false);
    }
    tx.execute("INSERT INTO case_children VALUES (?, 1)", [child.into()]).await?;
    tx.commit().await?;
    Ok(true)
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { told_yes, children } = self;
        write!(f, "{told_yes} are told yes, the parent has {children} children")
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{WRITERS} writers in two programs, at most {MOST} children")?;
        writeln!(f, "broken, count, then insert: {}", self.broken)?;
        writeln!(f, "right, the parent's row FOR UPDATE: {}", self.parent_locked)?;
        write!(f, "right, a lock of hierlock: {}", self.hierlock)
    }
}
