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

use crate::error::Result;
use crate::hierarchy::Hierarchy;
use crate::mode::ModeSet;
use crate::plan::{Claim, Plan, Slots};

mod place;
pub use place::default_path;

#[cfg(target_os = "linux")]
mod backend;
#[cfg(target_os = "linux")]
mod interrupt;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(all(test, target_os = "linux"))]
mod tests;
#[cfg(target_os = "linux")]
mod token;
#[cfg(target_os = "linux")]
pub use backend::{FileBackend, FileHold};

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{FileBackend, FileHold};

const SLOTS: Slots = Slots::Bytes;
const MODES: ModeSet = ModeSet::SharedExclusive;

/// The bytes of an acquire; touches no file.
pub(crate) fn plan(hierarchy: &Hierarchy, claims: impl IntoIterator<Item = Claim>) -> Result<Plan> {
    Plan::new(hierarchy, claims, SLOTS, MODES)
}
