//! From a demand to a hold: a connection, all steps in one transaction, and again if the server says so.

use super::kept::{Base, Held};
use super::outage::Outage;
use super::pool::LockPool;
use super::shared::{SharedKeys, Tried};
use super::take::{Around, NotTaken, SHARED_SESSION, Take, Taker};
use super::{Scheme, Strategy};
use crate::error::{Error, LockError};
use crate::handover::Interest;
use crate::plan::Step;
use crate::registry::Entry;
use crate::retry::random;
use crate::snapshot::Statistics;
use hierlock_engine::{Permit, Session};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The longest pause before a deadlocked acquire is tried again.
const RETRY_WITHIN: Duration = Duration::from_millis(20);

/// How often a row may be missing and then be there, before something else must be wrong.
const CAME_BACK: usize = 100;

/// Somebody who wants to hold.
pub(super) struct Applicant {
    pub(super) pool: Arc<LockPool>,
    pub(super) scheme: Arc<Scheme>,
    pub(super) entry: Arc<Entry>,
}

/// Why it does not.
pub(super) enum Refusal {
    Error(Error),
    /// The table is not there, or no longer striped as it was: the agreement must be read again.
    Disagrees(sqlx::Error),
}

impl Applicant {
    fn taker(&self) -> Taker<'_> {
        Taker { pool: &self.pool, scheme: &self.scheme, entry: &self.entry }
    }

    /// Takes everything, or nothing.
    pub(super) async fn acquire(
        self,
        take: Take,
        mut interest: Interest,
    ) -> Result<(Held, Statistics), Refusal> {
        let mut statistics = Statistics::default();
        let mut outage = Outage::new(&self.pool, take.patience);
        let taken = loop {
            let begun = Instant::now();
            match self.try_acquire(&take, &mut statistics, &mut interest).await {
                Err(why) if outage.is_to_be_waited_out(&why, begun) => {
                    if statistics.reconnects == 0 {
                        let error = self.taker().error(why, &take);
                        tracing::warn!(%error, "an acquire waits for its server to come back");
                    }
                    statistics.reconnects += 1;
                    if !outage.pause(&mut interest).await {
                        break Err(NotTaken::GivenUp);
                    }
                }
                taken => break taken,
            }
        };
        match taken {
            Ok((base, permit)) => {
                self.entry.begin(take.plan);
                Ok((Held::new(base, self.entry, permit), statistics))
            }
            Err(NotTaken::Disagrees(error)) => Err(Refusal::Disagrees(error)),
            Err(why) => Err(Refusal::Error(self.taker().error(why, &take))),
        }
    }

    /// Takes everything, or nothing, while the server is there.
    async fn try_acquire(
        &self,
        take: &Take,
        statistics: &mut Statistics,
        interest: &mut Interest,
    ) -> Result<(Base, Option<Permit>), NotTaken> {
        if let Some(keys) = self.take_shared(take).await? {
            return Ok((Base::Shared(keys), None));
        }
        let permit = self.permit(take, interest).await?;
        let base = self.take_all(take, statistics, interest).await?;
        Ok((Base::Own(base), Some(permit)))
    }

    /// The right to a connection. All of them in use is a wait like any other.
    async fn permit(&self, take: &Take, interest: &mut Interest) -> Result<Permit, NotTaken> {
        let in_use = |waited| {
            NotTaken::Because(LockError::NoConnection { wanted: take.wanted(), waited }.into())
        };
        if !take.patience.waits() {
            return self.pool.server.try_permit().ok_or_else(|| in_use(None));
        }
        tokio::select! {
            biased;
            permit = take.patience.limit(self.pool.server.permit()) => {
                let permit = permit.map_err(|waited| in_use(Some(waited)))?;
                // A lock pool is never shut down.
                permit.ok_or_else(|| in_use(None))
            }
            () = interest.lost() => Err(NotTaken::GivenUp),
        }
    }

    /// Takes all steps on the connection that guards share, if they do and nothing is in the way.
    async fn take_shared(&self, take: &Take) -> Result<Option<SharedKeys>, NotTaken> {
        let Some(shared) = &self.pool.shared else { return Ok(None) };
        let steps: Vec<Step> = take.plan.steps().collect();
        match shared.try_take(&self.pool, &steps).await.map_err(NotTaken::Because)? {
            Tried::Got(keys) => Ok(Some(keys)),
            Tried::InTheWay(place) if !take.patience.waits() => {
                Err(self.taker().would_block(&steps[place], take, SHARED_SESSION).await)
            }
            Tried::InTheWay(_) => Ok(None),
        }
    }

    /// Takes all steps in a new transaction. Deadlocks are tried again: whoever only acquires is in
    /// order, so the other one was extending, or does something else in the same transaction.
    async fn take_all(
        &self,
        take: &Take,
        statistics: &mut Statistics,
        interest: &mut Interest,
    ) -> Result<Session, NotTaken> {
        let steps: Vec<Step> = take.plan.steps().collect();
        let mut idle = self.pool.server.take_idle();
        let mut came_back = 0;
        loop {
            let was_idle = idle.is_some();
            let mut session = match idle.take() {
                Some(session) => session,
                None => self.pool.connect().await.map_err(NotTaken::Because)?,
            };
            match self.take_or_make(&mut session, &steps, take, interest).await {
                Ok(()) => return Ok(session),
                Err(NotTaken::Deadlock(_)) => {
                    statistics.deadlocks += 1;
                    idle = Some(session);
                    sleep(RETRY_WITHIN.mul_f64(random())).await;
                }
                Err(NotTaken::Again) => {
                    statistics.timeouts += 1;
                    idle = Some(session);
                }
                // Missing then, and there now: somebody, or we, have made it.
                Err(NotTaken::Missing(missing)) if missing.is_empty() && came_back < CAME_BACK => {
                    came_back += 1;
                    idle = Some(session);
                }
                Err(NotTaken::Gone(error)) => {
                    // It may have been granted, and only the answer is missing: it is ended there.
                    drop(session);
                    // If it had died in its sleep, the next is new.
                    if !was_idle || self.pool.server.is_silent() || take.patience.is_over() {
                        return Err(NotTaken::Gone(error));
                    }
                    // Whoever does not wait must not find its own old session in the way.
                    if !take.patience.waits() {
                        let ended = self.pool.server.abandoned.wait_until_ended();
                        let _ = timeout(self.pool.settings.answer_limit, ended).await;
                    }
                }
                Err(other) => {
                    self.pool.server.give_back(session);
                    return Err(other);
                }
            }
        }
    }

    /// Takes all steps; on demand, with rows that are made first. No step is missing then.
    async fn take_or_make(
        &self,
        session: &mut Session,
        steps: &[Step],
        take: &Take,
        interest: &mut Interest,
    ) -> Result<(), NotTaken> {
        let around = Around::acquire(session);
        let taken = self.taker().take(&mut session.as_ref(), steps, take, around, interest).await;
        match taken {
            Err(NotTaken::Missing(missing))
                if self.scheme.strategy == Strategy::OnDemand && !missing.is_empty() =>
            {
                self.taker().insert(session, &missing, take, interest).await?;
                Err(NotTaken::Missing(Vec::new()))
            }
            taken => taken,
        }
    }
}
