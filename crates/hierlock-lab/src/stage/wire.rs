//! One connection to a server, which sends text and gets text back. Knows nothing of sessions, locks and
//! cases.

use super::statement::Words;
use super::{StageError, innodb, postgres, settings};
use crate::observation::Answer;
use crate::place::Engine;
use futures_util::TryStreamExt as _;
use hierlock::ServerUrl;
use hierlock::database::error_message;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlSslMode};
use sqlx::postgres::{
    PgConnectOptions, PgConnection, PgListener, PgPool, PgPoolOptions, PgRow, PgSslMode,
};
use sqlx::{Acquire as _, AssertSqlSafe, ConnectOptions as _, Connection as _};
use sqlx::{Either, Row as _, ValueRef as _};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use url::Url;

/// How long a server may take to answer what it need not wait for.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A row, each cell as the server writes it.
pub(super) type TextRow = Vec<Option<String>>;

/// Where a server is, and who we are to it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) engine: Engine,
    options: Either<Box<MySqlConnectOptions>, Box<PgConnectOptions>>,
}

/// Without the password, which the driver's options would show.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Address {
    pub(super) fn from_url(engine: Engine, url: &str) -> Result<Self, StageError> {
        let unreadable = |error: &dyn fmt::Display| {
            StageError(format!("the URL of the {engine} server cannot be read: {error}"))
        };
        ServerUrl::new(url).check_parameters().map_err(|error| unreadable(&error))?;
        let url = Url::parse(url).map_err(|error| unreadable(&error))?;
        let options = match engine {
            Engine::Mysql | Engine::Mariadb => {
                let options = MySqlConnectOptions::from_url(&url)
                    .map_err(|e| unreadable(&error_message(&e)))?;
                // As in a terminal: the server's own settings, not those the driver prefers.
                let options = options
                    .pipes_as_concat(false)
                    .no_engine_substitution(false)
                    .timezone(None)
                    .disable_statement_logging();
                Either::Left(Box::new(options))
            }
            Engine::Postgres => {
                let options =
                    PgConnectOptions::from_url(&url).map_err(|e| unreadable(&error_message(&e)))?;
                let options = options
                    .extra_float_digits(None)
                    .application_name("hierlock lab")
                    .disable_statement_logging();
                Either::Right(Box::new(options))
            }
            Engine::Memory | Engine::File => {
                return Err(StageError(format!("{engine} is not a server")));
            }
        };
        Ok(Self { engine, options })
    }

    /// The same without encryption, which takes many times as long as all the rest: only on this very
    /// machine, and only if nothing else was asked for.
    pub(super) fn unencrypted(&self, url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        let is_here = match url.host_str() {
            Some(host) => ["localhost", "127.0.0.1", "[::1]"].contains(&host),
            None => true,
        };
        let is_asked_for = url.query_pairs().any(|(name, _)| name.starts_with("ssl"));
        if !is_here || is_asked_for {
            return None;
        }
        let options = match self.options.clone() {
            Either::Left(options) => {
                Either::Left(Box::new(options.ssl_mode(MySqlSslMode::Disabled)))
            }
            Either::Right(options) => Either::Right(Box::new(options.ssl_mode(PgSslMode::Disable))),
        };
        Some(Self { engine: self.engine, options })
    }

    /// The same server, in a database of that name.
    pub(super) fn database(&self, name: &str) -> Self {
        let options = match self.options.clone() {
            Either::Left(options) => Either::Left(Box::new(options.database(name))),
            Either::Right(options) => Either::Right(Box::new(options.database(name))),
        };
        Self { engine: self.engine, options }
    }

    /// The same database, in a schema of that name, which only PostgreSQL has.
    pub(super) fn schema(&self, name: &str) -> Self {
        let options = match self.options.clone() {
            Either::Right(options) => {
                Either::Right(Box::new(options.options([("search_path", name)])))
            }
            innodb => innodb,
        };
        Self { engine: self.engine, options }
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<Wire, StageError> {
        self.opened(async {
            Ok(match &self.options {
                Either::Left(options) => Connection::Innodb(Box::new(options.connect().await?)),
                Either::Right(options) => Connection::Postgres(Box::new(options.connect().await?)),
            })
        })
        .await
    }

    /// Opens a connection for a session of a scenario, which may do anything.
    pub(super) async fn connect_session(&self) -> Result<Wire, StageError> {
        let Either::Right(options) = &self.options else { return self.connect().await };
        // A plain connection takes a notification that it did not ask for as an error.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .test_before_acquire(false)
            .acquire_timeout(PATIENCE / 2)
            .connect_lazy_with((**options).clone());
        let listening = self.opened(async {
            let listener = Box::new(PgListener::connect_with(&pool).await?);
            Ok(Connection::Listening(listener, pool))
        });
        match listening.await {
            Ok(wire) => Ok(wire),
            // A pool tries again and again, and says only that it was in vain.
            Err(error) => match self.connect().await {
                Ok(_) => Err(error),
                Err(why) => Err(why),
            },
        }
    }

    async fn opened(
        &self,
        connect: impl Future<Output = Result<Connection, sqlx::Error>>,
    ) -> Result<Wire, StageError> {
        let failed =
            |error: &dyn fmt::Display| StageError(format!("{self} cannot be reached: {error}"));
        let connection = tokio::time::timeout(PATIENCE, connect).await;
        let connection = connection
            .map_err(|_| failed(&format_args!("no answer within {PATIENCE:?}")))?
            .map_err(|error| failed(&error_message(&error)))?;
        let mut wire = Wire { connection, at: self.to_string(), is_broken: false };
        wire.ask(settings::of(self.engine)).await?;
        Ok(wire)
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (socket, host, port) = match &self.options {
            Either::Left(options) => (options.get_socket(), options.get_host(), options.get_port()),
            Either::Right(options) => {
                (options.get_socket(), options.get_host(), options.get_port())
            }
        };
        match socket {
            Some(socket) => write!(f, "{} at {}", self.engine, socket.display()),
            None => write!(f, "{} at {host}:{port}", self.engine),
        }
    }
}

enum Connection {
    Innodb(Box<MySqlConnection>),
    Postgres(Box<PgConnection>),
    /// One that may be sent notifications, with the pool of one connection that it comes from.
    Listening(Box<PgListener>, PgPool),
}

/// A connection.
pub(super) struct Wire {
    connection: Connection,
    at: String,
    /// An answer was not waited for: what comes next on it belongs to the question before.
    is_broken: bool,
}

/// What one statement gives.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) rows: Vec<TextRow>,
    changed: u64,
}

/// Everything that statements give, on whichever connection it is.
macro_rules! collect {
    ($connection:expr, $sql:expr, $cells:path) => {{
        let (mut all, mut given) = (Vec::new(), Given::default());
        let mut results = sqlx::raw_sql(AssertSqlSafe($sql)).fetch_many($connection);
        while let Some(result) = results.try_next().await? {
            match result {
                Either::Left(done) => {
                    given.changed = done.rows_affected();
                    all.push(std::mem::take(&mut given));
                }
                Either::Right(row) => given.rows.push($cells(&row)?),
            }
        }
        all
    }};
}

impl Wire {
    /// Runs a statement, however long it takes.
    ///
    /// # Cancel safety
    /// None: dropped before its end it leaves the statement running on the server.
    ///
    /// `words` are of the text that it runs, which is another if it was prepared before.
    pub(super) async fn run(&mut self, sql: &str, words: &Words) -> Result<Answer, sqlx::Error> {
        let all = self.collect(sql).await?;
        let changed = all.iter().map(|given| given.changed).sum();
        let rows: Vec<TextRow> = all.into_iter().flat_map(|given| given.rows).collect();
        Ok(match !rows.is_empty() || words.gives_rows() {
            // What was only read is not changed, though PostgreSQL counts it.
            true => {
                let changed = if words.is_returning() { rows.len() as u64 } else { 0 };
                Answer { rows: Some(rows), changed, is_matched: false }
            }
            false => {
                let counts_matches = matches!(self.connection, Connection::Innodb(_))
                    && !words.only_inserts_or_deletes();
                Answer { rows: None, changed, is_matched: counts_matches && changed > 0 }
            }
        })
    }

    async fn collect(&mut self, sql: &str) -> Result<Vec<Given>, sqlx::Error> {
        let sql = sql.to_owned();
        Ok(match &mut self.connection {
            Connection::Innodb(connection) => collect!(&mut **connection, sql, innodb_cells),
            Connection::Postgres(connection) => collect!(&mut **connection, sql, postgres_cells),
            Connection::Listening(listener, _) => {
                let connection = listener.acquire().await?;
                let all = collect!(connection, sql, postgres_cells);
                // What a session is notified of is not part of a transcript.
                while listener.next_buffered().is_some() {}
                all
            }
        })
    }

    /// The server's number for the connection.
    pub(super) async fn id(&mut self, engine: Engine) -> Result<i64, StageError> {
        let hello = match engine {
            Engine::Postgres => postgres::HELLO,
            _ => innodb::HELLO,
        };
        let rows = self.ask(hello).await?;
        let id = rows.first().and_then(|row| number(row, 0));
        id.ok_or_else(|| StageError(format!("{} does not number its connections", self.at)))
    }

    /// Asks what waits for nobody.
    pub(super) async fn ask(&mut self, sql: &str) -> Result<Vec<TextRow>, StageError> {
        self.try_ask(sql).await?.map_err(|error| self.lost(&error))
    }

    /// The same, where the server may refuse: only a server that is gone is an error of the stage.
    pub(super) async fn try_ask(
        &mut self,
        sql: &str,
    ) -> Result<Result<Vec<TextRow>, sqlx::Error>, StageError> {
        let answer = self.within(PATIENCE, sql).await?;
        Ok(answer.map(|all| all.into_iter().flat_map(|given| given.rows).collect()))
    }

    /// Asks several things at once, in one round trip.
    pub(super) async fn ask_all<const N: usize>(
        &mut self,
        questions: [&str; N],
    ) -> Result<[Vec<TextRow>; N], StageError> {
        let answer = self.within(PATIENCE, &questions.join("; ")).await?;
        let mut all = answer.map_err(|error| self.lost(&error))?.into_iter();
        Ok(std::array::from_fn(|_| all.next().unwrap_or_default().rows))
    }

    /// Runs what may take its time, as long as it is not too long.
    pub(super) async fn within(
        &mut self,
        limit: Duration,
        sql: &str,
    ) -> Result<Result<Vec<Given>, sqlx::Error>, StageError> {
        if self.is_broken {
            return Err(StageError(format!("{} has left a question unanswered", self.at)));
        }
        self.is_broken = true;
        let Ok(answer) = tokio::time::timeout(limit, self.collect(sql)).await else {
            return Err(StageError(format!("{} has not answered within {limit:?}", self.at)));
        };
        match answer {
            Err(error) if !matches!(error, sqlx::Error::Database(_)) => Err(self.lost(&error)),
            answer => {
                self.is_broken = false;
                Ok(answer)
            }
        }
    }

    fn lost(&self, error: &sqlx::Error) -> StageError {
        let why = error_message(error);
        StageError(match error {
            sqlx::Error::Database(_) => format!("{} refuses to be asked: {why}", self.at),
            _ => format!("the connection to {} is lost: {why}", self.at),
        })
    }

    /// Says goodbye.
    pub(super) async fn close(self) {
        async fn closed<E>(close: impl Future<Output = Result<(), E>>) {
            // A server that does not listen to a goodbye will find out.
            _ = tokio::time::timeout(PATIENCE, close).await;
        }
        match self.connection {
            Connection::Innodb(connection) => closed(connection.close()).await,
            Connection::Postgres(connection) => closed(connection.close()).await,
            Connection::Listening(listener, pool) => {
                // It goes back to its pool, which closes it.
                drop(listener);
                let close = async {
                    pool.close().await;
                    Ok::<(), sqlx::Error>(())
                };
                closed(close).await;
            }
        }
    }
}

fn innodb_cells(row: &MySqlRow) -> Result<TextRow, sqlx::Error> {
    (0..row.len())
        .map(|cell| Ok(row.try_get_unchecked::<Option<Vec<u8>>, _>(cell)?.map(text)))
        .collect()
}

fn postgres_cells(row: &PgRow) -> Result<TextRow, sqlx::Error> {
    (0..row.len())
        .map(|cell| {
            let value = row.try_get_raw(cell)?;
            if value.is_null() {
                return Ok(None);
            }
            value.as_str().map(|text| Some(text.to_owned())).map_err(sqlx::Error::Decode)
        })
        .collect()
}

/// Bits and bytes that are no text are shown as MySQL's own client does.
fn text(bytes: Vec<u8>) -> String {
    let is_text = |c: char| !c.is_control() || c.is_whitespace();
    match String::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_text) => text,
        Ok(text) => hex(text.as_bytes()),
        Err(error) => hex(error.as_bytes()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02X}"))
}

/// A cell of a row that was asked for; what is null is empty.
pub(super) fn cell(row: &[Option<String>], number: usize) -> &str {
    row.get(number).and_then(Option::as_deref).unwrap_or_default()
}

/// A number in a row that was asked for.
pub(super) fn number(row: &[Option<String>], cell: usize) -> Option<i64> {
    row.get(cell)?.as_ref()?.parse().ok()
}
