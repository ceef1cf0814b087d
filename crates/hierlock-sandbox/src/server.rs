//! A server for a test: one that the environment names, else a sandbox.

use crate::error::{Error, Result};
use crate::{Engine, Sandbox};
use hierlock_engine::ServerUrl;
use std::fmt;

/// A server to connect to.
pub enum Server {
    /// Somebody else's, named in the environment.
    Given {
        /// Which kind.
        engine: Engine,
        /// How to connect.
        url: String,
    },
    /// Our own.
    Own(Sandbox),
}

/// Its URL may hold a password, and is not shown.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Given { engine, .. } => {
                f.debug_struct("Given").field("engine", engine).finish_non_exhaustive()
            }
            Server::Own(sandbox) => f.debug_tuple("Own").field(sandbox).finish(),
        }
    }
}

impl Server {
    /// The server that `HIERLOCK_MYSQL_URL`, `HIERLOCK_MARIADB_URL` or `HIERLOCK_POSTGRES_URL` names
    /// (for MySQL also `MYSQL_DSN`, as a URL or in its Go form), else a new sandbox.
    ///
    /// # Errors
    /// As [`Sandbox::start`]; also a variable that cannot be read.
    pub fn get(engine: Engine) -> Result<Self> {
        match given(engine, |name| std::env::var(name).ok())? {
            Some(url) => Ok(Server::Given { engine, url }),
            None => Sandbox::start(engine).map(Server::Own),
        }
    }

    /// As [`get`](Self::get), for a test: where the engine is not installed the test is skipped, and
    /// says so. In CI (`CI` is set) nothing is skipped.
    ///
    /// # Panics
    /// There is no server, unless it is only missing and this is not CI.
    pub fn for_tests(engine: Engine) -> Option<Self> {
        or_skip(Self::get(engine))
    }

    /// Which kind.
    pub fn engine(&self) -> Engine {
        match self {
            Server::Given { engine, .. } => *engine,
            Server::Own(sandbox) => sandbox.engine(),
        }
    }

    /// How to connect.
    pub fn url(&self) -> &str {
        match self {
            Server::Given { url, .. } => url,
            Server::Own(sandbox) => sandbox.url(),
        }
    }
}

/// What is only missing is skipped, and says so; except in CI.
pub(crate) fn or_skip<T>(found: Result<T>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(error) if error.is_missing() && std::env::var_os("CI").is_none() => {
            eprintln!("skipped, because {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The URL of the server that the environment names. What cannot be read may hold a password, and is not shown.
fn given(engine: Engine, variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>> {
    let own = match engine {
        Engine::Mysql => "HIERLOCK_MYSQL_URL",
        Engine::Mariadb => "HIERLOCK_MARIADB_URL",
        Engine::Postgres => "HIERLOCK_POSTGRES_URL",
    };
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(url) = set(own) {
        if url.contains("://") {
            return Ok(Some(url));
        }
        let why =
            format!("its value is not a URL; write {engine}://user:password@host:port/database");
        return Err(Error::Environment { variable: own, why });
    }
    let Some(dsn) = set("MYSQL_DSN").filter(|_| engine == Engine::Mysql) else { return Ok(None) };
    let url = ServerUrl::from_dsn(&dsn).ok_or_else(|| Error::Environment {
        variable: "MYSQL_DSN",
        why: "its value is neither a URL nor a DSN; write mysql://user:pw@127.0.0.1:3306/database or \
              user:pw@tcp(127.0.0.1:3306)/database"
            .to_owned(),
    })?;
    Ok(Some(url.expose().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(engine: Engine, variables: &[(&str, &str)]) -> Result<Option<String>> {
        given(engine, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn the_environment_comes_first() {
        let dsn = ("MYSQL_DSN", "root:pw@tcp(127.0.0.1:3306)/mgl_test");
        let own = ("HIERLOCK_MYSQL_URL", "mysql://a@b/c");
        let url = |engine, variables: &[_]| look(engine, variables).unwrap();
        assert_eq!(url(Engine::Mysql, &[dsn, own]).as_deref(), Some("mysql://a@b/c"));
        let from_dsn = url(Engine::Mysql, &[dsn, ("HIERLOCK_MYSQL_URL", "")]);
        assert_eq!(from_dsn.as_deref(), Some("mysql://root:pw@127.0.0.1:3306/mgl_test"));
        assert_eq!(url(Engine::Mariadb, &[dsn, own]), None);
        assert_eq!(url(Engine::Postgres, &[]), None);
    }

    #[test]
    fn a_variable_that_cannot_be_read_is_named() {
        for (name, value, form) in [
            ("HIERLOCK_MYSQL_URL", "localhost:3306", "mysql://user:password@host:port/database"),
            ("MYSQL_DSN", "root@", "tcp(127.0.0.1:3306)"),
        ] {
            let error = look(Engine::Mysql, &[(name, value)]).unwrap_err();
            assert!(!error.is_missing() && error.to_string().contains(name), "{error}");
            assert!(error.to_string().contains(form), "{error}");
        }
    }

    /// The value was printed whole, with its password.
    #[test]
    fn no_password_is_shown() {
        let dsn = "root:secret@tcp(127.0.0.1:3306)";
        for (name, value) in [("HIERLOCK_MYSQL_URL", "root:secret@h/d"), ("MYSQL_DSN", dsn)] {
            let error = look(Engine::Mysql, &[(name, value)]).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(name) && !shown.contains("secret"), "{shown}");
        }
        let url = "mysql://root:secret@h/d".to_owned();
        let given = format!("{:?}", Server::Given { engine: Engine::Mysql, url });
        assert!(given.contains("Mysql") && !given.contains("secret"), "{given}");
    }
}
