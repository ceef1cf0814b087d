//! Tables of ours: how they are made and upgraded, and what it means that one is missing.
//!
//! ```text
//!   part `lease`   step 1 ─► step 2 ─► …       hier_schema_versions
//!   part `queue`   step 1 ─► …                   lease  2
//!   part `locks`   step 1 ─► …                   queue  1
//!                                                locks  1
//! ```
//!
//! Provisioning runs the steps behind the version that is written down, in order, and writes the new version down
//! after each (`upgrade.rs`). The same steps are files for `sqlx migrate` (`migrations.rs`).
//!
//! Rules for whoever adds a step:
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

use super::{Database, DatabaseConnection, Driver};
use crate::error::{Error, Result, TableError};
use hierlock_engine::ErrorClass;
use std::time::Duration;

/// How long a failed statement waits to learn the version of the tables: all connections may be in use.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// The tables of one part of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema {
    /// The part: `lease`, `queue`, `locks`.
    pub(crate) part: &'static str,
    /// The command that makes its tables.
    pub(crate) command: &'static str,
    /// What makes version 1, then what makes version 2 of it, and so on.
    pub(crate) steps: &'static [Step],
    /// The tables of the newest version.
    pub(crate) tables: fn(Driver) -> &'static [&'static str],
    /// The functions of the newest version, on PostgreSQL.
    pub(crate) functions: &'static [&'static str],
    /// What fills in rows that somebody has deleted, at each provisioning.
    pub(crate) rows: fn(Driver) -> Option<String>,
}

/// The statements that bring tables from one version to the next, in order. None where there is nothing to do.
pub(crate) type Step = fn(Driver) -> Vec<String>;

impl Schema {
    /// The newest version that this release knows.
    pub(crate) fn newest(&self) -> i64 {
        self.steps.len() as i64
    }

    /// Asks for the version of its tables; no row comes back if none is written down.
    pub(crate) fn version_query(&self) -> String {
        upgrade::read_version(self.part)
    }

    /// Makes what is not there yet, and upgrades what an older release has made.
    pub(crate) async fn provision(&self, database: &Database) -> Result<()> {
        let schema = *self;
        let provisioned = database.run(|tx| {
            Box::pin(async move {
                let upgraded = schema.upgrade(&mut tx.connection()).await;
                upgraded.map_err(failed("make the tables"))?
            })
        });
        provisioned.await
    }

    /// The same, for a person to run.
    pub(crate) fn script(&self, driver: Driver) -> String {
        self.statements(driver).iter().map(|statement| format!("{statement};\n")).collect()
    }

    /// All that makes the newest version where there is nothing, or a release that wrote no version down has been.
    pub(crate) fn statements(&self, driver: Driver) -> Vec<String> {
        let steps = (self.steps.iter().zip(1..)).flat_map(|(step, version)| {
            upgrade::step_statements(self.part, *step, version, driver)
        });
        [upgrade::create_versions(driver)].into_iter().chain(steps).collect()
    }

    /// Says so if it was the tables that were missing, or not as they are known.
    fn explain(self, error: Error) -> Error {
        let Some(table_error) = error.table() else { return error };
        match table_error {
            TableError::Failed { source, .. } => match ErrorClass::of(source) {
                ErrorClass::UndefinedTable => TableError::NotProvisioned { schema: self }.into(),
                ErrorClass::UndefinedColumn => error.in_other_form(self),
                _ => error,
            },
            _ => error,
        }
    }

    /// The same; asks the database which version they have.
    pub(crate) async fn diagnosed<T>(self, database: &Database, done: Result<T>) -> Result<T> {
        diagnosed(database, done.map_err(|error| self.explain(error))).await
    }

    /// A failed statement as an error of ours, which says so if the tables are missing, or not as they are known.
    pub(crate) fn failed(self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
        move |source| self.explain(failed(doing)(source))
    }

    /// The same for a statement that the database has run by itself: it is asked which version the tables have.
    pub(crate) async fn checked<T>(
        self,
        database: &Database,
        doing: &'static str,
        done: Result<T, sqlx::Error>,
    ) -> Result<T> {
        diagnosed(database, done.map_err(self.failed(doing))).await
    }
}

/// A failed statement as an error of ours, which `retry` can read.
pub(crate) fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
    move |source| TableError::Failed { doing, source }.into()
}

/// Says that the tables are older or newer than this release knows them, if that is why a statement has failed.
pub(crate) async fn diagnosed<T>(database: &Database, done: Result<T>) -> Result<T> {
    match done {
        Ok(done) => Ok(done),
        Err(error) => Err(diagnose(database, error).await),
    }
}

async fn diagnose(database: &Database, error: Error) -> Error {
    let (schema, at_least) = match error.table() {
        Some(TableError::NotProvisioned { schema }) => (*schema, None),
        // Releases that wrote no version down had the first.
        Some(TableError::OtherForm { schema, .. }) => (*schema, Some(1)),
        _ => return error,
    };
    let sql = schema.version_query();
    let asked = tokio::time::timeout(ASK_LIMIT, database.fetch(&sql, &[])).await;
    let found = match &asked {
        Ok(Ok(rows)) => rows.first().and_then(|row| row.int(0).ok()),
        _ => None,
    };
    match found.or(at_least) {
        Some(found) => schema.compare(found).err().unwrap_or(error),
        None => error,
    }
}

impl Schema {
    /// Fails if the tables have another version than the newest that is known.
    pub(crate) fn compare(self, found: i64) -> Result<()> {
        match found.cmp(&self.newest()) {
            std::cmp::Ordering::Less => Err(TableError::Older { schema: self, found }.into()),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(TableError::Newer { schema: self, found }.into()),
        }
    }
}
