//! The session settings that a connection of the lab begins with, whatever the server's defaults: those that a server
//! is shipped with. A scenario changes them for its sessions with `sessions:`, so what is seen depends on the file
//! alone. `PIPES_AS_CONCAT` is added, as the driver has it.

use crate::scenario::SettingValue;
use hierlock_engine::Dialect;
use std::time::Duration;

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

/// What only a superuser may set: a deadlock is checked for at once, and messages are in English.
pub(super) const POSTGRES_SUPERUSER: [&str; 2] =
    ["SET deadlock_timeout = '20ms'", "SET lc_messages = 'C'"];

/// How long the observer may wait for a table: it must not queue behind an ALTER TABLE of the case.
pub(super) const POSTGRES_SHORT_LOCK_TIMEOUT: &str = "SET lock_timeout = '10ms'";
pub(super) const POSTGRES_NO_LOCK_TIMEOUT: &str = "SET lock_timeout = 0";

/// How much later than it should a session checks for a deadlock: it waits for its turn on the processor.
pub(super) const POSTGRES_CHECK_DELAY: Duration = Duration::from_millis(15);

pub(super) fn initial(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() { INNODB } else { POSTGRES }
}

/// Returns the statement that applies a setting; `None` for autocommit on PostgreSQL, which the session does.
pub(super) fn statement(dialect: Dialect, setting: &SettingValue) -> Option<String> {
    let is_innodb = dialect.is_innodb();
    Some(match setting {
        SettingValue::Isolation(level) if is_innodb => {
            format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        }
        SettingValue::Isolation(level) => {
            format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
        }
        SettingValue::Autocommit(on) if is_innodb => {
            format!("SET SESSION autocommit = {}", u8::from(*on))
        }
        SettingValue::Autocommit(_) => return None,
        SettingValue::LockWaitTimeout(limit) if is_innodb => {
            // Whole seconds; none at all would be NOWAIT on MariaDB, and a second on MySQL.
            let seconds = limit.as_millis().div_ceil(1000).max(1);
            format!(
                "SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
            )
        }
        // None at all would be no limit.
        SettingValue::LockWaitTimeout(limit) => {
            format!("SET lock_timeout = '{}ms'", limit.as_millis().max(1))
        }
        // In the engine's own words, with or without SET.
        SettingValue::Sql(sql) => match sql.get(..4) {
            Some(word) if word.eq_ignore_ascii_case("set ") => sql.to_owned(),
            _ => format!("SET {sql}"),
        },
    })
}
