//! A server for tests: one named in the environment, else a sandbox.

use crate::error::{Error, Result};
use crate::{Engine, Sandbox};
use hierlock_engine::ServerUrl;

/// A server to connect to.
#[derive(Debug)]
pub enum Server {
    /// An existing server, named in the environment.
    External {
        /// The engine.
        engine: Engine,
        /// The URL.
        url: ServerUrl,
    },
    /// A sandbox.
    Sandbox(Sandbox),
}

impl Server {
    /// Returns the server in `HIERLOCK_MYSQL_URL`, `HIERLOCK_MARIADB_URL` or `HIERLOCK_POSTGRES_URL` (for MySQL also
    /// `MYSQL_DSN`, a URL or a Go DSN), else a new sandbox.
    ///
    /// # Errors
    /// As for [`Sandbox::start`], and for an invalid variable.
    pub fn get(engine: Engine) -> Result<Self> {
        match url_from_environment(engine, |name| std::env::var(name).ok())? {
            Some(url) => Ok(Server::External { engine, url }),
            None => Sandbox::start(engine).map(Server::Sandbox),
        }
    }

    /// Like [`get`](Self::get), for a test. Returns None with a message if the engine is not installed, except in CI.
    ///
    /// # Panics
    /// The server does not start, or it is not installed and this is CI.
    pub fn for_tests(engine: Engine) -> Option<Self> {
        or_skip(Self::get(engine))
    }

    /// Returns the engine.
    pub fn engine(&self) -> Engine {
        match self {
            Server::External { engine, .. } => *engine,
            Server::Sandbox(sandbox) => sandbox.engine(),
        }
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        match self {
            Server::External { url, .. } => url.expose(),
            Server::Sandbox(sandbox) => sandbox.url(),
        }
    }
}

/// Returns None with a message if the engine is not installed, except in CI. Panics on other errors.
pub(crate) fn or_skip<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(server) => Some(server),
        Err(error) if error.is_missing() && std::env::var_os("CI").is_none() => {
            eprintln!("skipped, because {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the URL of the server in the environment. An invalid value may contain a password, so errors do not contain
/// it.
fn url_from_environment(
    engine: Engine,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<ServerUrl>> {
    let own = match engine {
        Engine::Mysql => "HIERLOCK_MYSQL_URL",
        Engine::Mariadb => "HIERLOCK_MARIADB_URL",
        Engine::Postgres => "HIERLOCK_POSTGRES_URL",
    };
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let (variable, url, why) = if let Some(url) = set(own) {
        let why =
            format!("its value is not a URL; write {engine}://user:password@host:port/database");
        (own, url.contains("://").then(|| ServerUrl::new(url)), why)
    } else if let Some(dsn) = set("MYSQL_DSN").filter(|_| engine == Engine::Mysql) {
        let why = "its value is neither a URL nor a DSN; write mysql://user:pw@127.0.0.1:3306/database or \
                   user:pw@tcp(127.0.0.1:3306)/database";
        ("MYSQL_DSN", ServerUrl::from_dsn(&dsn), why.to_owned())
    } else {
        return Ok(None);
    };
    url.map(Some).ok_or(Error::Environment { variable, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url_from(engine: Engine, variables: &[(&str, &str)]) -> Result<Option<ServerUrl>> {
        url_from_environment(engine, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn the_environment_has_precedence() {
        let dsn = ("MYSQL_DSN", "root:pw@tcp(127.0.0.1:3306)/mgl_test");
        let own = ("HIERLOCK_MYSQL_URL", "mysql://a@b/c");
        let url = |engine, variables: &[_]| url_from(engine, variables).unwrap();
        assert_eq!(url(Engine::Mysql, &[dsn, own]), Some("mysql://a@b/c".into()));
        let from_dsn = url(Engine::Mysql, &[dsn, ("HIERLOCK_MYSQL_URL", "")]);
        assert_eq!(from_dsn, Some("mysql://root:pw@127.0.0.1:3306/mgl_test".into()));
        assert_eq!(url(Engine::Mariadb, &[dsn, own]), None);
        assert_eq!(url(Engine::Postgres, &[]), None);
    }

    /// The failure this prevents: an error printed the whole value, with its password.
    #[test]
    fn an_invalid_variable_is_named_without_its_password() {
        for (name, value, form) in [
            ("HIERLOCK_MYSQL_URL", "localhost:3306", "mysql://user:password@host:port/database"),
            ("HIERLOCK_MYSQL_URL", "root:secret@h/d", "mysql://user:password@host:port/database"),
            ("MYSQL_DSN", "root@", "tcp(127.0.0.1:3306)"),
            ("MYSQL_DSN", "root:secret@tcp(127.0.0.1:3306)", "tcp(127.0.0.1:3306)"),
        ] {
            let error = url_from(Engine::Mysql, &[(name, value)]).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!error.is_missing() && shown.contains(name) && shown.contains(form), "{shown}");
            assert!(!shown.contains("secret"), "{shown}");
        }
        let url = "mysql://root:secret@h/d".to_owned().into();
        let external = format!("{:?}", Server::External { engine: Engine::Mysql, url });
        assert!(external.contains("Mysql") && !external.contains("secret"), "{external}");
    }
}
