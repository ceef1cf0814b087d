//! The database or schema of a case, and its removal.

use super::connection::LabConnection;
use super::prepared_transactions::PreparedTransactions;
use super::server::{TestServer, run_in_thread};
use super::{LabError, LabResult, SET_UP_LIMIT};
use hierlock_engine::{Dialect, ErrorClass, ServerAddress, cell, error_message, sessions};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::task_tracker::TaskTrackerToken;
use url::Url;

/// The prefix of all databases and schemas of the lab.
pub(super) const PREFIX: &str = "hierlock_lab_";

/// The limit for the lock wait of the DROP of a case's namespace.
const REMOVE_LOCK_WAIT: Duration = Duration::from_secs(5);

/// The limit for the lock wait when the leftovers of a dead process are removed.
const SWEEP_LOCK_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    InnodbDatabase(String),
    /// Takes about 0.1 s to create.
    PostgresDatabase(String),
    /// A schema in the database of the URL; takes about 1 ms to create. Objects outside of schemas are shared.
    PostgresSchema(String),
}

impl Namespace {
    pub(super) fn name(&self) -> &str {
        let (Self::InnodbDatabase(name)
        | Self::PostgresDatabase(name)
        | Self::PostgresSchema(name)) = self;
        name
    }

    pub(super) fn table_schema(&self) -> &str {
        match self {
            Self::PostgresDatabase(_) => "public",
            other => other.name(),
        }
    }

    /// Returns the part of the name that identifies its process; `None` if the lab did not create the namespace.
    fn owner_prefix(&self) -> Option<&str> {
        let (prefix, _) = self.name().rsplit_once('_')?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        (prefix.starts_with(PREFIX) && self.name().chars().all(is_plain)).then_some(prefix)
    }

    pub(super) fn create_sql(&self) -> String {
        match self {
            Self::InnodbDatabase(name) => format!("CREATE DATABASE {name}"),
            Self::PostgresDatabase(name) => format!("CREATE DATABASE {name} TEMPLATE template0"),
            // Like the schema `public`: roles of the scenario see the tables that they have privileges on.
            Self::PostgresSchema(name) => {
                format!("CREATE SCHEMA {name}; GRANT USAGE ON SCHEMA {name} TO PUBLIC")
            }
        }
    }

    fn drop_sql(&self) -> String {
        match self {
            Self::InnodbDatabase(name) => format!("DROP DATABASE IF EXISTS {name}"),
            Self::PostgresDatabase(name) => format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            Self::PostgresSchema(name) => format!("DROP SCHEMA IF EXISTS {name} CASCADE"),
        }
    }

    /// Removes the namespace. Fails if another session holds a lock in it, with the statement to run later.
    pub(super) async fn remove(&self, connection: &mut LabConnection) -> LabResult<()> {
        let removed = self.remove_within(connection, REMOVE_LOCK_WAIT).await;
        removed?.map_err(|error| LabError(self.leftover_message(&error)))
    }

    async fn remove_within(
        &self,
        connection: &mut LabConnection,
        limit: Duration,
    ) -> LabResult<Result<(), sqlx::Error>> {
        let seconds = limit.as_secs();
        let lock_timeout = match self {
            Self::InnodbDatabase(_) => format!("SET SESSION lock_wait_timeout = {seconds}"),
            _ => format!("SET lock_timeout = '{seconds}s'"),
        };
        connection.query(&lock_timeout).await?;
        Ok(connection.results_within(SET_UP_LIMIT, &self.drop_sql()).await?.map(|_| ()))
    }

    fn leftover_message(&self, error: &sqlx::Error) -> String {
        let why = error_message(error);
        let prepared = match self {
            Self::InnodbDatabase(_) => "XA RECOVER lists them, XA ROLLBACK ends one",
            _ => "pg_prepared_xacts lists them, ROLLBACK PREPARED ends one",
        };
        format!(
            "{} is left on the server: `{}` failed: {why}. The next run tries again; if it stays, somebody \
             has a lock in it, perhaps a prepared transaction ({prepared})",
            self.name(),
            self.drop_sql()
        )
    }

    /// Returns all namespaces of the lab on a server, of all processes.
    async fn list(connection: &mut LabConnection) -> LabResult<Vec<Self>> {
        let like = format!("LIKE '{}%'", PREFIX.replace('_', "\\_"));
        let databases = format!("SELECT datname FROM pg_database WHERE datname {like}");
        let schemas = format!("SELECT nspname FROM pg_namespace WHERE nspname {like}");
        let lists: Vec<(fn(String) -> Self, String)> = match connection.dialect {
            Dialect::Postgres => {
                vec![(Self::PostgresDatabase, databases), (Self::PostgresSchema, schemas)]
            }
            _ => vec![(Self::InnodbDatabase, format!("SHOW DATABASES {like}"))],
        };
        let mut all = Vec::new();
        for (namespace, sql) in lists {
            let rows = connection.query(&sql).await?;
            all.extend(rows.iter().map(|row| namespace(cell(row, 0).to_owned())));
        }
        Ok(all)
    }

    /// Removes namespaces of dead processes. Returns their names, and a sentence for each that is locked.
    pub(super) async fn sweep(
        connection: &mut LabConnection,
    ) -> LabResult<(Vec<String>, Vec<String>)> {
        let (mut removed, mut left) = (Vec::new(), Vec::new());
        for namespace in Self::list(connection).await? {
            let Some(prefix) = namespace.owner_prefix() else { continue };
            let is_alive = match connection.dialect {
                Dialect::Postgres => {
                    format!("SELECT 1 FROM pg_stat_activity WHERE application_name = '{prefix}'")
                }
                _ => format!("SELECT 1 FROM DUAL WHERE IS_FREE_LOCK('{prefix}') = 0"),
            };
            if !connection.query(&is_alive).await?.is_empty() {
                continue;
            }
            match namespace.remove_within(connection, SWEEP_LOCK_WAIT).await? {
                Ok(()) => removed.push(namespace.name().to_owned()),
                Err(error) if is_locked(&error) => left.push(namespace.leftover_message(&error)),
                // The lab may lack the privilege, or another process was faster.
                Err(_) => {}
            }
        }
        Ok((removed, left))
    }
}

/// Removes the namespace on drop, in a thread, and ends the connections that are left in it.
pub(super) struct NamespaceGuard {
    pub(super) server: Arc<TestServer>,
    pub(super) namespace: Namespace,
    pub(super) connections: Vec<i64>,
    pub(super) prepared: PreparedTransactions,
    pub(super) is_removed: bool,
    /// Until this is dropped, [`Lab::close`](crate::Lab::close) waits.
    _in_use: TaskTrackerToken,
}

impl NamespaceGuard {
    pub(super) fn new(server: Arc<TestServer>, namespace: Namespace) -> Self {
        let (_in_use, prepared) = (server.in_use.token(), PreparedTransactions::default());
        Self { server, namespace, connections: Vec::new(), prepared, is_removed: false, _in_use }
    }

    pub(super) fn address(&self) -> ServerAddress {
        let address = self.server.address.clone();
        match &self.namespace {
            Namespace::PostgresSchema(name) => address.in_schema(name),
            namespace => address.in_database(namespace.name()),
        }
    }

    pub(super) fn url(&self) -> Url {
        let mut url = self.server.url.clone();
        match &self.namespace {
            Namespace::PostgresSchema(name) => {
                url.query_pairs_mut().append_pair("options[search_path]", name);
            }
            namespace => url.set_path(namespace.name()),
        }
        url
    }
}

impl Drop for NamespaceGuard {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        let (address, namespace) = (self.server.address.clone(), self.namespace.clone());
        let (inside, prepared) = (self.address(), self.prepared.clone());
        let connections = std::mem::take(&mut self.connections);
        let cleanup = run_in_thread(async move {
            // If a step fails, the next process that connects removes the namespace.
            let Ok(mut connection) = LabConnection::open(&address).await else { return };
            for id in connections {
                _ = connection.try_query(&sessions::terminate(address.dialect(), id)).await;
            }
            if !prepared.is_empty()
                && let Ok(mut connection) = LabConnection::open(&inside).await
            {
                _ = prepared.roll_back(&mut connection, &[]).await;
                connection.close().await;
            }
            _ = namespace.remove(&mut connection).await;
            connection.close().await;
        });
        let mut cleanups = self.server.cleanups.lock();
        cleanups.retain(|cleanup| !cleanup.is_finished());
        cleanups.push(cleanup);
    }
}

/// Returns whether a statement failed because of a lock of another session, and not for lack of privileges.
fn is_locked(error: &sqlx::Error) -> bool {
    let class = ErrorClass::of(error);
    // A database with prepared transactions is in use.
    class.is_not_granted() || class == ErrorClass::ObjectInUse
}
