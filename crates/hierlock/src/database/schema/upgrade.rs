//! From whatever version is there to the newest: one at a time, step by step.

use super::{DatabaseConnection, Driver, Schema};
use crate::error::{Result, TableError};
use hierlock_engine::ErrorClass;

/// Where the version of each part is written down.
const VERSIONS: &str = "hier_schema_versions";

/// The lock of whoever upgrades tables of ours in a database: one at a time.
const UPGRADE_LOCK: &str = "hierlock schema";
/// For how many seconds the others wait, on MySQL and MariaDB. An ALTER of a large table takes a while.
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

    /// Brings the tables to the newest version, in the transaction that `connection` is in. Fails within if they are newer.
    pub(crate) async fn upgrade(
        self,
        connection: &mut DatabaseConnection<'_>,
    ) -> Result<Result<()>, sqlx::Error> {
        if !lock(connection).await? {
            return Ok(Err(TableError::BeingUpgraded { schema: self }.into()));
        }
        let upgraded = self.upgrade_locked(connection).await;
        let unlocked = unlock(connection).await;
        let upgraded = upgraded?;
        unlocked.map(|()| upgraded)
    }

    #[cfg(feature = "_server")]
    /// The same in a transaction of its own, on a connection that is in none.
    pub(crate) async fn upgrade_alone(
        self,
        connection: &mut DatabaseConnection<'_>,
    ) -> Result<Result<()>, sqlx::Error> {
        connection.run(connection.driver().begin()).await?;
        let upgraded = self.upgrade(connection).await;
        let is_upgraded = matches!(upgraded, Ok(Ok(())));
        let ended = connection.run(if is_upgraded { "COMMIT" } else { "ROLLBACK" }).await;
        let upgraded = upgraded?;
        ended.map(|()| upgraded)
    }

    async fn upgrade_locked(
        self,
        connection: &mut DatabaseConnection<'_>,
    ) -> Result<Result<()>, sqlx::Error> {
        let driver = connection.driver();
        // Looked for, not just made: whoever may not create tables can upgrade to what is there already.
        if count(connection, &tables_there(driver, &[VERSIONS])).await? == 0 {
            make(connection, &create_versions(driver)).await?;
        }
        let rows = connection.packet(&self.version_query()).await?.rows;
        // A release that wrote no version down may have been killed half-way: the first step makes the rest.
        let written = rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0);
        if written > self.newest() {
            return Ok(self.compare(written));
        }
        let mut version = written;
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

    /// Returns whether all tables and functions are there.
    async fn is_there(self, connection: &mut DatabaseConnection<'_>) -> Result<bool, sqlx::Error> {
        let driver = connection.driver();
        let tables = (self.tables)(driver);
        let mut are_there =
            count(connection, &tables_there(driver, tables)).await? == tables.len() as i64;
        if driver == Driver::Postgres && !self.functions.is_empty() {
            let functions = list(self.functions);
            let sql = format!(
                "SELECT COUNT(*) FROM unnest(ARRAY[{functions}]) AS f (name) \
                 WHERE to_regproc(f.name) IS NOT NULL"
            );
            are_there &= count(connection, &sql).await? == self.functions.len() as i64;
        }
        Ok(are_there)
    }
}

/// How many of these tables are there, where a statement would find them.
fn tables_there(driver: Driver, tables: &[&str]) -> String {
    let tables = list(tables);
    match driver {
        Driver::Mysql => format!(
            "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND \
             TABLE_NAME IN ({tables})"
        ),
        Driver::Postgres => format!(
            "SELECT COUNT(*) FROM unnest(ARRAY[{tables}]) AS t (name) \
             WHERE to_regclass(t.name) IS NOT NULL"
        ),
        Driver::Sqlite => format!(
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name IN ({tables})"
        ),
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

async fn count(connection: &mut DatabaseConnection<'_>, sql: &str) -> Result<i64, sqlx::Error> {
    let rows = connection.packet(sql).await?.rows;
    Ok(rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0))
}

/// The name of the lock on MySQL and MariaDB, where locks are the server's, not the database's.
fn lock_name() -> String {
    format!("CONCAT('{UPGRADE_LOCK} ', LEFT(SHA2(DATABASE(), 256), 40))")
}

/// Waits until nobody else upgrades tables of ours; `false` if that took too long.
async fn lock(connection: &mut DatabaseConnection<'_>) -> Result<bool, sqlx::Error> {
    match connection.driver() {
        Driver::Mysql => {
            let sql = format!("SELECT COALESCE(GET_LOCK({}, {UPGRADE_LOCK_WAIT}), 0)", lock_name());
            Ok(count(connection, &sql).await? == 1)
        }
        // It is free again when the transaction ends.
        Driver::Postgres => {
            let sql = format!("SELECT pg_advisory_xact_lock(hashtext('{UPGRADE_LOCK}'), 0)");
            connection.run(&sql).await.map(|()| true)
        }
        // A writer is alone.
        Driver::Sqlite => Ok(true),
    }
}

async fn unlock(connection: &mut DatabaseConnection<'_>) -> Result<(), sqlx::Error> {
    match connection.driver() {
        Driver::Mysql => connection.run(&format!("DO RELEASE_LOCK({})", lock_name())).await,
        Driver::Postgres | Driver::Sqlite => Ok(()),
    }
}

/// Runs what may have been run before.
async fn make(connection: &mut DatabaseConnection<'_>, statement: &str) -> Result<(), sqlx::Error> {
    // A failed statement would end the whole transaction on PostgreSQL.
    let is_postgres = connection.driver() == Driver::Postgres;
    if is_postgres {
        connection.run("SAVEPOINT hierlock").await?;
    }
    match connection.run(statement).await {
        Err(error) if !is_made(statement, &error) => Err(error),
        Err(_) if is_postgres => connection.run("ROLLBACK TO SAVEPOINT hierlock").await,
        _ => Ok(()),
    }
}

/// Returns whether a statement failed because its work is done.
fn is_made(statement: &str, error: &sqlx::Error) -> bool {
    let is_alter = statement.starts_with("ALTER ");
    match ErrorClass::of(error) {
        // On MySQL and MariaDB all but ALTER is written so that it may be run again.
        ErrorClass::Duplicate => is_alter || !is_innodb(error),
        // The column was renamed or dropped.
        ErrorClass::UndefinedColumn => is_alter,
        // A function of PostgreSQL that is replaced by two at once has no code of its own.
        _ => {
            error.as_database_error().is_some_and(|e| e.message().contains("concurrently updated"))
        }
    }
}

/// Returns whether MySQL or MariaDB said it. Their rows are made by statements that report a duplicate key, and that must not pass.
fn is_innodb(error: &sqlx::Error) -> bool {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.as_database_error() {
        return error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().is_some();
    }
    let _ = error;
    false
}
