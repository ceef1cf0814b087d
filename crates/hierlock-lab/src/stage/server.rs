//! A server that is there: what it is, and the databases that are made on it for cases, each with a name
//! that says whose it is, so that what a process leaves behind can be found and removed.

use super::connection::StageConnection;
use super::home::{Home, HomeGuard, is_locked};
use super::sql::{SharedServer, SqlStage};
use super::{StageError, server_address};
use crate::place::Engine;
use crate::scenario::Case;
use hierlock_engine::introspection::{self, Introspection};
use hierlock_engine::{Dialect, ServerAddress, cell, error_message, number_cell, sessions};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Mutex, RwLock};

/// What the names of all that the lab makes begin with.
pub(super) const PREFIX: &str = "hierlock_lab_";

/// How long whoever has a lock in what a dead process left may keep it from being removed.
const SWEEP_LOCK_WAIT: Duration = Duration::from_secs(1);

/// A server to play cases on. Clones are the same server; with the last of them everything that was
/// changed on it is as before.
#[derive(Clone)]
pub(crate) struct Server {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) address: ServerAddress,
    pub(super) url: String,
    version: String,
    is_superuser: bool,
    /// What the names of our databases begin with. It is ours for as long as the keeper is connected.
    mark: String,
    /// A connection that is always there: who is not connected any more has left its databases behind.
    keeper: Mutex<StageConnection>,
    made: AtomicU64,
    /// MariaDB: may the listing of locks be switched on, and was it?
    can_list_locks: bool,
    has_switched: bool,
    /// PostgreSQL: where the extension is that tells row locks, once it has been asked for.
    row_locks: Mutex<Option<Option<String>>>,
    /// Cases that touch the whole server play alone, others beside each other.
    pub(super) occupancy: Arc<RwLock<()>>,
    /// Names of GET_LOCK and of prepared transactions belong to no database, so cases with them take turns.
    pub(super) names: Arc<Mutex<()>>,
    /// What was found on the server and cannot be removed, in sentences.
    leftovers: std::sync::Mutex<Vec<String>>,
    /// Those who clean up after stages that were dropped.
    pub(super) cleaners: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { version, is_superuser, .. } = &*self.inner;
        let mut server = f.debug_struct("Server");
        server.field("version", version).field("is_superuser", is_superuser).finish_non_exhaustive()
    }
}

impl Server {
    /// Connects to a server, finds out what it is, and removes what processes that are gone have left
    /// there.
    ///
    /// # Errors
    /// It cannot be reached, is not that engine, or does not let itself be asked for its locks.
    pub(crate) async fn connect(engine: Engine, url: &str) -> Result<Self, StageError> {
        let (address, mut keeper) =
            server_address::reach(server_address::read(engine, url)?, url).await?;
        let (version, id, is_superuser) = identify(address.dialect(), &mut keeper).await?;
        let mark = format!("{PREFIX}{}_{id}", std::process::id());
        // Held until the connection ends, however it does.
        let hold = match engine {
            Engine::Postgres => format!("SET application_name = '{mark}'"),
            _ => format!("SELECT GET_LOCK('{mark}', 0)"),
        };
        keeper.ask(&hold).await?;
        let (mut can_list_locks, mut has_switched) = (false, false);
        // Whoever may see no locks can prove nothing.
        let mut session = keeper.lend().await?;
        let allowed = Introspection::new(address.dialect()).check_permission(&mut session).await;
        keeper.answered(allowed)?;
        if engine == Engine::Mariadb {
            let lists = keeper.ask(introspection::IS_LOCK_OUTPUT_ENABLED).await?;
            let lists = lists.first().is_some_and(|row| cell(row, 0) == "1");
            let enable = introspection::ENABLE_LOCK_OUTPUT;
            has_switched = !lists && keeper.try_ask(enable).await?.is_ok();
            can_list_locks = lists || has_switched;
        }
        let server = Self {
            inner: Arc::new(Inner {
                address,
                url: url.to_owned(),
                version,
                is_superuser,
                mark,
                keeper: Mutex::new(keeper),
                made: AtomicU64::new(0),
                can_list_locks,
                has_switched,
                row_locks: Mutex::new(None),
                occupancy: Arc::default(),
                names: Arc::default(),
                leftovers: std::sync::Mutex::default(),
                cleaners: std::sync::Mutex::default(),
            }),
        };
        server.sweep().await?;
        Ok(server)
    }

    /// The engine that its cases name.
    #[cfg(test)]
    pub(crate) fn engine(&self) -> Engine {
        match self.dialect() {
            Dialect::Mysql => Engine::Mysql,
            Dialect::Mariadb => Engine::Mariadb,
            Dialect::Postgres => Engine::Postgres,
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.inner.address.dialect()
    }

    /// What it calls itself, such as `MySQL 9.7.4`.
    pub(crate) fn version(&self) -> &str {
        &self.inner.version
    }

    /// May we do everything on it? Deadlocks are found sooner then, and locks are told in full.
    #[cfg(test)]
    pub(crate) fn is_superuser(&self) -> bool {
        self.inner.is_superuser
    }

    /// What processes that are gone have left on it and what cannot be removed, because somebody has a
    /// lock there: a sentence each, with what to do.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.inner.leftovers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A stage for a case: a database of its own, set up, with a connection for each session.
    ///
    /// # Errors
    /// The server is gone, or refuses a statement of the setup.
    pub(crate) async fn open(&self, case: &Case) -> Result<SqlStage, StageError> {
        SqlStage::open(self, case).await
    }

    /// Nobody has the server to itself while this is held.
    pub(super) async fn share(&self) -> SharedServer {
        self.inner.occupancy.clone().read_owned().await
    }

    /// Removes databases and schemas of processes that are no more; their names. One in which somebody has
    /// a lock is not waited for long: it is among the [leftovers](Self::leftovers) then.
    ///
    /// # Errors
    /// The server is gone.
    pub(crate) async fn sweep(&self) -> Result<Vec<String>, StageError> {
        let mut keeper = self.inner.keeper.lock().await;
        let (mut swept, mut left) = (Vec::new(), Vec::new());
        for home in Home::all(self.dialect(), &mut keeper).await? {
            let Some(mark) = home.mark() else { continue };
            let lives = match self.dialect() {
                Dialect::Postgres => {
                    format!("SELECT 1 FROM pg_stat_activity WHERE application_name = '{mark}'")
                }
                _ => format!("SELECT 1 FROM DUAL WHERE IS_FREE_LOCK('{mark}') = 0"),
            };
            if keeper.ask(&lives).await?.is_empty() {
                match home.remove_within(&mut keeper, SWEEP_LOCK_WAIT).await? {
                    Ok(()) => swept.push(home.name().to_owned()),
                    Err(error) if is_locked(&error) => left.push(home.left_over(&error)),
                    // It may not be ours to remove, or somebody else was quicker.
                    Err(_) => {}
                }
            }
        }
        *self.inner.leftovers.lock().unwrap_or_else(PoisonError::into_inner) = left;
        Ok(swept)
    }

    /// Makes a place for a case. Whoever has it has to remove it, or drop it.
    pub(super) async fn make(
        &self,
        is_database: bool,
        connection: &mut StageConnection,
    ) -> Result<HomeGuard, StageError> {
        let number = self.inner.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}_{number}", self.inner.mark);
        let home = match self.dialect() {
            Dialect::Postgres if !is_database => Home::Schema(name),
            Dialect::Postgres => Home::Database(name),
            _ => Home::Innodb(name),
        };
        let made = HomeGuard::new(self.clone(), home);
        let mut keeper;
        let connection = match &made.home {
            // It is made from outside.
            Home::Database(_) => {
                keeper = self.inner.keeper.lock().await;
                &mut *keeper
            }
            _ => connection,
        };
        for sql in made.home.make_sql() {
            connection.within(super::LIMIT, &sql).await?.map_err(|error| {
                let error = error_message(&error);
                StageError(format!("a place for the case cannot be made with `{sql}`: {error}"))
            })?;
        }
        Ok(made)
    }

    /// Removes a database, which only works from outside.
    pub(super) async fn remove(&self, home: &Home) -> Result<(), StageError> {
        let mut keeper = self.inner.keeper.lock().await;
        home.remove(&mut keeper).await
    }

    /// Asks about the sessions of a case.
    pub(super) fn introspection(&self) -> Introspection {
        Introspection::new(self.dialect()).may_enable_lock_output(self.inner.can_list_locks)
    }

    /// PostgreSQL: the schema of the extension that tells row locks, if there is one or can be.
    pub(super) async fn row_locks(&self) -> Result<Option<String>, StageError> {
        let mut known = self.inner.row_locks.lock().await;
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let mut keeper = self.inner.keeper.lock().await;
        let place = "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n \
                     ON n.oid = e.extnamespace WHERE e.extname = 'pgrowlocks'";
        let mut found = keeper.ask(place).await?;
        if found.is_empty() {
            let schema = self.row_locks_schema();
            let make =
                format!("CREATE SCHEMA {schema}; CREATE EXTENSION pgrowlocks SCHEMA {schema}");
            if keeper.try_ask(&make).await?.is_ok() {
                found = keeper.ask(place).await?;
            }
        }
        let schema = found.into_iter().next().and_then(|mut row| row.remove(0));
        *known = Some(schema.clone());
        Ok(schema)
    }

    fn row_locks_schema(&self) -> String {
        self.inner.row_locks_schema()
    }
}

impl Inner {
    #[cfg(test)]
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    fn row_locks_schema(&self) -> String {
        format!("{}_r", self.mark)
    }

    /// What puts everything back.
    fn farewell(&mut self) -> Option<String> {
        match self.address.dialect() {
            Dialect::Mariadb => {
                self.has_switched.then(|| introspection::DISABLE_LOCK_OUTPUT.to_owned())
            }
            Dialect::Postgres => {
                let asked = self.row_locks.get_mut().is_some();
                let schema = self.row_locks_schema();
                asked.then(|| format!("DROP SCHEMA IF EXISTS {schema} CASCADE"))
            }
            _ => None,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let cleaners = self.cleaners.get_mut().unwrap_or_else(PoisonError::into_inner);
        for cleaner in std::mem::take(cleaners) {
            // One that has panicked has cleaned up nothing; the next process sweeps.
            _ = cleaner.join();
        }
        if let Some(sql) = self.farewell() {
            let address = self.address.clone();
            let farewell = in_a_thread(async move {
                if let Ok(mut connection) = StageConnection::open(&address).await {
                    _ = connection.try_ask(&sql).await;
                    connection.close().await;
                }
            });
            _ = farewell.join();
        }
    }
}

/// Runs something to its end, whatever becomes of the runtime of the caller.
pub(super) fn in_a_thread(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(work);
        }
    })
}

/// Its version in words, the number of the connection, and whether we may do everything.
async fn identify(
    dialect: Dialect,
    connection: &mut StageConnection,
) -> Result<(String, i64, bool), StageError> {
    let (version, is_superuser) = match dialect {
        Dialect::Postgres => (
            "current_setting('server_version')",
            "(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)::int",
        ),
        Dialect::Mysql | Dialect::Mariadb => (
            "VERSION()",
            "(SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'SUPER' \
             AND GRANTEE = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), ''''))",
        ),
    };
    let pid = sessions::own_pid(dialect);
    let rows = connection.ask(&format!("SELECT {version}, {pid}, {is_superuser}")).await?;
    let row = rows.first().map_or(&[][..], |row| row);
    let version = cell(row, 0);
    let is_mariadb = version.contains("MariaDB");
    match (dialect, is_mariadb) {
        (Dialect::Mysql, true) => {
            return Err(StageError(format!("the server for mysql is MariaDB {version}")));
        }
        (Dialect::Mariadb, false) => {
            return Err(StageError(format!("the server for mariadb is MySQL {version}")));
        }
        _ => {}
    }
    // "5.5.5-10.6.1-MariaDB-…", "15.18 (Debian 15.18-0+deb12u1)", "9.7.4-0ubuntu0"
    let number_only = version.strip_prefix("5.5.5-").unwrap_or(version);
    let end = number_only.find([' ', '-']).unwrap_or(number_only.len());
    let name = match dialect {
        Dialect::Mysql => "MySQL",
        Dialect::Mariadb => "MariaDB",
        Dialect::Postgres => "PostgreSQL",
    };
    let pid = number_cell(row, 1).ok_or_else(|| {
        StageError(format!("the {dialect} server does not number its connections"))
    })?;
    let version = format!("{name} {}", &number_only[..end]);
    Ok((version, pid, number_cell(row, 2).unwrap_or(0) > 0))
}
