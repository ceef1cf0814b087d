//! A row with a version, in somebody's transaction.

use super::changes::{Changes, Term};
use super::error::OptimisticError;
use super::outcome::{Checked, Outcome};
use super::statement::Statement;
use super::versioned::Versioned;
use crate::database::{AnyTransaction, Busy, DatabaseConnection, Driver, RowLock, Value, failed};
use crate::error::{Error, Result};
use crate::retry::{Cause, Retryable as _};
use sqlx::SqlSafeStr;

/// What to do when somebody else has locked a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Patience {
    /// Wait for it, as long as the database allows.
    #[default]
    Wait,
    /// Fail at once.
    NoWait,
}

/// One row of a [`Versioned`] table, named by its key.
///
/// All that it does is done in the caller's transaction, and lasts when that is committed. After `Stale`
/// or `Missing` nothing has changed in the row, but the transaction is open, with what was done in it
/// before: mostly it is to be rolled back.
///
/// # Errors
/// What the database says; [`retry`](mod@crate::retry) reads it. At REPEATABLE READ, PostgreSQL says that a
/// row was changed with an error (40001), and so does MariaDB where it is told to (1020).
///
/// # Cancel safety
/// Dropped before it is done, it may or may not have changed the row: drop the transaction too, which
/// undoes it.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedRow {
    pub(super) of: Versioned,
    pub(super) key: Vec<Term>,
}

impl VersionedRow {
    /// One more column of the key.
    ///
    /// # Errors
    /// If it is none: no name, a column that is in the key already, or NULL.
    pub fn and(self, column: &str, value: impl Into<Value>) -> Result<Self> {
        self.with(Term::value(column, value))
    }

    /// One more column of the key, as [`row_expr`](Versioned::row_expr).
    ///
    /// # Errors
    /// As [`and`](Self::and), or if there is not a value for each `?`.
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

    /// Its version, as the transaction sees it; None if there is no such row.
    ///
    /// Data that was read *before* its version may be older than that. Read both with one SELECT.
    ///
    /// # Errors
    /// If it is NULL or no integer, or the key names several rows; what the database says.
    pub async fn version(&self, tx: &mut impl AnyTransaction) -> Result<Option<i64>> {
        self.read(&mut tx.connection(), None).await
    }

    /// Changes it if it is at the version that is expected, in one statement, and raises the version by
    /// one. Without any changes it is [`bump_if`](Self::bump_if).
    ///
    /// If it is not, the version that it has is read with a lock on the row, so it is the newest, even if
    /// the transaction sees an old snapshot.
    ///
    /// # Errors
    /// If the changes name the version or the key; see [`VersionedRow`] for others.
    ///
    /// # Cancel safety
    /// See [`VersionedRow`].
    pub async fn update(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
        changes: Changes,
    ) -> Result<Outcome> {
        let next = expected.checked_add(1).ok_or(OptimisticError::Greatest { expected })?;
        let mut connection = tx.connection();
        let update = self.updating(connection.driver(), changes, Some(expected))?;
        let checked = self.write(&mut connection, update, expected, "change the row").await?;
        Ok(checked.then_updated_to(next))
    }

    /// Deletes it if it is at the version that is expected.
    ///
    /// # Errors
    /// See [`VersionedRow`].
    ///
    /// # Cancel safety
    /// See [`VersionedRow`].
    pub async fn delete(&self, tx: &mut impl AnyTransaction, expected: i64) -> Result<Checked> {
        let mut connection = tx.connection();
        let delete = self.deleting(connection.driver(), expected)?;
        self.write(&mut connection, delete, expected, "delete the row").await
    }

    /// Raises its version, whatever that is, and changes nothing else: for a parent of which a child was
    /// added, changed or removed. The new version; None if there is no such row.
    ///
    /// # Errors
    /// See [`VersionedRow`].
    ///
    /// # Cancel safety
    /// See [`VersionedRow`].
    pub async fn bump(&self, tx: &mut impl AnyTransaction) -> Result<Option<i64>> {
        let mut connection = tx.connection();
        let bump = self.updating(connection.driver(), Changes::new(), None)?;
        match self.run(&mut connection, bump, "raise the version").await? {
            0 => Ok(None),
            // Our own change is seen in every isolation level.
            _ => self.read(&mut connection, None).await,
        }
    }

    /// The same, if it is at the version that is expected.
    ///
    /// # Errors
    /// See [`VersionedRow`].
    ///
    /// # Cancel safety
    /// See [`VersionedRow`].
    pub async fn bump_if(&self, tx: &mut impl AnyTransaction, expected: i64) -> Result<Outcome> {
        self.update(tx, expected, Changes::new()).await
    }

    /// Locks it until the transaction ends, and compares its version: if it is current it stays so, and
    /// nothing that is done afterwards is wasted. Nothing is changed yet, nor the version:
    /// [`update`](Self::update) does both.
    ///
    /// A row that is stale is locked too. On SQLite the whole file is, to writers; one that was begun with
    /// BEGIN IMMEDIATE has it already.
    ///
    /// # Errors
    /// With [`Patience::NoWait`], if somebody else has locked it
    /// ([`is_would_block`](Error::is_would_block)); on PostgreSQL the transaction can only be rolled back
    /// then. On SQLite that is another writer, for whom a transaction that was begun without IMMEDIATE waits
    /// as long as its `busy_timeout` says. See [`VersionedRow`] for others.
    ///
    /// # Cancel safety
    /// See [`VersionedRow`].
    pub async fn lock(
        &self,
        tx: &mut impl AnyTransaction,
        expected: i64,
        patience: Patience,
    ) -> Result<Checked> {
        let mut connection = tx.connection();
        let busy = match patience {
            Patience::Wait => Busy::Wait,
            Patience::NoWait => Busy::Fail,
        };
        if matches!(connection.driver(), Driver::Sqlite) {
            let Statement { sql, values } = self.claiming(connection.driver())?;
            connection.execute(&sql, values).await.map_err(|source| self.not_read(source, busy))?;
        }
        let found = self.read(&mut connection, Some((RowLock::Exclusive, busy))).await?;
        Ok(Checked::new(expected, found))
    }

    /// Runs what changes the row only at the version that is expected, and finds out why if it does not.
    async fn write(
        &self,
        connection: &mut DatabaseConnection<'_>,
        statement: Statement,
        expected: i64,
        doing: &'static str,
    ) -> Result<Checked> {
        // Once more, if the row has come to that version after it was found to be at none or another: it is
        // locked then.
        for _ in 0..2 {
            if self.run(connection, statement.clone(), doing).await? > 0 {
                return Ok(Checked::Current);
            }
            let found = self.read(connection, Some((RowLock::Update, Busy::Wait))).await?;
            match Checked::new(expected, found) {
                Checked::Current => {}
                other => return Ok(other),
            }
        }
        Err(OptimisticError::Unmoved { table: self.of.table.clone(), expected }.into())
    }

    /// How many rows it has changed: one or none.
    async fn run(
        &self,
        connection: &mut DatabaseConnection<'_>,
        statement: Statement,
        doing: &'static str,
    ) -> Result<u64> {
        let done =
            connection.execute(&statement.sql, statement.values).await.map_err(failed(doing))?;
        self.one_at_most(done.rows)
    }

    async fn read(
        &self,
        connection: &mut DatabaseConnection<'_>,
        lock: Option<(RowLock, Busy)>,
    ) -> Result<Option<i64>> {
        let select = self.reading(connection.driver(), lock)?;
        let rows = connection.fetch(&select.sql, select.values).await;
        let busy = lock.map_or(Busy::Wait, |(_, busy)| busy);
        let rows = rows.map_err(|source| self.not_read(source, busy))?;
        self.one_at_most(rows.len() as u64)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let Versioned { table, version } = self.of.clone();
        match row.any_int(0) {
            Ok(Some(version)) => Ok(Some(version)),
            Ok(None) => Err(OptimisticError::NoVersion { table, column: version }.into()),
            Err(found) => {
                Err(OptimisticError::NotAVersion { table, column: version, found }.into())
            }
        }
    }

    /// MariaDB has one number for a wait that was too long and for one that was not wanted: what was
    /// asked tells them apart.
    fn not_read(&self, source: sqlx::Error, busy: Busy) -> Error {
        let is_held = source.retry_cause() == Some(Cause::NotGranted) || is_other_writer(&source);
        match busy == Busy::Fail && is_held {
            true => OptimisticError::WouldBlock { table: self.of.table.clone(), source }.into(),
            false => failed("read the version")(source),
        }
    }

    fn one_at_most(&self, rows: u64) -> Result<u64> {
        match rows {
            0 | 1 => Ok(rows),
            _ => Err(OptimisticError::Ambiguous { table: self.of.table.clone(), rows }.into()),
        }
    }
}

/// Does another transaction of SQLite write? Not if it has written since this one first read: that one has
/// to begin again.
fn is_other_writer(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: &str = "5";
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(SQLITE_BUSY)
}
