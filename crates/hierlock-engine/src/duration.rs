//! How a time is written, wherever a person writes one: on the command line, in a scenario, in a URL.

use std::time::Duration;

/// A text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write it as 300ms, 5s, 2m or 1h")]
pub struct DurationError(String);

/// Reads a time: a number, which may have a fraction, and its unit `ms`, `s`, `m` or `h`, without blanks.
///
/// ```
/// use hierlock_engine::parse_duration;
/// use std::time::Duration;
///
/// assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
/// assert!(parse_duration("90").is_err());
/// ```
///
/// # Errors
/// [`DurationError`], if it is anything else or too long for a [`Duration`].
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    read(text).ok_or_else(|| DurationError(text.to_owned()))
}

fn read(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit() {
        for (text, millis) in [
            ("300ms", 300),
            ("5s", 5000),
            ("0s", 0),
            ("2m", 120_000),
            ("1.5m", 90_000),
            ("0.5s", 500),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "5 s",
            "5d",
            "1e3s",
            "1.2.3s",
            "99999999999999999999s",
            "18446744073709551615m",
            "99999999999999999999h",
        ] {
            assert!(parse_duration(text).unwrap_err().to_string().contains("300ms"), "{text}");
        }
    }
}
