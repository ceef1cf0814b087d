//! Real database servers in a temporary directory, on a loopback port and a socket. They end when the process that
//! started them ends.
//!
//! ```no_run
//! use hierlock_sandbox::{Engine, Sandbox};
//!
//! let server = Sandbox::start(Engine::Postgres)?;
//! println!("{}", server.url());
//! # Ok::<(), hierlock_sandbox::Error>(())
//! ```
//!
//! ```text
//!   Sandbox ──pipe──► supervisor (sh, in its own process group) ──► the server
//!      │                  │ end of file on the pipe, for any reason
//!      ▼ drop, exit,      ▼
//!        kill -9       ends the server, removes its directory
//! ```
//!
//! Tests use [`Server::for_tests`]: a server named in the environment, else a sandbox, else (outside CI) a skip with a
//! message. [`SandboxCluster`] starts several servers that replicate.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod cluster;
mod error;
mod installation;
mod launch;
#[cfg(feature = "proxy")]
pub mod proxy;
mod server;
mod supervisor;

/// Runs the same tests on each server: a module per test function, which takes an [`Engine`]. Needs tokio.
///
/// ```
/// use hierlock_sandbox::{Engine, on_each_server};
///
/// on_each_server!(an_engine_has_a_name);
///
/// async fn an_engine_has_a_name(engine: Engine) {
///     assert!(!engine.to_string().is_empty());
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! on_each_server {
    ($($test:ident),* $(,)?) => {
        $(mod $test {
            $crate::on_each_server!(@ $test: mysql Mysql, mariadb Mariadb, postgres Postgres);
        })*
    };
    (@ $test:ident: $($name:ident $engine:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            super::$test($crate::Engine::$engine).await;
        })*
    };
}

pub use cluster::{SandboxCluster, Topology};
pub use error::{Error, Result};
pub use hierlock_engine::Dialect as Engine;
pub use server::Server;

use installation::Installation;
use launch::Launch;
use std::path::Path;
use std::time::{Duration, Instant};
use supervisor::Supervisor;

/// The time limit for a server to accept connections.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// The pause between two checks of a starting server.
const READY_CHECK_PAUSE: Duration = Duration::from_millis(20);
/// The maximum number of starts, each on a new port, because another process may take the port in the meantime.
const MAX_START_TRIES: usize = 3;

/// A running server. Dropping it ends the server and removes its files.
#[derive(Debug)]
pub struct Sandbox {
    engine: Engine,
    port: u16,
    url: String,
    supervisor: Supervisor,
}

impl Sandbox {
    /// Starts a server. It accepts connections when this returns, after some seconds.
    ///
    /// # Errors
    /// The engine is not installed ([`Error::is_missing`]), or its server does not start; then the error contains its
    /// log.
    pub fn start(engine: Engine) -> Result<Self> {
        Self::start_with(engine, &[])
    }

    /// Like [`start`](Self::start), with further options on the server's command line. Options for the initialization
    /// of the data directory (`--lower-case-table-names` of MySQL) are passed there too.
    pub fn start_with(engine: Engine, options: &[&str]) -> Result<Self> {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let launch = Launch { options, ..Launch::new(engine) };
        retry(|error| matches!(error, Error::Ended { .. }), || Self::launch(&launch))
    }

    /// Like [`start`](Self::start), for a test. Returns None with a message if the engine is not installed, except in
    /// CI.
    ///
    /// # Panics
    /// The server does not start, or it is not installed and this is CI.
    pub fn for_tests(engine: Engine) -> Option<Self> {
        Self::for_tests_with(engine, &[])
    }

    /// Like [`for_tests`](Self::for_tests), with further options on the server's command line.
    pub fn for_tests_with(engine: Engine, options: &[&str]) -> Option<Self> {
        server::or_skip(Self::start_with(engine, options))
    }

    fn launch(launch: &Launch) -> Result<Self> {
        let engine = launch.engine;
        let installation = installation::find(engine)?;
        let directory = launch.prepare(&*installation)?;
        let port = free_port()?;
        let mut serve = installation.serve(directory.path(), port);
        serve.args(&launch.options);
        let supervisor = Supervisor::start(serve, installation.user(), directory)?;
        let sandbox = Self { engine, port, url: installation.url(port), supervisor };
        sandbox.wait_until_ready(&*installation)?;
        Ok(sandbox)
    }

    fn wait_until_ready(&self, installation: &dyn Installation) -> Result<()> {
        self.wait_until(|| Ok(installation.is_ready(self.port, self.directory())))
    }

    /// Waits until a condition is met. Fails if the server ends, or after [`READY_LIMIT`].
    fn wait_until(&self, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !condition()? {
            if self.supervisor.has_ended() {
                return Err(Error::Ended { engine: self.engine, log: self.supervisor.log() });
            }
            self.pause(begun)?;
        }
        Ok(())
    }

    /// Runs statements with the client program, and returns its output.
    fn run_sql(&self, sql: &str) -> Result<String> {
        supervisor::run(self.client()?, sql)
    }

    /// Waits for [`READY_CHECK_PAUSE`]. Fails after [`READY_LIMIT`].
    fn pause(&self, begun: Instant) -> Result<()> {
        if begun.elapsed() > READY_LIMIT {
            return Err(Error::Silent { engine: self.engine, log: self.supervisor.log() });
        }
        std::thread::sleep(READY_CHECK_PAUSE);
        Ok(())
    }

    /// Restarts a killed server on its data and at the same address.
    ///
    /// # Errors
    /// The server has not ended, or does not start; then the error contains its log.
    pub fn restart(&mut self) -> Result<()> {
        let installation = installation::find(self.engine)?;
        let begun = Instant::now();
        loop {
            while !self.supervisor.has_ended() {
                self.pause(begun)?;
            }
            self.supervisor.start_again()?;
            match self.wait_until_ready(&*installation) {
                // Child processes of the killed server may still hold its files or its port.
                Err(Error::Ended { .. }) if begun.elapsed() < READY_LIMIT => {}
                other => return other,
            }
        }
    }

    /// Returns the engine.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Returns the URL: as an administrator, without a password, over TCP.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the client program of the package (`mysql`, `mariadb`, `psql`), which reads SQL from standard input. Fails
    /// if it is not installed.
    pub fn client(&self) -> Result<std::process::Command> {
        installation::find(self.engine)?.client(self.port)
    }

    /// Returns the directory of the server's files, including its socket.
    pub fn directory(&self) -> &Path {
        &self.supervisor.directory
    }

    /// Returns the process id of the server itself.
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.directory().join("server.pid")).ok()?.trim().parse().ok()
    }

    /// Keeps the server running after this process has ended. Returns the command that ends it.
    pub fn keep(self) -> String {
        self.supervisor.keep()
    }
}

/// Starts again, on another port, after a retryable error: another process may have taken the port since it was chosen.
fn retry<T>(
    is_retryable: impl Fn(&Error) -> bool,
    mut start: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut tries = 1..MAX_START_TRIES;
    loop {
        match start() {
            Err(error) if is_retryable(&error) && tries.next().is_some() => {}
            other => return other,
        }
    }
}

/// Returns a port that is free at the moment.
fn free_port() -> Result<u16> {
    std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(Error::io("find a free port"))
}

/// The example of the package's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
