//! Cinema seats. Eight people see the same seat plan, and all click the same seat.
//!
//! Broken: read whether the seat is free, then write the holder. All get a confirmation, and the last write wins.
//! Right: the version that was read with the seat plan is in the WHERE of the UPDATE, and the result is a type
//! (`hierlock::optimistic`). No lock is held while a person thinks. With plain sqlx:
//!
//! ```ignore
//! let changed = sqlx::query("UPDATE seats SET holder = ?, version = version + 1 WHERE id = ? AND version = ?")
//!     .bind("ada").bind(7).bind(version).execute(&mut *tx).await?.rows_affected();
//! if changed == 0 { /* another user was faster: show the seats again */ }
//! ```

use super::case_database::{CaseDatabase, CaseTables, Result};
use super::race::{RaceBarrier, count_confirmed, retry_transaction};
use hierlock::database::Transaction;
use hierlock::optimistic::{Changes, UpdateOutcome, VersionedTable};
use std::fmt;

/// Four seats.
const TABLES: CaseTables = CaseTables {
    names: &["case_seats"],
    create: "CREATE TABLE case_seats \
           (id BIGINT PRIMARY KEY, holder BIGINT, version BIGINT NOT NULL)",
    insert: "INSERT INTO case_seats VALUES (1, NULL, 1), (2, NULL, 1), (3, NULL, 1), (4, NULL, 1)",
};
const SEATS: i64 = 4;
const PEOPLE: u32 = 8;

pub(crate) struct SeatResults {
    /// The number of confirmations of seat 1, without a version.
    pub(crate) confirmed_broken: i64,
    /// The number of confirmations of seat 1, with a version.
    pub(crate) confirmed_right: i64,
    /// The number of confirmations of any seat, if people who were too late choose another one.
    pub(crate) seated: i64,
    /// The number of people who then are the holder of a seat in the table.
    pub(crate) holders: i64,
}

pub(crate) async fn run(db: &CaseDatabase) -> Result<SeatResults> {
    db.create_tables(&TABLES).await?;
    db.reset_tables(&TABLES).await?;
    let confirmed_broken = reserve_same_seat(db, SeatCheck::BeforeUpdate).await?;
    db.reset_tables(&TABLES).await?;
    let confirmed_right = reserve_same_seat(db, SeatCheck::VersionInUpdate).await?;

    db.reset_tables(&TABLES).await?;
    let seated = count_confirmed(PEOPLE, |person, barrier| {
        let db = db.clone();
        async move {
            barrier.wait_for_all().await?;
            reserve_any_seat(&db, person).await
        }
    })
    .await?;
    let holders = "SELECT COUNT(DISTINCT holder) FROM case_seats WHERE holder IS NOT NULL";
    let holders = db.read_number(holders).await?;
    db.drop_tables(&TABLES).await?;
    Ok(SeatResults { confirmed_broken, confirmed_right, seated, holders })
}

#[derive(Clone, Copy)]
enum SeatCheck {
    /// Broken: a SELECT has read that the seat is free.
    BeforeUpdate,
    /// Right: the UPDATE compares the version.
    VersionInUpdate,
}

/// All people want seat 1. Returns how many get a confirmation.
async fn reserve_same_seat(db: &CaseDatabase, check: SeatCheck) -> Result<i64> {
    count_confirmed(PEOPLE, |person, barrier| {
        let db = db.clone();
        async move { reserve_seat_1(&db, person, check, &barrier).await }
    })
    .await
}

/// Reserves seat 1, after all have read that it is free. Returns true if the seat is confirmed.
async fn reserve_seat_1(
    db: &CaseDatabase,
    person: i64,
    check: SeatCheck,
    barrier: &RaceBarrier,
) -> Result<bool> {
    let free = "SELECT version FROM case_seats WHERE id = 1 AND holder IS NULL";
    let (free, mut tx) = db.read_then_begin::<1>(barrier, free).await?;
    let Some([version]) = free.first() else {
        tx.rollback().await?;
        return Ok(false);
    };
    let is_reserved = match check {
        SeatCheck::BeforeUpdate => {
            let sql = "UPDATE case_seats SET holder = ?, version = version + 1 WHERE id = 1";
            tx.execute(sql, [person.into()]).await? == 1
        }
        SeatCheck::VersionInUpdate => reserve_if_unchanged(&mut tx, 1, *version, person).await?,
    };
    tx.commit().await?;
    Ok(is_reserved)
}

/// Reserves a seat if its version is still the one that was read.
async fn reserve_if_unchanged(
    tx: &mut Transaction,
    id: i64,
    version: i64,
    person: i64,
) -> Result<bool> {
    let seat = VersionedTable::new("case_seats", "version")?.row("id", id)?;
    let outcome = seat.update(tx, version, Changes::new().set("holder", person)).await?;
    Ok(matches!(outcome, UpdateOutcome::Updated(_)))
}

/// Reserves the first free seat, and reads again if another person was faster. Returns false if no seat is free.
async fn reserve_any_seat(db: &CaseDatabase, person: i64) -> Result<bool> {
    let free = "SELECT id, version FROM case_seats WHERE holder IS NULL ORDER BY id";
    while let Some([id, version]) = db.read(free).await?.first() {
        let is_reserved = retry_transaction(|| async {
            let mut tx = db.begin().await?;
            let is_reserved = reserve_if_unchanged(&mut tx, *id, *version, person).await?;
            tx.commit().await?;
            Ok(is_reserved)
        });
        if is_reserved.await? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl fmt::Display for SeatResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { confirmed_broken, confirmed_right, seated, holders } = self;
        writeln!(f, "{PEOPLE} people click the same seat")?;
        writeln!(f, "broken, read if it is free, then write: {confirmed_broken} confirmations")?;
        writeln!(f, "right, with the version: {confirmed_right} confirmation")?;
        write!(f, "right, the others choose again: {seated} confirmations for {SEATS} seats, ")?;
        write!(f, "which {holders} people hold")
    }
}
