//! A session on which statements run, whoever owns it: one of ours, or that of a caller's transaction.

use super::SessionId;
use crate::connection::{ConnectionRef, PacketResult, StatementResult};
use crate::row::{CellRow, Row, TextRow};
use crate::{Dialect, UnreadableAnswer, Value, sessions, timed_out};
use std::time::Duration;

/// A session, lent for some statements. They fail with what the server says; most also if it is silent for too long.
#[derive(Debug)]
pub struct SessionRef<'a> {
    /// Its connection.
    pub connection: ConnectionRef<'a>,
    /// How long the server may take to answer what it need not wait for.
    pub answer_limit: Duration,
    /// Who it is to the server; the default if that has not been asked.
    pub id: SessionId,
    /// What the server is.
    pub dialect: Dialect,
    /// Whether it is a session of ours. Another user's may be hidden from us.
    pub is_ours: bool,
    /// Whether the session is known to hold nothing. None if it is a caller's.
    pub(crate) is_clean: Option<&'a mut bool>,
}

impl<'a> SessionRef<'a> {
    /// Returns the session of a caller's transaction. Which session that is on the server is not known yet.
    pub fn of_caller(
        connection: ConnectionRef<'a>,
        dialect: Dialect,
        answer_limit: Duration,
    ) -> Self {
        let id = SessionId::default();
        Self { connection, answer_limit, id, dialect, is_ours: false, is_clean: None }
    }

    /// Ends the transaction of the session by this ROLLBACK, after which it holds nothing.
    ///
    /// If that fails it is not known to be clean.
    pub async fn roll_back(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.run(sql).await?;
        self.mark_clean();
        Ok(())
    }

    /// Says that the session is in no transaction and holds nothing: what was run has ended its own.
    pub fn mark_clean(&mut self) {
        if let Some(is_clean) = &mut self.is_clean {
            **is_clean = true;
        }
    }

    /// Runs what may wait for ever, in one round trip. Without values these may be several statements.
    ///
    /// # Cancel safety
    /// None: dropped before its end it leaves a statement running, which its caller must cancel on the server first.
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

    /// The same for what waits for nobody.
    pub async fn run_limited(
        &mut self,
        sql: String,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        within(self.answer_limit, self.run_unlimited(sql, values)).await
    }

    /// Runs statements that wait for nobody until one fails. Returns how many did not, and the failure.
    pub async fn run_until_failure(&mut self, sql: &str) -> (usize, Option<sqlx::Error>) {
        let mut result = PacketResult::default();
        let ran = within(self.answer_limit, self.connection.packet_into(sql, &mut result)).await;
        (result.statements, ran.err())
    }

    /// Runs statements that return nothing and wait for nobody.
    pub async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.affected(sql).await.map(|_| ())
    }

    /// The same; returns how many rows they changed.
    pub async fn affected(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        within(self.answer_limit, self.connection.run(sql)).await
    }

    /// Asks the server whether it is still there.
    pub async fn ping(&mut self) -> Result<(), sqlx::Error> {
        within(self.answer_limit, self.connection.ping()).await
    }

    /// Asks what waits for nobody.
    pub async fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, sqlx::Error> {
        let packet = within(self.answer_limit, self.connection.packet(sql)).await?;
        packet.rows.into_iter().map(Row::into_text).collect()
    }

    /// The same, with NULL told from an empty text.
    pub async fn cells(&mut self, sql: &str) -> Result<Vec<CellRow>, sqlx::Error> {
        let results = self.results(sql).await?;
        Ok(results.into_iter().flat_map(|result| result.rows).collect())
    }

    /// The same for several statements in one round trip, with the rows of each by themselves.
    pub async fn results(&mut self, sql: &str) -> Result<Vec<StatementResult>, sqlx::Error> {
        within(self.answer_limit, self.connection.results(sql)).await
    }

    /// Asks the server who the session is.
    pub async fn ask_id(&mut self) -> Result<SessionId, sqlx::Error> {
        let rows = self.rows(&format!("SELECT {}", sessions::own_identity(self.dialect))).await?;
        let row = rows.first().ok_or(UnreadableAnswer("who the session is"))?;
        Ok(SessionId::read(&row[0], &row[1])?)
    }
}

pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, answer).await.map_err(|_| timed_out(limit))?
}
