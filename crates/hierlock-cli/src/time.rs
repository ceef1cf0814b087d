//! Moments and spans, as a person and a program read them. Moments are in UTC, wherever one is.

use hierlock::lease::utc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `2026-11-16T05:30:00.120Z`, for programs; persons need no milliseconds.
pub(crate) fn exact(at: SystemTime) -> String {
    let millis = at.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_millis();
    format!("{}.{millis:03}Z", utc(at).trim_end_matches('Z'))
}

/// `in 4 min 30 s`, or `30 s ago`.
pub(crate) fn relative(at: SystemTime, now: SystemTime) -> String {
    match at.duration_since(now) {
        Ok(left) => format!("in {}", span(left)),
        Err(ago) => format!("{} ago", span(ago.duration())),
    }
}

/// The two greatest units of it: `4 min 30 s`, `2 h`, `300 ms`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (great, small) = match seconds {
        0 => return format!("{} ms", span.as_millis()),
        1..60 => return format!("{seconds} s"),
        60..3600 => ((seconds / 60, "min"), (seconds % 60, "s")),
        3600..86_400 => ((seconds / 3600, "h"), (seconds / 60 % 60, "min")),
        _ => ((seconds / 86_400, "d"), (seconds / 3600 % 24, "h")),
    };
    match small {
        (0, _) => format!("{} {}", great.0, great.1),
        _ => format!("{} {} {} {}", great.0, great.1, small.0, small.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        for (millis, text) in
            [(0, "1970-01-01T00:00:00.000Z"), (951_782_400_007, "2000-02-29T00:00:00.007Z")]
        {
            assert_eq!(exact(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
        assert_eq!(exact(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn spans() {
        for (millis, text) in [
            (0, "0 ms"),
            (300, "300 ms"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (270_000, "4 min 30 s"),
            (7_200_000, "2 h"),
            (7_500_000, "2 h 5 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
            let length = Duration::from_millis(millis);
            assert_eq!(span(length), text);
            assert_eq!(relative(now + length, now), format!("in {text}"));
            if millis > 0 {
                assert_eq!(relative(now - length, now), format!("{text} ago"));
            }
        }
    }
}
