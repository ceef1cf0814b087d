//! Real database servers in a temporary directory, on a loopback port and a socket. They end with the process that
//! started them.
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
//!   Sandbox ──pipe──► supervisor (sh, a group of its own) ──► the server
//!      │                  │ end of file on the pipe, for whatever reason
//!      ▼ drop, exit,      ▼
//!        kill -9       ends the server, removes its directory
//! ```
//!
//! Tests ask [`Server::for_tests`]: a server of the environment, else a sandbox, else (outside CI) a visible skip.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod installation;
#[cfg(feature = "proxy")]
pub mod proxy;
mod server;
mod supervisor;

/// The same test on each server: a module of the name of each function, which takes an [`Engine`]. Needs tokio.
///
/// ```
/// use hierlock_sandbox::{Engine, on_each_server};
///
/// on_each_server!(it_has_a_name);
///
/// async fn it_has_a_name(engine: Engine) {
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

pub use error::{Error, Result};
pub use hierlock_engine::Dialect as Engine;
pub use server::Server;

use installation::Installation;
use std::path::Path;
use std::time::{Duration, Instant};
use supervisor::Supervisor;

/// How long a server may take to answer.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// How often a starting server is probed.
const READY_CHECK_PAUSE: Duration = Duration::from_millis(20);
/// How often another port is tried, if the first was taken in the meantime.
const MAX_START_TRIES: usize = 3;

/// A running server. Dropping it ends the server and removes everything that it wrote.
#[derive(Debug)]
pub struct Sandbox {
    engine: Engine,
    port: u16,
    url: String,
    supervisor: Supervisor,
}

impl Sandbox {
    /// Starts a server; it answers when this returns, some seconds later.
    ///
    /// # Errors
    /// The engine is not installed ([`Error::is_missing`]), or its server does not start, with what it said.
    pub fn start(engine: Engine) -> Result<Self> {
        Self::start_with(engine, &[])
    }

    /// As [`start`](Self::start), with more on the server's command line. What has to be known when its data directory
    /// is made (`--lower-case-table-names` of MySQL) is given there too.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(engine: Engine, options: &[&str]) -> Result<Self> {
        let mut tries = 1..MAX_START_TRIES;
        loop {
            match Self::try_start(engine, options) {
                // Somebody else may have taken the port between our choosing and its using it.
                Err(Error::Ended { .. }) if tries.next().is_some() => {}
                other => return other,
            }
        }
    }

    /// As [`start`](Self::start), for a test, which is skipped with a message where there is no engine, except in CI.
    ///
    /// # Panics
    /// There is no server, unless it is only missing and this is not CI.
    pub fn for_tests(engine: Engine) -> Option<Self> {
        Self::for_tests_with(engine, &[])
    }

    /// The same, with more on the server's command line.
    ///
    /// # Panics
    /// As [`for_tests`](Self::for_tests).
    pub fn for_tests_with(engine: Engine, options: &[&str]) -> Option<Self> {
        server::or_skip(Self::start_with(engine, options))
    }

    fn try_start(engine: Engine, options: &[&str]) -> Result<Self> {
        let installation = installation::find(engine)?;
        let directory = tempfile::Builder::new().prefix(&format!("hierlock-{engine}-")).tempdir();
        let directory = directory.map_err(Error::io("make a directory for the server"))?;
        let (port, user) = (free_port()?, installation.user());
        supervisor::give_directory(user, directory.path())?;
        let mut prepare = installation.prepare(directory.path(), options)?;
        supervisor::run(&mut prepare, user, directory.path())?;
        let mut serve = installation.serve(directory.path(), port);
        serve.args(options);
        let supervisor = Supervisor::start(serve, user, directory)?;
        let sandbox = Self { engine, port, url: installation.url(port), supervisor };
        sandbox.until_ready(&*installation)?;
        Ok(sandbox)
    }

    fn until_ready(&self, installation: &dyn Installation) -> Result<()> {
        let begun = Instant::now();
        while !installation.is_ready(self.port, self.directory()) {
            if self.supervisor.has_ended() {
                return Err(Error::Ended { engine: self.engine, said: self.supervisor.log() });
            }
            self.pause(begun)?;
        }
        Ok(())
    }

    /// Waits a little, unless it has taken too long already.
    fn pause(&self, begun: Instant) -> Result<()> {
        if begun.elapsed() > READY_LIMIT {
            return Err(Error::Silent { engine: self.engine, said: self.supervisor.log() });
        }
        std::thread::sleep(READY_CHECK_PAUSE);
        Ok(())
    }

    /// Restarts a server that was killed, on its data and at the same address.
    ///
    /// # Errors
    /// It has not ended, or does not start, with what it said.
    pub fn restart(&mut self) -> Result<()> {
        let installation = installation::find(self.engine)?;
        let begun = Instant::now();
        loop {
            while !self.supervisor.has_ended() {
                self.pause(begun)?;
            }
            self.supervisor.start_again()?;
            match self.until_ready(&*installation) {
                // Child processes of the killed server may still hold its files or its port.
                Err(Error::Ended { .. }) if begun.elapsed() < READY_LIMIT => {}
                other => return other,
            }
        }
    }

    /// Returns which server it is.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Returns how to connect: as an administrator, without a password, over TCP.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns where it keeps its files; its socket is in there too.
    pub fn directory(&self) -> &Path {
        &self.supervisor.directory
    }

    /// Returns the process number of the server itself.
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.directory().join("server.pid")).ok()?.trim().parse().ok()
    }

    /// Lets it run on after this process has ended; returns how to end it.
    pub fn keep(self) -> String {
        self.supervisor.keep()
    }
}

/// Returns a port that is free at this moment.
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
