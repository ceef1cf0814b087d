//! From whatever version is there to the newest: one at a time, step by step.

use super::{DatabaseConnection, Driver, Schema};
use crate::error::{Result, TableError};
use hierlock_engine::ErrorClass;

const VERSIONS: &str = "hier_schema_versions";

/// The lock of whoever upgrades tables of ours in a database: one at a time.
const UPGRADE_LOCK: &str = "hashtext('hierlock schema'), 0";
/// The same on MySQL and MariaDB, where locks are the server's, not the database's.
const UPGRADE_LOCK_NAME: &str = "CONCAT('hierlock schema ', LEFT(SHA2(DATABASE(), 256), 40))";
/// For how many seconds the others wait there. An ALTER of a large table takes a while.
const UPGRADE_LOCK_WAIT: u32 = 600;

/// Makes the table of versions; may be run again.
pub(super) fn create_versions(driver: Driver) -> String {
    let (part, options) = (driver.text(64), driver.table_options());
    format!(
        "CREATE TABLE IF NOT EXISTS {VERSIONS} (part {part} NOT NULL PRIMARY KEY, version BIGINT \
         NOT NULL){options}"
    )
}

impl Schema {
    /// Asks for the version of its tables; no row comes back if none is written down.
    pub(crate) fn version_query(&self) -> String {
        format!("SELECT version FROM {VERSIONS} WHERE part = '{}'", self.part)
    }

    /// Writes a version down. A higher one that is there stays.
    fn write_version(&self, version: i64, driver: Driver) -> String {
        let (conflict, greatest, there) = match driver {
            Driver::Mysql => ("DUPLICATE KEY UPDATE", "GREATEST", "version"),
            Driver::Postgres => {
                ("CONFLICT (part) DO UPDATE SET", "GREATEST", "hier_schema_versions.version")
            }
            Driver::Sqlite => ("CONFLICT (part) DO UPDATE SET", "MAX", "version"),
        };
        let part = self.part;
        format!(
            "INSERT INTO {VERSIONS} (part, version) VALUES ('{part}', {version}) \
             ON {conflict} version = {greatest}({there}, {version})"
        )
    }

    /// What makes a version, and writes that down.
    pub(super) fn step(&self, version: i64, driver: Driver) -> Vec<String> {
        let mut statements = self.steps[version as usize - 1](driver);
        statements.push(self.write_version(version, driver));
        statements
    }

    /// All that makes the newest version where there is nothing, or a release that wrote no version down has been.
    pub(crate) fn statements(&self, driver: Driver) -> Vec<String> {
        let steps = (1..=self.newest()).flat_map(|version| self.step(version, driver));
        [create_versions(driver)].into_iter().chain(steps).collect()
    }

    /// Brings the tables to the newest version, in the transaction of `connection`. Fails within if they are newer.
    pub(crate) async fn upgrade(
        self,
        connection: &mut DatabaseConnection<'_>,
    ) -> sqlx::Result<Result<()>> {
        if !lock(connection).await? {
            return Ok(Err(TableError::BeingUpgraded { schema: self }.into()));
        }
        let upgraded = self.upgrade_locked(connection).await;
        let unlocked = unlock(connection).await;
        upgraded.and_then(|upgraded| unlocked.map(|()| upgraded))
    }

    /// The same in a transaction of its own, on a connection that is in none.
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
        // Looked for, not just made: whoever may not create tables can upgrade to what is there already.
        if number(connection, &tables_there(driver, &[VERSIONS])).await? == 0 {
            make(connection, &create_versions(driver)).await?;
        }
        // A release that wrote no version down may have been killed half-way: the first step makes the rest.
        let mut version = number(connection, &self.version_query()).await?;
        if version > self.newest() {
            return Ok(self.compare(version));
        }
        if version > 0 && !self.is_there(connection).await? {
            // Somebody has dropped a table. If this is cut short, the next one begins from the start as well.
            connection.run(&format!("DELETE FROM {VERSIONS} WHERE part = '{}'", self.part)).await?;
            version = 0;
        }
        for statement in (version + 1..=self.newest()).flat_map(|next| self.step(next, driver)) {
            make(connection, &statement).await?;
        }
        if let Some(rows) = (self.rows)(driver)
            && version > 0
        {
            connection.run(&rows).await?;
        }
        Ok(Ok(()))
    }

    async fn is_there(self, connection: &mut DatabaseConnection<'_>) -> sqlx::Result<bool> {
        let driver = connection.driver();
        let tables = (self.tables)(driver);
        let found = number(connection, &tables_there(driver, tables)).await?;
        if found != tables.len() as i64 || driver != Driver::Postgres || self.functions.is_empty() {
            return Ok(found == tables.len() as i64);
        }
        let found = number(connection, &found_by("to_regproc", self.functions)).await?;
        Ok(found == self.functions.len() as i64)
    }
}

/// How many of these tables are there, where a statement would find them.
fn tables_there(driver: Driver, tables: &[&str]) -> String {
    match driver {
        Driver::Mysql => format!(
            "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND \
             TABLE_NAME IN ({})",
            list(tables)
        ),
        Driver::Postgres => found_by("to_regclass", tables),
        Driver::Sqlite => {
            let list = list(tables);
            format!("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name IN ({list})")
        }
    }
}

/// How many of these names a function of PostgreSQL finds.
fn found_by(function: &str, names: &[&str]) -> String {
    let names = list(names);
    format!(
        "SELECT COUNT(*) FROM unnest(ARRAY[{names}]) AS t (name) WHERE {function}(name) IS NOT NULL"
    )
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// The number that a query returns, or 0.
async fn number(connection: &mut DatabaseConnection<'_>, sql: &str) -> sqlx::Result<i64> {
    let rows = connection.packet(sql).await?.rows;
    Ok(rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0))
}

/// Waits until nobody else upgrades tables of ours; `false` if that took too long.
async fn lock(connection: &mut DatabaseConnection<'_>) -> sqlx::Result<bool> {
    match connection.driver() {
        Driver::Mysql => {
            let lock = format!("GET_LOCK({UPGRADE_LOCK_NAME}, {UPGRADE_LOCK_WAIT})");
            Ok(number(connection, &format!("SELECT COALESCE({lock}, 0)")).await? == 1)
        }
        // It is free again when the transaction ends.
        Driver::Postgres => {
            let sql = format!("SELECT pg_advisory_xact_lock({UPGRADE_LOCK})");
            connection.run(&sql).await.map(|()| true)
        }
        // A writer is alone.
        Driver::Sqlite => Ok(true),
    }
}

async fn unlock(connection: &mut DatabaseConnection<'_>) -> sqlx::Result<()> {
    if connection.driver() == Driver::Mysql {
        connection.run(&format!("DO RELEASE_LOCK({UPGRADE_LOCK_NAME})")).await?;
    }
    Ok(())
}

/// Runs what may have been run before.
async fn make(connection: &mut DatabaseConnection<'_>, statement: &str) -> sqlx::Result<()> {
    let driver = connection.driver();
    // A failed statement would end the whole transaction on PostgreSQL.
    if driver == Driver::Postgres {
        connection.run("SAVEPOINT hierlock").await?;
    }
    match connection.run(statement).await {
        Err(error) if !is_made(driver, statement, &error) => Err(error),
        Err(_) if driver == Driver::Postgres => {
            connection.run("ROLLBACK TO SAVEPOINT hierlock").await
        }
        _ => Ok(()),
    }
}

/// Returns whether a statement failed because its work is done.
fn is_made(driver: Driver, statement: &str, error: &sqlx::Error) -> bool {
    let is_alter = statement.starts_with("ALTER ");
    match ErrorClass::of(error) {
        // On MySQL and MariaDB all but ALTER is written so that it may be run again; that the key of a row is there
        // twice must not pass.
        ErrorClass::Duplicate => is_alter || driver != Driver::Mysql,
        // The column was renamed or dropped.
        ErrorClass::UndefinedColumn => is_alter,
        // A function of PostgreSQL that is replaced by two at once has no code of its own.
        _ => {
            error.as_database_error().is_some_and(|e| e.message().contains("concurrently updated"))
        }
    }
}
