//! What a row is changed to, and what names it: columns with their values.

use super::outcome::OptimisticError;
use crate::database::{Driver, Value, check_name};
use crate::error::Result;
use sqlx::SqlSafeStr;

/// What is set in a row, besides its version.
///
/// ```
/// use hierlock::optimistic::Changes;
///
/// let sold = Changes::new().set("holder", "ada").set_expr("price", "price - ?", [5.into()]);
/// # let _ = sold;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "nothing is changed before it is given to a row"]
pub struct Changes(pub(super) Vec<Term>);

impl Changes {
    /// None yet: the version alone goes up.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a column to a value.
    pub fn set(mut self, column: &str, value: impl Into<Value>) -> Self {
        self.0.push(Term::value(column, value));
        self
    }

    /// Sets a column to what an expression says, with a value for each `?` in it outside of quotes and comments (`??`
    /// is an operator's `?` on PostgreSQL). It is a part of the program, not of its input, which goes into the values.
    ///
    /// It sees the row as it was before, also where [`set`](Self::set) sets the column that it names. (Only
    /// MySQL and MariaDB let an expression see what an expression before it has set.)
    ///
    /// A type that a [`Value`] does not have is asked for here: `CAST(? AS jsonb)`.
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

/// `column = what`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) column: String,
    /// None: the value itself.
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

    /// Refuses what is wrong on every engine. What only some of them read otherwise is refused where it is used.
    pub(super) fn check_on_any(&self) -> Result<()> {
        let checks = Driver::ALL.map(|driver| self.check(driver));
        checks.into_iter().reduce(Result::or).unwrap_or(Ok(()))
    }

    /// Fails if a value has no place, or a place no value. (SQLite takes a missing one for NULL, without a word.)
    fn check(&self, driver: Driver) -> Result<()> {
        check_name(&self.column)?;
        let Some(expression) = &self.expression else { return Ok(()) };
        let is_digit = |c: char| c.is_ascii_digit();
        let is_number =
            |code: &str| code.split(['?', '$']).skip(1).any(|rest| rest.starts_with(is_digit));
        if driver.code(expression).any(is_number) {
            return Err(OptimisticError::Numbered { expression: expression.clone() }.into());
        }
        let (places, given) = (driver.parameter_count(expression), self.values.len());
        if places != given {
            let expression = expression.clone();
            return Err(OptimisticError::Places { expression, places, given }.into());
        }
        Ok(())
    }

    /// Returns whether it names that column. Only PostgreSQL tells small letters from capitals.
    pub(super) fn names(&self, driver: Driver, column: &str) -> bool {
        let is_same = self.column == column;
        is_same || driver != Driver::Postgres && self.column.to_lowercase() == column.to_lowercase()
    }

    pub(super) fn text(&self, driver: Driver) -> Result<String> {
        self.check(driver)?;
        let column = driver.quote_column(&self.column)?;
        Ok(match &self.expression {
            None => format!("{column} = ?"),
            // A comment at its end must not swallow the condition that comes after it.
            Some(expression) => format!("{column} = ({expression}\n)"),
        })
    }
}
