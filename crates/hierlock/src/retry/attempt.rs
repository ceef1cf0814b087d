//! What an attempt may fail with: a typed error, or one in a box.

use super::{RetryCause, Retryable, cause_of};
use std::error::Error as StdError;
use std::ops::Deref;

/// An error of a type that says by itself whether another try is worth it.
#[derive(Debug)]
pub enum TypedError {}

/// An error of any type, in a box.
#[derive(Debug)]
pub enum BoxedError {}

/// What the work of [`retry`](super::retry()) may fail with. There is nothing to implement: it is there for
///
/// - every error that is [`Retryable`], as [`TypedError`];
/// - every pointer to an error of any type, as [`BoxedError`]: `Box<dyn Error + Send + Sync>`, `anyhow::Error`. These are read
///   with [`cause_of`].
///
/// `Kind` is inferred. A box is not an error itself, so the two cannot be one trait without it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that `retry` can read",
    note = "implement `std::error::Error` and `hierlock::retry::Retryable` for it, or return \
            `Box<dyn Error + Send + Sync>` or `anyhow::Error`"
)]
pub trait AttemptError<Kind> {
    /// Why another try may succeed, or `None` if it would fail again.
    fn cause(&self) -> Option<RetryCause>;

    /// The error itself.
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
