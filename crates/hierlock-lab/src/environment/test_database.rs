//! The database of a case on a server: its sessions are connections, and one more connection observes them.
//!
//! ```text
//!   begin ─► LabSession ─task─► connection ─►┐
//!   begin ─► LabSession ─task─► connection ─►│ server, in a namespace of the case's own
//!   waits, locks, deadlock, cancel ─► Observer ─►┘
//! ```
//!
//! Lock steps do not run here: a client for the tree uses the same namespace ([`NamespaceGuard::url`]).

use super::connection::{ANSWER_LIMIT, LabConnection};
use super::failure::copy_refusal;
use super::namespace::{Namespace, NamespaceGuard};
use super::observer::Observer;
use super::prepared_transactions::PreparedTransactions;
use super::requirements::Requirements;
use super::server::TestServer;
use super::session::LabSession;
use super::{CaseLocks, LabError, LabResult, Reply, SET_UP_LIMIT, settings};
use crate::lock_history::is_same_object;
use crate::observation::{Failure, FailureKind, LockKind, SessionName, SessionWait};
use crate::record::Cycle;
use crate::runner::wait_graph::LastWaits;
use crate::scenario::{Case, SettingValue, Statement};
use futures_util::future::join_all;
use hierlock_engine::{Dialect, error_message, sessions};
use parking_lot::Mutex as SyncMutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

/// The interval between cancels: a cancel that arrives before the statement begins is lost.
const CANCEL_RETRY_DELAY: Duration = Duration::from_millis(20);

pub(crate) struct TestDatabase {
    pub(super) sessions: BTreeMap<SessionName, LabSession>,
    last_waits: SyncMutex<LastWaits>,
    pub(super) observer: Arc<Mutex<Observer>>,
    teardown: Vec<Statement>,
    pub(super) guard: NamespaceGuard,
    _permit: Option<OwnedSemaphorePermit>,
    _names_guard: Option<OwnedMutexGuard<()>>,
}

impl TestDatabase {
    /// Creates a namespace, runs the setup of the case in it, and connects the sessions.
    pub(super) async fn open(server: &Arc<TestServer>, case: &Case) -> LabResult<Self> {
        let requirements = Requirements::of(server.dialect(), case);
        let _permit = server.occupy(requirements.server).await;
        let mut _names_guard = None;
        if requirements.names {
            _names_guard = Some(server.names.clone().lock_owned().await);
        }
        let mut guard = server.create_namespace(requirements.database).await?;
        let mut connection = LabConnection::open(&guard.address()).await?;
        // The cleanup also ends the statements of this connection.
        guard.connections.push(connection.pid);
        run_all(&mut connection, &case.setup, "setup", &guard.prepared).await?;
        if !guard.prepared.is_empty() {
            // On MariaDB a connection with a prepared transaction can run nothing else.
            connection.close().await;
            connection = LabConnection::open(&guard.address()).await?;
            guard.connections.push(connection.pid);
        }
        if server.dialect() == Dialect::Postgres {
            connection.query(settings::POSTGRES_SHORT_LOCK_TIMEOUT).await?;
        }
        let sessions = open_sessions(&mut guard, &case.sessions).await?;
        let names = sessions.iter().map(|(name, session)| (session.pid, name.clone())).collect();
        Ok(Self {
            sessions,
            last_waits: SyncMutex::default(),
            observer: Arc::new(Mutex::new(Observer::new(connection, &guard, names))),
            teardown: case.teardown.clone(),
            guard,
            _permit,
            _names_guard,
        })
    }

    /// Returns the longest deadlock timeout of all sessions.
    pub(super) fn deadlock_timeout(&self) -> Duration {
        let all = self.sessions.values().map(|session| session.deadlock_timeout);
        all.max().unwrap_or_default()
    }

    fn session(&self, name: &SessionName) -> LabResult<&LabSession> {
        self.sessions.get(name).ok_or_else(|| LabError(format!("there is no session {name}")))
    }

    /// Runs a query of the observer to its end, in a task. If it were dropped, the next query would read its result.
    async fn observe<T, F>(
        &self,
        query: impl FnOnce(OwnedMutexGuard<Observer>) -> F + Send + 'static,
    ) -> LabResult<T>
    where
        T: Send + 'static,
        F: Future<Output = LabResult<T>> + Send + 'static,
    {
        let observer = self.observer.clone();
        let query = async move { query(observer.lock_owned().await).await };
        let task = self.guard.server.in_use.spawn(query);
        task.await.map_err(|error| LabError(format!("a query to the server failed: {error}")))?
    }

    pub(super) fn begin(&self, session: &SessionName, sql: &str) -> Reply {
        self.last_waits.lock().forget(session);
        match self.session(session) {
            Ok(session) => session.begin(sql),
            Err(LabError(why)) => {
                let (reply, result) = oneshot::channel();
                // The receiver is in this function, so sending does not fail.
                _ = reply.send(Err(Failure::new(FailureKind::Other, why)));
                result
            }
        }
    }

    pub(super) async fn waits(&self) -> LabResult<Vec<SessionWait>> {
        let timeout = self.deadlock_timeout();
        let query = move |mut observer: OwnedMutexGuard<Observer>| async move {
            let waits = observer.waits().await?;
            Ok((waits, Instant::now() + observer.next_deadlock_check(timeout)))
        };
        let (waits, checked_at) = self.observe(query).await?;
        let mut last_waits = self.last_waits.lock();
        last_waits.remember(&waits);
        last_waits.checked_at = Some(checked_at);
        Ok(waits)
    }

    pub(super) async fn locks(&self) -> LabResult<CaseLocks> {
        self.observe(|mut observer| async move { observer.locks().await }).await
    }

    pub(super) async fn deadlock(&self, victim: &SessionName, failure: &Failure) -> Option<Cycle> {
        let (chosen, failure) = (victim.clone(), failure.clone());
        let query = move |mut observer: OwnedMutexGuard<Observer>| async move {
            Ok(observer.deadlock(&chosen, &failure).await)
        };
        let reported = self.observe(query).await.ok().flatten();
        let last_waits = self.last_waits.lock();
        let mut cycle = reported.or_else(|| last_waits.cycle(victim))?;
        if self.guard.server.dialect() == Dialect::Postgres {
            // The server reports which transaction a session waits for; a probe has seen which row, and in which mode.
            for edge in &mut cycle {
                let seen = last_waits.wants(&edge.waiter, &edge.holder);
                if let (Some(wants), Some(seen)) = (&mut edge.wants, seen)
                    && seen.kind == LockKind::Row
                    && (wants.kind == LockKind::Transaction || is_same_object(wants, seen))
                {
                    *wants = seen.clone();
                }
            }
        }
        Some(cycle)
    }

    pub(super) fn next_deadlock_check(&self) -> Duration {
        let checked_at = self.last_waits.lock().checked_at;
        checked_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }

    pub(super) async fn cancel(&self, session: &SessionName) -> LabResult<()> {
        let (dialect, session) = (self.guard.server.dialect(), self.session(session)?);
        session.expect_cancel();
        let started = Instant::now();
        while session.is_busy() {
            // If a cancel has no effect, the connection is terminated.
            let sql = if started.elapsed() > ANSWER_LIMIT {
                sessions::terminate(dialect, session.pid)
            } else {
                sessions::cancel(dialect, session.pid)
            };
            // The server rejects it if the connection is gone; then the session soon reports that.
            let query = |mut observer: OwnedMutexGuard<Observer>| async move {
                observer.connection.try_query(&sql).await.map(|_| ())
            };
            self.observe(query).await?;
            _ = tokio::time::timeout(CANCEL_RETRY_DELAY, session.wait_until_idle()).await;
            if started.elapsed() > 2 * ANSWER_LIMIT {
                let pid = session.pid;
                return Err(LabError(format!("the statement of connection {pid} cannot be ended")));
            }
        }
        Ok(())
    }

    /// Ends all sessions, runs the teardown and removes the namespace. Returns notes for the record.
    pub(super) async fn close(mut self) -> LabResult<Vec<String>> {
        let dialect = self.guard.server.dialect();
        let mut observer = self.observer.lock().await;
        let connection = &mut observer.connection;
        let mut ended = Ok(());
        for session in self.sessions.values().filter(|session| session.is_busy()) {
            session.expect_cancel();
            // An error of the server means that the session has ended already.
            if let Err(error) =
                connection.try_query(&sessions::terminate(dialect, session.pid)).await
            {
                ended = Err(error);
            }
        }
        join_all(std::mem::take(&mut self.sessions).into_values().map(LabSession::close)).await;
        if dialect == Dialect::Postgres {
            // If the server is gone, the statements below fail.
            _ = connection.try_query(settings::POSTGRES_NO_LOCK_TIMEOUT).await;
        }
        let prepared = &self.guard.prepared;
        let rolled_back = prepared.roll_back(connection, &self.teardown).await;
        let torn_down = run_all(connection, &self.teardown, "teardown", prepared).await;
        let rest = prepared.roll_back(connection, &[]).await;
        let removed = match &self.guard.namespace {
            // A database is removed through a connection outside of it.
            database @ Namespace::PostgresDatabase(_) => {
                database.remove(&mut *self.guard.server.control.lock().await).await
            }
            namespace => namespace.remove(connection).await,
        };
        drop(observer);
        if let Some(observer) = Arc::into_inner(self.observer) {
            observer.into_inner().connection.close().await;
        }
        // If the removal failed, the drop of the guard tries again.
        self.guard.is_removed = removed.is_ok();
        ended.and(torn_down).and(removed)?;
        Ok([rolled_back?, rest?].concat())
    }
}

async fn open_sessions(
    guard: &mut NamespaceGuard,
    settings: &BTreeMap<SessionName, Vec<SettingValue>>,
) -> LabResult<BTreeMap<SessionName, LabSession>> {
    let address = guard.address();
    let opening = settings.iter().map(|(name, settings)| {
        let open = LabSession::open(&address, settings, guard.prepared.clone());
        async move { (name.clone(), open.await) }
    });
    let opened = join_all(opening).await;
    // If one fails, the cleanup ends the others too.
    let pids = opened.iter().filter_map(|(_, session)| session.as_ref().ok());
    guard.connections.extend(pids.map(|session| session.pid));
    let named = |(name, opened): (SessionName, LabResult<LabSession>)| match opened {
        Ok(session) => Ok((name, session)),
        Err(LabError(why)) => Err(LabError(format!("session {name}: {why}"))),
    };
    opened.into_iter().map(named).collect()
}

/// Runs the statements of `setup:` or `teardown:`; an error names the statement that failed.
async fn run_all(
    connection: &mut LabConnection,
    statements: &[Statement],
    part: &str,
    prepared: &PreparedTransactions,
) -> LabResult<()> {
    let dialect = connection.dialect;
    for Statement { line, sql } in statements {
        let failed = |why: &str| {
            LabError(format!("line {line}: the {part} fails at `{}`: {why}", sql.trim()))
        };
        if let Some(why) = copy_refusal(dialect, sql) {
            return Err(failed(why));
        }
        let result = connection.results_within(SET_UP_LIMIT, sql).await;
        let result = result.map_err(|LabError(why)| failed(&why))?;
        result.map_err(|error| failed(&error_message(&error)))?;
        prepared.record(dialect.driver(), sql, None);
    }
    Ok(())
}
