//! One connection of the lab to a server: SQL text in, text cells out.

use super::{LabError, LabResult, settings};
use crate::observation::Answer;
use hierlock_engine::{
    CellRow, Connection, Dialect, ListeningConnection, ServerAddress, SessionRef, StatementResult,
    StatementWords, error_message, number_cell, sessions,
};
use std::fmt;
use std::future::Future;
use std::time::Duration;

/// How long a server may take to answer what it need not wait for.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A connection with the settings of the lab.
pub(super) struct LabConnection {
    transport: Transport,
    dialect: Dialect,
    /// Where it leads to, for messages.
    server: String,
    /// A result was not waited for: what comes next belongs to an earlier query.
    is_broken: bool,
}

enum Transport {
    Plain(Connection),
    /// One that may be sent notifications.
    Listening(ListeningConnection),
}

impl LabConnection {
    pub(super) async fn open(address: &ServerAddress) -> LabResult<Self> {
        Self::set_up(address, async { Ok(Transport::Plain(address.connect().await?)) }).await
    }

    /// Opens a connection for a session of a scenario, which may do anything.
    pub(super) async fn open_session(address: &ServerAddress) -> LabResult<Self> {
        if address.dialect() != Dialect::Postgres {
            return Self::open(address).await;
        }
        let connect = async {
            let listening = address.connect_listening(ANSWER_LIMIT / 2).await?;
            Ok(Transport::Listening(listening))
        };
        Self::set_up(address, connect).await
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
        let mut connection = Self { transport, dialect, server, is_broken: false };
        connection.query(settings::initial(dialect)).await?;
        Ok(connection)
    }

    /// Runs a statement, however long it takes. `words` are of the text that it runs, which is another if it was
    /// prepared before.
    ///
    /// # Cancel safety
    /// None: dropped before its end it leaves the statement running on the server.
    pub(super) async fn run(
        &mut self,
        sql: &str,
        words: &StatementWords,
    ) -> Result<Answer, sqlx::Error> {
        let results = self.results(sql).await?;
        let changed = results.iter().map(|result| result.changed).sum();
        let rows: Vec<CellRow> = results.into_iter().flat_map(|result| result.rows).collect();
        if !rows.is_empty() || words.gives_rows() {
            // What was only read is not changed, though PostgreSQL counts it.
            let changed = if words.is_returning() { rows.len() as u64 } else { 0 };
            Ok(Answer { rows: Some(rows), changed, is_matched: false })
        } else {
            let counts_matches = self.dialect.is_innodb() && !words.only_inserts_or_deletes();
            Ok(Answer { rows: None, changed, is_matched: counts_matches && changed > 0 })
        }
    }

    async fn results(&mut self, sql: &str) -> Result<Vec<StatementResult>, sqlx::Error> {
        match &mut self.transport {
            Transport::Plain(connection) => connection.as_ref().results(sql).await,
            Transport::Listening(connection) => {
                let results = connection.as_ref().await?.results(sql).await?;
                // What a session is notified of is not part of a transcript.
                connection.discard_notifications();
                Ok(results)
            }
        }
    }

    pub(super) async fn pid(&mut self) -> LabResult<i64> {
        let rows = self.query(&format!("SELECT {}", sessions::own_pid(self.dialect))).await?;
        let pid = rows.first().and_then(|row| number_cell(row, 0));
        pid.ok_or_else(|| LabError(format!("{} does not number its connections", self.server)))
    }

    /// Runs a query that waits for nobody.
    pub(super) async fn query(&mut self, sql: &str) -> LabResult<Vec<CellRow>> {
        self.try_query(sql).await?.map_err(|error| lost(&self.server, &error))
    }

    /// The same, where the server may refuse it: only a server that is gone is a [`LabError`].
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
                Err(lost(&self.server, &error))
            }
            answer => {
                self.is_broken = false;
                Ok(answer)
            }
        }
    }

    /// Lends the connection; it counts as broken until the result is [`answered`](Self::answered).
    pub(super) async fn lend(&mut self) -> LabResult<SessionRef<'_>> {
        self.begin()?;
        let (dialect, server) = (self.dialect, &self.server);
        let connection = match &mut self.transport {
            Transport::Plain(connection) => connection.as_ref(),
            Transport::Listening(connection) => {
                connection.as_ref().await.map_err(|error| lost(server, &error))?
            }
        };
        Ok(SessionRef::of_caller(connection, dialect, ANSWER_LIMIT))
    }

    /// Takes the connection back.
    pub(super) fn answered<T>(&mut self, answer: Result<T, sqlx::Error>) -> LabResult<T> {
        self.is_broken = answer.as_ref().is_err_and(|it| !matches!(it, sqlx::Error::Database(_)));
        answer.map_err(|error| lost(&self.server, &error))
    }

    /// Marks the connection as broken until there is an answer.
    fn begin(&mut self) -> LabResult<()> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Err(LabError(format!("{} has left a question unanswered", self.server)));
        }
        Ok(())
    }

    pub(super) async fn close(self) {
        let close = async {
            match self.transport {
                // A server that does not listen to a goodbye will find out.
                Transport::Plain(connection) => _ = connection.close().await,
                Transport::Listening(connection) => connection.close().await,
            }
        };
        _ = tokio::time::timeout(ANSWER_LIMIT, close).await;
    }
}

fn lost(server: &str, error: &sqlx::Error) -> LabError {
    let why = error_message(error);
    LabError(match error {
        sqlx::Error::Database(_) => format!("{server} refuses to be asked: {why}"),
        _ => format!("the connection to {server} is lost: {why}"),
    })
}
