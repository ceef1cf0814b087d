//! hierlock under fire: processes that are killed, stopped and cut off at random, over every way to lock and all
//! of the toolbox, with a history that is checked. `README.md` says how to run it and what its counts mean.
//!
//! ```text
//!   bin/soak.rs ──► lanes.rs: the setups of a place one after the other, places beside each other
//!                      │
//!                      ▼
//!                   arena.rs: one setup ──► slot.rs: a process after the other ──► proxy.rs ──► server.rs
//!                      │  faults.rs: kill, stop, cut, restart ──► ledger.rs        │
//!                      │                                              │            ▼
//!                      │                                              │     worker/: use the library, or are run
//!                      │                                              ▼            │ by `hierlock run`
//!                      ▼                                           check/ ◄────────┘ history.rs
//!                   finish.rs: everything is free, every job done   pure
//!                      │
//!                      ▼
//!                   report.rs: counts, violations
//! ```

pub mod arena;
pub mod check;
pub mod clock;
pub mod faults;
pub mod finish;
pub mod history;
pub mod lanes;
pub mod ledger;
pub mod proxy;
pub mod random;
pub mod report;
pub mod server;
pub mod setup;
pub mod slot;
pub mod tree;
pub mod worker;

pub use crate::toolbox::Result;

use hierlock::database::Database;
use hierlock::queue::Queue;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;

/// The longest time for which a lease is taken.
pub const LONGEST_LEASE: Duration = Duration::from_secs(2);
/// How long a claimed job is its worker's.
pub const LEASE_OF_JOBS: Duration = Duration::from_secs(2);

/// How to call it.
pub const USAGE: &str = "\
usage: scripts/soak [SECONDS] [--seed N] [--backend NAME]… [--break] [--keep DIR]

Kills, stops and cuts off processes at random while they use hierlock, and checks what they recorded.

  SECONDS          how long processes are under fire, 600 unless told; starting and checking come on top
  --seed N         repeats the random choices of another run, as far as timing allows
  --backend NAME   only these: a place (memory, file, sqlite, mysql, mariadb, postgres), a part
                   (locks, leases, queue), or a setup such as mysql-per-id; can be given several times
  --list           prints the setups
  --break          breaks every second process on purpose: the run must find it, and fail
  --keep DIR       keeps the histories there

Exit codes: 0 nothing was violated, 1 something was, 64 called wrongly, 69 a server is missing or fails,
130 interrupted";

/// What a run is told.
pub struct Options {
    /// Of all random choices.
    pub seed: u64,
    /// Are processes broken on purpose?
    pub broken: bool,
    /// Where histories and files are.
    pub directory: PathBuf,
    /// The `hierlock` command.
    pub hierlock: PathBuf,
    /// Is it to end at once?
    pub interrupted: watch::Receiver<bool>,
}

/// Returns the queue of a database, which tries what failed again soon.
///
/// # Errors
/// Never, for this name.
pub fn queue(database: &Database) -> hierlock::Result<Queue> {
    let queue = Queue::new(database.clone(), "soak")?;
    Ok(queue.pauses(Duration::from_millis(20), Duration::from_millis(300)))
}
