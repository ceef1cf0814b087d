//! A connection on which statements run, whoever owns it: a session of ours, or a caller's transaction.

use super::Dialect;
use super::session::SessionId;
use super::statement::{Statement, Value};
use crate::database::{Wire, on_wire};
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Connection as _, Either, Row as _};
use std::time::Duration;

/// A connection, lent for some statements.
pub(super) struct Line<'a> {
    pub(super) wire: Wire<'a>,
    /// How long the server may take to answer what it need not wait for.
    pub(super) silence: Duration,
    /// Who the connection is to the server.
    pub(super) id: SessionId,
    pub(super) dialect: Dialect,
    /// Is it a session of ours? Another user's may be hidden from us.
    pub(super) is_ours: bool,
}

/// A row as text; what is NULL is empty.
pub(super) type TextRow = Vec<String>;

/// How a run of statements ended.
pub(super) type Ran = Result<(), sqlx::Error>;

/// How many rows there are, or as many as the only one says.
macro_rules! counted {
    ($rows:expr, $is_count:expr) => {
        match $rows.first() {
            Some(row) if $is_count => Ok(row.try_get::<i64, _>(0)? as usize),
            _ => Ok($rows.len()),
        }
    };
}

impl Line<'_> {
    /// Runs what locks, in one round trip; how many rows came back.
    ///
    /// # Cancel safety
    /// None: dropped before its end it leaves a statement running on the server. Only the task that
    /// owns the session may call it, and that task cancels it on the server first.
    pub(super) async fn lock(&mut self, statement: Statement) -> Result<usize, sqlx::Error> {
        let Statement { sql, values, is_count, .. } = statement;
        let sql = AssertSqlSafe(sql);
        if values.is_empty() {
            return on_wire!(&mut self.wire, c => Ok(sqlx::raw_sql(sql).fetch_all(c).await?.len()));
        }
        match &mut self.wire {
            Wire::Innodb(connection) => {
                let query = values.into_iter().fold(sqlx::query(sql), |query, value| match value {
                    Value::Number(number) => query.bind(number),
                    Value::Signed(number) => query.bind(number),
                    Value::Key(key) => query.bind(key),
                    Value::Null => query.bind(None::<u64>),
                    Value::Json(array) => query.bind(array),
                    // InnoDB's statements have no arrays.
                    Value::Numbers(_) | Value::Buckets(_) | Value::Flags(_) | Value::Keys(_) => {
                        query
                    }
                });
                let rows = query.fetch_all(&mut **connection).await?;
                counted!(rows, is_count)
            }
            Wire::Postgres(connection) => {
                let query = values.into_iter().fold(sqlx::query(sql), |query, value| match value {
                    Value::Number(number) => query.bind(number as i64),
                    Value::Signed(number) => query.bind(number),
                    Value::Key(key) => query.bind(key),
                    Value::Null => query.bind(None::<i64>),
                    Value::Numbers(numbers) => query.bind(numbers),
                    Value::Buckets(buckets) => query.bind(buckets),
                    Value::Json(array) => query.bind(array),
                    Value::Flags(flags) => query.bind(flags),
                    Value::Keys(keys) => query.bind(keys),
                });
                let rows = query.fetch_all(&mut **connection).await?;
                counted!(rows, is_count)
            }
            #[cfg(feature = "sqlite")]
            Wire::Sqlite(_) => Err(sqlx::Error::Protocol("SQLite has no row locks".to_owned())),
        }
    }

    /// The same for what waits for nobody.
    pub(super) async fn try_lock(&mut self, statement: Statement) -> Result<usize, sqlx::Error> {
        let silence = self.silence;
        let ran = tokio::time::timeout(silence, self.lock(statement)).await;
        ran.map_err(|_| timed_out(silence))?
    }

    /// Runs statements that wait for nobody until one fails: how many did not, and the failure.
    pub(super) async fn how_far(&mut self, sql: String) -> (usize, Option<sqlx::Error>) {
        let mut done = 0;
        let silence = self.silence;
        let run = async {
            on_wire!(&mut self.wire, c => {
                let mut results = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(c);
                while let Some(result) = results.try_next().await? {
                    if let Either::Left(_) = result {
                        done += 1;
                    }
                }
                Ok(())
            })
        };
        let ran = tokio::time::timeout(silence, run).await;
        let ran = ran.unwrap_or_else(|_| Err(timed_out(silence)));
        (done, ran.err())
    }

    /// Runs what returns nothing and waits for nobody.
    pub(super) async fn run(&mut self, sql: &str) -> Ran {
        self.affected(sql).await.map(|_| ())
    }

    /// The same; how many rows it changed.
    pub(super) async fn affected(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        let silence = self.silence;
        let sql = AssertSqlSafe(sql.to_owned());
        let run = async {
            on_wire!(&mut self.wire, c => {
                sqlx::raw_sql(sql).execute(c).await.map(|done| done.rows_affected())
            })
        };
        tokio::time::timeout(silence, run).await.map_err(|_| timed_out(silence))?
    }

    /// Is the server still there?
    pub(super) async fn ping(&mut self) -> Ran {
        let silence = self.silence;
        let ping = async { on_wire!(&mut self.wire, c => c.ping().await) };
        tokio::time::timeout(silence, ping).await.map_err(|_| timed_out(silence))?
    }

    /// Asks what waits for nobody.
    pub(super) async fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, sqlx::Error> {
        let silence = self.silence;
        let sql = AssertSqlSafe(sql.to_owned());
        let ask = async {
            on_wire!(&mut self.wire, c => {
                let rows = sqlx::raw_sql(sql).fetch_all(c).await?;
                rows.iter()
                    .map(|row| {
                        // Sent without binding, everything comes back as text.
                        (0..row.len())
                            .map(|i| row.try_get_unchecked::<Option<String>, _>(i))
                            .map(|text| text.map(Option::unwrap_or_default))
                            .collect()
                    })
                    .collect()
            })
        };
        tokio::time::timeout(silence, ask).await.map_err(|_| timed_out(silence))?
    }
}

pub(crate) fn timed_out(silence: Duration) -> sqlx::Error {
    let message = format!("no answer within {} ms", silence.as_millis());
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, message))
}
