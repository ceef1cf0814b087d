//! Many rows that nobody else has are changed at once, without ever waiting for a row: SKIP LOCKED, then a
//! change by primary key. Claims, due jobs and heartbeats are all this.
//!
//! PostgreSQL and SQLite do it in one statement (claims, on PostgreSQL, in a function: `schema.rs`). MySQL
//! and MariaDB need two, in two round trips for the whole transaction: what begins it comes with the first,
//! COMMIT with the second.

use super::schema::{JobState, PLANNER_SETTINGS, SCHEMA};
use super::{BATCH, ids};
use crate::database::{Database, DatabaseConnection, Driver, LockWaitPolicy, Row, RowLock};
use crate::error::Result;

/// Which rows, and what becomes of them. Only numbers and [checked](super::job::check_name) names are in its text.
#[derive(Clone, Debug)]
pub(super) struct BatchUpdate {
    pub(super) rows: RowSelection,
    /// The column that is counted up, by how much.
    pub(super) counter: (&'static str, i64),
    /// What else is set. `{n}` is the new count, `{now}` the clock. No other column that is set is read: on
    /// MySQL and MariaDB it may have changed already.
    pub(super) set: String,
    /// The columns that are wanted besides the ID and the new count.
    pub(super) returning: &'static str,
}

/// How rows are found.
#[derive(Clone, Debug)]
pub(super) enum RowSelection {
    /// By an index, in its order. The condition may name `{now}`.
    ByIndex { index: &'static str, condition: String, order: &'static str, limit: usize },
    /// By ID, if they are claimed with this number.
    ByClaim { claims: Vec<(i64, i64)>, policy: LockWaitPolicy },
}

/// Jobs by ID, if they are claimed with these numbers: what comes behind WITH, and from FROM on.
///
/// MySQL and MariaDB would rather scan the table if the list has much of it, and then wait for rows that are
/// not in the list; unless they are told to go by the index.
pub(super) fn claimed_rows(driver: Driver, claims: &[(i64, i64)]) -> (String, String) {
    let list = claims.iter().map(|(id, n)| format!("({id},{n})")).collect::<Vec<_>>().join(",");
    let state = JobState::Claimed.code();
    if driver == Driver::Mysql {
        let from = format!(
            "FROM hier_jobs AS j {BY_PRIMARY_KEY} WHERE (j.id, j.claim) IN ({list}) AND j.state = {state}"
        );
        return (String::new(), from);
    }
    let from =
        format!("FROM v JOIN hier_jobs j ON j.id = v.id WHERE j.claim = v.n AND j.state = {state}");
    (format!("v (id, n) AS (VALUES {list})"), from)
}

/// What MySQL and MariaDB are told.
const BY_PRIMARY_KEY: &str = "FORCE INDEX (PRIMARY)";

/// The settings of the planner for the rest of a transaction on PostgreSQL.
pub(super) fn planner_settings() -> String {
    PLANNER_SETTINGS.map(|setting| format!("SET LOCAL {setting} = off; ")).concat()
}

impl RowSelection {
    /// What must come before everything, and what stands from FROM on.
    fn text(&self, driver: Driver) -> (String, String) {
        let lock = |policy| driver.lock(RowLock::Exclusive, policy);
        match self {
            RowSelection::ByIndex { index, condition, order, limit } => {
                // A clock that moves on cannot be looked up in an index, unless it is read once before.
                let (index, now) = match driver {
                    Driver::Mysql => (format!(" FORCE INDEX ({index})"), driver.now_ms().into()),
                    Driver::Sqlite => (format!(" INDEXED BY {index}"), driver.now_ms().into()),
                    Driver::Postgres => (String::new(), format!("(SELECT {})", driver.now_ms())),
                };
                let (condition, lock) =
                    (condition.replace("{now}", &now), lock(LockWaitPolicy::Skip));
                let from = format!(
                    "FROM hier_jobs AS j{index} WHERE {condition} ORDER BY {order} LIMIT {limit}{lock}"
                );
                (String::new(), from)
            }
            RowSelection::ByClaim { claims, policy } => {
                let ((with, from), lock) = (claimed_rows(driver, claims), lock(*policy));
                // Said, for a session may have a limit of its own (`sql_select_limit`).
                (with + ", ", format!("{from} LIMIT {}{lock}", claims.len()))
            }
        }
    }
}

impl BatchUpdate {
    /// Changes the rows; returns what is wanted of them, in no order.
    pub(super) async fn run(&self, database: &Database, doing: &'static str) -> Result<Vec<Row>> {
        let changed = database.send(|mut connection| {
            let update = self.clone();
            Box::pin(async move {
                let driver = connection.driver();
                let failed = SCHEMA.failed(doing);
                if driver == Driver::Mysql {
                    return update.select_and_change(&mut connection, doing).await;
                }
                let sql = update.statement(driver);
                // One statement is a transaction by itself, and its text is the same every time.
                if let (Driver::Sqlite, RowSelection::ByIndex { .. }) = (driver, &update.rows) {
                    return connection.fetch(&sql, []).await.map_err(failed);
                }
                let settings =
                    if driver == Driver::Postgres { planner_settings() } else { String::new() };
                let sql = format!("{settings}{sql}; COMMIT");
                Ok(connection.begin_packet(&sql).await.map_err(failed)?.rows)
            })
        });
        changed.await
    }

    /// Does so as long as there are rows, if it is limited to a [`BATCH`]; returns how many there were.
    pub(super) async fn run_for_all(
        &self,
        database: &Database,
        doing: &'static str,
        mut each: impl FnMut(&Row) -> Result<()>,
    ) -> Result<u64> {
        let mut count = 0;
        loop {
            let rows = self.run(database, doing).await?;
            rows.iter().try_for_each(&mut each)?;
            count += rows.len() as u64;
            if rows.len() < BATCH {
                return Ok(count);
            }
        }
    }

    /// What becomes of the rows. The count comes last: MySQL and MariaDB would read the new one behind it.
    fn set(&self, driver: Driver) -> String {
        let (counter, by) = self.counter;
        let n = format!("{counter} + {by}");
        let set = self.set.replace("{n}", &n).replace("{now}", driver.now_ms());
        format!("{set}, {counter} = {n}")
    }

    /// The one statement of PostgreSQL and SQLite.
    pub(super) fn statement(&self, driver: Driver) -> String {
        let (counter, returning, set) = (self.counter.0, self.returning, self.set(driver));
        let (with, from) = self.rows.text(driver);
        format!(
            "WITH {with}c AS MATERIALIZED (SELECT j.id {from}) UPDATE hier_jobs SET {set} WHERE \
             id IN (SELECT id FROM c) RETURNING id, {counter}{returning}"
        )
    }

    /// The first of the two of MySQL and MariaDB.
    pub(super) fn select(&self) -> String {
        let ((counter, by), returning) = (self.counter, self.returning);
        let (_, from) = self.rows.text(Driver::Mysql);
        format!("SELECT j.id, {counter} + {by}{returning} {from}")
    }

    /// The second, in parts.
    pub(super) fn change(&self, ids: &[i64]) -> String {
        let set = self.set(Driver::Mysql);
        let parts = ids.chunks(BATCH).map(|ids| {
            let ids = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            format!("UPDATE hier_jobs {BY_PRIMARY_KEY} SET {set} WHERE id IN ({ids}); ")
        });
        parts.collect()
    }

    async fn select_and_change(
        &self,
        connection: &mut DatabaseConnection<'_>,
        doing: &'static str,
    ) -> Result<Vec<Row>> {
        let select = self.select();
        let rows = connection.begin_packet(&select).await.map_err(SCHEMA.failed(doing))?.rows;
        let ids = ids(&rows)?;
        let end = if ids.is_empty() { "ROLLBACK" } else { "COMMIT" };
        connection.run(&(self.change(&ids) + end)).await.map_err(SCHEMA.failed(doing))?;
        Ok(rows)
    }
}
