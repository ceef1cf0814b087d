//! A connection on which the toolbox runs its statements. On a server it is noticed when an answer does not come.

#[cfg(feature = "_server")]
use super::program_server::ProgramServer;
use super::{Row, Value};
use hierlock_engine::{ConnectionRef, Driver, ExecuteResult, PacketResult};
#[cfg(feature = "_server")]
use hierlock_engine::{Dialect, Pool, SessionId, SessionRef, sessions};
use std::marker::PhantomData;

/// A connection, lent for some statements: that of a [`Database`](super::Database), or of a caller's transaction.
#[derive(Debug)]
pub struct DatabaseConnection<'a> {
    connection: ConnectionRef<'a>,
    server: Option<ServerSession<'a>>,
}

/// Who a connection is to its server. Neither a caller's transaction nor SQLite has one.
#[derive(Debug)]
pub(super) enum ServerSession<'a> {
    /// A session of a pool of ours.
    #[cfg(feature = "_server")]
    Own { pool: &'a Pool, dialect: Dialect, id: SessionId },
    /// A connection of a program's pool; its number is learned when a transaction begins.
    #[cfg(feature = "_server")]
    Program { server: &'a ProgramServer, id: &'a mut Option<SessionId> },
    /// There is none without the driver of a server.
    #[expect(dead_code, reason = "it gives the lifetime a use where there are no servers")]
    NoServers(PhantomData<&'a ()>),
}

impl<'a> DatabaseConnection<'a> {
    pub(super) fn new(connection: ConnectionRef<'a>, server: Option<ServerSession<'a>>) -> Self {
        Self { connection, server }
    }

    /// That of a caller's transaction.
    pub(crate) fn of_caller(connection: ConnectionRef<'a>) -> Self {
        Self { connection, server: None }
    }

    #[cfg(feature = "_server")]
    pub(crate) fn into_ref(self) -> ConnectionRef<'a> {
        self.connection
    }

    pub(crate) fn driver(&self) -> Driver {
        self.connection.driver()
    }

    /// Runs statements without values, separated by semicolons, in one round trip.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        answered(&self.server, self.connection.run(sql)).await.map(|_| ())
    }

    /// The same for statements that also return rows.
    pub(crate) async fn packet(&mut self, sql: &str) -> Result<PacketResult, sqlx::Error> {
        answered(&self.server, self.connection.packet(sql)).await
    }

    /// Begins a transaction of our own, and runs these statements in it, in one round trip.
    pub(crate) async fn begin_packet(&mut self, sql: &str) -> Result<PacketResult, sqlx::Error> {
        let begin = self.driver().begin();
        let statements = |parts: &[&str]| {
            let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
            parts.join("; ")
        };
        #[cfg(feature = "_server")]
        if let Some(ServerSession::Program { server, id: None }) = &self.server {
            let server = *server;
            return self
                .begin_and_learn(server, |ask_pid| statements(&[begin, ask_pid, sql]))
                .await;
        }
        self.packet(&statements(&[begin, sql])).await
    }

    /// The same on a connection of a program's pool, which says who it is on the way.
    #[cfg(feature = "_server")]
    async fn begin_and_learn(
        &mut self,
        server: &ProgramServer,
        statements: impl FnOnce(&str) -> String,
    ) -> Result<PacketResult, sqlx::Error> {
        let ask_pid = format!("SELECT {}", sessions::own_pid(server.dialect));
        let mut packet = self.packet(&statements(&ask_pid)).await?;
        let pid = packet.rows.remove(0).int(0).map_err(|error| error.0)?;
        let known = match server.session(pid) {
            Some(known) => known,
            None => self.ask_id(server).await?,
        };
        if let Some(ServerSession::Program { id, .. }) = &mut self.server {
            **id = Some(known);
        }
        Ok(packet)
    }

    /// Asks a connection of the program's who it is to its server.
    #[cfg(feature = "_server")]
    async fn ask_id(&mut self, server: &ProgramServer) -> Result<SessionId, sqlx::Error> {
        let limit = server.pool.settings.answer_limit;
        let mut session = SessionRef::of_caller(self.connection.reborrow(), server.dialect, limit);
        let id = session.ask_id().await?;
        server.learn(id);
        Ok(id)
    }

    /// Runs a prepared statement. Each `?` outside of quotes and comments is a place for a value.
    pub(crate) async fn execute(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<ExecuteResult, sqlx::Error> {
        answered(&self.server, self.connection.execute(sql, values)).await
    }

    /// The same for one that returns rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        answered(&self.server, self.connection.fetch(sql, values)).await
    }
}

/// Waits for an answer as long as the server works on it.
async fn answered<T>(
    server: &Option<ServerSession<'_>>,
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match server {
        #[cfg(feature = "_server")]
        Some(ServerSession::Own { pool, dialect, id }) => {
            pool.answered(*dialect, *id, statement).await
        }
        #[cfg(feature = "_server")]
        Some(ServerSession::Program { server, id: Some(id) }) => {
            server.pool.answered(server.dialect, *id, statement).await
        }
        _ => statement.await,
    }
}
