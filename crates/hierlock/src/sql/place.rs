//! From a URL to a server: its address, what its clients agree about, and this client's own settings.

use super::{Dialect, ProgramPool, Scheme, Strategy};
use crate::error::{Result, UrlError};
use crate::hierarchy::Hierarchy;
use crate::key::Buckets;
use hierlock_engine::session_settings::LONGEST_LOCK_WAIT;
use hierlock_engine::{LOCK_PARAMETERS, ServerAddress, UrlUse, check_parameters, nearest};
use sqlx::Either;
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

/// So many times a client is to be heard before it is taken to be gone.
const HEARD: u32 = 3;

/// What advisory keys belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// A transaction of the guard's own.
    Transaction,
    /// A session that guards share.
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
        check_parameters(url, UrlUse::Lock)?;
        let unreadable = |why: String| UrlError::Server { why };
        let mut url = Url::parse(url).map_err(|error| unreadable(error.to_string()))?;
        let dialect = Dialect::from_scheme(url.scheme())
            .ok_or_else(|| unreadable(format!("`{}:` is no database", url.scheme())))?;
        let mut parameters = Parameters::new(dialect, hierarchy);
        let mut theirs = Vec::new();
        for (name, value) in url.query_pairs() {
            if !parameters.read(&name, &value)? {
                theirs.push((name.into_owned(), value.into_owned()));
            }
        }
        url.set_query(None);
        if !theirs.is_empty() {
            url.query_pairs_mut().extend_pairs(theirs);
        }
        parameters.at(ServerAddress::from_url(&url)?)
    }

    /// The server of a pool that the program has already. `parameters` is as behind the `?` of a URL.
    pub(super) fn beside(
        pool: &impl ProgramPool,
        parameters: &str,
        hierarchy: Hierarchy,
    ) -> Result<Self> {
        let address = match pool.options() {
            Either::Left(options) => ServerAddress::mysql(Dialect::Mysql, options),
            Either::Right(options) => ServerAddress::postgres(options),
        };
        let mut read = Parameters::new(address.dialect(), hierarchy);
        for (name, value) in url::form_urlencoded::parse(parameters.as_bytes()) {
            if !read.read(&name, &value)? {
                return Err(not_of_lock(&name));
            }
        }
        read.at(address)
    }
}

/// What of a URL is ours.
struct Parameters {
    scheme: Scheme,
    follows: bool,
    settings: Settings,
}

impl Parameters {
    fn new(dialect: Dialect, hierarchy: Hierarchy) -> Self {
        let scheme = Scheme::new(dialect).hierarchy(hierarchy);
        Self { scheme, follows: true, settings: Settings::default() }
    }

    /// Reads one; false if it is not ours.
    fn read(&mut self, name: &str, value: &str) -> Result<bool> {
        let number = |name, right| -> Result<u32> {
            let bad = || UrlError::Parameter { name, value: value.to_owned(), right }.into();
            value.parse().ok().filter(|number| *number > 0).ok_or_else(bad)
        };
        let millis = |name| {
            number(name, "a number of milliseconds").map(|ms| Duration::from_millis(ms.into()))
        };
        let Self { scheme, follows, settings } = self;
        match name {
            "strategy" => *scheme = scheme.clone().strategy(value.parse()?)?,
            "buckets" => {
                let count = number("buckets", "a number from 1 to 2147483647")?;
                scheme.buckets = Buckets::new(count)?;
                *follows = false;
            }
            "table" => *scheme = scheme.clone().table(value)?,
            "connections" => {
                settings.connections = number("connections", "a number from 1 on")? as usize;
            }
            "keep_alive_ms" => settings.keep_alive = millis("keep_alive_ms")?,
            "silence_ms" => settings.answer_limit = millis("silence_ms")?,
            "client_silence_ms" => settings.client_silence = Some(millis("client_silence_ms")?),
            "reconnect_ms" => {
                let right = "a number of milliseconds, or 0 for not at all";
                let bad = |_| UrlError::Parameter {
                    name: "reconnect_ms",
                    value: value.to_owned(),
                    right,
                };
                settings.reconnect =
                    Duration::from_millis(value.parse::<u32>().map_err(bad)?.into());
            }
            "lock_wait_timeout" => {
                let seconds = number("lock_wait_timeout", "a number of seconds")?;
                settings.lock_wait_timeout = seconds.min(LONGEST_LOCK_WAIT);
            }
            "scope" => {
                settings.scope = match value {
                    "transaction" => Scope::Transaction,
                    "session" => Scope::Session,
                    _ => return Err(bad_scope(value)),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn at(self, address: ServerAddress) -> Result<Place> {
        let Self { scheme, follows, settings } = self;
        if settings.scope == Scope::Session && scheme.strategy != Strategy::Advisory {
            return Err(bad_scope("session"));
        }
        if let Some(limit) = settings.client_silence
            && limit < HEARD * settings.keep_alive
        {
            let value = limit.as_millis().to_string();
            let right = "at least three times keep_alive_ms, so that a holder is heard in time";
            return Err(UrlError::Parameter { name: "client_silence_ms", value, right }.into());
        }
        Ok(Place { address, scheme, follows, settings })
    }
}

fn not_of_lock(name: &str) -> crate::Error {
    let hint = match nearest(name, &LOCK_PARAMETERS) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", LOCK_PARAMETERS.join(", ")),
    };
    UrlError::NotOfLock { name: name.to_owned(), hint }.into()
}

fn bad_scope(value: &str) -> crate::Error {
    let right = "transaction, or session with advisory keys";
    UrlError::Parameter { name: "scope", value: value.to_owned(), right }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn all_that_is_listed_as_ours_is_read() {
        for name in LOCK_PARAMETERS {
            let mut read = Parameters::new(Dialect::Postgres, Hierarchy::default());
            assert!(!matches!(read.read(name, "1"), Ok(false)), "{name}");
        }
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
