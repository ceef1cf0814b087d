//! From a request to a hold: a session, all steps in one transaction, and again after a deadlock or an outage.

use super::Strategy;
use super::acquirer::{AcquireError, Acquirer, LockRequest, SHARED_SESSION, UndoScope};
use super::hold::{HoldSession, HoldSessions};
use super::outage::Outage;
use super::shared::{SharedKeys, Tried};
use crate::error::LockError;
use crate::handover::Interest;
use crate::plan::Step;
use crate::retry::random;
use crate::snapshot::Statistics;
use hierlock_engine::{Permit, Session};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The longest pause before a deadlocked acquire is tried again.
const MAX_DEADLOCK_PAUSE: Duration = Duration::from_millis(20);

/// How often a row may be missing and then be there, before something else must be wrong.
const MAX_REAPPEARED_ROWS: usize = 100;

impl Acquirer {
    /// Takes everything, or nothing.
    pub(super) async fn acquire(
        self,
        request: LockRequest,
        mut interest: Interest,
    ) -> Result<(HoldSessions, Statistics), AcquireError> {
        let mut statistics = Statistics::default();
        let mut outage = Outage::new(&self.pool, request.wait_limit);
        let taken = loop {
            let begun = Instant::now();
            match self.try_acquire(&request, &mut statistics, &mut interest).await {
                Err(why) if outage.is_to_be_waited_out(&why, begun) => {
                    if statistics.reconnects == 0 {
                        let error = why.into_error(&self.pool, &self.scheme);
                        tracing::warn!(%error, "an acquire waits for its server to come back");
                    }
                    statistics.reconnects += 1;
                    if !outage.pause(&mut interest).await {
                        break Err(AcquireError::Abandoned);
                    }
                }
                taken => break taken,
            }
        };
        match taken {
            Ok((base, permit)) => {
                self.entry.begin(request.plan);
                Ok((HoldSessions::new(base, self.entry, permit), statistics))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes everything, or nothing, while the server is there.
    async fn try_acquire(
        &self,
        request: &LockRequest,
        statistics: &mut Statistics,
        interest: &mut Interest,
    ) -> Result<(HoldSession, Option<Permit>), AcquireError> {
        if let Some(keys) = self.lock_shared(request).await? {
            return Ok((HoldSession::Shared(keys), None));
        }
        let permit = self.permit(request, interest).await?;
        let base = self.lock_all(request, statistics, interest).await?;
        Ok((HoldSession::Own(base), Some(permit)))
    }

    /// The right to a connection. All of them in use is a wait like any other.
    async fn permit(
        &self,
        request: &LockRequest,
        interest: &mut Interest,
    ) -> Result<Permit, AcquireError> {
        let in_use = |waited| {
            AcquireError::Failed(
                LockError::NoConnection { wanted: request.wanted(), waited }.into(),
            )
        };
        if !request.wait_limit.waits() {
            return self.pool.server.try_permit().ok_or_else(|| in_use(None));
        }
        tokio::select! {
            biased;
            permit = request.wait_limit.limit(self.pool.server.permit()) => {
                let permit = permit.map_err(|waited| in_use(Some(waited)))?;
                // A lock pool is never shut down.
                permit.ok_or_else(|| in_use(None))
            }
            () = interest.lost() => Err(AcquireError::Abandoned),
        }
    }

    /// Takes all steps on the connection that guards share, if they do and nothing is in the way.
    async fn lock_shared(&self, request: &LockRequest) -> Result<Option<SharedKeys>, AcquireError> {
        let Some(shared) = &self.pool.shared else { return Ok(None) };
        let steps: Vec<Step> = request.plan.steps().collect();
        match shared.try_take(&self.pool, &steps).await.map_err(AcquireError::Failed)? {
            Tried::Got(keys) => Ok(Some(keys)),
            Tried::InTheWay(place) if !request.wait_limit.waits() => {
                Err(self.would_block(&steps[place], request, SHARED_SESSION).await)
            }
            Tried::InTheWay(_) => Ok(None),
        }
    }

    /// Takes all steps in a new transaction. Deadlocks are tried again: whoever only acquires is in
    /// order, so the other one was extending, or does something else in the same transaction.
    async fn lock_all(
        &self,
        request: &LockRequest,
        statistics: &mut Statistics,
        interest: &mut Interest,
    ) -> Result<Session, AcquireError> {
        let steps: Vec<Step> = request.plan.steps().collect();
        let mut idle = self.pool.server.take_idle();
        let mut came_back = 0;
        loop {
            let was_idle = idle.is_some();
            let mut session = match idle.take() {
                Some(session) => session,
                None => self.pool.connect().await.map_err(AcquireError::Failed)?,
            };
            match self.lock_or_insert(&mut session, &steps, request, interest).await {
                Ok(()) => return Ok(session),
                Err(AcquireError::Deadlock { .. }) => {
                    statistics.deadlocks += 1;
                    idle = Some(session);
                    sleep(MAX_DEADLOCK_PAUSE.mul_f64(random())).await;
                }
                Err(AcquireError::LockWaitTimeout) => {
                    statistics.timeouts += 1;
                    idle = Some(session);
                }
                // Missing then, and there now: somebody, or we, have made it.
                Err(AcquireError::MissingRows(missing))
                    if missing.is_empty() && came_back < MAX_REAPPEARED_ROWS =>
                {
                    came_back += 1;
                    idle = Some(session);
                }
                Err(AcquireError::ConnectionLost(error)) => {
                    // It may have been granted, and only the answer is missing: it is ended there.
                    drop(session);
                    // If it had died in its sleep, the next is new.
                    if !was_idle || self.pool.server.is_silent() || request.wait_limit.is_over() {
                        return Err(AcquireError::ConnectionLost(error));
                    }
                    // Whoever does not wait must not find its own old session in the way.
                    if !request.wait_limit.waits() {
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
    async fn lock_or_insert(
        &self,
        session: &mut Session,
        steps: &[Step],
        request: &LockRequest,
        interest: &mut Interest,
    ) -> Result<(), AcquireError> {
        let around = UndoScope::acquire(session);
        let taken = self.lock(&mut session.as_ref(), steps, request, around, interest).await;
        match taken {
            Err(AcquireError::MissingRows(missing))
                if self.scheme.strategy == Strategy::OnDemand && !missing.is_empty() =>
            {
                self.insert(session, &missing, request, interest).await?;
                Err(AcquireError::MissingRows(Vec::new()))
            }
            taken => taken,
        }
    }
}
