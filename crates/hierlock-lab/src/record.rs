//! The records of a run: everything that the reports need.

use crate::engine::{BackendKind, Engine};
use crate::observation::{Lock, LockTarget, Observation, SessionName, SessionWait};
use crate::scenario::{Case, Scenario};
use crate::text::join;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// The record of one run of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The scenario: its path below `scenarios/` without the extension, such as `deadlock/cycle`.
    pub scenario: String,
    /// The path of the file, for messages.
    pub file: String,
    /// The first line of the file.
    pub title: String,
    /// The value of each axis, in the order of the file; empty without axes.
    #[serde(serialize_with = "as_map")]
    pub variant: Vec<(String, String)>,
    /// The engine, and the strategy for scenarios that lock nodes on a server.
    pub backend: BackendKind,
    /// The name and version of the server, such as `MySQL 9.7.4`.
    pub server: String,
    /// The number of the repetition, from 1.
    pub round: u32,
    /// The time from the first step to the last.
    #[serde(rename = "took_ms", serialize_with = "as_millis")]
    pub took: Duration,
    /// The steps, in order.
    pub steps: Vec<StepRecord>,
    /// The deadlocks that occurred.
    pub deadlocks: Vec<Deadlock>,
    /// Cycles of waits that the engine did not resolve.
    pub cycles: Vec<WaitCycle>,
    /// Further notes, such as that a prepared transaction was left and rolled back.
    pub notes: Vec<String>,
    /// The result.
    pub verdict: Verdict,
    /// Whether the anomaly that the scenario looks for has occurred; `None` if it looks for none.
    pub anomaly: Option<bool>,
}

/// The record of one line of a transcript.
#[derive(Clone, Debug, Serialize)]
pub struct StepRecord {
    /// The line in the file.
    pub line: usize,
    /// The session; for `victim` and `survivor`, the actual one.
    pub session: SessionName,
    /// The text as it was sent; empty for a line that only observes (`B<`).
    pub text: String,
    /// The time of its begin, since the first step.
    #[serde(rename = "began_ms", serialize_with = "as_millis")]
    pub began: Duration,
    /// The first observation.
    pub seen: Observation,
    /// The time of the first observation.
    #[serde(rename = "seen_ms", serialize_with = "as_millis")]
    pub seen_at: Duration,
    /// The end of the wait, if the step was blocked first and ended later.
    pub ended: Option<WaitEnd>,
    /// The expectation as the file writes it; empty if there is none.
    pub expected: String,
    /// The difference between the expectation and the observation, in a sentence.
    pub difference: Option<String>,
    /// The waits after the step.
    pub waits: Vec<SessionWait>,
    /// The locks of all sessions after the step, if they were recorded.
    pub locks: Option<Vec<Lock>>,
    /// The sessions whose locks are not all listed, with the reason.
    #[serde(skip)]
    pub incomplete_locks: BTreeMap<SessionName, String>,
}

impl StepRecord {
    /// Returns the record of a step that begins, without observations.
    pub fn new(line: usize, session: SessionName, text: String, began: Duration) -> Self {
        Self {
            line,
            session,
            text,
            began,
            seen: Observation::Stuck,
            seen_at: began,
            ended: None,
            expected: String::new(),
            difference: None,
            waits: Vec::new(),
            locks: None,
            incomplete_locks: BTreeMap::new(),
        }
    }

    /// Returns the observation at the end of the wait, or else the first one.
    pub(crate) fn last_observation(&self) -> &Observation {
        self.ended.as_ref().map_or(&self.seen, |end| &end.observation)
    }
}

/// The end of a wait.
#[derive(Clone, Debug, Serialize)]
pub struct WaitEnd {
    pub observation: Observation,
    #[serde(rename = "at_ms", serialize_with = "as_millis")]
    pub at: Duration,
    /// The index of the step in [`Record::steps`] that ended the wait.
    pub during: usize,
}

/// A deadlock, with its cycle of waits.
#[derive(Clone, Debug, Serialize)]
pub struct Deadlock {
    /// The index of the step that closed the cycle.
    pub step: usize,
    /// The session that the engine has chosen as the victim.
    pub victim: SessionName,
    /// The waits of the cycle.
    pub cycle: Cycle,
}

/// A cycle of waits that the engine does not resolve.
#[derive(Clone, Debug, Serialize)]
pub struct WaitCycle {
    /// The index of the step that closed the cycle.
    pub step: usize,
    pub links: Cycle,
}

/// One edge of a cycle of waits.
#[derive(Clone, Debug, Serialize)]
pub struct WaitEdge {
    /// The session that waits.
    pub waiter: SessionName,
    /// The session that it waits for.
    pub holder: SessionName,
    /// The lock that it waits for, if the engine reports it.
    pub wants: Option<LockTarget>,
    /// The locks and queued requests of the holder that block the waiter, as far as they are known.
    pub blocking: Vec<BlockingLock>,
    /// The facts that are not known about this edge, a sentence each.
    pub unknown: Vec<String>,
}

/// A cycle: each session waits for the next, the last one for the first.
pub(crate) type Cycle = Vec<WaitEdge>;

/// A lock or queued request of one session that blocks another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockingLock {
    /// The object and the mode.
    #[serde(rename = "thing")]
    pub target: LockTarget,
    /// Held. Otherwise a request that is queued before the waiter's.
    pub granted: bool,
    /// The index of the step whose statement requested it, if that is known.
    pub statement: Option<usize>,
    /// The index of the step in which it was granted, which is later if it had to wait; `None` if queued or unknown.
    pub granted_in: Option<usize>,
    /// The reason why the statement is not known, in a sentence.
    pub unknown: Option<String>,
}

impl WaitEdge {
    /// Returns an edge without blocking locks.
    pub fn new(waiter: SessionName, holder: SessionName, wants: Option<LockTarget>) -> Self {
        Self { waiter, holder, wants, blocking: Vec::new(), unknown: Vec::new() }
    }
}

impl BlockingLock {
    /// Returns a lock whose statement is not known.
    pub fn new(target: LockTarget, granted: bool) -> Self {
        Self { target, granted, statement: None, granted_in: None, unknown: None }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Verdict {
    /// All observations agree with the file.
    Agrees,
    /// An observation differs from the file; the first one counts.
    Disagrees {
        /// The index of the step.
        step: usize,
        /// The difference, in a sentence.
        why: String,
    },
    /// The case could not be run to its end.
    Failed {
        /// The reason.
        why: String,
    },
}

impl Verdict {
    /// Sets the verdict to `next` unless it is already worse than agreement: the first reason counts.
    pub(crate) fn keep_first(&mut self, next: Verdict) {
        if *self == Self::Agrees {
            *self = next;
        }
    }
}

/// All records of one call.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The records, in the order of the scenarios, then of the backends.
    pub records: Vec<Record>,
    /// Engines that were requested but are not available, with the reason and how to get them.
    pub missing: Vec<MissingEngine>,
    /// Set if the call ended before all cases were run: the report is partial then.
    pub interruption: Option<Interruption>,
    /// The duration of the call.
    pub took: Duration,
}

/// The end of a call before all cases were run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interruption {
    /// The number of cases that have ended, each repetition counted.
    pub finished: usize,
    pub planned: usize,
}

impl std::fmt::Display for Interruption {
    /// Writes `interrupted: 3 of 12 cases were run; this report is partial`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Interruption { finished, planned } = self;
        write!(f, "interrupted: {finished} of {planned} cases were run; this report is partial")
    }
}

/// An engine that is not available.
#[derive(Clone, Debug, Serialize)]
pub struct MissingEngine {
    /// The engine.
    pub engine: Engine,
    /// The reason, and how to get the engine.
    pub why: String,
}

impl Record {
    /// Returns the record of a scenario that has not begun.
    pub fn new(scenario: &Scenario, backend: BackendKind) -> Self {
        Self {
            scenario: scenario.name.clone(),
            file: scenario.file.clone(),
            title: scenario.title.clone(),
            variant: Vec::new(),
            backend,
            server: String::new(),
            round: 1,
            took: Duration::ZERO,
            steps: Vec::new(),
            deadlocks: Vec::new(),
            cycles: Vec::new(),
            notes: Vec::new(),
            verdict: Verdict::Agrees,
            anomaly: None,
        }
    }

    /// Returns a name such as `deadlock/cycle [read committed]`.
    pub fn case_name(&self) -> String {
        if self.variant.is_empty() {
            return self.scenario.clone();
        }
        let values = join(self.variant.iter().map(|(_, value)| value), ", ");
        format!("{} [{values}]", self.scenario)
    }

    pub(crate) fn belongs_to(&self, case: &Case) -> bool {
        self.backend == case.backend && self.variant == case.variant
    }

    /// Returns whether all observations agree with the file.
    pub fn agrees(&self) -> bool {
        self.verdict == Verdict::Agrees
    }
}

impl Report {
    /// Returns whether all records agree, and all cases were run.
    pub fn agrees(&self) -> bool {
        self.interruption.is_none() && self.records.iter().all(Record::agrees)
    }
}

/// Milliseconds, with microseconds as the fraction.
fn as_millis<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_micros() as f64 / 1000.0)
}

/// A JSON object with the axes as its members, in their order.
fn as_map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(axis, value)| (axis, value)))
}
