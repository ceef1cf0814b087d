//! A connection on which the toolbox runs its statements. On a server it is noticed when an answer does not come.

#[cfg(feature = "_server")]
use super::pool::ProgramSession;
use super::{Row, Value, failed};
use hierlock_engine::{ConnectionRef, Driver, ExecuteResult, PacketResult, timed_out};
#[cfg(feature = "_server")]
use hierlock_engine::{Pool, SessionId, SessionRef, sessions};
use std::time::Duration;

/// A connection, lent for some statements: that of a [`Database`](super::Database), or of a caller's transaction.
#[derive(Debug)]
pub struct DatabaseConnection<'a> {
    pub(super) connection: ConnectionRef<'a>,
    /// Neither a caller's transaction nor SQLite has one.
    pub(super) session: Option<ServerSession<'a>>,
}

/// Who a connection is to its server.
#[cfg(feature = "_server")]
#[derive(Debug)]
pub(super) enum ServerSession<'a> {
    Own { pool: &'a Pool, id: SessionId },
    Program(&'a mut ProgramSession),
}

#[cfg(not(feature = "_server"))]
pub(super) type ServerSession<'a> = std::marker::PhantomData<&'a ()>;

impl<'a> DatabaseConnection<'a> {
    pub(crate) fn of_caller(connection: ConnectionRef<'a>) -> Self {
        Self { connection, session: None }
    }

    #[cfg(feature = "_server")]
    pub(crate) fn into_ref(self) -> ConnectionRef<'a> {
        self.connection
    }

    pub(crate) fn driver(&self) -> Driver {
        self.connection.driver()
    }

    /// Runs statements without values, separated by semicolons, in one round trip.
    pub(crate) async fn run(&mut self, sql: &str) -> sqlx::Result<()> {
        answered_by(&self.session, self.connection.run(sql)).await.map(drop)
    }

    /// The same for statements that also return rows.
    pub(crate) async fn packet(&mut self, sql: &str) -> sqlx::Result<PacketResult> {
        answered_by(&self.session, self.connection.packet(sql)).await
    }

    /// Begins a transaction and runs statements in it, in one round trip, in which a program's session tells who it is.
    pub(crate) async fn begin_packet(&mut self, sql: &str) -> sqlx::Result<PacketResult> {
        let begin = self.driver().begin();
        let rest = if sql.is_empty() { String::new() } else { format!("; {sql}") };
        #[cfg(feature = "_server")]
        if let Some(ServerSession::Program(ProgramSession { server, id: None })) = &self.session {
            let pid = sessions::own_pid(server.pool.address.dialect());
            let mut packet = self.packet(&format!("{begin}; SELECT {pid}{rest}")).await?;
            let pid = packet.rows.remove(0).int(0).map_err(|error| error.0)?;
            self.learn_id(pid).await?;
            return Ok(packet);
        }
        self.packet(&format!("{begin}{rest}")).await
    }

    /// Notes who a connection of a program's pool is to its server. It is asked only if it was never seen before.
    #[cfg(feature = "_server")]
    async fn learn_id(&mut self, pid: i64) -> sqlx::Result<()> {
        let Some(ServerSession::Program(ProgramSession { server, id })) = &mut self.session else {
            return Ok(());
        };
        *id = server.sessions.lock().get(&pid).copied();
        if id.is_none() {
            let (dialect, limit) =
                (server.pool.address.dialect(), server.pool.settings.answer_limit);
            let mut session = SessionRef::of_caller(self.connection.reborrow(), dialect, limit);
            let asked = session.ask_id().await?;
            server.sessions.lock().insert(asked.pid, asked);
            *id = Some(asked);
        }
        Ok(())
    }

    /// Runs a prepared statement. Each `?` outside of quotes and comments is a place for a value.
    pub(crate) async fn execute(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> sqlx::Result<ExecuteResult> {
        answered_by(&self.session, self.connection.execute(sql, values)).await
    }

    /// The same for one that returns rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> sqlx::Result<Vec<Row>> {
        answered_by(&self.session, self.connection.fetch(sql, values)).await
    }
}

/// Waits for an answer as long as the server works on it.
async fn answered_by<T>(
    session: &Option<ServerSession<'_>>,
    statement: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    match session {
        #[cfg(feature = "_server")]
        Some(ServerSession::Own { pool, id }) => {
            pool.answered(pool.address.dialect(), *id, statement).await
        }
        #[cfg(feature = "_server")]
        Some(ServerSession::Program(ProgramSession { server, id: Some(id) })) => {
            server.pool.answered(server.pool.address.dialect(), *id, statement).await
        }
        _ => statement.await,
    }
}

/// A database that takes so long is busy, not silent.
const MIN_HEARTBEAT_ANSWER: Duration = Duration::from_secs(1);

/// Returns how long a heartbeat may take, so that there is time for others before a lease is over.
pub(crate) fn heartbeat_limit(lease: Duration) -> Duration {
    (lease / 6).max(MIN_HEARTBEAT_ANSWER)
}

/// Fails if there is no answer in time: the network may have forgotten one connection, and not the others.
pub(crate) async fn answered<T>(
    limit: Duration,
    doing: &'static str,
    question: impl Future<Output = crate::Result<T>>,
) -> crate::Result<T> {
    let answer = tokio::time::timeout(limit, question).await;
    answer.unwrap_or_else(|_| Err(failed(doing)(timed_out(limit))))
}
