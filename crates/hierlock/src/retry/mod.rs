//! Retries transactions that failed because of others: a deadlock, a serialization failure, a busy SQLite file.
//!
//! A deadlock is not a mistake of the program: its victim starts over. Only the whole transaction can be retried, never
//! the statement that failed: on InnoDB the statements before it are rolled back too.
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use hierlock::retry::{RetryPolicy, retry};
//!
//! retry(RetryPolicy::default(), |_attempt| async {
//!     let mut tx = pool.begin().await?;
//!     sqlx::query("UPDATE accounts SET balance = balance - 10 WHERE id = 1").execute(&mut *tx).await?;
//!     sqlx::query("UPDATE accounts SET balance = balance + 10 WHERE id = 2").execute(&mut *tx).await?;
//!     tx.commit().await // dropping the transaction before this rolls back
//! })
//! .await?;
//! # Ok(()) }
//! ```

mod cause;

pub use cause::{AttemptError, BoxedError, RetryCause, Retryable, TypedError, cause_of};

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How many attempts [`retry`] makes, for how long, and after which failures.
///
/// ```
/// use hierlock::retry::RetryPolicy;
/// use std::time::Duration;
///
/// let patient = RetryPolicy::default()
///     .attempts(20)
///     .within(Duration::from_secs(10))
///     .pauses(Duration::from_millis(5), Duration::from_millis(500))
///     .also_if_not_granted();
/// # let _ = patient;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a policy does nothing until it is passed to `retry`"]
pub struct RetryPolicy {
    attempts: u32,
    within: Option<Duration>,
    backoff: Backoff,
    if_not_granted: bool,
    if_stale: bool,
}

impl Default for RetryPolicy {
    /// Five attempts, pauses of at most 10, 20, 40 … milliseconds, no retry if a lock was not granted or a version is
    /// stale.
    fn default() -> Self {
        Self::with_attempts(5)
    }
}

impl RetryPolicy {
    pub(crate) const fn with_attempts(attempts: u32) -> Self {
        let backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };
        Self { attempts, within: None, backoff, if_not_granted: false, if_stale: false }
    }

    setters! {
        /// Sets the maximum number of attempts; at least one.
        attempts(attempts: u32) => attempts: attempts.max(1);
        /// Starts no attempt later than `limit` after the first. A started attempt is not interrupted, since it may commit.
        within(limit: Duration) => within: Some(limit);
        /// Sets the pauses: before the second attempt a random time up to `first`, before each further one up to twice as
        /// long as before, but never longer than `longest`. Pauses are random from zero on (full jitter), so that two
        /// transactions do not collide again.
        pauses(first: Duration, longest: Duration) => backoff: Backoff { first, longest };
        /// Retries also when a lock was not granted in time, or not at once with NOWAIT. By default that is an error.
        also_if_not_granted() => if_not_granted: true;
        /// Retries also when a row has another [version](crate::optimistic) than expected. The work must read the version
        /// in each attempt: a version that was read before stays stale.
        also_if_stale() => if_stale: true;
    }

    fn retries(&self, cause: RetryCause) -> bool {
        match cause {
            RetryCause::NotGranted => self.if_not_granted,
            RetryCause::Stale => self.if_stale,
            RetryCause::Deadlock | RetryCause::Conflict | RetryCause::Busy => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    fn longest_after(self, attempts: u32) -> Duration {
        let doubled = 2u32.saturating_pow(attempts.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.longest)
    }

    /// Returns a random pause after this number of attempts.
    pub(crate) fn pause_after(self, attempts: u32) -> Duration {
        self.longest_after(attempts).mul_f64(fastrand::f64())
    }
}

/// Runs `work` until it succeeds, fails with an error that is not retried, or has used up its attempts or its time. `work`
/// gets the number of the attempt, from 1.
///
/// `work` may fail with an error that is [`Retryable`], or with any error in a box, whose sources are searched for one:
/// `Box<dyn Error + Send + Sync>`, `anyhow::Error`. The returned error works with `?` in a function that returns any of
/// these.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
/// use hierlock::{Hierlock, Target};
/// use hierlock::retry::{RetryPolicy, retry};
///
/// let locks = Hierlock::connect("memory:").await?;
/// let token = retry(RetryPolicy::default(), async |_attempt| {
///     let mut guard = locks.acquire(Target::user("u1")?).await?;
///     guard.extend([Target::user("u2")?]).await?; // may deadlock
///     anyhow::Ok(guard.token().await?)
/// })
/// .await?;
/// # assert!(token > 0); Ok(()) }
/// ```
///
/// # Errors
/// The last error of `work`, with the number of attempts and the sum of the pauses.
///
/// # Cancel safety
/// Dropping the future drops the current attempt, with the cancel safety of `work`; a transaction of sqlx rolls back.
pub async fn retry<T, E, W, K>(
    policy: RetryPolicy,
    mut work: impl FnMut(u32) -> W,
) -> Result<T, RetryError<E>>
where
    W: Future<Output = Result<T, E>>,
    E: AttemptError<K>,
{
    let (started, mut paused, mut attempts) = (Instant::now(), Duration::ZERO, 0);
    loop {
        attempts += 1;
        let error = match work(attempts).await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let pause = policy.backoff.pause_after(attempts);
        let reason = if !error.cause().is_some_and(|cause| policy.retries(cause)) {
            GiveUpReason::NotRetryable
        } else if attempts >= policy.attempts {
            GiveUpReason::MaxAttempts
        } else if policy.within.is_some_and(|limit| started.elapsed() + pause > limit) {
            GiveUpReason::TimeLimit
        } else {
            tracing::debug!(attempts, ?pause, cause = ?error.cause(), "trying again");
            sleep(pause).await;
            paused += pause;
            continue;
        };
        return Err(RetryError { attempts, paused, reason, last: error, as_error: E::as_error });
    }
}

/// Why [`retry`] gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GiveUpReason {
    /// The error is not retried.
    NotRetryable,
    /// The policy allows no more attempts.
    MaxAttempts,
    /// The policy allows no more time.
    TimeLimit,
}

/// The error of the last attempt.
#[non_exhaustive]
pub struct RetryError<E> {
    /// The number of attempts.
    pub attempts: u32,
    /// The sum of the pauses.
    pub paused: Duration,
    /// Why there was no further attempt.
    pub reason: GiveUpReason,
    /// The last error.
    pub last: E,
    /// Returns the last error as a source. `E` is an error, or a box of one, which is no error itself; only `retry` knows
    /// which.
    as_error: fn(&E) -> &(dyn StdError + 'static),
}

impl<E: fmt::Debug> fmt::Debug for RetryError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryError")
            .field("attempts", &self.attempts)
            .field("paused", &self.paused)
            .field("reason", &self.reason)
            .field("last", &self.last)
            .finish()
    }
}

impl<E: fmt::Display> fmt::Display for RetryError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempts, paused, reason, last, .. } = self;
        match (reason, attempts) {
            // There was no retry, so the error needs no addition.
            (GiveUpReason::NotRetryable, 1) => write!(f, "{last}"),
            (_, 1) => write!(f, "given up after 1 attempt: {last}"),
            _ => write!(f, "given up after {attempts} attempts and {paused:.1?} of pauses: {last}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> StdError for RetryError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some((self.as_error)(&self.last))
    }
}

#[cfg(test)]
mod tests;
