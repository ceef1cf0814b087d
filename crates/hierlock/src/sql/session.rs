//! One connection to a server, and what can be asked of it. Knows nothing of holds and guards.

use super::abandoned::Owner;
use super::line::{Line, Ran, TextRow, timed_out};
use super::place::Settings;
use super::session_settings::{self, Purpose};
use super::{Dialect, innodb, mariadb, mysql, postgres};
use crate::database::{Wire, error_message};
use crate::error::{Result, SqlError, UrlError};
use sqlx::ConnectOptions as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;
use url::Url;

/// Where a server is, and who we are to it.
#[derive(Clone)]
pub(super) enum Address {
    Innodb(Dialect, Box<MySqlConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

impl Address {
    pub(super) fn from_url(dialect: Dialect, url: &Url) -> Result<Self> {
        let unreadable = |error: sqlx::Error| UrlError::Server { why: error_message(&error) };
        Ok(match dialect {
            Dialect::Mysql | Dialect::Mariadb => {
                Address::innodb(dialect, MySqlConnectOptions::from_url(url).map_err(unreadable)?)
            }
            Dialect::Postgres => {
                Address::postgres(PgConnectOptions::from_url(url).map_err(unreadable)?)
            }
        })
    }

    // Statements are counted by a person who looks, not logged by the driver.
    pub(super) fn innodb(dialect: Dialect, options: MySqlConnectOptions) -> Self {
        Address::Innodb(dialect, Box::new(options.disable_statement_logging()))
    }

    pub(super) fn postgres(options: PgConnectOptions) -> Self {
        let options = options.application_name("hierlock").disable_statement_logging();
        Address::Postgres(Box::new(options))
    }

    /// What the server is said to be.
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Address::Innodb(dialect, _) => *dialect,
            Address::Postgres(_) => Dialect::Postgres,
        }
    }
}

/// Without the password, which the driver's options would show.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, socket, host, port) = match self {
            Address::Innodb(dialect, options) => {
                (dialect.name(), options.get_socket(), options.get_host(), options.get_port())
            }
            Address::Postgres(options) => {
                ("postgres", options.get_socket(), options.get_host(), options.get_port())
            }
        };
        match socket {
            Some(socket) => write!(f, "{name} at {}", socket.display()),
            None => write!(f, "{name} at {host}:{port}"),
        }
    }
}

/// What a failed statement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Chosen by the server to end a deadlock; its transaction has failed.
    Deadlock,
    /// Not free, and it was not to wait, or not that long.
    Refused,
    /// Ended by a cancel.
    Cancelled,
    /// The table is not there, or not as it was.
    NoSuchTable,
    /// An earlier statement failed, so nothing runs any more; on PostgreSQL.
    InFailedTransaction,
    /// The connection is of no more use.
    Gone,
    Other,
}

pub(super) fn meaning(error: &sqlx::Error) -> Meaning {
    let sqlx::Error::Database(error) = error else { return Meaning::Gone };
    match error.try_downcast_ref::<MySqlDatabaseError>() {
        Some(error) => innodb::meaning(error.number()),
        None => postgres::meaning(error.code().as_deref().unwrap_or_default()),
    }
}

/// Whether a server is of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Fit,
    /// It may be, if the reader of this knows what it means.
    Doubtful(String),
    Unfit(String),
}

impl Judgement {
    pub(super) fn unfit(why: String) -> Self {
        Judgement::Unfit(why)
    }

    pub(super) fn read_only() -> Self {
        let why = "it is read-only, so it follows another whose locks it does not share; connect to \
                   the primary";
        Judgement::Unfit(why.to_owned())
    }

    pub(super) fn several_writers(group: &str) -> Self {
        Judgement::Doubtful(format!(
            "it is one of {group}, which do not share row locks: all clients must lock on the same \
             one, or they do not exclude each other"
        ))
    }
}

enum Connection {
    Innodb(Box<MySqlConnection>),
    Postgres(Box<PgConnection>),
}

/// Who a session is to the server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionId {
    /// The server's number for it, by which it can be cancelled.
    pub(super) pid: i64,
    /// What tells it from another that has the same number later, because the server was started again. None if
    /// nothing does.
    pub(super) mark: Option<u64>,
}

impl SessionId {
    /// From the columns that a session has asked for of itself: its number, and what it is known by besides.
    pub(super) fn read(pid: &str, known_by: &str) -> Option<Self> {
        Some(Self { pid: pid.parse().ok()?, mark: mark(known_by) })
    }

    /// Is that what the server says of the session that has the number now?
    pub(super) fn is(self, rows: &[TextRow]) -> bool {
        let now = rows.first().and_then(|row| mark(&row[0]));
        !rows.is_empty() && (self.mark.is_none() || now == self.mark)
    }
}

/// A client's port on InnoDB, and a time on PostgreSQL: of the sockets of one host all are alike.
fn mark(known_by: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    known_by.hash(&mut hasher);
    known_by.contains([':', '.']).then(|| hasher.finish())
}

/// A connection that is in no transaction when nobody uses it. Dropped before it is known to be clean, it is
/// ended on the server as well (`abandoned`).
pub(super) struct Session {
    connection: Connection,
    /// Who sees to it that it ends on the server. None if it is known to hold nothing, or belongs to nobody.
    owner: Option<Owner>,
    silence: Duration,
    /// Who it is to the server.
    pub(super) id: SessionId,
    /// What the server turned out to be.
    pub(super) dialect: Dialect,
    /// On PostgreSQL: has the next transaction begun already? It saves the next acquire a BEGIN, and
    /// holds nothing.
    pub(super) in_transaction: bool,
    version: String,
    is_read_only: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("pid", &self.id.pid).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) async fn connect(
        address: &Address,
        settings: &Settings,
        purpose: Purpose,
        owner: Option<Owner>,
    ) -> Result<Self> {
        let failed = |source| SqlError::Connect { server: address.to_string(), source };
        let silence = settings.silence;
        let connect = async {
            Ok(match address {
                Address::Innodb(_, options) => {
                    Connection::Innodb(Box::new(options.connect().await?))
                }
                Address::Postgres(options) => {
                    Connection::Postgres(Box::new(options.connect().await?))
                }
            })
        };
        let connect = tokio::time::timeout(silence, connect);
        let connection = connect.await.map_err(|_| failed(timed_out(silence)))?.map_err(failed)?;
        let dialect = address.dialect();
        let mut session = Self {
            connection,
            owner,
            silence,
            id: SessionId::default(),
            dialect,
            in_transaction: false,
            version: String::new(),
            is_read_only: false,
        };
        session.introduce(settings, purpose).await.map_err(failed)?;
        Ok(session)
    }

    /// Sets the session up for its purpose, and asks who it is, in one round trip.
    async fn introduce(&mut self, settings: &Settings, purpose: Purpose) -> Ran {
        let question = match &self.connection {
            Connection::Innodb(_) => {
                let session_settings::Innodb { first, last } =
                    session_settings::innodb(purpose, settings);
                format!("{first}; SELECT {}, {}{last}", innodb::HELLO, innodb::WHO)
            }
            Connection::Postgres(_) => {
                let first = session_settings::postgres(purpose, settings);
                format!("{first}; SELECT {}, {}", postgres::HELLO, postgres::WHO)
            }
        };
        let rows = self.rows(&question).await?;
        // On PostgreSQL settings are rows too.
        let Some([version, is_read_only, pid, known_by]) = rows.last().map(|row| &row[..]) else {
            return Err(sqlx::Error::RowNotFound);
        };
        self.id = SessionId::read(pid, known_by).ok_or(sqlx::Error::RowNotFound)?;
        self.is_read_only = is_read_only != "0";
        self.version = version.clone();
        self.dialect = match &self.connection {
            Connection::Postgres(_) => Dialect::Postgres,
            Connection::Innodb(_) if version.contains("MariaDB") => Dialect::Mariadb,
            Connection::Innodb(_) => Dialect::Mysql,
        };
        Ok(())
    }

    /// Closes the connection of a session that is known to hold nothing.
    pub(super) fn close(mut self) {
        self.owner = None;
    }

    fn postgres_version(&self) -> i64 {
        self.version.parse().unwrap_or(0)
    }

    /// Why the server must not be locked on, if it follows another: after a failover the address may be that of one.
    pub(super) fn why_read_only(&self) -> Option<String> {
        let judged = match self.dialect {
            Dialect::Postgres => postgres::judge(self.postgres_version(), self.is_read_only),
            _ => Judgement::read_only(),
        };
        match judged {
            Judgement::Unfit(why) if self.is_read_only => Some(why),
            _ => None,
        }
    }

    /// Is the server of use? Asks what it must.
    pub(super) async fn judge(&mut self) -> Result<Judgement, sqlx::Error> {
        let writers = match self.dialect {
            Dialect::Postgres => {
                return Ok(postgres::judge(self.postgres_version(), self.is_read_only));
            }
            Dialect::Mysql => mysql::WRITERS,
            Dialect::Mariadb => mariadb::WRITERS,
        };
        // Not everyone may ask; then it is not known.
        let writers = match self.rows(writers).await {
            Ok(rows) => rows.first().and_then(|row| row[0].parse().ok()).unwrap_or(0),
            Err(error) if meaning(&error) == Meaning::Gone => return Err(error),
            Err(_) => 0,
        };
        let rolls_back = match self.dialect {
            Dialect::Mariadb => self.rows(mariadb::ROLLS_BACK).await?,
            _ => Vec::new(),
        };
        self.run("ROLLBACK").await?;
        if rolls_back.first().is_some_and(|row| row[0] == "1") {
            return Ok(mariadb::rolls_back_on_refusal());
        }
        Ok(match self.dialect {
            Dialect::Mariadb => mariadb::judge(&self.version, self.is_read_only, writers),
            _ => mysql::judge(&self.version, self.is_read_only, writers),
        })
    }

    /// The server's number for it, asked again.
    pub(super) async fn ask_pid(&mut self) -> Result<i64, sqlx::Error> {
        let pid = match self.dialect {
            Dialect::Postgres => "SELECT pg_backend_pid()",
            _ => "SELECT CONNECTION_ID()",
        };
        let rows = self.rows(pid).await?;
        rows.first().and_then(|row| row[0].parse().ok()).ok_or(sqlx::Error::RowNotFound)
    }

    /// Frees everything it holds, and makes it ready for the next.
    pub(super) async fn end(&mut self) -> Ran {
        match self.dialect {
            Dialect::Postgres => {
                let in_transaction = std::mem::replace(&mut self.in_transaction, false);
                // A transaction that the work in it has ended cannot be followed by another.
                let end = if in_transaction { "ROLLBACK AND CHAIN" } else { "ROLLBACK" };
                self.run(end).await?;
                self.in_transaction = in_transaction;
                Ok(())
            }
            _ => self.run("ROLLBACK").await,
        }
    }

    /// Ends a transaction in which nothing was done.
    pub(super) async fn leave_transaction(&mut self) -> Ran {
        self.in_transaction = false;
        self.run("ROLLBACK").await
    }

    /// The connection itself, if it is of that kind.
    pub(super) fn as_any(&self) -> &dyn Any {
        match &self.connection {
            Connection::Innodb(connection) => &**connection,
            Connection::Postgres(connection) => &**connection,
        }
    }

    pub(super) fn as_any_mut(&mut self) -> &mut dyn Any {
        match &mut self.connection {
            Connection::Innodb(connection) => &mut **connection,
            Connection::Postgres(connection) => &mut **connection,
        }
    }

    /// The same, lent for some statements.
    pub(super) fn line(&mut self) -> Line<'_> {
        let wire = match &mut self.connection {
            Connection::Innodb(connection) => Wire::Innodb(connection),
            Connection::Postgres(connection) => Wire::Postgres(connection),
        };
        Line { wire, silence: self.silence, id: self.id, dialect: self.dialect, is_ours: true }
    }

    /// Runs what returns nothing and waits for nobody.
    pub(super) async fn run(&mut self, sql: &str) -> Ran {
        self.line().run(sql).await
    }

    /// How long the server may take from now on. Filling a table takes longer than answering.
    pub(super) fn be_patient(&mut self, silence: Duration) {
        self.silence = silence;
    }

    /// Runs what changes rows; how many it changed.
    pub(super) async fn affected(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        self.line().affected(sql).await
    }

    /// Sends rows through `COPY … FROM STDIN`, which only PostgreSQL has; how many went in.
    pub(super) async fn copy_in(&mut self, sql: &str, rows: Vec<u8>) -> Result<u64, sqlx::Error> {
        let silence = self.silence;
        let Connection::Postgres(c) = &mut self.connection else {
            return Err(sqlx::Error::Protocol("only PostgreSQL has COPY".to_owned()));
        };
        let copy = async {
            let mut copy = c.copy_in_raw(sql).await?;
            copy.send(rows).await?;
            copy.finish().await
        };
        tokio::time::timeout(silence, copy).await.map_err(|_| timed_out(silence))?
    }

    /// Is the server still there?
    pub(super) async fn ping(&mut self) -> Ran {
        self.line().ping().await
    }

    /// Asks what waits for nobody.
    pub(super) async fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, sqlx::Error> {
        self.line().rows(sql).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.abandon(self.dialect, self.id);
        }
    }
}
