//! Where the cases play: a database of any of the four engines. Knows nothing of money or seats.

use super::race::Everyone;
use hierlock::database::{Database, Transaction};
use hierlock::retry::{RetryCause, Retryable};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqlitePool};
use std::error::Error;
use std::time::Duration;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A database, with the connections of one program to it. A clone is the same program.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) database: Database,
    url: String,
    /// SQLite besides, with transactions that are not the only writer, and no patience.
    sqlite: Option<SqlitePool>,
}

/// The tables of a case.
pub(crate) struct Scene {
    pub(crate) tables: &'static [&'static str],
    /// What makes them.
    pub(crate) make: &'static str,
    /// What is in them at the beginning.
    pub(crate) fill: &'static str,
}

impl Scene {
    fn each(&self, verb: &str) -> String {
        let each: Vec<String> = self.tables.iter().map(|table| format!("{verb} {table}")).collect();
        each.join("; ")
    }
}

impl Stage {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let database = Database::connect(url).await?;
        let sqlite = match url.starts_with("sqlite:") {
            false => None,
            true => {
                let options: SqliteConnectOptions = url.parse()?;
                let options = options.busy_timeout(Duration::ZERO);
                Some(SqlitePoolOptions::new().connect_with(options).await?)
            }
        };
        Ok(Self { database, url: url.to_owned(), sqlite })
    }

    /// Another program: with connections of its own.
    pub(crate) async fn another(&self) -> Result<Self> {
        Self::connect(&self.url).await
    }

    /// What only SQLite has: `BEGIN` that does not lock. None elsewhere.
    pub(crate) fn sqlite(&self) -> Option<&SqlitePool> {
        self.sqlite.as_ref()
    }

    /// Behind a SELECT that takes the rows nobody else has. On SQLite a transaction is the only writer,
    /// and nobody else has any.
    pub(crate) fn skip_locked(&self) -> &'static str {
        match self.sqlite {
            Some(_) => "",
            None => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// Makes the tables, also where a run that failed has left some.
    pub(crate) async fn build(&self, scene: &Scene) -> Result<()> {
        self.run(&format!("{}; {}", scene.each("DROP TABLE IF EXISTS"), scene.make)).await
    }

    /// As it was at the beginning.
    pub(crate) async fn reset(&self, scene: &Scene) -> Result<()> {
        self.run(&format!("{}; {}", scene.each("DELETE FROM"), scene.fill)).await
    }

    pub(crate) async fn strike(&self, scene: &Scene) -> Result<()> {
        self.run(&scene.each("DROP TABLE")).await
    }

    /// Runs statements in a transaction of their own.
    pub(crate) async fn run(&self, sql: &str) -> Result<()> {
        let mut tx = self.database.begin().await?;
        tx.run(sql).await?;
        Ok(tx.commit().await?)
    }

    /// What a plain SELECT of numbers shows: what is committed, whoever has locked it.
    pub(crate) async fn look<const N: usize>(&self, sql: &str) -> Result<Vec<[i64; N]>> {
        match &self.sqlite {
            Some(pool) => {
                let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(pool).await?;
                let numbers = rows.iter().map(|row| numbers(|column| Ok(row.try_get(column)?)));
                numbers.collect()
            }
            None => {
                let mut tx = self.database.begin().await?;
                let rows = look_in(&mut tx, sql).await?;
                tx.commit().await?;
                Ok(rows)
            }
        }
    }

    /// One number of it.
    pub(crate) async fn number(&self, sql: &str) -> Result<i64> {
        let rows = self.look::<1>(sql).await?;
        rows.first().map(|[number]| *number).ok_or_else(|| format!("no row: {sql}").into())
    }

    /// How the broken ways begin: look with a plain SELECT, think, write. Here everyone has looked before
    /// anyone writes, every time.
    ///
    /// On a server both are in one transaction, which does not help. On SQLite a transaction of
    /// [`Database::begin`] is the only writer from its beginning, so that who does it wrong has looked
    /// before he begins it.
    pub(crate) async fn look_then_begin<const N: usize>(
        &self,
        everyone: &Everyone,
        sql: &str,
    ) -> Result<(Vec<[i64; N]>, Transaction)> {
        if self.sqlite.is_some() {
            let seen = self.look(sql).await?;
            everyone.meet().await?;
            return Ok((seen, self.database.begin().await?));
        }
        let mut tx = self.database.begin().await?;
        let seen = look_in(&mut tx, sql).await?;
        everyone.meet().await?;
        Ok((seen, tx))
    }

    /// Would somebody who wants to change this row have to wait now?
    pub(crate) async fn is_locked(&self, table: &str, id: i64) -> Result<bool> {
        match self.lock_now(table, id).await {
            Ok(()) => Ok(false),
            Err(error) => match error.retry_cause() {
                Some(RetryCause::NotGranted | RetryCause::Busy) => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// Locks a row if that can be done at once, and lets go. On SQLite it is not the row, but the file.
    async fn lock_now(&self, table: &str, id: i64) -> Result<()> {
        if let Some(pool) = &self.sqlite {
            let mut connection = pool.acquire().await?;
            let tx = connection.begin_with("BEGIN IMMEDIATE").await?;
            return Ok(tx.rollback().await?);
        }
        let mut tx = self.database.begin().await?;
        tx.fetch(&format!("SELECT id FROM {table} WHERE id = {id} FOR UPDATE NOWAIT"), []).await?;
        Ok(tx.rollback().await?)
    }
}

/// The same as [`Stage::look`], as a transaction sees it.
pub(crate) async fn look_in<const N: usize>(
    tx: &mut Transaction,
    sql: &str,
) -> Result<Vec<[i64; N]>> {
    let rows = tx.fetch(sql, []).await?;
    rows.iter().map(|row| numbers(|column| Ok(row.int(column)?))).collect()
}

fn numbers<const N: usize>(number: impl Fn(usize) -> Result<i64>) -> Result<[i64; N]> {
    let mut numbers = [0; N];
    for (column, place) in numbers.iter_mut().enumerate() {
        *place = number(column)?;
    }
    Ok(numbers)
}
