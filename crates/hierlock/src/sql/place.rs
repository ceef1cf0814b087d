//! From a URL to a server: its address, what its clients agree about, and this client's own settings.

use super::session::Address;
use super::{Dialect, Scheme, innodb};
use crate::error::{Result, UrlError};
use crate::hierarchy::Hierarchy;
use crate::key::Buckets;
use std::time::Duration;
use url::Url;

/// What a client decides for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// How many connections it opens. Each hold has one of its own.
    pub(super) connections: usize,
    /// How often a held connection is asked whether it is still there.
    pub(super) keep_alive: Duration,
    /// How long a server may take to answer what it need not wait for.
    pub(super) silence: Duration,
    /// After how many seconds InnoDB ends a wait, which then begins again.
    pub(super) lock_wait_timeout: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 10,
            keep_alive: Duration::from_secs(1),
            silence: Duration::from_secs(5),
            lock_wait_timeout: innodb::LONGEST_WAIT,
        }
    }
}

/// Where to lock, and how.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) address: Address,
    pub(super) scheme: Scheme,
    /// Is the bucket count to be taken from the server? Not if it was given.
    pub(super) follows: bool,
    pub(super) settings: Settings,
}

impl Place {
    /// Reads a URL; what is not ours is left to the driver.
    pub(super) fn parse(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        let unreadable = |why: String| UrlError::Server { why };
        let mut url = Url::parse(url).map_err(|error| unreadable(error.to_string()))?;
        let dialect = Dialect::of_scheme(url.scheme())
            .ok_or_else(|| unreadable(format!("`{}:` is no database", url.scheme())))?;
        let mut scheme = Scheme::new(dialect).hierarchy(hierarchy);
        let mut settings = Settings::default();
        let mut follows = true;
        let mut theirs = Vec::new();
        for (name, value) in url.query_pairs() {
            let number = |name, right| -> Result<u32> {
                let bad = || UrlError::Parameter { name, value: value.to_string(), right }.into();
                value.parse().ok().filter(|number| *number > 0).ok_or_else(bad)
            };
            let millis = |name| {
                number(name, "a number of milliseconds").map(|ms| Duration::from_millis(ms.into()))
            };
            match &*name {
                "strategy" => scheme = scheme.strategy(value.parse()?)?,
                "buckets" => {
                    let count = number("buckets", "a number from 1 to 2147483647")?;
                    scheme = scheme.buckets(Buckets::new(count)?);
                    follows = false;
                }
                "table" => scheme = scheme.table(&value)?,
                "connections" => {
                    settings.connections = number("connections", "a number from 1 on")? as usize;
                }
                "keep_alive_ms" => settings.keep_alive = millis("keep_alive_ms")?,
                "silence_ms" => settings.silence = millis("silence_ms")?,
                "lock_wait_timeout" => {
                    settings.lock_wait_timeout =
                        number("lock_wait_timeout", "a number of seconds")?
                            .min(innodb::LONGEST_WAIT);
                }
                _ => theirs.push((name.into_owned(), value.into_owned())),
            }
        }
        url.set_query(None);
        if !theirs.is_empty() {
            url.query_pairs_mut().extend_pairs(theirs);
        }
        let address = Address::from_url(dialect, &url)?;
        Ok(Self { address, scheme, follows, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Strategy;

    fn parse(url: &str) -> Result<Place> {
        Place::parse(url, Hierarchy::default())
    }

    #[test]
    fn our_parameters_are_ours() {
        let place = parse(
            "mysql://root:pw@127.0.0.1:3306/app?strategy=per-id&table=Locks&connections=3\
             &keep_alive_ms=200&ssl-mode=disabled",
        )
        .unwrap();
        assert_eq!((place.scheme.strategy, place.scheme.rows_table()), (Strategy::PerId, "locks"));
        assert_eq!(place.settings.connections, 3);
        assert_eq!(place.settings.keep_alive, Duration::from_millis(200));
        assert_eq!(place.address.to_string(), "mysql at 127.0.0.1:3306");
        let buckets = parse("mariadb://h/d?buckets=64").unwrap().scheme.buckets;
        assert_eq!(buckets.count(), 64);
    }

    #[test]
    fn defaults_differ_by_server() {
        let strategy = |url| parse(url).unwrap().scheme.strategy;
        assert_eq!(strategy("postgres://h/d"), Strategy::Advisory);
        assert_eq!(strategy("mariadb://h/d"), Strategy::Striped);
    }

    #[test]
    fn a_mistake_in_a_url_is_named_without_the_password() {
        for (parameters, says) in [
            ("strategy=rows", "striped, per-id"),
            ("strategy=advisory", "mysql"),
            ("buckets=0", "buckets"),
            ("buckets=x", "`x`"),
            ("connections=0", "connections"),
            ("table=a-b", "table"),
            ("keep_alive_ms=1s", "milliseconds"),
        ] {
            let error = parse(&format!("mysql://me:secret@h/d?{parameters}")).unwrap_err();
            let message = error.to_string();
            assert!(error.is_usage() && message.contains(says), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
