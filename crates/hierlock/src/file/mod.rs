//! `file:PATH`: locks among the processes of one host, as byte-range locks on an empty file.
//!
//! ```text
//!   acquire ──► open PATH: an open file description of its own
//!                │  one byte per slot, ascending (level, slot):  F_OFD_SETLK  ──free──► next
//!                │                                                  │ not free
//!                │                              KernelWait: a thread in F_OFD_SETLKW,
//!                │                              ended by a signal when the future is dropped
//!                ▼ all locked, and PATH is still this file
//!              FileHold ──drop──► unlock and close; the kernel does the same when a process dies
//! ```
//!
//! The kernel has shared and exclusive locks, no queue order, and no deadlock detection. So an extension waits only where
//! it cannot close a cycle: for a slot beyond all that the guard holds. Otherwise it gets the slot at once or fails with
//! [`Error::is_deadlock`](crate::Error::is_deadlock).

mod backend;
mod default_path;
#[cfg(target_os = "linux")]
mod diagnosis;
#[cfg(target_os = "linux")]
mod interrupt;
#[cfg(target_os = "linux")]
mod lock_file;
#[cfg(not(target_os = "linux"))]
#[path = "no_lock_file.rs"]
mod lock_file;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod token;

pub use backend::{FileBackend, FileHold};
pub use default_path::default_path;
#[cfg(target_os = "linux")]
pub(crate) use diagnosis::diagnose;

pub(crate) const SLOTS: crate::Slots = crate::Slots::Bytes;
pub(crate) const MODES: crate::ModeSet = crate::ModeSet::SharedExclusive;

/// Fails, since lock files need Linux.
#[cfg(not(target_os = "linux"))]
pub(crate) fn diagnose(
    path: &std::path::Path,
) -> crate::Result<Vec<hierlock_engine::checks::Finding>> {
    FileBackend::open(path, crate::Hierarchy::default()).map(|_| Vec::new())
}
