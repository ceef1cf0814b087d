//! Holders and waiters on a server, with application paths where they are known.
//!
//! ```text
//!   LockInspector ──snapshot──► LockSnapshot: sessions with their locks and waits, trees by root blocker
//!      │ queries hierlock-engine (by pid) and the lock tables of the database
//!      ├─ lock_slot: the slot of a lock
//!      ├─ row_locks: the holders of row locks on PostgreSQL, for rows that labels name
//!      └─ update_keys: the slot of the advisory key of an update lock
//!   LockSnapshot, one after another ──► SlotStatistics: the waits for each slot, and their paths
//! ```
//!
//! A path in a label is used for a slot only if the node, or an ancestor of it, maps to that slot. So a stale label names no
//! wrong node.

mod inspector;
mod lock_slot;
mod lock_tables;
mod path_filter;
mod row_locks;
mod slot_statistics;
mod slot_wait;
mod snapshot;
mod update_keys;

pub use inspector::LockInspector;
pub use lock_slot::LockSlot;
pub use path_filter::{PathFilter, PathRelation};
pub use slot_statistics::{SlotStatistics, SlotSummary};
pub use slot_wait::FalseContention;
pub use snapshot::{LockSnapshot, PreparedTransaction, ReportedLock, ReportedWait, SessionLocks};
