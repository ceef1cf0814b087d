//! A connection of one of the drivers, lent for some statements. The only place that runs statements on drivers.

use crate::Driver;
use crate::row::{CellRow, Row};
use crate::value::{Value, query};
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Connection as _, Either, SqlSafeStr as _};

/// A connection, whoever owns it.
pub enum ConnectionRef<'a> {
    /// MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(&'a mut sqlx::MySqlConnection),
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(&'a mut sqlx::PgConnection),
    /// SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(&'a mut sqlx::SqliteConnection),
}

impl std::fmt::Debug for ConnectionRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConnectionRef").field(&self.driver()).finish()
    }
}

/// Runs the same on whichever connection it is.
macro_rules! on_connection {
    ($connection:expr, $c:ident => $run:expr) => {
        match $connection {
            #[cfg(feature = "mysql")]
            ConnectionRef::Mysql($c) => {
                let $c = &mut **$c;
                $run
            }
            #[cfg(feature = "postgres")]
            ConnectionRef::Postgres($c) => {
                let $c = &mut **$c;
                $run
            }
            #[cfg(feature = "sqlite")]
            ConnectionRef::Sqlite($c) => {
                let $c = &mut **$c;
                $run
            }
        }
    };
}

/// What a statement has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecuteResult {
    /// How many rows; on MySQL and MariaDB also those that it found as they were to be.
    pub rows: u64,
    /// The number that the first inserted row was given, on engines that tell without being asked.
    pub last_insert_id: i64,
}

#[cfg(feature = "mysql")]
impl From<sqlx::mysql::MySqlQueryResult> for ExecuteResult {
    fn from(result: sqlx::mysql::MySqlQueryResult) -> Self {
        let last_insert_id = result.last_insert_id() as i64;
        Self { rows: result.rows_affected(), last_insert_id }
    }
}

#[cfg(feature = "postgres")]
impl From<sqlx::postgres::PgQueryResult> for ExecuteResult {
    fn from(result: sqlx::postgres::PgQueryResult) -> Self {
        Self { rows: result.rows_affected(), last_insert_id: 0 }
    }
}

#[cfg(feature = "sqlite")]
impl From<sqlx::sqlite::SqliteQueryResult> for ExecuteResult {
    fn from(result: sqlx::sqlite::SqliteQueryResult) -> Self {
        Self { rows: result.rows_affected(), last_insert_id: result.last_insert_rowid() }
    }
}

/// What the statements of a packet returned, all together.
#[derive(Debug, Default)]
pub struct PacketResult {
    /// The rows of all of them, in order.
    pub rows: Vec<Row>,
    /// How many rows were changed. PostgreSQL counts those that were read too, SQLite those of the statement before.
    pub changed: u64,
    /// How many statements were run to their end.
    pub statements: usize,
}

/// What one statement of a packet returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementResult {
    /// Its rows.
    pub rows: Vec<CellRow>,
    /// How many rows it changed, as the driver counts; see [`PacketResult::changed`].
    pub changed: u64,
}

/// Everything here runs on the caller's task and has no limit of time.
///
/// # Cancel safety
/// None: the statement goes on on the server, and its answer would be taken for that of the next.
impl ConnectionRef<'_> {
    /// Returns which driver it is of.
    pub fn driver(&self) -> Driver {
        match self {
            #[cfg(feature = "mysql")]
            ConnectionRef::Mysql(_) => Driver::Mysql,
            #[cfg(feature = "postgres")]
            ConnectionRef::Postgres(_) => Driver::Postgres,
            #[cfg(feature = "sqlite")]
            ConnectionRef::Sqlite(_) => Driver::Sqlite,
        }
    }

    /// Lends it on.
    pub fn reborrow(&mut self) -> ConnectionRef<'_> {
        match self {
            #[cfg(feature = "mysql")]
            ConnectionRef::Mysql(c) => ConnectionRef::Mysql(c),
            #[cfg(feature = "postgres")]
            ConnectionRef::Postgres(c) => ConnectionRef::Postgres(c),
            #[cfg(feature = "sqlite")]
            ConnectionRef::Sqlite(c) => ConnectionRef::Sqlite(c),
        }
    }

    /// Asks the server whether it is still there.
    pub async fn ping(&mut self) -> Result<(), sqlx::Error> {
        on_connection!(self, c => c.ping().await)
    }

    /// Runs statements without values, separated by semicolons, in one round trip.
    pub async fn run(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_connection!(self, c => sqlx::raw_sql(sql).execute(c).await.map(|done| done.rows_affected()))
    }

    /// The same for statements that also return rows. What came before an error is in `result`.
    pub async fn packet_into(
        &mut self,
        sql: &str,
        result: &mut PacketResult,
    ) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_connection!(self, c => {
            let mut answers = sqlx::raw_sql(sql).fetch_many(c);
            while let Some(answer) = answers.try_next().await? {
                match answer {
                    Either::Left(done) => {
                        result.changed += done.rows_affected();
                        result.statements += 1;
                    }
                    Either::Right(row) => result.rows.push(row.into()),
                }
            }
            Ok(())
        })
    }

    /// The same, all or an error.
    pub async fn packet(&mut self, sql: &str) -> Result<PacketResult, sqlx::Error> {
        let mut result = PacketResult::default();
        self.packet_into(sql, &mut result).await?;
        Ok(result)
    }

    /// The same, with the results of the statements kept apart, as text.
    pub async fn results(&mut self, sql: &str) -> Result<Vec<StatementResult>, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_connection!(self, c => {
            let (mut results, mut rows) = (Vec::new(), Vec::new());
            let mut answers = sqlx::raw_sql(sql).fetch_many(c);
            while let Some(answer) = answers.try_next().await? {
                match answer {
                    Either::Left(done) => {
                        let (changed, rows) = (done.rows_affected(), std::mem::take(&mut rows));
                        results.push(StatementResult { rows, changed });
                    }
                    Either::Right(row) => rows.push(Row::from(row).into_cells()?),
                }
            }
            Ok(results)
        })
    }

    /// Runs a prepared statement. Each `?` outside of quotes and comments is a place for a value, on every engine.
    pub async fn execute(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<ExecuteResult, sqlx::Error> {
        let sql = AssertSqlSafe(self.driver().parameters(sql)).into_sql_str();
        on_connection!(self, c => Ok(query(sql, values)?.execute(c).await?.into()))
    }

    /// The same for one that returns rows.
    pub async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        self.fetch_native(self.driver().parameters(sql), values).await
    }

    /// The same, with parameters as the engine itself writes them: `?`, or `$1`.
    pub async fn fetch_native(
        &mut self,
        sql: String,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let sql = AssertSqlSafe(sql).into_sql_str();
        on_connection!(self, c => {
            let rows = query(sql, values)?.fetch_all(c).await?;
            Ok(rows.into_iter().map(Row::from).collect())
        })
    }
}
