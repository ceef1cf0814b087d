//! What sessions are set to: `isolation read committed, autocommit off`.

use super::diagnostic::{ParseError, unknown};
use super::reader::{Reader, duration};
use super::scan::{split, squeezed};
use std::time::Duration;

/// What a session can be set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// `isolation read committed`
    Isolation(String),
    /// `autocommit off`
    Autocommit(bool),
    /// `lock wait timeout 1s`
    LockWaitTimeout(Duration),
    /// `set NAME = VALUE`, in the engine's own words.
    Sql(String),
}

/// The isolation levels, the weakest first.
pub(crate) const ISOLATION_LEVELS: [&str; 4] =
    ["read uncommitted", "read committed", "repeatable read", "serializable"];

/// An isolation level, in small letters with single blanks.
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
    parts.map(|(at, part)| one(part).map_err(|error| error.within(at))).collect()
}

fn one(text: &str) -> Result<SettingValue, ParseError> {
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
            _ => Ok(SettingValue::Sql(squeezed(begin.rest()))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let all =
            "isolation READ  committed, autocommit off, lock wait timeout 1s, set sql_mode = 'A,B'";
        assert_eq!(
            read(all).unwrap(),
            [
                SettingValue::Isolation("read committed".to_owned()),
                SettingValue::Autocommit(false),
                SettingValue::LockWaitTimeout(Duration::from_secs(1)),
                SettingValue::Sql("set sql_mode = 'A,B'".to_owned()),
            ]
        );
    }

    #[test]
    fn what_is_wrong_with_a_setting_is_said() {
        for (text, at, says) in [
            ("", 0, "a setting is missing"),
            ("isolation read comitted", 10, "did you mean `read committed`"),
            ("autocommit off, isolation", 25, "an isolation level"),
            ("autocommit no", 11, "on"),
            ("lock wait timeout 5", 18, "`5` is not a time"),
            ("lock wait timeout 0s", 18, "too short"),
            ("isolaton serializable", 0, "did you mean `isolation`"),
            ("set", 3, "set NAME = VALUE"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(says), "{text}: {}", error.message);
            assert_eq!(error.at, at, "{text}");
        }
    }
}
