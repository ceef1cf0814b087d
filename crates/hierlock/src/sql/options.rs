//! The options of a client, from the parameters of a URL or from a [`Builder`](crate::Builder): each is read once, and
//! each rule is checked in one place.

use super::place::{Place, Scope, Settings};
use super::{Scheme, Strategy};
use crate::error::{Result, UrlError};
use crate::hierarchy::Hierarchy;
use crate::key::Buckets;
use hierlock_engine::ServerAddress;
use hierlock_engine::session_settings::LONGEST_LOCK_WAIT;
use std::time::Duration;

/// So many times a client is to be heard before it is taken to be gone.
const HEARD: u32 = 3;

const NUMBER: &str = "a number from 1 on";
const MILLISECONDS: &str = "a number of milliseconds, from 1 to 4294967295";
const MILLISECONDS_OR_NONE: &str = "a number of milliseconds up to 4294967295, or 0 for not at all";
const SECONDS: &str = "a number of seconds, from 1 on";

/// Options by the names that they have in a URL, as far as they were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) strategy: Option<Strategy>,
    pub(crate) buckets: Option<Buckets>,
    pub(crate) table: Option<String>,
    pub(crate) connections: Option<usize>,
    pub(crate) keep_alive_ms: Option<Duration>,
    pub(crate) silence_ms: Option<Duration>,
    pub(crate) client_silence_ms: Option<Duration>,
    pub(crate) reconnect_ms: Option<Duration>,
    pub(crate) lock_wait_timeout: Option<Duration>,
    pub(crate) scope: Option<Scope>,
}

impl Options {
    /// Reads a parameter of a URL; false if it is not ours.
    pub(super) fn read(&mut self, name: &str, value: &str) -> Result<bool> {
        let number =
            |name, right| -> Result<u32> { value.parse().map_err(|_| wrong(name, value, right)) };
        let millis =
            |name, right| number(name, right).map(|ms| Some(Duration::from_millis(ms.into())));
        match name {
            "strategy" => self.strategy = Some(value.parse()?),
            "buckets" => {
                let right = "a number from 1 to 2147483647";
                let count = number("buckets", right)?;
                let buckets = Buckets::new(count).map_err(|_| wrong("buckets", value, right))?;
                self.buckets = Some(buckets);
            }
            "table" => self.table = Some(value.to_owned()),
            "connections" => self.connections = Some(number("connections", NUMBER)? as usize),
            "keep_alive_ms" => self.keep_alive_ms = millis("keep_alive_ms", MILLISECONDS)?,
            "silence_ms" => self.silence_ms = millis("silence_ms", MILLISECONDS)?,
            "client_silence_ms" => {
                self.client_silence_ms = millis("client_silence_ms", MILLISECONDS)?;
            }
            "reconnect_ms" => self.reconnect_ms = millis("reconnect_ms", MILLISECONDS_OR_NONE)?,
            "lock_wait_timeout" => {
                let seconds = number("lock_wait_timeout", SECONDS)?;
                self.lock_wait_timeout = Some(Duration::from_secs(seconds.into()));
            }
            "scope" => {
                self.scope = match value {
                    "transaction" => Some(Scope::Transaction),
                    "session" => Some(Scope::Session),
                    _ => return Err(wrong_scope(value)),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Both together.
    ///
    /// # Errors
    /// One that both have: nobody could say which is meant.
    pub(super) fn and(mut self, other: Options) -> Result<Options> {
        macro_rules! add {
            ($($name:ident),*) => {
                let Options { $($name),* } = other;
                $(if $name.is_some() {
                    if self.$name.is_some() {
                        return Err(UrlError::GivenTwice { name: stringify!($name) }.into());
                    }
                    self.$name = $name;
                })*
            };
        }
        add!(
            strategy,
            buckets,
            table,
            connections,
            keep_alive_ms,
            silence_ms,
            client_silence_ms,
            reconnect_ms,
            lock_wait_timeout,
            scope
        );
        Ok(self)
    }

    /// What they mean on a server.
    ///
    /// # Errors
    /// One that is out of range, or does not go together with another.
    pub(super) fn at(self, address: ServerAddress, hierarchy: Hierarchy) -> Result<Place> {
        let mut scheme = Scheme::new(address.dialect()).hierarchy(hierarchy);
        if let Some(strategy) = self.strategy {
            scheme = scheme.strategy(strategy)?;
        }
        if let Some(table) = &self.table {
            scheme = scheme.table(table)?;
        }
        let follows = self.buckets.is_none();
        if let Some(buckets) = self.buckets {
            scheme = scheme.buckets(buckets);
        }
        let settings = self.settings()?;
        if settings.scope == Scope::Session && scheme.strategy != Strategy::Advisory {
            return Err(wrong_scope("session"));
        }
        Ok(Place { address, scheme, follows, settings })
    }

    fn settings(self) -> Result<Settings> {
        let mut settings = Settings::default();
        if let Some(connections) = self.connections {
            if connections == 0 {
                return Err(wrong("connections", "0", NUMBER));
            }
            settings.connections = connections;
        }
        if let Some(span) = self.keep_alive_ms {
            settings.keep_alive = at_least_a_millisecond("keep_alive_ms", span)?;
        }
        if let Some(span) = self.silence_ms {
            settings.answer_limit = at_least_a_millisecond("silence_ms", span)?;
        }
        if let Some(span) = self.reconnect_ms {
            settings.reconnect = up_to_the_longest("reconnect_ms", span, MILLISECONDS_OR_NONE)?;
        }
        if let Some(span) = self.client_silence_ms {
            let span = at_least_a_millisecond("client_silence_ms", span)?;
            if span < HEARD * settings.keep_alive {
                let right = "at least three times keep_alive_ms, so that a holder is heard in time";
                return Err(wrong("client_silence_ms", span.as_millis(), right));
            }
            settings.client_silence = Some(span);
        }
        if let Some(span) = self.lock_wait_timeout {
            if span.is_zero() {
                return Err(wrong("lock_wait_timeout", "0", SECONDS));
            }
            // A part of a second counts as one.
            let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
            let seconds = u32::try_from(seconds).unwrap_or(LONGEST_LOCK_WAIT);
            settings.lock_wait_timeout = seconds.min(LONGEST_LOCK_WAIT);
        }
        settings.scope = self.scope.unwrap_or(settings.scope);
        Ok(settings)
    }
}

fn at_least_a_millisecond(name: &'static str, span: Duration) -> Result<Duration> {
    if span < Duration::from_millis(1) {
        return Err(wrong(name, span.as_millis(), MILLISECONDS));
    }
    up_to_the_longest(name, span, MILLISECONDS)
}

/// More could not be written in a URL, nor sent to a server.
fn up_to_the_longest(name: &'static str, span: Duration, right: &'static str) -> Result<Duration> {
    match u32::try_from(span.as_millis()) {
        Ok(_) => Ok(span),
        Err(_) => Err(wrong(name, span.as_millis(), right)),
    }
}

fn wrong(name: &'static str, value: impl ToString, right: &'static str) -> crate::Error {
    UrlError::Parameter { name, value: value.to_string(), right }.into()
}

fn wrong_scope(value: &str) -> crate::Error {
    wrong("scope", value, "transaction, or session with advisory keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_listed_as_ours_is_read() {
        for name in hierlock_engine::LOCK_PARAMETERS {
            assert!(!matches!(Options::default().read(name, "1"), Ok(false)), "{name}");
        }
    }

    /// Also every one that a URL could not have.
    #[test]
    fn a_value_out_of_range_is_refused_however_it_was_given() {
        let long = Duration::from_millis(u64::from(u32::MAX) + 1);
        let options = Options::default;
        let settings = |options: Options| options.settings().unwrap_err().to_string();
        for (options, says) in [
            (Options { connections: Some(0), ..options() }, "`connections`"),
            (Options { keep_alive_ms: Some(Duration::ZERO), ..options() }, "`keep_alive_ms`"),
            (Options { silence_ms: Some(Duration::from_micros(9)), ..options() }, "`silence_ms`"),
            (Options { keep_alive_ms: Some(Duration::MAX), ..options() }, "`keep_alive_ms`"),
            (Options { client_silence_ms: Some(long), ..options() }, "`client_silence_ms`"),
            (Options { reconnect_ms: Some(long), ..options() }, "0 for not at all"),
            (Options { lock_wait_timeout: Some(Duration::ZERO), ..options() }, "seconds"),
        ] {
            let message = settings(options);
            assert!(message.contains(says), "{message}");
        }
        let short = Options { lock_wait_timeout: Some(Duration::from_millis(1)), ..options() };
        assert_eq!(short.settings().unwrap().lock_wait_timeout, 1);
        let endless = Options { lock_wait_timeout: Some(Duration::MAX), ..options() };
        assert_eq!(endless.settings().unwrap().lock_wait_timeout, LONGEST_LOCK_WAIT);
    }

    #[test]
    fn what_is_given_twice_is_refused() {
        let mut url = Options::default();
        assert!(url.read("connections", "4").unwrap() && url.read("table", "t").unwrap());
        let silence = Options { silence_ms: Some(Duration::from_secs(1)), ..Options::default() };
        let both = silence.and(url.clone()).unwrap();
        assert_eq!((both.connections, both.table.as_deref()), (Some(4), Some("t")));
        assert_eq!(both.silence_ms, Some(Duration::from_secs(1)));
        let twice = Options { connections: Some(4), ..Options::default() };
        let error = twice.and(url).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("`connections`"), "{error}");
    }
}
