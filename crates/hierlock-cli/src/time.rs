//! Times and durations as text. Times are in UTC.

use hierlock::lease::utc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns a time with milliseconds, for JSON: `2026-11-16T05:30:00.120Z`.
pub(crate) fn timestamp(at: SystemTime) -> String {
    let millis = at.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_millis();
    format!("{}.{millis:03}Z", utc(at).trim_end_matches('Z'))
}

/// Returns a duration in milliseconds, for JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Returns `in 4 min 30 s`, or `30 s ago`.
pub(crate) fn relative_time(at: SystemTime, now: SystemTime) -> String {
    match at.duration_since(now) {
        Ok(left) => format!("in {}", duration_text(left)),
        Err(ago) => format!("{} ago", duration_text(ago.duration())),
    }
}

/// Returns a duration in its two greatest units: `4 min 30 s`, `2 h`, `300 ms`.
pub(crate) fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (great, small) = match seconds {
        0 => return format!("{} ms", duration.as_millis()),
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
    fn timestamps_have_milliseconds() {
        for (millis, text) in
            [(0, "1970-01-01T00:00:00.000Z"), (951_782_400_007, "2000-02-29T00:00:00.007Z")]
        {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn durations_have_at_most_two_units() {
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
            assert_eq!(duration_text(length), text);
            assert_eq!(relative_time(now + length, now), format!("in {text}"));
            if millis > 0 {
                assert_eq!(relative_time(now - length, now), format!("{text} ago"));
            }
        }
    }
}
