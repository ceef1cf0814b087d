//! `file:PATH`: locks among the processes of one host, as byte-range locks on an empty file.
//!
//! ```text
//!   acquire ──► open PATH: an open file description of its own
//!                │  one byte a slot, ascending (level, slot):  F_OFD_SETLK  ──free──► next
//!                │                                                  │ not free
//!                │                              KernelWait: a thread in F_OFD_SETLKW,
//!                │                              ended by a signal when nobody waits any more
//!                ▼ all taken, and PATH is still this file
//!              FileHold ──drop──► unlock and close; the kernel does the same when a process dies
//! ```
//!
//! The kernel knows shared and exclusive, no queue order, and finds no circles. So an extension waits
//! only where that cannot close one: for a slot beyond all that the guard holds. Otherwise it gets
//! the slot at once or is refused ([`Error::is_deadlock`](crate::Error::is_deadlock)).

mod backend;
mod default_path;
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

pub(crate) const SLOTS: crate::Slots = crate::Slots::Bytes;
pub(crate) const MODES: crate::ModeSet = crate::ModeSet::SharedExclusive;
