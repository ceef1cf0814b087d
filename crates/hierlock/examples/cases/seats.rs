//! Cinema seats. Eight people look at the plan of the hall, and all click the same seat.
//!
//! Broken: is the seat free? Then write the holder. All were told that it is theirs; the last one's name
//! stands there. Right: the version that was read with the plan is in the condition of the UPDATE, and the
//! answer is a type (`hierlock::optimistic`). Nobody holds a lock while a person thinks. By hand, with sqlx:
//!
//! ```ignore
//! let changed = sqlx::query("UPDATE seats SET holder = ?, version = version + 1 WHERE id = ? AND version = ?")
//!     .bind("ada").bind(7).bind(version).execute(&mut *tx).await?.rows_affected();
//! if changed == 0 { /* somebody was faster: show the plan again */ }
//! ```

use super::race::{Everyone, again, told_yes};
use super::stage::{Result, Scene, Stage};
use hierlock::database::Transaction;
use hierlock::optimistic::{Changes, UpdateOutcome, VersionedTable};
use std::fmt;

/// A hall of four.
const SCENE: Scene = Scene {
    tables: &["case_seats"],
    make: "CREATE TABLE case_seats \
           (id BIGINT PRIMARY KEY, holder BIGINT, version BIGINT NOT NULL)",
    fill: "INSERT INTO case_seats VALUES (1, NULL, 1), (2, NULL, 1), (3, NULL, 1), (4, NULL, 1)",
};
const SEATS: i64 = 4;
const PEOPLE: u32 = 8;

pub(crate) struct Figures {
    /// How many were told that seat 1 is theirs, without a version.
    pub(crate) told_yes_broken: i64,
    /// The same with a version.
    pub(crate) told_yes_right: i64,
    /// How many have a seat when those who were too late choose another one.
    pub(crate) seated: i64,
    /// How many of these have a seat that is theirs in the hall.
    pub(crate) holders: i64,
}

pub(crate) async fn run(stage: &Stage) -> Result<Figures> {
    stage.build(&SCENE).await?;
    stage.reset(&SCENE).await?;
    let told_yes_broken = same_seat(stage, Check::Before).await?;
    stage.reset(&SCENE).await?;
    let told_yes_right = same_seat(stage, Check::Version).await?;

    stage.reset(&SCENE).await?;
    let seated = told_yes(PEOPLE, |person, everyone| {
        let stage = stage.clone();
        async move {
            everyone.meet().await?;
            any_seat(&stage, person).await
        }
    })
    .await?;
    let holders = "SELECT COUNT(DISTINCT holder) FROM case_seats WHERE holder IS NOT NULL";
    let holders = stage.number(holders).await?;
    stage.strike(&SCENE).await?;
    Ok(Figures { told_yes_broken, told_yes_right, seated, holders })
}

#[derive(Clone, Copy)]
enum Check {
    Before,
    Version,
}

/// All want seat 1. How many are told yes?
async fn same_seat(stage: &Stage, check: Check) -> Result<i64> {
    told_yes(PEOPLE, |person, everyone| {
        let stage = stage.clone();
        async move { seat_one(&stage, person, check, &everyone).await }
    })
    .await
}

/// All have seen that it is free, at version 1, before anyone writes.
async fn seat_one(stage: &Stage, person: i64, check: Check, everyone: &Everyone) -> Result<bool> {
    let free = "SELECT version FROM case_seats WHERE id = 1 AND holder IS NULL";
    let (free, mut tx) = stage.look_then_begin::<1>(everyone, free).await?;
    let Some([version]) = free.first() else {
        tx.rollback().await?;
        return Ok(false);
    };
    let is_theirs = match check {
        Check::Before => {
            let sql = "UPDATE case_seats SET holder = ?, version = version + 1 WHERE id = 1";
            tx.execute(sql, [person.into()]).await? == 1
        }
        Check::Version => take(&mut tx, 1, *version, person).await?,
    };
    tx.commit().await?;
    Ok(is_theirs)
}

/// Takes a seat if it is still as it was seen.
async fn take(tx: &mut Transaction, id: i64, seen: i64, person: i64) -> Result<bool> {
    let seat = VersionedTable::new("case_seats", "version")?.row("id", id)?;
    let outcome = seat.update(tx, seen, Changes::new().set("holder", person)).await?;
    Ok(matches!(outcome, UpdateOutcome::Updated(_)))
}

/// Takes the first that is free, and looks again if somebody was faster. False if the hall is full.
async fn any_seat(stage: &Stage, person: i64) -> Result<bool> {
    let free = "SELECT id, version FROM case_seats WHERE holder IS NULL ORDER BY id";
    while let Some([id, version]) = stage.look(free).await?.first() {
        let is_theirs = again(|| async {
            let mut tx = stage.database.begin().await?;
            let is_theirs = take(&mut tx, *id, *version, person).await?;
            tx.commit().await?;
            Ok(is_theirs)
        });
        if is_theirs.await? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { told_yes_broken, told_yes_right, seated, holders } = self;
        writeln!(f, "{PEOPLE} people click the same seat")?;
        writeln!(f, "broken, free? then write: {told_yes_broken} are told that it is theirs")?;
        writeln!(f, "right, with the version: {told_yes_right} is told that it is theirs")?;
        write!(f, "right, the others choose again: {seated} told yes for {SEATS} seats, ")?;
        write!(f, "which {holders} people hold")
    }
}
