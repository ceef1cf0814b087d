//! From whatever version is there to the newest: one at a time, step by step.

use super::{Kind, Schema, Step, Wire, is_missing_column};
use crate::error::{Result, TableError};
use sqlx::mysql::MySqlDatabaseError;

/// Where the version of each part is written down.
const VERSIONS: &str = "hier_schema_versions";

/// Of all who upgrade tables of ours in a database, one does so at a time.
const LOCK: &str = "hierlock schema";
/// For how many seconds the others wait, on MySQL and MariaDB. An ALTER of a large table takes a while.
const LOCK_WAIT: u32 = 600;

/// Makes the table of versions; may be run again.
pub(super) fn create_versions(kind: Kind) -> String {
    let (part, options) = (kind.text(64), kind.table_options());
    format!(
        "CREATE TABLE IF NOT EXISTS {VERSIONS} (part {part} NOT NULL PRIMARY KEY, version BIGINT \
         NOT NULL){options}"
    )
}

/// Returns the version of a part, or no row.
pub(super) fn read_version(part: &str) -> String {
    format!("SELECT version FROM {VERSIONS} WHERE part = '{part}'")
}

/// Writes a version down. A higher one that is there stays.
pub(super) fn write_version(part: &str, version: i64, kind: Kind) -> String {
    let or_else = match kind {
        Kind::Innodb => format!("ON DUPLICATE KEY UPDATE version = GREATEST(version, {version})"),
        Kind::Postgres => {
            format!(
                "ON CONFLICT (part) DO UPDATE SET version = GREATEST({VERSIONS}.version, {version})"
            )
        }
        Kind::Sqlite => {
            format!("ON CONFLICT (part) DO UPDATE SET version = MAX(version, {version})")
        }
    };
    format!("INSERT INTO {VERSIONS} (part, version) VALUES ('{part}', {version}) {or_else}")
}

/// What makes a version of a part, and writes that down.
pub(super) fn step_statements(part: &str, step: Step, version: i64, kind: Kind) -> Vec<String> {
    let mut statements = step(kind);
    statements.push(write_version(part, version, kind));
    statements
}

impl Schema {
    /// Brings the tables to the newest version, in the transaction that `wire` is in. Fails within if they are newer.
    pub(crate) async fn upgrade(self, wire: &mut Wire<'_>) -> Result<Result<()>, sqlx::Error> {
        if !lock(wire).await? {
            return Ok(Err(TableError::BeingUpgraded { schema: self }.into()));
        }
        let upgraded = self.upgrade_locked(wire).await;
        let unlocked = unlock(wire).await;
        let upgraded = upgraded?;
        unlocked.map(|()| upgraded)
    }

    /// The same in a transaction of its own, on a connection that is in none.
    pub(crate) async fn upgrade_alone(
        self,
        wire: &mut Wire<'_>,
    ) -> Result<Result<()>, sqlx::Error> {
        wire.run(wire.kind().begin()).await?;
        let upgraded = self.upgrade(wire).await;
        let is_upgraded = matches!(upgraded, Ok(Ok(())));
        let ended = wire.run(if is_upgraded { "COMMIT" } else { "ROLLBACK" }).await;
        let upgraded = upgraded?;
        ended.map(|()| upgraded)
    }

    async fn upgrade_locked(self, wire: &mut Wire<'_>) -> Result<Result<()>, sqlx::Error> {
        let kind = wire.kind();
        // Looked for, not just made: whoever may not create tables can upgrade to what is there already.
        if count(wire, &tables_there(kind, &[VERSIONS])).await? == 0 {
            make(wire, &create_versions(kind)).await?;
        }
        let rows = wire.ask(&read_version(self.part)).await?;
        // A release that wrote no version down may have been killed half-way: the first step makes the rest.
        let written = rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0);
        if written > self.newest() {
            return Ok(self.compare(written));
        }
        let mut version = written;
        if version > 0 && !self.is_there(wire).await? {
            // Somebody has dropped a table. If this is cut short, the next one begins from the start as well.
            wire.run(&format!("DELETE FROM {VERSIONS} WHERE part = '{}'", self.part)).await?;
            version = 0;
        }
        for (step, number) in self.steps.iter().zip(1..).filter(|(_, number)| *number > version) {
            for statement in step_statements(self.part, *step, number, kind) {
                make(wire, &statement).await?;
            }
        }
        if let Some(rows) = (self.rows)(kind)
            && version > 0
        {
            wire.run(&rows).await?;
        }
        Ok(Ok(()))
    }

    /// Are all tables and functions there?
    async fn is_there(self, wire: &mut Wire<'_>) -> Result<bool, sqlx::Error> {
        let kind = wire.kind();
        let tables = (self.tables)(kind);
        let mut are_there = count(wire, &tables_there(kind, tables)).await? == tables.len() as i64;
        if kind == Kind::Postgres && !self.functions.is_empty() {
            let functions = list(self.functions);
            let sql = format!(
                "SELECT COUNT(*) FROM unnest(ARRAY[{functions}]) AS f (name) \
                 WHERE to_regproc(f.name) IS NOT NULL"
            );
            are_there &= count(wire, &sql).await? == self.functions.len() as i64;
        }
        Ok(are_there)
    }
}

/// How many of these tables are there, where a statement would find them.
fn tables_there(kind: Kind, tables: &[&str]) -> String {
    let tables = list(tables);
    match kind {
        Kind::Innodb => format!(
            "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND \
             TABLE_NAME IN ({tables})"
        ),
        Kind::Postgres => format!(
            "SELECT COUNT(*) FROM unnest(ARRAY[{tables}]) AS t (name) \
             WHERE to_regclass(t.name) IS NOT NULL"
        ),
        Kind::Sqlite => format!(
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name IN ({tables})"
        ),
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

async fn count(wire: &mut Wire<'_>, sql: &str) -> Result<i64, sqlx::Error> {
    let rows = wire.ask(sql).await?;
    Ok(rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0))
}

/// The name of the lock on MySQL and MariaDB, where locks are the server's, not the database's.
fn lock_name() -> String {
    format!("CONCAT('{LOCK} ', LEFT(SHA2(DATABASE(), 256), 40))")
}

/// Waits until nobody else upgrades tables of ours; `false` if that took too long.
async fn lock(wire: &mut Wire<'_>) -> Result<bool, sqlx::Error> {
    match wire.kind() {
        Kind::Innodb => {
            let sql = format!("SELECT COALESCE(GET_LOCK({}, {LOCK_WAIT}), 0)", lock_name());
            Ok(count(wire, &sql).await? == 1)
        }
        // It is free again when the transaction ends.
        Kind::Postgres => {
            let sql = format!("SELECT pg_advisory_xact_lock(hashtext('{LOCK}'), 0)");
            wire.run(&sql).await.map(|()| true)
        }
        // A writer is alone.
        Kind::Sqlite => Ok(true),
    }
}

async fn unlock(wire: &mut Wire<'_>) -> Result<(), sqlx::Error> {
    match wire.kind() {
        Kind::Innodb => wire.run(&format!("DO RELEASE_LOCK({})", lock_name())).await,
        Kind::Postgres | Kind::Sqlite => Ok(()),
    }
}

/// Runs what may have been run before.
async fn make(wire: &mut Wire<'_>, statement: &str) -> Result<(), sqlx::Error> {
    // A failed statement would end the whole transaction on PostgreSQL.
    let is_postgres = wire.kind() == Kind::Postgres;
    if is_postgres {
        wire.run("SAVEPOINT hierlock").await?;
    }
    match wire.run(statement).await {
        Err(error) if is_made(statement, &error) && is_postgres => {
            wire.run("ROLLBACK TO SAVEPOINT hierlock").await
        }
        Err(error) if is_made(statement, &error) => Ok(()),
        made => made,
    }
}

/// Did it fail because its work is done?
fn is_made(statement: &str, error: &sqlx::Error) -> bool {
    let is_alter = statement.starts_with("ALTER ");
    let Some(database_error) = error.as_database_error() else { return false };
    if is_alter && is_missing_column(error) {
        // The column was renamed or dropped.
        return true;
    }
    match database_error.try_downcast_ref::<MySqlDatabaseError>() {
        // Duplicate column, duplicate key, nothing to drop.
        Some(error) => is_alter && matches!(error.number(), 1060 | 1061 | 1091),
        None => {
            // unique_violation in the catalogue, duplicate_table, duplicate_object, duplicate_column; a function
            // that is replaced by two at once has no code of its own.
            matches!(database_error.code().as_deref(), Some("23505" | "42P07" | "42710" | "42701"))
                || database_error.message().contains("concurrently updated")
                || (is_alter && database_error.message().contains("duplicate column name"))
        }
    }
}
