//! One connection to a server that knows who it is there. Knows nothing of locks.

mod session_ref;
pub mod settings;

pub use session_ref::SessionRef;

use crate::abandoned::SessionOwner;
use crate::connection::Connection;
use crate::row::TextRow;
use crate::{Dialect, ServerAddress, ServerError, UnreadableAnswer, sessions};
use session_ref::within;
use settings::{Purpose, SessionSettings};
use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// Who a session is to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionId {
    /// The server's number for it, by which it can be cancelled.
    pub pid: i64,
    /// What tells it from another that has the same number after a restart of the server. None over a socket.
    pub identity: Option<u64>,
}

impl SessionId {
    /// Reads the columns that a session has asked for of itself.
    pub(crate) fn read(pid: &str, identity: &str) -> Result<Self, UnreadableAnswer> {
        let pid = pid.parse().map_err(|_| UnreadableAnswer("the number of the session"))?;
        Ok(Self { pid, identity: hashed(identity) })
    }

    /// Returns whether that is what the server says of the session that has the number now.
    pub(crate) fn is(self, rows: &[TextRow]) -> bool {
        rows.first().is_some_and(|row| self.identity.is_none() || hashed(&row[0]) == self.identity)
    }
}

/// A client's port on MySQL and MariaDB, and a time on PostgreSQL. Sockets of one host are all alike.
fn hashed(identity: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    identity.contains([':', '.']).then(|| hasher.finish())
}

/// A connection to a server, set up for a purpose, which knows its number there.
///
/// Dropped, it is ended on the server by another connection of its [`Pool`](crate::Pool), since the server may not have
/// heard of it. Only one that is known to hold nothing is just [closed](Self::close), or given back.
///
/// Its statements fail with what the server says, or if it has not answered within the limit.
pub struct Session {
    connection: Connection,
    /// Who ends it on the server. None if it is known to hold nothing, or belongs to no pool.
    owner: Option<SessionOwner>,
    /// Whether it is known to be in no transaction and to hold nothing. Whoever is lent the session may change that.
    pub(crate) is_clean: bool,
    /// How long the server may take to answer what it need not wait for.
    answer_limit: Duration,
    /// Who it is to the server.
    pub id: SessionId,
    /// What the server turned out to be.
    pub dialect: Dialect,
    /// On PostgreSQL: whether the next transaction has begun already. It saves the next user a BEGIN, and holds nothing.
    pub in_transaction: bool,
    pub(crate) version: String,
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
            is_read_only: false,
        };
        session.introduce(purpose, settings).await.map_err(failed)?;
        session.mark_clean();
        Ok(session)
    }

    /// Connects by itself: nobody ends it on the server when it is dropped.
    pub async fn connect_alone(
        address: &ServerAddress,
        answer_limit: Duration,
    ) -> Result<Self, ServerError> {
        let settings = (Purpose::Control, &SessionSettings::default());
        Self::connect(address, answer_limit, settings, None).await
    }

    /// Sets the session up for its purpose, and asks who it is, in one round trip.
    async fn introduce(
        &mut self,
        purpose: Purpose,
        settings: &SessionSettings,
    ) -> Result<(), sqlx::Error> {
        let (first, last) = settings.set_up(self.dialect, purpose);
        let version = sessions::version(self.dialect);
        let identity = sessions::own_identity(self.dialect);
        let rows = self.rows(&format!("{first}; SELECT {version}, {identity}{last}")).await?;
        // On PostgreSQL settings are rows too.
        let Some([version, is_read_only, pid, identity]) = rows.last().map(|row| &row[..]) else {
            return Err(UnreadableAnswer("who the session is").into());
        };
        self.id = SessionId::read(pid, identity)?;
        self.is_read_only = is_read_only != "0";
        self.version = version.clone();
        if self.dialect.is_innodb() {
            let is_mariadb = version.contains("MariaDB");
            self.dialect = if is_mariadb { Dialect::Mariadb } else { Dialect::Mysql };
        }
        Ok(())
    }

    /// Closes the connection of a session that is known to hold nothing.
    pub fn close(mut self) {
        self.owner = None;
    }

    /// Asks the server again for the session's number.
    pub async fn ask_pid(&mut self) -> Result<i64, sqlx::Error> {
        let rows = self.rows(&format!("SELECT {}", sessions::own_pid(self.dialect))).await?;
        let pid = rows.first().and_then(|row| row[0].parse().ok());
        Ok(pid.ok_or(UnreadableAnswer("the number of the session"))?)
    }

    /// Ends its transaction by ROLLBACK and makes it ready for the next. If that fails it is not known to be clean.
    pub async fn roll_back(&mut self) -> Result<(), sqlx::Error> {
        if self.dialect.is_innodb() {
            return self.as_ref().roll_back("ROLLBACK").await;
        }
        let in_transaction = std::mem::replace(&mut self.in_transaction, false);
        // A transaction that the work in it has ended cannot be followed by another.
        let end = if in_transaction { "ROLLBACK AND CHAIN" } else { "ROLLBACK" };
        self.as_ref().roll_back(end).await?;
        self.in_transaction = in_transaction;
        Ok(())
    }

    /// Ends a transaction in which nothing was done, or that a failure has ended.
    pub async fn leave_transaction(&mut self) -> Result<(), sqlx::Error> {
        self.in_transaction = false;
        self.as_ref().roll_back("ROLLBACK").await
    }

    /// Returns the driver's connection, to be downcast.
    pub fn as_any(&self) -> &dyn Any {
        match &self.connection {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => &**connection,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => &**connection,
        }
    }

    /// The same, to be changed.
    pub fn as_any_mut(&mut self) -> &mut dyn Any {
        match &mut self.connection {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => &mut **connection,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => &mut **connection,
        }
    }

    /// Lends the session. It is clean again only after a rollback, or when it is [marked](Self::mark_clean) so.
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

    /// Says that it is in no transaction and holds nothing: only then does a pool take it back.
    pub fn mark_clean(&mut self) {
        self.is_clean = true;
    }

    /// Sets how long the server may take to answer from now on: filling a table takes longer than answering.
    pub fn set_answer_limit(&mut self, limit: Duration) {
        self.answer_limit = limit;
    }

    /// Runs statements that return nothing and wait for nobody.
    pub async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.as_ref().run(sql).await
    }

    /// The same; returns how many rows they changed.
    pub async fn affected(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        self.as_ref().affected(sql).await
    }

    /// Asks what waits for nobody.
    pub async fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, sqlx::Error> {
        self.as_ref().rows(sql).await
    }

    /// Asks the server whether it is still there.
    pub async fn ping(&mut self) -> Result<(), sqlx::Error> {
        // It changes nothing.
        let is_clean = self.is_clean;
        let pinged = self.as_ref().ping().await;
        self.is_clean = is_clean;
        pinged
    }

    /// Sends rows through `COPY … FROM STDIN`, which only PostgreSQL has; returns how many went in.
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
            owner.abandon(self.dialect, self.id);
        }
    }
}
