//! The sessions of one client on one server: a few to work with, each idle or in use, and one on the side to ask and to
//! cancel.

use crate::abandoned::{AbandonedSessions, Owner};
use crate::row::TextRow;
use crate::session::settings::{Purpose, SessionSettings};
use crate::session::{Session, SessionId};
use crate::tasks::TaskTracker;
use crate::{Dialect, ErrorClass, ServerAddress, ServerError, sessions, timed_out};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
    idle: Mutex<Vec<IdleSession>>,
    permits: Arc<Semaphore>,
    /// For cancelling and asking; opened when first needed.
    side: tokio::sync::Mutex<Option<Session>>,
    /// Questions on the side that were not answered, since the last that was.
    unanswered: Mutex<Unanswered>,
    /// Tasks that finish the work of callers who have gone.
    pub tasks: TaskTracker,
    /// Sessions that are to be ended on the server.
    pub abandoned: AbandonedSessions,
    /// Itself, for the sessions that belong to it.
    this: Weak<Pool>,
}

#[derive(Debug)]
struct IdleSession {
    session: Session,
    since: Instant,
}

/// How many, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Unanswered {
    count: usize,
    since: Option<Instant>,
}

/// So many questions must stay unanswered before the server counts as silent: one may be unlucky, for example because
/// just its connection was cut.
const MIN_UNANSWERED: usize = 2;

/// A session that was in use this recently is lent again without asking whether it is still there.
const FRESH: Duration = Duration::from_secs(1);

/// How long an answer may still be on its way when the server says that the session runs nothing.
const ANSWER_GRACE: Duration = Duration::from_millis(200);

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
            side: tokio::sync::Mutex::default(),
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
    ///
    /// # Errors
    /// If there is no connection to be had.
    pub async fn connect(&self) -> Result<Session, ServerError> {
        self.connect_for(self.settings.purpose).await
    }

    async fn connect_for(&self, purpose: Purpose) -> Result<Session, ServerError> {
        let PoolSettings { answer_limit, session, .. } = &self.settings;
        Session::connect(&self.address, *answer_limit, (purpose, session), Some(self.owner())).await
    }

    /// Who ends the sessions of this pool on the server.
    fn owner(&self) -> Owner {
        Owner { pool: self.this.clone(), runtime: Handle::current() }
    }

    /// Has a session ended on the server that is not one of the pool's own, but of the same server.
    pub fn abandon(&self, dialect: Dialect, id: SessionId) {
        if Handle::try_current().is_ok() {
            self.owner().abandon(dialect, id);
        }
    }

    /// Waits until what was abandoned has ended on the server, or cannot be ended; then closes what is idle.
    ///
    /// # Errors
    /// [`ServerError::NotClosed`].
    pub async fn close(&self, limit: Duration) -> Result<(), ServerError> {
        let ended = async {
            // What a task abandons is ended after it.
            self.tasks.wait_until_idle().await;
            self.abandoned.wait_until_ended().await;
        };
        let ended = tokio::time::timeout(limit, ended).await;
        std::mem::take(&mut *self.idle()).into_iter().for_each(|idle| idle.session.close());
        let side = self.side.try_lock().ok().and_then(|mut side| side.take());
        if let Some(side) = side {
            side.close();
        }
        let server = self.address.to_string();
        ended.map_err(|_| ServerError::NotClosed { server, limit })
    }

    /// Waits until all sessions are back, at most `limit`; then gives out none any more, and closes those that come back
    /// later.
    pub async fn shut_down(&self, limit: Duration) {
        let all = u32::try_from(self.settings.connections).unwrap_or(u32::MAX);
        let unused = tokio::time::timeout(limit, self.permits.acquire_many(all)).await;
        self.permits.close();
        drop(unused);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleSession>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an idle session, which may have died in its sleep.
    pub fn take_idle(&self) -> Option<Session> {
        self.idle().pop().map(|idle| idle.session)
    }

    /// Returns a session that was there a moment ago: an idle one, asked if it was not used for a while, or a new one.
    ///
    /// # Errors
    /// If there is no connection to be had.
    pub async fn session(&self) -> Result<Session, ServerError> {
        loop {
            // Not held across an await.
            let idle = self.idle().pop();
            match idle {
                Some(IdleSession { session, since }) if since.elapsed() < FRESH => {
                    return Ok(session);
                }
                Some(IdleSession { mut session, .. }) => {
                    if session.ping().await.is_ok() {
                        return Ok(session);
                    }
                }
                None => return self.connect().await,
            }
        }
    }

    /// Keeps a session that is known to hold nothing, if it is not one too many. One that is not known to is ended on
    /// the server instead.
    pub fn give_back(&self, session: Session) {
        if !session.is_clean() {
            tracing::debug!(
                pid = session.id.pid,
                "a session that may hold something is not used again"
            );
            return;
        }
        let mut idle = self.idle();
        if idle.len() < self.settings.connections && !self.permits.is_closed() {
            idle.push(IdleSession { session, since: Instant::now() });
        } else {
            session.close();
        }
    }

    /// Returns whether an idle session is in a transaction that waits for its next use.
    pub fn has_open_transactions(&self) -> bool {
        self.idle().iter().any(|idle| idle.session.in_transaction)
    }

    /// Ends the transactions of idle sessions: nobody should wonder about them.
    pub async fn end_idle_transactions(&self) {
        let open: Vec<IdleSession> =
            self.idle().extract_if(.., |idle| idle.session.in_transaction).collect();
        for IdleSession { mut session, .. } in open {
            if session.leave_transaction().await.is_ok() {
                self.give_back(session);
            }
        }
    }

    /// Ends the statement that a session runs now.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn cancel(&self, dialect: Dialect, pid: i64) -> Result<(), ServerError> {
        self.ask_on_the_side(&sessions::cancel(dialect, pid)).await.map(|_| ())
    }

    /// Returns whether a session is between two statements; None if there is none, or none that we may see.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn is_idle(&self, dialect: Dialect, pid: i64) -> Result<Option<bool>, ServerError> {
        let rows = self.ask_on_the_side(&sessions::is_idle(dialect, pid)).await?;
        Ok(rows.first().map(|row| row[0] == "1"))
    }

    /// Waits for the answer to a statement that may take its time, but not for one that never comes. After the answer
    /// limit the server is asked on the side, again and again, what the session does. If it runs nothing, or there is
    /// no such session, or the server does not answer at all, the statement fails as if the connection had been lost.
    ///
    /// # Cancel safety
    /// That of `statement`.
    ///
    /// # Errors
    /// Those of `statement`, and that there is no answer.
    pub async fn answered<T>(
        &self,
        dialect: Dialect,
        id: SessionId,
        statement: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let limit = self.settings.answer_limit;
        let mut statement = pin!(statement);
        loop {
            if let Ok(answer) = tokio::time::timeout(limit, statement.as_mut()).await {
                return answer;
            }
            match self.is_idle(dialect, id.pid).await {
                Ok(Some(false)) => {}
                Err(_) if !self.is_silent() => {}
                _ => {
                    let answer = tokio::time::timeout(ANSWER_GRACE, statement.as_mut()).await;
                    return answer.unwrap_or_else(|_| Err(timed_out(limit)));
                }
            }
        }
    }

    /// Returns whether something between us and the server gives every transaction another connection. Then one of two
    /// sessions has the other's number, or another than before once the other is busy.
    ///
    /// # Errors
    /// What the server says.
    pub async fn is_behind_pooler(&self, session: &mut Session) -> Result<bool, sqlx::Error> {
        let connected = self.connect_for(Purpose::Side).await;
        let Ok(mut other) = connected else { return Ok(false) };
        if other.id.pid == session.id.pid {
            return Ok(true);
        }
        // Not BEGIN: in a mode of MariaDB that is the begin of a block.
        other.run("START TRANSACTION").await?;
        let busy = other.ask_pid().await?;
        let ours = session.ask_pid().await?;
        let is_pooled = busy != other.id.pid || ours != session.id.pid;
        other.run("ROLLBACK").await?;
        *self.side.lock().await = Some(other);
        Ok(is_pooled)
    }

    /// Asks on the side session; one that has died is replaced, once.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn ask_on_the_side(&self, question: &str) -> Result<Vec<TextRow>, ServerError> {
        let mut side = self.side.lock().await;
        let begun = Instant::now();
        let answer = self.ask_through(&mut side, question).await;
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost = |error: &ServerError| {
            error.source_of_driver().is_some_and(|e| ErrorClass::of(e).is_connection_lost())
        };
        match &answer {
            Err(error) if is_lost(error) => {
                unanswered.count += 1;
                unanswered.since.get_or_insert(begun);
            }
            // An error is an answer too.
            _ => *unanswered = Unanswered::default(),
        }
        answer
    }

    async fn ask_through(
        &self,
        side: &mut Option<Session>,
        question: &str,
    ) -> Result<Vec<TextRow>, ServerError> {
        let failed = |source| ServerError::Failed { server: self.address.to_string(), source };
        if let Some(mut session) = side.take() {
            match session.rows(question).await {
                Ok(answer) => {
                    *side = Some(session);
                    return Ok(answer);
                }
                // Another connection would only double the wait.
                Err(error) if is_silence(&error) => return Err(failed(error)),
                Err(_) => {}
            }
        }
        let mut session = self.connect_for(Purpose::Side).await?;
        let answer = session.rows(question).await.map_err(failed)?;
        *side = Some(session);
        Ok(answer)
    }

    /// Returns whether the server has stopped to answer, not only once and not only for a moment. Then what waits for a
    /// lock would wait for ever.
    pub fn is_silent(&self) -> bool {
        let unanswered = *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        let lasts = |since: Instant| since.elapsed() >= self.settings.answer_limit;
        unanswered.count >= MIN_UNANSWERED && unanswered.since.is_some_and(lasts)
    }
}

fn is_silence(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut)
}

#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod tests {
    use super::*;
    use hierlock_sandbox::{Engine, Server, on_each_server};

    const GENEROUS: Duration = Duration::from_secs(30);

    on_each_server!(only_a_clean_session_goes_back);

    /// A transaction that is left open would keep its locks for whoever gets the session next.
    async fn only_a_clean_session_goes_back(engine: Engine) {
        let Some(server) = Server::for_tests(engine) else { return };
        let address = ServerAddress::from_url(&server.url().parse().unwrap()).unwrap();
        let pool = Pool::new(address, PoolSettings::default());
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
        tokio::time::timeout(GENEROUS, pool.abandoned.wait_until_ended()).await.unwrap();
        assert_eq!(pool.is_idle(dialect, id.pid).await.unwrap(), None, "it is still there");
    }
}
