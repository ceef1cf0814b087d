//! A server to run cases on. The names of its databases contain the id of the process, so that later processes find
//! leftovers.

use super::connection::LabConnection;
use super::namespace::{Namespace, NamespaceGuard, PREFIX};
use super::{LabError, LabResult, SET_UP_LIMIT};
use crate::engine::Engine;
use hierlock_engine::introspection::{self, Introspection};
use hierlock_engine::{AddressError, Dialect, ServerAddress, UrlUse};
use hierlock_engine::{cell, check_parameters, error_message, task_tracker};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{Mutex, OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use url::Url;

/// The number of cases that may run on a server at the same time; a case that runs alone takes all permits.
const MAX_SHARES: u32 = 1 << 16;

/// A server to run cases on. On drop the settings that were changed on it are restored.
pub(crate) struct TestServer {
    pub(super) address: ServerAddress,
    pub(super) url: Url,
    /// The name and version of the server, such as `MySQL 9.7.4`.
    pub(crate) version: String,
    /// The prefix of this process's databases, reserved while `control` is connected.
    pub(super) prefix: String,
    /// Creates and removes databases. It stays open: databases of a process without one are leftovers.
    pub(super) control: Mutex<LabConnection>,
    /// The number of namespaces that were created.
    namespaces: AtomicU64,
    /// MariaDB: the listing of locks is on.
    pub(super) can_list_locks: bool,
    /// MariaDB: this process has switched the listing of locks on.
    has_enabled_lock_output: bool,
    /// PostgreSQL: the schema of the extension that lists row locks, once it has been looked up.
    row_locks: OnceCell<Option<String>>,
    /// Cases that affect the whole server run alone, others in parallel.
    occupancy: Arc<Semaphore>,
    /// Names of GET_LOCK and of prepared transactions belong to no database, so cases that use them run one at a time.
    pub(super) names: Arc<Mutex<()>>,
    /// A sentence for each leftover of a dead process that cannot be removed because of a lock.
    pub(crate) leftovers: Vec<String>,
    /// Counts the namespaces, and the queries that run to their end even if their future is dropped.
    pub(crate) in_use: TaskTracker,
    /// Threads that remove databases whose guard was dropped.
    pub(super) cleanups: parking_lot::Mutex<Vec<JoinHandle<()>>>,
}

impl TestServer {
    /// Connects to a server, reads its version, and removes the leftovers of processes that have ended.
    ///
    /// # Errors
    /// The server cannot be reached, is of another engine, or does not allow queries about its locks.
    pub(crate) async fn connect(engine: Engine, url: &str) -> LabResult<Arc<Self>> {
        let (url, address, mut control) = first_connection(engine, url).await?;
        let version = version(&mut control).await?;
        let prefix = format!("{PREFIX}{}_{}", std::process::id(), control.pid);
        // Held until the connection ends, even if the process is killed.
        let reserve = match engine {
            Engine::Postgres => format!("SET application_name = '{prefix}'"),
            _ => format!("SELECT GET_LOCK('{prefix}', 0)"),
        };
        control.query(&reserve).await?;
        // The lab needs the privilege to read locks.
        let mut session = control.lend().await?;
        let allowed = Introspection::default().check_permission(&mut session).await;
        control.take_answer(allowed)?;
        let (mut can_list_locks, mut has_enabled_lock_output) = (false, false);
        if engine == Engine::Mariadb {
            let rows = control.query(introspection::IS_LOCK_OUTPUT_ENABLED).await?;
            let is_enabled = rows.first().is_some_and(|row| cell(row, 0) == "1");
            let enable = introspection::ENABLE_LOCK_OUTPUT;
            has_enabled_lock_output = !is_enabled && control.try_query(enable).await?.is_ok();
            can_list_locks = is_enabled || has_enabled_lock_output;
        }
        let (_, leftovers) = Namespace::sweep(&mut control).await?;
        Ok(Arc::new(Self {
            address,
            url,
            version,
            prefix,
            control: Mutex::new(control),
            namespaces: AtomicU64::new(0),
            can_list_locks,
            has_enabled_lock_output,
            row_locks: OnceCell::new(),
            occupancy: Arc::new(Semaphore::new(MAX_SHARES as usize)),
            names: Arc::default(),
            leftovers,
            in_use: task_tracker(),
            cleanups: Default::default(),
        }))
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.address.dialect()
    }

    /// Waits until a case may use the server, in parallel with others or alone, while the result is held.
    pub(super) async fn occupy(&self, is_alone: bool) -> Option<OwnedSemaphorePermit> {
        let permits = if is_alone { MAX_SHARES } else { 1 };
        // An error would mean that the semaphore is closed, which never happens.
        self.occupancy.clone().acquire_many_owned(permits).await.ok()
    }

    /// Creates a namespace. Once begun, the creation runs to its end even if the future is dropped: otherwise a
    /// statement still on its way could create the namespace after its removal.
    pub(super) async fn create_namespace(
        self: &Arc<Self>,
        is_database: bool,
    ) -> LabResult<NamespaceGuard> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}_{number}", self.prefix);
        let namespace = match self.dialect() {
            Dialect::Postgres if !is_database => Namespace::PostgresSchema(name),
            Dialect::Postgres => Namespace::PostgresDatabase(name),
            _ => Namespace::InnodbDatabase(name),
        };
        let guard = NamespaceGuard::new(self.clone(), namespace);
        let create = async move {
            let sql = guard.namespace.create_sql();
            let created =
                guard.server.control.lock().await.results_within(SET_UP_LIMIT, &sql).await?;
            let failed = format!("a database for the case cannot be created with `{sql}`");
            created.map_err(|error| LabError(format!("{failed}: {}", error_message(&error))))?;
            Ok(guard)
        };
        let created = tokio::spawn(create).await;
        created.map_err(|error| {
            LabError(format!("a database for the case was not created: {error}"))
        })?
    }

    /// PostgreSQL: returns the schema of the extension that lists row locks. Creates the extension if it is missing;
    /// `None` if that is not allowed.
    pub(super) async fn row_locks_schema(&self) -> LabResult<Option<String>> {
        let find = async || {
            let mut control = self.control.lock().await;
            let find = "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n \
                        ON n.oid = e.extnamespace WHERE e.extname = 'pgrowlocks'";
            let mut found = control.query(find).await?;
            if found.is_empty() {
                let schema = self.own_row_locks_schema();
                let create =
                    format!("CREATE SCHEMA {schema}; CREATE EXTENSION pgrowlocks SCHEMA {schema}");
                if control.try_query(&create).await?.is_ok() {
                    found = control.query(find).await?;
                }
            }
            Ok(found.into_iter().next().and_then(|mut row| row.remove(0)))
        };
        self.row_locks.get_or_try_init(find).await.cloned()
    }

    fn own_row_locks_schema(&self) -> String {
        format!("{}_r", self.prefix)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        for cleanup in self.cleanups.get_mut().drain(..) {
            // If the thread has panicked, the next process sweeps.
            _ = cleanup.join();
        }
        let sql = match self.dialect() {
            Dialect::Mariadb if self.has_enabled_lock_output => {
                introspection::DISABLE_LOCK_OUTPUT.to_owned()
            }
            Dialect::Postgres if self.row_locks.initialized() => {
                format!("DROP SCHEMA IF EXISTS {} CASCADE", self.own_row_locks_schema())
            }
            _ => return,
        };
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

/// Runs `work` to its end in a thread, independent of the caller's runtime.
pub(super) fn run_in_thread(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(work);
        }
    })
}

/// Parses the URL of a server and connects. A local connection is not encrypted unless the URL asks for it.
async fn first_connection(
    engine: Engine,
    url: &str,
) -> LabResult<(Url, ServerAddress, LabConnection)> {
    let unreadable = |error: &dyn fmt::Display| {
        LabError(format!("the URL of the {engine} server cannot be read: {error}"))
    };
    let dialect = engine.server().ok_or_else(|| LabError(format!("{engine} is not a server")))?;
    check_parameters(url, UrlUse::Driver).map_err(|error| unreadable(&error))?;
    let url = Url::parse(url).map_err(|error| unreadable(&error))?;
    let address = ServerAddress::from_url_as(dialect, &url);
    let address = address.map_err(|AddressError(why)| unreadable(&why))?;
    let address = address.with_server_settings().with_application_name("hierlock lab");
    let is_local =
        url.host_str().is_none_or(|host| ["localhost", "127.0.0.1", "[::1]"].contains(&host));
    if is_local && !url.query_pairs().any(|(name, _)| name.starts_with("ssl")) {
        let plain = address.clone().without_encryption();
        // The server may require encryption, or accept a password only with it.
        if let Ok(connection) = LabConnection::open(&plain).await {
            return Ok((url, plain, connection));
        }
    }
    let connection = LabConnection::open(&address).await?;
    Ok((url, address, connection))
}

/// Returns the server's name and version. Fails if the server is of another engine.
async fn version(connection: &mut LabConnection) -> LabResult<String> {
    let dialect = connection.dialect;
    let rows = connection.query(match dialect {
        Dialect::Postgres => "SELECT current_setting('server_version')",
        Dialect::Mysql | Dialect::Mariadb => "SELECT VERSION()",
    });
    let rows = rows.await?;
    let version = rows.first().map_or("", |row| cell(row, 0));
    let actual = match dialect {
        Dialect::Postgres => Dialect::Postgres,
        _ if version.contains("MariaDB") => Dialect::Mariadb,
        _ => Dialect::Mysql,
    };
    let name = actual.product_name();
    if actual != dialect {
        return Err(LabError(format!("the server for {dialect} is {name} {version}")));
    }
    // "5.5.5-10.6.1-MariaDB-…", "15.18 (Debian 15.18-0+deb12u1)", "9.7.4-0ubuntu0"
    let number = version.strip_prefix("5.5.5-").unwrap_or(version);
    let number = number.split([' ', '-']).next().unwrap_or(number);
    Ok(format!("{name} {number}"))
}
