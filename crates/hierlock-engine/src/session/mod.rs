//! A connection to a server with session settings and its identity there. This module is independent of locks.

mod session_ref;
pub mod settings;

pub use session_ref::SessionRef;

use crate::abandoned::SessionOwner;
use crate::checks::{PRODUCT, ServerFacts, Severity};
use crate::connection::Connection;
use crate::row::TextRow;
use crate::{
    Dialect, ErrorClass, ServerAddress, ServerError, UnreadableAnswer, error_message, sessions,
};
use session_ref::within;
use settings::{Purpose, SessionSettings};
use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The identity of a session on its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionId {
    /// The process id: the connection id on MySQL and MariaDB, the backend's pid on PostgreSQL.
    pub pid: i64,
    /// A hash that distinguishes the session from a later one with the same process id. None on a Unix socket.
    pub identity: Option<u64>,
}

impl SessionId {
    /// Parses the columns of [`sessions::own_identity`].
    pub(crate) fn parse(pid: &str, identity: &str) -> Result<Self, UnreadableAnswer> {
        let pid = pid.parse().map_err(|_| UnreadableAnswer("the process id of the session"))?;
        Ok(Self::of(pid, identity))
    }

    /// Returns the id of the session with this process id and identity: the client's host and port on MySQL and
    /// MariaDB, the start time on PostgreSQL. All clients on a Unix socket have the same host, so it is not used.
    pub(crate) fn of(pid: i64, identity: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        Self { pid, identity: identity.contains([':', '.']).then(|| hasher.finish()) }
    }

    /// Returns whether `rows`, the result of [`sessions::identity_of`], identify this session.
    pub(crate) fn matches(self, rows: &[TextRow]) -> bool {
        let is_same = |row: &TextRow| Self::of(self.pid, &row[0]) == self;
        rows.first().is_some_and(|row| self.identity.is_none() || is_same(row))
    }
}

/// Returns the seconds since 1970 by the clock of this host.
pub(crate) fn unix_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or_default()
}

/// A connection to a server, with settings for its purpose and its process id on the server.
///
/// When a session is dropped, another connection of its [`Pool`](crate::Pool) ends it on the server, which may not notice
/// a lost connection. Only a clean session is [closed](Self::close) or returned to its pool.
///
/// Statements fail with the error of the server, or after the answer limit.
pub struct Session {
    connection: Connection,
    /// The pool that ends the session on the server. None if it is closed cleanly or belongs to no pool.
    owner: Option<SessionOwner>,
    /// Whether the session has no transaction and no locks. Lending it clears the flag.
    pub(crate) is_clean: bool,
    /// The timeout of a statement that does not wait for locks.
    pub answer_limit: Duration,
    /// The identity on the server.
    pub id: SessionId,
    /// The detected server.
    pub dialect: Dialect,
    /// PostgreSQL: whether the next transaction has begun already. It saves a BEGIN and holds no locks.
    pub in_transaction: bool,
    pub(crate) version: String,
    /// The seconds that the server's clock is ahead of ours.
    pub(crate) clock_offset: i64,
    /// The server's description of itself: `@@version_comment` or `version()`.
    pub(crate) product: String,
    pub(crate) is_read_only: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("pid", &self.id.pid).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) async fn connect(
        address: &ServerAddress,
        answer_limit: Duration,
        (purpose, settings): (Purpose, &SessionSettings),
        owner: Option<SessionOwner>,
    ) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Connect { server: address.to_string(), source };
        let connection = within(answer_limit, address.connect()).await.map_err(failed)?;
        let mut session = Self {
            connection,
            owner,
            is_clean: true,
            answer_limit,
            id: SessionId::default(),
            dialect: address.dialect(),
            in_transaction: false,
            version: String::new(),
            clock_offset: 0,
            product: String::new(),
            is_read_only: false,
        };
        if let Err(error) = session.set_up(purpose, settings).await {
            return Err(failed(session.explain_setup_error(error).await));
        }
        session.mark_clean();
        Ok(session)
    }

    /// Connects without a pool: dropping the session does not end it on the server.
    pub async fn connect_alone(
        address: &ServerAddress,
        answer_limit: Duration,
    ) -> Result<Self, ServerError> {
        let settings = (Purpose::Control, &SessionSettings::default());
        Self::connect(address, answer_limit, settings, None).await
    }

    /// Applies the settings and reads the identity and version, in one round trip.
    async fn set_up(
        &mut self,
        purpose: Purpose,
        settings: &SessionSettings,
    ) -> Result<(), sqlx::Error> {
        let (first, last) = settings.set_up(self.dialect, purpose);
        let version = sessions::version(self.dialect);
        let identity = sessions::own_identity(self.dialect);
        let now = sessions::epoch_seconds(self.dialect);
        let rows =
            self.rows(&format!("{first}; SELECT {version}, {identity}, {now}{last}")).await?;
        // On PostgreSQL the settings return rows too.
        let row = rows.last().map(|row| &row[..]);
        let Some([version, product, is_read_only, pid, identity, now]) = row else {
            return Err(UnreadableAnswer("the identity of the session").into());
        };
        self.id = SessionId::parse(pid, identity)?;
        self.is_read_only = is_read_only != "0";
        (self.version, self.product) = (version.clone(), product.clone());
        self.clock_offset = now.parse().map_or(0, |now: i64| now - unix_seconds());
        if self.dialect.is_innodb() {
            let is_mariadb = version.contains("MariaDB");
            self.dialect = if is_mariadb { Dialect::Mariadb } else { Dialect::Mysql };
        }
        Ok(())
    }

    /// Replaces the error of a server that rejects our settings if its product is known not to work: the product is the
    /// actual reason.
    async fn explain_setup_error(&mut self, error: sqlx::Error) -> sqlx::Error {
        if ErrorClass::of(&error).is_connection_lost() {
            return error;
        }
        let rows = self.rows(sessions::product(self.dialect)).await.unwrap_or_default();
        let Some([version, product]) = rows.first().map(|row| &row[..]) else { return error };
        (self.version, self.product) = (version.clone(), product.clone());
        match PRODUCT.judge(&ServerFacts::of_session(self)) {
            Some(finding) if finding.severity >= Severity::Warning => {
                let reason =
                    format!("{} (the server's error: {})", finding.reason(), error_message(&error));
                sqlx::Error::Configuration(reason.into())
            }
            _ => error,
        }
    }

    /// Closes the connection of a clean session.
    pub fn close(mut self) {
        self.owner = None;
    }

    /// Ends the transaction with ROLLBACK and prepares for the next. If that fails the session is not clean.
    pub async fn roll_back(&mut self) -> Result<(), sqlx::Error> {
        if self.dialect.is_innodb() {
            return self.as_ref().roll_back("ROLLBACK").await;
        }
        let in_transaction = std::mem::replace(&mut self.in_transaction, false);
        // AND CHAIN fails outside of a transaction, and a statement of the caller may have ended the transaction.
        let end = if in_transaction { "ROLLBACK AND CHAIN" } else { "ROLLBACK" };
        self.as_ref().roll_back(end).await?;
        self.in_transaction = in_transaction;
        Ok(())
    }

    /// Ends a transaction that is empty or has failed.
    pub async fn leave_transaction(&mut self) -> Result<(), sqlx::Error> {
        self.in_transaction = false;
        self.as_ref().roll_back("ROLLBACK").await
    }

    /// Returns the driver's connection for a downcast.
    pub fn as_any(&self) -> &dyn Any {
        match &self.connection {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => &**connection,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => &**connection,
        }
    }

    /// Returns the driver's connection for a mutable downcast.
    pub fn as_any_mut(&mut self) -> &mut dyn Any {
        match &mut self.connection {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => &mut **connection,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => &mut **connection,
        }
    }

    /// Lends the session. It is clean again after a rollback, or when it is [marked](Self::mark_clean) as clean.
    pub fn as_ref(&mut self) -> SessionRef<'_> {
        self.is_clean = false;
        SessionRef {
            connection: self.connection.as_ref(),
            answer_limit: self.answer_limit,
            id: self.id,
            dialect: self.dialect,
            is_ours: true,
            is_clean: Some(&mut self.is_clean),
        }
    }

    /// Marks the session as clean: no transaction and no locks. Only then does a pool take it back.
    pub fn mark_clean(&mut self) {
        self.is_clean = true;
    }

    /// Runs statements without results that do not wait for locks.
    pub async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.as_ref().run(sql).await
    }

    /// Runs a query that does not wait for locks.
    pub async fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, sqlx::Error> {
        self.as_ref().rows(sql).await
    }

    /// Sends a ping to the server.
    pub async fn ping(&mut self) -> Result<(), sqlx::Error> {
        // A ping does not make the session unclean.
        let is_clean = self.is_clean;
        let result = self.as_ref().ping().await;
        self.is_clean = is_clean;
        result
    }

    /// Checks that the session is alive and that its server accepts writes. After a planned switchover the former primary
    /// keeps its sessions and their locks, but the new primary grants the same locks to others. A Galera node may have lost
    /// its majority. PostgreSQL ends its sessions in these cases.
    pub async fn ping_primary(&mut self) -> Result<(), sqlx::Error> {
        if !self.dialect.is_innodb() {
            return self.ping().await;
        }
        // The query changes nothing.
        let is_clean = self.is_clean;
        let rows = self.rows(sessions::IS_READ_ONLY).await;
        self.is_clean = is_clean;
        self.is_read_only = rows?.first().is_some_and(|row| row[0] != "0");
        let why = self.why_read_only();
        why.map_or(Ok(()), |why| Err(sqlx::Error::Configuration(why.into())))
    }

    /// Sends rows with `COPY … FROM STDIN` and returns their number. Only for PostgreSQL.
    pub async fn copy_in(&mut self, sql: &str, rows: Vec<u8>) -> Result<u64, sqlx::Error> {
        match &mut self.connection {
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => {
                let copy = async {
                    let mut copy = connection.copy_in_raw(sql).await?;
                    copy.send(rows).await?;
                    copy.finish().await
                };
                within(self.answer_limit, copy).await
            }
            #[cfg(feature = "mysql")]
            Connection::Mysql(_) => {
                let _ = (sql, rows);
                Err(sqlx::Error::Protocol("only PostgreSQL has COPY".to_owned()))
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.abandon(self.id);
        }
    }
}
