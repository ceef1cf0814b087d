//! One shim picks std's lock types or the model checker's.

#[cfg(feature = "model")]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
use std::sync::PoisonError;
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};

/// Locks; a panic elsewhere does not spread. No code of ours leaves a table half-changed across a
/// point that can panic, and a stranded table would strand every waiter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
