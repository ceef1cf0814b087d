//! A new job, and the checks of its fields.

use crate::database::Driver;
use crate::error::{ErrorKind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The maximum size of a MEDIUMTEXT column.
const MAX_PAYLOAD_BYTES: usize = (1 << 24) - 1;
const MAX_KEY_CHARS: usize = 255;
/// Ten years: a longer delay is a mistake, and sums of times cannot overflow.
const MAX_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A job: a payload for the worker, and when it runs.
///
/// ```
/// use hierlock::queue::Job;
/// use std::time::Duration;
///
/// let job = Job::new(r#"{"to": "ada@example.org"}"#)
///     .priority(5) // before jobs with 6, or with the default of 100
///     .run_in(Duration::from_secs(60))
///     .unique("welcome-ada") // only once in the queue
///     .max_attempts(10);
/// # let _ = job;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Job {
    pub(super) payload: String,
    pub(super) priority: i64,
    pub(super) start: StartTime,
    pub(super) unique_key: Option<String>,
    pub(super) max_attempts: u32,
}

/// The earliest start of a job: after a delay, by default zero, or at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartTime {
    In(Duration),
    At(SystemTime),
}

impl Job {
    /// The default priority.
    pub const PRIORITY: i64 = 100;
    /// The default number of attempts.
    pub const MAX_ATTEMPTS: u32 = 20;

    /// Makes a job that may run at once. The payload is text without zero bytes, up to 16 MiB minus a byte; on MySQL and
    /// MariaDB also up to `max_allowed_packet` minus 4 KiB.
    pub fn new(payload: impl Into<String>) -> Self {
        Self {
            payload: payload.into(),
            priority: Self::PRIORITY,
            start: StartTime::In(Duration::ZERO),
            unique_key: None,
            max_attempts: Self::MAX_ATTEMPTS,
        }
    }

    setters! {
        /// Sets the priority: a lower number goes first. Jobs with the same priority run in the order in which they were
        /// added.
        priority: i64;
        /// Sets the delay before the job may run, by the database's clock.
        run_in(delay: Duration) => start: StartTime::In(delay);
        /// Sets the time before which the job does not run, by the database's clock.
        run_at(time: SystemTime) => start: StartTime::At(time);
        /// Sets a unique key. The job is not added while another job with this key is in the queue: waiting, running or
        /// dead.
        unique(key: impl Into<String>) => unique_key: Some(key.into());
        /// Sets the number of failures after which the job is dead: it does not run until
        /// [`retry_dead`](super::Queue::retry_dead).
        max_attempts(attempts: u32) => max_attempts: attempts;
    }

    pub(super) fn check(&self) -> Result<()> {
        let bytes = self.payload.len();
        let (key, has_key) =
            (self.unique_key.as_deref().unwrap_or_default(), self.unique_key.is_some());
        let chars = key.chars().count();
        let error = if bytes > MAX_PAYLOAD_BYTES {
            QueueError::Payload { bytes, most: MAX_PAYLOAD_BYTES }
        } else if self.payload.contains('\0') {
            QueueError::ZeroByte { what: "payload" }
        } else if has_key && !(1..=MAX_KEY_CHARS).contains(&chars) {
            QueueError::Key { chars }
        } else if key.ends_with(' ') {
            QueueError::KeyEndsWithSpace
        } else if key.contains('\0') {
            QueueError::ZeroByte { what: "unique key" }
        } else if self.max_attempts == 0 {
            QueueError::NoAttempts
        } else if let StartTime::In(delay) = self.start {
            return millis("delay", delay, 0).map(drop);
        } else {
            return Ok(());
        };
        Err(error.into())
    }
}

impl StartTime {
    /// Returns two numbers: the start is the database's clock times the first, plus the second.
    pub(super) fn clock_and_offset(self) -> (i64, i64) {
        match self {
            StartTime::In(delay) => (1, delay.as_millis() as i64),
            StartTime::At(time) => {
                let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
                (0, since.min(MAX_DELAY * 100).as_millis() as i64)
            }
        }
    }

    pub(super) fn is_later(self) -> bool {
        match self {
            StartTime::In(delay) => !delay.is_zero(),
            StartTime::At(time) => time > SystemTime::now(),
        }
    }
}

/// Converts a duration to milliseconds. Fails if it is shorter than `least` or longer than ten years.
pub(super) fn millis(what: &'static str, span: Duration, least: i64) -> Result<i64> {
    let millis = span.as_millis();
    match i64::try_from(millis) {
        Ok(count) if count >= least && span <= MAX_DELAY => Ok(count),
        _ => Err(QueueError::Time { what, millis, least }.into()),
    }
}

/// Checks the name of a queue or a worker. Names are written into statements without quoting.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@/".contains(c);
    if !(1..=64).contains(&name.len()) || !name.chars().all(is_plain) {
        return Err(QueueError::Name { what, name: name.to_owned() }.into());
    }
    Ok(())
}

/// Mirrors `queue`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueueError {
    #[error(
        "`{name}` cannot be the name of a {what}; use 1 to 64 letters, digits and characters of `-_.:@/`"
    )]
    Name { what: &'static str, name: String },
    #[error("the unique key has {chars} characters; it must have 1 to 255")]
    Key { chars: usize },
    #[error(
        "the unique key ends with a space, which MySQL and MariaDB ignore when they compare keys"
    )]
    KeyEndsWithSpace,
    #[error("the payload has {bytes} bytes; at most {most} are allowed")]
    Payload { bytes: usize, most: usize },
    #[error(
        "the payload has {bytes} bytes; this server accepts at most {most}, because its max_allowed_packet is {packet}: \
         raise that setting, or store the data elsewhere and put its address into the payload"
    )]
    Packet { bytes: usize, most: usize, packet: i64 },
    #[error(
        "the {what} has a zero byte, which not every engine can store; encode binary data as text, for example in base64"
    )]
    ZeroByte { what: &'static str },
    #[error("the maximum number of attempts is 0; a job needs at least one attempt")]
    NoAttempts,
    #[error("the {what} is {millis} ms; it must be between {least} ms and ten years")]
    Time { what: &'static str, millis: u128, least: i64 },
    #[error("the transaction is on {given:?}, but the queue is in {queue:?}")]
    OtherTransaction { given: Driver, queue: Driver },
    #[error(
        "job {id} is no longer this worker's: its lease has ended, or it has been completed, has failed \
         or has been given back already"
    )]
    Lost { id: i64 },
}

impl QueueError {
    pub(crate) fn kind(&self) -> ErrorKind {
        if matches!(self, Self::Lost { .. }) { ErrorKind::Lost } else { ErrorKind::Usage }
    }
}

/// The outcome of adding a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnqueueOutcome {
    /// The job was added, with this ID.
    Added(i64),
    /// A job with the same unique key was in the queue already, with this ID.
    Duplicate(i64),
}

impl EnqueueOutcome {
    /// Returns the ID of the job in the queue, new or not.
    pub fn id(self) -> i64 {
        match self {
            EnqueueOutcome::Added(id) | EnqueueOutcome::Duplicate(id) => id,
        }
    }

    /// Returns whether the job was added.
    pub fn is_added(self) -> bool {
        matches!(self, EnqueueOutcome::Added(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_jobs_and_names_are_usage_errors() {
        let long = "k".repeat(256);
        for (job, expected) in [
            (Job::new("x".repeat(MAX_PAYLOAD_BYTES + 1)), "16777216 bytes"),
            (Job::new("a\0b"), "payload has a zero byte"),
            (Job::new("").unique(""), "0 characters"),
            (Job::new("").unique(long.clone()), "256 characters"),
            (Job::new("").unique("a "), "ends with a space"),
            (Job::new("").unique("a\0b"), "unique key has a zero byte"),
            (Job::new("").max_attempts(0), "at least one attempt"),
            (Job::new("").run_in(Duration::MAX), "ten years"),
        ] {
            let error = job.check().unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(expected), "{error}");
        }
        for job in [
            Job::new("x".repeat(MAX_PAYLOAD_BYTES)),
            Job::new("").unique("ü".repeat(255)),
            Job::new("").run_at(UNIX_EPOCH - Duration::from_secs(1)).max_attempts(1),
        ] {
            job.check().unwrap();
        }
        for name in ["", "a b", "ä", "it's", "a\\b", &"n".repeat(65)] {
            assert!(check_name("queue", name).unwrap_err().is_usage(), "{name}");
        }
        check_name("queue", "Mail-2_a.b:c@d/e").unwrap();
    }

    #[test]
    fn a_start_in_the_past_is_not_later() {
        let now = SystemTime::now();
        for (start, is_later) in [
            (StartTime::In(Duration::ZERO), false),
            (StartTime::In(Duration::from_millis(1)), true),
            (StartTime::At(now - Duration::from_secs(9)), false),
            (StartTime::At(now + Duration::from_secs(9)), true),
        ] {
            assert_eq!(start.is_later(), is_later, "{start:?}");
        }
    }
}
