//! Hierlock's tables: how they are created and upgraded, and the errors if they are missing or of another version.
//!
//! ```text
//!   part `lease`   step 1 ─► step 2 ─► …       hier_schema_versions
//!   part `queue`   step 1 ─► …                   lease  2
//!   part `locks`   step 1 ─► …                   queue  1
//!                                                locks  1
//! ```
//!
//! Provisioning runs the steps after the stored version, in order, and stores the new version after each step
//! (`upgrade.rs`). The same steps are files for `sqlx migrate` (`migrations.rs`). Rules for a new step:
//!
//! 1. A released step is never changed. The next version is another step.
//! 2. Its statements can be repeated. MySQL and MariaDB commit each of them, so an interrupted step is run again from its
//!    start. An ALTER that was done before is skipped.
//! 3. A client reads the version only when one of its statements fails, so that the check costs nothing. So if an older
//!    release would do something wrong after a step, the step must rename a column that the older release uses: then its
//!    statements fail, and its error says that the tables are newer.

#[cfg(test)]
mod migrations;
#[cfg(test)]
mod tests;
mod upgrade;

use super::{Database, DatabaseConnection, Driver, Transaction};
use crate::error::{Error, Result, TableError};
use hierlock_engine::ErrorClass;
use std::cmp::Ordering;
use std::time::Duration;

/// How long the error path of a statement waits for the version of the tables: all connections may be in use.
const VERSION_QUERY_LIMIT: Duration = Duration::from_secs(2);

/// The tables of one part of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema {
    /// The part: `lease`, `queue`, `locks`.
    pub(crate) part: &'static str,
    pub(crate) command: &'static str,
    /// The step to version 1, then the step from version 1 to 2, and so on.
    pub(crate) steps: &'static [UpgradeStep],
    /// The tables of the newest version.
    pub(crate) tables: fn(Driver) -> &'static [&'static str],
    /// The functions of the newest version, on PostgreSQL.
    pub(crate) functions: &'static [&'static str],
    /// The statement that inserts deleted rows again, at each provisioning.
    pub(crate) rows: fn(Driver) -> Option<String>,
}

/// Returns the statements that upgrade tables from one version to the next, in order; none if there is nothing to do.
pub(crate) type UpgradeStep = fn(Driver) -> Vec<String>;

impl Schema {
    pub(crate) fn newest(&self) -> i64 {
        self.steps.len() as i64
    }

    /// Creates missing tables, and upgrades those of an older release.
    pub(crate) async fn provision(&self, database: &Database) -> Result<()> {
        let upgrade = async |mut tx: Transaction, _| {
            let upgraded = self.upgrade(&mut tx.connection()).await;
            (upgraded.map_err(failed("create or upgrade the tables")).flatten(), tx)
        };
        database.run((*self, ""), upgrade).await
    }

    /// Returns the SQL of [`provision`](Self::provision), for a person to run.
    pub(crate) fn script(&self, driver: Driver) -> String {
        self.statements(driver).iter().map(|statement| format!("{statement};\n")).collect()
    }

    /// Converts the driver's error of a failed statement. Missing tables or columns have their own errors.
    pub(crate) fn failed(self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
        move |source| match ErrorClass::of(&source) {
            ErrorClass::UndefinedTable => TableError::NotProvisioned { schema: self }.into(),
            ErrorClass::UndefinedColumn => {
                TableError::OtherForm { schema: self, doing, source }.into()
            }
            _ => failed(doing)(source),
        }
    }

    /// Fails if the version of the tables is not the newest version of this release.
    pub(crate) fn compare(self, found: i64) -> Result<()> {
        match found.cmp(&self.newest()) {
            Ordering::Less => Err(TableError::Older { schema: self, found }.into()),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(TableError::Newer { schema: self, found }.into()),
        }
    }
}

/// Converts the driver's error of a failed statement. `retry` finds the driver's error in it.
pub(crate) fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
    move |source| TableError::Failed { doing, source }.into()
}

/// Reads the version of the tables after a statement failed because of a missing table or column. Returns a better error
/// if the tables are older or newer than those of this release.
pub(crate) async fn diagnose_schema<T>(database: &Database, done: Result<T>) -> Result<T> {
    let Err(error) = done else { return done };
    let (schema, at_least) = match error.table() {
        Some(TableError::NotProvisioned { schema }) => (*schema, None),
        // Releases that stored no version had version 1.
        Some(TableError::OtherForm { schema, .. }) => (*schema, Some(1)),
        _ => return Err(error),
    };
    let sql = schema.version_query();
    let rows = tokio::time::timeout(VERSION_QUERY_LIMIT, database.rows(&sql, &[])).await;
    let found = match &rows {
        Ok(Ok(rows)) => rows.first().and_then(|row| row.int(0).ok()),
        _ => None,
    };
    let version_error = found.or(at_least).and_then(|found| schema.compare(found).err());
    Err(version_error.unwrap_or(error))
}
