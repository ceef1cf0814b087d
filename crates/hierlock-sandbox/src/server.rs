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
    /// Returns the server that `HIERLOCK_MYSQL_URL`, `HIERLOCK_MARIADB_URL` or `HIERLOCK_POSTGRES_URL` names (for MySQL
    /// also `MYSQL_DSN`, as a URL or in its Go form), else a new sandbox.
    ///
    /// # Errors
    /// As [`Sandbox::start`]; also a variable that cannot be read.
    pub fn get(engine: Engine) -> Result<Self> {
        match given(engine, |name| std::env::var(name).ok())? {
            Some(url) => Ok(Server::Given { engine, url }),
            None => Sandbox::start(engine).map(Server::Own),
        }
    }

    /// As [`get`](Self::get), for a test, which is skipped with a message where there is no engine, except in CI.
    ///
    /// # Panics
    /// There is no server, unless it is only missing and this is not CI.
    pub fn for_tests(engine: Engine) -> Option<Self> {
        or_skip(Self::get(engine))
    }

    /// Returns which kind it is.
    pub fn engine(&self) -> Engine {
        match self {
            Server::Given { engine, .. } => *engine,
            Server::Own(sandbox) => sandbox.engine(),
        }
    }

    /// Returns how to connect.
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
    let (variable, url, why) = if let Some(url) = set(own) {
        let why =
            format!("its value is not a URL; write {engine}://user:password@host:port/database");
        (own, Some(url).filter(|url| url.contains("://")), why)
    } else if let Some(dsn) = set("MYSQL_DSN").filter(|_| engine == Engine::Mysql) {
        let why = "its value is neither a URL nor a DSN; write mysql://user:pw@127.0.0.1:3306/database or \
                   user:pw@tcp(127.0.0.1:3306)/database";
        let url = ServerUrl::from_dsn(&dsn).map(|url| url.expose().to_owned());
        ("MYSQL_DSN", url, why.to_owned())
    } else {
        return Ok(None);
    };
    url.map(Some).ok_or(Error::Environment { variable, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_by(engine: Engine, variables: &[(&str, &str)]) -> Result<Option<String>> {
        given(engine, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn the_environment_comes_first() {
        let dsn = ("MYSQL_DSN", "root:pw@tcp(127.0.0.1:3306)/mgl_test");
        let own = ("HIERLOCK_MYSQL_URL", "mysql://a@b/c");
        let url = |engine, variables: &[_]| given_by(engine, variables).unwrap();
        assert_eq!(url(Engine::Mysql, &[dsn, own]).as_deref(), Some("mysql://a@b/c"));
        let from_dsn = url(Engine::Mysql, &[dsn, ("HIERLOCK_MYSQL_URL", "")]);
        assert_eq!(from_dsn.as_deref(), Some("mysql://root:pw@127.0.0.1:3306/mgl_test"));
        assert_eq!(url(Engine::Mariadb, &[dsn, own]), None);
        assert_eq!(url(Engine::Postgres, &[]), None);
    }

    /// The failure that this prevents: the value was printed whole, with its password.
    #[test]
    fn a_variable_that_cannot_be_read_is_named_and_no_password_is_shown() {
        for (name, value, form) in [
            ("HIERLOCK_MYSQL_URL", "localhost:3306", "mysql://user:password@host:port/database"),
            ("HIERLOCK_MYSQL_URL", "root:secret@h/d", "mysql://user:password@host:port/database"),
            ("MYSQL_DSN", "root@", "tcp(127.0.0.1:3306)"),
            ("MYSQL_DSN", "root:secret@tcp(127.0.0.1:3306)", "tcp(127.0.0.1:3306)"),
        ] {
            let error = given_by(Engine::Mysql, &[(name, value)]).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!error.is_missing() && shown.contains(name) && shown.contains(form), "{shown}");
            assert!(!shown.contains("secret"), "{shown}");
        }
        let url = "mysql://root:secret@h/d".to_owned();
        let given = format!("{:?}", Server::Given { engine: Engine::Mysql, url });
        assert!(given.contains("Mysql") && !given.contains("secret"), "{given}");
    }
}
