//! A borrowed session: one of a pool, or that of a caller's transaction.

use super::SessionId;
use crate::connection::{ConnectionRef, PacketResult, StatementResult};
use crate::row::{CellRow, Row, TextRow};
use crate::{Dialect, UnreadableAnswer, Value, sessions, timed_out};
use std::time::Duration;

/// A borrowed session. Statements fail with the error of the server; most also after the answer limit.
#[derive(Debug)]
pub struct SessionRef<'a> {
    /// The connection.
    pub connection: ConnectionRef<'a>,
    /// The timeout of a statement that does not wait for locks.
    pub answer_limit: Duration,
    /// The identity on the server. The default value if it has not been read.
    pub id: SessionId,
    /// The server.
    pub dialect: Dialect,
    /// Whether the session belongs to a pool of ours. A caller's session may be of an account whose sessions are hidden
    /// from ours.
    pub is_ours: bool,
    /// The clean flag of the session. None for a caller's session.
    pub(crate) is_clean: Option<&'a mut bool>,
}

impl<'a> SessionRef<'a> {
    /// Returns the session of a caller's transaction. Its id on the server is not known yet.
    pub fn of_caller(
        connection: ConnectionRef<'a>,
        dialect: Dialect,
        answer_limit: Duration,
    ) -> Self {
        let id = SessionId::default();
        Self { connection, answer_limit, id, dialect, is_ours: false, is_clean: None }
    }

    /// Ends the transaction with this ROLLBACK and marks the session as clean.
    ///
    /// If that fails the session is not clean.
    pub async fn roll_back(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.run(sql).await?;
        self.mark_clean();
        Ok(())
    }

    /// Marks the session as clean: the statements that ran have ended their own transaction.
    pub fn mark_clean(&mut self) {
        if let Some(is_clean) = &mut self.is_clean {
            **is_clean = true;
        }
    }

    /// Runs a statement that may wait without limit, in one round trip. Without values `sql` may be several statements.
    ///
    /// # Cancel safety
    /// None: a statement whose future is dropped keeps running. The caller must cancel it on the server first.
    pub async fn run_unlimited(
        &mut self,
        sql: String,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        if values.is_empty() {
            return Ok(self.connection.packet(&sql).await?.rows);
        }
        self.connection.fetch_native(sql, values).await
    }

    /// Runs statements that do not wait for locks until one fails. Returns the number of completed ones, and the error.
    pub async fn run_until_failure(&mut self, sql: &str) -> (usize, Option<sqlx::Error>) {
        let mut result = PacketResult::default();
        let outcome =
            within(self.answer_limit, self.connection.packet_into(sql, &mut result)).await;
        (result.statements, outcome.err())
    }

    /// Runs statements without results that do not wait for locks.
    pub async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.affected(sql).await.map(|_| ())
    }

    /// Like [`run`](Self::run). Returns the number of affected rows.
    pub async fn affected(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        within(self.answer_limit, self.connection.run(sql)).await
    }

    /// Sends a ping to the server.
    pub async fn ping(&mut self) -> Result<(), sqlx::Error> {
        within(self.answer_limit, self.connection.ping()).await
    }

    /// Runs a query that does not wait for locks.
    pub async fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, sqlx::Error> {
        let packet = within(self.answer_limit, self.connection.packet(sql)).await?;
        packet.rows.into_iter().map(Row::into_text).collect()
    }

    /// Like [`rows`](Self::rows); NULL is None.
    pub async fn cells(&mut self, sql: &str) -> Result<Vec<CellRow>, sqlx::Error> {
        let results = self.results(sql).await?;
        Ok(results.into_iter().flat_map(|result| result.rows).collect())
    }

    /// Runs several queries in one round trip. Returns one result per statement.
    pub async fn results(&mut self, sql: &str) -> Result<Vec<StatementResult>, sqlx::Error> {
        within(self.answer_limit, self.connection.results(sql)).await
    }

    /// Reads the session's id from the server.
    pub async fn query_id(&mut self) -> Result<SessionId, sqlx::Error> {
        let rows = self.rows(&format!("SELECT {}", sessions::own_identity(self.dialect))).await?;
        let row = rows.first().ok_or(UnreadableAnswer("the identity of the session"))?;
        Ok(SessionId::parse(&row[0], &row[1])?)
    }
}

pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, answer).await.map_err(|_| timed_out(limit))?
}
