//! What the driver did, and when.

use super::check::{Disturbance, Process, Violation};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often what was done.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Processes that were started.
    pub processes: u64,
    /// Those of them that were killed.
    pub kills: u64,
    /// Stopped for a while.
    pub stops: u64,
    /// Connections of a slot reset, for client and server, or for one of them.
    pub resets: u64,
    /// Connections of a slot that forwarded nothing for a while.
    pub stalls: u64,
    /// Connections of a slot on which answers were lost.
    pub lost_answers: u64,
    /// Connections of a slot on which bytes came a few at a time.
    pub splits: u64,
    /// Servers that were restarted in good order.
    pub restarts: u64,
    /// Servers that were killed and started again.
    pub crashes: u64,
    /// How `hierlock run` ended, by exit code, of those that were not killed.
    pub exits: BTreeMap<i32, u64>,
}

impl Counts {
    /// Adds another one's.
    pub fn add(&mut self, other: &Counts) {
        self.processes += other.processes;
        self.kills += other.kills;
        self.stops += other.stops;
        self.resets += other.resets;
        self.stalls += other.stalls;
        self.lost_answers += other.lost_answers;
        self.splits += other.splits;
        self.restarts += other.restarts;
        self.crashes += other.crashes;
        for (code, count) in &other.exits {
            *self.exits.entry(*code).or_default() += count;
        }
    }

    /// All that was done to networks.
    pub fn cuts(&self) -> u64 {
        self.resets + self.stalls + self.lost_answers + self.splits
    }
}

/// What the driver writes down.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// Processes by their numbers.
    pub processes: BTreeMap<u32, Process>,
    /// What was done other than kills.
    pub disturbances: Vec<Disturbance>,
    /// How often.
    pub counts: Counts,
    /// What the driver saw that must not be.
    pub violations: Vec<Violation>,
}

/// What the driver did, shared by its tasks.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Entries>);

impl Ledger {
    /// To read and to write.
    pub fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process is about to be started; its number.
    pub fn start(&self, slot: usize) -> u32 {
        let mut entries = self.entries();
        entries.counts.processes += 1;
        let worker = entries.counts.processes as u32;
        entries.processes.insert(worker, Process { slot, ..Process::default() });
        worker
    }

    /// Something must not be.
    pub fn violation(&self, words: String) {
        self.entries().violations.push(Violation::Other(words));
    }

    /// Something was done.
    pub fn disturb(&self, disturbance: Disturbance) {
        self.entries().disturbances.push(disturbance);
    }
}
