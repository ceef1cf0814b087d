//! A connection of the lab to a server: SQL text in, text cells out.

use super::{LabError, LabResult, settings};
use crate::observation::Answer;
use hierlock_engine::{
    CellRow, Connection, ConnectionRef, Dialect, ListeningConnection, ServerAddress, SessionRef,
    StatementResult, StatementWords, error_message, number_cell, sessions,
};
use std::fmt;
use std::future::Future;
use std::time::Duration;

/// The limit for answers to queries that wait for no lock.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A connection with the lab's settings.
pub(super) struct LabConnection {
    transport: Transport,
    pub(super) dialect: Dialect,
    /// The id of the session on the server.
    pub(super) pid: i64,
    /// The address, for messages.
    server: String,
    /// A result was not awaited: the next result on the connection would belong to an earlier query.
    is_broken: bool,
}

enum Transport {
    Plain(Connection),
    /// A connection that may receive notifications.
    Listening(ListeningConnection),
}

impl Transport {
    async fn as_ref(&mut self) -> Result<ConnectionRef<'_>, sqlx::Error> {
        match self {
            Self::Plain(connection) => Ok(connection.as_ref()),
            Self::Listening(connection) => {
                // Notifications are not part of a transcript.
                connection.discard_notifications();
                connection.as_ref().await
            }
        }
    }
}

impl LabConnection {
    pub(super) async fn open(address: &ServerAddress) -> LabResult<Self> {
        Self::set_up(address, async { Ok(Transport::Plain(address.connect().await?)) }).await
    }

    /// Opens a connection for a session of a scenario. On PostgreSQL it may run LISTEN.
    pub(super) async fn open_session(address: &ServerAddress) -> LabResult<Self> {
        if address.dialect() != Dialect::Postgres {
            return Self::open(address).await;
        }
        let connect = address.connect_listening(ANSWER_LIMIT / 2);
        Self::set_up(address, async { Ok(Transport::Listening(connect.await?)) }).await
    }

    async fn set_up(
        address: &ServerAddress,
        connect: impl Future<Output = Result<Transport, sqlx::Error>>,
    ) -> LabResult<Self> {
        let failed =
            |error: &dyn fmt::Display| LabError(format!("{address} cannot be reached: {error}"));
        let transport = tokio::time::timeout(ANSWER_LIMIT, connect).await;
        let transport = transport
            .map_err(|_| failed(&format_args!("no answer within {ANSWER_LIMIT:?}")))?
            .map_err(|error| failed(&error_message(&error)))?;
        let (dialect, server) = (address.dialect(), address.to_string());
        let mut connection = Self { transport, dialect, pid: 0, server, is_broken: false };
        let (settings, pid) = (settings::initial(dialect), sessions::own_pid(dialect));
        let rows = connection.query(&format!("{settings}; SELECT {pid}")).await?;
        let pid = rows.last().and_then(|row| number_cell(row, 0));
        connection.pid = pid.ok_or_else(|| {
            LabError(format!("{address} does not report the process id of a connection"))
        })?;
        Ok(connection)
    }

    /// Runs a statement, however long it takes. `words` are the words of the statement that is executed: for EXECUTE,
    /// the prepared one.
    ///
    /// # Cancel safety
    /// None: if the future is dropped, the statement keeps running on the server.
    pub(super) async fn run(
        &mut self,
        sql: &str,
        words: &StatementWords,
    ) -> Result<Answer, sqlx::Error> {
        let results = self.results(sql).await?;
        let changed = results.iter().map(|result| result.changed).sum();
        let rows: Vec<CellRow> = results.into_iter().flat_map(|result| result.rows).collect();
        if !rows.is_empty() || words.returns_rows() {
            // PostgreSQL counts rows that are only read as changed.
            let changed = if words.is_returning() { rows.len() as u64 } else { 0 };
            Ok(Answer { rows: Some(rows), changed, is_matched: false })
        } else {
            let counts_matches = self.dialect.is_innodb() && !words.only_inserts_or_deletes();
            Ok(Answer { rows: None, changed, is_matched: counts_matches && changed > 0 })
        }
    }

    async fn results(&mut self, sql: &str) -> Result<Vec<StatementResult>, sqlx::Error> {
        self.transport.as_ref().await?.results(sql).await
    }

    /// Runs a query that waits for no lock.
    pub(super) async fn query(&mut self, sql: &str) -> LabResult<Vec<CellRow>> {
        self.try_query(sql).await?.map_err(|error| query_error(&self.server, &error))
    }

    /// Like [`query`](Self::query), but returns an error of the server; only a lost connection is a [`LabError`].
    pub(super) async fn try_query(
        &mut self,
        sql: &str,
    ) -> LabResult<Result<Vec<CellRow>, sqlx::Error>> {
        let answer = self.results_within(ANSWER_LIMIT, sql).await?;
        Ok(answer.map(|results| results.into_iter().flat_map(|result| result.rows).collect()))
    }

    pub(super) async fn results_within(
        &mut self,
        limit: Duration,
        sql: &str,
    ) -> LabResult<Result<Vec<StatementResult>, sqlx::Error>> {
        self.begin()?;
        let Ok(answer) = tokio::time::timeout(limit, self.results(sql)).await else {
            return Err(LabError(format!("{} has not answered within {limit:?}", self.server)));
        };
        match answer {
            Err(error) if !matches!(error, sqlx::Error::Database(_)) => {
                Err(query_error(&self.server, &error))
            }
            answer => {
                self.is_broken = false;
                Ok(answer)
            }
        }
    }

    /// Lends the connection, which counts as broken until [`take_answer`](Self::take_answer) gets the result.
    pub(super) async fn lend(&mut self) -> LabResult<SessionRef<'_>> {
        self.begin()?;
        let connection = self.transport.as_ref().await;
        let connection = connection.map_err(|error| query_error(&self.server, &error))?;
        Ok(SessionRef::of_caller(connection, self.dialect, ANSWER_LIMIT))
    }

    pub(super) fn take_answer<T>(&mut self, answer: Result<T, sqlx::Error>) -> LabResult<T> {
        self.is_broken =
            answer.as_ref().is_err_and(|error| !matches!(error, sqlx::Error::Database(_)));
        answer.map_err(|error| query_error(&self.server, &error))
    }

    /// Marks the connection as broken until there is an answer.
    fn begin(&mut self) -> LabResult<()> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Err(LabError(format!("{} has not answered an earlier query", self.server)));
        }
        Ok(())
    }

    pub(super) async fn close(self) {
        let close = async {
            match self.transport {
                // If the server does not take the message, it notices the closed socket.
                Transport::Plain(connection) => _ = connection.close().await,
                Transport::Listening(connection) => connection.close().await,
            }
        };
        _ = tokio::time::timeout(ANSWER_LIMIT, close).await;
    }
}

fn query_error(server: &str, error: &sqlx::Error) -> LabError {
    let why = error_message(error);
    LabError(match error {
        sqlx::Error::Database(_) => format!("{server} rejected a query: {why}"),
        _ => format!("the connection to {server} is lost: {why}"),
    })
}
