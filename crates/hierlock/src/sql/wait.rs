//! While a statement waits: asking the server on the side for what, and ending it there.

use super::acquirer::{Acquirer, LockRequest};
use super::failure::LockFailure;
use super::statement::Statement;
use super::{Dialect, updaters};
use crate::error::{Blocker, Result, SqlError};
use crate::handover::Interest;
use crate::plan::Step;
use crate::registry::Shown;
use hierlock_engine::{ServerError, SessionId, SessionRef, timed_out};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A statement that takes longer may be waiting: then the server is asked, and again after twice as
/// long each time, up to the second span.
const LOOK_AFTER: Duration = Duration::from_millis(10);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// How often a cancel is sent until it has worked.
const CANCEL_EVERY: Duration = Duration::from_millis(20);

/// What became of a statement that might have to wait.
pub(super) struct WaitReport<'a> {
    pub(super) ended: WaitEnd,
    /// The step it was last seen to wait at.
    pub(super) at: Option<usize>,
    /// What was in the way there, if it was too late.
    pub(super) blocker: Blocker,
    /// Listed as waiting until what it had taken is given back.
    pub(super) shown: Option<Shown<'a>>,
}

/// What the server says of a session.
struct SessionActivity {
    /// The slot that it waits for, if it does.
    waits_for: Result<Option<String>>,
    /// It is gone, or waits for us to say something.
    runs_nothing: bool,
}

/// How a wait ended.
pub(super) enum WaitEnd {
    /// The statement ran to its end.
    Ran(Result<usize, sqlx::Error>),
    /// Nobody is interested any more.
    Abandoned,
    /// The deadline came first, after this wait.
    TimedOut(Duration),
}

impl Acquirer {
    /// Runs a statement that may wait, until it is done, too late, or of no more interest; then it is
    /// cancelled on the server. If the server answers no questions any more, it is given up: there is
    /// nobody left to grant it. So it is if the server says that this session runs nothing, while its
    /// answer does not come: then either does not hear the other.
    pub(super) async fn watch(
        &self,
        session: &mut SessionRef<'_>,
        statement: Statement,
        steps: &[Step],
        request: &LockRequest,
        interest: &mut Interest,
    ) -> WaitReport<'_> {
        let (dialect, id, is_ours) = (session.dialect, session.id, session.is_ours);
        let look_after = |pause| self.look_after(pause, id.pid, is_ours);
        let place_of = |name: &str| match name.is_empty() {
            false => steps.iter().position(|step| self.is_called(step, name)),
            // It has no name for a slot that is held already, and wanted in a stronger mode.
            true => self.entry.with(|record| {
                steps.iter().position(|step| record.held(&request.plan, step).is_some())
            }),
        };
        let (mut at, mut shown_at, mut shown) = (None, None, None);
        let mut lock = pin!(statement.run(session));
        let mut late = pin!(request.wait_limit.expired());
        let mut pause = LOOK_AFTER;
        let mut look = pin!(look_after(pause));
        let silence = self.pool.settings.answer_limit;
        let mut unheard = None;
        let mut ended = loop {
            tokio::select! {
                biased;
                ran = &mut lock => break WaitEnd::Ran(ran),
                () = interest.lost() => break WaitEnd::Abandoned,
                waited = &mut late => break WaitEnd::TimedOut(waited),
                looked = &mut look => {
                    pause = (2 * pause).min(LOOK_AT_LEAST_EVERY);
                    look.set(look_after(pause));
                    if looked.waits_for.is_err() && self.pool.server.is_silent() {
                        break WaitEnd::Ran(Err(timed_out(silence)));
                    }
                    unheard = looked.runs_nothing.then(|| unheard.unwrap_or_else(Instant::now));
                    if unheard.is_some_and(|since| since.elapsed() >= silence) {
                        // Whatever it may have taken there must not outlive it.
                        self.terminate(dialect, id).await;
                        break WaitEnd::Ran(Err(timed_out(silence)));
                    }
                    let is_known = looked.waits_for.is_ok();
                    let (waits_for, so_far) = match looked.waits_for {
                        Ok(name) => {
                            let place = name.as_deref().and_then(place_of);
                            let is_key = name.is_some_and(|name| name.starts_with(updaters::NAME));
                            // Keys come before all rows.
                            (place, place.filter(|_| !is_key).unwrap_or(0))
                        }
                        // Not everyone may ask. It has not answered, so it waits for something.
                        Err(_) => (Some(at.unwrap_or(0)), 0),
                    };
                    if waits_for.is_none() || waits_for != shown_at {
                        // The old one first: it ends the listing when it goes.
                        shown = None;
                    }
                    if let (Some(place), None) = (waits_for, &shown) {
                        shown = Some(self.entry.waits(&request.plan, &steps[..so_far], &steps[place]));
                    }
                    shown_at = waits_for;
                    if is_known {
                        at = waits_for.or(at);
                    }
                }
            }
        };
        let mut blocker = Blocker::HolderOrWaiter;
        if !matches!(ended, WaitEnd::Ran(_)) {
            if let WaitEnd::TimedOut(_) = &ended
                && let Ok(Some(name)) = look_after(Duration::ZERO).await.waits_for
            {
                at = place_of(&name).or(at);
                if let Some(place) = at {
                    blocker = self.pool.blocker(&self.scheme, &steps[place], id.pid).await;
                }
            }
            // Granted at the last moment or not, it is given back.
            if let Err(error) = self.cancel(dialect, id, lock.as_mut()).await
                && LockFailure::of(&error) == LockFailure::ConnectionLost
            {
                ended = WaitEnd::Ran(Err(error));
            }
        }
        WaitReport { ended, at, blocker, shown }
    }

    /// After a while, asks what a session does. The question goes on in a task of its own if this is
    /// dropped: a connection that was left in the middle of one could not be used again.
    fn look_after(
        &self,
        pause: Duration,
        pid: i64,
        is_ours: bool,
    ) -> impl Future<Output = SessionActivity> + use<> {
        let (pool, scheme) = (self.pool.clone(), self.scheme.clone());
        async move {
            sleep(pause).await;
            let silence = pool.settings.answer_limit;
            let failed = |source| {
                let error = ServerError::Failed { server: pool.server.address.to_string(), source };
                SessionActivity { waits_for: Err(error.into()), runs_nothing: false }
            };
            let asks = pool.clone();
            let look = tokio::spawn(async move {
                let waits_for = asks.waits_for(&scheme, pid).await;
                let runs_nothing = match waits_for {
                    Ok(Some(_)) => false,
                    _ => match asks.server.is_idle(scheme.dialect, pid).await {
                        Ok(Some(is_idle)) => is_idle,
                        Ok(None) => is_ours,
                        // Not knowing is no reason to give it up.
                        Err(_) => false,
                    },
                };
                SessionActivity { waits_for, runs_nothing }
            });
            match tokio::time::timeout(silence, look).await {
                Ok(Ok(looked)) => looked,
                // The runtime shuts down.
                Ok(Err(_)) => {
                    let server = pool.server.address.to_string();
                    let waits_for = Err(SqlError::NoRuntime { server }.into());
                    SessionActivity { waits_for, runs_nothing: false }
                }
                Err(_) => failed(timed_out(silence)),
            }
        }
    }

    /// Is that what a server calls the slot? MariaDB cuts a long key.
    fn is_called(&self, step: &Step, name: &str) -> bool {
        let ours = self.scheme.slot_name(step);
        let is_slot = match self.scheme.strategy.is_by_id() {
            true => ours.starts_with(name),
            false => ours == name,
        };
        is_slot || updaters::name(&self.scheme, step).is_some_and(|ours| ours == name)
    }

    /// Ends a statement on the server, and waits for its end. A cancel that comes before the statement
    /// has begun is lost, so it is sent until it has worked.
    pub(super) async fn cancel<T>(
        &self,
        dialect: Dialect,
        id: SessionId,
        mut statement: Pin<&mut impl Future<Output = Result<T, sqlx::Error>>>,
    ) -> Result<T, sqlx::Error> {
        let silence = self.pool.settings.answer_limit;
        let until_it_ends = async {
            loop {
                if let Err(error) = self.pool.server.cancel(dialect, id.pid).await {
                    tracing::warn!(%error, "a statement could not be cancelled yet");
                }
                if let Ok(ran) = tokio::time::timeout(CANCEL_EVERY, statement.as_mut()).await {
                    return ran;
                }
            }
        };
        if let Ok(ran) = tokio::time::timeout(silence, until_it_ends).await {
            return ran;
        }
        // The server would not notice a closed connection while it waits for a lock.
        self.terminate(dialect, id).await;
        Err(timed_out(silence))
    }

    /// Ends a session on the server, with all that it has there, if the server can be told.
    async fn terminate(&self, dialect: Dialect, id: SessionId) {
        let terminate = self.pool.server.terminate(dialect, id);
        let silence = self.pool.settings.answer_limit;
        if !matches!(tokio::time::timeout(silence, terminate).await, Ok(Ok(()))) {
            tracing::error!(pid = id.pid, "a session could not be ended");
        }
    }
}
