//! A reservation and its payment, which happens outside of the database ([`card`](super::card)).
//!
//! Broken: pay first, then reserve. Two people read that the seat is free, both pay, and one gets the seat; the refund
//! can fail too. Right: reserve in a transaction, pay last, commit. A person who finds the seat taken is never charged,
//! and a refused payment rolls back. With sqlx:
//!
//! ```ignore
//! let mut tx = pool.begin().await?;
//! let sql = "UPDATE seats SET holder = ? WHERE id = ? AND holder IS NULL";
//! if sqlx::query(sql).bind(person).bind(seat).execute(&mut *tx).await?.rows_affected() == 0 {
//!     return Ok(false); // the dropped transaction is rolled back
//! }
//! card.charge(order).await?; // also here, if it fails
//! tx.commit().await?;
//! ```
//!
//! One problem remains. If the answer of the service is lost, or the program ends between the payment and COMMIT, a
//! person is charged and gets no seat. No order of the steps prevents this. The solution is an order that is
//! committed *before* the payment, whose number is the idempotency key of the payment, and a process that settles open
//! orders later. It also holds no lock while a remote server works.

use super::card::{Answer, CardService, ChargeBehaviour};
use super::case_database::{CaseDatabase, CaseTables, Result};
use super::race::{RaceBarrier, retry_transaction, run_tasks};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

const TABLES: CaseTables = CaseTables {
    names: &["case_seats", "case_orders"],
    create: "CREATE TABLE case_seats (id BIGINT PRIMARY KEY, holder BIGINT); \
           CREATE TABLE case_orders \
           (id BIGINT PRIMARY KEY, seat_id BIGINT NOT NULL, state VARCHAR(10) NOT NULL)",
    insert: "INSERT INTO case_seats VALUES (1, NULL), (2, NULL), (3, NULL), (4, NULL), (5, NULL)",
};
const SELECT_IF_FREE: &str = "SELECT id FROM case_seats WHERE id = 1 AND holder IS NULL";

/// How many people are charged, and how many have a seat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChargesAndSeats {
    pub(crate) charged: usize,
    pub(crate) seated: usize,
    pub(crate) charged_without_seat: usize,
    pub(crate) seated_without_charge: usize,
}

pub(crate) struct PaymentResults {
    /// Two people want seat 1, and pay first.
    pub(crate) broken: ChargesAndSeats,
    /// Two people want seat 1, and pay last.
    pub(crate) right: ChargesAndSeats,
    /// One person, and the payment is refused.
    pub(crate) refused: ChargesAndSeats,
    /// One person, and the answer is lost.
    pub(crate) answer_lost: ChargesAndSeats,
    /// One person, and the program ends before COMMIT.
    pub(crate) crashed: ChargesAndSeats,
    /// Five people with orders, and every failure.
    pub(crate) with_orders: ReconciliationResult,
}

/// The result of settling the open orders.
pub(crate) struct ReconciliationResult {
    /// How many orders were still open after the payments.
    pub(crate) open: i64,
    /// How many times an open order was settled, by two processes at the same time.
    pub(crate) settled: usize,
    pub(crate) charges_and_seats: ChargesAndSeats,
}

pub(crate) async fn run(db: &CaseDatabase) -> Result<PaymentResults> {
    db.create_tables(&TABLES).await?;
    let results = PaymentResults {
        broken: two_people(db, PaymentTime::BeforeReservation).await?,
        right: two_people(db, PaymentTime::AfterReservation).await?,
        refused: one_person(db, ChargeBehaviour::Refuse, LastStep::Commit).await?,
        answer_lost: one_person(db, ChargeBehaviour::ChargeThenDisconnect, LastStep::Commit)
            .await?,
        crashed: one_person(db, ChargeBehaviour::Charge, LastStep::Crash).await?,
        with_orders: with_orders(db).await?,
    };
    db.drop_tables(&TABLES).await?;
    Ok(results)
}

#[derive(Clone, Copy)]
enum PaymentTime {
    BeforeReservation,
    AfterReservation,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LastStep {
    Commit,
    /// The program ends without COMMIT.
    Crash,
}

async fn two_people(db: &CaseDatabase, time: PaymentTime) -> Result<ChargesAndSeats> {
    db.reset_tables(&TABLES).await?;
    let card = Arc::new(CardService::start(&[]).await?);
    run_tasks(2, |person, barrier| {
        let (db, card) = (db.clone(), card.clone());
        async move {
            let is_free = !db.read::<1>(SELECT_IF_FREE).await?.is_empty();
            barrier.wait_for_all().await?;
            match time {
                PaymentTime::BeforeReservation if is_free => pay_first(&db, &card, person).await,
                PaymentTime::AfterReservation if is_free => {
                    pay_last(&db, &card, person, LastStep::Commit).await
                }
                _ => Ok(false),
            }
        }
    })
    .await?;
    ChargesAndSeats::read(db, &card).await
}

async fn one_person(
    db: &CaseDatabase,
    behaviour: ChargeBehaviour,
    last_step: LastStep,
) -> Result<ChargesAndSeats> {
    db.reset_tables(&TABLES).await?;
    let card = CardService::start(&[(1, behaviour)]).await?;
    pay_last(db, &card, 1, last_step).await?;
    ChargesAndSeats::read(db, &card).await
}

/// Broken: the person is charged before the database refuses the seat. Returns true if the person has the seat.
async fn pay_first(db: &CaseDatabase, card: &CardService, person: i64) -> Result<bool> {
    if card.charge(person).await != Answer::Charged {
        return Ok(false);
    }
    let mut tx = db.begin().await?;
    let sql = "UPDATE case_seats SET holder = ? WHERE id = 1 AND holder IS NULL";
    let changed = tx.execute(sql, [person.into()]).await?;
    tx.commit().await?;
    Ok(changed == 1)
}

/// Right: reserves the seat first. The seat is locked during the payment, and a second person who wants it waits
/// until the transaction has ended. Returns true if the person has the seat.
async fn pay_last(
    db: &CaseDatabase,
    card: &CardService,
    person: i64,
    last_step: LastStep,
) -> Result<bool> {
    let mut tx = db.begin().await?;
    let sql = "UPDATE case_seats SET holder = ? WHERE id = 1 AND holder IS NULL";
    let is_reserved = tx.execute(sql, [person.into()]).await? == 1;
    if !is_reserved || card.charge(person).await != Answer::Charged {
        tx.rollback().await?;
        return Ok(false);
    }
    match last_step {
        LastStep::Commit => tx.commit().await?,
        // The server sees that the connection ends.
        LastStep::Crash => drop(tx),
    }
    Ok(last_step == LastStep::Commit)
}

/// The complete solution: five people, a seat each, and every failure.
async fn with_orders(db: &CaseDatabase) -> Result<ReconciliationResult> {
    const CRASHED_PERSON: i64 = 5;
    db.reset_tables(&TABLES).await?;
    let behaviours = [
        (2, ChargeBehaviour::Refuse),
        (3, ChargeBehaviour::ChargeThenDisconnect),
        (4, ChargeBehaviour::ChargeAfterTimeout),
    ];
    let card = Arc::new(CardService::start(&behaviours).await?);
    run_tasks(5, |person, barrier| {
        let (db, card) = (db.clone(), card.clone());
        async move {
            barrier.wait_for_all().await?;
            if !retry_transaction(|| place_order(&db, person)).await? {
                return Ok(());
            }
            let answer = card.charge(person).await;
            if person != CRASHED_PERSON && answer != Answer::Unknown {
                retry_transaction(|| settle_order(&db, person, answer)).await?;
            }
            Ok(())
        }
    })
    .await?;
    let open = db.read_number("SELECT COUNT(*) FROM case_orders WHERE state = 'open'").await?;

    // Two processes read all open orders at the same time; each order is settled once.
    let settled = run_tasks(2, |_, barrier| {
        let (db, card) = (db.clone(), card.clone());
        async move { settle_open_orders(&db, &card, &barrier).await }
    })
    .await?;
    card.finish_late_charges().await?;
    let charges_and_seats = ChargesAndSeats::read(db, &card).await?;
    Ok(ReconciliationResult { open, settled: settled.iter().sum(), charges_and_seats })
}

/// Commits seat and order before the payment. Returns false if the seat is taken.
async fn place_order(db: &CaseDatabase, person: i64) -> Result<bool> {
    let mut tx = db.begin().await?;
    let sql = "UPDATE case_seats SET holder = ? WHERE id = ? AND holder IS NULL";
    let is_reserved = tx.execute(sql, [person.into(), person.into()]).await? == 1;
    if is_reserved {
        let sql = "INSERT INTO case_orders VALUES (?, ?, 'open')";
        tx.execute(sql, [person.into(), person.into()]).await?;
    }
    tx.commit().await?;
    Ok(is_reserved)
}

/// Records the result of the payment if the order is still open. A seat that is not paid becomes free again. Returns
/// false if the order was settled before.
async fn settle_order(db: &CaseDatabase, order: i64, answer: Answer) -> Result<bool> {
    let state = if answer == Answer::Charged { "paid" } else { "void" };
    let mut tx = db.begin().await?;
    let sql = "UPDATE case_orders SET state = ? WHERE id = ? AND state = 'open'";
    let is_first = tx.execute(sql, [state.into(), order.into()]).await? == 1;
    if is_first && state == "void" {
        let sql = "UPDATE case_seats SET holder = NULL WHERE holder = ?";
        tx.execute(sql, [order.into()]).await?;
    }
    tx.commit().await?;
    Ok(is_first)
}

/// Settles the orders that are still open. It voids them at the service, since an order that is not charged yet could
/// be charged right after the question. Returns how many it has settled.
async fn settle_open_orders(
    db: &CaseDatabase,
    card: &CardService,
    barrier: &RaceBarrier,
) -> Result<usize> {
    let open = db.read("SELECT id FROM case_orders WHERE state = 'open'").await?;
    barrier.wait_for_all().await?;
    let mut settled = 0;
    for [order] in open {
        settled += match card.void(order).await {
            // The order stays open until the next run.
            Answer::Unknown => 0,
            answer => usize::from(retry_transaction(|| settle_order(db, order, answer)).await?),
        };
    }
    Ok(settled)
}

impl ChargesAndSeats {
    async fn read(db: &CaseDatabase, card: &CardService) -> Result<Self> {
        let charged = card.charged_orders();
        let holders = "SELECT holder FROM case_seats WHERE holder IS NOT NULL";
        let holders = db.read(holders).await?;
        let seated: BTreeSet<i64> = holders.iter().map(|[holder]| *holder).collect();
        Ok(Self {
            charged: charged.len(),
            seated: seated.len(),
            charged_without_seat: charged.difference(&seated).count(),
            seated_without_charge: seated.difference(&charged).count(),
        })
    }
}

impl fmt::Display for ChargesAndSeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { charged, seated, charged_without_seat, seated_without_charge } = self;
        write!(
            f,
            "{charged} charged, {seated} seated, {charged_without_seat} charged without a seat, "
        )?;
        write!(f, "{seated_without_charge} seated without a charge")
    }
}

impl fmt::Display for PaymentResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two people want the same seat, and pay at an external service")?;
        writeln!(f, "broken, pay first, then reserve: {}", self.broken)?;
        writeln!(f, "right, reserve, pay last, commit: {}", self.right)?;
        writeln!(f, "right, the payment is refused: {}", self.refused)?;
        writeln!(f, "what remains, the answer is lost: {}", self.answer_lost)?;
        writeln!(f, "what remains, the program ends before COMMIT: {}", self.crashed)?;
        let ReconciliationResult { open, settled, charges_and_seats } = &self.with_orders;
        write!(
            f,
            "solved with orders, {open} of 5 still open after the payments, {settled} settled later: {charges_and_seats}"
        )
    }
}
