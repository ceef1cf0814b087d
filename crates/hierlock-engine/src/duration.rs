//! The text format of durations on the command line, in scenarios and in URLs.

use std::time::Duration;

/// The error of a text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write it as 300ms, 5s, 2m or 1h")]
pub struct DurationError(String);

/// Parses a duration: a number, optionally with a fraction, and the unit `ms`, `s`, `m` or `h`, without spaces.
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
/// [`DurationError`] for any other text, or if the value is too large for a [`Duration`].
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    parse(text).ok_or_else(|| DurationError(text.to_owned()))
}

/// Formats a duration for messages: `300 ms`, `1.5 s`.
pub fn duration_text(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

fn parse(text: &str) -> Option<Duration> {
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
    fn a_duration_is_a_number_with_a_unit() {
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
        let invalid = ["", "5", "s", "-5s", "5 s", "5d", "1e3s", "1.2.3s"];
        let too_long = ["99999999999999999999s", "18446744073709551615m", "99999999999999999999h"];
        for text in invalid.into_iter().chain(too_long) {
            assert!(parse_duration(text).unwrap_err().to_string().contains("300ms"), "{text}");
        }
    }
}
