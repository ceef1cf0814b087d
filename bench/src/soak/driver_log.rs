//! The log of the driver: the processes that it started, and the faults that it injected, with their times.

use super::check::{Fault, Process, Violation};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The counts of the driver's actions.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Processes that were started.
    pub processes: u64,
    /// Processes that were killed.
    pub kills: u64,
    /// Processes that were stopped for a while.
    pub stops: u64,
    /// Slots whose connections were reset, for client and server or for one of them.
    pub resets: u64,
    /// Slots whose connections forwarded nothing for a while.
    pub stalls: u64,
    /// Slots on whose connections responses were lost.
    pub lost_responses: u64,
    /// Slots on whose connections bytes arrived a few at a time.
    pub splits: u64,
    /// Servers that were shut down in order and started again.
    pub restarts: u64,
    /// Servers that were killed and started again.
    pub crashes: u64,
    /// The exit codes of `hierlock run`, without killed processes.
    pub exits: BTreeMap<i32, u64>,
}

impl Counts {
    /// Adds the counts of another setup.
    pub fn add(&mut self, other: &Counts) {
        self.processes += other.processes;
        self.kills += other.kills;
        self.stops += other.stops;
        self.resets += other.resets;
        self.stalls += other.stalls;
        self.lost_responses += other.lost_responses;
        self.splits += other.splits;
        self.restarts += other.restarts;
        self.crashes += other.crashes;
        for (code, count) in &other.exits {
            *self.exits.entry(*code).or_default() += count;
        }
    }

    /// Returns the number of all network faults.
    pub fn cuts(&self) -> u64 {
        self.resets + self.stalls + self.lost_responses + self.splits
    }
}

/// The entries of a [`DriverLog`].
#[derive(Clone, Debug, Default)]
pub struct LogEntries {
    /// Processes by their numbers.
    pub processes: BTreeMap<u32, Process>,
    /// The faults, without kills.
    pub faults: Vec<Fault>,
    /// The counts.
    pub counts: Counts,
    /// The violations that the driver itself has seen.
    pub violations: Vec<Violation>,
}

/// The log of the driver, shared by its tasks.
#[derive(Debug, Default)]
pub struct DriverLog(Mutex<LogEntries>);

impl DriverLog {
    /// Locks the entries for reading and writing.
    pub fn entries(&self) -> MutexGuard<'_, LogEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a process that is about to start, and returns its number.
    pub fn add_process(&self, slot: usize) -> u32 {
        let mut entries = self.entries();
        entries.counts.processes += 1;
        let worker = entries.counts.processes as u32;
        entries.processes.insert(worker, Process { slot, ..Process::default() });
        worker
    }

    /// Adds a violation.
    pub fn add_violation(&self, text: String) {
        self.entries().violations.push(Violation::Other(text));
    }

    /// Adds a fault.
    pub fn add_fault(&self, fault: Fault) {
        self.entries().faults.push(fault);
    }
}
