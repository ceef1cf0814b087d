//! The failures after which a transaction can be retried, and the errors that have such a cause: typed, or in a box.

#[cfg(feature = "_driver")]
use hierlock_engine::ErrorClass;
use std::error::Error as StdError;
use std::ops::Deref;

/// Why a transaction may succeed if it is retried from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryCause {
    /// The transaction was the victim of a deadlock: 1213, 3058, 40P01.
    Deadlock,
    /// Another transaction's change came first: 40001 of PostgreSQL, 1020 of MariaDB.
    Conflict,
    /// Another transaction writes to the database file: `SQLITE_BUSY`.
    Busy,
    /// A lock was not granted in time, or not without waiting: 1205, 3572, 55P03, and hierlock's
    /// [`is_timeout`](crate::Error::is_timeout), [`is_would_block`](crate::Error::is_would_block) and
    /// [`is_held`](crate::Error::is_held). Retried only with
    /// [`also_if_not_granted`](super::RetryPolicy::also_if_not_granted).
    NotGranted,
    /// A row has another version than expected: [`is_stale`](crate::Error::is_stale). Retried only with
    /// [`also_if_stale`](super::RetryPolicy::also_if_stale), since a retry helps only if it reads the row again.
    Stale,
}

/// An error that reports whether a retry may succeed.
///
/// ```
/// use hierlock::retry::{RetryCause, Retryable};
///
/// #[derive(Debug, thiserror::Error)]
/// enum MyError {
///     #[error(transparent)]
///     Database(#[from] sqlx::Error),
///     #[error("not enough money")]
///     NotEnoughMoney,
/// }
///
/// impl Retryable for MyError {
///     fn retry_cause(&self) -> Option<RetryCause> {
///         match self {
///             MyError::Database(error) => error.retry_cause(),
///             MyError::NotEnoughMoney => None,
///         }
///     }
/// }
/// # let _ = MyError::NotEnoughMoney.retry_cause();
/// ```
pub trait Retryable {
    /// Returns why a retry may succeed, or `None` if it would fail again.
    fn retry_cause(&self) -> Option<RetryCause>;
}

#[cfg(feature = "_driver")]
impl Retryable for sqlx::Error {
    fn retry_cause(&self) -> Option<RetryCause> {
        match ErrorClass::of(self) {
            ErrorClass::Deadlock => Some(RetryCause::Deadlock),
            ErrorClass::SerializationFailure => Some(RetryCause::Conflict),
            ErrorClass::Busy => Some(RetryCause::Busy),
            class if class.is_not_granted() => Some(RetryCause::NotGranted),
            _ => None,
        }
    }
}

impl Retryable for crate::Error {
    fn retry_cause(&self) -> Option<RetryCause> {
        match self {
            error if error.is_deadlock() => Some(RetryCause::Deadlock),
            error if error.is_timeout() || error.is_would_block() || error.is_held() => {
                Some(RetryCause::NotGranted)
            }
            error if error.is_stale() => Some(RetryCause::Stale),
            #[cfg(feature = "_driver")]
            error => error.sql_source().and_then(Retryable::retry_cause),
            #[cfg(not(feature = "_driver"))]
            _ => None,
        }
    }
}

/// See [`cause_of`].
impl Retryable for Box<dyn StdError + Send + Sync> {
    fn retry_cause(&self) -> Option<RetryCause> {
        cause_of(&**self)
    }
}

/// Returns the cause of the first error in a chain of sources that has one: a [`crate::Error`], a [`sqlx::Error`], or
/// either of them in a [`RetryError`](super::RetryError).
///
/// For an error of any other type that has one of these as a source:
///
/// ```
/// use hierlock::retry::{RetryCause, cause_of};
///
/// fn is_deadlock(error: &anyhow::Error) -> bool {
///     cause_of(error.as_ref()) == Some(RetryCause::Deadlock)
/// }
/// # assert!(!is_deadlock(&anyhow::anyhow!("no")));
/// ```
pub fn cause_of(error: &(dyn StdError + 'static)) -> Option<RetryCause> {
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.downcast_ref::<crate::Error>().and_then(Retryable::retry_cause);
        #[cfg(feature = "_driver")]
        let cause =
            cause.or_else(|| error.downcast_ref::<sqlx::Error>().and_then(Retryable::retry_cause));
        if cause.is_some() {
            return cause;
        }
        next = error.source();
    }
    None
}

/// The kind of an error whose type is [`Retryable`].
#[derive(Debug)]
pub enum TypedError {}

/// The kind of an error of any type in a box.
#[derive(Debug)]
pub enum BoxedError {}

/// An error of the work of [`retry`](super::retry()). There is nothing to implement. The trait is implemented for
///
/// - every error that is [`Retryable`], as [`TypedError`];
/// - every pointer to an error of any type, as [`BoxedError`]: `Box<dyn Error + Send + Sync>`, `anyhow::Error`. Their cause
///   is found by [`cause_of`].
///
/// `Kind` is inferred. A box does not implement `Error` itself, so without `Kind` the two implementations would overlap.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that `retry` can read",
    note = "implement `std::error::Error` and `hierlock::retry::Retryable` for it, or return \
            `Box<dyn Error + Send + Sync>` or `anyhow::Error`"
)]
pub trait AttemptError<Kind> {
    /// Returns why a retry may succeed, or `None` if it would fail again.
    fn cause(&self) -> Option<RetryCause>;

    /// Returns the error itself.
    fn as_error(&self) -> &(dyn StdError + 'static);
}

impl<E: Retryable + StdError + 'static> AttemptError<TypedError> for E {
    fn cause(&self) -> Option<RetryCause> {
        self.retry_cause()
    }

    fn as_error(&self) -> &(dyn StdError + 'static) {
        self
    }
}

impl<E: Deref<Target = dyn StdError + Send + Sync + 'static>> AttemptError<BoxedError> for E {
    fn cause(&self) -> Option<RetryCause> {
        cause_of(&**self)
    }

    fn as_error(&self) -> &(dyn StdError + 'static) {
        &**self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::LockConflict;

    #[test]
    fn errors_of_the_driver_itself_are_not_retryable() {
        assert_eq!(sqlx::Error::RowNotFound.retry_cause(), None);
        assert_eq!(sqlx::Error::PoolTimedOut.retry_cause(), None);
    }

    #[test]
    fn the_cause_is_found_in_a_chain_of_sources() {
        #[derive(Debug, thiserror::Error)]
        #[error("the report failed")]
        struct Outer(#[source] crate::Error);

        let (node, blocker) = ("u1".parse().unwrap(), crate::Blocker::Holder);
        let deadlock = crate::Error::deadlock(LockConflict::new(node, &[], blocker));
        let boxed: Box<dyn StdError + Send + Sync> = Box::new(Outer(deadlock));
        assert_eq!(boxed.retry_cause(), Some(RetryCause::Deadlock));
        let boxed: Box<dyn StdError + Send + Sync> = "something else".into();
        assert_eq!(boxed.retry_cause(), None);
    }
}
