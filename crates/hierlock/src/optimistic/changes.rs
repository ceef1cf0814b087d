//! Columns with their values: the changes of a row, and its key.

use super::outcome::OptimisticError;
use crate::database::{Driver, Value, check_name};
use crate::error::Result;
use sqlx::SqlSafeStr;

/// The columns to set in a row, besides its version.
///
/// ```
/// use hierlock::optimistic::Changes;
///
/// let sold = Changes::new().set("holder", "ada").set_expr("price", "price - ?", [5.into()]);
/// # let _ = sold;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "changes do nothing until they are passed to a row"]
pub struct Changes(pub(super) Vec<Term>);

impl Changes {
    /// Returns no changes: only the version is incremented.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a column to a value.
    pub fn set(mut self, column: &str, value: impl Into<Value>) -> Self {
        self.0.push(Term::value(column, value));
        self
    }

    /// Sets a column to the value of an SQL expression, with a value for each `?` in it outside of quotes and comments
    /// (`??` is an operator's `?` on PostgreSQL). The expression must be part of the program. User input belongs into the
    /// values.
    ///
    /// The expression reads the row as it was before, even if [`set`](Self::set) sets a column that it reads. (Only on
    /// MySQL and MariaDB an expression reads the result of an earlier expression.)
    ///
    /// Use it also for types that [`Value`] does not have: `CAST(? AS jsonb)`.
    pub fn set_expr(
        mut self,
        column: &str,
        expression: impl SqlSafeStr,
        values: impl IntoIterator<Item = Value>,
    ) -> Self {
        self.0.push(Term::expression(column, expression, values));
        self
    }
}

/// `column = value`, for SET or WHERE.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) column: String,
    /// None for a plain value.
    expression: Option<String>,
    pub(super) values: Vec<Value>,
}

impl Term {
    pub(super) fn value(column: &str, value: impl Into<Value>) -> Self {
        Self { column: column.to_owned(), expression: None, values: vec![value.into()] }
    }

    pub(super) fn expression(
        column: &str,
        expression: impl SqlSafeStr,
        values: impl IntoIterator<Item = Value>,
    ) -> Self {
        let expression = Some(expression.into_sql_str().as_str().to_owned());
        Self { column: column.to_owned(), expression, values: values.into_iter().collect() }
    }

    pub(super) fn is_expression(&self) -> bool {
        self.expression.is_some()
    }

    /// Fails if the term is invalid on every engine. A term that is invalid only on some fails when it is used there.
    pub(super) fn check_on_any(&self) -> Result<()> {
        let checks = Driver::ALL.map(|driver| self.check(driver));
        checks.into_iter().reduce(Result::or).unwrap_or(Ok(()))
    }

    /// Fails if the number of values is not the number of placeholders. (SQLite silently uses NULL for a missing value.)
    fn check(&self, driver: Driver) -> Result<()> {
        check_name(&self.column)?;
        let Some(expression) = &self.expression else { return Ok(()) };
        let is_digit = |c: char| c.is_ascii_digit();
        let is_number =
            |code: &str| code.split(['?', '$']).skip(1).any(|rest| rest.starts_with(is_digit));
        if driver.code(expression).any(is_number) {
            let expression = expression.clone();
            return Err(OptimisticError::NumberedParameter { expression }.into());
        }
        let (placeholders, given) = (driver.parameter_count(expression), self.values.len());
        if placeholders != given {
            let expression = expression.clone();
            return Err(OptimisticError::ParameterCount { expression, placeholders, given }.into());
        }
        Ok(())
    }

    /// Returns whether this is the term of `column`. Only on PostgreSQL names are case-sensitive.
    pub(super) fn is_of_column(&self, driver: Driver, column: &str) -> bool {
        let is_same = self.column == column;
        is_same || driver != Driver::Postgres && self.column.to_lowercase() == column.to_lowercase()
    }

    pub(super) fn text(&self, driver: Driver) -> Result<String> {
        self.check(driver)?;
        let column = driver.quote_column(&self.column)?;
        Ok(match &self.expression {
            None => format!("{column} = ?"),
            // The line break ends a comment at the end of the expression, which would hide the following condition.
            Some(expression) => format!("{column} = ({expression}\n)"),
        })
    }
}
