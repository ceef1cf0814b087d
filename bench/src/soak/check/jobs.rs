//! Checks that every job took effect exactly once.

use super::Violation;
use std::collections::{BTreeMap, BTreeSet};

/// The state of the jobs of a queue after all work is done.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// Jobs whose enqueueing was confirmed.
    pub added: BTreeSet<i64>,
    /// The number of effects of each job.
    pub effects: BTreeMap<i64, u64>,
    /// The workers that started each job, one for each run.
    pub runs: BTreeMap<i64, Vec<u32>>,
    /// Workers that were killed or hit by a fault. Their runs may be incomplete.
    pub faulted: BTreeSet<u32>,
    /// Jobs with a run that recorded a failure or a lost claim.
    pub failed: BTreeSet<i64>,
    /// The number of jobs left in the queue, by state.
    pub left: BTreeMap<&'static str, u64>,
}

/// The counts of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Jobs that were added.
    pub added: u64,
    /// Jobs that took effect.
    pub done: u64,
    /// Jobs that were run more than once.
    pub run_again: u64,
}

/// Checks the jobs of a queue.
pub fn check_jobs(jobs: &Jobs) -> (JobCounts, Vec<Violation>) {
    let mut violations = Vec::new();
    let mut report = |text: String| violations.push(Violation::Other(text));
    for job in jobs.added.iter().filter(|job| !jobs.effects.contains_key(job)) {
        report(format!("lost: job {job} was added, but its effect is missing"));
    }
    for (job, times) in jobs.effects.iter().filter(|(_, times)| **times > 1) {
        report(format!("done twice: job {job} took effect {times} times"));
    }
    for (state, count) in jobs.left.iter().filter(|(_, count)| **count > 0) {
        report(format!("stuck: {count} jobs are still {state}"));
    }
    let is_run_again = |runs: &Vec<u32>| runs.len() > 1;
    for (job, runs) in jobs.runs.iter().filter(|(_, runs)| is_run_again(runs)) {
        let is_faulted = runs.iter().any(|worker| jobs.faulted.contains(worker));
        if !is_faulted && !jobs.failed.contains(job) {
            report(format!(
                "run twice: job {job} was run by {runs:?}, and no fault was injected into any of them"
            ));
        }
    }
    let counts = JobCounts {
        added: jobs.added.len() as u64,
        done: jobs.effects.len() as u64,
        run_again: jobs.runs.values().filter(|runs| is_run_again(runs)).count() as u64,
    };
    (counts, violations)
}
