//! The lock tables of a database, with their agreements.

use crate::Hierarchy;
use crate::sql::agreement::{Agreement, COLUMNS};
use crate::sql::pool::fail_if_lost;
use crate::sql::scheme::{DEFAULT_SPACE, KEY_VERSION, META_TABLE};
use crate::sql::{Dialect, Scheme, Strategy};
use hierlock_engine::sessions::current_database;
use hierlock_engine::{ErrorClass, SessionRef, cell, error_message};

/// A lock table, or the advisory keys of a database. Its scheme has default levels, which do not matter for slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockTable {
    pub(super) scheme: Scheme,
    /// The schema of the table; for advisory keys the database.
    pub(super) schema: String,
    /// The oid of the table on PostgreSQL, which is the first number of its update keys.
    pub(super) oid: Option<u32>,
}

impl LockTable {
    pub(super) fn new(scheme: Scheme, schema: impl Into<String>) -> Self {
        Self { scheme, schema: schema.into(), oid: None }
    }

    /// Returns whether clients lock rows of it, and not advisory keys.
    pub(super) fn has_rows(&self) -> bool {
        self.scheme.strategy != Strategy::Advisory
    }
}

/// The lock tables of a database, and notes about them for a person.
#[derive(Clone, Debug, Default)]
pub(super) struct LockTables {
    /// The database, if one is chosen.
    pub(super) database: Option<String>,
    pub(super) tables: Vec<LockTable>,
    pub(super) notes: Vec<String>,
}

impl LockTables {
    /// Reads all lock tables of a database. Advisory keys are included without an agreement, since they need none.
    pub(super) async fn read(session: &mut SessionRef<'_>) -> sqlx::Result<Self> {
        let mut found = Self::default();
        let database = session.rows(current_database(session.dialect)).await?.concat().concat();
        found.database = Some(database.clone()).filter(|name| !name.is_empty());
        let rows = session.rows(&format!("SELECT {COLUMNS} FROM {META_TABLE}")).await;
        let rows = fail_if_lost(rows)?.unwrap_or_else(|error| {
            if ErrorClass::of(&error) != ErrorClass::UndefinedTable {
                let why = error_message(&error);
                found.notes.push(format!(
                    "{META_TABLE} could not be read, so buckets have no paths: {why}"
                ));
            }
            Vec::new()
        });
        for agreement in rows.iter().filter_map(|row| Agreement::parse(row)) {
            match scheme_of(session.dialect, &agreement) {
                Some(scheme) => found.tables.push(LockTable::new(scheme, &*database)),
                None => found.notes.push(format!(
                    "the locks of `{}` in {META_TABLE} are of another release of hierlock, and have no paths here",
                    agreement.space
                )),
            }
        }
        if session.dialect == Dialect::Postgres {
            found.find_schemas(session).await?;
            if found.tables.iter().all(LockTable::has_rows) {
                found.tables.push(LockTable::new(Scheme::new(Dialect::Postgres), database));
            }
        }
        Ok(found)
    }

    /// Finds the schemas of tables on PostgreSQL: for each name the first on the search path.
    async fn find_schemas(&mut self, session: &mut SessionRef<'_>) -> sqlx::Result<()> {
        let with_rows = self.tables.iter().filter(|table| table.has_rows());
        // Table names are plain, so they need no escaping.
        let name = |table: &LockTable| format!("('{}')", table.scheme.rows_table());
        let names: Vec<String> = with_rows.map(name).collect();
        if names.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT t.name, n.nspname, c.oid FROM (VALUES {}) t(name) \
             JOIN pg_class c ON c.oid = to_regclass(t.name) \
             JOIN pg_namespace n ON n.oid = c.relnamespace",
            names.join(", ")
        );
        let rows = session.cells(&sql).await?;
        self.tables.retain_mut(|table| {
            if !table.has_rows() {
                return true;
            }
            let name = table.scheme.rows_table();
            let Some(row) = rows.iter().find(|row| cell(row, 0) == name) else { return false };
            table.schema = cell(row, 1).to_owned();
            table.oid = cell(row, 2).parse().ok();
            true
        });
        Ok(())
    }

    /// Returns the lock tables of PostgreSQL with a strategy that locks rows.
    pub(super) fn row_tables(&self) -> impl Iterator<Item = &LockTable> {
        let is_postgres = |table: &&LockTable| table.scheme.dialect == Dialect::Postgres;
        self.tables.iter().filter(is_postgres).filter(|table| table.has_rows())
    }
}

/// Returns the scheme of an agreement. `None` if it has another key version, or is invalid.
fn scheme_of(dialect: Dialect, agreement: &Agreement) -> Option<Scheme> {
    if agreement.key_version != KEY_VERSION {
        return None;
    }
    let scheme = Scheme::new(dialect).strategy(agreement.strategy.parse().ok()?).ok()?;
    // If the name of a level contains a slash, the levels differ here. Slots do not depend on them.
    let levels = Hierarchy::new(agreement.levels.split('/')).unwrap_or_default();
    let mut scheme = scheme.hierarchy(levels);
    scheme.follow(agreement);
    let is_default = agreement.space == DEFAULT_SPACE;
    if is_default { Some(scheme) } else { scheme.table(&agreement.space).ok() }
}
