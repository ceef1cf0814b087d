//! The clock of the histories, which all processes of a host share.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};

/// Returns the nanoseconds since the host started. All processes see the same clock, and it never goes back.
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// Converts a time of the wall clock to the clock of the histories. The result is up to a millisecond early, the
/// precision of the database, and never late.
pub fn from_system_time(time: SystemTime) -> u64 {
    let now = now();
    match time.duration_since(SystemTime::now()) {
        Ok(left) => (now + left.as_nanos() as u64).saturating_sub(1_000_000),
        Err(passed) => now.saturating_sub(passed.duration().as_nanos() as u64 + 1_000_000),
    }
}
