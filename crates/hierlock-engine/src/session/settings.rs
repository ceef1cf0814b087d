//! The session settings that our statements rely on, one table per engine. The server may have other defaults
//! (`SET GLOBAL`, `init_connect`, `ALTER ROLE … SET`), and our connections must not depend on them.
//!
//! The application's statements also run on lock connections (`Guard::transaction`) and on those of a `Database`. These
//! keep the server's `sql_mode`, so our statements there must work in every mode: no `BEGIN` (it begins a block with
//! `sql_mode=ORACLE`), no backslash in a literal, no name in double quotes on MySQL and MariaDB. A `Database` also
//! keeps the server's timeouts.
//!
//! `search_path` is not set: a lock table is found like any other table, and all clients need the same path.
//!
//! The application's own pool (`Database::from`) keeps its settings. There each of our transactions sets what it relies
//! on.

use crate::Dialect;
use SettingRule::{Fixed, LockWaitTimeout, ServerDefault, SilenceMillis, SilenceSeconds};
use std::time::Duration;

/// The purpose of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Holding locks.
    Lock,
    /// Introspection, cancels and provisioning.
    Control,
    /// The toolbox: leases, queues, versions.
    Database,
}

#[derive(Clone, Copy)]
enum SettingRule {
    Fixed(&'static str),
    /// [`SessionSettings::lock_wait_timeout`].
    LockWaitTimeout,
    /// [`SessionSettings::client_silence`] in seconds; by default 8 hours, the default of MySQL and MariaDB.
    SilenceSeconds,
    /// [`SessionSettings::client_silence`] in milliseconds; by default no limit.
    SilenceMillis,
    /// Not set.
    ServerDefault,
}

/// The settings of an engine, each with its value per [`Purpose`].
type SettingsTable = [(&'static str, [SettingRule; 3])];

const fn all(value: &'static str) -> [SettingRule; 3] {
    [Fixed(value); 3]
}

const fn limit(lock: SettingRule, control: &'static str) -> [SettingRule; 3] {
    [lock, Fixed(control), ServerDefault]
}

/// MySQL and MariaDB. Besides these, NAMES is utf8mb4 and the isolation is READ COMMITTED: only rows are locked, no
/// gaps.
const INNODB: &SettingsTable = &[
    // Each statement is a transaction. On lock connections it is switched off at last: a transaction then begins
    // implicitly.
    ("autocommit", all("1")),
    // COMMIT and ROLLBACK neither begin a transaction nor end the session.
    ("completion_type", all("0")),
    // Rows are also changed through a join, which must not be refused for its size.
    ("sql_safe_updates", all("0")),
    ("sql_big_selects", all("1")),
    // Row counts must be exact.
    ("sql_select_limit", all("18446744073709551615")),
    // A strict mode without grammar changes, where only our own statements run.
    (
        "sql_mode",
        [ServerDefault, Fixed("'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"), ServerDefault],
    ),
    // The client ends its waits itself, also for metadata locks. 50 is the default of both servers.
    ("innodb_lock_wait_timeout", limit(LockWaitTimeout, "50")),
    ("lock_wait_timeout", limit(Fixed("86400"), "86400")),
    // A hold is idle, and the server must not end its session.
    ("wait_timeout", limit(SilenceSeconds, "28800")),
];

/// The server is not known yet: a setting that only one of the two has is a comment to the other.
const INNODB_NO_TIME_LIMIT: &str =
    " /*!80000 , max_execution_time = 0 */ /*M!100600 , max_statement_time = 0 */";

/// Makes the process list of MariaDB show the values of a prepared statement, not its placeholders: while a session waits,
/// others can read its label there. Nothing is logged because of it, since MariaDB logs a statement only if the global
/// `slow_query_log` is on too.
const MARIADB_SHOW_VALUES: &str = " /*M!100600 , slow_query_log = 1 */";

/// PostgreSQL. Settings that the server does not know are left out.
const POSTGRES: &SettingsTable = &[
    ("client_encoding", all("UTF8")),
    // A backslash is a plain character.
    ("standard_conforming_strings", all("on")),
    // The driver reads only this format.
    ("bytea_output", all("hex")),
    // A statement that has waited reads the current data.
    ("default_transaction_isolation", all("read committed")),
    ("default_transaction_read_only", all("off")),
    // Every row is found by its key, so a generic plan is best.
    ("plan_cache_mode", [Fixed("force_generic_plan"), ServerDefault, ServerDefault]),
    // The client ends its waits itself.
    ("lock_timeout", limit(Fixed("0"), "0")),
    ("transaction_timeout", limit(Fixed("0"), "0")),
    // A hold is idle, and the server must not end its session.
    ("idle_in_transaction_session_timeout", limit(SilenceMillis, "0")),
    ("idle_session_timeout", limit(SilenceMillis, "0")),
    // Otherwise a backend that waits for a dead client takes the lock in the end.
    ("client_connection_check_interval", limit(Fixed("1s"), "1s")),
];

/// The longest InnoDB lock wait in seconds that every server accepts in every `sql_mode`: three years. (MySQL accepts
/// ten times that. MariaDB reduces such a value to this one with a warning, and in a strict mode refuses it.)
pub const LONGEST_LOCK_WAIT: u32 = 100_000_000;

/// The settings that a client chooses for its sessions.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// The time without a message from the client after which the server ends a lock session. By default that of any
    /// session.
    pub client_silence: Option<Duration>,
    /// The seconds after which InnoDB ends a lock wait of a lock session, which then waits again.
    pub lock_wait_timeout: u32,
    /// A label of the session for administrators: printable ASCII without quotes and backslashes. It is the
    /// `application_name` on PostgreSQL, and the user variable `hierlock` elsewhere.
    pub label: Option<String>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { client_silence: None, lock_wait_timeout: LONGEST_LOCK_WAIT, label: None }
    }
}

impl SessionSettings {
    /// Returns the statements that set up a session: those before its first query, and those after it.
    pub(super) fn set_up(&self, dialect: Dialect, purpose: Purpose) -> (String, &'static str) {
        if dialect == Dialect::Postgres {
            return (self.postgres(purpose), "");
        }
        let settings = self.list(dialect, purpose, |name, value| format!("{name} = {value}"));
        let no_limit = if purpose == Purpose::Database { "" } else { INNODB_NO_TIME_LIMIT };
        let show_values = if purpose == Purpose::Lock { MARIADB_SHOW_VALUES } else { "" };
        let label = self.label.as_ref().map(|label| format!("; SET @hierlock = '{label}'"));
        let label = label.unwrap_or_default();
        let first = format!(
            "SET NAMES utf8mb4; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
             SET SESSION {settings}{no_limit}{show_values}{label}"
        );
        let last = if purpose == Purpose::Lock { "; SET SESSION autocommit = 0" } else { "" };
        (first, last)
    }

    /// Returns the settings of a session by name, without the isolation level of MySQL and MariaDB.
    pub(crate) fn values(
        &self,
        dialect: Dialect,
        purpose: Purpose,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let table = if dialect.is_innodb() { INNODB } else { POSTGRES };
        let (silence, lock_wait) =
            (self.client_silence.map(|limit| limit.as_millis()), self.lock_wait_timeout);
        table.iter().filter_map(move |(name, values)| {
            let value = match values[purpose as usize] {
                ServerDefault => return None,
                Fixed(value) => value.to_owned(),
                LockWaitTimeout => lock_wait.to_string(),
                SilenceSeconds => silence.map_or(28_800, |ms| ms.div_ceil(1000)).to_string(),
                SilenceMillis => silence.unwrap_or(0).to_string(),
            };
            Some((*name, value))
        })
    }

    /// Formats the [`values`](Self::values) with `write`, separated by commas.
    fn list(
        &self,
        dialect: Dialect,
        purpose: Purpose,
        write: impl Fn(&str, &str) -> String,
    ) -> String {
        let items = self.values(dialect, purpose).map(|(name, value)| write(name, &value));
        items.collect::<Vec<_>>().join(", ")
    }

    /// The statement timeout is set first, because it would apply to the other statements.
    fn postgres(&self, purpose: Purpose) -> String {
        let row = |name: &str, value: &str| format!("('{name}', '{value}')");
        let rows = self.list(Dialect::Postgres, purpose, row);
        let set = format!(
            "SELECT set_config(name, value, false) FROM (VALUES {rows}) s (name, value) \
             WHERE current_setting(name, true) IS NOT NULL"
        );
        let label = self.label.as_ref().map(|label| format!("; SET application_name = '{label}'"));
        let label = label.unwrap_or_default();
        match purpose {
            Purpose::Database => set,
            _ => format!("SET statement_timeout = 0; {set}; {KEEP_ALIVE}{label}"),
        }
    }
}

/// The server's kernel detects a dead host within half a minute. Shorter settings are kept.
const KEEP_ALIVE: &str = "SELECT set_config(name, least, false) FROM (VALUES \
     ('tcp_keepalives_idle', '15'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3') \
     ) k(name, least) WHERE current_setting(name)::int > least::int";

/// Returns the settings of a PostgreSQL session that only listens and is mostly idle.
pub fn listener() -> String {
    format!(
        "{}; SELECT set_config('idle_session_timeout', '0', false) \
         WHERE current_setting('idle_session_timeout', true) IS NOT NULL",
        SessionSettings::default().postgres(Purpose::Database)
    )
}
