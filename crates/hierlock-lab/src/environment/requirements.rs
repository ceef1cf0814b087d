//! What a case needs from its server, read from its statements: some cases must not run in parallel with others.

use super::prepared_transactions::is_preparing;
use crate::scenario::Case;
use hierlock::sql::Strategy;
use hierlock_engine::{Dialect, StatementWords};

/// The needs of a case beyond its own tables.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Requirements {
    /// PostgreSQL: a database instead of a schema, for advisory locks and statements that wait for older snapshots.
    pub(super) database: bool,
    /// Names that belong to the whole server: of GET_LOCK, and of prepared transactions.
    pub(super) names: bool,
    /// The whole server, with no other case on it.
    pub(super) server: bool,
}

impl Requirements {
    pub(super) fn of(dialect: Dialect, case: &Case) -> Self {
        let driver = dialect.driver();
        let prepares = case.sql().any(|sql| is_preparing(driver, sql));
        let texts: Vec<_> = case.sql().map(|sql| StatementWords::of(driver, sql)).collect();
        let is_database_wide = |words: &StatementWords| {
            words.has_part("advisory")
                || ["concurrently", "vacuum", "extension"].iter().any(|word| words.has(word))
        };
        let is_server_wide = |words: &StatementWords| {
            words.first() == "flush"
                || words.first() == "backup"
                || words.has_all(&["set", "global"])
                || words.has_all(&["lock", "instance"])
        };
        // Users and roles belong to no database.
        let is_about_roles = |words: &StatementWords| {
            ["create", "alter", "drop"].contains(&words.first())
                && ["role", "user", "group"].contains(&words.nth(1))
        };
        let is_postgres = dialect == Dialect::Postgres;
        Self {
            database: is_postgres
                && (case.backend.strategy == Some(Strategy::Advisory)
                    || texts.iter().any(is_database_wide)),
            names: prepares || !is_postgres && texts.iter().any(|words| words.has("get_lock")),
            server: !is_postgres && texts.iter().any(is_server_wide)
                || texts.iter().any(is_about_roles),
        }
    }
}
