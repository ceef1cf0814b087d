//! A case on a server: its sessions are connections, and one more asks the server about them.
//!
//! ```text
//!   begin ─► Session ─task─► connection ─►┐
//!   begin ─► Session ─task─► connection ─►│ server, in a database of the case's own
//!   waits, locks, circle, cancel ─► side ─►┘
//! ```
//!
//! Lock steps are not played here: a client for the tree stands beside this, in the same place
//! ([`SqlStage::url`]).

use super::connection::{ANSWER_LIMIT, StageConnection};
use super::home::{Home, HomeGuard};
use super::last_waits::LastWaits;
use super::needs::Needs;
use super::server::Server;
use super::session::Session;
use super::session_names::SessionNames;
use super::side::Side;
use super::{CIRCLE_LIMIT, LockList, Reply, Stage, StageError, postgres, statements};
use crate::ledger::same_place;
use crate::observation::{Failure, FailureKind, LockKind, LockedObject, Name, Wait};
use crate::record::Link;
use crate::scenario::{Case, CaseDeed, SettingValue, Statement};
use hierlock_engine::{Dialect, sessions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use url::Url;

/// How long a cancelled statement may take before it is cancelled again: one that was sent but had not
/// begun has not noticed.
const CANCEL_AGAIN: Duration = Duration::from_millis(20);

/// Who else may play on the server meanwhile.
#[expect(dead_code, reason = "held, not read")]
enum ServerShare {
    Shared(SharedServer),
    Exclusive(OwnedRwLockWriteGuard<()>),
}

/// Held by who plays beside others.
pub(super) type SharedServer = OwnedRwLockReadGuard<()>;

/// A stage on a server.
pub(crate) struct SqlStage {
    server: Server,
    sessions: BTreeMap<Name, Session>,
    names: StdMutex<SessionNames>,
    last_waits: StdMutex<LastWaits>,
    /// When the last wait that was seen will have been looked at by the server's detector.
    checked_at: StdMutex<Option<Instant>>,
    side: Arc<Mutex<Side>>,
    teardown: Vec<Statement>,
    home_guard: HomeGuard,
    share: Option<ServerShare>,
    _names_turn: Option<OwnedMutexGuard<()>>,
}

impl SqlStage {
    /// A place of its own, set up for a case, with its sessions.
    pub(super) async fn open(server: &Server, case: &Case) -> Result<Self, StageError> {
        let mut stage = Self::make(server, Needs::of(server.dialect(), case)).await?;
        stage.teardown = case.teardown.clone();
        {
            let mut side = stage.side.lock().await;
            statements::run_all(
                server.dialect(),
                &mut side.connection,
                &case.setup,
                "setup",
                &stage.home_guard.prepared,
            )
            .await?;
            if !stage.home_guard.prepared.is_empty() {
                // A connection that has prepared something is good for nothing else on MariaDB.
                let mut connection = StageConnection::open(&stage.home_guard.address()).await?;
                stage.home_guard.connections.push(connection.pid().await?);
                std::mem::replace(&mut side.connection, connection).close().await;
            }
            if server.dialect() == Dialect::Postgres {
                side.connection.ask(postgres::BRIEF).await?;
            }
        }
        stage.open_sessions(&case.sessions).await?;
        Ok(stage)
    }

    /// A place of its own, with nothing in it.
    pub(super) async fn make(server: &Server, needs: Needs) -> Result<Self, StageError> {
        let share = match needs.server {
            true => ServerShare::Exclusive(server.inner.occupancy.clone().write_owned().await),
            false => ServerShare::Shared(server.share().await),
        };
        let names_turn = match needs.names {
            true => Some(server.inner.names.clone().lock_owned().await),
            false => None,
        };
        let mut connection = StageConnection::open(&server.inner.address).await?;
        let mut home_guard = server.make(needs.database, &mut connection).await?;
        if let Home::Database(_) = home_guard.home {
            // It was made from outside.
            connection.close().await;
            connection = StageConnection::open(&home_guard.address()).await?;
        }
        // What it does is ended too, should it never end.
        home_guard.connections.push(connection.pid().await?);
        let names = SessionNames::new(home_guard.home.of_tables());
        Ok(Self {
            server: server.clone(),
            sessions: BTreeMap::new(),
            names: StdMutex::new(names),
            last_waits: StdMutex::default(),
            checked_at: StdMutex::default(),
            side: Arc::new(Mutex::new(Side::new(connection, server))),
            teardown: Vec::new(),
            home_guard,
            share: Some(share),
            _names_turn: names_turn,
        })
    }

    async fn open_sessions(
        &mut self,
        wanted: &BTreeMap<Name, Vec<SettingValue>>,
    ) -> Result<(), StageError> {
        let address = self.home_guard.address();
        let mut opening = JoinSet::new();
        for (name, settings) in wanted {
            let (name, settings, address) = (name.clone(), settings.clone(), address.clone());
            let prepared = self.home_guard.prepared.clone();
            opening
                .spawn(async move { (name, Session::open(&address, &settings, prepared).await) });
        }
        let mut failed = None;
        while let Some(opened) = opening.join_next().await {
            match opened {
                Ok((name, Ok(session))) => {
                    self.names().add(session.pid, name.clone());
                    self.home_guard.connections.push(session.pid);
                    self.sessions.insert(name, session);
                }
                Ok((name, Err(StageError(why)))) => {
                    failed = Some(StageError(format!("session {name}: {why}")));
                }
                Err(error) => failed = Some(StageError(format!("a session failed: {error}"))),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Others may have the server to themselves from now on.
    pub(super) fn leave_server(&mut self) {
        self.share = None;
    }

    /// The place of the case, as a URL for others who work there.
    pub(crate) fn url(&self) -> String {
        let Ok(mut url) = Url::parse(&self.server.inner.url) else { return String::new() };
        match &self.home_guard.home {
            Home::Schema(name) => {
                url.query_pairs_mut().append_pair("options[search_path]", name);
            }
            home => url.set_path(home.name()),
        }
        url.into()
    }

    /// The numbers of all connections.
    #[cfg(test)]
    pub(super) fn connections(&self) -> Vec<i64> {
        self.sessions.values().map(|session| session.pid).collect()
    }

    /// The database or schema of the case.
    #[cfg(test)]
    pub(super) fn home(&self) -> &str {
        self.home_guard.home.name()
    }

    /// The number of the connection of a session.
    #[cfg(test)]
    pub(super) fn connection(&self, name: &Name) -> i64 {
        self.sessions[name].pid
    }

    /// A connection that is a stranger from now on.
    #[cfg(test)]
    pub(super) fn disown(&self, connection: i64) {
        self.names().remove(connection);
    }

    fn names(&self) -> MutexGuard<'_, SessionNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_waits(&self) -> MutexGuard<'_, LastWaits> {
        self.last_waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest of all sessions.
    fn deadlock_timeout(&self) -> Duration {
        let all = self.sessions.values().map(|session| session.deadlock_timeout);
        all.max().unwrap_or_default()
    }

    fn session(&self, name: &Name) -> Result<&Session, StageError> {
        self.sessions.get(name).ok_or_else(|| StageError(format!("there is no session {name}")))
    }

    /// What a question needs that is asked in a task of its own: whoever asks may lose interest, but an
    /// answer that nobody waits for would be taken for that of the next question.
    fn aside(&self) -> (Arc<Mutex<Side>>, SessionNames) {
        let mut names = self.names().clone();
        names.prepared = self.home_guard.prepared.of_sessions();
        (self.side.clone(), names)
    }

    async fn end_sessions(&mut self) -> Result<(), StageError> {
        let dialect = self.server.dialect();
        let mut side = self.side.lock().await;
        let mut ended = Ok(());
        for session in self.sessions.values().filter(|session| session.is_busy()) {
            session.expect_cancel();
            // It may be gone by itself; a server that is gone has ended it too.
            if let Err(error) =
                side.connection.try_ask(&sessions::terminate(dialect, session.pid)).await
            {
                ended = Err(error);
            }
        }
        let mut closing = JoinSet::new();
        for (_, session) in std::mem::take(&mut self.sessions) {
            closing.spawn(session.close());
        }
        closing.join_all().await;
        ended
    }
}

impl Stage for SqlStage {
    /// Only statements are played here; anything else fails at once.
    fn begin(&self, session: &Name, deed: &CaseDeed) -> Reply {
        let refuse = |message: String| {
            let (reply, answer) = oneshot::channel();
            let (kind, code, detail) = (FailureKind::Other, String::new(), None);
            // The other end is in our hand.
            _ = reply.send(Err(Failure { kind, code, message, detail }));
            answer
        };
        self.last_waits().begin(session);
        match (self.session(session), deed) {
            (Ok(session), CaseDeed::Sql(sql)) => session.begin(sql),
            (Err(StageError(why)), _) => refuse(why),
            _ => refuse("only statements are played on this stage".to_owned()),
        }
    }

    async fn waits(&self) -> Result<Vec<Wait>, StageError> {
        let (side, names) = self.aside();
        let deadlock_timeout = self.deadlock_timeout();
        let asked = tokio::spawn(async move {
            let mut side = side.lock().await;
            let waits = side.waits(&names).await?;
            Ok((waits, Instant::now() + side.next_deadlock_check(deadlock_timeout)))
        });
        let (waits, checked_at) = answered(asked).await?;
        self.last_waits().remember(&waits);
        *self.checked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(checked_at);
        Ok(waits)
    }

    async fn locks(&self) -> Result<LockList, StageError> {
        let (side, names) = self.aside();
        let (server, home) = (self.server.clone(), self.home_guard.home.clone());
        answered(tokio::spawn(async move {
            let row_locks = match &home {
                Home::Innodb(_) => None,
                Home::Schema(_) => server.row_locks().await?,
                // There it is ours to make.
                Home::Database(_) => {
                    let mut side = side.lock().await;
                    let has = match side.has_row_locks {
                        Some(has) => has,
                        None => side.connection.try_ask(postgres::ROW_LOCKS).await?.is_ok(),
                    };
                    side.has_row_locks = Some(has);
                    has.then(|| home.of_tables().to_owned())
                }
            };
            side.lock().await.locks(&names, row_locks).await
        }))
        .await
    }

    async fn circle(&self, victim: &Name, failure: &Failure) -> Option<Vec<Link>> {
        let ((side, names), failure) = (self.aside(), failure.clone());
        let chosen = victim.clone();
        let told =
            tokio::spawn(
                async move { Ok(side.lock().await.circle(&names, &chosen, &failure).await) },
            );
        // Without the victim it is another deadlock: the server keeps only the last.
        let is_it = |circle: &Vec<Link>| circle.iter().any(|link| link.waiter == *victim);
        let told = answered(told).await.ok().flatten().filter(is_it);
        let mut told = told.or_else(|| self.last_waits().circle(victim))?;
        for link in &mut told {
            // PostgreSQL tells for whose transaction it waits; a look has seen for which row, and how.
            let is_less = |told: &LockedObject, seen: &LockedObject| {
                seen.kind == LockKind::Row
                    && (told.kind == LockKind::Transaction || same_place(told, seen))
            };
            if let Some(told) = &link.wants
                && let Some(seen) = self.last_waits().wants(&link.waiter, &link.holder)
                && self.server.dialect() == Dialect::Postgres
                && is_less(told, seen)
            {
                link.wants = Some(seen.clone());
            }
        }
        Some(told)
    }

    fn circle_limit(&self) -> Duration {
        CIRCLE_LIMIT + self.deadlock_timeout()
    }

    fn next_deadlock_check(&self) -> Duration {
        let checked_at = *self.checked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let left = checked_at.map(|at| at.saturating_duration_since(Instant::now()));
        left.unwrap_or_default()
    }

    async fn cancel(&self, session: &Name) -> Result<(), StageError> {
        let (dialect, session) = (self.server.dialect(), self.session(session)?);
        session.expect_cancel();
        let begun = Instant::now();
        while session.is_busy() {
            // One that cannot be cancelled loses its connection.
            let is_stubborn = begun.elapsed() > ANSWER_LIMIT;
            let sql = match is_stubborn {
                true => sessions::terminate(dialect, session.pid),
                false => sessions::cancel(dialect, session.pid),
            };
            // Refused, if the connection is gone: then it will soon know.
            let side = self.side.clone();
            let told = async move { side.lock().await.connection.try_ask(&sql).await.map(|_| ()) };
            answered(tokio::spawn(told)).await?;
            _ = tokio::time::timeout(CANCEL_AGAIN, session.idle()).await;
            if begun.elapsed() > 2 * ANSWER_LIMIT {
                return Err(StageError(format!(
                    "what connection {} does cannot be ended",
                    session.pid
                )));
            }
        }
        Ok(())
    }

    async fn close(mut self) -> Result<Vec<String>, StageError> {
        let ended = self.end_sessions().await;
        let dialect = self.server.dialect();
        let Self { server, side, teardown, home_guard, .. } = self;
        let mut guard = side.lock().await;
        let connection = &mut guard.connection;
        if server.dialect() == Dialect::Postgres {
            // A server that is gone says so below.
            _ = connection.try_ask(postgres::PATIENT).await;
        }
        let rolled_back = home_guard.prepared.roll_back(dialect, connection, &teardown).await;
        let torn_down =
            statements::run_all(dialect, connection, &teardown, "teardown", &home_guard.prepared)
                .await;
        let rest = home_guard.prepared.roll_back(dialect, connection, &[]).await;
        let removed = match &home_guard.home {
            home @ Home::Database(_) => server.remove(home).await,
            home => home.remove(connection).await,
        };
        drop(guard);
        if let Some(side) = Arc::into_inner(side) {
            side.into_inner().connection.close().await;
        }
        // What could not be removed now is tried once more, when it is dropped.
        if removed.is_ok() {
            home_guard.forget();
        }
        ended.and(torn_down).and(removed)?;
        Ok([rolled_back?, rest?].concat())
    }
}

/// What a task of ours has to say.
async fn answered<T>(task: JoinHandle<Result<T, StageError>>) -> Result<T, StageError> {
    task.await.map_err(|error| StageError(format!("a question to the server failed: {error}")))?
}
