//! The sessions of one client on one server: a few to work with, and the control session, which asks and cancels.

use crate::abandoned::{AbandonedSessions, SessionOwner};
use crate::row::TextRow;
use crate::session::settings::{Purpose, SessionSettings};
use crate::session::{Session, SessionId};
use crate::tasks::TaskTracker;
use crate::{Dialect, ServerAddress, ServerError, sessions, timed_out};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// What a client decides about its sessions.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// How many sessions it works with at a time.
    pub connections: usize,
    /// How long a server may take to answer what it need not wait for.
    pub answer_limit: Duration,
    /// What its sessions are for.
    pub purpose: Purpose,
    /// How they are set up.
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
    /// Where the server is.
    pub address: ServerAddress,
    /// What the client has decided.
    pub settings: PoolSettings,
    /// Each with the time since when it is idle.
    idle: Mutex<Vec<(Session, Instant)>>,
    permits: Arc<Semaphore>,
    /// The control session, for cancelling and asking; opened when first needed.
    control: tokio::sync::Mutex<Option<Session>>,
    /// How many questions of the control session in a row were not answered, and since when.
    unanswered: Mutex<Option<(usize, Instant)>>,
    /// Tasks that finish the work of callers who have gone.
    pub tasks: TaskTracker,
    /// Sessions that are to be ended on the server.
    pub abandoned: AbandonedSessions,
    this: Weak<Pool>,
}

/// So many questions must stay unanswered before the server counts as silent: one may be unlucky.
const MIN_UNANSWERED: usize = 2;

/// A session that was in use this recently is lent again without asking whether it is still there.
const PING_AFTER: Duration = Duration::from_secs(1);

/// How long an answer may still be on its way when the server says that the session runs nothing.
const ANSWER_GRACE: Duration = Duration::from_millis(200);

/// How often it is looked whether a session that was told to end has ended.
const TERMINATE_CHECKS: usize = 40;
const TERMINATE_CHECK_PAUSE: Duration = Duration::from_millis(5);

/// The right to one session.
pub type Permit = OwnedSemaphorePermit;

impl Pool {
    /// Makes a pool. Nothing is connected yet.
    pub fn new(address: ServerAddress, settings: PoolSettings) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(settings.connections.min(Semaphore::MAX_PERMITS)));
        Arc::new_cyclic(|this| Self {
            address,
            settings,
            idle: Mutex::default(),
            permits,
            control: tokio::sync::Mutex::default(),
            unanswered: Mutex::default(),
            tasks: TaskTracker::default(),
            abandoned: AbandonedSessions::default(),
            this: this.clone(),
        })
    }

    /// Waits for the right to a session, first come first served. None if the pool was [shut down](Self::shut_down).
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub async fn permit(&self) -> Option<Permit> {
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Returns the right to a session, if there is one left.
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
        // Boxed: it is rare and large, and would be moved along with every acquire.
        Box::pin(Session::connect(&self.address, *answer_limit, settings, owner)).await
    }

    fn owner(&self) -> SessionOwner {
        SessionOwner { pool: self.this.clone(), runtime: Handle::current() }
    }

    /// Has a session ended on the server that is not one of the pool's own, but of the same server.
    pub fn abandon(&self, dialect: Dialect, id: SessionId) {
        if Handle::try_current().is_ok() {
            self.owner().abandon(dialect, id);
        }
    }

    /// Waits until what was abandoned has ended on the server, or cannot be ended; then closes what is idle. Fails with
    /// [`ServerError::NotClosed`] if that takes longer than `limit`.
    pub async fn close(&self, limit: Duration) -> Result<(), ServerError> {
        let close = async {
            loop {
                // What a task abandons is ended after it.
                self.tasks.wait_until_idle().await;
                self.abandoned.wait_until_ended().await;
                let mut idle = self.idle();
                // Asked under the lock: a task that has taken a session out puts it back later.
                if self.tasks.is_idle() {
                    idle.drain(..).for_each(|(session, _)| session.close());
                    break;
                }
            }
            // It may be asked something just now.
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

    /// Waits until all sessions are back, at most `limit`; then gives out none, and closes those that come back later.
    pub async fn shut_down(&self, limit: Duration) {
        let all = u32::try_from(self.settings.connections).unwrap_or(u32::MAX);
        let unused = timeout(limit, self.permits.acquire_many(all)).await;
        self.permits.close();
        drop(unused);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Session, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an idle session, which may have died in its sleep.
    pub fn take_idle(&self) -> Option<Session> {
        self.idle().pop().map(|(session, _)| session)
    }

    /// Returns a session that was there a moment ago: an idle one, asked if it was not used for a while, or a new one.
    pub async fn session(&self) -> Result<Session, ServerError> {
        loop {
            // In a statement of its own, so that the lock is not held across an await.
            let Some((mut session, since)) = self.idle().pop() else { return self.connect().await };
            if since.elapsed() < PING_AFTER || session.ping().await.is_ok() {
                return Ok(session);
            }
        }
    }

    /// Keeps a session that is known to hold nothing, if it is not one too many. Any other is ended on the server.
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

    /// Returns whether an idle session is in a transaction that waits for its next use.
    pub fn has_open_transactions(&self) -> bool {
        self.idle().iter().any(|(session, _)| session.in_transaction)
    }

    /// Ends the transactions of idle sessions: nobody should wonder about them. [`close`](Self::close) waits for it.
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

    /// Ends the statement that a session runs now.
    pub async fn cancel(&self, dialect: Dialect, pid: i64) -> Result<(), ServerError> {
        self.ask_control(&sessions::cancel(dialect, pid)).await.map(|_| ())
    }

    /// Ends a session, but not one that has got its number since. Mostly it is gone when this returns.
    pub async fn terminate(&self, dialect: Dialect, id: SessionId) -> Result<(), ServerError> {
        let identity = sessions::identity_of(dialect, id.pid);
        if id.is(&self.ask_control(&identity).await?) {
            self.ask_control(&sessions::terminate(dialect, id.pid)).await?;
            for _ in 0..TERMINATE_CHECKS {
                if !id.is(&self.ask_control(&identity).await?) {
                    break;
                }
                sleep(TERMINATE_CHECK_PAUSE).await;
            }
        }
        Ok(())
    }

    /// Returns whether a session is between two statements; None if there is none, or none that we may see.
    pub async fn is_idle(&self, dialect: Dialect, pid: i64) -> Result<Option<bool>, ServerError> {
        let rows = self.ask_control(&sessions::is_idle(dialect, pid)).await?;
        Ok(rows.first().map(|row| row[0] == "1"))
    }

    /// Waits for the answer to a statement that may take its time. After the answer limit the control session asks
    /// again and again what the session does. If it runs nothing, or is not there, or the server is silent, this fails
    /// as if the connection were lost.
    ///
    /// # Cancel safety
    /// That of `statement`.
    pub async fn answered<T>(
        &self,
        dialect: Dialect,
        id: SessionId,
        statement: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let limit = self.settings.answer_limit;
        let mut statement = pin!(statement);
        loop {
            if let Ok(answer) = timeout(limit, statement.as_mut()).await {
                return answer;
            }
            match self.is_idle(dialect, id.pid).await {
                Ok(Some(false)) => {}
                Err(_) if !self.is_silent() => {}
                _ => {
                    let answer = timeout(ANSWER_GRACE, statement.as_mut()).await;
                    return answer.unwrap_or_else(|_| Err(timed_out(limit)));
                }
            }
        }
    }

    /// Returns whether a pooler gives every transaction another connection: then the numbers of two sessions change.
    pub async fn is_behind_pooler(&self, session: &mut Session) -> Result<bool, sqlx::Error> {
        let Ok(mut other) = self.connect_for(Purpose::Control).await else { return Ok(false) };
        if other.id.pid == session.id.pid {
            return Ok(true);
        }
        // Not BEGIN: in a mode of MariaDB that is the begin of a block.
        other.run("START TRANSACTION").await?;
        let (busy, ours) = (other.ask_pid().await?, session.ask_pid().await?);
        let is_pooled = busy != other.id.pid || ours != session.id.pid;
        other.run("ROLLBACK").await?;
        *self.control.lock().await = Some(other);
        Ok(is_pooled)
    }

    /// Asks on the control session; one that has died is replaced, once. Fails if the server cannot be asked.
    pub async fn ask_control(&self, question: &str) -> Result<Vec<TextRow>, ServerError> {
        let mut control = self.control.lock().await;
        let begun = Instant::now();
        let answer = Box::pin(self.ask_through(&mut control, question)).await;
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        // Another error is an answer too.
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

    /// Returns whether the server has stopped to answer, for more than a moment: a wait for a lock would never end.
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

    const GENEROUS: Duration = Duration::from_secs(30);

    on_each_server!(only_a_clean_session_goes_back, only_the_session_that_was_meant_is_ended);

    fn pool_on(server: &Server) -> Arc<Pool> {
        let address = ServerAddress::from_url(&server.url().parse().unwrap()).unwrap();
        Pool::new(address, PoolSettings::default())
    }

    /// A number that somebody else has got since must not cost him his session.
    async fn only_the_session_that_was_meant_is_ended(engine: Engine) {
        let Some(server) = Server::for_tests(engine) else { return };
        let pool = pool_on(&server);
        let (mut session, other) = (pool.connect().await.unwrap(), pool.connect().await.unwrap());
        let (dialect, id) = (session.dialect, session.id);
        assert!(id.identity.is_some() && id.identity != other.id.identity);
        let of_other = SessionId { identity: other.id.identity, ..id };
        pool.terminate(dialect, of_other).await.unwrap();
        session.ping().await.unwrap();
        pool.terminate(dialect, id).await.unwrap();
        let ends = async { while session.ping().await.is_ok() {} };
        timeout(GENEROUS, ends).await.expect("it lives");
        // There is no such session any more.
        pool.terminate(dialect, id).await.unwrap();
    }

    /// A transaction that is left open would keep its locks for whoever gets the session next.
    async fn only_a_clean_session_goes_back(engine: Engine) {
        let Some(server) = Server::for_tests(engine) else { return };
        let pool = pool_on(&server);
        let mut session = pool.connect().await.unwrap();
        let (dialect, id) = (session.dialect, session.id);
        session.run("START TRANSACTION").await.unwrap();
        session.roll_back().await.unwrap();
        pool.give_back(session);
        let mut session = pool.take_idle().expect("it was clean");
        assert_eq!(session.id, id);
        session.run("START TRANSACTION").await.unwrap();
        pool.give_back(session);
        assert!(pool.take_idle().is_none(), "it is in a transaction");
        timeout(GENEROUS, pool.abandoned.wait_until_ended()).await.unwrap();
        assert_eq!(pool.is_idle(dialect, id.pid).await.unwrap(), None, "it is still there");
    }
}
