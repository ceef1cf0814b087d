//! A reservation and its payment, which happens outside of the database ([`card`](super::card)).
//!
//! Broken: pay first, then reserve. Both have seen that the seat is free, both have paid, one has a seat; and there
//! may be no way to give the money back. Right: reserve in a transaction, pay last, commit; whoever finds the seat taken
//! is never charged, and a refused payment rolls everything back. With sqlx:
//!
//! ```ignore
//! let mut tx = pool.begin().await?;
//! let sql = "UPDATE seats SET holder = ? WHERE id = ? AND holder IS NULL";
//! if sqlx::query(sql).bind(person).bind(seat).execute(&mut *tx).await?.rows_affected() == 0 {
//!     return Ok(Sold::TooLate); // dropped, it is rolled back
//! }
//! card.charge(order).await?; // and so it is here
//! tx.commit().await?;
//! ```
//!
//! A gap is left. The answer of the service may be lost, or the program may end between the payment and the
//! COMMIT: charged, and no seat. No order of the steps closes it. What closes it is an order that is committed
//! *before* the payment, whose number is the key of the payment, and somebody who asks about the open ones later. It
//! also keeps no lock while somebody else's server thinks.

use super::card::{Answer, Card, Weather};
use super::race::{Everyone, again, together};
use super::stage::{Result, Scene, Stage};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

const SCENE: Scene = Scene {
    tables: &["case_seats", "case_orders"],
    make: "CREATE TABLE case_seats (id BIGINT PRIMARY KEY, holder BIGINT); \
           CREATE TABLE case_orders \
           (id BIGINT PRIMARY KEY, seat_id BIGINT NOT NULL, state VARCHAR(10) NOT NULL)",
    fill: "INSERT INTO case_seats VALUES (1, NULL), (2, NULL), (3, NULL), (4, NULL), (5, NULL)",
};
const FREE: &str = "SELECT id FROM case_seats WHERE id = 1 AND holder IS NULL";

/// Who has paid, and who has a seat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) charged: usize,
    pub(crate) seated: usize,
    pub(crate) charged_without_seat: usize,
    pub(crate) seated_without_charge: usize,
}

pub(crate) struct Figures {
    /// Two want seat 1, and pay first.
    pub(crate) broken: Books,
    /// The same two, who pay last.
    pub(crate) right: Books,
    /// Alone, and the payment is refused.
    pub(crate) refused: Books,
    /// Alone, and the answer is lost.
    pub(crate) answer_lost: Books,
    /// Alone, and the program ends before COMMIT.
    pub(crate) crashed: Books,
    /// With orders, everything going wrong.
    pub(crate) with_orders: Reconciled,
}

pub(crate) struct Reconciled {
    /// How many orders were left open.
    pub(crate) open: i64,
    /// How often one of these was settled, by two who tried.
    pub(crate) settled: usize,
    pub(crate) books: Books,
}

pub(crate) async fn run(stage: &Stage) -> Result<Figures> {
    stage.build(&SCENE).await?;
    let figures = Figures {
        broken: two_at_once(stage, Order::PayFirst).await?,
        right: two_at_once(stage, Order::PayLast).await?,
        refused: alone(stage, Weather::Refuses, Ending::Commits).await?,
        answer_lost: alone(stage, Weather::HangsUp, Ending::Commits).await?,
        crashed: alone(stage, Weather::Fine, Ending::Crashes).await?,
        with_orders: with_orders(stage).await?,
    };
    stage.strike(&SCENE).await?;
    Ok(figures)
}

#[derive(Clone, Copy)]
enum Order {
    PayFirst,
    PayLast,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Commits,
    Crashes,
}

async fn two_at_once(stage: &Stage, order: Order) -> Result<Books> {
    stage.reset(&SCENE).await?;
    let card = Arc::new(Card::open(&[]).await?);
    together(2, |person, both| {
        let (stage, card) = (stage.clone(), card.clone());
        async move {
            let is_free = !stage.look::<1>(FREE).await?.is_empty();
            both.meet().await?;
            match order {
                Order::PayFirst if is_free => pay_first(&stage, &card, person).await,
                Order::PayLast if is_free => pay_last(&stage, &card, person, Ending::Commits).await,
                _ => Ok(false),
            }
        }
    })
    .await?;
    Books::read(stage, &card).await
}

async fn alone(stage: &Stage, weather: Weather, ending: Ending) -> Result<Books> {
    stage.reset(&SCENE).await?;
    let card = Card::open(&[(1, weather)]).await?;
    pay_last(stage, &card, 1, ending).await?;
    Books::read(stage, &card).await
}

/// Broken: what the database says comes too late. Has the person a seat?
async fn pay_first(stage: &Stage, card: &Card, person: i64) -> Result<bool> {
    if card.charge(person).await != Answer::Charged {
        return Ok(false);
    }
    let mut tx = stage.database.begin().await?;
    let sql = "UPDATE case_seats SET holder = ? WHERE id = 1 AND holder IS NULL";
    let changed = tx.execute(sql, [person.into()]).await?;
    tx.commit().await?;
    Ok(changed == 1)
}

/// Right: the database first. It keeps the seat locked while the payment is under way, and the second
/// who wants it waits for how that ends.
async fn pay_last(stage: &Stage, card: &Card, person: i64, ending: Ending) -> Result<bool> {
    let mut tx = stage.database.begin().await?;
    let sql = "UPDATE case_seats SET holder = ? WHERE id = 1 AND holder IS NULL";
    let is_mine = tx.execute(sql, [person.into()]).await? == 1;
    if !is_mine || card.charge(person).await != Answer::Charged {
        tx.rollback().await?;
        return Ok(false);
    }
    match ending {
        Ending::Commits => tx.commit().await?,
        // The database sees a connection that ends.
        Ending::Crashes => drop(tx),
    }
    Ok(ending == Ending::Commits)
}

/// The cure: five people, a seat each, and everything that can go wrong.
async fn with_orders(stage: &Stage) -> Result<Reconciled> {
    const CRASHES: i64 = 5;
    stage.reset(&SCENE).await?;
    let weather = [(2, Weather::Refuses), (3, Weather::HangsUp), (4, Weather::Late)];
    let card = Arc::new(Card::open(&weather).await?);
    together(5, |person, everyone| {
        let (stage, card) = (stage.clone(), card.clone());
        async move {
            everyone.meet().await?;
            if !again(|| place(&stage, person)).await? {
                return Ok(());
            }
            let answer = card.charge(person).await;
            if person != CRASHES && answer != Answer::None {
                again(|| settle(&stage, person, answer)).await?;
            }
            Ok(())
        }
    })
    .await?;
    let open = stage.number("SELECT COUNT(*) FROM case_orders WHERE state = 'open'").await?;

    // Two of them at once, who both have seen all that are open: each order is settled once.
    let settled = together(2, |_, both| {
        let (stage, card) = (stage.clone(), card.clone());
        async move { reconcile(&stage, &card, &both).await }
    })
    .await?;
    card.catch_up().await?;
    let books = Books::read(stage, &card).await?;
    Ok(Reconciled { open, settled: settled.iter().sum(), books })
}

/// The seat and the order, committed before anybody pays. False if the seat is taken.
async fn place(stage: &Stage, person: i64) -> Result<bool> {
    let mut tx = stage.database.begin().await?;
    let sql = "UPDATE case_seats SET holder = ? WHERE id = ? AND holder IS NULL";
    let is_mine = tx.execute(sql, [person.into(), person.into()]).await? == 1;
    if is_mine {
        let sql = "INSERT INTO case_orders VALUES (?, ?, 'open')";
        tx.execute(sql, [person.into(), person.into()]).await?;
    }
    tx.commit().await?;
    Ok(is_mine)
}

/// Writes down how the payment ended, once: a seat that is not paid for is free again. False if somebody
/// else has done it.
async fn settle(stage: &Stage, order: i64, answer: Answer) -> Result<bool> {
    let state = if answer == Answer::Charged { "paid" } else { "void" };
    let mut tx = stage.database.begin().await?;
    let sql = "UPDATE case_orders SET state = ? WHERE id = ? AND state = 'open'";
    let is_first = tx.execute(sql, [state.into(), order.into()]).await? == 1;
    if is_first && state == "void" {
        let sql = "UPDATE case_seats SET holder = NULL WHERE holder = ?";
        tx.execute(sql, [order.into()]).await?;
    }
    tx.commit().await?;
    Ok(is_first)
}

/// Asks the service about the orders of which nobody knows. It is not enough to ask whether one is charged: it
/// could be a moment later. How many it has settled.
async fn reconcile(stage: &Stage, card: &Card, both: &Everyone) -> Result<usize> {
    let open = stage.look("SELECT id FROM case_orders WHERE state = 'open'").await?;
    both.meet().await?;
    let mut settled = 0;
    for [order] in open {
        settled += match card.void(order).await {
            // Next time.
            Answer::None => 0,
            answer => usize::from(again(|| settle(stage, order, answer)).await?),
        };
    }
    Ok(settled)
}

impl Books {
    async fn read(stage: &Stage, card: &Card) -> Result<Self> {
        let charged = card.charged();
        let holders = "SELECT holder FROM case_seats WHERE holder IS NOT NULL";
        let holders = stage.look(holders).await?;
        let seated: BTreeSet<i64> = holders.iter().map(|[holder]| *holder).collect();
        Ok(Self {
            charged: charged.len(),
            seated: seated.len(),
            charged_without_seat: charged.difference(&seated).count(),
            seated_without_charge: seated.difference(&charged).count(),
        })
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { charged, seated, charged_without_seat, seated_without_charge } = self;
        write!(
            f,
            "{charged} charged, {seated} seated, {charged_without_seat} charged without a seat, "
        )?;
        write!(f, "{seated_without_charge} seated without a charge")
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two want the same seat, which is paid for elsewhere")?;
        writeln!(f, "broken, pay, then reserve: {}", self.broken)?;
        writeln!(f, "right, reserve, pay last, commit: {}", self.right)?;
        writeln!(f, "right, the payment is refused: {}", self.refused)?;
        writeln!(f, "the gap, its answer is lost: {}", self.answer_lost)?;
        writeln!(f, "the gap, the program ends before COMMIT: {}", self.crashed)?;
        let Reconciled { open, settled, books } = &self.with_orders;
        write!(f, "closed by orders, {open} of 5 left open, {settled} settled later: {books}")
    }
}
