//! The differences between the drivers in the text of statements. Pure code.

use crate::lexer::{TokenKind, tokens};

/// The driver of a connection. MySQL and MariaDB share one, which uses only SQL that both understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// MySQL and MariaDB.
    Mysql,
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// The lock mode of a row that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLock {
    /// Blocks DELETE and changes of the key; on MySQL and MariaDB blocks every change. (PostgreSQL may grant it beside
    /// a FOR UPDATE lock, but never beside a DELETE or a change of the key.)
    Shared,
    /// The lock of an UPDATE that does not change the key: on PostgreSQL, rows that refer to this row can be inserted.
    Update,
    /// The lock of a DELETE.
    Exclusive,
}

/// What a statement does at a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWaitPolicy {
    /// It waits.
    Wait,
    /// It fails (`NOWAIT`).
    Fail,
    /// It leaves out the row (`SKIP LOCKED`).
    Skip,
}

/// The error of a text that cannot be the name of a table or column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a name of a table or column; a name has 1 to 64 characters, and a dot in the name of a table separates \
     the schema from it"
)]
pub struct InvalidName(pub String);

impl Driver {
    /// All drivers.
    pub const ALL: [Driver; 3] = [Driver::Mysql, Driver::Postgres, Driver::Sqlite];

    /// Returns the statements that begin a transaction, in one round trip. They set the isolation level, because the
    /// application's pool may have changed it.
    pub fn begin(self) -> &'static str {
        match self {
            // The application's pool may have autocommit off. Then the last read has left a transaction open, in which
            // the isolation level of the next cannot be set; START TRANSACTION would have committed it too.
            Driver::Mysql => {
                "COMMIT AND NO CHAIN NO RELEASE; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ WRITE"
            }
            Driver::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            // The SELECT makes the connection notice changes of the schema by others. SQLite does so itself if a table is
            // missing, but not if an index is missing that ON CONFLICT needs.
            Driver::Sqlite => "BEGIN IMMEDIATE; SELECT 1 FROM sqlite_schema LIMIT 0",
        }
    }

    /// Returns an expression for the database's clock at the beginning of the statement (on PostgreSQL: of the
    /// evaluation), in milliseconds since 1970 in UTC. UNIX_TIMESTAMP(NOW()) is ambiguous in the hour that the end of
    /// summer time repeats.
    pub fn now_ms(self) -> &'static str {
        match self {
            Driver::Mysql => {
                "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)"
            }
            Driver::Postgres => "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint",
            Driver::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        }
    }

    /// Returns a cast of an expression to the integer type that the drivers read as `i64`.
    pub fn as_int(self, expression: &str) -> String {
        let number = if self == Driver::Mysql { "SIGNED" } else { "BIGINT" };
        format!("CAST({expression} AS {number})")
    }

    /// Returns the locking clause of a SELECT. It is empty on SQLite, which has only one writer at a time.
    pub fn lock(self, lock: RowLock, policy: LockWaitPolicy) -> String {
        let lock = match (self, lock) {
            (Driver::Sqlite, _) => return String::new(),
            // MariaDB knows only this form, which has no NOWAIT or SKIP LOCKED on MySQL and MariaDB.
            (Driver::Mysql, RowLock::Shared) => return " LOCK IN SHARE MODE".to_owned(),
            (Driver::Postgres, RowLock::Shared) => " FOR KEY SHARE",
            (Driver::Postgres, RowLock::Update) => " FOR NO KEY UPDATE",
            (_, RowLock::Update | RowLock::Exclusive) => " FOR UPDATE",
        };
        let policy = match policy {
            LockWaitPolicy::Wait => "",
            LockWaitPolicy::Fail => " NOWAIT",
            LockWaitPolicy::Skip => " SKIP LOCKED",
        };
        format!("{lock}{policy}")
    }

    /// Returns the type of an indexable column of bytes, which are compared byte by byte.
    pub fn bytes(self, max_length: usize) -> String {
        match self {
            Driver::Mysql => format!("VARBINARY({max_length})"),
            Driver::Postgres => "BYTEA".to_owned(),
            Driver::Sqlite => "BLOB".to_owned(),
        }
    }

    /// Returns the type of a text column. Only MySQL and MariaDB limit the number of characters to `max_length`.
    pub fn text(self, max_length: usize) -> String {
        match self {
            Driver::Mysql => format!("VARCHAR({max_length})"),
            Driver::Postgres | Driver::Sqlite => "TEXT".to_owned(),
        }
    }

    /// Returns the type of an ascending primary key that the database generates. Keys of deleted rows are not reused.
    pub fn generated_key(self) -> &'static str {
        match self {
            Driver::Mysql => "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
            Driver::Postgres => "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            Driver::Sqlite => "INTEGER PRIMARY KEY AUTOINCREMENT",
        }
    }

    /// Returns the table options of a CREATE TABLE.
    pub fn table_options(self) -> &'static str {
        match self {
            Driver::Mysql => " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            Driver::Postgres | Driver::Sqlite => "",
        }
    }

    /// Quotes the name of a table. A dot separates the schema from the table.
    pub fn quote(self, name: &str) -> Result<String, InvalidName> {
        check_table_name(name)?;
        let parts: Result<Vec<_>, _> =
            name.split('.').map(|part| self.quote_column(part)).collect();
        parts.map(|parts| parts.join("."))
    }

    /// Quotes the name of a column, which may contain a dot.
    pub fn quote_column(self, name: &str) -> Result<String, InvalidName> {
        // SQLite treats an unknown name in double quotes as a string.
        let quote = if self == Driver::Postgres { '"' } else { '`' };
        check_name(name)?;
        let doubled = name.replace(quote, &format!("{quote}{quote}"));
        Ok(format!("{quote}{doubled}{quote}"))
    }

    /// Returns the parts of a statement outside of quotes and comments.
    pub fn code(self, sql: &str) -> impl Iterator<Item = &str> {
        tokens(self, sql).filter(|token| token.kind == TokenKind::Code).map(|token| token.text)
    }

    /// Returns the number of parameters of a statement.
    pub fn parameter_count(self, sql: &str) -> usize {
        let marks = self.code(sql).map(|code| code.matches('?').count());
        let operators = self.code(sql).map(|code| 2 * code.matches("??").count());
        let operators = if self == Driver::Postgres { operators.sum() } else { 0 };
        marks.sum::<usize>() - operators
    }

    /// Returns a statement in which each `?` is a parameter of the driver: `$1` on PostgreSQL, where `??` becomes `?`.
    pub fn parameters(self, sql: &str) -> String {
        if self != Driver::Postgres {
            return sql.to_owned();
        }
        let mut number = 0;
        let mut text = String::with_capacity(sql.len() + 8);
        for token in tokens(self, sql) {
            if token.kind != TokenKind::Code {
                text.push_str(token.text);
                continue;
            }
            let mut characters = token.text.chars().peekable();
            while let Some(c) = characters.next() {
                if c != '?' || characters.next_if_eq(&'?').is_some() {
                    text.push(c);
                } else {
                    number += 1;
                    text.push_str(&format!("${number}"));
                }
            }
        }
        text
    }
}

/// Fails if `name` cannot be the name of a table, optionally with a schema and a dot before it.
pub fn check_table_name(name: &str) -> Result<(), InvalidName> {
    name.split('.').try_for_each(check_name).map_err(|_| InvalidName(name.to_owned()))
}

/// Fails if `name` cannot be the name of a column or another object.
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    let is_good = (1..=64).contains(&name.chars().count()) && !name.contains('\0');
    if is_good { Ok(()) } else { Err(InvalidName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure this prevents: an apostrophe in a comment or in a dollar-quoted text was taken for a string.
    #[test]
    fn parameters_are_numbered_outside_of_quotes_and_comments() {
        for (sql, numbered) in [
            (
                r#"SELECT "who?", 'it''s ?', ?, 'why?', ?"#,
                r#"SELECT "who?", 'it''s ?', $1, 'why?', $2"#,
            ),
            ("SELECT ? -- it's ?\n, ?", "SELECT $1 -- it's ?\n, $2"),
            ("SELECT /* don't /* ? */ */ ?", "SELECT /* don't /* ? */ */ $1"),
            (r"SELECT E'it\'s ?', ?", r"SELECT E'it\'s ?', $1"),
            ("SELECT $$it's ?$$, ?", "SELECT $$it's ?$$, $1"),
            ("SELECT ? -- what?", "SELECT $1 -- what?"),
            ("SELECT tags ?? 'a', tags ??| ?", "SELECT tags ? 'a', tags ?| $1"),
        ] {
            assert_eq!(Driver::Postgres.parameters(sql), numbered);
            assert_eq!(Driver::Mysql.parameters(sql), sql);
            let numbers = numbered.matches("$1").count() + numbered.matches("$2").count();
            assert_eq!(Driver::Postgres.parameter_count(sql), numbers, "{sql}");
        }
    }

    #[test]
    fn names_are_quoted_and_cannot_break_out() {
        for (driver, name, quoted) in [
            (Driver::Mysql, "seats", "`seats`"),
            (Driver::Mysql, "shop.seats", "`shop`.`seats`"),
            (Driver::Mysql, "a`b", "`a``b`"),
            (Driver::Postgres, r#"a" = 1; --"#, r#""a"" = 1; --""#),
            // In double quotes, a column that does not exist would be a string.
            (Driver::Sqlite, "shop.seats", "`shop`.`seats`"),
        ] {
            assert_eq!(driver.quote(name).unwrap(), quoted);
        }
        assert_eq!(Driver::Postgres.quote_column("a.b").unwrap(), r#""a.b""#);
        assert!(Driver::Mysql.quote(&"席".repeat(64)).is_ok());
        for bad in ["", ".", "a.", "a..b", "a\0b", &"n".repeat(65)] {
            assert!(Driver::Sqlite.quote(bad).is_err(), "{bad:?}");
        }
    }
}
