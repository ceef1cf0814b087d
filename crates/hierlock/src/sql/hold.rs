//! A hold on a server: its sessions and the operations on them, which complete even if the caller drops the future
//! (`handover`).

use super::session_label::LabelLimit;
use super::{
    AcquireError, Acquirer, Dialect, DriverConnection, GuardTransaction, LabelRows, LabelText,
    LockPool, Scheme, SharedKeys, postgres,
};
use crate::backend::{AcquireRequest, FencingHold, Hold, WaitLimit};
use crate::error::SqlError;
use crate::handover::Handover;
use crate::registry::RegistryEntry;
use crate::{Error, Mode, Plan, Result, SlotMode, Statistics, Target};
use hierlock_engine::{ErrorClass, Permit, Session, error_message};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

/// The session that holds the first plan of a hold.
pub(super) enum HoldSession {
    /// A transaction on a session of its own.
    Own(Session),
    /// Keys on the session that guards share.
    Shared(SharedKeys),
}

impl HoldSession {
    /// Returns the session of its own. Fails for a shared session, which has no transaction.
    pub(super) fn own(&mut self) -> Result<&mut Session, Error> {
        match self {
            HoldSession::Own(session) => Ok(session),
            HoldSession::Shared(_) => Err(SqlError::NoOwnTransaction.into()),
        }
    }
}

/// The sessions of one hold.
pub(super) struct HoldSessions {
    /// The session with the locks of the first plan.
    pub(super) main: HoldSession,
    /// The sessions with the locks of extensions, on InnoDB, where a transaction cannot release a part of its locks.
    pub(super) extensions: Vec<Session>,
    /// The time at which the hold began to take its locks, by the server's clock, in seconds since 1970.
    pub(super) since: u64,
    pub(super) label_rows: LabelRows,
    /// Whether work in the transaction has failed. Then the transaction cannot be committed.
    pub(super) work_failed: bool,
    pub(super) entry: Arc<RegistryEntry>,
    /// The permit for a connection, released after the sessions are returned. A shared session needs none.
    pub(super) permit: Option<Permit>,
}

impl HoldSessions {
    /// Checks that all sessions are alive and that their server accepts writes, and shows their label.
    async fn ping(&mut self, pool: &LockPool) -> sqlx::Result<()> {
        let claims = self.entry.claims();
        let targets = claims.iter().map(|(target, mode)| (target, *mode));
        let label = &LabelText::new(
            LabelLimit::NO_SERVER_LIMIT,
            &pool.settings.client,
            self.since,
            targets,
        );
        match &mut self.main {
            HoldSession::Own(session) => self.label_rows.ping(pool, session, label).await?,
            HoldSession::Shared(keys) => keys.ping(pool).await?,
        }
        for session in &mut self.extensions {
            self.label_rows.ping(pool, session, label).await?;
        }
        Ok(())
    }

    async fn ping_extensions(&mut self) -> sqlx::Result<()> {
        for session in &mut self.extensions {
            session.ping().await?;
        }
        Ok(())
    }

    /// Gets a fencing token from the server. All locks are still held when the token is assigned.
    async fn draw_token(&mut self) -> sqlx::Result<Option<u64>> {
        let rows = match &mut self.main {
            HoldSession::Own(session) if session.dialect.is_innodb() => {
                session.rows("SELECT UUID_SHORT()").await?
            }
            HoldSession::Own(session) => session.rows(postgres::TOKEN).await?,
            HoldSession::Shared(keys) => keys.ask(postgres::TOKEN).await?,
        };
        self.ping_extensions().await?;
        Ok(rows.first().and_then(|row| row[0].parse().ok()))
    }
}

/// The part of a hold that the guard and the keep-alive task share.
pub(super) struct HoldInner {
    pub(super) pool: Arc<LockPool>,
    pub(super) scheme: Arc<Scheme>,
    /// The runtime on which the sessions were opened.
    pub(super) runtime: Handle,
    /// `None` once the hold is released or lost.
    pub(super) held: Arc<Mutex<Option<HoldSessions>>>,
    /// The reason of the loss, if the hold is lost.
    lost: watch::Sender<Option<String>>,
    /// Exists as long as the guard.
    entry: Weak<RegistryEntry>,
}

impl HoldInner {
    /// Marks the hold as lost. Drops its sessions first, so that nothing is held when the loss is reported.
    pub(super) fn lose(&self, held: &mut Option<HoldSessions>, why: &str) -> Error {
        drop(held.take());
        let address = &self.pool.server.address;
        self.lost.send_replace(Some(format!("{address} can no longer be used: {why}")));
        self.lost_error()
    }

    /// Returns the error of a lost hold.
    pub(super) fn lost_error(&self) -> Error {
        let why = self.lost.borrow().clone();
        let why = why.unwrap_or_else(|| "its connection to the server has ended".to_owned());
        let targets = self.entry.upgrade().map(|entry| entry.claims()).unwrap_or_default();
        Error::lost(targets.into_keys(), why)
    }

    /// Checks that the sessions are alive and their server accepts writes, unless another operation uses them and would notice
    /// a loss itself.
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
            // A deadlock with an ALTER TABLE that waits for the hold.
            AcquireError::Deadlock(_) if self.scheme.dialect.is_innodb() => {
                let why = "the server has ended its transaction as the victim of a deadlock";
                self.lose(&mut held, why)
            }
            why => why.into_error(&self.pool, &self.scheme),
        })
    }

    /// Releases all locks. If the server does not confirm the release, the hold counts as lost: it may have been lost
    /// earlier.
    async fn release(&self) -> Result<()> {
        let held = self.held.lock().await.take().ok_or_else(|| self.lost_error())?;
        self.end(held).await.map_err(|error| {
            let (server, why) = (&self.pool.server.address, error_message(&error));
            self.lost.send_replace(Some(format!("{server} has not confirmed its release: {why}")));
            self.lost_error()
        })
    }

    /// Releases all locks, and returns clean sessions to the pool.
    async fn end(&self, held: HoldSessions) -> sqlx::Result<()> {
        let HoldSessions { main, extensions, entry, permit, .. } = held;
        let mut ended = Ok(());
        for session in extensions.into_iter().map(HoldSession::Own).chain([main]) {
            let released = match session {
                HoldSession::Own(session) => self.pool.roll_back(session).await,
                HoldSession::Shared(keys) => keys.end().await,
            };
            ended = released.and(ended);
        }
        // Before the release of the guard returns, so that free nodes are no longer listed as held.
        drop((entry, permit));
        ended
    }

    /// Commits the work in the transaction, and releases all locks.
    async fn commit(&self) -> Result<()> {
        let mut held = self.held.lock().await.take().ok_or_else(|| self.lost_error())?;
        // The session of an extension may be lost alone. Then the work was not protected.
        if let Err(error) = held.ping_extensions().await {
            return Err(self.lose(&mut Some(held), &error_message(&error)));
        }
        let server = self.pool.server.address.to_string();
        let committed = match held.main.own() {
            Err(error) => Err(error),
            Ok(_) if held.work_failed => Err(SqlError::WorkFailed { server }.into()),
            Ok(main) => {
                let commit = if main.dialect.is_innodb() { "COMMIT" } else { "COMMIT AND CHAIN" };
                let commit = format!("{}{commit}", held.label_rows.removal(main));
                match main.run(&commit).await {
                    Err(source) if ErrorClass::of(&source).is_connection_lost() => {
                        return Err(SqlError::CommitUnknown { server, source }.into());
                    }
                    // A refused COMMIT, for example by a deferred constraint, has rolled back.
                    committed => committed.map_err(|source| self.pool.failed(source)),
                }
            }
        };
        // A failure of the sessions does not change the result of the COMMIT.
        if let Err(error) = self.end(held).await {
            let error = error_message(&error);
            tracing::debug!(error, "the connection of a hold was gone when it was freed");
        }
        committed
    }

    /// Returns a fencing token: greater than the tokens of all earlier holders of the same nodes.
    async fn token(&self) -> Result<u64> {
        let mut held = self.held.lock().await;
        let Some(sessions) = &mut *held else { return Err(self.lost_error()) };
        let token = sessions.draw_token().await;
        let token = token.map_err(|error| self.lose(&mut held, &error_message(&error)))?;
        let token = token.ok_or_else(|| self.pool.unexpected("it has given no fencing token"))?;
        drop(held);
        if self.scheme.dialect == Dialect::Postgres {
            self.pool.server.ask_control(postgres::FLUSH).await?;
        }
        Ok(token)
    }
}

/// A hold on a server. Dropping it releases its locks.
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
                // The runtime has ended, so no keep-alive task can run.
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

    /// Runs an operation to its end, even if this future is dropped.
    async fn run<T: Send + 'static, W: Future<Output = Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<HoldInner>, CancellationToken) -> W,
    ) -> Result<T> {
        let (inner, runtime) = (self.inner.clone(), self.inner.runtime.clone());
        let tasks = &self.inner.pool.server.tasks;
        Handover::new(runtime, tasks, |cancellation| work(inner, cancellation)).await
    }

    /// Lends the transaction that holds the locks.
    pub(crate) async fn lend<C: DriverConnection>(&mut self) -> Result<GuardTransaction<'_, C>> {
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
        // `None` if the hold is already released.
        if !self.inner.held.try_lock().is_ok_and(|held| held.is_none()) {
            let inner = self.inner.clone();
            let release = async move { drop(inner.release().await) };
            self.inner.pool.server.tasks.spawn_on(release, &self.inner.runtime);
        }
    }
}
