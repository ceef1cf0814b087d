//! The sessions of one client on one server: work sessions, and the control session for queries and cancels.

use crate::abandoned::{AbandonedSessions, SessionOwner};
use crate::introspection::{IntrospectionScope, SessionList, list_sessions};
use crate::row::TextRow;
use crate::session::settings::{Purpose, SessionSettings};
use crate::session::{Session, SessionId, unix_seconds};
use crate::tasks::task_tracker;
use crate::{ServerAddress, ServerError, sessions, timed_out};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

/// The settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// The maximum number of work sessions.
    pub connections: usize,
    /// The timeout of a query that does not wait for locks.
    pub answer_limit: Duration,
    /// The purpose of the work sessions.
    pub purpose: Purpose,
    /// The settings of every session.
    pub session: SessionSettings,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            connections: 10,
            answer_limit: Duration::from_secs(5),
            purpose: Purpose::Lock,
            session: SessionSettings::default(),
        }
    }
}

/// The sessions of one client on one server.
#[derive(Debug)]
pub struct Pool {
    /// The server's address.
    pub address: ServerAddress,
    /// The settings.
    pub settings: PoolSettings,
    /// The idle sessions, each with the time of its last use.
    idle: Mutex<Vec<(Session, Instant)>>,
    permits: Arc<Semaphore>,
    /// The control session, opened when first needed.
    control: tokio::sync::Mutex<Option<Session>>,
    /// The number of unanswered control queries in a row, and the time of the first.
    unanswered: Mutex<Option<(usize, Instant)>>,
    /// The seconds that the server's clock is ahead of ours.
    clock_offset: AtomicI64,
    /// The tasks that clean up after dropped futures.
    pub tasks: TaskTracker,
    /// The sessions that must be ended on the server.
    pub abandoned: AbandonedSessions,
    this: Weak<Pool>,
}

/// The number of unanswered control queries after which the server counts as silent. One may fail by chance.
const MIN_UNANSWERED: usize = 2;

/// An idle session that was used more recently than this is lent without a ping.
const PING_AFTER: Duration = Duration::from_secs(1);

/// The time that an answer may take to arrive after the server has reported that the session is idle.
const ANSWER_GRACE: Duration = Duration::from_millis(200);

/// The number of checks whether a terminated session has ended, and the pause between them.
const TERMINATE_CHECKS: usize = 40;
const TERMINATE_CHECK_PAUSE: Duration = Duration::from_millis(5);

/// The right to use one session.
pub type Permit = OwnedSemaphorePermit;

impl Pool {
    /// Makes a pool. It connects when the first session is needed.
    pub fn new(address: ServerAddress, settings: PoolSettings) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(settings.connections.min(Semaphore::MAX_PERMITS)));
        Arc::new_cyclic(|this| Self {
            address,
            settings,
            idle: Mutex::default(),
            permits,
            control: tokio::sync::Mutex::default(),
            unanswered: Mutex::default(),
            clock_offset: AtomicI64::default(),
            tasks: task_tracker(),
            abandoned: AbandonedSessions::default(),
            this: this.clone(),
        })
    }

    /// Waits for a permit, first come first served. Returns None if the pool was [shut down](Self::shut_down).
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub async fn permit(&self) -> Option<Permit> {
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Returns a permit if one is free.
    pub fn try_permit(&self) -> Option<Permit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Opens a session for the pool's purpose.
    pub async fn connect(&self) -> Result<Session, ServerError> {
        self.connect_for(self.settings.purpose).await
    }

    async fn connect_for(&self, purpose: Purpose) -> Result<Session, ServerError> {
        let PoolSettings { answer_limit, session, .. } = &self.settings;
        let (settings, owner) = ((purpose, session), Some(self.owner()));
        // Boxed: the future is large, and rarely needed in an acquire.
        let session =
            Box::pin(Session::connect(&self.address, *answer_limit, settings, owner)).await?;
        self.clock_offset.store(session.clock_offset, Relaxed);
        Ok(session)
    }

    /// Returns the server's time in seconds since 1970, with the clock offset of the last connect.
    pub fn server_time(&self) -> u64 {
        let now = unix_seconds().saturating_add(self.clock_offset.load(Relaxed));
        u64::try_from(now).unwrap_or_default()
    }

    fn owner(&self) -> SessionOwner {
        SessionOwner { pool: self.this.clone(), runtime: Handle::current() }
    }

    /// Ends a session of this server that does not belong to the pool.
    pub fn abandon(&self, id: SessionId) {
        if Handle::try_current().is_ok() {
            self.owner().abandon(id);
        }
    }

    /// Waits until the abandoned sessions have ended or cannot be ended, then closes the idle sessions. Fails with
    /// [`ServerError::NotClosed`] after `limit`.
    pub async fn close(&self, limit: Duration) -> Result<(), ServerError> {
        let close = async {
            loop {
                // A task may abandon sessions, so tasks are waited for first.
                self.tasks.wait().await;
                self.abandoned.wait_until_ended().await;
                let mut idle = self.idle();
                // Checked under the lock: a task that has taken a session returns it later.
                if self.tasks.is_empty() {
                    idle.drain(..).for_each(|(session, _)| session.close());
                    break;
                }
            }
            // Another task may be using the control session.
            self.control.lock().await.take().into_iter().for_each(Session::close);
        };
        if timeout(limit, close).await.is_ok() {
            return Ok(());
        }
        self.idle().drain(..).for_each(|(session, _)| session.close());
        let control = self.control.try_lock().ok().and_then(|mut control| control.take());
        control.into_iter().for_each(Session::close);
        Err(ServerError::NotClosed { server: self.address.to_string(), limit })
    }

    /// Waits up to `limit` until all sessions are returned. Then lends none, and closes sessions that are returned
    /// later.
    pub async fn shut_down(&self, limit: Duration) {
        let all = u32::try_from(self.settings.connections).unwrap_or(u32::MAX);
        let unused = timeout(limit, self.permits.acquire_many(all)).await;
        self.permits.close();
        drop(unused);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Session, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an idle session without a ping. Its connection may be lost.
    pub fn take_idle(&self) -> Option<Session> {
        self.idle().pop().map(|(session, _)| session)
    }

    /// Returns an idle session, checked with a ping unless it was used within the last second, or a new one.
    pub async fn session(&self) -> Result<Session, ServerError> {
        loop {
            // A statement of its own, so that the lock is not held across an await.
            let Some((mut session, since)) = self.idle().pop() else { return self.connect().await };
            if since.elapsed() < PING_AFTER || session.ping().await.is_ok() {
                return Ok(session);
            }
        }
    }

    /// Keeps a clean session, or closes it if there are enough. A session that is not clean is ended on the server.
    pub fn give_back(&self, session: Session) {
        if !session.is_clean {
            let pid = session.id.pid;
            tracing::debug!(pid, "a session that may hold something is not used again");
            return;
        }
        let mut idle = self.idle();
        if idle.len() < self.settings.connections && !self.permits.is_closed() {
            idle.push((session, Instant::now()));
        } else {
            session.close();
        }
    }

    /// Returns whether an idle session is in an open transaction.
    pub fn has_open_transactions(&self) -> bool {
        self.idle().iter().any(|(session, _)| session.in_transaction)
    }

    /// Ends the open transactions of idle sessions, which would be conspicuous on the server. [`close`](Self::close)
    /// waits for it.
    pub async fn end_idle_transactions(&self) {
        let (open, _token) = {
            let mut idle = self.idle();
            let open = idle.extract_if(.., |(session, _)| session.in_transaction);
            (open.collect::<Vec<_>>(), self.tasks.token())
        };
        for (mut session, _) in open {
            if session.leave_transaction().await.is_ok() {
                self.give_back(session);
            }
        }
    }

    /// Cancels the running statement of a session.
    pub async fn cancel(&self, pid: i64) -> Result<(), ServerError> {
        self.ask_control(&sessions::cancel(self.address.dialect(), pid)).await.map(|_| ())
    }

    /// Ends a session if it is the one that `id` identifies. Usually it has ended when this returns.
    pub async fn terminate(&self, id: SessionId) -> Result<(), ServerError> {
        let identity = sessions::identity_of(self.address.dialect(), id.pid);
        if id.matches(&self.ask_control(&identity).await?) {
            self.ask_control(&sessions::terminate(self.address.dialect(), id.pid)).await?;
            for _ in 0..TERMINATE_CHECKS {
                if !id.matches(&self.ask_control(&identity).await?) {
                    break;
                }
                sleep(TERMINATE_CHECK_PAUSE).await;
            }
        }
        Ok(())
    }

    /// Returns the current session with this process id; None if there is none that the account may see.
    pub async fn find(&self, pid: i64) -> Result<Option<SessionId>, ServerError> {
        let rows = self.ask_control(&sessions::identity_of(self.address.dialect(), pid)).await?;
        Ok(rows.first().map(|row| SessionId::of(pid, &row[0])))
    }

    /// Lists sessions, over the control session.
    ///
    /// # Cancel safety
    /// If the future is dropped, the control session is ended on the server, and the next query opens another.
    pub async fn list_sessions(
        &self,
        scope: &IntrospectionScope,
    ) -> Result<SessionList, ServerError> {
        let mut control = self.control.lock().await;
        let mut session = match control.take() {
            Some(session) => session,
            None => self.connect_for(Purpose::Control).await?,
        };
        let failed = |source| ServerError::Failed { server: self.address.to_string(), source };
        let list = list_sessions(&mut session.as_ref(), scope).await.map_err(failed)?;
        *control = Some(session);
        Ok(list)
    }

    /// Returns whether a session runs no statement; None if there is no such session that the account may see.
    pub async fn is_idle(&self, pid: i64) -> Result<Option<bool>, ServerError> {
        let rows = self.ask_control(&sessions::is_idle(self.address.dialect(), pid)).await?;
        Ok(rows.first().map(|row| row[0] == "1"))
    }

    /// Waits for the result of a statement that may wait for locks. After each answer limit the control session checks
    /// the session. Fails like a lost connection if the session runs nothing or does not exist, or if the server is
    /// silent.
    ///
    /// # Cancel safety
    /// As `statement`.
    pub async fn await_statement<T>(
        &self,
        id: SessionId,
        statement: impl Future<Output = sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        let limit = self.settings.answer_limit;
        let mut statement = pin!(statement);
        loop {
            if let Ok(answer) = timeout(limit, statement.as_mut()).await {
                return answer;
            }
            match self.is_idle(id.pid).await {
                Ok(Some(false)) => {}
                Err(_) if !self.is_silent() => {}
                _ => {
                    let answer = timeout(ANSWER_GRACE, statement.as_mut()).await;
                    return answer.unwrap_or_else(|_| Err(timed_out(limit)));
                }
            }
        }
    }

    /// Returns whether a pooler assigns a connection per transaction: the process ids of two sessions then change.
    pub async fn is_behind_pooler(&self, session: &mut Session) -> sqlx::Result<bool> {
        let Ok(mut other) = self.connect_for(Purpose::Control).await else { return Ok(false) };
        if other.id.pid == session.id.pid {
            // If the session were dropped, the pool would end this process id, which another client may be using.
            other.close();
            return Ok(true);
        }
        // Not BEGIN: with `sql_mode=ORACLE` of MariaDB it begins a block.
        other.run("START TRANSACTION").await?;
        let (busy, ours) = (other.as_ref().query_id().await?, session.as_ref().query_id().await?);
        let is_pooled = busy.pid != other.id.pid || ours.pid != session.id.pid;
        other.run("ROLLBACK").await?;
        *self.control.lock().await = Some(other);
        Ok(is_pooled)
    }

    /// Runs a query on the control session. A lost control session is replaced once. Fails if the server cannot be
    /// reached.
    pub async fn ask_control(&self, question: &str) -> Result<Vec<TextRow>, ServerError> {
        let mut control = self.control.lock().await;
        let begun = Instant::now();
        let answer = Box::pin(self.ask_through(&mut control, question)).await;
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        // Any other error is an answer.
        if answer.as_ref().is_err_and(ServerError::is_connection_lost) {
            unanswered.get_or_insert((0, begun)).0 += 1;
        } else {
            *unanswered = None;
        }
        answer
    }

    async fn ask_through(
        &self,
        control: &mut Option<Session>,
        question: &str,
    ) -> Result<Vec<TextRow>, ServerError> {
        let failed = |source| ServerError::Failed { server: self.address.to_string(), source };
        if let Some(mut session) = control.take() {
            match session.rows(question).await {
                Ok(answer) => {
                    *control = Some(session);
                    return Ok(answer);
                }
                // Another connection would only double the wait.
                Err(sqlx::Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(failed(sqlx::Error::Io(error)));
                }
                Err(_) => {}
            }
        }
        let mut session = self.connect_for(Purpose::Control).await?;
        let answer = session.rows(question).await.map_err(failed)?;
        *control = Some(session);
        Ok(answer)
    }

    /// Returns whether the server has not answered for longer than the answer limit: a lock wait would never end.
    pub fn is_silent(&self) -> bool {
        let unanswered = *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.settings.answer_limit;
        unanswered.is_some_and(|(count, since)| count >= MIN_UNANSWERED && since.elapsed() >= limit)
    }
}

#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod tests {
    use super::*;
    use hierlock_sandbox::{Engine, Server, on_each_server};

    const TEST_LIMIT: Duration = Duration::from_secs(30);

    on_each_server!(
        only_a_clean_session_returns_to_the_pool,
        a_session_that_reuses_a_pid_is_not_ended
    );

    fn pool_on(server: &Server) -> Arc<Pool> {
        let address = ServerAddress::from_url(&server.url().parse().unwrap()).unwrap();
        Pool::new(address, PoolSettings::default())
    }

    /// A session that reuses the process id must not be ended.
    async fn a_session_that_reuses_a_pid_is_not_ended(engine: Engine) {
        let Some(server) = Server::for_tests(engine) else { return };
        let pool = pool_on(&server);
        let (mut session, other) = (pool.connect().await.unwrap(), pool.connect().await.unwrap());
        let id = session.id;
        assert!(id.identity.is_some() && id.identity != other.id.identity);
        let of_other = SessionId { identity: other.id.identity, ..id };
        pool.terminate(of_other).await.unwrap();
        session.ping().await.unwrap();
        pool.terminate(id).await.unwrap();
        let ends = async { while session.ping().await.is_ok() {} };
        timeout(TEST_LIMIT, ends).await.expect("the session did not end within the limit");
        // The session does not exist any more.
        pool.terminate(id).await.unwrap();
    }

    /// A transaction that is left open would keep its locks for the next user of the session.
    async fn only_a_clean_session_returns_to_the_pool(engine: Engine) {
        let Some(server) = Server::for_tests(engine) else { return };
        let pool = pool_on(&server);
        let mut session = pool.connect().await.unwrap();
        let id = session.id;
        session.run("START TRANSACTION").await.unwrap();
        session.roll_back().await.unwrap();
        pool.give_back(session);
        let mut session = pool.take_idle().expect("the clean session is not idle");
        assert_eq!(session.id, id);
        session.run("START TRANSACTION").await.unwrap();
        pool.give_back(session);
        assert!(pool.take_idle().is_none(), "a session in a transaction was kept");
        timeout(TEST_LIMIT, pool.abandoned.wait_until_ended()).await.unwrap();
        let is_idle = pool.is_idle(id.pid).await.unwrap();
        assert_eq!(is_idle, None, "the abandoned session still exists");
    }
}
