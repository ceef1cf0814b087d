//! Tables of ours: how they are made and upgraded, and what it means that one is missing.
//!
//! ```text
//!   part `lease`   step 1 ─► step 2 ─► …       hier_schema_versions
//!   part `queue`   step 1 ─► …                   lease  2
//!   part `locks`   step 1 ─► …                   queue  1
//!                                                locks  1
//! ```
//!
//! Provisioning runs the steps behind the version that is written down, in order, and writes the new version down after
//! each (`upgrade.rs`). The same steps are files for `sqlx migrate` (`migrations.rs`). For whoever adds a step:
//!
//! 1. A step that was released is never changed. The next version is another step.
//! 2. Its statements may be run again. MySQL and MariaDB commit each of them, so whoever is killed in between begins
//!    the step again. An ALTER that finds its work done is passed over.
//! 3. A client asks for the version only when a statement of its own fails, so that it costs nothing. So a step after
//!    which an older release would do the wrong thing renames a column that this release names: then its statements
//!    fail, and it says that the tables are newer.

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

/// How long a failed statement waits to learn the version of the tables: all connections may be in use.
const VERSION_QUERY_LIMIT: Duration = Duration::from_secs(2);

/// The tables of one part of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema {
    /// The part: `lease`, `queue`, `locks`.
    pub(crate) part: &'static str,
    pub(crate) command: &'static str,
    /// What makes version 1, then what makes version 2 of it, and so on.
    pub(crate) steps: &'static [UpgradeStep],
    /// The tables of the newest version.
    pub(crate) tables: fn(Driver) -> &'static [&'static str],
    /// The functions of the newest version, on PostgreSQL.
    pub(crate) functions: &'static [&'static str],
    /// What fills in rows that somebody has deleted, at each provisioning.
    pub(crate) rows: fn(Driver) -> Option<String>,
}

/// The statements that bring tables from one version to the next, in order. None where there is nothing to do.
pub(crate) type UpgradeStep = fn(Driver) -> Vec<String>;

impl Schema {
    pub(crate) fn newest(&self) -> i64 {
        self.steps.len() as i64
    }

    /// Makes what is not there yet, and upgrades what an older release has made.
    pub(crate) async fn provision(&self, database: &Database) -> Result<()> {
        let upgrade = async |mut tx: Transaction, _| {
            let upgraded = self.upgrade(&mut tx.connection()).await;
            (upgraded.map_err(failed("make the tables")).flatten(), tx)
        };
        database.run((*self, ""), upgrade).await
    }

    /// The same, for a person to run.
    pub(crate) fn script(&self, driver: Driver) -> String {
        self.statements(driver).iter().map(|statement| format!("{statement};\n")).collect()
    }

    /// A failed statement as an error of ours, which says so if the tables are missing, or not as they are known.
    pub(crate) fn failed(self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
        move |source| match ErrorClass::of(&source) {
            ErrorClass::UndefinedTable => TableError::NotProvisioned { schema: self }.into(),
            ErrorClass::UndefinedColumn => {
                TableError::OtherForm { schema: self, doing, source }.into()
            }
            _ => failed(doing)(source),
        }
    }

    /// Fails if the tables have another version than the newest that is known.
    pub(crate) fn compare(self, found: i64) -> Result<()> {
        match found.cmp(&self.newest()) {
            Ordering::Less => Err(TableError::Older { schema: self, found }.into()),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(TableError::Newer { schema: self, found }.into()),
        }
    }
}

/// A failed statement as an error of ours, which `retry` can read.
pub(crate) fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
    move |source| TableError::Failed { doing, source }.into()
}

/// Asks the database, after a failed statement, whether its tables are older or newer than this release knows them.
pub(crate) async fn diagnosed<T>(database: &Database, done: Result<T>) -> Result<T> {
    let Err(error) = done else { return done };
    let (schema, at_least) = match error.table() {
        Some(TableError::NotProvisioned { schema }) => (*schema, None),
        // Releases that wrote no version down had the first.
        Some(TableError::OtherForm { schema, .. }) => (*schema, Some(1)),
        _ => return Err(error),
    };
    let sql = schema.version_query();
    let asked = tokio::time::timeout(VERSION_QUERY_LIMIT, database.rows(&sql, &[])).await;
    let found = match &asked {
        Ok(Ok(rows)) => rows.first().and_then(|row| row.int(0).ok()),
        _ => None,
    };
    let is_other = found.or(at_least).and_then(|found| schema.compare(found).err());
    Err(is_other.unwrap_or(error))
}
