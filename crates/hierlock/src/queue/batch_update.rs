//! Changes many rows at once without waiting for a locked row: a SELECT with SKIP LOCKED, then an update by primary key.
//! Claims, promotions and heartbeats all work this way.
//!
//! PostgreSQL and SQLite need one statement (a claim on PostgreSQL is a function: `schema.rs`). MySQL and MariaDB need two,
//! in two round trips for the whole transaction: BEGIN is sent with the first, COMMIT with the second.

use super::BATCH;
use super::schema::{CLAIMED, PLANNER_SETTINGS, SCHEMA};
use crate::database::{
    Database, DatabaseConnection, Driver, LockWaitPolicy, PooledConnection, Row, RowLock,
};
use crate::error::Result;

/// An update of many rows. Its text contains only numbers and [checked](super::job::check_name) names.
pub(super) struct BatchUpdate {
    pub(super) rows: RowSelection,
    /// The SET clause. `{n}` is the new value of the counter, `{now}` the clock. It must not read other columns that it
    /// sets (see [`Self::set`]).
    pub(super) set: String,
    /// The column to increment, and by how much.
    pub(super) counter: (&'static str, i64),
    /// The columns to return after the ID and the new value of the counter.
    pub(super) returning: &'static str,
}

pub(super) enum RowSelection {
    /// By an index, in its order. The condition may contain `{now}`.
    ByIndex { index: &'static str, condition: String, order: &'static str, limit: usize },
    /// By job ID and claim number.
    ByClaim { claims: Vec<(i64, i64)>, policy: LockWaitPolicy },
}

/// Returns the FROM and WHERE clauses that find claimed jobs by ID and claim number, as `j`.
///
/// Without FORCE INDEX, MySQL and MariaDB would scan the table for a long list, and wait for locked rows that are not in
/// the list.
pub(super) fn claimed_rows(driver: Driver, claims: &[(i64, i64)]) -> String {
    let list = claims.iter().map(|(id, n)| format!("({id},{n})")).collect::<Vec<_>>().join(",");
    if driver == Driver::Mysql {
        return format!(
            "FROM hier_jobs AS j {BY_PRIMARY_KEY} WHERE (j.id, j.claim) IN ({list}) AND j.state = {CLAIMED}"
        );
    }
    // PostgreSQL and SQLite give these names to the columns of VALUES.
    format!(
        "FROM (VALUES {list}) AS v JOIN hier_jobs j ON j.id = v.column1 WHERE j.claim = v.column2 \
         AND j.state = {CLAIMED}"
    )
}

const BY_PRIMARY_KEY: &str = "FORCE INDEX (PRIMARY)";

pub(super) fn planner_settings() -> String {
    PLANNER_SETTINGS.map(|setting| format!("SET LOCAL {setting} = off; ")).concat()
}

impl RowSelection {
    /// Selects a batch in the order of `due_ms`.
    pub(super) fn by_due_time(condition: String) -> Self {
        Self::ByIndex { index: "hier_jobs_due", condition, order: "due_ms", limit: BATCH }
    }

    /// Returns the rest of the SELECT, from FROM on.
    fn text(&self, driver: Driver) -> String {
        let (from, policy) = match self {
            RowSelection::ByIndex { index, condition, order, limit } => {
                // PostgreSQL uses an index for a volatile clock only if a subquery reads it once.
                let (index, now) = match driver {
                    Driver::Mysql => (format!(" FORCE INDEX ({index})"), driver.now_ms().into()),
                    Driver::Sqlite => (format!(" INDEXED BY {index}"), driver.now_ms().into()),
                    Driver::Postgres => (String::new(), format!("(SELECT {})", driver.now_ms())),
                };
                let condition = condition.replace("{now}", &now);
                let from = format!("FROM hier_jobs AS j{index} WHERE {condition} ORDER BY {order}");
                (format!("{from} LIMIT {limit}"), LockWaitPolicy::Skip)
            }
            // An explicit LIMIT, since a session may have a smaller default (`sql_select_limit`).
            RowSelection::ByClaim { claims, policy } => {
                (format!("{} LIMIT {}", claimed_rows(driver, claims), claims.len()), *policy)
            }
        };
        from + &driver.lock(RowLock::Exclusive, policy)
    }
}

impl BatchUpdate {
    /// Returns an update that sets columns, increments nothing, and returns the IDs and claim numbers.
    pub(super) fn new(rows: RowSelection, set: impl Into<String>) -> Self {
        Self { rows, set: set.into(), counter: ("claim", 0), returning: "" }
    }

    /// Changes the rows, and returns the requested columns in no particular order.
    pub(super) async fn run(&self, database: &Database, doing: &'static str) -> Result<Vec<Row>> {
        let change = async |mut lent: PooledConnection| {
            let rows = self.run_on(&mut lent.connection()).await;
            Ok((rows.map_err(SCHEMA.failed(doing))?, lent))
        };
        database.send(change).await
    }

    async fn run_on(&self, connection: &mut DatabaseConnection<'_>) -> sqlx::Result<Vec<Row>> {
        let driver = connection.driver();
        if driver == Driver::Mysql {
            let rows = connection.begin_packet(&self.select()).await?.rows;
            let ids: Result<Vec<i64>, _> = rows.iter().map(|row| row.int(0)).collect();
            let ids = ids.map_err(|error| error.0)?;
            let end = if ids.is_empty() { "ROLLBACK" } else { "COMMIT" };
            connection.run(&(self.change(&ids) + end)).await?;
            return Ok(rows);
        }
        let sql = self.statement(driver);
        // A single statement is its own transaction, and its text is the same every time, so it is prepared.
        if let (Driver::Sqlite, RowSelection::ByIndex { .. }) = (driver, &self.rows) {
            return connection.fetch(&sql, []).await;
        }
        let settings = if driver == Driver::Postgres { planner_settings() } else { String::new() };
        Ok(connection.begin_packet(&format!("{settings}{sql}; COMMIT")).await?.rows)
    }

    /// Repeats an update that is limited to a [`BATCH`] until no rows are left, and returns their number.
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

    /// Returns the SET clause. The counter comes last: MySQL and MariaDB read the new value of a column that is already set.
    fn set(&self, driver: Driver) -> String {
        let (counter, by) = self.counter;
        let n = format!("{counter} + {by}");
        let set = self.set.replace("{n}", &n).replace("{now}", driver.now_ms());
        format!("{set}, {counter} = {n}")
    }

    /// Returns the single statement of PostgreSQL and SQLite.
    pub(super) fn statement(&self, driver: Driver) -> String {
        let (counter, returning, set) = (self.counter.0, self.returning, self.set(driver));
        let from = self.rows.text(driver);
        format!(
            "WITH c AS MATERIALIZED (SELECT j.id {from}) UPDATE hier_jobs SET {set} WHERE \
             id IN (SELECT id FROM c) RETURNING id, {counter}{returning}"
        )
    }

    /// Returns the first statement of MySQL and MariaDB.
    pub(super) fn select(&self) -> String {
        let ((counter, by), returning) = (self.counter, self.returning);
        let from = self.rows.text(Driver::Mysql);
        format!("SELECT j.id, {counter} + {by}{returning} {from}")
    }

    /// Returns the second statement of MySQL and MariaDB, in batches.
    pub(super) fn change(&self, ids: &[i64]) -> String {
        let set = self.set(Driver::Mysql);
        let batches = ids.chunks(BATCH).map(|ids| {
            let ids = join_numbers(ids);
            format!("UPDATE hier_jobs {BY_PRIMARY_KEY} SET {set} WHERE id IN ({ids}); ")
        });
        batches.collect()
    }
}

pub(super) fn join_numbers(numbers: &[i64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
