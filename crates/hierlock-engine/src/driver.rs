//! What differs between the drivers in the text of a statement. Pure.

use crate::lexer::{TokenKind, tokens};

/// The driver of a connection, and so the SQL that it understands. MySQL and MariaDB share one: what both understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// MySQL and MariaDB.
    Mysql,
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// How a row is locked when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLock {
    /// Nobody can delete it or change its key; on MySQL and MariaDB nobody can change it. (PostgreSQL may
    /// grant it beside somebody's FOR UPDATE, but never beside a change of the key or a DELETE.)
    Shared,
    /// As by an UPDATE that leaves its key alone: on PostgreSQL rows that refer to it can be inserted.
    Update,
    /// As by a DELETE.
    Exclusive,
}

/// What happens to a row that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWaitPolicy {
    /// The statement waits.
    Wait,
    /// The statement fails (`NOWAIT`).
    Fail,
    /// The row is left out (`SKIP LOCKED`).
    Skip,
}

/// A text that cannot be the name of a table or column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no name of a table or column; it has 1 to 64 characters, and that of a table a dot only behind its \
     schema"
)]
pub struct InvalidName(pub String);

impl Driver {
    /// All of them.
    pub const ALL: [Driver; 3] = [Driver::Mysql, Driver::Postgres, Driver::Sqlite];

    /// Begins a transaction of our own, in one round trip. It says what it relies on, for the pool may be the program's.
    pub fn begin(self) -> &'static str {
        match self {
            // A program's pool may have autocommit off. Then what was read last has left a transaction open, in which
            // the level of the next cannot be set; START TRANSACTION would have committed it too.
            Driver::Mysql => {
                "COMMIT AND NO CHAIN NO RELEASE; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ WRITE"
            }
            Driver::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            Driver::Sqlite => "BEGIN IMMEDIATE",
        }
    }

    /// The database's clock at the beginning of the statement (on PostgreSQL: of its evaluation) in milliseconds since
    /// 1970 in UTC. Not UNIX_TIMESTAMP(NOW()): it does not know which of the two hours it is that summer time repeats.
    pub fn now_ms(self) -> &'static str {
        match self {
            Driver::Mysql => {
                "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)"
            }
            Driver::Postgres => "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint",
            Driver::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        }
    }

    /// A number as all drivers read one, whatever the type of its column.
    pub fn as_int(self, expression: &str) -> String {
        let number = if self == Driver::Mysql { "SIGNED" } else { "BIGINT" };
        format!("CAST({expression} AS {number})")
    }

    /// The words behind a SELECT that lock its rows; none on SQLite, where a writer is alone.
    pub fn lock(self, lock: RowLock, policy: LockWaitPolicy) -> String {
        let lock = match (self, lock) {
            (Driver::Sqlite, _) => return String::new(),
            // MariaDB knows only this one, which on both cannot be told not to wait.
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

    /// The type of a column of bytes that is compared byte by byte, and can be indexed.
    pub fn bytes(self, most: usize) -> String {
        match self {
            Driver::Mysql => format!("VARBINARY({most})"),
            Driver::Postgres => "BYTEA".to_owned(),
            Driver::Sqlite => "BLOB".to_owned(),
        }
    }

    /// The type of a column of text; on MySQL and MariaDB of at most so many characters.
    pub fn text(self, most: usize) -> String {
        match self {
            Driver::Mysql => format!("VARCHAR({most})"),
            Driver::Postgres | Driver::Sqlite => "TEXT".to_owned(),
        }
    }

    /// The type of a primary key that the database counts: ascending, no number twice, also when rows were deleted.
    pub fn counted(self) -> &'static str {
        match self {
            Driver::Mysql => "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
            Driver::Postgres => "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            Driver::Sqlite => "INTEGER PRIMARY KEY AUTOINCREMENT",
        }
    }

    /// What stands behind the columns of a table of ours.
    pub fn table_options(self) -> &'static str {
        match self {
            Driver::Mysql => " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            Driver::Postgres | Driver::Sqlite => "",
        }
    }

    /// Quotes the name of a table; dots stand between a schema and a table.
    pub fn quote(self, name: &str) -> Result<String, InvalidName> {
        check_table_name(name)?;
        let parts: Result<Vec<_>, _> =
            name.split('.').map(|part| self.quote_column(part)).collect();
        parts.map(|parts| parts.join("."))
    }

    /// Quotes the name of a column; a dot is a part of it.
    pub fn quote_column(self, name: &str) -> Result<String, InvalidName> {
        // SQLite takes a name in double quotes that it does not know for a text.
        let quote = if self == Driver::Postgres { '"' } else { '`' };
        check_name(name)?;
        let doubled = name.replace(quote, &format!("{quote}{quote}"));
        Ok(format!("{quote}{doubled}{quote}"))
    }

    /// The parts of a statement outside of quotes and comments.
    pub fn code(self, sql: &str) -> impl Iterator<Item = &str> {
        tokens(self, sql).filter(|token| token.kind == TokenKind::Code).map(|token| token.text)
    }

    /// How many values a statement has places for.
    pub fn parameter_count(self, sql: &str) -> usize {
        let marks = self.code(sql).map(|code| code.matches('?').count());
        let operators = self.code(sql).map(|code| 2 * code.matches("??").count());
        let operators = if self == Driver::Postgres { operators.sum() } else { 0 };
        marks.sum::<usize>() - operators
    }

    /// A statement with `?` for each value, with parameters as the driver wants them. On PostgreSQL `??` is a `?`.
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

/// Fails if it cannot be the name of a table, maybe with its schema before a dot.
pub fn check_table_name(name: &str) -> Result<(), InvalidName> {
    name.split('.').try_for_each(check_name).map_err(|_| InvalidName(name.to_owned()))
}

/// Fails if it cannot be the name of a column, or of anything else.
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    let is_good = (1..=64).contains(&name.chars().count()) && !name.contains('\0');
    if is_good { Ok(()) } else { Err(InvalidName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure this prevents: an apostrophe in a comment, or in a text of another kind, was taken for a string.
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
            // Double quotes would make a text of a column that is not there.
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
