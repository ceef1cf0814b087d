//! A hold on a server: its sessions, and what is done with them, to its end, also if the caller goes away (`handover`).

use super::{
    AcquireError, Acquirer, Connection, Dialect, GuardTransaction, LockPool, Scheme, SharedKeys,
    postgres,
};
use crate::backend::{AcquireRequest, FencingHold, Hold, WaitLimit};
use crate::database::error_message;
use crate::error::SqlError;
use crate::handover::{CancellationToken, Handover};
use crate::registry::RegistryEntry;
use crate::{Error, Mode, Plan, Result, SlotMode, Statistics, Target};
use hierlock_engine::{ErrorClass, Permit, Session};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};

/// The session that holds the first plan of a hold.
pub(super) enum HoldSession {
    /// A transaction on a session of its own.
    Own(Session),
    /// Keys on a session that other guards use as well.
    Shared(SharedKeys),
}

impl HoldSession {
    /// Frees everything, and gives the session back if it is known to be clean.
    async fn end(self, pool: &LockPool) -> Result<(), sqlx::Error> {
        match self {
            HoldSession::Own(session) => pool.roll_back(session).await,
            HoldSession::Shared(keys) => keys.end().await,
        }
    }

    /// Returns the session with its transaction; a shared one has none.
    pub(super) fn own(&mut self) -> Result<&mut Session, Error> {
        match self {
            HoldSession::Own(session) => Ok(session),
            HoldSession::Shared(_) => Err(SqlError::NoOwnTransaction.into()),
        }
    }
}

/// The sessions of one hold.
pub(super) struct HoldSessions {
    /// With the first plan.
    pub(super) base: HoldSession,
    /// With what was added, where a transaction cannot give back a part.
    pub(super) more: Vec<Session>,
    /// Did work in its transaction fail? Then it cannot be committed.
    pub(super) work_failed: bool,
    pub(super) entry: Arc<RegistryEntry>,
    /// Freed last, after the sessions are back. A shared one needs none.
    pub(super) permit: Option<Permit>,
}

impl HoldSessions {
    async fn ping(&mut self, pool: &LockPool) -> Result<(), sqlx::Error> {
        match &mut self.base {
            HoldSession::Own(session) => session.ping().await?,
            HoldSession::Shared(keys) => keys.ping(pool).await?,
        }
        self.ping_more().await
    }

    async fn ping_more(&mut self) -> Result<(), sqlx::Error> {
        for session in &mut self.more {
            session.ping().await?;
        }
        Ok(())
    }

    /// Draws a fencing token: a number of the server's that grows. All was still held when it was drawn.
    async fn draw_token(&mut self) -> Result<Option<u64>, sqlx::Error> {
        let rows = match &mut self.base {
            HoldSession::Own(session) if session.dialect.is_innodb() => {
                session.rows("SELECT UUID_SHORT()").await?
            }
            HoldSession::Own(session) => session.rows(postgres::TOKEN).await?,
            HoldSession::Shared(keys) => keys.ask(postgres::TOKEN).await?,
        };
        self.ping_more().await?;
        Ok(rows.first().and_then(|row| row[0].parse().ok()))
    }
}

/// A hold, as its guard and the keep-alive task share it.
pub(super) struct HoldInner {
    pub(super) pool: Arc<LockPool>,
    pub(super) scheme: Arc<Scheme>,
    /// The runtime on which its sessions were opened.
    pub(super) runtime: Handle,
    /// None when it was ended, or lost.
    pub(super) held: Arc<Mutex<Option<HoldSessions>>>,
    /// Why it was lost, if it was.
    lost: watch::Sender<Option<String>>,
    /// There as long as the guard is.
    entry: Weak<RegistryEntry>,
}

impl HoldInner {
    /// Gives up a hold whose connection is gone. Nothing is held any more when it is told that it is lost.
    pub(super) fn lose(&self, held: &mut Option<HoldSessions>, why: &str) -> Error {
        drop(held.take());
        self.lost.send_replace(Some(format!("{} is gone: {why}", self.pool.server.address)));
        self.lost_error()
    }

    /// Returns that there is no hold any more.
    pub(super) fn lost_error(&self) -> Error {
        let why = self.lost.borrow().clone();
        let why = why.unwrap_or_else(|| "its connection to the server has ended".to_owned());
        let targets = self.entry.upgrade().map(|entry| entry.claims()).unwrap_or_default();
        Error::lost(targets.into_keys(), why)
    }

    /// Asks whether the server is still there, unless something else is being done, which will tell.
    pub(super) async fn ping(&self) {
        let Ok(mut held) = self.held.try_lock() else { return };
        if let Some(sessions) = &mut *held
            && let Err(error) = sessions.ping(&self.pool).await
        {
            self.lose(&mut held, &error_message(&error));
        }
    }

    async fn extend(
        &self,
        plan: Plan,
        wait_limit: WaitLimit,
        cancellation: CancellationToken,
    ) -> Result<()> {
        let mut held = self.held.lock().await;
        let Some(sessions) = &mut *held else { return Err(self.lost_error()) };
        let (pool, scheme) = (self.pool.clone(), self.scheme.clone());
        let entry = sessions.entry.clone();
        let acquirer = Acquirer { pool, scheme, entry, plan, wait_limit, cancellation };
        acquirer.extend(sessions).await.map_err(|why| match why {
            AcquireError::ConnectionLost(error) => self.lose(&mut held, &error_message(&error)),
            AcquireError::HoldLost(why) => self.lose(&mut held, why),
            why => why.into_error(&self.pool, &self.scheme),
        })
    }

    /// Frees everything. If a server does not confirm it, the hold counts as lost: nobody knows since when.
    async fn release(&self) -> Result<()> {
        let held = self.held.lock().await.take().ok_or_else(|| self.lost_error())?;
        self.end(held).await.map_err(|error| {
            let (server, why) = (&self.pool.server.address, error_message(&error));
            self.lost.send_replace(Some(format!("{server} has not confirmed its release: {why}")));
            self.lost_error()
        })
    }

    /// Keeps the connections if they are known to be clean.
    async fn end(&self, held: HoldSessions) -> Result<(), sqlx::Error> {
        let HoldSessions { base, more, entry, permit, .. } = held;
        let mut ended = Ok(());
        for session in more.into_iter().map(HoldSession::Own).chain([base]) {
            ended = session.end(&self.pool).await.and(ended);
        }
        // In this order: what is free is no longer listed when the guard's release returns.
        drop((entry, permit));
        ended
    }

    /// Ends it by COMMIT, with the work that was done in its transaction.
    async fn commit(&self) -> Result<()> {
        let mut held = self.held.lock().await.take().ok_or_else(|| self.lost_error())?;
        // What an extension has taken may be lost alone; then the work was not protected.
        if let Err(error) = held.ping_more().await {
            return Err(self.lose(&mut Some(held), &error_message(&error)));
        }
        let server = self.pool.server.address.to_string();
        let committed = match held.base.own() {
            Err(error) => Err(error),
            Ok(_) if held.work_failed => Err(SqlError::WorkFailed { server }.into()),
            Ok(base) => {
                let commit = if base.dialect.is_innodb() { "COMMIT" } else { "COMMIT AND CHAIN" };
                match base.run(commit).await {
                    Err(source) if ErrorClass::of(&source).is_connection_lost() => {
                        return Err(SqlError::CommitUnknown { server, source }.into());
                    }
                    // If it was refused, for example by a deferred constraint, it was rolled back.
                    committed => committed.map_err(|source| self.pool.failed(source)),
                }
            }
        };
        // What becomes of the connections changes nothing of that.
        if let Err(error) = self.end(held).await {
            let error = error_message(&error);
            tracing::debug!(error, "the connection of a hold was gone when it was freed");
        }
        committed
    }

    /// Returns a number that is greater than that of everyone who held the same before.
    async fn token(&self) -> Result<u64> {
        let mut held = self.held.lock().await;
        let Some(sessions) = &mut *held else { return Err(self.lost_error()) };
        let token = match sessions.draw_token().await {
            Ok(token) => token,
            Err(error) => return Err(self.lose(&mut held, &error_message(&error))),
        };
        let token = token.ok_or_else(|| self.pool.unexpected("it has given no fencing token"))?;
        drop(held);
        if self.scheme.dialect == Dialect::Postgres {
            self.pool.server.ask_control(postgres::FLUSH).await?;
        }
        Ok(token)
    }
}

/// A transaction on the server that does nothing but hold locks. Dropped, it is ended there.
#[must_use = "dropping it frees the lock"]
pub struct SqlHold {
    inner: Arc<HoldInner>,
    entry: Arc<RegistryEntry>,
    statistics: Statistics,
}

impl std::fmt::Debug for SqlHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlHold").field("entry", &self.entry).finish_non_exhaustive()
    }
}

impl Hold for SqlHold {
    async fn extend(&mut self, request: AcquireRequest) -> Result<()> {
        let plan = self.inner.scheme.plan(request.claims)?;
        let limit = request.limit;
        self.run(|inner, token| async move { inner.extend(plan, limit, token).await }).await
    }

    async fn release(self) -> Result<()> {
        self.run(|inner, _| async move { inner.release().await }).await
    }

    fn targets(&self) -> BTreeMap<Target, Mode> {
        self.entry.claims()
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.entry.modes()
    }

    fn id(&self) -> u64 {
        self.entry.id
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    async fn lost(&self) -> Error {
        let mut lost = self.inner.lost.subscribe();
        loop {
            let mut task = self.inner.pool.keep_alive.lock().task_for(&self.inner);
            if task.has_changed().is_err() {
                // No task can run there: its runtime has ended.
                return self.inner.lost_error();
            }
            tokio::select! {
                _ = lost.wait_for(Option::is_some) => return self.inner.lost_error(),
                _ = task.changed() => {}
            }
        }
    }
}

impl FencingHold for SqlHold {
    async fn token(&self) -> Result<u64> {
        self.run(|inner, _| async move { inner.token().await }).await
    }
}

impl SqlHold {
    pub(super) fn new(
        pool: Arc<LockPool>,
        scheme: Arc<Scheme>,
        runtime: Handle,
        held: HoldSessions,
        statistics: Statistics,
    ) -> Self {
        let (entry, lost) = (held.entry.clone(), watch::Sender::new(None));
        let (held, of_inner) = (Arc::new(Mutex::new(Some(held))), Arc::downgrade(&entry));
        let inner = HoldInner { pool, scheme, runtime, held, lost, entry: of_inner };
        let inner = Arc::new(inner);
        inner.pool.keep_alive.lock().add(entry.id, &inner);
        Self { inner, entry, statistics }
    }

    /// Does something with the hold, to its end, even if this future is dropped.
    async fn run<T: Send + 'static, W: Future<Output = Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<HoldInner>, CancellationToken) -> W,
    ) -> Result<T> {
        let (inner, runtime) = (self.inner.clone(), self.inner.runtime.clone());
        let tasks = &self.inner.pool.server.tasks;
        Handover::new(runtime, tasks, |cancellation| work(inner, cancellation)).await
    }

    /// Lends the transaction that holds the locks.
    pub(crate) async fn lend<C: Connection>(&mut self) -> Result<GuardTransaction<'_, C>> {
        let held = self.run(|inner, _| async move { inner.lend().await }).await?;
        GuardTransaction::new(self.inner.clone(), held)
    }

    pub(crate) async fn commit(self) -> Result<()> {
        self.run(|inner, _| async move { inner.commit().await }).await
    }
}

impl Drop for SqlHold {
    fn drop(&mut self) {
        self.inner.pool.keep_alive.lock().remove(self.entry.id);
        // Most of the time it has ended already.
        if !self.inner.held.try_lock().is_ok_and(|held| held.is_none()) {
            let inner = self.inner.clone();
            let release = async move { drop(inner.release().await) };
            self.inner.pool.server.tasks.spawn(&self.inner.runtime, release);
        }
    }
}
