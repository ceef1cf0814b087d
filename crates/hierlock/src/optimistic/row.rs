//! A table whose rows have a version, and a row of it in somebody's transaction.

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

/// A table and its column with the version: an integer of any width, never NULL.
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
    /// Names a table, maybe with its schema before a dot, and the column of its version. Fails if they cannot be names.
    /// They are quoted, and so taken as written: PostgreSQL has small letters, unless they were created in quotes.
    pub fn new(table: &str, version: &str) -> Result<Self> {
        check_table_name(table)?;
        check_name(version)?;
        Ok(Self { name: table.to_owned(), version: version.to_owned() })
    }

    /// Names the row with this key; [`and`](VersionedRow::and) for one of several columns. The columns must be those of
    /// a primary key or a unique index, and the value of the type of its column: MySQL compares text with a number in
    /// its own way, by reading all rows. Fails if the column is no name, or the value is NULL; that it is the version
    /// is told when the row is used, for it depends on the engine what is the same name.
    pub fn row(&self, column: &str, value: impl Into<Value>) -> Result<VersionedRow> {
        self.keyed(Term::value(column, value))
    }

    /// Names the row whose key is what an expression says, with a value for each `?` in it: for a type that a
    /// [`Value`] does not have, such as `CAST(? AS uuid)`. Fails also if there is not a value for each `?`.
    pub fn row_expr(
        &self,
        column: &str,
        expression: impl SqlSafeStr,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<VersionedRow> {
        self.keyed(Term::expression(column, expression, values))
    }

    fn keyed(&self, term: Term) -> Result<VersionedRow> {
        VersionedRow { table: self.clone(), key: Vec::new() }.with(term)
    }

    /// An error that says that the version was given where it has no place.
    pub(super) fn version_given(&self, why: &'static str) -> Error {
        let Self { name: table, version: column } = self.clone();
        OptimisticError::VersionGiven { table, column, why }.into()
    }
}

/// What to do when somebody else has locked a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WaitPolicy {
    /// Wait for it, as long as the database allows.
    #[default]
    Wait,
    /// Fail at once.
    NoWait,
}

/// One row of a [`VersionedTable`], named by its key.
///
/// All that it does is done in the caller's transaction, and lasts when that is committed. After `Stale` or `Missing`
/// nothing has changed in the row, but the transaction is still open: mostly it is to be rolled back.
///
/// # Errors
/// What the database says; [`retry`](mod@crate::retry) reads it. At REPEATABLE READ, PostgreSQL says that a
/// row was changed with an error (40001), and so does MariaDB where it is told to (1020).
///
/// # Cancel safety
/// A future that is dropped before its end may or may not have changed the row: drop the transaction too, which
/// undoes it.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedRow {
    pub(super) table: VersionedTable,
    pub(super) key: Vec<Term>,
}

impl VersionedRow {
    /// Adds a column to the key. Fails if it is none: no name, a column that is in the key already, or NULL.
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
            return Err(OptimisticError::Twice { column: column() }.into());
        }
        if !term.is_expression() && term.values.iter().any(Value::is_null) {
            return Err(OptimisticError::NullKey { column: column() }.into());
        }
        self.key.push(term);
        Ok(self)
    }

    /// Returns its version, as the transaction sees it; None if there is no such row.
    ///
    /// Data that was read *before* its version may be older than that. Read both with one SELECT. Fails if the version
    /// is NULL or no integer, or the key names several rows.
    pub async fn version(&self, tx: &mut impl AnyTransaction) -> Result<Option<i64>> {
        self.read(&mut tx.connection(), None).await
    }

    /// Changes it if it is at the version that is expected, in one statement, and raises the version by
    /// one. Without any changes it is [`bump_if`](Self::bump_if).
    ///
    /// If it is not, the version that it has is read with a lock on the row, so it is the newest, even if the
    /// transaction sees an old snapshot. Fails if the changes name the version or the key.
    pub async fn update(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
        changes: Changes,
    ) -> Result<UpdateOutcome> {
        let next = expected.checked_add(1).ok_or(OptimisticError::Greatest { expected })?;
        let mut connection = tx.connection();
        let update = self.update_statement(connection.driver(), changes, Some(expected))?;
        let checked = self.write(&mut connection, update, expected, "change the row").await?;
        Ok(checked.then_updated_to(next))
    }

    /// Deletes it if it is at the version that is expected.
    pub async fn delete(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
    ) -> Result<VersionCheck> {
        let mut connection = tx.connection();
        let delete = self.delete_statement(connection.driver(), expected)?;
        self.write(&mut connection, delete, expected, "delete the row").await
    }

    /// Raises its version, whatever that is, and changes nothing else: for a parent of which a child was
    /// added, changed or removed. Returns the new version; None if there is no such row.
    pub async fn bump(&self, tx: &mut impl AnyTransaction) -> Result<Option<i64>> {
        let mut connection = tx.connection();
        let bump = self.update_statement(connection.driver(), Changes::new(), None)?;
        match self.run(&mut connection, &bump, "raise the version").await? {
            0 => Ok(None),
            // Our own change is seen in every isolation level.
            _ => self.read(&mut connection, None).await,
        }
    }

    /// The same, if it is at the version that is expected.
    pub async fn bump_if(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
    ) -> Result<UpdateOutcome> {
        self.update(tx, expected, Changes::new()).await
    }

    /// Locks it until the transaction ends, also if it is stale, and compares its version; one that is current stays
    /// so. Only [`update`](Self::update) changes the row and its version. On SQLite the whole file is locked to
    /// writers; a transaction that was begun with BEGIN IMMEDIATE has it already.
    ///
    /// # Errors
    /// With [`WaitPolicy::NoWait`], [`is_would_block`](Error::is_would_block) if somebody else has locked it; on
    /// PostgreSQL the transaction can only be rolled back then. On SQLite that is another writer, for whom a
    /// transaction that was begun without IMMEDIATE waits as long as its `busy_timeout` says.
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
            let sql = self.lock_file()?;
            connection.execute(&sql, []).await.map_err(|source| self.not_read(source, policy))?;
        }
        let found = self.read(&mut connection, Some((RowLock::Exclusive, policy))).await?;
        Ok(VersionCheck::new(expected, found))
    }

    /// Runs what changes the row only at the version that is expected, and finds out why if it does not.
    async fn write(
        &self,
        connection: &mut DatabaseConnection<'_>,
        statement: RowStatement,
        expected: i64,
        doing: &'static str,
    ) -> Result<VersionCheck> {
        // Once more, if the row has come to that version in between: it is locked then.
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
        Err(OptimisticError::Unmoved { table: self.table.name.clone(), expected }.into())
    }

    /// Returns how many rows it has changed: one or none.
    async fn run(
        &self,
        connection: &mut DatabaseConnection<'_>,
        (sql, values): &RowStatement,
        doing: &'static str,
    ) -> Result<u64> {
        let done = connection.execute(sql, values.iter().cloned()).await.map_err(failed(doing))?;
        self.one_at_most(done.rows)
    }

    async fn read(
        &self,
        connection: &mut DatabaseConnection<'_>,
        lock: Option<(RowLock, LockWaitPolicy)>,
    ) -> Result<Option<i64>> {
        let (sql, values) = self.select_statement(connection.driver(), lock)?;
        let rows = connection.fetch(&sql, values).await;
        let policy = lock.map_or(LockWaitPolicy::Wait, |(_, policy)| policy);
        let rows = rows.map_err(|source| self.not_read(source, policy))?;
        self.one_at_most(rows.len() as u64)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let VersionedTable { name: table, version: column } = self.table.clone();
        match row.any_int(0) {
            Ok(Some(version)) => Ok(Some(version)),
            Ok(None) => Err(OptimisticError::NoVersion { table, column }.into()),
            Err(found) => Err(OptimisticError::NotAVersion { table, column, found }.into()),
        }
    }

    /// MariaDB has one number for a wait that was too long and one that was not wanted. What was asked tells which.
    fn not_read(&self, source: sqlx::Error, policy: LockWaitPolicy) -> Error {
        let is_held =
            source.retry_cause() == Some(RetryCause::NotGranted) || is_other_writer(&source);
        if policy == LockWaitPolicy::Fail && is_held {
            return OptimisticError::WouldBlock { table: self.table.name.clone(), source }.into();
        }
        failed("read the version")(source)
    }

    fn one_at_most(&self, rows: u64) -> Result<u64> {
        if rows > 1 {
            return Err(OptimisticError::Ambiguous { table: self.table.name.clone(), rows }.into());
        }
        Ok(rows)
    }
}

/// Returns whether another transaction of SQLite writes. (If it has written since this one read, the error is another.)
fn is_other_writer(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: &str = "5";
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(SQLITE_BUSY)
}
