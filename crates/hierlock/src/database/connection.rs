//! A connection on which the toolbox runs its statements. On a server, a statement without an answer is detected.

use super::{Row, ServerSession, Value, failed};
#[cfg(feature = "_server")]
use hierlock_engine::sessions;
use hierlock_engine::{ConnectionRef, Driver, ExecuteResult, PacketResult, timed_out};
use std::time::Duration;

/// A connection borrowed for some statements, from a [`Database`](super::Database) or from a caller's transaction.
#[derive(Debug)]
pub struct DatabaseConnection<'a> {
    pub(crate) connection: ConnectionRef<'a>,
    /// The session on the server. None for a caller's transaction and for SQLite.
    pub(super) session: Option<&'a mut ServerSession>,
}

impl<'a> DatabaseConnection<'a> {
    pub(crate) fn of_caller(connection: ConnectionRef<'a>) -> Self {
        Self { connection, session: None }
    }

    pub(crate) fn driver(&self) -> Driver {
        self.connection.driver()
    }

    /// Runs statements without values, separated by semicolons, in one round trip.
    pub(crate) async fn run(&mut self, sql: &str) -> sqlx::Result<()> {
        await_answer(&self.session, self.connection.run(sql)).await.map(drop)
    }

    /// Runs statements without values that may return rows, separated by semicolons, in one round trip.
    pub(crate) async fn packet(&mut self, sql: &str) -> sqlx::Result<PacketResult> {
        await_answer(&self.session, self.connection.packet(sql)).await
    }

    /// Begins a transaction and runs statements in it, in one round trip, which also reads the id of a session of the
    /// program's pool.
    pub(crate) async fn begin_packet(&mut self, sql: &str) -> sqlx::Result<PacketResult> {
        let begin = self.driver().begin();
        let rest = if sql.is_empty() { String::new() } else { format!("; {sql}") };
        #[cfg(feature = "_server")]
        if let Some(session) = &mut self.session
            && session.id.is_none()
        {
            let pid = sessions::own_pid(session.server.pool.address.dialect());
            let mut packet =
                self.connection.packet(&format!("{begin}; SELECT {pid}{rest}")).await?;
            let pid = packet.rows.remove(0).int(0).map_err(|error| error.0)?;
            session.identify(self.connection.reborrow(), pid).await?;
            return Ok(packet);
        }
        self.packet(&format!("{begin}{rest}")).await
    }

    /// Runs a prepared statement. Each `?` outside of quotes and comments is a placeholder.
    pub(crate) async fn execute(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> sqlx::Result<ExecuteResult> {
        await_answer(&self.session, self.connection.execute(sql, values)).await
    }

    /// Runs a prepared statement that returns rows, as [`execute`](Self::execute) does.
    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> sqlx::Result<Vec<Row>> {
        await_answer(&self.session, self.connection.fetch(sql, values)).await
    }
}

/// Waits for the result of a statement as long as the server works on it.
async fn await_answer<T>(
    session: &Option<&mut ServerSession>,
    statement: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    match session {
        #[cfg(feature = "_server")]
        Some(ServerSession { server, id: Some(id) }) => {
            server.pool.await_statement(*id, statement).await
        }
        _ => statement.await,
    }
}

/// A busy database may need this long to answer.
const MIN_HEARTBEAT_LIMIT: Duration = Duration::from_secs(1);

/// Returns the time limit of one heartbeat, which leaves time for further attempts before the lease expires.
pub(crate) fn heartbeat_limit(lease: Duration) -> Duration {
    (lease / 6).max(MIN_HEARTBEAT_LIMIT)
}

/// Runs database work. Fails if it takes longer than `limit`: one connection may be dead while others still work.
pub(crate) async fn with_time_limit<T>(
    limit: Duration,
    doing: &'static str,
    work: impl Future<Output = crate::Result<T>>,
) -> crate::Result<T> {
    let result = tokio::time::timeout(limit, work).await;
    result.unwrap_or_else(|_| Err(failed(doing)(timed_out(limit))))
}
