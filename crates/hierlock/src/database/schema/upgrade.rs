//! Upgrades tables from the stored version to the newest, step by step, with one provisioner at a time.

use super::{DatabaseConnection, Driver, Schema};
use crate::error::{Result, TableError};
use hierlock_engine::ErrorClass;

const VERSIONS: &str = "hier_schema_versions";

/// The advisory lock key of an upgrade, on PostgreSQL.
const UPGRADE_LOCK: &str = "hashtext('hierlock schema'), 0";
/// The lock name on MySQL and MariaDB. It contains the database, since names are shared by the whole server.
const UPGRADE_LOCK_NAME: &str = "CONCAT('hierlock schema ', LEFT(SHA2(DATABASE(), 256), 40))";
/// How many seconds another provisioner waits for the lock. An ALTER of a large table takes a while.
const UPGRADE_LOCK_WAIT: u32 = 600;

/// Returns the statement that creates the table of versions; it can be repeated.
pub(super) fn create_versions(driver: Driver) -> String {
    let (part, options) = (driver.text(64), driver.table_options());
    format!(
        "CREATE TABLE IF NOT EXISTS {VERSIONS} (part {part} NOT NULL PRIMARY KEY, version BIGINT \
         NOT NULL){options}"
    )
}

impl Schema {
    /// Returns the query for the version of its tables, which returns no row if none is stored.
    pub(crate) fn version_query(&self) -> String {
        format!("SELECT version FROM {VERSIONS} WHERE part = '{}'", self.part)
    }

    /// Returns the statement that stores a version, unless a higher one is stored.
    fn store_version(&self, version: i64, driver: Driver) -> String {
        let (conflict, greatest, stored) = match driver {
            Driver::Mysql => ("DUPLICATE KEY UPDATE", "GREATEST", "version"),
            Driver::Postgres => {
                ("CONFLICT (part) DO UPDATE SET", "GREATEST", "hier_schema_versions.version")
            }
            Driver::Sqlite => ("CONFLICT (part) DO UPDATE SET", "MAX", "version"),
        };
        let part = self.part;
        format!(
            "INSERT INTO {VERSIONS} (part, version) VALUES ('{part}', {version}) \
             ON {conflict} version = {greatest}({stored}, {version})"
        )
    }

    /// Returns the statements that upgrade to a version and store it.
    pub(super) fn step(&self, version: i64, driver: Driver) -> Vec<String> {
        let mut statements = self.steps[version as usize - 1](driver);
        statements.push(self.store_version(version, driver));
        statements
    }

    /// Returns all statements that create the newest version, from nothing or from tables without a stored version.
    pub(crate) fn statements(&self, driver: Driver) -> Vec<String> {
        let steps = (1..=self.newest()).flat_map(|version| self.step(version, driver));
        [create_versions(driver)].into_iter().chain(steps).collect()
    }

    /// Upgrades the tables to the newest version, in the transaction of `connection`. The inner result is an error if the
    /// tables are newer.
    pub(crate) async fn upgrade(
        self,
        connection: &mut DatabaseConnection<'_>,
    ) -> sqlx::Result<Result<()>> {
        if !lock(connection).await? {
            return Ok(Err(TableError::BeingUpgraded { schema: self }.into()));
        }
        let upgraded = self.upgrade_locked(connection).await;
        if connection.driver() == Driver::Mysql {
            let unlocked = connection.run(&format!("DO RELEASE_LOCK({UPGRADE_LOCK_NAME})")).await;
            return upgraded.and_then(|upgraded| unlocked.map(|()| upgraded));
        }
        upgraded
    }

    /// Upgrades in a new transaction, on a connection that is in no transaction.
    #[cfg(feature = "_server")]
    pub(crate) async fn upgrade_alone(
        self,
        connection: &mut DatabaseConnection<'_>,
    ) -> sqlx::Result<Result<()>> {
        connection.run(connection.driver().begin()).await?;
        let upgraded = self.upgrade(connection).await;
        let is_upgraded = matches!(upgraded, Ok(Ok(())));
        let ended = connection.run(if is_upgraded { "COMMIT" } else { "ROLLBACK" }).await;
        upgraded.and_then(|upgraded| ended.map(|()| upgraded))
    }

    async fn upgrade_locked(
        self,
        connection: &mut DatabaseConnection<'_>,
    ) -> sqlx::Result<Result<()>> {
        let driver = connection.driver();
        // The table is looked up first: an account without the right to create tables can provision existing ones.
        if number(connection, &count_objects(driver, &[VERSIONS], &[])).await? == 0 {
            run_repeatable(connection, &create_versions(driver)).await?;
        }
        // A release that stored no version may have been killed halfway: the first step creates the rest.
        let mut version = number(connection, &self.version_query()).await?;
        if version > self.newest() {
            return Ok(self.compare(version));
        }
        if version > 0 && !self.is_complete(connection).await? {
            // A table was dropped. If this run is interrupted, the next one starts from the first step as well.
            connection.run(&format!("DELETE FROM {VERSIONS} WHERE part = '{}'", self.part)).await?;
            version = 0;
        }
        for statement in (version + 1..=self.newest()).flat_map(|next| self.step(next, driver)) {
            run_repeatable(connection, &statement).await?;
        }
        if let Some(rows) = (self.rows)(driver)
            && version > 0
        {
            connection.run(&rows).await?;
        }
        Ok(Ok(()))
    }

    async fn is_complete(self, connection: &mut DatabaseConnection<'_>) -> sqlx::Result<bool> {
        let driver = connection.driver();
        let tables = (self.tables)(driver);
        let functions = if driver == Driver::Postgres { self.functions } else { &[] };
        let found = number(connection, &count_objects(driver, tables, functions)).await?;
        Ok(found == (tables.len() + functions.len()) as i64)
    }
}

/// Returns the query for the number of these tables, and of these functions of PostgreSQL, that a statement would find.
fn count_objects(driver: Driver, tables: &[&str], functions: &[&str]) -> String {
    let list = |names: &[&str], function: &str| {
        names.iter().map(|name| format!("{function}('{name}')")).collect::<Vec<_>>()
    };
    let names = list(tables, "").join(", ");
    match driver {
        Driver::Mysql => format!(
            "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND \
             TABLE_NAME IN ({names})"
        ),
        Driver::Postgres => {
            let found = [list(tables, "to_regclass"), list(functions, "to_regproc")].concat();
            format!("SELECT num_nonnulls({})::bigint", found.join(", "))
        }
        Driver::Sqlite => {
            format!("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name IN ({names})")
        }
    }
}

/// Returns the number that a query returns, or 0.
async fn number(connection: &mut DatabaseConnection<'_>, sql: &str) -> sqlx::Result<i64> {
    let rows = connection.packet(sql).await?.rows;
    Ok(rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0))
}

/// Waits until no other provisioner upgrades the tables. Returns `false` if that takes too long.
async fn lock(connection: &mut DatabaseConnection<'_>) -> sqlx::Result<bool> {
    let sql = match connection.driver() {
        Driver::Mysql => {
            format!("SELECT COALESCE(GET_LOCK({UPGRADE_LOCK_NAME}, {UPGRADE_LOCK_WAIT}), 0)")
        }
        // Released at the end of the transaction.
        Driver::Postgres => format!("SELECT 1::bigint FROM pg_advisory_xact_lock({UPGRADE_LOCK})"),
        // There is only one writer.
        Driver::Sqlite => return Ok(true),
    };
    Ok(number(connection, &sql).await? == 1)
}

/// Runs a statement, and ignores an error that says that it was run before.
async fn run_repeatable(
    connection: &mut DatabaseConnection<'_>,
    statement: &str,
) -> sqlx::Result<()> {
    let driver = connection.driver();
    // On PostgreSQL a failed statement would abort the whole transaction.
    if driver == Driver::Postgres {
        connection.run("SAVEPOINT hierlock").await?;
    }
    match connection.run(statement).await {
        Err(error) if !is_already_done(driver, statement, &error) => Err(error),
        Err(_) if driver == Driver::Postgres => {
            connection.run("ROLLBACK TO SAVEPOINT hierlock").await
        }
        _ => Ok(()),
    }
}

fn is_already_done(driver: Driver, statement: &str, error: &sqlx::Error) -> bool {
    let is_alter = statement.starts_with("ALTER ");
    match ErrorClass::of(error) {
        // On MySQL and MariaDB every statement but ALTER is written so that it can be repeated. A duplicate key of a row
        // must not be ignored.
        ErrorClass::Duplicate => is_alter || driver != Driver::Mysql,
        // The column was renamed or dropped.
        ErrorClass::UndefinedColumn => is_alter,
        // PostgreSQL has no specific error code for a function that two sessions replace at once.
        _ => {
            error.as_database_error().is_some_and(|e| e.message().contains("concurrently updated"))
        }
    }
}
