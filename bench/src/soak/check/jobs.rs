//! Was every job done exactly once in effect?

use super::Violation;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the jobs of a queue when all work is over.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// Those whose enqueueing was confirmed.
    pub added: BTreeSet<i64>,
    /// How often the effect of each is there.
    pub effects: BTreeMap<i64, u64>,
    /// The workers that began to run each, one for each run.
    pub runs: BTreeMap<i64, Vec<u32>>,
    /// Workers that were killed or disturbed: their runs may have been cut short.
    pub disturbed: BTreeSet<u32>,
    /// Jobs of which a run says itself that it failed or was lost.
    pub failed: BTreeSet<i64>,
    /// How many are left in the queue, by state.
    pub left: BTreeMap<&'static str, u64>,
}

/// What a queue did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Jobs that were added.
    pub added: u64,
    /// Those whose effect is there.
    pub done: u64,
    /// Those that were run more than once.
    pub run_again: u64,
}

/// Checks the jobs of a queue.
pub fn check_jobs(jobs: &Jobs) -> (JobCounts, Vec<Violation>) {
    let mut found = Vec::new();
    let mut say = |words: String| found.push(Violation::Other(words));
    for job in jobs.added.iter().filter(|job| !jobs.effects.contains_key(job)) {
        say(format!("lost: job {job} was added, and its effect is not there"));
    }
    for (job, times) in jobs.effects.iter().filter(|(_, times)| **times > 1) {
        say(format!("done twice: the effect of job {job} is there {times} times"));
    }
    for (state, count) in jobs.left.iter().filter(|(_, count)| **count > 0) {
        say(format!("stuck: {count} jobs are still {state}"));
    }
    let again = |runs: &Vec<u32>| runs.len() > 1;
    for (job, runs) in jobs.runs.iter().filter(|(_, runs)| again(runs)) {
        let is_disturbed = runs.iter().any(|worker| jobs.disturbed.contains(worker));
        if !is_disturbed && !jobs.failed.contains(job) {
            say(format!(
                "run twice: job {job} was run by {runs:?}, and nothing was done to any of them"
            ));
        }
    }
    let counts = JobCounts {
        added: jobs.added.len() as u64,
        done: jobs.effects.len() as u64,
        run_again: jobs.runs.values().filter(|runs| again(runs)).count() as u64,
    };
    (counts, found)
}
