//! A throw-away server, and the databases in it.

use super::setup::{Part, Setup, SoakBackend};
use super::{Result, queue, tree};
use hierlock::lease::Leases;
use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Target};
use hierlock_sandbox::{Engine, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Few buckets, so that unrelated nodes share rows.
const BUCKETS: u32 = 7;

/// A server that can be restarted.
pub struct Server {
    /// The engine.
    pub engine: Engine,
    url: String,
    address: SocketAddr,
    sandbox: Mutex<Sandbox>,
}

impl Server {
    /// Starts a server whose commits survive a kill, which is not the default of a sandbox.
    ///
    /// # Errors
    /// Fails if the server is not installed or does not start.
    pub fn start(engine: Engine) -> Result<Self> {
        let durable: &[&str] = match engine {
            Engine::Postgres => &["-c", "synchronous_commit=on"],
            Engine::Mysql | Engine::Mariadb => &["--innodb-flush-log-at-trx-commit=2"],
        };
        let sandbox = Sandbox::start_with(engine, durable)?;
        let url = sandbox.url().to_owned();
        let (_, rest) = url.rsplit_once('@').ok_or("no user in the URL")?;
        let (address, _) = rest.split_once('/').ok_or("no database in the URL")?;
        let address = address.parse()?;
        Ok(Self { engine, url, address, sandbox: Mutex::new(sandbox) })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server, by an orderly shutdown or by SIGKILL, and starts it again with the same data.
    ///
    /// # Errors
    /// Fails if the server does not start.
    pub fn restart(&self, gracefully: bool) -> Result<()> {
        let mut sandbox = self.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = sandbox.pid().ok_or("the server has no process id")?;
        let signal = match (gracefully, self.engine) {
            (false, _) => Signal::SIGKILL,
            // A fast shutdown, which does not wait for clients.
            (true, Engine::Postgres) => Signal::SIGINT,
            (true, Engine::Mysql | Engine::Mariadb) => Signal::SIGTERM,
        };
        kill(Pid::from_raw(i32::try_from(pid)?), signal)?;
        sandbox.restart()?;
        Ok(())
    }

    /// Creates a database and returns its URL.
    async fn create_database(&self, name: &str) -> Result<String> {
        let (server, _) = self.url.rsplit_once('/').ok_or("no database in the URL")?;
        let sql = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        match self.engine {
            Engine::Postgres => {
                let mut connection = sqlx::PgConnection::connect(&self.url).await?;
                connection.execute(sqlx::raw_sql(sql)).await?;
                connection.close().await?;
            }
            Engine::Mysql | Engine::Mariadb => {
                let url = self.url.replacen("mariadb", "mysql", 1);
                let mut connection = sqlx::MySqlConnection::connect(&url).await?;
                connection.execute(sqlx::raw_sql(sql)).await?;
                connection.close().await?;
            }
        }
        Ok(format!("{server}/{name}"))
    }
}

/// The database or file with the locks or tables of a setup.
pub struct SetupDatabase {
    /// The URL for processes.
    pub url: String,
    /// The URL without the parameters of locks.
    pub bare_url: String,
}

impl SetupDatabase {
    /// Creates the database and the tables that the setup needs.
    ///
    /// # Errors
    /// Fails if the database does.
    pub async fn create(setup: Setup, server: Option<&Server>, directory: &Path) -> Result<Self> {
        let bare_url = match (setup.backend, server) {
            (SoakBackend::Server(_), Some(server)) => {
                server.create_database(&setup.to_string().replace('-', "_")).await?
            }
            (SoakBackend::Server(_), None) => return Err("there is no server".into()),
            (SoakBackend::Memory, _) => "memory:".to_owned(),
            (SoakBackend::File, _) => format!("file:{}", directory.join("locks").display()),
            (SoakBackend::Sqlite, _) => format!("sqlite:{}", directory.join("soak.db").display()),
        };
        let mut url = bare_url.clone();
        match setup.part {
            Part::Locks { strategy: Some(strategy), in_session } => {
                url += &format!("?strategy={strategy}");
                provision(&url, strategy).await?;
                url += "&connections=8&keep_alive_ms=300&silence_ms=2500";
                if in_session {
                    url += "&scope=session";
                }
            }
            Part::Locks { strategy: None, .. } => {}
            Part::Leases => {
                let database = hierlock::database::Database::connect(&url).await?;
                Leases::new(database.clone()).provision().await?;
                let number = match setup.backend {
                    SoakBackend::Server(Engine::Postgres) => "BIGSERIAL PRIMARY KEY",
                    SoakBackend::Server(_) => "BIGINT AUTO_INCREMENT PRIMARY KEY",
                    _ => "INTEGER PRIMARY KEY AUTOINCREMENT",
                };
                let table =
                    "(id NUMBER, path VARCHAR(255), token BIGINT)".replace("NUMBER", number);
                let mut tx = database.begin().await?;
                tx.run(&format!("CREATE TABLE soak_writes {table}")).await?;
                tx.commit().await?;
            }
            Part::Queue => {
                let database = hierlock::database::Database::connect(&url).await?;
                queue(&database)?.provision().await?;
                let mut tx = database.begin().await?;
                tx.run("CREATE TABLE soak_effects (job BIGINT)").await?;
                tx.commit().await?;
            }
        }
        Ok(Self { url, bare_url })
    }

    /// Returns the URL through a proxy.
    pub fn url_through(&self, port: u16) -> String {
        let (login, rest) = self.url.rsplit_once('@').unwrap_or_default();
        let (_, rest) = rest.split_once('/').unwrap_or_default();
        format!("{login}@127.0.0.1:{port}/{rest}")
    }
}

/// Creates the rows that clients lock.
async fn provision(url: &str, strategy: Strategy) -> Result<()> {
    match strategy {
        Strategy::Striped => {
            let url = format!("{url}&buckets={BUCKETS}");
            Provision::connect(&url, Hierarchy::default()).await?.run(|_| ()).await?;
        }
        Strategy::PerId => {
            let provision = Provision::connect(url, Hierarchy::default()).await?;
            provision.run(|_| ()).await?;
            let nodes: Vec<Target> = tree::leaves()
                .iter()
                .flat_map(|leaf| [false, true].map(|broken| tree::node_to_lock(leaf, broken)))
                .collect();
            provision.add(&nodes).await?;
        }
        _ => {}
    }
    Ok(())
}
