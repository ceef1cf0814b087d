//! The connections of one backend: a few, each either idle or one hold's own.

use super::abandoned::{AbandonedSessions, Owner};
use super::line::TextRow;
use super::place::{Place, Scope, Settings};
use super::session::{Address, Meaning, Session, meaning};
use super::session_settings::Purpose;
use super::shared::Shared;
use super::watchman::Watchman;
use super::{Dialect, Scheme, innodb, mariadb, mysql, postgres};
use crate::error::{Result, SqlError};
use crate::tasks::TaskTracker;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) address: Address,
    pub(super) settings: Settings,
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
    /// For cancelling and asking; opened when first needed.
    side: tokio::sync::Mutex<Option<Session>>,
    pub(super) watchman: Watchman,
    /// The connection that guards share, if they do.
    pub(super) shared: Option<Arc<Shared>>,
    /// Questions on the side that were not answered, since the last that was.
    unanswered: Mutex<Unanswered>,
    /// What finishes the work of callers who have gone.
    pub(super) tasks: TaskTracker,
    pub(super) abandoned: AbandonedSessions,
    /// Itself, for the sessions that belong to it.
    this: Weak<Pool>,
}

/// How many, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Unanswered {
    count: usize,
    since: Option<Instant>,
}

/// One may be unlucky, for example because just its connection was cut.
const UNANSWERED: usize = 2;

/// The right to one connection.
pub(super) type Permit = OwnedSemaphorePermit;

impl Pool {
    pub(super) fn new(place: &Place) -> Arc<Self> {
        let Place { address, settings, .. } = place;
        let permits = Arc::new(Semaphore::new(settings.connections.min(Semaphore::MAX_PERMITS)));
        let (idle, side, watchman, unanswered) = Default::default();
        let (tasks, abandoned) = Default::default();
        let (address, settings) = (address.clone(), *settings);
        let shared = (settings.scope == Scope::Session).then(Arc::default);
        Arc::new_cyclic(|this| Self {
            address,
            settings,
            idle,
            permits,
            side,
            watchman,
            shared,
            unanswered,
            tasks,
            abandoned,
            this: this.clone(),
        })
    }

    /// Waits for the right to a connection, first come first served.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub(super) async fn permit(&self) -> Permit {
        let permit = self.permits.clone().acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    pub(super) fn try_permit(&self) -> Option<Permit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// A new session to lock with.
    pub(super) async fn connect(&self) -> Result<Session> {
        let session = self.connect_for(Purpose::Lock).await?;
        match session.why_read_only() {
            None => Ok(session),
            Some(why) => {
                session.close();
                Err(SqlError::Unfit { server: self.address.to_string(), why }.into())
            }
        }
    }

    async fn connect_for(&self, purpose: Purpose) -> Result<Session> {
        let owner = Owner { pool: self.this.clone(), runtime: Handle::current() };
        Session::connect(&self.address, &self.settings, purpose, Some(owner)).await
    }

    /// Waits until what was given up has ended on the server, or cannot be ended; then closes what is idle.
    pub(super) async fn close(&self, limit: Duration) -> Result<()> {
        let ended = async {
            // What a task gives up is ended after it.
            self.tasks.wait_until_idle().await;
            self.abandoned.wait_until_ended().await;
        };
        let ended = tokio::time::timeout(limit, ended).await;
        std::mem::take(&mut *self.idle()).into_iter().for_each(Session::close);
        let side = self.side.try_lock().ok().and_then(|mut side| side.take());
        if let Some(side) = side {
            side.close();
        }
        let server = self.address.to_string();
        ended.map_err(|_| SqlError::NotClosed { server, limit }.into())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle session, which may have died in its sleep.
    pub(super) fn take_idle(&self) -> Option<Session> {
        self.idle().pop()
    }

    /// Keeps a session that is known to hold nothing, if it is not one too many.
    pub(super) fn give_back(&self, session: Session) {
        let mut idle = self.idle();
        match idle.len() < self.settings.connections {
            true => idle.push(session),
            false => session.close(),
        }
    }

    /// Is an idle session in a transaction that waits for its next use?
    pub(super) fn is_untidy(&self) -> bool {
        self.idle().iter().any(|session| session.in_transaction)
    }

    /// Ends the transactions of idle sessions: nobody should wonder about them.
    pub(super) async fn tidy(&self) {
        let untidy: Vec<Session> =
            self.idle().extract_if(.., |session| session.in_transaction).collect();
        for mut session in untidy {
            if session.leave_transaction().await.is_ok() {
                self.give_back(session);
            }
        }
    }

    /// Ends the statement that a session runs now.
    pub(super) async fn cancel(&self, dialect: Dialect, pid: i64) -> Result<()> {
        let cancel = match dialect {
            Dialect::Postgres => postgres::cancel(pid),
            _ => innodb::cancel(pid),
        };
        self.ask_on_the_side(&cancel).await.map(|_| ())
    }

    /// The name of the slot that a session waits for, if it does.
    pub(super) async fn waits_for(&self, scheme: &Scheme, pid: i64) -> Result<Option<String>> {
        let question = match scheme.dialect {
            Dialect::Mysql => mysql::waits_for(pid),
            Dialect::Mariadb => mariadb::STATUS.to_owned(),
            Dialect::Postgres => postgres::waits_for(scheme, pid),
        };
        let rows = self.ask_on_the_side(&question).await?;
        let answer = rows.first().and_then(|row| match scheme.dialect {
            Dialect::Postgres => row.first(),
            _ => row.last(),
        });
        Ok(answer.and_then(|answer| match scheme.dialect {
            Dialect::Mysql => Some(mysql::slot_name(answer)),
            Dialect::Mariadb => mariadb::slot_name(answer, pid),
            Dialect::Postgres => Some(answer.clone()),
        }))
    }

    /// Is a session between two statements? None: there is no such session, or none that we may see.
    pub(super) async fn is_idle(&self, dialect: Dialect, pid: i64) -> Result<Option<bool>> {
        let question = match dialect {
            Dialect::Postgres => postgres::is_idle(pid),
            _ => innodb::is_idle(pid),
        };
        let rows = self.ask_on_the_side(&question).await?;
        Ok(rows.first().map(|row| row[0] == "1"))
    }

    /// Does something between us and the server give every transaction another connection? Then one
    /// of two sessions has the other's number, or another than before once the other is busy.
    pub(super) async fn is_pooled(&self, session: &mut Session) -> Result<bool, sqlx::Error> {
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

    /// Asks on the side connection; one that has died is replaced, once.
    pub(super) async fn ask_on_the_side(&self, question: &str) -> Result<Vec<TextRow>> {
        let mut side = self.side.lock().await;
        let begun = Instant::now();
        let answer = self.ask_through(&mut side, question).await;
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        match &answer {
            Err(error) if error.sql_source().is_some_and(|e| meaning(e) == Meaning::Gone) => {
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
    ) -> Result<Vec<TextRow>> {
        let failed = |source| SqlError::Failed { server: self.address.to_string(), source };
        if let Some(mut session) = side.take() {
            match session.rows(question).await {
                Ok(answer) => {
                    *side = Some(session);
                    return Ok(answer);
                }
                // Another connection would only double the wait.
                Err(error) if is_silence(&error) => return Err(failed(error).into()),
                Err(_) => {}
            }
        }
        let mut session = self.connect_for(Purpose::Side).await?;
        let answer = session.rows(question).await.map_err(failed)?;
        *side = Some(session);
        Ok(answer)
    }

    /// Has the server stopped to answer, not only once and not only for a moment? Then what waits for
    /// a lock would wait for ever.
    pub(super) fn is_silent(&self) -> bool {
        let unanswered = *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        let lasts = |since: Instant| since.elapsed() >= self.settings.silence;
        unanswered.count >= UNANSWERED && unanswered.since.is_some_and(lasts)
    }
}

fn is_silence(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut)
}
