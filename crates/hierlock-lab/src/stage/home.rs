//! The database or schema that a case has to itself, and that nothing is left of it.

use super::connection::StageConnection;
use super::prepared::PreparedTransactions;
use super::server::{PREFIX, Server, in_a_thread};
use super::{LIMIT, StageError};
use hierlock_engine::{Dialect, ErrorClass, ServerAddress, cell, error_message, sessions};
use std::sync::PoisonError;
use std::time::Duration;

/// How long whoever has a lock on a table of a case may keep it from being removed.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Where the tables of a case are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// A database of MySQL or MariaDB.
    Innodb(String),
    /// A database of PostgreSQL: a tenth of a second to make.
    Database(String),
    /// A schema in the database that the URL names: a millisecond. What belongs to no schema is shared.
    Schema(String),
}

impl Home {
    pub(super) fn name(&self) -> &str {
        let (Home::Innodb(name) | Home::Database(name) | Home::Schema(name)) = self;
        name
    }

    /// What it is called, as the tables in it say it.
    pub(super) fn of_tables(&self) -> &str {
        match self {
            Home::Database(_) => "public",
            home => home.name(),
        }
    }

    /// The part of its name that says whose it is; none if it is not the lab's.
    pub(super) fn mark(&self) -> Option<&str> {
        let (mark, _) = self.name().rsplit_once('_')?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        (mark.starts_with(PREFIX) && self.name().chars().all(is_plain)).then_some(mark)
    }

    /// What makes it, and goes there.
    pub(super) fn make_sql(&self) -> Vec<String> {
        match self {
            Home::Innodb(name) => vec![format!("CREATE DATABASE {name}"), format!("USE {name}")],
            Home::Database(name) => vec![format!("CREATE DATABASE {name} TEMPLATE template0")],
            Home::Schema(name) => {
                // As in the schema `public`: roles of the scenario see what they are granted.
                vec![
                    format!("CREATE SCHEMA {name}"),
                    format!("GRANT USAGE ON SCHEMA {name} TO PUBLIC"),
                    format!("SET search_path = {name}"),
                ]
            }
        }
    }

    pub(super) fn drop_sql(&self) -> String {
        match self {
            Home::Innodb(name) => format!("DROP DATABASE IF EXISTS {name}"),
            Home::Database(name) => format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            Home::Schema(name) => format!("DROP SCHEMA IF EXISTS {name} CASCADE"),
        }
    }

    /// Removes it. Whoever has a lock in it is waited for, but not for ever: then the server ends the
    /// statement, and what is left is told with how to remove it.
    pub(super) async fn remove(&self, connection: &mut StageConnection) -> Result<(), StageError> {
        let removed = self.remove_within(connection, LOCK_WAIT).await;
        removed?.map_err(|error| StageError(self.left_over(&error)))
    }

    /// The same, with a limit for whoever has a lock in it.
    pub(super) async fn remove_within(
        &self,
        connection: &mut StageConnection,
        limit: Duration,
    ) -> Result<Result<(), sqlx::Error>, StageError> {
        let seconds = limit.as_secs();
        let wait = match self {
            Home::Innodb(_) => format!("SET SESSION lock_wait_timeout = {seconds}"),
            _ => format!("SET lock_timeout = '{seconds}s'"),
        };
        connection.ask(&wait).await?;
        Ok(connection.within(LIMIT, &self.drop_sql()).await?.map(|_| ()))
    }

    /// What to do about it when it cannot be removed.
    pub(super) fn left_over(&self, error: &sqlx::Error) -> String {
        let why = error_message(error);
        let prepared = match self {
            Home::Innodb(_) => "XA RECOVER lists them, XA ROLLBACK ends one",
            _ => "pg_prepared_xacts lists them, ROLLBACK PREPARED ends one",
        };
        format!(
            "{} is left on the server: `{}` failed: {why}. The next run tries again; if it stays, somebody \
             has a lock in it, perhaps a prepared transaction ({prepared})",
            self.name(),
            self.drop_sql()
        )
    }

    /// All that the lab has made on a server, whoever it was.
    pub(super) async fn all(
        dialect: Dialect,
        connection: &mut StageConnection,
    ) -> Result<Vec<Self>, StageError> {
        let like = format!("LIKE '{}%'", PREFIX.replace('_', "\\_"));
        let mut all = Vec::new();
        let name = |row: &[Option<String>]| cell(row, 0).to_owned();
        if dialect != Dialect::Postgres {
            let rows = connection.ask(&format!("SHOW DATABASES {like}")).await?;
            all.extend(rows.iter().map(|row| Home::Innodb(name(row))));
            return Ok(all);
        }
        let databases = format!("SELECT datname FROM pg_database WHERE datname {like}");
        let schemas = format!("SELECT nspname FROM pg_namespace WHERE nspname {like}");
        all.extend(connection.ask(&databases).await?.iter().map(|row| Home::Database(name(row))));
        all.extend(connection.ask(&schemas).await?.iter().map(|row| Home::Schema(name(row))));
        Ok(all)
    }
}

/// What was made for a case. Dropped before it was removed, a thread removes it, with the connections
/// that are left.
pub(super) struct HomeGuard {
    server: Server,
    pub(super) home: Home,
    /// The server's numbers of the connections.
    pub(super) connections: Vec<i64>,
    pub(super) prepared: PreparedTransactions,
    is_removed: bool,
}

impl HomeGuard {
    pub(super) fn new(server: Server, home: Home) -> Self {
        let prepared = PreparedTransactions::default();
        Self { server, home, connections: Vec::new(), prepared, is_removed: false }
    }

    /// Where those connect who work there.
    pub(super) fn address(&self) -> ServerAddress {
        let address = self.server.inner.address.clone();
        match &self.home {
            Home::Schema(name) => address.in_schema(name),
            home => address.in_database(home.name()),
        }
    }

    /// Nothing is left to do.
    pub(super) fn forget(mut self) {
        self.is_removed = true;
    }
}

impl Drop for HomeGuard {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        let (address, home) = (self.server.inner.address.clone(), self.home.clone());
        let (inside, prepared) = (self.address(), self.prepared.clone());
        let connections = std::mem::take(&mut self.connections);
        let cleaner = in_a_thread(async move {
            // Whatever fails here is found by the next sweep.
            let Ok(mut connection) = StageConnection::open(&address).await else { return };
            for id in connections {
                _ = connection.try_ask(&sessions::terminate(address.dialect(), id)).await;
            }
            if !prepared.is_empty()
                && let Ok(mut connection) = StageConnection::open(&inside).await
            {
                _ = prepared.roll_back(address.dialect(), &mut connection, &[]).await;
                connection.close().await;
            }
            _ = home.remove(&mut connection).await;
            connection.close().await;
        });
        let cleaners = &self.server.inner.cleaners;
        let mut cleaners = cleaners.lock().unwrap_or_else(PoisonError::into_inner);
        cleaners.retain(|cleaner| !cleaner.is_finished());
        cleaners.push(cleaner);
    }
}

/// Did a statement fail because of somebody's lock, and not because it is not allowed?
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    let class = ErrorClass::of(error);
    // A database with prepared transactions is in use.
    class.is_not_granted() || class == ErrorClass::ObjectInUse
}
