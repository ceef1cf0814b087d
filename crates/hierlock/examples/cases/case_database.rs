//! The database in which the cases run, on any of the four engines.

use super::race::RaceBarrier;
use hierlock::database::{Database, Transaction};
use hierlock::retry::{RetryCause, Retryable};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqlitePool};
use std::error::Error;
use std::time::Duration;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The connections of one program to the database. A clone uses the same connections.
#[derive(Clone)]
pub(crate) struct CaseDatabase {
    database: Database,
    url: String,
    /// Only on SQLite: a second pool, with deferred transactions and without a busy timeout.
    sqlite: Option<SqlitePool>,
}

/// The tables of a case.
pub(crate) struct CaseTables {
    pub(crate) names: &'static [&'static str],
    /// The statements that create the tables.
    pub(crate) create: &'static str,
    /// The statement that inserts the initial rows.
    pub(crate) insert: &'static str,
}

impl CaseTables {
    /// Returns `statement` for each table, such as `DROP TABLE`.
    fn for_each(&self, statement: &str) -> String {
        let statements: Vec<String> =
            self.names.iter().map(|name| format!("{statement} {name}")).collect();
        statements.join("; ")
    }
}

impl CaseDatabase {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let database = Database::connect(url).await?;
        let sqlite = if url.starts_with("sqlite:") {
            let options: SqliteConnectOptions = url.parse()?;
            let options = options.busy_timeout(Duration::ZERO);
            Some(SqlitePoolOptions::new().connect_with(options).await?)
        } else {
            None
        };
        Ok(Self { database, url: url.to_owned(), sqlite })
    }

    /// Connects a second program, which has its own connections.
    pub(crate) async fn connect_again(&self) -> Result<Self> {
        Self::connect(&self.url).await
    }

    /// Returns the pool whose `BEGIN` does not lock (`BEGIN DEFERRED`), or `None` if this is not SQLite.
    pub(crate) fn sqlite(&self) -> Option<&SqlitePool> {
        self.sqlite.as_ref()
    }

    /// Begins a transaction. On SQLite this is `BEGIN IMMEDIATE`.
    pub(crate) async fn begin(&self) -> Result<Transaction> {
        Ok(self.database.begin().await?)
    }

    /// Returns the end of a SELECT that locks its rows. Empty on SQLite, where a transaction is the only writer.
    pub(crate) fn for_update(&self) -> &'static str {
        self.database.for_update()
    }

    /// Returns the end of a SELECT that locks only rows that no other transaction has locked. Empty on SQLite,
    /// where a transaction is the only writer.
    pub(crate) fn skip_locked(&self) -> &'static str {
        match self.sqlite {
            Some(_) => "",
            None => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// Creates the tables. Drops them first if an earlier run failed and left them.
    pub(crate) async fn create_tables(&self, tables: &CaseTables) -> Result<()> {
        self.run(&format!("{}; {}", tables.for_each("DROP TABLE IF EXISTS"), tables.create)).await
    }

    /// Deletes all rows and inserts the initial rows.
    pub(crate) async fn reset_tables(&self, tables: &CaseTables) -> Result<()> {
        self.run(&format!("{}; {}", tables.for_each("DELETE FROM"), tables.insert)).await
    }

    pub(crate) async fn drop_tables(&self, tables: &CaseTables) -> Result<()> {
        self.run(&tables.for_each("DROP TABLE")).await
    }

    /// Runs statements in a separate transaction.
    pub(crate) async fn run(&self, sql: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        tx.run(sql).await?;
        Ok(tx.commit().await?)
    }

    /// Returns the rows of a plain SELECT of numbers: the committed values, also of locked rows.
    pub(crate) async fn read<const N: usize>(&self, sql: &str) -> Result<Vec<[i64; N]>> {
        match &self.sqlite {
            Some(pool) => {
                let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(pool).await?;
                rows.iter().map(|row| read_columns(|column| Ok(row.try_get(column)?))).collect()
            }
            None => {
                let mut tx = self.begin().await?;
                let rows = read_in(&mut tx, sql).await?;
                tx.commit().await?;
                Ok(rows)
            }
        }
    }

    /// Returns the number that a plain SELECT returns. Fails if there is no row.
    pub(crate) async fn read_number(&self, sql: &str) -> Result<i64> {
        let rows = self.read::<1>(sql).await?;
        rows.first().map(|[number]| *number).ok_or_else(|| format!("no row: {sql}").into())
    }

    /// Reads with a plain SELECT, and waits until all tasks have read. Returns the rows and a transaction for the
    /// write. The broken versions start with this.
    ///
    /// On a server the read is in the same transaction as the write, which does not help. On SQLite a transaction
    /// of [`Database::begin`] is the only writer from its start, so a broken version reads before it begins one.
    pub(crate) async fn read_then_begin<const N: usize>(
        &self,
        barrier: &RaceBarrier,
        sql: &str,
    ) -> Result<(Vec<[i64; N]>, Transaction)> {
        if self.sqlite.is_some() {
            let rows = self.read(sql).await?;
            barrier.wait_for_all().await?;
            return Ok((rows, self.begin().await?));
        }
        let mut tx = self.begin().await?;
        let rows = read_in(&mut tx, sql).await?;
        barrier.wait_for_all().await?;
        Ok((rows, tx))
    }

    /// Returns true if another transaction would have to wait now to change this row.
    pub(crate) async fn is_locked(&self, table: &str, id: i64) -> Result<bool> {
        match self.lock_nowait(table, id).await {
            Ok(()) => Ok(false),
            Err(error) => match error.retry_cause() {
                Some(RetryCause::NotGranted | RetryCause::Busy) => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// Locks a row and releases it. Fails if the lock is not free. On SQLite it locks the file.
    async fn lock_nowait(&self, table: &str, id: i64) -> Result<()> {
        if let Some(pool) = &self.sqlite {
            let mut connection = pool.acquire().await?;
            let tx = connection.begin_with("BEGIN IMMEDIATE").await?;
            return Ok(tx.rollback().await?);
        }
        let mut tx = self.begin().await?;
        tx.fetch(&format!("SELECT id FROM {table} WHERE id = {id} FOR UPDATE NOWAIT"), []).await?;
        Ok(tx.rollback().await?)
    }
}

/// Returns the rows of a SELECT of numbers in a transaction.
pub(crate) async fn read_in<const N: usize>(
    tx: &mut Transaction,
    sql: &str,
) -> Result<Vec<[i64; N]>> {
    let rows = tx.fetch(sql, []).await?;
    rows.iter().map(|row| read_columns(|column| Ok(row.int(column)?))).collect()
}

fn read_columns<const N: usize>(read: impl Fn(usize) -> Result<i64>) -> Result<[i64; N]> {
    let mut numbers = [0; N];
    for (column, number) in numbers.iter_mut().enumerate() {
        *number = read(column)?;
    }
    Ok(numbers)
}
