//! The session settings that a connection of the lab begins with, whatever the server's defaults: those that a server
//! is shipped with. A scenario changes them for its sessions with `sessions:`, so what is seen depends on the file
//! alone. What is set here:
//!
//! | setting | MySQL, MariaDB | PostgreSQL |
//! |---|---|---|
//! | isolation | REPEATABLE READ | READ COMMITTED |
//! | read only | no | no |
//! | `autocommit` | on | – |
//! | `completion_type` | 0 | – |
//! | `sql_mode` | that of its first installation, and `PIPES_AS_CONCAT`, as the driver has it | – |
//! | limits of rows (`sql_select_limit`, `sql_safe_updates`, `sql_big_selects`) | none | – |
//! | limits of a wait | 50 s for a row, a day for a table | none |
//! | limits of a statement, of being idle | none, 8 h | none |
//! | text | `NAMES utf8mb4` | `client_encoding`, `standard_conforming_strings`, `bytea_output` |

use crate::scenario::SettingValue;
use hierlock_engine::Dialect;

/// What only one of MySQL and MariaDB has is a comment to the other.
const INNODB: &str = "SET NAMES utf8mb4; \
     SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE; \
     SET SESSION autocommit = 1, completion_type = 0, sql_safe_updates = 0, sql_big_selects = 1, \
     sql_select_limit = 18446744073709551615, innodb_lock_wait_timeout = 50, lock_wait_timeout = 86400, \
     wait_timeout = 28800 \
     /*!80000 , max_execution_time = 0, sql_mode = 'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,\
     NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,PIPES_AS_CONCAT' */ \
     /*M!100600 , max_statement_time = 0, sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,\
     NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION,PIPES_AS_CONCAT' */";

/// What a server does not have yet is left out.
const POSTGRES: &str = "SET statement_timeout = 0; \
     SELECT set_config(name, value, false) FROM (VALUES ('client_encoding', 'UTF8'), \
     ('standard_conforming_strings', 'on'), ('bytea_output', 'hex'), \
     ('default_transaction_isolation', 'read committed'), ('default_transaction_read_only', 'off'), \
     ('default_transaction_deferrable', 'off'), ('lock_timeout', '0'), ('transaction_timeout', '0'), \
     ('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0')) s (name, value) \
     WHERE current_setting(name, true) IS NOT NULL";

/// What a new session is told.
pub(super) fn of(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => POSTGRES,
        _ => INNODB,
    }
}

/// What sets a session up as a scenario wants it; nothing for autocommit on PostgreSQL, which the session sees to itself.
pub(super) fn statement(dialect: Dialect, setting: &SettingValue) -> Option<String> {
    match dialect {
        Dialect::Mysql | Dialect::Mariadb => Some(innodb(setting)),
        Dialect::Postgres => postgres(setting),
    }
}

fn innodb(setting: &SettingValue) -> String {
    match setting {
        SettingValue::Isolation(level) => {
            format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        }
        SettingValue::Autocommit(on) => format!("SET SESSION autocommit = {}", u8::from(*on)),
        SettingValue::LockWaitTimeout(limit) => {
            // Whole seconds; none at all would be NOWAIT on MariaDB, and a second on MySQL.
            let seconds = limit.as_millis().div_ceil(1000).max(1);
            format!(
                "SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
            )
        }
        SettingValue::Sql(sql) => as_set(sql),
    }
}

fn postgres(setting: &SettingValue) -> Option<String> {
    Some(match setting {
        SettingValue::Isolation(level) => {
            format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
        }
        SettingValue::Autocommit(_) => return None,
        SettingValue::LockWaitTimeout(limit) => {
            // None at all would be no limit.
            format!("SET lock_timeout = '{}ms'", limit.as_millis().max(1))
        }
        SettingValue::Sql(sql) => as_set(sql),
    })
}

/// A setting in the engine's own words, with or without the word itself.
fn as_set(sql: &str) -> String {
    match sql.get(..4) {
        Some(word) if word.eq_ignore_ascii_case("set ") => sql.to_owned(),
        _ => format!("SET {sql}"),
    }
}
