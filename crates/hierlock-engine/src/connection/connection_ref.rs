//! A borrowed connection of one of the drivers. All statements are run here.

use crate::Driver;
use crate::row::{CellRow, Row};
use crate::value::{Value, query};
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Connection as _, Either, SqlSafeStr as _};

/// A borrowed connection.
#[derive(Debug)]
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

/// Runs the same code on the connection of any driver.
macro_rules! on_connection {
    ($connection:expr, $c:ident => $run:expr) => {
        match $connection {
            #[cfg(feature = "mysql")]
            ConnectionRef::Mysql($c) => $run,
            #[cfg(feature = "postgres")]
            ConnectionRef::Postgres($c) => $run,
            #[cfg(feature = "sqlite")]
            ConnectionRef::Sqlite($c) => $run,
        }
    };
}

/// The result of a statement without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecuteResult {
    /// The number of affected rows; on MySQL and MariaDB including matched rows that did not change.
    pub rows: u64,
    /// The generated key of the inserted row: the first one on MySQL and MariaDB, the last one on SQLite, 0 on
    /// PostgreSQL.
    pub last_insert_id: i64,
}

/// The combined result of the statements of a packet.
#[derive(Debug, Default)]
pub struct PacketResult {
    /// The rows of all statements, in order.
    pub rows: Vec<Row>,
    /// The number of changed rows. PostgreSQL counts returned rows too, SQLite those of the previous statement.
    pub changed: u64,
    /// The number of completed statements.
    pub statements: usize,
}

/// The result of one statement of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementResult {
    /// The rows.
    pub rows: Vec<CellRow>,
    /// The number of changed rows as the driver counts them; see [`PacketResult::changed`].
    pub changed: u64,
}

/// All methods run in the caller's task, without a timeout.
///
/// # Cancel safety
/// None: the statement continues on the server, and its result would be read as that of the next statement.
impl ConnectionRef<'_> {
    /// Returns the driver of the connection.
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

    /// Returns a shorter borrow of the same connection.
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

    /// Sends a ping to the server.
    pub async fn ping(&mut self) -> sqlx::Result<()> {
        on_connection!(self, c => c.ping().await)
    }

    /// Runs statements without bound values, separated by semicolons, in one round trip. Returns the number of affected
    /// rows.
    pub async fn run(&mut self, sql: &str) -> sqlx::Result<u64> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_connection!(self, c => sqlx::raw_sql(sql).execute(&mut **c).await.map(|done| done.rows_affected()))
    }

    /// Like [`run`](Self::run), with rows. If a statement fails, `result` has the results of those before it.
    pub async fn packet_into(&mut self, sql: &str, result: &mut PacketResult) -> sqlx::Result<()> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_connection!(self, c => {
            let mut answers = sqlx::raw_sql(sql).fetch_many(&mut **c);
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

    /// Like [`run`](Self::run), with rows.
    pub async fn packet(&mut self, sql: &str) -> sqlx::Result<PacketResult> {
        let mut result = PacketResult::default();
        self.packet_into(sql, &mut result).await?;
        Ok(result)
    }

    /// Like [`packet`](Self::packet), with one result per statement, as text.
    pub async fn results(&mut self, sql: &str) -> sqlx::Result<Vec<StatementResult>> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_connection!(self, c => {
            let (mut results, mut rows) = (Vec::new(), Vec::new());
            let mut answers = sqlx::raw_sql(sql).fetch_many(&mut **c);
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

    /// Runs a prepared statement. Each `?` outside of quotes and comments is a parameter, on every engine.
    pub async fn execute(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> sqlx::Result<ExecuteResult> {
        let sql = AssertSqlSafe(self.driver().parameters(sql)).into_sql_str();
        let (rows, last_insert_id) = match self {
            #[cfg(feature = "mysql")]
            ConnectionRef::Mysql(c) => {
                let done = query(sql, values)?.execute(&mut **c).await?;
                (done.rows_affected(), done.last_insert_id() as i64)
            }
            #[cfg(feature = "postgres")]
            ConnectionRef::Postgres(c) => {
                (query(sql, values)?.execute(&mut **c).await?.rows_affected(), 0)
            }
            #[cfg(feature = "sqlite")]
            ConnectionRef::Sqlite(c) => {
                let done = query(sql, values)?.execute(&mut **c).await?;
                (done.rows_affected(), done.last_insert_rowid())
            }
        };
        Ok(ExecuteResult { rows, last_insert_id })
    }

    /// Like [`execute`](Self::execute), for a statement that returns rows.
    pub async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> sqlx::Result<Vec<Row>> {
        self.fetch_native(self.driver().parameters(sql), values).await
    }

    /// Like [`fetch`](Self::fetch), with parameters in the engine's own syntax: `?` or `$1`.
    pub async fn fetch_native(
        &mut self,
        sql: String,
        values: impl IntoIterator<Item = Value>,
    ) -> sqlx::Result<Vec<Row>> {
        let sql = AssertSqlSafe(sql).into_sql_str();
        on_connection!(self, c => {
            let rows = query(sql, values)?.fetch_all(&mut **c).await?;
            Ok(rows.into_iter().map(Row::from).collect())
        })
    }
}
