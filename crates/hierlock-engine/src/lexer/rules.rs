//! What the engines differ in when they read quotes and comments, as data.

use crate::Driver;

/// How quotes and comments are read: what the engines differ in. Everybody has `'…'`, `"…"`, `--` and `/* … */`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `--` is a comment only before white space.
    pub(super) dashes_need_blank: bool,
    /// `#` begins a comment.
    pub(super) hash_comments: bool,
    /// A comment may be inside of another.
    pub(super) nested_comments: bool,
    /// A backslash in `'…'` or `"…"` makes the next character part of it.
    pub(super) backslash_escapes: bool,
    /// The same in `E'…'` alone.
    pub(super) escape_strings: bool,
    /// `` `…` `` is an identifier.
    pub(super) backquotes: bool,
    /// `[…]` is an identifier.
    pub(super) brackets: bool,
    /// `$$…$$` and `$tag$…$tag$` are strings.
    pub(super) dollar_quotes: bool,
}

impl Rules {
    const NONE: Rules = Rules {
        dashes_need_blank: false,
        hash_comments: false,
        nested_comments: false,
        backslash_escapes: false,
        escape_strings: false,
        backquotes: false,
        brackets: false,
        dollar_quotes: false,
    };

    /// Of MySQL and MariaDB.
    pub const MYSQL: Rules = Rules {
        dashes_need_blank: true,
        hash_comments: true,
        backslash_escapes: true,
        backquotes: true,
        ..Rules::NONE
    };

    /// Of PostgreSQL.
    pub const POSTGRES: Rules =
        Rules { nested_comments: true, escape_strings: true, dollar_quotes: true, ..Rules::NONE };

    /// Of SQLite.
    pub const SQLITE: Rules = Rules { backquotes: true, brackets: true, ..Rules::NONE };

    /// For text whose engine is not known: what one server calls a quote and no other gives a different meaning is one,
    /// and a comment is what all of them call so.
    pub const ANY_SERVER: Rules =
        Rules { dashes_need_blank: true, backquotes: true, dollar_quotes: true, ..Rules::NONE };
}

impl From<Driver> for Rules {
    fn from(driver: Driver) -> Self {
        match driver {
            Driver::Mysql => Rules::MYSQL,
            Driver::Postgres => Rules::POSTGRES,
            Driver::Sqlite => Rules::SQLITE,
        }
    }
}
