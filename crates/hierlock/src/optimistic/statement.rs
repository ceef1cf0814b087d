//! The statements that read and change a row. Pure code.

use super::changes::{Changes, Term};
use super::outcome::OptimisticError;
use super::row::VersionedRow;
use crate::database::{Driver, LockWaitPolicy, RowLock, Value};
use crate::error::Result;

/// A statement with a value for each `?` in it.
pub(super) type RowStatement = (String, Vec<Value>);

impl VersionedRow {
    /// Returns the statement that sets the changes and increments the version; only at the expected version, if one is
    /// given.
    pub(super) fn update_statement(
        &self,
        driver: Driver,
        changes: Changes,
        expected: Option<i64>,
    ) -> Result<RowStatement> {
        self.check(driver, &changes.0)?;
        let (expressions, plain): (Vec<Term>, Vec<Term>) =
            changes.0.into_iter().partition(Term::is_expression);
        let (table, version) = self.quoted_names(driver)?;
        let mut sql = format!("UPDATE {table} SET ");
        let mut values = Vec::new();
        // Expressions come first: MySQL and MariaDB assign from left to right, and an expression would read new values.
        for term in expressions.into_iter().chain(plain) {
            sql += &format!("{}, ", term.text(driver)?);
            values.extend(term.values);
        }
        sql += &format!("{version} = {version} + 1");
        self.with_condition(expected, driver, sql, values)
    }

    pub(super) fn delete_statement(&self, driver: Driver, expected: i64) -> Result<RowStatement> {
        let (table, _) = self.quoted_names(driver)?;
        self.with_condition(Some(expected), driver, format!("DELETE FROM {table}"), Vec::new())
    }

    /// Returns the statement that reads the version. Two rows are enough to detect a key that is not unique.
    pub(super) fn select_statement(
        &self,
        driver: Driver,
        lock: Option<(RowLock, LockWaitPolicy)>,
    ) -> Result<RowStatement> {
        let (table, version) = self.quoted_names(driver)?;
        let select = format!("SELECT {version} FROM {table}");
        let (select, values) = self.with_condition(None, driver, select, Vec::new())?;
        let lock = lock.map(|(lock, policy)| driver.lock(lock, policy)).unwrap_or_default();
        Ok((format!("{select} LIMIT 2{lock}"), values))
    }

    /// Returns a statement that changes no row, but makes a transaction of SQLite the only writer.
    pub(super) fn lock_database(&self) -> Result<String> {
        let (table, version) = self.quoted_names(Driver::Sqlite)?;
        Ok(format!("UPDATE {table} SET {version} = {version} WHERE 0"))
    }

    /// Returns the quoted names of the table and of the version column.
    fn quoted_names(&self, driver: Driver) -> Result<(String, String)> {
        if self.key.iter().any(|key| key.is_of_column(driver, &self.table.version)) {
            let why = "which does not identify a row; use the primary key";
            return Err(self.table.version_column_error(why));
        }
        Ok((driver.quote(&self.table.name)?, driver.quote_column(&self.table.version)?))
    }

    /// Adds the WHERE clause: the key of this row, and the expected version, if one is given.
    fn with_condition(
        &self,
        expected: Option<i64>,
        driver: Driver,
        sql: String,
        mut values: Vec<Value>,
    ) -> Result<RowStatement> {
        let version = expected.map(|expected| Term::value(&self.table.version, expected));
        let mut conditions = Vec::new();
        for term in self.key.iter().chain(&version) {
            conditions.push(term.text(driver)?);
            values.extend(term.values.iter().cloned());
        }
        Ok((format!("{sql} WHERE {}", conditions.join(" AND ")), values))
    }

    /// Fails if the changes contain the version column, a key column, or a column twice.
    fn check(&self, driver: Driver, changes: &[Term]) -> Result<()> {
        for (index, term) in changes.iter().enumerate() {
            let column = term.column.clone();
            if term.is_of_column(driver, &self.table.version) {
                let why = "which every update increments; leave it out of the changes";
                return Err(self.table.version_column_error(why));
            }
            if self.key.iter().any(|key| term.is_of_column(driver, &key.column)) {
                return Err(OptimisticError::KeyColumn { column }.into());
            }
            if changes[..index].iter().any(|other| term.is_of_column(driver, &other.column)) {
                return Err(OptimisticError::DuplicateColumn { column }.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::VersionedTable;
    use super::*;
    use sqlx::AssertSqlSafe;

    fn seat() -> VersionedRow {
        let seats = VersionedTable::new("shop.seats", "version").unwrap();
        seats.row("hall", "A").and_then(|row| row.and("id", 7)).unwrap()
    }

    fn price(expression: &str, values: impl IntoIterator<Item = Value>) -> Changes {
        Changes::new().set_expr("price", AssertSqlSafe(expression), values)
    }

    #[test]
    fn statements_name_one_row_and_one_version() {
        let changes = Changes::new().set("price", 1).set_expr("was", "price + ?", [2.into()]);
        let (sql, values) = seat().update_statement(Driver::Postgres, changes, Some(3)).unwrap();
        assert_eq!(
            sql,
            "UPDATE \"shop\".\"seats\" SET \"was\" = (price + ?\n), \"price\" = ?, \"version\" = \"version\" \
             + 1 WHERE \"hall\" = ? AND \"id\" = ? AND \"version\" = ?"
        );
        let expected: [Value; 5] = [2.into(), 1.into(), "A".into(), 7.into(), 3i64.into()];
        assert_eq!(values, expected);
        assert_eq!(
            seat().delete_statement(Driver::Mysql, 3).unwrap().0,
            "DELETE FROM `shop`.`seats` WHERE `hall` = ? AND `id` = ? AND `version` = ?"
        );
        let lock = Some((RowLock::Update, LockWaitPolicy::Fail));
        assert_eq!(
            seat().select_statement(Driver::Postgres, lock).unwrap().0,
            "SELECT \"version\" FROM \"shop\".\"seats\" WHERE \"hall\" = ? AND \"id\" = ? LIMIT 2 FOR NO KEY \
             UPDATE NOWAIT"
        );
    }

    #[test]
    fn invalid_changes_are_usage_errors() {
        let one = || [1.into()];
        for (changes, expected) in [
            (Changes::new().set("version", 9), "every update increments"),
            (Changes::new().set("VERSION", 9), "every update increments"),
            (Changes::new().set("Hall", "B"), "`Hall` is a part of the key"),
            (Changes::new().set("price", 1).set("Price", 2), "`Price` is given twice"),
            (Changes::new().set("", 1), "is not a name"),
            (price("price * ?", []), "1 placeholders (`?` outside of quotes and comments), but 0"),
            (
                price("price + '?'", one()),
                "0 placeholders (`?` outside of quotes and comments), but 1",
            ),
            (price("price * ?1", one()), "write a bare `?`"),
            (price("price * $1", []), "write a bare `?`"),
        ] {
            let error = seat().update_statement(Driver::Sqlite, changes, Some(1)).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_version_column_is_refused_as_a_key() {
        let row = VersionedTable::new("seats", "version").unwrap().row("Version", 1).unwrap();
        let error = row.delete_statement(Driver::Mysql, 1).unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains("does not identify a row"),
            "{error}"
        );
        assert!(row.delete_statement(Driver::Postgres, 1).is_ok());
    }

    #[test]
    fn invalid_keys_are_usage_errors() {
        let seats = VersionedTable::new("seats", "version").unwrap();
        for (row, expected) in [
            (seats.row("", 1), "is not a name"),
            (seats.row("id", None::<i64>), "NULL for `id`"),
            (seats.row("id", 1).and_then(|row| row.and("id", 2)), "`id` is given twice"),
            (seats.row_expr("id", "lower(?)", []), "but 0 values are given"),
        ] {
            let error = row.unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(expected), "{error}");
        }
        for (table, version) in [("", "version"), ("a..b", "version"), ("t", ""), ("a\0", "v")] {
            let error = VersionedTable::new(table, version).unwrap_err();
            assert!(error.is_usage(), "{table} {version}");
        }
    }

    #[test]
    fn only_postgres_is_case_sensitive_and_quoted_placeholders_do_not_count() {
        let capitals = || Changes::new().set("Version", 9).set("HALL", "B").set("hAll", "C");
        let quoted = || price("CASE WHEN name = 'who? $1' THEN ? ELSE `ok?` END", [1.into()]);
        for (driver, changes, is_valid) in [
            (Driver::Postgres, capitals(), true),
            (Driver::Mysql, capitals(), false),
            (Driver::Sqlite, quoted(), true),
        ] {
            let update = seat().update_statement(driver, changes, Some(1));
            assert_eq!(update.is_ok(), is_valid, "{driver:?}");
        }
    }
}
