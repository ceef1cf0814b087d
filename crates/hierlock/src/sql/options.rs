//! From a URL or a [`Builder`](crate::Builder) to a server: its address, the scheme that all clients share, and the settings
//! of this client. Each option is read once, and each rule is checked in one place.

use super::session_label::MAX_POSTGRES_LENGTH;
use super::{ClientIdentity, Scheme, Strategy};
use crate::error::UrlError;
use crate::{Buckets, Hierarchy, Result};
use hierlock_engine::session_settings::LONGEST_LOCK_WAIT;
use hierlock_engine::{
    LOCK_PARAMETERS, PoolSettings, ServerAddress, UrlUse, check_parameters, parse_duration,
};
use std::time::Duration;
use url::Url;

/// The number of keep-alive intervals that `client_silence_ms` must span at least.
const MIN_KEEP_ALIVES: u32 = 3;

/// Describes the allowed values of a parameter, for error messages.
fn allowed_values(name: &str) -> &'static str {
    match name {
        "buckets" => "a number from 1 to 2147483647",
        "connections" => "a number from 1 on",
        "reconnect_ms" => {
            "a time such as 500ms or 1.5s, or milliseconds up to 4294967295; 0 for not at all"
        }
        "lock_wait_timeout" => "a time such as 5s or 1.5m, or seconds from 1 on",
        "scope" => "transaction, or session with advisory keys",
        "check_exclusion" => "true or false",
        _ => "a time such as 500ms or 1.5s, or milliseconds from 1 to 4294967295",
    }
}

/// The owner of advisory keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// Each guard has its own transaction. The default.
    #[default]
    Transaction,
    /// Guards that need not wait share one session. They have no transaction to lend, and their extensions never wait.
    Session,
}

macro_rules! options {
    ($($name:ident: $type:ty,)*) => {
        /// The options of a client, under their names in a URL.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Options {
            $(pub(crate) $name: Option<$type>,)*
        }

        impl Options {
            /// Merges two sets of options. Fails if both have the same option.
            fn merge(self, other: Options) -> Result<Options> {
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
    application: String,
    program: String,
    check_exclusion: bool,
}

/// The address and the options of a server to lock on.
#[derive(Clone, Debug)]
pub(super) struct LockServer {
    pub(super) address: ServerAddress,
    pub(super) scheme: Scheme,
    pub(super) settings: ClientSettings,
}

/// The settings that clients of one server need not share.
#[derive(Clone, Debug)]
pub(super) struct ClientSettings {
    /// The settings of the pool. Each hold has a session of its own.
    pub(super) pool: PoolSettings,
    /// The interval of the check that the sessions of holds are alive.
    pub(super) keep_alive: Duration,
    /// How long an acquire without a deadline waits for a server that does not answer. With zero no acquire waits for that.
    pub(super) reconnect: Duration,
    pub(super) scope: Scope,
    /// The client in the labels of its sessions.
    pub(super) client: ClientIdentity,
    /// Whether connecting tests that locks exclude each other.
    pub(super) check_exclusion: bool,
}

impl Options {
    /// Reads a parameter of a URL. Returns false if it is not an option of hierlock.
    fn read(&mut self, name: &str, value: &str) -> Result<bool> {
        let Some(name) = LOCK_PARAMETERS.into_iter().find(|parameter| *parameter == name) else {
            return Ok(false);
        };
        let invalid = || invalid(name, value);
        let number = value.parse::<u32>().ok();
        // A bare number is in the unit of the parameter.
        let time = |unit: Duration| match number {
            Some(count) => Ok(Some(unit * count)),
            None => parse_duration(value).map(Some).map_err(|_| invalid()),
        };
        let millis = || time(Duration::from_millis(1));
        match name {
            "strategy" => self.strategy = Some(value.parse()?),
            "buckets" => {
                let buckets = number.and_then(|count| Buckets::new(count).ok());
                self.buckets = Some(buckets.ok_or_else(invalid)?);
            }
            "table" => self.table = Some(value.to_owned()),
            "application" => self.application = Some(value.to_owned()),
            "connections" => self.connections = Some(number.ok_or_else(invalid)? as usize),
            "keep_alive_ms" => self.keep_alive_ms = millis()?,
            "silence_ms" => self.silence_ms = millis()?,
            "client_silence_ms" => self.client_silence_ms = millis()?,
            "reconnect_ms" => self.reconnect_ms = millis()?,
            "lock_wait_timeout" => self.lock_wait_timeout = time(Duration::from_secs(1))?,
            "scope" if value == "transaction" => self.scope = Some(Scope::Transaction),
            "scope" if value == "session" => self.scope = Some(Scope::Session),
            "scope" => return Err(invalid()),
            "check_exclusion" => self.check_exclusion = Some(value.parse().map_err(|_| invalid())?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the server at `address` with these options. Fails if one is out of range or contradicts another.
    pub(super) fn at(self, address: ServerAddress, hierarchy: Hierarchy) -> Result<LockServer> {
        let mut scheme = Scheme::new(address.dialect()).hierarchy(hierarchy);
        if let Some(strategy) = self.strategy {
            scheme = scheme.strategy(strategy)?;
        }
        if let Some(table) = &self.table {
            scheme = scheme.table(table)?;
        }
        if let Some(buckets) = self.buckets {
            scheme = scheme.buckets(buckets);
        }
        let settings = self.settings()?;
        if settings.scope == Scope::Session && scheme.strategy != Strategy::Advisory {
            return Err(invalid("scope", "session"));
        }
        Ok(LockServer { address, scheme, settings })
    }

    fn settings(self) -> Result<ClientSettings> {
        let mut pool = PoolSettings::default();
        pool.connections = self.connections.unwrap_or(pool.connections);
        if pool.connections == 0 {
            return Err(invalid("connections", 0));
        }
        let answer_limit = check_range("silence_ms", self.silence_ms)?;
        pool.answer_limit = answer_limit.unwrap_or(pool.answer_limit);
        let keep_alive = check_range("keep_alive_ms", self.keep_alive_ms)?;
        let keep_alive = keep_alive.unwrap_or(Duration::from_secs(1));
        pool.session.client_silence = check_range("client_silence_ms", self.client_silence_ms)?;
        if let Some(silence) = pool.session.client_silence
            && silence < MIN_KEEP_ALIVES * keep_alive
        {
            let (name, value) = ("client_silence_ms", silence.as_millis().to_string());
            let right = "at least three times keep_alive_ms, so that keep-alives arrive in time";
            return Err(UrlError::Parameter { name, value, right }.into());
        }
        if let Some(timeout) = self.lock_wait_timeout {
            if timeout.is_zero() {
                return Err(invalid("lock_wait_timeout", 0));
            }
            // Rounded up: the server counts whole seconds.
            let seconds = timeout.as_secs().saturating_add(u64::from(timeout.subsec_nanos() > 0));
            pool.session.lock_wait_timeout = seconds.min(LONGEST_LOCK_WAIT.into()) as u32;
        }
        let reconnect = check_range("reconnect_ms", self.reconnect_ms)?;
        let reconnect = reconnect.unwrap_or(Duration::from_secs(60));
        let client = ClientIdentity::of_process(self.application, self.program);
        pool.session.label = Some(client.within(MAX_POSTGRES_LENGTH));
        let scope = self.scope.unwrap_or_default();
        let check_exclusion = self.check_exclusion.unwrap_or_default();
        Ok(ClientSettings { pool, keep_alive, reconnect, scope, client, check_exclusion })
    }
}

impl LockServer {
    /// Parses a URL. Parameters that are not options of hierlock are left to the driver.
    pub(super) fn parse(url: &str, options: Options, hierarchy: Hierarchy) -> Result<Self> {
        check_parameters(url, UrlUse::Lock)?;
        let unreadable = |error: url::ParseError| UrlError::Server { why: error.to_string() };
        let mut url = Url::parse(url).map_err(unreadable)?;
        let mut url_options = Options::default();
        let mut driver_parameters = Vec::new();
        for (name, value) in url.query_pairs() {
            if name == "application_name" {
                // PostgreSQL's parameter. hierlock sets `application_name` to the whole identity of the client.
                url_options.read("application", &value)?;
            } else if !url_options.read(&name, &value)? {
                driver_parameters.push((name.into_owned(), value.into_owned()));
            }
        }
        url.query_pairs_mut().clear().extend_pairs(driver_parameters);
        options.merge(url_options)?.at(ServerAddress::from_url(&url)?, hierarchy)
    }
}

/// Fails if a time is shorter than a millisecond, except for `reconnect_ms`, or longer than `u32::MAX` milliseconds.
fn check_range(name: &'static str, time: Option<Duration>) -> Result<Option<Duration>> {
    let is_invalid = |time: Duration| {
        let is_too_short = name != "reconnect_ms" && time < Duration::from_millis(1);
        is_too_short || u32::try_from(time.as_millis()).is_err()
    };
    match time {
        Some(time) if is_invalid(time) => Err(invalid(name, time.as_millis())),
        time => Ok(time),
    }
}

fn invalid(name: &'static str, value: impl ToString) -> crate::Error {
    UrlError::Parameter { name, value: value.to_string(), right: allowed_values(name) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<LockServer> {
        LockServer::parse(url, Options::default(), Hierarchy::default())
    }

    #[test]
    fn options_in_a_url_are_read() {
        let url = "mysql://root:pw@127.0.0.1:3306/app?strategy=per-id&table=Locks&connections=3\
                   &keep_alive_ms=200&ssl-mode=disabled";
        let LockServer { address, scheme, settings, .. } = parse(url).unwrap();
        assert_eq!((scheme.strategy, scheme.rows_table()), (Strategy::PerId, "locks"));
        assert_eq!((settings.pool.connections, settings.keep_alive.as_millis()), (3, 200));
        assert_eq!(address.to_string(), "mysql at 127.0.0.1:3306");
        let scheme = |url| parse(url).unwrap().scheme;
        assert_eq!(scheme("mariadb://h/d?buckets=64").buckets.count(), 64);
        // The default strategy depends on the server.
        assert_eq!(scheme("postgres://h/d").strategy, Strategy::Advisory);
        assert_eq!(scheme("mariadb://h/d").strategy, Strategy::Striped);
    }

    #[test]
    fn the_error_for_an_invalid_option_has_no_password() {
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
            ("check_exclusion=1", "true or false"),
        ] {
            let error = parse(&format!("mysql://me:secret@h/d?{parameters}")).unwrap_err();
            let message = error.to_string();
            assert!(error.is_usage() && message.contains(says), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn every_lock_parameter_is_read() {
        for name in LOCK_PARAMETERS {
            assert!(!matches!(Options::default().read(name, "1"), Ok(false)), "{name}");
        }
    }

    #[test]
    fn a_time_has_a_unit_or_is_a_number_in_the_unit_of_the_parameter() {
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

    /// Includes values that a URL cannot contain.
    #[test]
    fn a_value_out_of_range_is_refused() {
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
    fn an_option_in_both_url_and_builder_is_refused() {
        let mut url = Options::default();
        assert!(url.read("connections", "4").unwrap() && url.read("table", "t").unwrap());
        let second = Some(Duration::from_secs(1));
        let builder = Options { silence_ms: second, ..Options::default() };
        let both = builder.merge(url.clone()).unwrap();
        assert_eq!((both.connections, both.table.as_deref()), (Some(4), Some("t")));
        assert_eq!(both.silence_ms, second);
        let builder = Options { connections: Some(4), ..Options::default() };
        let error = builder.merge(url).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("`connections`"), "{error}");
    }
}
