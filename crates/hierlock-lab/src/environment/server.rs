//! A server to run cases on. The names of its databases say which process made them, so that leftovers are found.

use super::connection::LabConnection;
use super::namespace::{Namespace, NamespaceGuard, is_locked};
use super::{LabError, LabResult, SET_UP_LIMIT};
use crate::place::Engine;
use hierlock_engine::introspection::{self, Introspection};
use hierlock_engine::{AddressError, Dialect, ServerAddress, ServerUrl, cell, error_message};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Mutex, OnceCell, OwnedSemaphorePermit, Semaphore};
use url::Url;

/// What the names of all that the lab makes begin with.
pub(super) const PREFIX: &str = "hierlock_lab_";

/// How long a lock in what a dead process left may keep it from being removed.
const SWEEP_LOCK_WAIT: Duration = Duration::from_secs(1);

/// How many cases may run beside each other on a server; one that runs alone takes all permits.
const MAX_SHARES: u32 = 1 << 16;

/// A server to run cases on. When it is dropped, everything that was changed on it is as before.
pub(crate) struct TestServer {
    pub(super) address: ServerAddress,
    pub(super) url: String,
    version: String,
    /// What the names of our databases begin with: ours for as long as `keeper` is connected.
    pub(super) prefix: String,
    /// A connection that stays open: a process without one has left its databases behind.
    keeper: Mutex<LabConnection>,
    made: AtomicU64,
    /// MariaDB: may the listing of locks be switched on, and was it?
    can_list_locks: bool,
    has_switched: bool,
    /// PostgreSQL: the schema of the extension that lists row locks, once it has been asked for.
    row_locks: OnceCell<Option<String>>,
    /// Cases that touch the whole server run alone, others beside each other.
    occupancy: Arc<Semaphore>,
    /// Names of GET_LOCK and of prepared transactions belong to no database, so cases with them take turns.
    pub(super) names: Arc<Mutex<()>>,
    leftovers: std::sync::Mutex<Vec<String>>,
    /// Threads that clean up after databases that were dropped.
    pub(super) cleanups: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

impl TestServer {
    /// Connects to a server, asks what it is, and removes what processes that are gone have left there.
    ///
    /// # Errors
    /// It cannot be reached, is another engine, or does not allow queries about its locks.
    pub(crate) async fn connect(engine: Engine, url: &str) -> LabResult<Arc<Self>> {
        let (address, mut keeper) = first_connection(engine, url).await?;
        let (version, id) = identify(address.dialect(), &mut keeper).await?;
        let prefix = format!("{PREFIX}{}_{id}", std::process::id());
        // Held until the connection ends, however it does.
        keeper
            .query(&match engine {
                Engine::Postgres => format!("SET application_name = '{prefix}'"),
                _ => format!("SELECT GET_LOCK('{prefix}', 0)"),
            })
            .await?;
        // Without the right to see locks nothing can be proven.
        let mut session = keeper.lend().await?;
        let allowed = Introspection::default().check_permission(&mut session).await;
        keeper.answered(allowed)?;
        let (mut can_list_locks, mut has_switched) = (false, false);
        if engine == Engine::Mariadb {
            let rows = keeper.query(introspection::IS_LOCK_OUTPUT_ENABLED).await?;
            let is_enabled = rows.first().is_some_and(|row| cell(row, 0) == "1");
            let enable = introspection::ENABLE_LOCK_OUTPUT;
            has_switched = !is_enabled && keeper.try_query(enable).await?.is_ok();
            can_list_locks = is_enabled || has_switched;
        }
        let server = Self {
            address,
            url: url.to_owned(),
            version,
            prefix,
            keeper: Mutex::new(keeper),
            made: AtomicU64::new(0),
            can_list_locks,
            has_switched,
            row_locks: OnceCell::new(),
            occupancy: Arc::new(Semaphore::new(MAX_SHARES as usize)),
            names: Arc::default(),
            leftovers: std::sync::Mutex::default(),
            cleanups: std::sync::Mutex::default(),
        };
        server.sweep().await?;
        Ok(Arc::new(server))
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.address.dialect()
    }

    /// Returns what it calls itself, such as `MySQL 9.7.4`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Returns what dead processes have left and cannot be removed because of a lock: a sentence each.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a case may use the server, beside others or alone, for as long as the result is held.
    pub(super) async fn occupy(&self, is_alone: bool) -> Option<OwnedSemaphorePermit> {
        let permits = if is_alone { MAX_SHARES } else { 1 };
        // It fails only if it is closed, which it never is.
        self.occupancy.clone().acquire_many_owned(permits).await.ok()
    }

    /// Removes databases of dead processes; returns their names. Those that are locked are `leftovers`.
    pub(super) async fn sweep(&self) -> LabResult<Vec<String>> {
        let mut keeper = self.keeper.lock().await;
        let (mut removed, mut left) = (Vec::new(), Vec::new());
        for namespace in Namespace::list(self.dialect(), &mut keeper).await? {
            let Some(prefix) = namespace.owner_prefix() else { continue };
            let is_alive = match self.dialect() {
                Dialect::Postgres => {
                    format!("SELECT 1 FROM pg_stat_activity WHERE application_name = '{prefix}'")
                }
                _ => format!("SELECT 1 FROM DUAL WHERE IS_FREE_LOCK('{prefix}') = 0"),
            };
            if !keeper.query(&is_alive).await?.is_empty() {
                continue;
            }
            match namespace.remove_within(&mut keeper, SWEEP_LOCK_WAIT).await? {
                Ok(()) => removed.push(namespace.name().to_owned()),
                Err(error) if is_locked(&error) => left.push(namespace.leftover_message(&error)),
                // It may not be ours to remove, or somebody else was quicker.
                Err(_) => {}
            }
        }
        *self.leftovers.lock().unwrap_or_else(PoisonError::into_inner) = left;
        Ok(removed)
    }

    /// Makes a namespace by a connection, which comes back with it. Once begun it runs to its end, also if it is
    /// dropped: else a statement that is still on its way might make the namespace after its removal.
    pub(super) async fn create_namespace(
        self: &Arc<Self>,
        is_database: bool,
        mut connection: LabConnection,
    ) -> LabResult<(NamespaceGuard, LabConnection)> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}_{number}", self.prefix);
        let namespace = match self.dialect() {
            Dialect::Postgres if !is_database => Namespace::PostgresSchema(name),
            Dialect::Postgres => Namespace::PostgresDatabase(name),
            _ => Namespace::InnodbDatabase(name),
        };
        let server = self.clone();
        let create = async move {
            let guard = NamespaceGuard::new(server.clone(), namespace);
            for sql in guard.namespace.create_sql() {
                let created = match &guard.namespace {
                    // It is made from outside.
                    Namespace::PostgresDatabase(_) => {
                        server.keeper.lock().await.results_within(SET_UP_LIMIT, &sql).await?
                    }
                    _ => connection.results_within(SET_UP_LIMIT, &sql).await?,
                };
                created.map_err(|error| {
                    let error = error_message(&error);
                    LabError(format!("a place for the case cannot be made with `{sql}`: {error}"))
                })?;
            }
            Ok((guard, connection))
        };
        let created = tokio::spawn(create).await;
        created.map_err(|error| LabError(format!("a place for the case was not made: {error}")))?
    }

    /// Removes a database, which only works from outside.
    pub(super) async fn remove_database(&self, namespace: &Namespace) -> LabResult<()> {
        namespace.remove(&mut *self.keeper.lock().await).await
    }

    pub(super) fn introspection(&self) -> Introspection {
        Introspection::default().may_enable_lock_output(self.can_list_locks)
    }

    /// PostgreSQL: returns the schema of the extension that lists row locks, if there is one or can be.
    pub(super) async fn row_locks_schema(&self) -> LabResult<Option<String>> {
        let find = async || {
            let mut keeper = self.keeper.lock().await;
            let find = "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n \
                        ON n.oid = e.extnamespace WHERE e.extname = 'pgrowlocks'";
            let mut found = keeper.query(find).await?;
            if found.is_empty() {
                let schema = self.own_row_locks_schema();
                let create =
                    format!("CREATE SCHEMA {schema}; CREATE EXTENSION pgrowlocks SCHEMA {schema}");
                if keeper.try_query(&create).await?.is_ok() {
                    found = keeper.query(find).await?;
                }
            }
            Ok(found.into_iter().next().and_then(|mut row| row.remove(0)))
        };
        self.row_locks.get_or_try_init(find).await.cloned()
    }

    fn own_row_locks_schema(&self) -> String {
        format!("{}_r", self.prefix)
    }

    /// Returns the statement that undoes what was changed on the server.
    fn restore_sql(&self) -> Option<String> {
        match self.dialect() {
            Dialect::Mariadb if self.has_switched => {
                Some(introspection::DISABLE_LOCK_OUTPUT.to_owned())
            }
            Dialect::Postgres if self.row_locks.initialized() => {
                Some(format!("DROP SCHEMA IF EXISTS {} CASCADE", self.own_row_locks_schema()))
            }
            _ => None,
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let cleanups = self.cleanups.get_mut().unwrap_or_else(PoisonError::into_inner);
        for cleanup in std::mem::take(cleanups) {
            // One that has panicked has cleaned up nothing; the next process sweeps.
            _ = cleanup.join();
        }
        if let Some(sql) = self.restore_sql() {
            let address = self.address.clone();
            let restore = run_in_thread(async move {
                if let Ok(mut connection) = LabConnection::open(&address).await {
                    _ = connection.try_query(&sql).await;
                    connection.close().await;
                }
            });
            _ = restore.join();
        }
    }
}

/// Runs something to its end, whatever becomes of the runtime of the caller.
pub(super) fn run_in_thread(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(work);
        }
    })
}

/// Reads the URL of a server and connects. On this machine encryption is left out unless the URL asks for it.
async fn first_connection(engine: Engine, url: &str) -> LabResult<(ServerAddress, LabConnection)> {
    let unreadable = |error: &dyn fmt::Display| {
        LabError(format!("the URL of the {engine} server cannot be read: {error}"))
    };
    let dialect = engine.dialect().ok_or_else(|| LabError(format!("{engine} is not a server")))?;
    ServerUrl::new(url).check_parameters().map_err(|error| unreadable(&error))?;
    let url = Url::parse(url).map_err(|error| unreadable(&error))?;
    let address = ServerAddress::from_url_as(dialect, &url);
    let address = address.map_err(|AddressError(why)| unreadable(&why))?;
    let address = address.with_server_settings().with_application_name("hierlock lab");
    let is_local =
        url.host_str().is_none_or(|host| ["localhost", "127.0.0.1", "[::1]"].contains(&host));
    if is_local && !url.query_pairs().any(|(name, _)| name.starts_with("ssl")) {
        let plain = address.clone().without_encryption();
        // A server may insist on encryption, or only then take a password.
        if let Ok(connection) = LabConnection::open(&plain).await {
            return Ok((plain, connection));
        }
    }
    let connection = LabConnection::open(&address).await?;
    Ok((address, connection))
}

/// Returns the server's version in words, and the number of the connection.
async fn identify(dialect: Dialect, connection: &mut LabConnection) -> LabResult<(String, i64)> {
    let version = match dialect {
        Dialect::Postgres => "current_setting('server_version')",
        Dialect::Mysql | Dialect::Mariadb => "VERSION()",
    };
    let rows = connection.query(&format!("SELECT {version}")).await?;
    let version = rows.first().map_or("", |row| cell(row, 0));
    let (actual, name) = match dialect {
        Dialect::Postgres => (Dialect::Postgres, "PostgreSQL"),
        _ if version.contains("MariaDB") => (Dialect::Mariadb, "MariaDB"),
        _ => (Dialect::Mysql, "MySQL"),
    };
    if actual != dialect {
        return Err(LabError(format!("the server for {dialect} is {name} {version}")));
    }
    // "5.5.5-10.6.1-MariaDB-…", "15.18 (Debian 15.18-0+deb12u1)", "9.7.4-0ubuntu0"
    let number = version.strip_prefix("5.5.5-").unwrap_or(version);
    let number = number.split([' ', '-']).next().unwrap_or(number);
    Ok((format!("{name} {number}"), connection.pid().await?))
}
