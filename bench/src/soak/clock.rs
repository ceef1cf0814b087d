//! The clock of the histories.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};

/// Returns the nanoseconds since the host started: the same in all its processes, and never set back.
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// Returns a time of the host's calendar clock on the clock of the histories: never too late, and up to a
/// millisecond too early, which is how exact a database keeps it.
pub fn of(time: SystemTime) -> u64 {
    let now = now();
    match time.duration_since(SystemTime::now()) {
        Ok(left) => (now + left.as_nanos() as u64).saturating_sub(1_000_000),
        Err(passed) => now.saturating_sub(passed.duration().as_nanos() as u64 + 1_000_000),
    }
}
