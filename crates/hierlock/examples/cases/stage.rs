//! Where the cases play: a database of any of the four engines, and what makes a race happen every time
//! instead of once a month. Knows nothing of money or seats.

use hierlock::database::{Database, Transaction};
use hierlock::retry::{Cause, RetryPolicy, Retryable, retry};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqlitePool};
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Nobody is waited for longer: somebody has failed on the way.
const LIMIT: Duration = Duration::from_secs(30);

/// As long as somebody is let run into a lock.
const MOMENT: Duration = Duration::from_millis(30);

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
        everyone: &Barrier,
        sql: &str,
    ) -> Result<(Vec<[i64; N]>, Transaction)> {
        if self.sqlite.is_some() {
            let seen = self.look(sql).await?;
            meet(everyone).await?;
            return Ok((seen, self.database.begin().await?));
        }
        let mut tx = self.database.begin().await?;
        let seen = look_in(&mut tx, sql).await?;
        meet(everyone).await?;
        Ok((seen, tx))
    }

    /// Would somebody who wants to change this row have to wait now?
    pub(crate) async fn is_locked(&self, table: &str, id: i64) -> Result<bool> {
        match self.lock_now(table, id).await {
            Ok(()) => Ok(false),
            Err(error) => match error.retry_cause() {
                Some(Cause::NotGranted | Cause::Busy) => Ok(true),
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

/// Waits until everyone is here.
pub(crate) async fn meet(everyone: &Barrier) -> Result<()> {
    let met = tokio::time::timeout(LIMIT, everyone.wait()).await;
    met.map(drop).map_err(|_| "somebody failed before all had met".into())
}

/// Ends a transaction while somebody stands before a row of it. What the other one has come to then.
///
/// He is given a moment to come as far as he can. If he gets past the lock in it, that is an error; if the
/// moment was too short for him, nothing is wrong.
pub(crate) async fn commit_before<T>(
    tx: Transaction,
    waiting: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut waiting = pin!(waiting);
    if let Ok(ended) = tokio::time::timeout(MOMENT, &mut waiting).await {
        ended?;
        return Err("somebody did not wait for a row that is locked".into());
    }
    tx.commit().await?;
    waiting.await
}

/// Runs so many at once, in tasks of their own; what each has come to. All are given the same barrier,
/// for all of them.
pub(crate) async fn together<T, W>(
    count: i64,
    work: impl Fn(i64, Arc<Barrier>) -> W,
) -> Result<Vec<Result<T>>>
where
    T: Send + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    let everyone = Arc::new(Barrier::new(usize::try_from(count)?));
    let mut tasks = JoinSet::new();
    for number in 1..=count {
        tasks.spawn(work(number, everyone.clone()));
    }
    let ended = tokio::time::timeout(2 * LIMIT, tasks.join_all()).await;
    ended.map_err(|_| "somebody does not come to an end".into())
}

/// How often it was so, if nobody failed.
pub(crate) fn count(ended: Vec<Result<bool>>) -> Result<i64> {
    ended.into_iter().try_fold(0, |count, is_so| Ok(count + i64::from(is_so?)))
}

/// Runs a whole transaction again when it lost a race, as the right ways do.
pub(crate) async fn again<T, W>(work: impl Fn() -> W) -> Result<T>
where
    W: Future<Output = Result<T>>,
{
    let policy = RetryPolicy::default().attempts(20);
    retry(policy, |_| work()).await.map_err(|given_up| given_up.last)
}
