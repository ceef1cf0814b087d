//! The statements that read and change a row. Pure.

use super::changes::{Changes, Term};
use super::outcome::OptimisticError;
use super::row::VersionedRow;
use crate::database::{Driver, LockWaitPolicy, RowLock, Value};
use crate::error::Result;

/// A statement with a value for each `?` in it.
pub(super) type RowStatement = (String, Vec<Value>);

impl VersionedRow {
    /// Raises the version and sets what is to be set; only at the version that is expected, if one is.
    pub(super) fn update_statement(
        &self,
        driver: Driver,
        changes: Changes,
        expected: Option<i64>,
    ) -> Result<RowStatement> {
        self.check(driver, &changes.0)?;
        let (expressions, plain): (Vec<Term>, Vec<Term>) =
            changes.0.into_iter().partition(Term::is_expression);
        let (table, version) = self.names(driver)?;
        let mut sql = format!("UPDATE {table} SET ");
        let mut values = Vec::new();
        // MySQL and MariaDB go from left to right, and an expression sees what was set before it.
        for term in expressions.into_iter().chain(plain) {
            sql += &format!("{}, ", term.text(driver)?);
            values.extend(term.values);
        }
        sql += &format!("{version} = {version} + 1");
        self.only_if(expected, driver, sql, values)
    }

    pub(super) fn delete_statement(&self, driver: Driver, expected: i64) -> Result<RowStatement> {
        let (table, _) = self.names(driver)?;
        self.only_if(Some(expected), driver, format!("DELETE FROM {table}"), Vec::new())
    }

    /// Reads the version. Two rows are enough to know that the key is none.
    pub(super) fn select_statement(
        &self,
        driver: Driver,
        lock: Option<(RowLock, LockWaitPolicy)>,
    ) -> Result<RowStatement> {
        let (table, version) = self.names(driver)?;
        let select = format!("SELECT {version} FROM {table}");
        let (select, values) = self.only_if(None, driver, select, Vec::new())?;
        let lock = lock.map(|(lock, policy)| driver.lock(lock, policy)).unwrap_or_default();
        Ok((format!("{select} LIMIT 2{lock}"), values))
    }

    /// Changes nothing, and yet makes a transaction of SQLite the only one that writes.
    pub(super) fn lock_file(&self) -> Result<String> {
        let (table, version) = self.names(Driver::Sqlite)?;
        Ok(format!("UPDATE {table} SET {version} = {version} WHERE 0"))
    }

    fn names(&self, driver: Driver) -> Result<(String, String)> {
        if self.key.iter().any(|key| key.names(driver, &self.table.version)) {
            return Err(self.table.version_given("which names no row; give its primary key"));
        }
        Ok((driver.quote(&self.table.name)?, driver.quote_column(&self.table.version)?))
    }

    /// Makes a statement one of this row alone, and only if it is at the version that is expected, if one is.
    fn only_if(
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

    /// Fails if these columns cannot be set, besides this key and this version.
    fn check(&self, driver: Driver, changes: &[Term]) -> Result<()> {
        for (before, term) in changes.iter().enumerate() {
            let column = term.column.clone();
            if term.names(driver, &self.table.version) {
                let why = "which goes up by itself; leave it out of the changes";
                return Err(self.table.version_given(why));
            }
            if self.key.iter().any(|key| term.names(driver, &key.column)) {
                return Err(OptimisticError::KeySet { column }.into());
            }
            if changes[..before].iter().any(|other| term.names(driver, &other.column)) {
                return Err(OptimisticError::Twice { column }.into());
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
    fn one_row_at_one_version() {
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
    fn changes_that_cannot_be_meant_are_refused_with_a_sentence() {
        let one = || [1.into()];
        for (changes, says) in [
            (Changes::new().set("version", 9), "goes up by itself"),
            (Changes::new().set("VERSION", 9), "goes up by itself"),
            (Changes::new().set("Hall", "B"), "`Hall` is a part of the key"),
            (Changes::new().set("price", 1).set("Price", 2), "`Price` is given twice"),
            (Changes::new().set("", 1), "is no name"),
            (
                price("price * ?", []),
                "1 places for values (`?` outside of quotes and comments), but 0",
            ),
            (
                price("price + '?'", one()),
                "0 places for values (`?` outside of quotes and comments), but 1",
            ),
            (price("price * ?1", one()), "write a bare `?`"),
            (price("price * $1", []), "write a bare `?`"),
        ] {
            let error = seat().update_statement(Driver::Sqlite, changes, Some(1)).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_version_is_no_key() {
        let row = VersionedTable::new("seats", "version").unwrap().row("Version", 1).unwrap();
        let error = row.delete_statement(Driver::Mysql, 1).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("names no row"), "{error}");
        assert!(row.delete_statement(Driver::Postgres, 1).is_ok());
    }

    #[test]
    fn keys_that_cannot_be_meant_are_refused_with_a_sentence() {
        let seats = VersionedTable::new("seats", "version").unwrap();
        for (row, says) in [
            (seats.row("", 1), "is no name"),
            (seats.row("id", None::<i64>), "NULL for `id`"),
            (seats.row("id", 1).and_then(|row| row.and("id", 2)), "`id` is given twice"),
            (seats.row_expr("id", "lower(?)", []), "but 0 values are given"),
        ] {
            let error = row.unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(says), "{error}");
        }
        for (table, version) in [("", "version"), ("a..b", "version"), ("t", ""), ("a\0", "v")] {
            let error = VersionedTable::new(table, version).unwrap_err();
            assert!(error.is_usage(), "{table} {version}");
        }
    }

    #[test]
    fn capitals_matter_to_postgres_and_quoted_marks_to_nobody() {
        let capitals = || Changes::new().set("Version", 9).set("HALL", "B").set("hAll", "C");
        let quoted = || price("CASE WHEN name = 'who? $1' THEN ? ELSE `ok?` END", [1.into()]);
        for (driver, changes, is_fine) in [
            (Driver::Postgres, capitals(), true),
            (Driver::Mysql, capitals(), false),
            (Driver::Sqlite, quoted(), true),
        ] {
            assert_eq!(
                seat().update_statement(driver, changes, Some(1)).is_ok(),
                is_fine,
                "{driver:?}"
            );
        }
    }
}
