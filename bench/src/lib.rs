//! Compares hierlock with code that does the same work without it, in one run. `README.md` describes how to run the
//! benchmarks and how to read their results.
//!
//! ```text
//!   contenders/  hierlock, RwLocks in a map, lockable            ─┐
//!   work.rs      the workloads that are timed                     ├─ any_contender.rs ─► bin/ratios.rs
//!   bytes.rs     memory use, counted by allocator.rs             ─┘                      benches/
//!   samples.rs   median and progress                             ─── bin/
//!   filling.rs   ways to fill a lock table on a server           ─── bin/provision.rs
//!   servers/     locks on real servers                           ─── bin/servers.rs
//!   toolbox/     jobs and leases in plain SQL                    ─── bin/toolbox.rs, bin/killed.rs
//!   soak/        fault injection, with a check of the history    ─── bin/soak.rs, scripts/soak
//! ```

pub mod allocator;
pub mod any_contender;
pub mod bytes;
pub mod contenders;
pub mod filling;
pub mod samples;
pub mod servers;
pub mod soak;
pub mod toolbox;
pub mod work;
