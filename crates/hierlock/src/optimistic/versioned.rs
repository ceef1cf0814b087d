//! A table of the caller's whose rows have a version.

use super::changes::Term;
use super::error::OptimisticError;
use super::row::VersionedRow;
use crate::database::{Value, check_name, check_table_name};
use crate::error::{Error, Result};
use sqlx::SqlSafeStr;

/// A table and its column with the version: an integer of any width, never NULL. Its names are quoted, so
/// they can be any.
///
/// ```
/// # fn main() -> hierlock::Result<()> {
/// use hierlock::optimistic::Versioned;
///
/// let seats = Versioned::new("cinema.seats", "version")?;
/// let seat = seats.row("hall", "A")?.and("number", 7)?;
/// # let _ = seat;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Versioned {
    pub(super) table: String,
    pub(super) version: String,
}

impl Versioned {
    /// A table, maybe with its schema before a dot, and the column of its version. Names are taken as they
    /// are written: PostgreSQL has small letters, unless they were created in quotes.
    ///
    /// # Errors
    /// If these cannot be names.
    pub fn new(table: &str, version: &str) -> Result<Self> {
        check_table_name(table)?;
        check_name(version)?;
        Ok(Self { table: table.to_owned(), version: version.to_owned() })
    }

    /// The row with this key; [`and`](VersionedRow::and) for one of several columns. The columns must be
    /// those of a primary key or a unique index, and the value of the type of its column: MySQL compares
    /// text with a number in its own way, by reading all rows.
    ///
    /// # Errors
    /// If the column is no name, or the value is NULL. That the column is the version is told when the row is
    /// used, for it depends on the engine what is the same name.
    pub fn row(&self, column: &str, value: impl Into<Value>) -> Result<VersionedRow> {
        self.keyed(Term::value(column, value))
    }

    /// The row whose key is what an expression says, with a value for each `?` in it: for a type that a
    /// [`Value`] does not have, such as `CAST(? AS uuid)`.
    ///
    /// # Errors
    /// As [`row`](Self::row), or if there is not a value for each `?`.
    pub fn row_expr(
        &self,
        column: &str,
        expression: impl SqlSafeStr,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<VersionedRow> {
        self.keyed(Term::expression(column, expression, values))
    }

    fn keyed(&self, term: Term) -> Result<VersionedRow> {
        VersionedRow { of: self.clone(), key: Vec::new() }.with(term)
    }

    /// The version was given where it has no place.
    pub(super) fn version_given(&self, why: &'static str) -> Error {
        let Self { table, version } = self.clone();
        OptimisticError::VersionGiven { table, column: version, why }.into()
    }
}
