//! Which parameters a URL may have. A driver ignores those that it does not know, so a word that is spelled
//! wrong would lock something else than was meant: it is refused here.

use crate::{Dialect, Driver, nearest};

/// What is hierlock's own in the URL of a lock on a server.
pub const LOCK_PARAMETERS: [&str; 10] = [
    "strategy",
    "buckets",
    "table",
    "connections",
    "keep_alive_ms",
    "silence_ms",
    "client_silence_ms",
    "reconnect_ms",
    "lock_wait_timeout",
    "scope",
];

const MYSQL: &[Driver] = &[Driver::Mysql];
const POSTGRES: &[Driver] = &[Driver::Postgres];
const SERVERS: &[Driver] = &[Driver::Mysql, Driver::Postgres];
const SQLITE: &[Driver] = &[Driver::Sqlite];

/// What sqlx reads in the URLs of these drivers, and what never holds a secret: it may be shown.
const HARMLESS: [(&str, &[Driver]); 16] = [
    ("sslmode", SERVERS),
    ("ssl-mode", SERVERS),
    ("charset", MYSQL),
    ("collation", MYSQL),
    ("socket", MYSQL),
    ("timezone", MYSQL),
    ("time-zone", MYSQL),
    ("host", POSTGRES),
    ("hostaddr", POSTGRES),
    ("port", POSTGRES),
    ("dbname", POSTGRES),
    ("user", POSTGRES),
    ("application_name", POSTGRES),
    ("statement-cache-capacity", SERVERS),
    ("mode", SQLITE),
    ("cache", SQLITE),
];

/// What it reads besides, and what is hidden. For PostgreSQL `options[NAME]` comes on top.
const MAYBE_SECRET: [(&str, &[Driver]); 12] = [
    ("sslca", MYSQL),
    ("ssl-ca", SERVERS),
    ("sslrootcert", POSTGRES),
    ("ssl-root-cert", POSTGRES),
    ("sslcert", SERVERS),
    ("ssl-cert", SERVERS),
    ("sslkey", SERVERS),
    ("ssl-key", SERVERS),
    ("password", POSTGRES),
    ("options", POSTGRES),
    ("immutable", SQLITE),
    ("vfs", SQLITE),
];

/// Whether the value of a parameter may be shown, of whatever URL it is.
pub(super) fn is_harmless(name: &str) -> bool {
    LOCK_PARAMETERS.contains(&name) || HARMLESS.iter().any(|(known, _)| *known == name)
}

/// The names of the parameters that a driver reads.
fn names_of(driver: Driver) -> impl Iterator<Item = &'static str> {
    let of_driver =
        HARMLESS.iter().chain(&MAYBE_SECRET).filter(move |(_, of)| of.contains(&driver));
    of_driver.map(|(name, _)| *name)
}

/// A parameter of a URL that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlParameterError {
    /// Neither hierlock nor the driver has a parameter of that name.
    #[error("`{name}` is no parameter of {what}: {hint}")]
    Unknown {
        /// As it was written.
        name: String,
        /// What it was written behind, such as `a mysql: URL`.
        what: String,
        /// What was probably meant, or what there is.
        hint: String,
    },
    /// The URL is one of those that have no parameters.
    #[error("{scheme}: has no parameters, but a `?` and `{name}=` follow; leave them away")]
    NoParameters {
        /// `memory` or `file`.
        scheme: &'static str,
        /// As it was written.
        name: String,
    },
}

/// What a URL is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlUse {
    /// A lock: hierlock has parameters of its own.
    Lock,
    /// A database: only the driver's parameters are known.
    Driver,
}

/// Fails at the first parameter that neither hierlock nor the driver knows, with what was probably meant. A URL without a
/// scheme that has parameters is left alone: it is refused for that.
pub fn check(url: &str, of: UrlUse) -> Result<(), UrlParameterError> {
    // As a reader of URLs sees it.
    let (scheme, rest) = url.trim().split_once(':').unwrap_or_default();
    let scheme = &*scheme.to_ascii_lowercase();
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let Some((_, query)) = rest.split_once('?') else { return Ok(()) };
    if ["memory", "file"].contains(&scheme) {
        return without(scheme, query);
    }
    let driver = match scheme {
        "sqlite" => Driver::Sqlite,
        scheme => match Dialect::from_scheme(scheme) {
            Some(dialect) => dialect.driver(),
            None => return Ok(()),
        },
    };
    let mut known: Vec<&str> = names_of(driver).collect();
    if of == UrlUse::Lock {
        known.splice(0..0, LOCK_PARAMETERS);
    }
    for (name, _) in form_urlencoded::parse(query.as_bytes()) {
        let is_option =
            driver == Driver::Postgres && name.starts_with("options[") && name.ends_with(']');
        let is_known = is_option || known.contains(&&*name);
        if !is_known {
            let of_lock = of == UrlUse::Driver && LOCK_PARAMETERS.contains(&&*name);
            return Err(unknown(name.into_owned(), scheme, &known, of_lock));
        }
    }
    Ok(())
}

fn unknown(name: String, scheme: &str, known: &[&str], of_lock: bool) -> UrlParameterError {
    let hint = if of_lock {
        "it is for locks, and this is a database".to_owned()
    } else {
        match nearest(&name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", known.join(", ")),
        }
    };
    UrlParameterError::Unknown { name, what: format!("a {scheme}: URL"), hint }
}

/// A `?` may be in the name of a file; followed by `NAME=` it is meant for parameters, which there are none of.
fn without(scheme: &str, query: &str) -> Result<(), UrlParameterError> {
    let name = query.split('=').next().filter(|name| name.len() < query.len());
    let is_word = |name: &&str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    let Some(name) = name.filter(is_word) else { return Ok(()) };
    let scheme = if scheme == "file" { "file" } else { "memory" };
    Err(UrlParameterError::NoParameters { scheme, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `?tabel=` and `?stratgy=striped` were accepted, and something else was locked than was meant.
    #[test]
    fn a_parameter_that_nobody_knows_is_refused_with_what_was_meant() {
        for (url, says) in [
            ("mysql://u:secret@h/d?tabel=x", "did you mean `table`?"),
            ("mariadb://h/d?stratgy=striped", "did you mean `strategy`?"),
            ("mysql://h/d?table=x&bukets=3", "did you mean `buckets`?"),
            ("postgres://h/d?ssl_mode=require", "did you mean `sslmode`?"),
            ("postgresql://h/d?Table=x", "did you mean `table`?"),
            (" MySQL://h/d?t%61bel=x", "`tabel` is no parameter of a mysql: URL: did you mean"),
            ("mysql://h/d?parseTime=true", "there are strategy, "),
            ("mysql://h/d?options[search_path]=x", "no parameter of a mysql: URL"),
            ("file:/tmp/x?strategy=striped", "file: has no parameters"),
            ("memory:x?table=y", "memory: has no parameters"),
        ] {
            let error = check(url, UrlUse::Lock).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for (url, says) in [
            ("sqlite:/x.db?mod=ro", "did you mean `mode`?"),
            ("mysql://h/d?table=x", "`table` is no parameter of a mysql: URL: it is for locks"),
            ("postgres://h/d?sslmod=x", "did you mean `sslmode`?"),
        ] {
            let error = check(url, UrlUse::Driver).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        for url in [
            "mysql://h/d?strategy=per-id&ssl-mode=disabled&",
            "postgres://h/d?options[search_path]=x&table=y",
            "file:/tmp/why?",
            "file:/tmp/why?/because=x",
            "memory:a?b",
            "mysql://h/d",
        ] {
            assert!(check(url, UrlUse::Lock).is_ok(), "{url}");
        }
    }

    /// Each that is listed changes something in the driver, for some value.
    #[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    #[test]
    fn the_driver_reads_what_is_listed() {
        use sqlx::mysql::MySqlConnectOptions;
        use sqlx::postgres::PgConnectOptions;
        const VALUES: [&str; 4] = ["DISABLED", "/x", "7", "127.0.0.9"];
        fn is_read<T: std::fmt::Debug, E>(
            name: &str,
            parse: impl Fn(&str) -> Result<T, E>,
            url: &str,
        ) -> bool {
            let plain = parse(url).map(|options| format!("{options:?}")).ok();
            VALUES.iter().any(|value| {
                let with = parse(&format!("{url}?{name}={value}"));
                with.map(|options| format!("{options:?}")).ok() != plain
            })
        }
        let mysql = |url: &str| url.parse::<MySqlConnectOptions>();
        let postgres = |url: &str| url.parse::<PgConnectOptions>();
        for name in names_of(Driver::Mysql) {
            assert!(is_read(name, mysql, "mysql://h/d"), "{name}");
        }
        for name in names_of(Driver::Postgres).chain(["options[search_path]"]) {
            assert!(is_read(name, postgres, "postgres://h/d"), "{name}");
        }
        assert!(!is_read("tabel", mysql, "mysql://h/d"));
        assert!(!is_read("tabel", postgres, "postgres://h/d"));
        for name in names_of(Driver::Sqlite) {
            let sqlite = |url: &str| url.parse::<sqlx::sqlite::SqliteConnectOptions>();
            assert!(is_read(name, sqlite, "sqlite:x"), "{name}");
        }
    }
}
