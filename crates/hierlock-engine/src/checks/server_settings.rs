//! The settings of a server. A lock session sets what it relies on, so the checks look at its own values, and at the
//! server's defaults only where transactions of the application depend on them.

use super::{Area, Rule, ServerCheck, Values};
use crate::Dialect;
use crate::introspection::LABEL_TABLE;

/// By default PostgreSQL searches for deadlocks after a second.
const LONG_DEADLOCK_TIMEOUT_MS: i64 = 10_000;
/// A transaction that holds locks may be idle while the application waits for something else.
const SHORT_IDLE_TRANSACTION_MS: i64 = 60_000;
/// Connections in a pool are idle for longer.
const SHORT_IDLE_SECONDS: i64 = 60;

const fn setting(name: &'static str, why: &'static str, rule: Rule) -> ServerCheck {
    ServerCheck::new(Area::Settings, name, why, rule)
}

/// Lock sessions run at READ COMMITTED.
pub(super) const ISOLATION: ServerCheck = setting(
    "isolation",
    "above READ COMMITTED InnoDB also locks the gaps between rows, and PostgreSQL fails where a \
     row was changed since the transaction began",
    |check, facts| {
        let Some(ours) = isolation(&facts.session) else { return Some(check.not_reported()) };
        if !ours.replace('-', " ").eq_ignore_ascii_case("read committed") {
            let message = format!("a lock session requested READ COMMITTED and runs at {ours}");
            return Some(check.problem(message, DIRECT_CONNECTION_ADVICE));
        }
        let default = isolation(&facts.settings).unwrap_or("not reported");
        Some(check.ok(format!("lock sessions run at READ COMMITTED; the default is {default}")))
    },
);

const DIRECT_CONNECTION_ADVICE: &str =
    "connect to the server itself: something in between ignores SET SESSION";

fn isolation(values: &Values) -> Option<&str> {
    let names = ["transaction_isolation", "tx_isolation", "default_transaction_isolation"];
    names.into_iter().find_map(|name| values.get(name))
}

/// The server does not end a lock wait before the client does.
pub(super) const LOCK_WAIT_TIMEOUT: ServerCheck = setting(
    "lock-wait-timeout",
    "the caller sets the limit of a wait; the server's limit applies only to transactions of the \
     program (`acquire_in`)",
    |check, facts| {
        let (name, unit) = match facts.dialect {
            Dialect::Postgres => ("lock_timeout", "ms"),
            _ => ("innodb_lock_wait_timeout", "s"),
        };
        let Some(default) = facts.settings.number(name) else { return Some(check.not_reported()) };
        if let Some(ours) = facts.refused_setting(name) {
            let message =
                format!("the server ends waits of lock sessions after {ours} {unit} ({name})");
            return Some(check.warning(message, DIRECT_CONNECTION_ADVICE));
        }
        let limit = if default == 0 { "none".to_owned() } else { format!("{default} {unit}") };
        Some(check.ok(format!("lock sessions set their own; the server's {name} is {limit}")))
    },
);

/// InnoDB detects deadlocks.
pub(super) const DEADLOCK_DETECT: ServerCheck = setting(
    "deadlock-detect",
    "hierlock's acquires never deadlock with each other, but a transaction that locks other rows \
     as well can, and then waits until a timeout",
    |check, facts| {
        if facts.dialect == Dialect::Postgres {
            return None;
        }
        Some(match facts.settings.is_on("innodb_deadlock_detect") {
            Some(true) => check.ok("innodb_deadlock_detect is ON"),
            Some(false) => check.warning(
                "innodb_deadlock_detect is OFF, so a deadlock with rows of your own is not ended",
                "SET PERSIST innodb_deadlock_detect = ON (MariaDB: SET GLOBAL, and the configuration file), or set \
                 lock_wait_timeout in the URL",
            ),
            None => check.not_reported(),
        })
    },
);

/// PostgreSQL detects deadlocks soon.
pub(super) const DEADLOCK_TIMEOUT: ServerCheck = setting(
    "deadlock-timeout",
    "PostgreSQL resolves a deadlock, such as one of two extended holds, only after this time",
    |check, facts| {
        if facts.dialect != Dialect::Postgres {
            return None;
        }
        Some(match facts.settings.number("deadlock_timeout") {
            Some(ms) if ms > LONG_DEADLOCK_TIMEOUT_MS => check.warning(
                format!("deadlock_timeout is {ms} ms, so a deadlock lasts that long"),
                "ALTER SYSTEM SET deadlock_timeout = '1s', the default, and reload",
            ),
            Some(ms) => check.ok(format!("deadlock_timeout is {ms} ms")),
            None => check.not_reported(),
        })
    },
);

/// A lock that is refused does not release the other locks of its transaction.
pub(super) const ROLLBACK_ON_TIMEOUT: ServerCheck = setting(
    "rollback-on-timeout",
    "a lock that is refused must not release the others of the same transaction",
    |check, facts| {
        let name = "innodb_rollback_on_timeout";
        match (facts.dialect, facts.settings.is_on(name)) {
            (Dialect::Postgres, _) => None,
            (_, None) => Some(check.not_reported()),
            (_, Some(false)) => Some(check.ok(format!("{name} is OFF"))),
            // On MariaDB a NOWAIT refusal counts as a timeout.
            (Dialect::Mariadb, Some(true)) => Some(check.problem(
                format!("{name} is ON, so a transaction loses all its locks when another lock is refused"),
                format!("start the server with {name}=OFF, the default"),
            )),
            (Dialect::Mysql, Some(true)) => Some(check.ok(format!(
                "{name} is ON: a wait that InnoDB ends also ends the transaction, which NOWAIT does not"
            ))),
        }
    },
);

/// MariaDB does not fail at a row that was changed since the snapshot.
pub(super) const SNAPSHOT_ISOLATION: ServerCheck = setting(
    "snapshot-isolation",
    "with it, a transaction at REPEATABLE READ that locks a row which was changed since it began \
     fails with error 1020, and must be run again",
    |check, facts| {
        let is_on = facts.settings.is_on("innodb_snapshot_isolation")?;
        let default = isolation(&facts.settings).unwrap_or("not reported");
        let is_affected = !default.eq_ignore_ascii_case("READ-COMMITTED");
        Some(if is_on && is_affected {
            check.warning(
                format!(
                    "innodb_snapshot_isolation is ON and the default isolation is {default}: lock sessions are not \
                     affected, transactions of your program are"
                ),
                "run them again after error 1020, as `hierlock::retry` does, or at READ COMMITTED",
            )
        } else {
            check.ok(format!("innodb_snapshot_isolation is {}", if is_on { "ON" } else { "OFF" }))
        })
    },
);

/// PostgreSQL does not end a hold, which is idle in its transaction.
pub(super) const IDLE_TRANSACTION_TIMEOUT: ServerCheck = setting(
    "idle-transaction-timeout",
    "a hold is idle in its transaction: if the server ends such sessions, the lock is lost",
    |check, facts| {
        if facts.dialect != Dialect::Postgres {
            return None;
        }
        let name = "idle_in_transaction_session_timeout";
        let Some(default) = facts.settings.number(name) else { return Some(check.not_reported()) };
        Some(if let Some(ours) = facts.refused_setting(name) {
            let message = format!("lock sessions are ended after {ours} ms ({name})");
            check.problem(message, DIRECT_CONNECTION_ADVICE)
        } else if default != 0 && default < SHORT_IDLE_TRANSACTION_MS {
            check.warning(
                format!(
                    "{name} is {default} ms: lock sessions set their own, but locks in transactions of your program \
                     (`acquire_in`) end after that time"
                ),
                format!("ALTER ROLE … SET {name} = '10min', for the role of the program"),
            )
        } else {
            let default =
                if default == 0 { "no limit".to_owned() } else { format!("{default} ms") };
            check.ok(format!("lock sessions set their own; the server has {default}"))
        })
    },
);

/// The server does not close connections that are idle for a short time.
pub(super) const IDLE_TIMEOUT: ServerCheck = setting(
    "idle-timeout",
    "lock sessions set hours, but the connections of leases, queues and your program are closed \
     after this idle time",
    |check, facts| {
        let (name, unit, short) = match facts.dialect {
            Dialect::Postgres => ("idle_session_timeout", "ms", 1000 * SHORT_IDLE_SECONDS),
            _ => ("wait_timeout", "s", SHORT_IDLE_SECONDS),
        };
        let default = facts.settings.number(name)?;
        Some(if let Some(ours) = facts.refused_setting(name) {
            let message = format!("lock sessions are closed after {ours} {unit} ({name})");
            check.problem(message, DIRECT_CONNECTION_ADVICE)
        } else if default != 0 && default < short {
            check.warning(
                format!("{name} is {default} {unit}: lock sessions set their own, other connections do not"),
                format!("raise {name} to minutes, or let the pool of your program close idle connections sooner"),
            )
        } else if default == 0 {
            check.ok(format!("{name} has no limit"))
        } else {
            check.ok(format!("{name} is {default} {unit}; lock sessions set their own"))
        })
    },
);

/// Lock waits are visible.
pub(super) const PERFORMANCE_SCHEMA: ServerCheck = setting(
    "performance-schema",
    "it shows the labels of sessions, and on MySQL the lock waits; without it, holders write their \
     labels to a table",
    |check, facts| {
        let is_on = facts.settings.is_on("performance_schema")?;
        Some(match (facts.dialect, is_on) {
            (_, true) => check.ok("performance_schema is ON"),
            (Dialect::Mariadb, false) => match &facts.label_table {
                Some(Ok(())) => check.ok(format!(
                    "performance_schema is OFF, MariaDB's default; holders write their \
                     labels to `{LABEL_TABLE}`"
                )),
                refused => {
                    let why = refused.as_ref().and_then(|refused| refused.as_ref().err());
                    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                    check.warning(
                        format!(
                            "performance_schema is OFF, MariaDB's default, and this account cannot use `{LABEL_TABLE}`\
                             {why}: lock waits are shown, but not the program and the node of a holder"
                        ),
                        format!(
                            "run `hierlock provision` and GRANT SELECT, INSERT ON {LABEL_TABLE} TO the account of the \
                             clients, or start the server with performance_schema=ON"
                        ),
                    )
                }
            },
            _ => check.warning(
                "performance_schema is OFF, so lock waits are not shown",
                "start the server with performance_schema=ON, the default",
            ),
        })
    },
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ServerFacts;
    use crate::checks::Severity::{self, Ok, Problem, Skipped, Warning};
    use crate::{Purpose, SessionSettings};

    /// Returns the severity for these pairs of a server default and the value of a lock session that requests the
    /// default settings.
    fn severity(
        check: ServerCheck,
        dialect: Dialect,
        values: &[(&str, &str, &str)],
    ) -> Option<Severity> {
        let mut facts = ServerFacts::new(dialect);
        for (name, value) in SessionSettings::default().values(dialect, Purpose::Lock) {
            facts.requested.set(name, value);
        }
        for (name, default, session) in values {
            facts.settings.set(name, *default);
            facts.session.set(name, *session);
        }
        check.judge(&facts).map(|finding| finding.severity)
    }

    #[test]
    fn values_of_the_lock_session_are_checked() {
        use Dialect::{Mariadb, Mysql, Postgres};
        let idle = "idle_in_transaction_session_timeout";
        for (check, dialect, name, default, session, expected) in [
            (ISOLATION, Mysql, "transaction_isolation", "REPEATABLE-READ", "READ-COMMITTED", Ok),
            (ISOLATION, Mariadb, "tx_isolation", "SERIALIZABLE", "READ-COMMITTED", Ok),
            (ISOLATION, Mysql, "transaction_isolation", "x", "REPEATABLE-READ", Problem),
            (ISOLATION, Postgres, "default_transaction_isolation", "x", "serializable", Problem),
            (ISOLATION, Postgres, "default_transaction_isolation", "x", "read committed", Ok),
            (ISOLATION, Postgres, "other", "x", "read committed", Skipped),
            (LOCK_WAIT_TIMEOUT, Mysql, "innodb_lock_wait_timeout", "50", "100000000", Ok),
            (LOCK_WAIT_TIMEOUT, Mysql, "innodb_lock_wait_timeout", "50", "50", Warning),
            (LOCK_WAIT_TIMEOUT, Postgres, "lock_timeout", "5", "0", Ok),
            (LOCK_WAIT_TIMEOUT, Postgres, "lock_timeout", "5", "5", Warning),
            (IDLE_TRANSACTION_TIMEOUT, Postgres, idle, "0", "0", Ok),
            (IDLE_TRANSACTION_TIMEOUT, Postgres, idle, "600000", "0", Ok),
            (IDLE_TRANSACTION_TIMEOUT, Postgres, idle, "5000", "0", Warning),
            (IDLE_TRANSACTION_TIMEOUT, Postgres, idle, "5000", "5000", Problem),
            (IDLE_TIMEOUT, Mysql, "wait_timeout", "28800", "28800", Ok),
            (IDLE_TIMEOUT, Mysql, "wait_timeout", "5", "28800", Warning),
            (IDLE_TIMEOUT, Mysql, "wait_timeout", "5", "5", Problem),
            (IDLE_TIMEOUT, Postgres, "idle_session_timeout", "5000", "0", Warning),
            (IDLE_TIMEOUT, Postgres, "idle_session_timeout", "0", "0", Ok),
        ] {
            let actual = severity(check, dialect, &[(name, default, session)]);
            assert_eq!(actual, Some(expected), "{name} = {default}, {session}");
        }
    }

    #[test]
    fn switches_and_timeouts_are_checked() {
        use Dialect::{Mariadb, Mysql, Postgres};
        for (check, dialect, name, value, expected) in [
            (DEADLOCK_DETECT, Mysql, "innodb_deadlock_detect", "ON", Some(Ok)),
            (DEADLOCK_DETECT, Mysql, "innodb_deadlock_detect", "OFF", Some(Warning)),
            (DEADLOCK_DETECT, Postgres, "", "", None),
            (DEADLOCK_TIMEOUT, Postgres, "deadlock_timeout", "1000", Some(Ok)),
            (DEADLOCK_TIMEOUT, Postgres, "deadlock_timeout", "60000", Some(Warning)),
            (DEADLOCK_TIMEOUT, Mysql, "", "", None),
            (ROLLBACK_ON_TIMEOUT, Mariadb, "innodb_rollback_on_timeout", "ON", Some(Problem)),
            (ROLLBACK_ON_TIMEOUT, Mariadb, "innodb_rollback_on_timeout", "1", Some(Problem)),
            (ROLLBACK_ON_TIMEOUT, Mariadb, "innodb_rollback_on_timeout", "0", Some(Ok)),
            (ROLLBACK_ON_TIMEOUT, Mysql, "innodb_rollback_on_timeout", "ON", Some(Ok)),
            (PERFORMANCE_SCHEMA, Mysql, "performance_schema", "OFF", Some(Warning)),
            (PERFORMANCE_SCHEMA, Mysql, "performance_schema", "ON", Some(Ok)),
            (PERFORMANCE_SCHEMA, Mariadb, "performance_schema", "OFF", Some(Warning)),
            (PERFORMANCE_SCHEMA, Postgres, "", "", None),
        ] {
            assert_eq!(
                severity(check, dialect, &[(name, value, value)]),
                expected,
                "{name} = {value}"
            );
        }
        for (snapshot, isolation, expected) in [
            ("ON", "REPEATABLE-READ", Warning),
            ("ON", "READ-COMMITTED", Ok),
            ("OFF", "REPEATABLE-READ", Ok),
        ] {
            let values = [
                ("innodb_snapshot_isolation", snapshot, snapshot),
                ("tx_isolation", isolation, isolation),
            ];
            assert_eq!(severity(SNAPSHOT_ISOLATION, Mariadb, &values), Some(expected));
        }
        assert_eq!(severity(SNAPSHOT_ISOLATION, Mysql, &[]), None);
    }

    #[test]
    fn the_table_of_labels_replaces_performance_schema_on_mariadb() {
        let refused = "INSERT command denied";
        for (dialect, label_table, expected) in [
            (Dialect::Mariadb, None, Warning),
            (Dialect::Mariadb, Some(Err(refused.to_owned())), Warning),
            (Dialect::Mariadb, Some(Result::Ok(())), Ok),
            (Dialect::Mysql, Some(Result::Ok(())), Warning),
        ] {
            let mut facts = ServerFacts { label_table, ..ServerFacts::new(dialect) };
            facts.settings.set("performance_schema", "OFF");
            let found = PERFORMANCE_SCHEMA.judge(&facts).unwrap();
            assert_eq!(found.severity, expected, "{facts:?}");
            let is_refused = matches!(facts.label_table, Some(Err(_)));
            assert_eq!(found.message.contains(refused), is_refused, "{}", found.message);
        }
    }
}
