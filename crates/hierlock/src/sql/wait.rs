//! While a statement waits: asking the server on the control session for what, and cancelling it there.

use super::{Acquirer, Dialect, LockPool, LockStatement, updaters};
use crate::backend::WaitLimit;
use crate::registry::WaitGuard;
use crate::{Blocker, Step};
use hierlock_engine::{ErrorClass, SessionId, SessionRef, timed_out};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// A statement that takes longer may be waiting: then the server is asked, and again after twice as long each
/// time, up to the second interval.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_millis(10);
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How often a cancel is sent until it has worked.
const CANCEL_INTERVAL: Duration = Duration::from_millis(20);

/// What became of a statement that may wait.
pub(super) struct WatchReport<'a> {
    pub(super) end: WatchEnd,
    /// The step it was last seen to wait at.
    pub(super) blocked_at: Option<usize>,
    /// What was in the way there, if it timed out.
    pub(super) blocker: Blocker,
    /// Ends the listing of the wait when it is dropped.
    pub(super) listing: Option<WaitGuard<'a>>,
}

/// Why a statement is no longer watched.
pub(super) enum WatchEnd {
    /// The statement ran to its end.
    Ran(Result<usize, sqlx::Error>),
    /// The caller has gone.
    Abandoned,
    /// The deadline came first, after this wait.
    TimedOut(Duration),
}

/// What the server says of a session. By default it could not be asked.
#[derive(Default)]
struct SessionActivity {
    is_known: bool,
    /// The name of the slot that it waits for, if it does.
    waits_for: Option<String>,
    /// It is gone, or waits for us to say something.
    runs_nothing: bool,
}

impl Acquirer {
    /// Runs a statement that may wait, until it is done or the deadline comes or the caller goes; then it is cancelled on
    /// the server. It is given up if the server answers no questions any more, or says that this session runs nothing
    /// while its answer does not come.
    pub(super) async fn watch(
        &self,
        session: &mut SessionRef<'_>,
        statement: LockStatement,
        steps: &[Step],
        limit: WaitLimit,
    ) -> WatchReport<'_> {
        let (dialect, id, is_ours) = (session.dialect, session.id, session.is_ours);
        let activity_after = |pause| self.activity_after(pause, id.pid, is_ours);
        let (mut blocked_at, mut listed_at, mut listing) = (None, None, None);
        let mut statement = pin!(statement.run(session));
        let mut deadline = pin!(limit.expired());
        let mut interval = FIRST_CHECK_INTERVAL;
        let mut check = pin!(activity_after(interval));
        let answer_limit = self.pool.answer_limit();
        let mut idle_since = None;
        let mut end = loop {
            let activity = tokio::select! {
                biased;
                ran = &mut statement => break WatchEnd::Ran(ran),
                () = self.cancellation.cancelled() => break WatchEnd::Abandoned,
                waited = &mut deadline => break WatchEnd::TimedOut(waited),
                activity = &mut check => activity,
            };
            interval = (2 * interval).min(MAX_CHECK_INTERVAL);
            check.set(activity_after(interval));
            if !activity.is_known && self.pool.server.is_silent() {
                break WatchEnd::Ran(Err(timed_out(answer_limit)));
            }
            idle_since = activity.runs_nothing.then(|| idle_since.unwrap_or_else(Instant::now));
            if idle_since.is_some_and(|since| since.elapsed() >= answer_limit) {
                // Whatever it may have taken there must not outlive it.
                self.pool.terminate(dialect, id).await;
                break WatchEnd::Ran(Err(timed_out(answer_limit)));
            }
            let (waits_at, taken) = match activity.waits_for {
                Some(name) => {
                    let place = self.step_called(&name, steps);
                    // The keys of updaters come before all rows.
                    let is_key = name.starts_with(updaters::NAME);
                    (place, place.filter(|_| !is_key).unwrap_or(0))
                }
                None if activity.is_known => (None, 0),
                // Not everyone may ask. It has not answered, so it waits for something.
                None => (Some(blocked_at.unwrap_or(0)), 0),
            };
            if waits_at != listed_at {
                // The old one first: it ends the listing when it goes.
                drop(listing.take());
                let list =
                    |place: usize| self.entry.waits(&self.plan, &steps[..taken], &steps[place]);
                (listed_at, listing) = (waits_at, waits_at.map(list));
            }
            if activity.is_known {
                blocked_at = waits_at.or(blocked_at);
            }
        };
        let mut blocker = Blocker::HolderOrWaiter;
        if let WatchEnd::TimedOut(_) = &end
            && let Some(name) = activity_after(Duration::ZERO).await.waits_for
        {
            blocked_at = self.step_called(&name, steps).or(blocked_at);
            if let Some(place) = blocked_at {
                blocker = self.pool.blocker(&self.scheme, &steps[place], id.pid).await;
            }
        }
        // Granted at the last moment or not, it is given back.
        if !matches!(end, WatchEnd::Ran(_))
            && let Err(error) = self.pool.cancel(dialect, id, statement).await
            && ErrorClass::of(&error).is_connection_lost()
        {
            end = WatchEnd::Ran(Err(error));
        }
        WatchReport { end, blocked_at, blocker, listing }
    }

    /// Waits for a while and asks what a session does. A task of its own asks, for if this is dropped: a connection that
    /// was left in the middle of a question could not be used again.
    fn activity_after(
        &self,
        pause: Duration,
        pid: i64,
        is_ours: bool,
    ) -> impl Future<Output = SessionActivity> + use<> {
        let (pool, scheme) = (self.pool.clone(), self.scheme.clone());
        let answer_limit = pool.answer_limit();
        async move {
            sleep(pause).await;
            let question = tokio::spawn(async move {
                let waits_for = pool.waits_for(&scheme, pid).await;
                let mut runs_nothing = false;
                if !matches!(waits_for, Ok(Some(_))) {
                    let is_idle = pool.server.is_idle(scheme.dialect, pid).await;
                    // Not knowing is no reason to give it up.
                    runs_nothing = is_idle.is_ok_and(|is_idle| is_idle.unwrap_or(is_ours));
                }
                let is_known = waits_for.is_ok();
                SessionActivity { is_known, waits_for: waits_for.unwrap_or_default(), runs_nothing }
            });
            // The default if there is no answer, or the runtime shuts down.
            timeout(answer_limit, question).await.ok().and_then(Result::ok).unwrap_or_default()
        }
    }

    /// Returns the step whose slot a server calls so. A slot that is held already, and wanted in a stronger
    /// mode, has no name.
    fn step_called(&self, name: &str, steps: &[Step]) -> Option<usize> {
        if name.is_empty() {
            return self.entry.with(|record| {
                steps.iter().position(|step| record.held(&self.plan, step).is_some())
            });
        }
        steps.iter().position(|step| {
            let slot = self.scheme.slot_name(step);
            // MariaDB cuts a long key.
            let is_cut = self.scheme.strategy.is_by_id() && slot.starts_with(name);
            slot == name || is_cut || updaters::name(&self.scheme, step).as_deref() == Some(name)
        })
    }
}

impl LockPool {
    /// Cancels a statement on the server, and waits for its end. A cancel that comes before the statement
    /// has begun is lost, so it is sent until it has worked.
    pub(super) async fn cancel<T>(
        &self,
        dialect: Dialect,
        id: SessionId,
        mut statement: Pin<&mut impl Future<Output = Result<T, sqlx::Error>>>,
    ) -> Result<T, sqlx::Error> {
        let until_it_ends = async {
            loop {
                if let Err(error) = self.server.cancel(dialect, id.pid).await {
                    tracing::warn!(%error, "a statement could not be cancelled yet");
                }
                if let Ok(ran) = timeout(CANCEL_INTERVAL, statement.as_mut()).await {
                    return ran;
                }
            }
        };
        let answer_limit = self.answer_limit();
        if let Ok(ran) = timeout(answer_limit, until_it_ends).await {
            return ran;
        }
        // The server would not notice a closed connection while it waits for a lock.
        self.terminate(dialect, id).await;
        Err(timed_out(answer_limit))
    }

    /// Ends a session on the server, with all that it has there, if the server can be told.
    pub(super) async fn terminate(&self, dialect: Dialect, id: SessionId) {
        let terminate = self.server.terminate(dialect, id);
        if !matches!(timeout(self.answer_limit(), terminate).await, Ok(Ok(()))) {
            tracing::error!(pid = id.pid, "a session could not be ended");
        }
    }
}
