//! A table whose rows have a version, and operations on one of its rows in a transaction.

use super::changes::{Changes, Term};
use super::outcome::{OptimisticError, UpdateOutcome, VersionCheck};
use super::statement::RowStatement;
use crate::database::{
    AnyTransaction, DatabaseConnection, Driver, LockWaitPolicy, RowLock, Value, check_name,
    check_table_name, failed,
};
use crate::error::{Error, Result};
use crate::retry::{RetryCause, Retryable as _};
use sqlx::SqlSafeStr;

/// A table and its version column, which is an integer of any width and never NULL.
///
/// ```
/// # fn main() -> hierlock::Result<()> {
/// use hierlock::optimistic::VersionedTable;
///
/// let seats = VersionedTable::new("cinema.seats", "version")?;
/// let seat = seats.row("hall", "A")?.and("number", 7)?;
/// # let _ = seat;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VersionedTable {
    pub(super) name: String,
    pub(super) version: String,
}

impl VersionedTable {
    /// Names a table, optionally with its schema before a dot, and its version column. Fails if a name is invalid. Names are
    /// quoted and used as written: on PostgreSQL they are in lower case, unless they were created in quotes.
    pub fn new(table: &str, version: &str) -> Result<Self> {
        check_table_name(table)?;
        check_name(version)?;
        Ok(Self { name: table.to_owned(), version: version.to_owned() })
    }

    /// Returns the row with this key; [`and`](VersionedRow::and) adds a column to the key. The columns must be those of a
    /// primary key or a unique index, and the value must have the type of its column: to compare text with a number MySQL
    /// reads all rows. Fails if the column name is invalid, or the value is NULL. If the column is the version column, the
    /// use of the row fails, since it depends on the engine whether two names are the same.
    pub fn row(&self, column: &str, value: impl Into<Value>) -> Result<VersionedRow> {
        self.row_with(Term::value(column, value))
    }

    /// Returns the row whose key is the value of an SQL expression, with a value for each `?` in it: for types that
    /// [`Value`] does not have, such as `CAST(? AS uuid)`. Fails also if there is not a value for each `?`.
    pub fn row_expr(
        &self,
        column: &str,
        expression: impl SqlSafeStr,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<VersionedRow> {
        self.row_with(Term::expression(column, expression, values))
    }

    fn row_with(&self, term: Term) -> Result<VersionedRow> {
        VersionedRow { table: self.clone(), key: Vec::new() }.with(term)
    }

    /// Returns the error for the version column where it is not allowed.
    pub(super) fn version_column_error(&self, why: &'static str) -> Error {
        let Self { name: table, version: column } = self.clone();
        OptimisticError::VersionColumn { table, column, why }.into()
    }
}

/// What to do when another transaction has locked a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WaitPolicy {
    /// Wait for the lock, as long as the database allows.
    #[default]
    Wait,
    /// Fail at once.
    NoWait,
}

/// One row of a [`VersionedTable`], identified by its key.
///
/// All methods run in the caller's transaction, and their changes are durable when it is committed. After `Stale` or
/// `Missing` the row is unchanged and the transaction is still open: usually it should be rolled back.
///
/// # Errors
/// The errors of the database, which [`retry`](mod@crate::retry) classifies. At REPEATABLE READ, PostgreSQL reports a
/// changed row as an error (40001), and so does MariaDB if it is configured to (1020).
///
/// # Cancel safety
/// If a future is dropped, the row may or may not be changed: drop the transaction too, which rolls back.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedRow {
    pub(super) table: VersionedTable,
    pub(super) key: Vec<Term>,
}

impl VersionedRow {
    /// Adds a column to the key. Fails if the name is invalid or in the key already, or if the value is NULL.
    pub fn and(self, column: &str, value: impl Into<Value>) -> Result<Self> {
        self.with(Term::value(column, value))
    }

    /// Adds a column to the key, as [`row_expr`](VersionedTable::row_expr).
    pub fn and_expr(
        self,
        column: &str,
        expression: impl SqlSafeStr,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Self> {
        self.with(Term::expression(column, expression, values))
    }

    pub(super) fn with(mut self, term: Term) -> Result<Self> {
        term.check_on_any()?;
        let column = || term.column.clone();
        if self.key.iter().any(|key| key.column == term.column) {
            return Err(OptimisticError::DuplicateColumn { column: column() }.into());
        }
        if !term.is_expression() && term.values.iter().any(Value::is_null) {
            return Err(OptimisticError::NullKey { column: column() }.into());
        }
        self.key.push(term);
        Ok(self)
    }

    /// Returns the version of the row, as the transaction sees it; `None` if the row does not exist.
    ///
    /// Data that was read *before* the version may be older than the version. Read both with one SELECT. Fails if the
    /// version is NULL or not an integer, or if several rows have the key.
    pub async fn version(&self, tx: &mut impl AnyTransaction) -> Result<Option<i64>> {
        self.read(&mut tx.connection(), None).await
    }

    /// Changes the row if it has the expected version, and increments the version, in one statement. Without any changes
    /// this is [`bump_if`](Self::bump_if).
    ///
    /// If the row has another version, that version is read with a row lock, so it is the latest even if the transaction
    /// sees an old snapshot. Fails if the changes contain the version column or a key column.
    pub async fn update(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
        changes: Changes,
    ) -> Result<UpdateOutcome> {
        let next = expected.checked_add(1).ok_or(OptimisticError::MaxVersion { expected })?;
        let mut connection = tx.connection();
        let update = self.update_statement(connection.driver(), changes, Some(expected))?;
        let checked = self.write(&mut connection, update, expected, "change the row").await?;
        Ok(checked.then_updated_to(next))
    }

    /// Deletes the row if it has the expected version.
    pub async fn delete(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
    ) -> Result<VersionCheck> {
        let mut connection = tx.connection();
        let delete = self.delete_statement(connection.driver(), expected)?;
        self.write(&mut connection, delete, expected, "delete the row").await
    }

    /// Increments the version without a check, and changes nothing else: for a parent whose child was added, changed or
    /// removed. Returns the new version; `None` if the row does not exist.
    pub async fn bump(&self, tx: &mut impl AnyTransaction) -> Result<Option<i64>> {
        let mut connection = tx.connection();
        let bump = self.update_statement(connection.driver(), Changes::new(), None)?;
        match self.run(&mut connection, &bump, "raise the version").await? {
            0 => Ok(None),
            // A transaction sees its own change at every isolation level.
            _ => self.read(&mut connection, None).await,
        }
    }

    /// Increments the version if the row has the expected version, and changes nothing else.
    pub async fn bump_if(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
    ) -> Result<UpdateOutcome> {
        self.update(tx, expected, Changes::new()).await
    }

    /// Locks the row until the transaction ends, even if it is stale, and compares its version. A current row stays current
    /// while it is locked. The lock changes neither the row nor its version. On SQLite the whole database is locked against
    /// writers; a transaction that was begun with BEGIN IMMEDIATE has that lock already.
    ///
    /// # Errors
    /// With [`WaitPolicy::NoWait`], [`is_would_block`](Error::is_would_block) if another transaction has locked the row; on
    /// PostgreSQL the transaction can only be rolled back then. On SQLite the blocker is another writer, for which a
    /// transaction that was begun without IMMEDIATE waits for its `busy_timeout`.
    pub async fn lock(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
        wait: WaitPolicy,
    ) -> Result<VersionCheck> {
        let mut connection = tx.connection();
        let policy =
            if wait == WaitPolicy::Wait { LockWaitPolicy::Wait } else { LockWaitPolicy::Fail };
        if connection.driver() == Driver::Sqlite {
            let sql = self.lock_database()?;
            connection.execute(&sql, []).await.map_err(|source| self.read_error(source, policy))?;
        }
        let found = self.read(&mut connection, Some((RowLock::Exclusive, policy))).await?;
        Ok(VersionCheck::new(expected, found))
    }

    /// Runs a statement that changes the row only at the expected version. If it changes nothing, reads the reason.
    async fn write(
        &self,
        connection: &mut DatabaseConnection<'_>,
        statement: RowStatement,
        expected: i64,
        doing: &'static str,
    ) -> Result<VersionCheck> {
        // Tries again if the row got the expected version meanwhile; then it is locked.
        for _ in 0..2 {
            if self.run(connection, &statement, doing).await? > 0 {
                return Ok(VersionCheck::Current);
            }
            let found =
                self.read(connection, Some((RowLock::Update, LockWaitPolicy::Wait))).await?;
            let check = VersionCheck::new(expected, found);
            if check != VersionCheck::Current {
                return Ok(check);
            }
        }
        Err(OptimisticError::NotUpdated { table: self.table.name.clone(), expected }.into())
    }

    /// Runs a statement and returns the number of changed rows: one or none.
    async fn run(
        &self,
        connection: &mut DatabaseConnection<'_>,
        (sql, values): &RowStatement,
        doing: &'static str,
    ) -> Result<u64> {
        let done = connection.execute(sql, values.iter().cloned()).await.map_err(failed(doing))?;
        self.check_row_count(done.rows)
    }

    async fn read(
        &self,
        connection: &mut DatabaseConnection<'_>,
        lock: Option<(RowLock, LockWaitPolicy)>,
    ) -> Result<Option<i64>> {
        let (sql, values) = self.select_statement(connection.driver(), lock)?;
        let rows = connection.fetch(&sql, values).await;
        let policy = lock.map_or(LockWaitPolicy::Wait, |(_, policy)| policy);
        let rows = rows.map_err(|source| self.read_error(source, policy))?;
        self.check_row_count(rows.len() as u64)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let version = row.any_int(0).and_then(|version| version.ok_or_else(|| "NULL".to_owned()));
        version.map(Some).map_err(|found| {
            let VersionedTable { name: table, version: column } = self.table.clone();
            OptimisticError::NotAVersion { table, column, found }.into()
        })
    }

    /// Converts the driver's error. MariaDB has the same error code for a lock wait timeout and for NOWAIT, so the policy
    /// decides.
    fn read_error(&self, source: sqlx::Error, policy: LockWaitPolicy) -> Error {
        let is_held =
            source.retry_cause() == Some(RetryCause::NotGranted) || is_other_writer(&source);
        if policy == LockWaitPolicy::Fail && is_held {
            return OptimisticError::WouldBlock { table: self.table.name.clone(), source }.into();
        }
        failed("read the version")(source)
    }

    /// Fails if more than one row has the key.
    fn check_row_count(&self, rows: u64) -> Result<u64> {
        if rows > 1 {
            return Err(OptimisticError::Ambiguous { table: self.table.name.clone(), rows }.into());
        }
        Ok(rows)
    }
}

/// Returns whether another transaction is writing to SQLite. (If it has written since this one read, the code is
/// different.)
fn is_other_writer(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: &str = "5";
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(SQLITE_BUSY)
}
