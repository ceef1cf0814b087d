//! The server settings of the tests: defaults that an administrator may have set for all sessions.

use hierlock_sandbox::Engine;

/// A setting, with the statements that set it and undo it.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The name in messages of failed tests.
    pub(crate) name: String,
    pub(crate) set: Vec<String>,
    pub(crate) undo: Vec<String>,
    /// Parameters that are appended to every URL.
    pub(crate) parameters: &'static str,
    /// The encoding of the database, on PostgreSQL.
    pub(crate) encoding: &'static str,
    /// Whether the setting is a time limit of one second. Then a longer wait is tested.
    pub(crate) is_limit: bool,
    /// Whether only connections of hierlock are tested. Programs must adapt their own pools to such a setting.
    pub(crate) skips_program_pools: bool,
    /// Whether the setting needs a server with a certificate.
    pub(crate) needs_tls: bool,
}

impl Setting {
    fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            set: Vec::new(),
            undo: Vec::new(),
            parameters: "",
            encoding: "UTF8",
            is_limit: false,
            skips_program_pools: false,
            needs_tls: false,
        }
    }

    /// A global variable of MySQL or MariaDB.
    fn global(variable: &str, value: &str) -> Self {
        Self {
            set: vec![format!("SET GLOBAL {variable} = {value}")],
            undo: vec![format!("SET GLOBAL {variable} = DEFAULT")],
            ..Self::new(format!("{variable} = {value}"))
        }
    }

    /// A parameter of PostgreSQL, set for the role of the tests.
    fn role(parameter: &str, value: &str) -> Self {
        Self {
            set: vec![format!("ALTER ROLE app SET {parameter} = {value}")],
            undo: vec![format!("ALTER ROLE app RESET {parameter}")],
            ..Self::new(format!("{parameter} = {value}"))
        }
    }

    fn and(mut self, other: Setting) -> Self {
        self.name = format!("{}, {}", self.name, other.name);
        self.set.extend(other.set);
        self.undo.extend(other.undo);
        self
    }

    fn limit(self) -> Self {
        Self { is_limit: true, ..self }
    }

    fn skip_program_pools(self) -> Self {
        Self { skips_program_pools: true, ..self }
    }

    fn tls(self) -> Self {
        Self { needs_tls: true, ..self }
    }

    fn parameters(self, parameters: &'static str) -> Self {
        Self { name: format!("{} ?{parameters}", self.name), parameters, ..self }
    }
}

/// Returns all settings of an engine. `lower_case_table_names` is set for the whole server.
pub(crate) fn settings(engine: Engine) -> Vec<Setting> {
    match engine {
        Engine::Postgres => postgres(),
        _ => innodb(engine),
    }
}

/// Returns a setting of PostgreSQL that leaves no schema in which tables can be created.
pub(crate) fn no_schema() -> Setting {
    Setting::role("search_path", "nowhere")
}

fn innodb(engine: Engine) -> Vec<Setting> {
    let global = Setting::global;
    let is_mariadb = engine == Engine::Mariadb;
    let mut all = vec![Setting::new("defaults"), global("autocommit", "0")];
    let mut modes =
        vec!["", "STRICT_ALL_TABLES", "TRADITIONAL", "ANSI", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"];
    if is_mariadb {
        modes.push("ORACLE");
    }
    all.extend(modes.into_iter().map(|mode| global("sql_mode", &format!("'{mode}'"))));
    let prefix = if is_mariadb { "tx" } else { "transaction" };
    for level in ["READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"] {
        all.push(global(&format!("{prefix}_isolation"), &format!("'{level}'")));
    }
    let (statement_limit, a_second) =
        if is_mariadb { ("max_statement_time", "1") } else { ("max_execution_time", "1000") };
    all.extend([
        global(&format!("{prefix}_read_only"), "1").skip_program_pools(),
        global("completion_type", "'CHAIN'"),
        global("completion_type", "'RELEASE'"),
        global("init_connect", "'SET autocommit = 0'"),
        global("init_connect", "'SET NAMES latin1, sql_mode = ANSI, autocommit = 0'"),
        global("sql_select_limit", "1").and(global("sql_safe_updates", "1")).skip_program_pools(),
        global("max_join_size", "1").skip_program_pools(),
        global("lock_wait_timeout", "1").and(global("innodb_lock_wait_timeout", "1")).limit(),
        global(statement_limit, a_second).and(global("wait_timeout", "1")).limit(),
        global("max_connections", "8"),
        global("max_allowed_packet", "65536"),
        global("character_set_server", "'latin1'").parameters("charset=latin1"),
        global("character_set_server", "'sjis'"),
        global("require_secure_transport", "1").parameters("ssl-mode=preferred").tls(),
    ]);
    all
}

fn postgres() -> Vec<Setting> {
    let role = Setting::role;
    let mut all = vec![Setting::new("defaults")];
    for level in ["read uncommitted", "read committed", "repeatable read", "serializable"] {
        all.push(role("default_transaction_isolation", &format!("'{level}'")));
    }
    all.extend([
        role("default_transaction_read_only", "on").skip_program_pools(),
        role("statement_timeout", "'1s'").and(role("lock_timeout", "'1s'")).limit(),
        role("idle_in_transaction_session_timeout", "'1s'")
            .and(role("idle_session_timeout", "'1s'"))
            .limit(),
        role("client_encoding", "'LATIN1'"),
        Setting { encoding: "LATIN1", ..Setting::new("a database in LATIN1") },
        Setting { encoding: "EUC_JP", ..Setting::new("a database in EUC_JP") },
        role("standard_conforming_strings", "off").and(role("bytea_output", "'escape'")),
        role("DateStyle", "'SQL, DMY'").and(role("TimeZone", "'Asia/Tokyo'")),
        // The first schema does not exist, so tables are in the second.
        role("search_path", "elsewhere, public"),
        Setting {
            set: vec!["ALTER ROLE app CONNECTION LIMIT 8".to_owned()],
            undo: vec!["ALTER ROLE app CONNECTION LIMIT -1".to_owned()],
            ..Setting::new("CONNECTION LIMIT 8")
        },
    ]);
    all
}
