//! The session settings that our statements rely on, stated once for each kind of connection. A server may have other
//! defaults (`SET GLOBAL`, `init_connect`, `ALTER ROLE … SET`), and a connection of ours must not depend on them.
//!
//! | setting | lock | side | database | relied on because |
//! |---|---|---|---|---|
//! | **MySQL, MariaDB** | | | | |
//! | `NAMES` | utf8mb4 | utf8mb4 | utf8mb4 | statements and answers are UTF-8 |
//! | isolation | READ COMMITTED | READ COMMITTED | READ COMMITTED | only the rows of a plan are locked, no gaps |
//! | `transaction_read_only` | off | off | off | we write |
//! | `autocommit` | **off** | on | on | lock: a transaction begins by itself; else: a statement alone is a transaction |
//! | `completion_type` | 0 | 0 | 0 | the end of a transaction neither begins another nor ends the session |
//! | `sql_safe_updates` | off | off | off | rows are also changed through a join |
//! | `sql_select_limit` | none | none | none | rows are counted |
//! | `sql_big_selects` | on | on | on | a join is not refused for its size |
//! | `sql_mode` | – | `STRICT_TRANS_TABLES` … | – | see below |
//! | `innodb_lock_wait_timeout` | the longest | 50 s | – | lock: a wait ends when *we* say so |
//! | `lock_wait_timeout` | 1 day | 1 day | – | the same, for a table that is being changed |
//! | `max_execution_time`, `max_statement_time` | none | none | – | the same |
//! | `wait_timeout` | 8 h, or `client_silence_ms` | 8 h | – | a hold is idle |
//! | **PostgreSQL** | | | | |
//! | `client_encoding` | UTF8 | UTF8 | UTF8 | as `NAMES` |
//! | `standard_conforming_strings` | on | on | on | a backslash is a character |
//! | `bytea_output` | hex | hex | hex | the driver reads no other |
//! | `default_transaction_isolation` | read committed | read committed | read committed | what was waited for is read as it is now |
//! | `default_transaction_read_only` | off | off | off | we write |
//! | `statement_timeout`, `lock_timeout`, `transaction_timeout` | none | none | – | a wait ends when *we* say so |
//! | `idle_in_transaction_session_timeout`, `idle_session_timeout` | none, or `client_silence_ms` | none | – | a hold is idle |
//! | `plan_cache_mode` | force_generic_plan | – | – | every row is found by its key |
//! | `client_connection_check_interval` | 1 s | 1 s | – | a server that waits on behalf of a client that is gone takes the lock in the end |
//! | `tcp_keepalives_*` | 30 s in all | 30 s | – | a host that has vanished is noticed by the server's kernel |
//!
//! A *lock* connection holds locks, a *side* connection asks, cancels and provisions, and *database* connections are those
//! of the toolbox. Statements of the program run on lock connections
//! (`Guard::transaction`) and on those of a `Database` too. So these keep the server's `sql_mode`, and what we
//! say there is understood in every mode: no `BEGIN` (a block, in the mode ORACLE), no backslash in a literal, no name in
//! double quotes on MySQL and MariaDB. On a `Database` the server's limits of time stay as well.
//!
//! `search_path` is not set: a lock table, like any other, is the first of its name on the path. All clients need the same.
//!
//! A pool that a program brings (`Database::from`) keeps its settings. There every transaction of ours says what it relies
//! on when it begins, and a statement that is run alone is committed.

use crate::Dialect;
use std::fmt::Write as _;
use std::time::Duration;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Holding locks.
    Lock,
    /// Asking, cancelling and provisioning.
    Side,
    /// The toolbox: leases, queues, versions.
    Database,
}

/// The longest wait for a row that every server takes in every `sql_mode`: three years. (MySQL would take ten times that.
/// MariaDB takes it for this, with a warning, or in a strict mode refuses it.)
pub const LONGEST_LOCK_WAIT: u32 = 100_000_000;

/// What side connections wait for a row, in seconds: the default of both servers.
const SIDE_LOCK_WAIT: u32 = 50;

/// What a session waits for a table that is being changed, in seconds.
const TABLE_LOCK_WAIT: u32 = 86_400;

/// How long a session may be idle, in seconds, unless told: the default of both servers.
const IDLE_LIMIT: u64 = 28_800;

/// A strict mode without another grammar, for connections on which only our statements run.
const SQL_MODE: &str = "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'";

/// What whoever opens a session chooses.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// How long a server may hear nothing from a client before it ends its lock sessions. By default it waits as long as
    /// it does for anybody.
    pub client_silence: Option<Duration>,
    /// After how many seconds InnoDB ends a wait of a lock session, which then begins again.
    pub lock_wait_timeout: u32,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { client_silence: None, lock_wait_timeout: LONGEST_LOCK_WAIT }
    }
}

/// The statements that set a session up: before anything is asked of it, and behind that question.
pub(super) struct SetUp {
    pub(super) first: String,
    pub(super) last: &'static str,
}

impl SessionSettings {
    pub(super) fn set_up(&self, dialect: Dialect, purpose: Purpose) -> SetUp {
        match dialect {
            Dialect::Mysql | Dialect::Mariadb => innodb(purpose, self),
            Dialect::Postgres => SetUp { first: postgres(purpose, self), last: "" },
        }
    }
}

/// For MySQL and MariaDB. Which one it is need not be known: what only one of them has is a comment to the other.
fn innodb(purpose: Purpose, settings: &SessionSettings) -> SetUp {
    let mut first = String::from(
        "SET NAMES utf8mb4; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
         SET SESSION autocommit = 1, completion_type = 0, sql_safe_updates = 0, sql_big_selects = 1, \
         sql_select_limit = 18446744073709551615",
    );
    let mut set = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a String cannot fail.
        let _ = write!(first, ", {name} = {value}");
    };
    if purpose == Purpose::Side {
        set("sql_mode", &SQL_MODE);
    }
    if purpose != Purpose::Database {
        let row_wait = match purpose {
            Purpose::Lock => settings.lock_wait_timeout,
            _ => SIDE_LOCK_WAIT,
        };
        let seconds = |limit: Duration| limit.as_millis().div_ceil(1000) as u64;
        let idle = match purpose {
            Purpose::Lock => settings.client_silence.map_or(IDLE_LIMIT, seconds),
            _ => IDLE_LIMIT,
        };
        set("innodb_lock_wait_timeout", &row_wait);
        set("lock_wait_timeout", &TABLE_LOCK_WAIT);
        set("wait_timeout", &idle);
        first.push_str(
            " /*!80000 , max_execution_time = 0 */ /*M!100600 , max_statement_time = 0 */",
        );
    }
    let last = if purpose == Purpose::Lock { "; SET SESSION autocommit = 0" } else { "" };
    SetUp { first, last }
}

/// For PostgreSQL. A limit of time comes first, for it would be one for the rest; what a server does not have yet is left
/// out.
fn postgres(purpose: Purpose, settings: &SessionSettings) -> String {
    let mut set: Vec<(&str, String)> = [
        ("client_encoding", "UTF8"),
        ("standard_conforming_strings", "on"),
        ("bytea_output", "hex"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into();
    if purpose == Purpose::Lock {
        set.push(("plan_cache_mode", "force_generic_plan".to_owned()));
    }
    if purpose != Purpose::Database {
        let silence = settings.client_silence.filter(|_| purpose == Purpose::Lock);
        let idle = silence.map_or(0, |limit| limit.as_millis()).to_string();
        set.extend([
            ("lock_timeout", "0".to_owned()),
            ("transaction_timeout", "0".to_owned()),
            ("idle_in_transaction_session_timeout", idle.clone()),
            ("idle_session_timeout", idle),
            ("client_connection_check_interval", "1s".to_owned()),
        ]);
    }
    let rows: Vec<String> =
        set.iter().map(|(name, value)| format!("('{name}', '{value}')")).collect();
    let set = format!(
        "SELECT set_config(name, value, false) FROM (VALUES {}) s (name, value) \
         WHERE current_setting(name, true) IS NOT NULL",
        rows.join(", ")
    );
    match purpose {
        Purpose::Database => set,
        _ => format!("SET statement_timeout = 0; {set}; {KEEP_ALIVE}"),
    }
}

/// A host that has vanished is noticed by the server's kernel within half a minute, not after two hours.
/// What is sooner stays; over a Unix socket there is nothing to set.
const KEEP_ALIVE: &str = "SELECT set_config(name, least, false) FROM (VALUES \
     ('tcp_keepalives_idle', '15'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3') \
     ) k(name, least) WHERE current_setting(name)::int > least::int";

/// What a session of PostgreSQL is told that only listens, and is idle most of the time.
pub fn listener() -> String {
    format!("{}; {NEVER_IDLE}", postgres(Purpose::Database, &SessionSettings::default()))
}

const NEVER_IDLE: &str = "SELECT set_config('idle_session_timeout', '0', false) \
     WHERE current_setting('idle_session_timeout', true) IS NOT NULL";
