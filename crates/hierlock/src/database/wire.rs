//! A connection of one of the drivers, lent for some statements. Knows nothing of what they are for.

use super::Kind;
use super::row::{self, Row};
use super::value::{Inner, Value};
use futures_util::TryStreamExt as _;
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Either, SqlSafeStr as _};

/// A connection, whoever owns it.
#[derive(Debug)]
pub enum Wire<'a> {
    /// MySQL or MariaDB.
    Innodb(&'a mut MySqlConnection),
    /// PostgreSQL.
    Postgres(&'a mut PgConnection),
    /// SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(&'a mut SqliteConnection),
}

/// Runs the same on whichever connection it is.
macro_rules! on_wire {
    ($wire:expr, $c:ident => $run:expr) => {
        match $wire {
            $crate::database::Wire::Innodb($c) => {
                let $c = &mut **$c;
                $run
            }
            $crate::database::Wire::Postgres($c) => {
                let $c = &mut **$c;
                $run
            }
            #[cfg(feature = "sqlite")]
            $crate::database::Wire::Sqlite($c) => {
                let $c = &mut **$c;
                $run
            }
        }
    };
}
pub(crate) use on_wire;

/// A statement with its values bound.
macro_rules! bound {
    ($sql:expr, $values:expr) => {
        $values.into_iter().fold(sqlx::query($sql), |query, value| match value.0 {
            Inner::Bool(value) => query.bind(value),
            Inner::Int(value) => query.bind(value),
            Inner::Float(value) => query.bind(value),
            Inner::Text(value) => query.bind(value),
            Inner::Bytes(value) => query.bind(value),
        })
    };
}

/// What a statement has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// How many rows; on MySQL and MariaDB also those that it found as they were to be.
    pub(crate) rows: u64,
    /// The number that the first inserted row was given, on engines that tell without being asked.
    pub(crate) last_id: i64,
}

/// What the statements of a packet brought, all together.
pub(crate) struct Brought {
    pub(crate) rows: Vec<Row>,
    /// How many rows were changed. Of use on MySQL and MariaDB, which return no changed rows: PostgreSQL
    /// counts those that were read too, SQLite those of the statement before.
    pub(crate) changed: u64,
}

impl Wire<'_> {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Wire::Innodb(_) => Kind::Innodb,
            Wire::Postgres(_) => Kind::Postgres,
            #[cfg(feature = "sqlite")]
            Wire::Sqlite(_) => Kind::Sqlite,
        }
    }

    /// Runs statements without values, separated by semicolons, in one round trip.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_wire!(self, c => sqlx::raw_sql(sql).execute(c).await.map(|_| ()))
    }

    /// The same for statements that also return rows.
    pub(crate) async fn packet(&mut self, sql: &str) -> Result<Brought, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        let mut brought = Brought { rows: Vec::new(), changed: 0 };
        macro_rules! read {
            ($c:expr, $inner:ident) => {{
                let mut answers = sqlx::raw_sql(sql).fetch_many(&mut **$c);
                while let Some(answer) = answers.try_next().await? {
                    match answer {
                        Either::Left(done) => brought.changed += done.rows_affected(),
                        Either::Right(row) => brought.rows.push(Row(row::Inner::$inner(row))),
                    }
                }
            }};
        }
        match self {
            Wire::Innodb(c) => read!(c, Innodb),
            Wire::Postgres(c) => read!(c, Postgres),
            #[cfg(feature = "sqlite")]
            Wire::Sqlite(c) => read!(c, Sqlite),
        }
        Ok(brought)
    }

    /// The same, with nothing but the rows.
    pub(crate) async fn ask(&mut self, sql: &str) -> Result<Vec<Row>, sqlx::Error> {
        Ok(self.packet(sql).await?.rows)
    }

    /// Runs a statement, prepared. Each `?` outside of quotes and comments is a place for a value.
    pub(crate) async fn execute(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Done, sqlx::Error> {
        let sql = AssertSqlSafe(self.kind().parameters(sql)).into_sql_str();
        match self {
            Wire::Innodb(c) => bound!(sql, values).execute(&mut **c).await.map(|done| Done {
                rows: done.rows_affected(),
                last_id: done.last_insert_id() as i64,
            }),
            Wire::Postgres(c) => bound!(sql, values)
                .execute(&mut **c)
                .await
                .map(|done| Done { rows: done.rows_affected(), last_id: 0 }),
            #[cfg(feature = "sqlite")]
            Wire::Sqlite(c) => bound!(sql, values)
                .execute(&mut **c)
                .await
                .map(|done| Done { rows: done.rows_affected(), last_id: done.last_insert_rowid() }),
        }
    }

    /// The same for one that returns rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let sql = AssertSqlSafe(self.kind().parameters(sql)).into_sql_str();
        match self {
            Wire::Innodb(c) => Ok(row::innodb(bound!(sql, values).fetch_all(&mut **c).await?)),
            Wire::Postgres(c) => Ok(row::postgres(bound!(sql, values).fetch_all(&mut **c).await?)),
            #[cfg(feature = "sqlite")]
            Wire::Sqlite(c) => Ok(row::sqlite(bound!(sql, values).fetch_all(&mut **c).await?)),
        }
    }
}
