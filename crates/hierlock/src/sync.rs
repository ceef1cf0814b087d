//! The lock types of `memory:`: the real ones, or those of the model checker shuttle.

#[cfg(not(feature = "model"))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(feature = "model")]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(feature = "model"))]
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(feature = "model")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
