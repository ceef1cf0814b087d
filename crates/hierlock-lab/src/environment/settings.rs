//! The session settings of every connection of the lab: the defaults that the servers are shipped with, whatever the
//! configuration of the server. Scenarios change them with `sessions:`, so the result depends on the file alone.
//! `PIPES_AS_CONCAT` is added because the driver sets it.

use crate::scenario::SettingValue;
use hierlock_engine::Dialect;
use std::time::Duration;

/// Settings that only one of MySQL and MariaDB has are in comments that only that server reads.
const INNODB: &str = "SET NAMES utf8mb4; \
     SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE; \
     SET SESSION autocommit = 1, completion_type = 0, sql_safe_updates = 0, sql_big_selects = 1, \
     sql_select_limit = 18446744073709551615, innodb_lock_wait_timeout = 50, lock_wait_timeout = 86400, \
     wait_timeout = 28800 \
     /*!80000 , max_execution_time = 0, sql_mode = 'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,\
     NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,PIPES_AS_CONCAT' */ \
     /*M!100600 , max_statement_time = 0, sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,\
     NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION,PIPES_AS_CONCAT' */";

/// Settings that an older server does not have are left out.
const POSTGRES: &str = "SET statement_timeout = 0; \
     SELECT set_config(name, value, false) FROM (VALUES ('client_encoding', 'UTF8'), \
     ('standard_conforming_strings', 'on'), ('bytea_output', 'hex'), \
     ('default_transaction_isolation', 'read committed'), ('default_transaction_read_only', 'off'), \
     ('default_transaction_deferrable', 'off'), ('lock_timeout', '0'), ('transaction_timeout', '0'), \
     ('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0')) s (name, value) \
     WHERE current_setting(name, true) IS NOT NULL";

/// Settings for superusers only: an early check for deadlocks, and messages in English.
pub(super) const POSTGRES_SUPERUSER: [&str; 2] =
    ["SET deadlock_timeout = '20ms'", "SET lc_messages = 'C'"];

/// The observer's limit for a table lock: it must not queue behind an ALTER TABLE of the case.
pub(super) const POSTGRES_SHORT_LOCK_TIMEOUT: &str = "SET lock_timeout = '10ms'";
pub(super) const POSTGRES_NO_LOCK_TIMEOUT: &str = "SET lock_timeout = 0";

/// The delay of a deadlock check after `deadlock_timeout`: the session has to be scheduled.
pub(super) const POSTGRES_CHECK_DELAY: Duration = Duration::from_millis(15);

pub(super) fn initial(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() { INNODB } else { POSTGRES }
}

/// Returns the statement that applies a setting; `None` for autocommit on PostgreSQL, which the session implements.
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
            // Whole seconds; 0 would mean NOWAIT on MariaDB, and one second on MySQL.
            let seconds = limit.as_millis().div_ceil(1000).max(1);
            format!(
                "SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
            )
        }
        // 0 would mean no limit.
        SettingValue::LockWaitTimeout(limit) => {
            format!("SET lock_timeout = '{}ms'", limit.as_millis().max(1))
        }
        SettingValue::Sql(sql) => sql.clone(),
    })
}
