//! The keeper of one hold: a task that owns its connections from the first statement to the ROLLBACK.
//!
//! It is never dropped by a caller, so no statement is left running and no transaction left open: a
//! caller that goes away is *noticed* (its end of a channel closes), the statement is cancelled on the
//! server, and what was taken is given back. If the whole runtime goes away, so does the connection,
//! and the server frees everything.
//!
//! ```text
//!   acquire ──Take──► keeper ── lock; lock; … ──► server
//!      ▲                │  caller gone, or too late: cancel from the side connection, then ROLLBACK
//!      └─── SqlHold ◄───┤
//!                       │  holds: pings, extends, lends, until released, committed, dropped, or lost
//!                       └── ROLLBACK, connection back to the pool
//! ```

use super::pool::{Permit, Pool};
use super::session::{Ran, Session};
use super::take::{Around, NotTaken, Take, Taker};
use super::{Scheme, Strategy};
use crate::error::{Error, Result, SqlError};
use crate::plan::Step;
use crate::registry::Entry;
use crate::snapshot::Statistics;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

/// The longest pause before a deadlocked acquire is tried again.
const RETRY_WITHIN: Duration = Duration::from_millis(20);

/// What a guard asks of its keeper.
pub(super) enum Ask {
    Extend(Take, oneshot::Sender<Result<Confirm>>),
    Release(oneshot::Sender<Result<()>>),
}

/// Says that the answer to an extension has arrived. If it is dropped instead, nobody knows of the
/// extension, and the keeper gives it back.
pub(super) type Confirm = oneshot::Sender<()>;

/// What a guard has of its keeper.
pub(super) struct Lines {
    pub(super) asks: mpsc::Sender<Ask>,
    /// Why it was lost, if it was.
    pub(super) lost: watch::Receiver<Option<String>>,
    pub(super) statistics: Statistics,
}

pub(super) struct Keeper {
    pub(super) pool: Arc<Pool>,
    pub(super) scheme: Arc<Scheme>,
    pub(super) entry: Arc<Entry>,
    /// Freed with the keeper, after the connection is back.
    pub(super) permit: Permit,
}

/// How a keeper's taking ended, if not well.
pub(super) enum Refusal {
    Error(Error),
    /// The table is not there, or no longer striped as it was: the agreement must be read again.
    Disagrees(sqlx::Error),
}

/// The connections of one hold.
pub(super) struct Held {
    /// With the first plan.
    pub(super) base: Session,
    /// With what was added, where a transaction cannot give back a part.
    pub(super) more: Vec<Session>,
}

impl Keeper {
    pub(super) fn taker(&self) -> Taker<'_> {
        Taker { pool: &self.pool, scheme: &self.scheme, entry: &self.entry }
    }

    /// Takes, answers, and holds until it is told or finds otherwise.
    pub(super) async fn run(self, take: Take, mut reply: oneshot::Sender<Result<Lines, Refusal>>) {
        let mut statistics = Statistics::default();
        let base = match self.acquire(&take, &mut statistics, &mut reply).await {
            Ok(session) => session,
            Err(NotTaken::GivenUp) => return,
            Err(why) => {
                let refusal = match why {
                    NotTaken::Disagrees(error) => Refusal::Disagrees(error),
                    why => Refusal::Error(self.taker().error(why, &take)),
                };
                // Whoever asked finds nothing left of it.
                drop(self);
                let _ = reply.send(Err(refusal));
                return;
            }
        };
        self.note(&take);
        let (asks, receive) = mpsc::channel(1);
        let (lose, lost) = watch::channel(None);
        // If the caller has gone, the line is closed, and `hold` releases at once.
        let _ = reply.send(Ok(Lines { asks, lost, statistics }));
        self.hold(Held { base, more: Vec::new() }, receive, lose).await;
    }

    /// Takes all steps in a new transaction. Deadlocks are tried again: whoever only acquires is in
    /// order, so the other one was extending, or does something else in the same transaction.
    async fn acquire<T>(
        &self,
        take: &Take,
        statistics: &mut Statistics,
        reply: &mut oneshot::Sender<T>,
    ) -> Result<Session, NotTaken> {
        let steps: Vec<Step> = take.plan.steps().collect();
        let around = Around::acquire(self.scheme.dialect);
        let mut idle = self.pool.take_idle();
        loop {
            let was_idle = idle.is_some();
            let mut session = match idle.take() {
                Some(session) => session,
                None => self.pool.connect().await.map_err(NotTaken::Because)?,
            };
            let mut taken = self.taker().take(&mut session, &steps, take, around, reply).await;
            if let Err(NotTaken::Missing(missing)) = &taken
                && (self.scheme.strategy == Strategy::OnDemand || missing.is_empty())
            {
                taken = match missing.is_empty() {
                    true => Err(NotTaken::Again),
                    false => match self.taker().insert(&mut session, missing, take, reply).await {
                        Ok(()) => Err(NotTaken::Again),
                        failed => failed,
                    },
                };
                if let Err(NotTaken::Again) = taken {
                    idle = Some(session);
                    continue;
                }
            }
            match taken {
                Ok(()) => return Ok(session),
                Err(NotTaken::Deadlock(_)) => {
                    statistics.deadlocks += 1;
                    idle = Some(session);
                    sleep(jitter()).await;
                }
                Err(NotTaken::Again) => {
                    statistics.timeouts += 1;
                    idle = Some(session);
                }
                // It had died in its sleep; the next is new.
                Err(NotTaken::Gone(_))
                    if was_idle && !self.pool.is_silent() && !take.patience.is_over() => {}
                Err(NotTaken::Gone(error)) => return Err(NotTaken::Gone(error)),
                Err(other) => {
                    self.pool.give_back(session);
                    return Err(other);
                }
            }
        }
    }

    /// Keeps the connections alive and does what the guard asks.
    async fn hold(
        self,
        mut held: Held,
        mut asks: mpsc::Receiver<Ask>,
        lose: watch::Sender<Option<String>>,
    ) {
        let lost = loop {
            tokio::select! {
                ask = asks.recv() => match ask {
                    Some(Ask::Extend(take, reply)) => {
                        if let Err(gone) = self.answer_extend(&mut held, &take, reply).await {
                            break gone.to_string();
                        }
                    }
                    Some(Ask::Release(reply)) => {
                        let ended = self.end(held).await;
                        let _ = reply.send(ended);
                        return;
                    }
                    // The guard was dropped.
                    None => {
                        if let Err(error) = self.end(held).await {
                            tracing::debug!(%error, "a dropped guard's connection was gone");
                        }
                        return;
                    }
                },
                () = sleep(self.pool.settings.keep_alive) => {
                    if let Err(error) = held.ping().await {
                        break error.to_string();
                    }
                },
            }
        };
        // Dropped first: nothing must still be held when it is told that it is lost.
        drop(held);
        let _ = lose.send(Some(format!("{} is gone: {lost}", self.pool.address)));
    }

    /// What is taken now, for listings and for `modes`.
    pub(super) fn note(&self, take: &Take) {
        self.entry.with(|record| {
            for step in take.plan.steps() {
                record.take(&take.plan, &step);
            }
            record.claim(take.plan.claims());
        });
    }

    /// Frees everything, and keeps the connections if they are known to be clean.
    async fn end(self, held: Held) -> Result<()> {
        let Self { pool, entry, permit, .. } = self;
        let mut ended = Ok(());
        for mut session in held.more.into_iter().chain([held.base]) {
            match session.run("ROLLBACK").await {
                Ok(()) => pool.give_back(session),
                Err(error) => ended = Err(error),
            }
        }
        let server = pool.address.to_string();
        // In this order: what is free is no longer listed when the guard's release returns.
        drop((entry, permit));
        ended.map_err(|source| SqlError::Failed { server, source }.into())
    }
}

impl Held {
    async fn ping(&mut self) -> Ran {
        for session in [&mut self.base].into_iter().chain(&mut self.more) {
            session.ping().await?;
        }
        Ok(())
    }
}

/// Different for each who retries; nothing depends on how random it is.
fn jitter() -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(Instant::now());
    RETRY_WITHIN.mul_f64(f64::from(random as u32) / f64::from(u32::MAX))
}
