//! Rows that nobody else has are taken and changed, without ever waiting for a row: SKIP LOCKED, then a
//! change by primary key. Claims, due jobs and heartbeats are all this.
//!
//! PostgreSQL and SQLite do it in one statement (claims, on PostgreSQL, in a [function](super::postgres)). MySQL
//! and MariaDB need two, in two round trips for the whole transaction: what begins it comes with the first,
//! COMMIT with the second.

use super::schema::{SCHEMA, State};
use super::{BATCH, postgres};
use crate::database::{Busy, Database, DatabaseConnection, Driver, Row, RowLock};
use crate::error::Result;

/// Which rows, and what becomes of them. Only numbers and [plain](super::job::plain) names are in its text.
#[derive(Clone, Debug)]
pub(super) struct Take {
    pub(super) rows: Rows,
    /// The column that is counted up, by how much.
    pub(super) counts: (&'static str, i64),
    /// What else is set. `{n}` is the new count, `{now}` the clock. No other column that is set is read: on
    /// MySQL and MariaDB it may have changed already.
    pub(super) set: String,
    /// The columns that are wanted besides the ID and the new count.
    pub(super) returns: &'static str,
}

/// How rows are found.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    /// By an index, in its order. The condition may name `{now}`.
    Ordered { index: &'static str, which: String, order: &'static str, most: usize },
    /// By ID, if they have this claim and are claimed.
    Listed { pairs: Vec<(i64, i64)>, busy: Busy },
}

/// Takes them; the rows as wanted, in no order.
pub(super) async fn take(database: &Database, doing: &'static str, take: Take) -> Result<Vec<Row>> {
    let taken = database.send(|mut connection| {
        let take = take.clone();
        Box::pin(async move {
            let driver = connection.driver();
            if driver == Driver::Mysql {
                return take.in_two(&mut connection, doing).await;
            }
            // One statement is a transaction by itself, and its text is the same every time.
            if let (Driver::Sqlite, Rows::Ordered { .. }) = (driver, &take.rows) {
                return connection
                    .fetch(&take.at_once(driver), [])
                    .await
                    .map_err(SCHEMA.failed(doing));
            }
            let guide = if driver == Driver::Postgres { postgres::guide() } else { String::new() };
            let sql = format!("{guide}{}; COMMIT", take.at_once(driver));
            let packet = connection.begin_packet(&sql).await.map_err(SCHEMA.failed(doing))?;
            Ok(packet.rows)
        })
    });
    taken.await
}

/// Jobs by ID, if they are claimed with these numbers: what comes behind WITH, and from FROM on.
///
/// MySQL and MariaDB would rather scan the table if the list has much of it, and then wait for rows that are
/// not in the list; unless they are told to go by the index.
pub(super) fn listed(driver: Driver, pairs: &[(i64, i64)]) -> (String, String) {
    let list = pairs.iter().map(|(id, n)| format!("({id},{n})")).collect::<Vec<_>>().join(",");
    let (with, from) = match driver {
        Driver::Mysql => {
            let jobs = format!("FROM hier_jobs AS j {BY_ID}");
            (String::new(), format!("{jobs} WHERE (j.id, j.claim) IN ({list})"))
        }
        Driver::Postgres | Driver::Sqlite => {
            let jobs = "FROM v JOIN hier_jobs j ON j.id = v.id WHERE j.claim = v.n".to_owned();
            (format!("v (id, n) AS (VALUES {list})"), jobs)
        }
    };
    (with, format!("{from} AND j.state = {}", State::Claimed.code()))
}

/// What MySQL and MariaDB are told.
const BY_ID: &str = "FORCE INDEX (PRIMARY)";

impl Rows {
    /// What stands from FROM on, and what must come before everything.
    fn found(&self, driver: Driver) -> (String, String) {
        let lock = |busy| driver.lock(RowLock::Exclusive, busy);
        match self {
            Rows::Ordered { index, which, order, most } => {
                let index = match driver {
                    Driver::Mysql => format!(" FORCE INDEX ({index})"),
                    Driver::Sqlite => format!(" INDEXED BY {index}"),
                    Driver::Postgres => String::new(),
                };
                // A clock that moves on cannot be looked up in an index, unless it is read once before.
                let now = match driver {
                    Driver::Postgres => format!("(SELECT {})", driver.now_ms()),
                    Driver::Mysql | Driver::Sqlite => driver.now_ms().to_owned(),
                };
                let (which, lock) = (which.replace("{now}", &now), lock(Busy::Skip));
                let found = format!(
                    "FROM hier_jobs AS j{index} WHERE {which} ORDER BY {order} LIMIT {most}{lock}"
                );
                (String::new(), found)
            }
            Rows::Listed { pairs, busy } => {
                let ((with, found), lock) = (listed(driver, pairs), lock(*busy));
                // Said, for a session may have a limit of its own (`sql_select_limit`).
                let most = pairs.len();
                (with + ", ", format!("{found} LIMIT {most}{lock}"))
            }
        }
    }
}

impl Take {
    /// What becomes of the rows. The count comes last: MySQL and MariaDB would read the new one behind it.
    fn set(&self, driver: Driver) -> String {
        let (counted, by) = self.counts;
        let n = format!("{counted} + {by}");
        let set = self.set.replace("{n}", &n).replace("{now}", driver.now_ms());
        format!("{set}, {counted} = {n}")
    }

    /// The one statement of PostgreSQL and SQLite.
    pub(super) fn at_once(&self, driver: Driver) -> String {
        let (counted, returns, set) = (self.counts.0, self.returns, self.set(driver));
        let (with, found) = self.rows.found(driver);
        format!(
            "WITH {with}c AS MATERIALIZED (SELECT j.id {found}) UPDATE hier_jobs SET {set} WHERE \
             id IN (SELECT id FROM c) RETURNING id, {counted}{returns}"
        )
    }

    /// The first of the two of MySQL and MariaDB.
    pub(super) fn select(&self, driver: Driver) -> String {
        let ((counted, by), returns) = (self.counts, self.returns);
        let (_, found) = self.rows.found(driver);
        format!("SELECT j.id, {counted} + {by}{returns} {found}")
    }

    /// The second, in parts.
    pub(super) fn change(&self, driver: Driver, ids: &[i64]) -> String {
        let set = self.set(driver);
        let parts = ids.chunks(BATCH).map(|ids| {
            let ids = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            format!("UPDATE hier_jobs {BY_ID} SET {set} WHERE id IN ({ids}); ")
        });
        parts.collect()
    }

    async fn in_two(
        &self,
        connection: &mut DatabaseConnection<'_>,
        doing: &'static str,
    ) -> Result<Vec<Row>> {
        let driver = connection.driver();
        let select = self.select(driver);
        let rows = connection.begin_packet(&select).await.map_err(SCHEMA.failed(doing))?.rows;
        let ids = rows.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
        let change = match ids.is_empty() {
            true => "ROLLBACK".to_owned(),
            false => self.change(driver, &ids) + "COMMIT",
        };
        connection.run(&change).await.map_err(SCHEMA.failed(doing))?;
        Ok(rows)
    }
}
