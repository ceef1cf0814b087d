//! The session settings that our statements rely on, one table per engine. A server may have other defaults (`SET GLOBAL`,
//! `init_connect`, `ALTER ROLE … SET`), and a connection of ours must not depend on them.
//!
//! Statements of the program run on lock connections (`Guard::transaction`) and on those of a `Database` too. So these keep
//! the server's `sql_mode`, and what we say there is understood in every mode: no `BEGIN` (a block, in the mode ORACLE), no
//! backslash in a literal, no name in double quotes on MySQL and MariaDB. On a `Database` the server's limits of time stay.
//!
//! `search_path` is not set: a lock table, like any other, is the first of its name on the path. All clients need the same.
//!
//! A program's own pool (`Database::from`) keeps its settings: there each transaction of ours says what it relies on.

use crate::Dialect;
use SettingValue::{Fixed, LockWaitTimeout, ServerDefault, SilenceMillis, SilenceSeconds};
use std::time::Duration;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Holding locks.
    Lock,
    /// Asking, cancelling and provisioning.
    Control,
    /// The toolbox: leases, queues, versions.
    Database,
}

#[derive(Clone, Copy)]
enum SettingValue {
    Fixed(&'static str),
    /// [`SessionSettings::lock_wait_timeout`].
    LockWaitTimeout,
    /// [`SessionSettings::client_silence`], else the default of both servers, 8 hours.
    SilenceSeconds,
    /// The same in milliseconds, else no limit.
    SilenceMillis,
    /// It is left alone.
    ServerDefault,
}

/// The settings of an engine, each with its value for each [`Purpose`].
type SettingsTable = [(&'static str, [SettingValue; 3])];

const fn all(value: &'static str) -> [SettingValue; 3] {
    [Fixed(value); 3]
}

const fn limit(lock: SettingValue, control: &'static str) -> [SettingValue; 3] {
    [lock, Fixed(control), ServerDefault]
}

/// MySQL and MariaDB. Names are set to utf8mb4 besides, and READ COMMITTED: only the rows of a plan are locked, no gaps.
const INNODB: &SettingsTable = &[
    // A statement alone is a transaction. On lock connections it is switched off in the end: a transaction begins by itself.
    ("autocommit", all("1")),
    // The end of a transaction neither begins another nor ends the session.
    ("completion_type", all("0")),
    // Rows are also changed through a join, which is not refused for its size.
    ("sql_safe_updates", all("0")),
    ("sql_big_selects", all("1")),
    // Rows are counted.
    ("sql_select_limit", all("18446744073709551615")),
    // A strict mode without another grammar, where only our statements run.
    (
        "sql_mode",
        [ServerDefault, Fixed("'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"), ServerDefault],
    ),
    // A wait ends when *we* say so, also that for a table that is being changed. 50 is the default of both servers.
    ("innodb_lock_wait_timeout", limit(LockWaitTimeout, "50")),
    ("lock_wait_timeout", limit(Fixed("86400"), "86400")),
    // A hold is idle.
    ("wait_timeout", limit(SilenceSeconds, "28800")),
];

/// Which server it is need not be known: what only one of them has is a comment to the other.
const INNODB_NO_TIME_LIMIT: &str =
    " /*!80000 , max_execution_time = 0 */ /*M!100600 , max_statement_time = 0 */";

/// PostgreSQL. What a server does not have yet is left out.
const POSTGRES: &SettingsTable = &[
    ("client_encoding", all("UTF8")),
    // A backslash is a character.
    ("standard_conforming_strings", all("on")),
    // The driver reads no other.
    ("bytea_output", all("hex")),
    // What was waited for is read as it is now.
    ("default_transaction_isolation", all("read committed")),
    ("default_transaction_read_only", all("off")),
    // Every row is found by its key.
    ("plan_cache_mode", [Fixed("force_generic_plan"), ServerDefault, ServerDefault]),
    // A wait ends when *we* say so.
    ("lock_timeout", limit(Fixed("0"), "0")),
    ("transaction_timeout", limit(Fixed("0"), "0")),
    // A hold is idle.
    ("idle_in_transaction_session_timeout", limit(SilenceMillis, "0")),
    ("idle_session_timeout", limit(SilenceMillis, "0")),
    // A server that waits on behalf of a client that is gone takes the lock in the end.
    ("client_connection_check_interval", limit(Fixed("1s"), "1s")),
];

/// The longest wait for a row that every server takes in every `sql_mode`: three years. (MySQL would take ten times that.
/// MariaDB takes it for this, with a warning, or in a strict mode refuses it.)
pub const LONGEST_LOCK_WAIT: u32 = 100_000_000;

/// What whoever opens a session chooses.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// How long a server may hear nothing from a client before it ends its lock sessions. By default as for anybody.
    pub client_silence: Option<Duration>,
    /// After how many seconds InnoDB ends a wait of a lock session, which then begins again.
    pub lock_wait_timeout: u32,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { client_silence: None, lock_wait_timeout: LONGEST_LOCK_WAIT }
    }
}

impl SessionSettings {
    /// Returns the statements that set a session up: those before anything is asked of it, and those behind that.
    pub(super) fn set_up(&self, dialect: Dialect, purpose: Purpose) -> (String, &'static str) {
        if dialect == Dialect::Postgres {
            return (self.postgres(purpose), "");
        }
        let settings = self.written(INNODB, purpose, |name, value| format!("{name} = {value}"));
        let no_limit = if purpose == Purpose::Database { "" } else { INNODB_NO_TIME_LIMIT };
        let first = format!(
            "SET NAMES utf8mb4; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
             SET SESSION {settings}{no_limit}"
        );
        let last = if purpose == Purpose::Lock { "; SET SESSION autocommit = 0" } else { "" };
        (first, last)
    }

    /// The settings of a table that are not left alone, written by name and value.
    fn written(
        &self,
        table: &SettingsTable,
        purpose: Purpose,
        write: impl Fn(&str, &str) -> String,
    ) -> String {
        let silence = self.client_silence.map(|limit| limit.as_millis());
        let setting = |(name, values): &(&str, [SettingValue; 3])| {
            let value = match values[purpose as usize] {
                ServerDefault => return None,
                Fixed(value) => value.to_owned(),
                LockWaitTimeout => self.lock_wait_timeout.to_string(),
                SilenceSeconds => silence.map_or(28_800, |ms| ms.div_ceil(1000)).to_string(),
                SilenceMillis => silence.unwrap_or(0).to_string(),
            };
            Some(write(name, &value))
        };
        table.iter().filter_map(setting).collect::<Vec<_>>().join(", ")
    }

    /// A limit of time comes first, for it would be one for the rest.
    fn postgres(&self, purpose: Purpose) -> String {
        let rows = self.written(POSTGRES, purpose, |name, value| format!("('{name}', '{value}')"));
        let set = format!(
            "SELECT set_config(name, value, false) FROM (VALUES {rows}) s (name, value) \
             WHERE current_setting(name, true) IS NOT NULL"
        );
        match purpose {
            Purpose::Database => set,
            _ => format!("SET statement_timeout = 0; {set}; {KEEP_ALIVE}"),
        }
    }
}

/// A vanished host is noticed by the server's kernel within half a minute. What is sooner stays.
const KEEP_ALIVE: &str = "SELECT set_config(name, least, false) FROM (VALUES \
     ('tcp_keepalives_idle', '15'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3') \
     ) k(name, least) WHERE current_setting(name)::int > least::int";

/// What a session of PostgreSQL is told that only listens, and is idle most of the time.
pub fn listener() -> String {
    format!(
        "{}; SELECT set_config('idle_session_timeout', '0', false) \
         WHERE current_setting('idle_session_timeout', true) IS NOT NULL",
        SessionSettings::default().postgres(Purpose::Database)
    )
}
