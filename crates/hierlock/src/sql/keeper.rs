//! The keeper of one hold: a task that owns a connection from the first statement to the ROLLBACK.
//!
//! It is never dropped by a caller, so no statement is left running and no transaction left open: a
//! caller that goes away is *noticed* (its end of a channel closes), the statement is cancelled on the
//! server, and what was taken is given back. If the whole runtime goes away, so does the connection,
//! and the server frees everything.
//!
//! ```text
//!   acquire ──Take──► keeper ── BEGIN; lock; lock; … ──► server
//!      ▲                │  caller gone, or too late: cancel from the side connection, then ROLLBACK
//!      └─── SqlHold ◄───┤
//!                       │  holds: pings, extends (SAVEPOINT), until released, dropped, or lost
//!                       └── ROLLBACK, connection back to the pool
//! ```

use super::pool::{Permit, Pool};
use super::postgres::{self, Meaning};
use super::session::{ANSWER_WITHIN, Ran, Session};
use crate::backend::Patience;
use crate::error::{Error, LockError, Result, SqlError};
use crate::plan::{Plan, Step};
use crate::registry::Entry;
use crate::target::Target;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

/// How often a held connection is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// A statement that takes longer may be waiting: then the server is asked, and again after twice as
/// long each time, up to the second span.
const LOOK_AFTER: Duration = Duration::from_millis(10);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// How often a cancel is sent until it has worked.
const CANCEL_EVERY: Duration = Duration::from_millis(20);
/// The longest pause before a deadlocked acquire is tried again.
const RETRY_WITHIN: Duration = Duration::from_millis(20);

/// What is to be taken together.
pub(super) struct Take {
    pub(super) plan: Plan,
    pub(super) patience: Patience,
}

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
}

pub(super) struct Keeper {
    pub(super) pool: Arc<Pool>,
    pub(super) entry: Arc<Entry>,
    /// Freed with the keeper, after the connection is back.
    pub(super) permit: Permit,
}

/// Why steps were not taken. They are given back by then.
enum NotTaken {
    Because(Error),
    /// Nobody waits for them any more.
    GivenUp,
    /// The server chose this one to end a deadlock at that step.
    Deadlock(usize),
    /// With the connection, everything else is gone too.
    Gone(sqlx::Error),
}

/// Before the steps, and what takes them back.
#[derive(Clone, Copy)]
struct Around {
    before: &'static str,
    undo: &'static str,
}

const ACQUIRE: Around = Around { before: "BEGIN;\n", undo: "ROLLBACK" };
const EXTEND: Around = Around { before: "SAVEPOINT more;\n", undo: "ROLLBACK TO SAVEPOINT more" };

impl Keeper {
    /// Takes, answers, and holds until it is told or finds otherwise.
    pub(super) async fn run(self, take: Take, mut reply: oneshot::Sender<Result<Lines>>) {
        let session = match self.acquire(&take, &mut reply).await {
            Ok(session) => session,
            Err(NotTaken::GivenUp) => return,
            Err(why) => {
                let error = self.error(why, &take);
                // Whoever asked finds nothing left of it.
                drop(self);
                let _ = reply.send(Err(error));
                return;
            }
        };
        self.note(&take);
        let (asks, receive) = mpsc::channel(1);
        let (lose, lost) = watch::channel(None);
        // If the caller has gone, the line is closed, and `hold` releases at once.
        let _ = reply.send(Ok(Lines { asks, lost }));
        self.hold(session, receive, lose).await;
    }

    /// Takes all steps in a new transaction. Deadlocks are tried again: whoever only acquires is in
    /// order, so the other one was extending, and will be told.
    async fn acquire<T>(
        &self,
        take: &Take,
        reply: &mut oneshot::Sender<T>,
    ) -> Result<Session, NotTaken> {
        let steps: Vec<Step> = take.plan.steps().collect();
        let mut idle = self.pool.take_idle();
        loop {
            let was_idle = idle.is_some();
            let mut session = match idle.take() {
                Some(session) => session,
                None => Session::connect(&self.pool.address).await.map_err(NotTaken::Because)?,
            };
            match self.take(&mut session, &steps, take, ACQUIRE, reply).await {
                Ok(()) => return Ok(session),
                Err(NotTaken::Deadlock(_)) => {
                    idle = Some(session);
                    sleep(jitter()).await;
                }
                // It had died in its sleep; the next is new.
                Err(NotTaken::Gone(_)) if was_idle => {}
                Err(NotTaken::Gone(error)) => return Err(NotTaken::Gone(error)),
                Err(other) => {
                    self.pool.give_back(session);
                    return Err(other);
                }
            }
        }
    }

    /// Takes steps, in order, as far as patience and the caller's interest go.
    async fn take<T>(
        &self,
        session: &mut Session,
        steps: &[Step],
        take: &Take,
        around: Around,
        reply: &mut oneshot::Sender<T>,
    ) -> Result<(), NotTaken> {
        let Around { before, undo } = around;
        if !take.patience.waits() {
            let sql = format!("{before}{}", postgres::try_lock_steps(steps));
            let why = match session.try_lock(sql).await {
                Ok(got) => {
                    let Some(place) = got.iter().position(|got| !got) else { return Ok(()) };
                    let (blocked_on, wanted) = (steps[place].target.clone(), wanted(&take.plan));
                    LockError::WouldBlock { blocked_on, wanted }.into()
                }
                Err(error) if postgres::meaning(&error) == Meaning::Gone => {
                    return Err(NotTaken::Gone(error));
                }
                Err(error) => self.failed(error),
            };
            session.run(undo).await.map_err(NotTaken::Gone)?;
            return Err(NotTaken::Because(why));
        }
        let pid = session.pid;
        let place_of = |slot: u64| steps.iter().position(|step| step.slot == slot);
        // The step it was last seen to wait at.
        let mut place = 0;
        // Listed as waiting until what it had taken is given back.
        let mut shown = None;
        let ended = {
            let sql = format!("{before}{}", postgres::lock_steps(steps));
            let mut lock = pin!(session.lock(sql));
            let mut late = pin!(take.patience.expired());
            let mut pause = LOOK_AFTER;
            let mut ended = loop {
                tokio::select! {
                    biased;
                    ran = &mut lock => break Ended::Ran(ran),
                    () = reply.closed() => break Ended::GivenUp,
                    waited = &mut late => break Ended::Late(waited),
                    () = sleep(pause) => {
                        pause = (2 * pause).min(LOOK_AT_LEAST_EVERY);
                        let waits_for = self.pool.waits_for(pid).await.ok().flatten();
                        shown = waits_for.and_then(place_of).map(|at| {
                            place = at;
                            let Step { slot, target, mode, .. } = &steps[at];
                            self.entry.waits(*slot, target.clone(), *mode)
                        });
                    }
                }
            };
            if !matches!(ended, Ended::Ran(_)) {
                if let Ok(Some(slot)) = self.pool.waits_for(pid).await {
                    place = place_of(slot).unwrap_or(place);
                }
                // Granted at the last moment or not, it is given back below.
                if let Err(error) = self.cancel(pid, lock.as_mut()).await
                    && postgres::meaning(&error) == Meaning::Gone
                {
                    ended = Ended::Ran(Err(error));
                }
            }
            ended
        };
        let why = match ended {
            Ended::Ran(Ok(())) => return Ok(()),
            Ended::Ran(Err(error)) => match postgres::meaning(&error) {
                Meaning::Deadlock => NotTaken::Deadlock(place),
                Meaning::Gone => return Err(NotTaken::Gone(error)),
                Meaning::Cancelled | Meaning::Other => NotTaken::Because(self.failed(error)),
            },
            Ended::GivenUp => NotTaken::GivenUp,
            Ended::Late(waited) => {
                let (blocked_on, wanted) = (steps[place].target.clone(), wanted(&take.plan));
                NotTaken::Because(LockError::Timeout { blocked_on, wanted, waited }.into())
            }
        };
        let undone = session.run(undo).await;
        drop(shown);
        undone.map_err(NotTaken::Gone)?;
        Err(why)
    }

    /// Ends a statement on the server, and waits for its end. A cancel that comes before the statement
    /// has begun is lost, so it is sent until it has worked.
    async fn cancel(&self, pid: i32, mut statement: Pin<&mut impl Future<Output = Ran>>) -> Ran {
        let begun = Instant::now();
        while begun.elapsed() < ANSWER_WITHIN {
            if let Err(error) = self.pool.cancel(pid).await {
                tracing::warn!(%error, "a statement could not be cancelled yet");
            }
            if let Ok(ran) = tokio::time::timeout(CANCEL_EVERY, statement.as_mut()).await {
                return ran;
            }
        }
        // The server would not notice a closed connection while it waits for a lock.
        if let Err(error) = self.pool.terminate(pid).await {
            tracing::error!(%error, "a session could not be ended");
        }
        Err(sqlx::Error::WorkerCrashed)
    }

    /// Keeps the connection alive and does what the guard asks.
    async fn hold(
        self,
        mut session: Session,
        mut asks: mpsc::Receiver<Ask>,
        lose: watch::Sender<Option<String>>,
    ) {
        let lost = loop {
            tokio::select! {
                ask = asks.recv() => match ask {
                    Some(Ask::Extend(take, reply)) => {
                        if let Err(gone) = self.answer_extend(&mut session, &take, reply).await {
                            break gone.to_string();
                        }
                    }
                    Some(Ask::Release(reply)) => {
                        let ended = self.end(session).await;
                        let _ = reply.send(ended);
                        return;
                    }
                    // The guard was dropped.
                    None => {
                        if let Err(error) = self.end(session).await {
                            tracing::debug!(%error, "a dropped guard's connection was gone");
                        }
                        return;
                    }
                },
                () = sleep(KEEP_ALIVE) => if let Err(error) = session.ping().await {
                    break error.to_string();
                },
            }
        };
        // Dropped first: nothing must still be held when it is told that it is lost.
        drop(session);
        let _ = lose.send(Some(format!("{} is gone: {lost}", self.pool.address)));
    }

    /// Extends, and makes sure that the guard knows; an error only if the connection is gone.
    async fn answer_extend(
        &self,
        session: &mut Session,
        take: &Take,
        mut reply: oneshot::Sender<Result<Confirm>>,
    ) -> Ran {
        let held = self.entry.with(|record| record.slots.clone());
        let more = |step: &Step| {
            held.get(&step.slot).is_none_or(|(_, held)| held.join(step.mode) != *held)
        };
        let steps: Vec<Step> = take.plan.steps().filter(more).collect();
        if !steps.is_empty() {
            match self.take(session, &steps, take, EXTEND, &mut reply).await {
                Ok(()) => {}
                Err(NotTaken::Gone(error)) => return Err(error),
                Err(why) => {
                    let _ = reply.send(Err(self.error(why, take)));
                    return Ok(());
                }
            }
        }
        // Noted before it is told: whoever is told may ask for the modes.
        let before = self.entry.with(|record| Some(record.clone()));
        self.note(take);
        let (confirm, confirmed) = oneshot::channel();
        let _ = reply.send(Ok(confirm));
        if confirmed.await.is_ok() {
            return Ok(());
        }
        if !steps.is_empty() {
            session.run(EXTEND.undo).await?;
        }
        self.entry.with(|record| before.into_iter().for_each(|before| *record = before));
        Ok(())
    }

    /// What is taken now, for listings and for `modes`.
    fn note(&self, take: &Take) {
        self.entry.with(|record| {
            for Step { slot, target, mode, .. } in take.plan.steps() {
                let taken = record.slots.entry(slot).or_insert((target, mode));
                taken.1 = taken.1.join(mode);
            }
            record.claim(take.plan.claims());
        });
    }

    /// Frees everything, and keeps the connection if it is known to be clean.
    async fn end(self, mut session: Session) -> Result<()> {
        let Self { pool, entry, permit } = self;
        let ended = session.run("ROLLBACK").await;
        let server = pool.address.to_string();
        if ended.is_ok() {
            pool.give_back(session);
        }
        // In this order: what is free is no longer listed when the guard's release returns.
        drop((entry, permit));
        ended.map_err(|source| SqlError::Failed { server, source }.into())
    }

    fn failed(&self, source: sqlx::Error) -> Error {
        SqlError::Failed { server: self.pool.address.to_string(), source }.into()
    }

    fn error(&self, why: NotTaken, take: &Take) -> Error {
        match why {
            NotTaken::Because(error) => error,
            NotTaken::Gone(source) => self.failed(source),
            // Nobody reads it.
            NotTaken::GivenUp => self.failed(sqlx::Error::WorkerCrashed),
            NotTaken::Deadlock(place) => {
                let blocked_on = take.plan.steps().nth(place).map(|step| step.target);
                let wanted = wanted(&take.plan);
                let blocked_on = blocked_on.unwrap_or_else(|| wanted[0].clone());
                LockError::Deadlock { blocked_on, wanted }.into()
            }
        }
    }
}

/// How a wait ended.
enum Ended {
    Ran(Ran),
    GivenUp,
    Late(Duration),
}

fn wanted(plan: &Plan) -> Vec<Target> {
    plan.claims().iter().map(|claim| claim.target.clone()).collect()
}

/// Different for each who retries; nothing depends on how random it is.
fn jitter() -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(Instant::now());
    RETRY_WITHIN.mul_f64(f64::from(random as u32) / f64::from(u32::MAX))
}
