//! From a URL to a server: its address, what its clients agree about, and this client's own settings.

use super::options::Options;
use super::{ProgramPool, Scheme};
use crate::error::{Result, UrlError};
use crate::hierarchy::Hierarchy;
use hierlock_engine::session_settings::LONGEST_LOCK_WAIT;
use hierlock_engine::{ServerAddress, UrlUse, check_parameters};
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
    pub(super) answer_limit: Duration,
    /// How long a server may hear nothing from a client before it ends its sessions, with their locks.
    pub(super) client_silence: Option<Duration>,
    /// How long an acquire without a deadline waits for a server that is away. Nothing: no acquire does.
    pub(super) reconnect: Duration,
    /// After how many seconds InnoDB ends a wait, which then begins again.
    pub(super) lock_wait_timeout: u32,
    pub(super) scope: Scope,
}

/// What advisory keys belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// A transaction of the guard's own. The default.
    #[default]
    Transaction,
    /// A session that guards share, as long as they need not wait. They have no transaction to lend, and their extensions
    /// never wait.
    Session,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 10,
            keep_alive: Duration::from_secs(1),
            answer_limit: Duration::from_secs(5),
            client_silence: None,
            reconnect: Duration::from_secs(60),
            lock_wait_timeout: LONGEST_LOCK_WAIT,
            scope: Scope::Transaction,
        }
    }
}

/// Where to lock, and how.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) address: ServerAddress,
    pub(super) scheme: Scheme,
    /// Is the bucket count to be taken from the server? Not if it was given.
    pub(super) follows: bool,
    pub(super) settings: Settings,
}

impl Place {
    /// Reads a URL; what is not ours is left to the driver.
    pub(super) fn parse(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        Self::parse_with(url, Options::default(), hierarchy)
    }

    /// The same with options from the program.
    pub(super) fn parse_with(url: &str, options: Options, hierarchy: Hierarchy) -> Result<Self> {
        check_parameters(url, UrlUse::Lock)?;
        let unreadable = |why: String| UrlError::Server { why };
        let mut url = Url::parse(url).map_err(|error| unreadable(error.to_string()))?;
        let mut ours = Options::default();
        let mut theirs = Vec::new();
        for (name, value) in url.query_pairs() {
            if !ours.read(&name, &value)? {
                theirs.push((name.into_owned(), value.into_owned()));
            }
        }
        url.set_query(None);
        if !theirs.is_empty() {
            url.query_pairs_mut().extend_pairs(theirs);
        }
        options.and(ours)?.at(ServerAddress::from_url(&url)?, hierarchy)
    }

    /// The server of a pool that the program has already.
    pub(super) fn beside(
        pool: &impl ProgramPool,
        options: Options,
        hierarchy: Hierarchy,
    ) -> Result<Self> {
        options.at(pool.address(), hierarchy)
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
            ("reconnect_ms=-1", "0 for not at all"),
            ("client_silence_ms=2999", "three times keep_alive_ms"),
            ("scope=session", "advisory"),
            ("scope=x", "`x`"),
        ] {
            let error = parse(&format!("mysql://me:secret@h/d?{parameters}")).unwrap_err();
            let message = error.to_string();
            assert!(error.is_usage() && message.contains(says), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
