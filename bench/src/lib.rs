//! hierlock's `memory:` beside what one would write by hand: the same work done by each contender,
//! timed and weighed in one run. `README.md` says how to run it and how to read it.
//!
//! ```text
//!   contenders/  who: hierlock, RwLocks in a map, lockable       ─┐
//!   work.rs      what is timed: the lines of the table            ├─ entrants.rs ─► bin/ratios.rs
//!   bytes.rs     what is weighed, with the count of allocator.rs ─┘                 benches/
//!   filling.rs   ways to fill a lock table on a server           ─── bin/provision.rs
//!   toolbox/     jobs and leases in plain SQL                    ─── bin/toolbox.rs, bin/killed.rs
//!   soak/        hierlock under fire, with a history check       ─── bin/soak.rs, scripts/soak
//! ```

pub mod allocator;
pub mod bytes;
pub mod contenders;
pub mod entrants;
pub mod filling;
pub mod servers;
pub mod soak;
pub mod toolbox;
pub mod work;
