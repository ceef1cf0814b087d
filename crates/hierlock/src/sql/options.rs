//! From a URL or a [`Builder`](crate::Builder) to a server: its address, what its clients agree about, and what this client
//! decides for itself. Each option is read once, and each rule is checked in one place.

use super::{Scheme, Strategy};
use crate::error::UrlError;
use crate::{Buckets, Hierarchy, Result};
use hierlock_engine::session_settings::LONGEST_LOCK_WAIT;
use hierlock_engine::{
    LOCK_PARAMETERS, PoolSettings, ServerAddress, UrlUse, check_parameters, parse_duration,
};
use std::time::Duration;
use url::Url;

/// So many times a client is to be heard before it is taken to be gone.
const MIN_KEEP_ALIVES: u32 = 3;

/// Returns what a parameter may be.
fn right(name: &str) -> &'static str {
    match name {
        "buckets" => "a number from 1 to 2147483647",
        "connections" => "a number from 1 on",
        "reconnect_ms" => {
            "a time such as 500ms or 1.5s, or milliseconds up to 4294967295; 0 for not at all"
        }
        "lock_wait_timeout" => "a time such as 5s or 1.5m, or seconds from 1 on",
        "scope" => "transaction, or session with advisory keys",
        _ => "a time such as 500ms or 1.5s, or milliseconds from 1 to 4294967295",
    }
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

macro_rules! options {
    ($($name:ident: $type:ty,)*) => {
        /// Options by the names that they have in a URL, as far as they were given.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Options {
            $(pub(crate) $name: Option<$type>,)*
        }

        impl Options {
            /// Returns both together. Fails if both have one: nobody could say which is meant.
            fn and(self, other: Options) -> Result<Options> {
                $(if self.$name.is_some() && other.$name.is_some() {
                    return Err(UrlError::GivenTwice { name: stringify!($name) }.into());
                })*
                Ok(Options { $($name: self.$name.or(other.$name),)* })
            }
        }
    };
}

options! {
    strategy: Strategy,
    buckets: Buckets,
    table: String,
    connections: usize,
    keep_alive_ms: Duration,
    silence_ms: Duration,
    client_silence_ms: Duration,
    reconnect_ms: Duration,
    lock_wait_timeout: Duration,
    scope: Scope,
}

/// A server to lock on, and how.
#[derive(Clone, Debug)]
pub(super) struct LockServer {
    pub(super) address: ServerAddress,
    pub(super) scheme: Scheme,
    /// Is the bucket count to be taken from the server? Not if it was given.
    pub(super) follows: bool,
    pub(super) settings: ClientSettings,
}

/// What a client decides for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientSettings {
    /// How its sessions are opened, and how many. Each hold has one of its own.
    pub(super) pool: PoolSettings,
    /// How often a held connection is asked whether it is still there.
    pub(super) keep_alive: Duration,
    /// How long an acquire without a deadline waits for a server that is away. Nothing: no acquire does.
    pub(super) reconnect: Duration,
    pub(super) scope: Scope,
}

impl Options {
    /// Reads a parameter of a URL; false if it is not ours.
    fn read(&mut self, name: &str, value: &str) -> Result<bool> {
        let Some(name) = LOCK_PARAMETERS.into_iter().find(|ours| *ours == name) else {
            return Ok(false);
        };
        let wrong = || wrong(name, value, right(name));
        let number = value.parse::<u32>().ok();
        // A bare number is in the unit of the parameter.
        let time = |unit: Duration| match number {
            Some(count) => Ok(Some(unit * count)),
            None => parse_duration(value).map(Some).map_err(|_| wrong()),
        };
        let millis = || time(Duration::from_millis(1));
        match name {
            "strategy" => self.strategy = Some(value.parse()?),
            "buckets" => {
                let buckets = number.and_then(|count| Buckets::new(count).ok());
                self.buckets = Some(buckets.ok_or_else(wrong)?);
            }
            "table" => self.table = Some(value.to_owned()),
            "connections" => self.connections = Some(number.ok_or_else(wrong)? as usize),
            "keep_alive_ms" => self.keep_alive_ms = millis()?,
            "silence_ms" => self.silence_ms = millis()?,
            "client_silence_ms" => self.client_silence_ms = millis()?,
            "reconnect_ms" => self.reconnect_ms = millis()?,
            "lock_wait_timeout" => self.lock_wait_timeout = time(Duration::from_secs(1))?,
            "scope" if value == "transaction" => self.scope = Some(Scope::Transaction),
            "scope" if value == "session" => self.scope = Some(Scope::Session),
            "scope" => return Err(wrong()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns what they mean on a server. Fails if one is out of range, or does not go together with another.
    pub(super) fn at(self, address: ServerAddress, hierarchy: Hierarchy) -> Result<LockServer> {
        let mut scheme = Scheme::new(address.dialect()).hierarchy(hierarchy);
        if let Some(strategy) = self.strategy {
            scheme = scheme.strategy(strategy)?;
        }
        if let Some(table) = &self.table {
            scheme = scheme.table(table)?;
        }
        let follows = self.buckets.is_none();
        scheme = scheme.buckets(self.buckets.unwrap_or_default());
        let settings = self.settings()?;
        if settings.scope == Scope::Session && scheme.strategy != Strategy::Advisory {
            return Err(wrong("scope", "session", right("scope")));
        }
        Ok(LockServer { address, scheme, follows, settings })
    }

    fn settings(self) -> Result<ClientSettings> {
        let mut pool = PoolSettings::default();
        pool.connections = self.connections.unwrap_or(pool.connections);
        if pool.connections == 0 {
            return Err(wrong("connections", 0, right("connections")));
        }
        pool.answer_limit = span("silence_ms", self.silence_ms)?.unwrap_or(pool.answer_limit);
        let keep_alive = span("keep_alive_ms", self.keep_alive_ms)?;
        let keep_alive = keep_alive.unwrap_or(Duration::from_secs(1));
        pool.session.client_silence = span("client_silence_ms", self.client_silence_ms)?;
        if let Some(span) = pool.session.client_silence
            && span < MIN_KEEP_ALIVES * keep_alive
        {
            let right = "at least three times keep_alive_ms, so that a holder is heard in time";
            return Err(wrong("client_silence_ms", span.as_millis(), right));
        }
        if let Some(span) = self.lock_wait_timeout {
            if span.is_zero() {
                return Err(wrong("lock_wait_timeout", 0, right("lock_wait_timeout")));
            }
            // A part of a second counts as one.
            let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
            pool.session.lock_wait_timeout = seconds.min(LONGEST_LOCK_WAIT.into()) as u32;
        }
        let reconnect = span("reconnect_ms", self.reconnect_ms)?;
        let reconnect = reconnect.unwrap_or(Duration::from_secs(60));
        Ok(ClientSettings { pool, keep_alive, reconnect, scope: self.scope.unwrap_or_default() })
    }
}

impl LockServer {
    /// Reads a URL; what is not ours is left to the driver.
    pub(super) fn parse(url: &str, options: Options, hierarchy: Hierarchy) -> Result<Self> {
        check_parameters(url, UrlUse::Lock)?;
        let unreadable = |error: url::ParseError| UrlError::Server { why: error.to_string() };
        let mut url = Url::parse(url).map_err(unreadable)?;
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
}

/// Fails if a span is shorter than a millisecond, unless it may be none; or longer than a URL, or a server, can say.
fn span(name: &'static str, span: Option<Duration>) -> Result<Option<Duration>> {
    let is_wrong = |span: Duration| {
        let is_too_short = name != "reconnect_ms" && span < Duration::from_millis(1);
        is_too_short || u32::try_from(span.as_millis()).is_err()
    };
    match span {
        Some(span) if is_wrong(span) => Err(wrong(name, span.as_millis(), right(name))),
        span => Ok(span),
    }
}

fn wrong(name: &'static str, value: impl ToString, right: &'static str) -> crate::Error {
    UrlError::Parameter { name, value: value.to_string(), right }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<LockServer> {
        LockServer::parse(url, Options::default(), Hierarchy::default())
    }

    #[test]
    fn our_parameters_are_ours() {
        let url = "mysql://root:pw@127.0.0.1:3306/app?strategy=per-id&table=Locks&connections=3\
                   &keep_alive_ms=200&ssl-mode=disabled";
        let LockServer { address, scheme, settings, .. } = parse(url).unwrap();
        assert_eq!((scheme.strategy, scheme.rows_table()), (Strategy::PerId, "locks"));
        assert_eq!((settings.pool.connections, settings.keep_alive.as_millis()), (3, 200));
        assert_eq!(address.to_string(), "mysql at 127.0.0.1:3306");
        let scheme = |url| parse(url).unwrap().scheme;
        assert_eq!(scheme("mariadb://h/d?buckets=64").buckets.count(), 64);
        // Defaults differ by server.
        assert_eq!(scheme("postgres://h/d").strategy, Strategy::Advisory);
        assert_eq!(scheme("mariadb://h/d").strategy, Strategy::Striped);
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
            ("keep_alive_ms=1d", "milliseconds"),
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

    #[test]
    fn all_that_is_listed_as_ours_is_read() {
        for name in LOCK_PARAMETERS {
            assert!(!matches!(Options::default().read(name, "1"), Ok(false)), "{name}");
        }
    }

    #[test]
    fn a_time_is_a_number_in_the_unit_of_its_name_or_has_its_own() {
        for (name, value, millis) in [
            ("keep_alive_ms", "250", 250),
            ("keep_alive_ms", "1.5s", 1500),
            ("lock_wait_timeout", "5", 5000),
            ("lock_wait_timeout", "1.5m", 90_000),
        ] {
            let mut options = Options::default();
            options.read(name, value).unwrap();
            let time = options.keep_alive_ms.or(options.lock_wait_timeout);
            assert_eq!(time, Some(Duration::from_millis(millis)), "{name}={value}");
        }
        let error = Options::default().read("silence_ms", "5 s").unwrap_err().to_string();
        assert!(error.contains("`silence_ms`") && error.contains("1.5s"), "{error}");
    }

    /// Also every one that a URL could not have.
    #[test]
    fn a_value_out_of_range_is_refused_however_it_was_given() {
        let long = Duration::from_millis(u64::from(u32::MAX) + 1);
        let options = Options::default;
        for (options, says) in [
            (Options { connections: Some(0), ..options() }, "`connections`"),
            (Options { keep_alive_ms: Some(Duration::ZERO), ..options() }, "`keep_alive_ms`"),
            (Options { silence_ms: Some(Duration::from_micros(9)), ..options() }, "`silence_ms`"),
            (Options { keep_alive_ms: Some(Duration::MAX), ..options() }, "`keep_alive_ms`"),
            (Options { client_silence_ms: Some(long), ..options() }, "`client_silence_ms`"),
            (Options { reconnect_ms: Some(long), ..options() }, "0 for not at all"),
            (Options { lock_wait_timeout: Some(Duration::ZERO), ..options() }, "seconds"),
        ] {
            let message = options.settings().unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }
        for (given, seconds) in [(Duration::from_millis(1), 1), (Duration::MAX, LONGEST_LOCK_WAIT)]
        {
            let settings = Options { lock_wait_timeout: Some(given), ..options() }.settings();
            assert_eq!(settings.unwrap().pool.session.lock_wait_timeout, seconds);
        }
    }

    #[test]
    fn what_is_given_twice_is_refused() {
        let mut url = Options::default();
        assert!(url.read("connections", "4").unwrap() && url.read("table", "t").unwrap());
        let second = Some(Duration::from_secs(1));
        let both = Options { silence_ms: second, ..Options::default() }.and(url.clone()).unwrap();
        assert_eq!((both.connections, both.table.as_deref()), (Some(4), Some("t")));
        assert_eq!(both.silence_ms, second);
        let twice = Options { connections: Some(4), ..Options::default() };
        let error = twice.and(url).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("`connections`"), "{error}");
    }
}
