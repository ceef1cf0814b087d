//! What sessions are set to: `isolation read committed, autocommit off`.

use super::file::SettingValue;
use super::layout::squeezed;
use super::mistake::{Slip, unknown};
use super::reader::{DURATION, Reader, duration};
use super::scan::split;

/// The isolation levels, the weakest first.
pub(super) const ISOLATION_LEVELS: [&str; 4] =
    ["read uncommitted", "read committed", "repeatable read", "serializable"];

/// An isolation level, in small letters with single blanks.
pub(crate) fn isolation(text: &str) -> Result<String, String> {
    let level = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    match ISOLATION_LEVELS.contains(&level.as_str()) {
        true => Ok(level),
        false => Err(unknown(&level, "an isolation level", &ISOLATION_LEVELS)),
    }
}

/// Reads settings, separated by commas.
pub(crate) fn read(text: &str) -> Result<Vec<SettingValue>, Slip> {
    split(text, ',')
        .into_iter()
        .map(|(at, part)| one(part).map_err(|slip| Slip::new(at + slip.at, slip.message)))
        .collect()
}

fn one(text: &str) -> Result<SettingValue, Slip> {
    let mut reader = Reader::new(text);
    let begin = reader;
    if reader.take("isolation") {
        let level = isolation(reader.rest());
        return level.map(SettingValue::Isolation).map_err(|why| Slip::new(reader.at(), why));
    }
    if reader.take("autocommit") {
        let on = match reader.rest().trim() {
            "on" => true,
            "off" => false,
            _ => return reader.slip("it is `autocommit on` or `autocommit off`"),
        };
        return Ok(SettingValue::Autocommit(on));
    }
    if reader.take("lock wait timeout") {
        return match duration(reader.rest().trim()) {
            Some(time) if !time.is_zero() => Ok(SettingValue::LockWaitTimeout(time)),
            _ => reader.slip(format!("{} is not {DURATION}", reader.found())),
        };
    }
    if reader.take("set") {
        return match reader.rest().trim() {
            "" => reader.slip("it is `set NAME = VALUE`, in the words of the engine"),
            _ => Ok(SettingValue::Sql(squeezed(begin.rest()))),
        };
    }
    let known = ["isolation", "autocommit", "lock wait timeout", "set"];
    match begin.is_over() {
        true => begin.slip(
            "a setting is missing; it is `isolation LEVEL`, `autocommit off`, `lock wait timeout \
             1s` or `set NAME = VALUE`",
        ),
        false => begin.slip(unknown(begin.peek(), "a setting", &known)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
            ("isolaton serializable", 0, "did you mean `isolation`"),
            ("set", 3, "set NAME = VALUE"),
        ] {
            let slip = read(text).unwrap_err();
            assert!(slip.message.contains(says), "{text}: {}", slip.message);
            assert_eq!(slip.at, at, "{text}");
        }
    }
}
