//! One connection to a server, and what can be asked of it. Knows nothing of holds and guards.

use super::postgres;
use crate::error::{Result, SqlError};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

/// How long a server may take to answer what it need not wait for.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Where a server is, and who we are to it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    options: PgConnectOptions,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| crate::error::UrlError::Server { why: error.to_string() })?;
        // Statements are counted by a person who looks, not logged by the driver.
        Ok(Self { options: options.application_name("hierlock").disable_statement_logging() })
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres at {}:{}", self.options.get_host(), self.options.get_port())
    }
}

/// A connection that is in no transaction when nobody uses it.
#[derive(Debug)]
pub(super) struct Session {
    connection: PgConnection,
    address: Address,
    /// The server's number for it, by which it can be cancelled.
    pub(super) pid: i32,
}

/// How a run of locking statements ended.
pub(super) type Ran = Result<(), sqlx::Error>;

impl Session {
    pub(super) async fn connect(address: &Address) -> Result<Self> {
        let failed = |source| SqlError::Connect { server: address.to_string(), source };
        let connect = tokio::time::timeout(ANSWER_WITHIN, address.options.connect());
        let connection = connect.await.map_err(|_| failed(timed_out()))?.map_err(failed)?;
        let mut session = Self { connection, address: address.clone(), pid: 0 };
        let row = session.row(postgres::HELLO).await?;
        let row = row.ok_or_else(|| failed(sqlx::Error::RowNotFound))?;
        let [version, pid] = [row.get::<i32, _>(0), row.get(1)];
        session.pid = pid;
        if let Some(why) = postgres::unfit(version, row.get(2)) {
            return Err(SqlError::Unfit { server: address.to_string(), why }.into());
        }
        if let Some(settings) = postgres::settings(version) {
            session.run(settings).await.map_err(failed)?;
        }
        Ok(session)
    }

    /// Runs statements that lock, all in one round trip.
    ///
    /// # Cancel safety
    /// None: dropped before its end it leaves a statement running on the server. Only the task that
    /// owns the session may call it, and that task cancels it on the server first.
    pub(super) async fn lock(&mut self, sql: String) -> Ran {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection).await.map(|_| ())
    }

    /// Runs statements that each say whether they got their lock, all in one round trip.
    pub(super) async fn try_lock(&mut self, sql: String) -> Result<Vec<bool>, sqlx::Error> {
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut self.connection);
        let rows = tokio::time::timeout(ANSWER_WITHIN, rows).await.map_err(|_| timed_out())??;
        rows.iter().map(|row| row.try_get(0)).collect()
    }

    /// Runs what returns nothing and waits for nobody.
    pub(super) async fn run(&mut self, sql: &'static str) -> Ran {
        let run = sqlx::raw_sql(sql).execute(&mut self.connection);
        tokio::time::timeout(ANSWER_WITHIN, run).await.map_err(|_| timed_out())?.map(|_| ())
    }

    /// Is the server still there?
    pub(super) async fn ping(&mut self) -> Ran {
        let ping = self.connection.ping();
        tokio::time::timeout(ANSWER_WITHIN, ping).await.map_err(|_| timed_out())?
    }

    /// Asks what is answered by a number, or by nothing.
    pub(super) async fn ask(&mut self, question: &str) -> Result<Option<i64>> {
        Ok(self.row(question).await?.map(|row| row.get(0)))
    }

    async fn row(&mut self, sql: &str) -> Result<Option<PgRow>> {
        let failed = |source| SqlError::Failed { server: self.address.to_string(), source };
        let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_optional(&mut self.connection);
        let row =
            tokio::time::timeout(ANSWER_WITHIN, row).await.map_err(|_| failed(timed_out()))?;
        Ok(row.map_err(failed)?)
    }
}

fn timed_out() -> sqlx::Error {
    let message = format!("no answer within {} s", ANSWER_WITHIN.as_secs());
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, message))
}
