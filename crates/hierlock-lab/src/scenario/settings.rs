//! The settings of sessions: `isolation read committed, autocommit off`.

use super::diagnostic::{ParseError, unknown};
use super::reader::{Reader, duration};
use super::scan::{split, with_single_blanks};
use std::time::Duration;

/// A setting of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// `isolation read committed`
    Isolation(String),
    /// `autocommit off`
    Autocommit(bool),
    /// `lock wait timeout 1s`
    LockWaitTimeout(Duration),
    /// `set NAME = VALUE`, in the syntax of the engine.
    Sql(String),
}

/// The isolation levels, the weakest first.
pub(crate) const ISOLATION_LEVELS: [&str; 4] =
    ["read uncommitted", "read committed", "repeatable read", "serializable"];

/// Parses an isolation level; returns it in lower case with single blanks.
pub(crate) fn isolation(text: &str) -> Result<String, String> {
    let level = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    if ISOLATION_LEVELS.contains(&level.as_str()) {
        Ok(level)
    } else {
        Err(unknown(&level, "an isolation level", &ISOLATION_LEVELS))
    }
}

pub(crate) fn read(text: &str) -> Result<Vec<SettingValue>, ParseError> {
    let parts = split(text, ',').into_iter();
    parts.map(|(at, part)| setting(part).map_err(|error| error.within(at))).collect()
}

fn setting(text: &str) -> Result<SettingValue, ParseError> {
    let mut reader = Reader::new(text);
    let begin = reader;
    let value = if reader.take("isolation") {
        isolation(reader.rest()).map(SettingValue::Isolation)
    } else if reader.take("autocommit") {
        match reader.rest().trim() {
            "on" => Ok(SettingValue::Autocommit(true)),
            "off" => Ok(SettingValue::Autocommit(false)),
            _ => Err("it is `autocommit on` or `autocommit off`".to_owned()),
        }
    } else if reader.take("lock wait timeout") {
        let least = Duration::from_millis(1);
        duration(reader.rest().trim(), least).map(SettingValue::LockWaitTimeout)
    } else if reader.take("set") {
        match reader.rest().trim() {
            "" => Err("it is `set NAME = VALUE`, in the words of the engine".to_owned()),
            _ => Ok(SettingValue::Sql(with_single_blanks(begin.rest()))),
        }
    } else if reader.is_over() {
        Err("a setting is missing; it is `isolation LEVEL`, `autocommit off`, `lock wait timeout \
             1s` or `set NAME = VALUE`"
            .to_owned())
    } else {
        let known = ["isolation", "autocommit", "lock wait timeout", "set"];
        Err(unknown(reader.peek(), "a setting", &known))
    };
    value.map_err(|message| ParseError::new(reader.at(), message))
}
