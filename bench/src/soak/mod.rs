//! Fault injection: processes that use hierlock are killed, stopped and disconnected at random, with every backend and
//! every part of the toolbox, and the recorded history is checked. `README.md` describes how to run it and what its
//! counts mean.
//!
//! ```text
//!   bin/soak.rs ──► schedule.rs: the setups of each server one after the other, servers in parallel
//!                      │
//!                      ▼
//!                   setup_run.rs: one setup ──► slot.rs: one process at a time ──► proxy.rs ──► server.rs
//!                      │  faults.rs: kill, stop, cut, restart ──► driver_log.rs    │
//!                      │                                              │            ▼
//!                      │                                              │     worker/: use the library, or run
//!                      │                                              ▼            │ under `hierlock run`
//!                      ▼                                           check/ ◄────────┘ history.rs
//!                   final_check.rs: everything is free, every job is done
//!                      │
//!                      ▼
//!                   report.rs: counts, violations
//! ```

pub mod check;
pub mod clock;
pub mod driver_log;
pub mod faults;
pub mod final_check;
pub mod history;
pub mod proxy;
pub mod random;
pub mod report;
pub mod schedule;
pub mod server;
pub mod setup;
pub mod setup_run;
pub mod slot;
pub mod tree;
pub mod worker;

pub use crate::toolbox::Result;

use hierlock::database::Database;
use hierlock::queue::Queue;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;

/// The longest time to live of a lease.
pub const MAX_LEASE_TTL: Duration = Duration::from_secs(2);
/// The duration of a worker's claim of a job.
pub const JOB_LEASE_TTL: Duration = Duration::from_secs(2);

/// The help text.
pub const USAGE: &str = "\
usage: scripts/soak [SECONDS] [--seed N] [--backend NAME]… [--break] [--keep DIR]

Kills, stops and disconnects processes at random while they use hierlock, and checks what they recorded.

  SECONDS          how long faults are injected, 600 by default; starting and checking come on top
  --seed N         repeats the random choices of another run, as far as timing allows
  --backend NAME   only these setups: a backend (memory, file, sqlite, mysql, mariadb, postgres), a part
                   (locks, leases, queue), or a setup such as mysql-per-id; can be given several times
  --list           prints the setups
  --break          breaks every second process on purpose: the run must find it, and fail
  --keep DIR       keeps the histories there

Exit codes: 0 nothing was violated, 1 something was, 64 called wrongly, 69 a server is missing or fails,
130 interrupted";

/// The options of a run.
pub struct Options {
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether processes are broken on purpose.
    pub broken: bool,
    /// The directory of histories and files.
    pub directory: PathBuf,
    /// The `hierlock` command.
    pub hierlock: PathBuf,
    /// Becomes true when the run is to end at once.
    pub interrupted: watch::Receiver<bool>,
}

/// Returns the queue of a database. Failed jobs are retried after a short pause.
///
/// # Errors
/// Never fails for this name.
pub fn queue(database: &Database) -> hierlock::Result<Queue> {
    let queue = Queue::new(database.clone(), "soak")?;
    Ok(queue.pauses(Duration::from_millis(20), Duration::from_millis(300)))
}
