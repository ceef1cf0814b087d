//! The parameters of URLs. A driver ignores unknown ones, and hierlock would then lock something else.

use crate::{Dialect, Driver, nearest};

/// The parameters of hierlock itself in the URL of a lock.
pub const LOCK_PARAMETERS: [&str; 12] = [
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
    "application",
    "check_exclusion",
];

const MYSQL: &[Driver] = &[Driver::Mysql];
const POSTGRES: &[Driver] = &[Driver::Postgres];
const SERVERS: &[Driver] = &[Driver::Mysql, Driver::Postgres];
const SQLITE: &[Driver] = &[Driver::Sqlite];

/// The parameters that sqlx reads in URLs of these drivers and that never contain a secret, so they may be printed.
const PUBLIC_PARAMETERS: &[(&[Driver], &[&str])] = &[
    (SERVERS, &["sslmode", "ssl-mode"]),
    (MYSQL, &["charset", "collation", "socket", "timezone", "time-zone"]),
    (POSTGRES, &["host", "hostaddr", "port", "dbname", "user", "application_name"]),
    (SERVERS, &["statement-cache-capacity"]),
    (SQLITE, &["mode", "cache"]),
];

/// The other parameters that sqlx reads. They may contain a secret. PostgreSQL also has `options[NAME]`.
const SECRET_PARAMETERS: &[(&[Driver], &[&str])] = &[
    (MYSQL, &["sslca"]),
    (SERVERS, &["ssl-ca"]),
    (POSTGRES, &["sslrootcert", "ssl-root-cert"]),
    (SERVERS, &["sslcert", "ssl-cert", "sslkey", "ssl-key"]),
    (POSTGRES, &["password", "options"]),
    (SQLITE, &["immutable", "vfs"]),
];

pub(super) fn is_harmless(name: &str) -> bool {
    LOCK_PARAMETERS.contains(&name)
        || PUBLIC_PARAMETERS.iter().any(|(_, names)| names.contains(&name))
}

fn names_of(driver: Driver) -> impl Iterator<Item = &'static str> {
    let all = PUBLIC_PARAMETERS.iter().chain(SECRET_PARAMETERS);
    all.filter(move |(drivers, _)| drivers.contains(&driver)).flat_map(|(_, names)| *names).copied()
}

/// The error of a URL parameter that neither hierlock nor the driver knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a parameter of a {scheme}: URL: {hint}")]
pub struct UrlParameterError {
    name: String,
    scheme: String,
    /// A suggestion, or the list of known parameters.
    hint: String,
}

/// The purpose of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlUse {
    /// A lock: parameters of hierlock are allowed.
    Lock,
    /// A database: only parameters of the driver are allowed.
    Driver,
}

/// Fails with a suggestion at the first parameter that neither hierlock nor the driver knows.
pub fn check(url: &str, url_use: UrlUse) -> Result<(), UrlParameterError> {
    // URL parsers also trim spaces and ignore the case of the scheme.
    let (scheme, rest) = url.trim().split_once(':').unwrap_or_default();
    let scheme = &*scheme.to_ascii_lowercase();
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let Some((_, query)) = rest.split_once('?') else { return Ok(()) };
    let unknown = |name: &str, hint: String| {
        Err(UrlParameterError { name: name.to_owned(), scheme: scheme.to_owned(), hint })
    };
    let driver = match (scheme, Dialect::from_scheme(scheme)) {
        ("memory" | "file", _) => {
            let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            return match query.split_once('=') {
                Some((name, _)) if !name.is_empty() && name.chars().all(is_word) => {
                    unknown(name, "there are none; remove the `?` and what follows".to_owned())
                }
                // The `?` is part of a name.
                _ => Ok(()),
            };
        }
        ("sqlite", _) => Driver::Sqlite,
        (_, Some(dialect)) => dialect.driver(),
        (_, None) => return Ok(()),
    };
    let mut known: Vec<&str> = names_of(driver).collect();
    if url_use == UrlUse::Lock {
        known.splice(0..0, LOCK_PARAMETERS);
    }
    for (name, _) in form_urlencoded::parse(query.as_bytes()) {
        let is_option =
            driver == Driver::Postgres && name.starts_with("options[") && name.ends_with(']');
        if is_option || known.contains(&&*name) {
            continue;
        }
        let hint = if LOCK_PARAMETERS.contains(&&*name) {
            "it is for locks, and this is a database".to_owned()
        } else if let Some(near) = nearest(&name, &known) {
            format!("did you mean `{near}`?")
        } else {
            format!("there are {}", known.join(", "))
        };
        return unknown(&name, hint);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure this prevents: `?tabel=` and `?stratgy=striped` were ignored, and other slots were locked.
    #[test]
    fn an_unknown_parameter_is_refused_with_a_suggestion() {
        use UrlUse::{Driver, Lock};
        for (url_use, url, part) in [
            (Lock, "mysql://u:secret@h/d?tabel=x", "did you mean `table`?"),
            (Lock, "mariadb://h/d?stratgy=striped", "did you mean `strategy`?"),
            (Lock, "mysql://h/d?table=x&bukets=3", "did you mean `buckets`?"),
            (Lock, "postgres://h/d?ssl_mode=require", "did you mean `sslmode`?"),
            (Lock, "postgresql://h/d?Table=x", "did you mean `table`?"),
            (
                Lock,
                " MySQL://h/d?t%61bel=x",
                "`tabel` is not a parameter of a mysql: URL: did you mean",
            ),
            (Lock, "mysql://h/d?parseTime=true", "there are strategy, "),
            (Lock, "mysql://h/d?options[search_path]=x", "not a parameter of a mysql: URL"),
            (Lock, "file:/tmp/x?strategy=striped", "a parameter of a file: URL: there are none"),
            (Lock, "memory:x?table=y", "a parameter of a memory: URL: there are none"),
            (Driver, "sqlite:/x.db?mod=ro", "did you mean `mode`?"),
            (
                Driver,
                "mysql://h/d?table=x",
                "`table` is not a parameter of a mysql: URL: it is for locks",
            ),
            (Driver, "postgres://h/d?sslmod=x", "did you mean `sslmode`?"),
        ] {
            let error = check(url, url_use).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
        }
        for url in [
            "mysql://h/d?strategy=per-id&ssl-mode=disabled&",
            "postgres://h/d?options[search_path]=x&table=y",
            "file:/tmp/why?",
            "file:/tmp/why?/because=x",
            "memory:a?b",
            "mysql://h/d",
        ] {
            assert!(check(url, Lock).is_ok(), "{url}");
        }
    }

    /// Every listed parameter changes the driver's options for some value.
    #[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    #[test]
    fn the_driver_reads_every_listed_parameter() {
        use sqlx::mysql::MySqlConnectOptions;
        use sqlx::postgres::PgConnectOptions;
        use sqlx::sqlite::SqliteConnectOptions;
        const VALUES: [&str; 4] = ["DISABLED", "/x", "7", "127.0.0.9"];
        fn parse<T: std::str::FromStr + std::fmt::Debug>(url: &str) -> Option<String> {
            url.parse::<T>().ok().map(|options| format!("{options:?}"))
        }
        let options = |driver, parameter: &str| match driver {
            Driver::Mysql => parse::<MySqlConnectOptions>(&format!("mysql://h/d{parameter}")),
            Driver::Postgres => parse::<PgConnectOptions>(&format!("postgres://h/d{parameter}")),
            Driver::Sqlite => parse::<SqliteConnectOptions>(&format!("sqlite:x{parameter}")),
        };
        let is_read = |driver, name: &str| {
            let changes =
                |value: &&str| options(driver, &format!("?{name}={value}")) != options(driver, "");
            VALUES.iter().any(changes)
        };
        for driver in Driver::ALL {
            for name in names_of(driver) {
                assert!(is_read(driver, name), "{name}");
            }
        }
        assert!(is_read(Driver::Postgres, "options[search_path]"));
        assert!(!is_read(Driver::Mysql, "tabel") && !is_read(Driver::Postgres, "tabel"));
    }
}
