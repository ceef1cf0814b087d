//! The records of a run: everything that reports need.

use crate::observation::{Lock, LockedObject, Observation, SessionName, Wait};
use crate::place::{Engine, Place};
use crate::scenario::{Case, Scenario};
use crate::text::join;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// One case, run once.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The scenario: its path below `scenarios/` without the extension, such as `deadlock/cycle`.
    pub scenario: String,
    /// Its file, for messages.
    pub file: String,
    /// The first line of the file.
    pub title: String,
    /// The value of each axis, in the order of the file; empty where nothing varies.
    #[serde(serialize_with = "as_map")]
    pub variant: Vec<(String, String)>,
    /// Where.
    pub place: Place,
    /// What the server calls itself, such as `MySQL 9.7.4`.
    pub server: String,
    /// Which of several repetitions, from 1.
    pub round: u32,
    /// From the first step to the last.
    #[serde(rename = "took_ms", serialize_with = "as_millis")]
    pub took: Duration,
    /// What was done, in order.
    pub steps: Vec<StepRecord>,
    /// The deadlocks there were.
    pub deadlocks: Vec<Deadlock>,
    /// Waits in a circle that the engine did not end.
    pub circles: Vec<WaitCycle>,
    /// What else there is to say, such as that a transaction was left prepared and rolled back.
    pub notes: Vec<String>,
    /// What is to be said of it all.
    pub verdict: Verdict,
    /// Whether the anomaly that the scenario looks for has shown; `None` where it looks for none.
    pub anomaly: Option<bool>,
}

/// One line of a transcript, as it went.
#[derive(Clone, Debug, Serialize)]
pub struct StepRecord {
    /// Its line in the file.
    pub line: usize,
    /// Who did it: for `victim` and `survivor`, who that was.
    pub session: SessionName,
    /// What was done, as it was sent; of a line that only looks (`B<`), empty.
    pub text: String,
    /// When it began, since the first step.
    #[serde(rename = "began_ms", serialize_with = "as_millis")]
    pub began: Duration,
    /// What was first seen of it.
    pub seen: Observation,
    /// When that was.
    #[serde(rename = "seen_ms", serialize_with = "as_millis")]
    pub seen_at: Duration,
    /// How it ended, if it was blocked at first and ended later.
    pub ended: Option<WaitEnd>,
    /// What the file expects there, in its own words; empty where it says nothing.
    pub expected: String,
    /// How that differs from what was seen, in a sentence.
    pub difference: Option<String>,
    /// Who waited for whom after it.
    pub waits: Vec<Wait>,
    /// The locks of all sessions after it, if they were asked for.
    pub locks: Option<Vec<Lock>>,
}

impl StepRecord {
    /// A step that begins, of which nothing was seen yet.
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
        }
    }

    /// Returns how it ended, or else what was first seen of it.
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
    /// During which step, as an index into [`Record::steps`]: the one that let it go.
    pub during: usize,
}

/// A deadlock: who waited for whom when it was found.
#[derive(Clone, Debug, Serialize)]
pub struct Deadlock {
    /// The index of the step that closed the circle.
    pub step: usize,
    /// Who was chosen to end it.
    pub victim: SessionName,
    /// Who waited for whom.
    pub circle: Cycle,
}

/// Waits in a circle that the engine does not end.
#[derive(Clone, Debug, Serialize)]
pub struct WaitCycle {
    /// The index of the step that closed it.
    pub step: usize,
    pub links: Cycle,
}

/// One link of a circle.
#[derive(Clone, Debug, Serialize)]
pub struct WaitEdge {
    /// Who waits.
    pub waiter: SessionName,
    /// For whom.
    pub holder: SessionName,
    /// For what, if the engine tells.
    pub wants: Option<LockedObject>,
    /// The locks and queued requests of the holder that are in the waiter's way, as far as they are known.
    pub blocking: Vec<BlockingLock>,
    /// What is not known about this link, a sentence each.
    pub unknown: Vec<String>,
}

/// A cycle: each waits for the next, the last for the first.
pub(crate) type Cycle = Vec<WaitEdge>;

/// A lock of one session that another waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockingLock {
    /// On what, and in which mode.
    #[serde(rename = "thing")]
    pub target: LockedObject,
    /// Held. Otherwise it is a request that is queued in front of the waiter's.
    pub granted: bool,
    /// The index of the step whose statement asked for it, if that is known.
    pub statement: Option<usize>,
    /// The index of the step in which it was granted, which is later if it had to wait; `None` if queued or unknown.
    pub granted_in: Option<usize>,
    /// Why it is not known which statement asked for it, in a sentence.
    pub unknown: Option<String>,
}

impl WaitEdge {
    /// A link of which nothing is known but who waits for whom, and for what.
    pub fn new(waiter: SessionName, holder: SessionName, wants: Option<LockedObject>) -> Self {
        Self { waiter, holder, wants, blocking: Vec::new(), unknown: Vec::new() }
    }
}

impl BlockingLock {
    /// A lock of which it is not known when it was taken.
    pub fn new(target: LockedObject, granted: bool) -> Self {
        Self { target, granted, statement: None, granted_in: None, unknown: None }
    }
}

/// What is to be said of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Verdict {
    /// Reality agrees with the file.
    Agrees,
    /// It does not; the first difference.
    Disagrees {
        /// The index of the step.
        step: usize,
        /// In a sentence.
        why: String,
    },
    /// It could not be run to its end.
    Failed {
        /// What happened.
        why: String,
    },
}

impl Verdict {
    /// Takes `next` unless there is something worse than agreement already: the first reason counts.
    pub(crate) fn keep_first(&mut self, next: Verdict) {
        if *self == Self::Agrees {
            *self = next;
        }
    }
}

/// Everything of one call.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// What was run, in the order of the scenarios, then of the places.
    pub records: Vec<Record>,
    /// Engines that were wanted and are not there, with the reason and how to get them.
    pub missing: Vec<MissingEngine>,
    /// Set if the call was ended before everything was run: the report is partial then.
    pub interruption: Option<Interruption>,
    /// The whole of it.
    #[serde(rename = "took_ms", serialize_with = "as_millis")]
    pub took: Duration,
}

/// The end of a call before everything was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interruption {
    /// How many cases were run to their end, each repetition counted.
    pub finished: usize,
    pub planned: usize,
}

impl std::fmt::Display for Interruption {
    /// `interrupted: 3 of 12 cases were run; this report is partial`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Interruption { finished, planned } = self;
        write!(f, "interrupted: {finished} of {planned} cases were run; this report is partial")
    }
}

/// An engine that is not there.
#[derive(Clone, Debug, Serialize)]
pub struct MissingEngine {
    /// Which.
    pub engine: Engine,
    /// Why, and what would bring it.
    pub why: String,
}

impl Record {
    /// A record of a scenario that has not begun.
    pub fn new(scenario: &Scenario, place: Place) -> Self {
        Self {
            scenario: scenario.name.clone(),
            file: scenario.file.clone(),
            title: scenario.title.clone(),
            variant: Vec::new(),
            place,
            server: String::new(),
            round: 1,
            took: Duration::ZERO,
            steps: Vec::new(),
            deadlocks: Vec::new(),
            circles: Vec::new(),
            notes: Vec::new(),
            verdict: Verdict::Agrees,
            anomaly: None,
        }
    }

    /// `deadlock/cycle [read committed]`
    pub fn case_name(&self) -> String {
        if self.variant.is_empty() {
            return self.scenario.clone();
        }
        let values = join(self.variant.iter().map(|(_, value)| value), ", ");
        format!("{} [{values}]", self.scenario)
    }

    pub(crate) fn is_of(&self, case: &Case) -> bool {
        self.place == case.place && self.variant == case.variant
    }

    /// Does reality agree?
    pub fn agrees(&self) -> bool {
        self.verdict == Verdict::Agrees
    }
}

impl Report {
    /// Does reality agree in every case, and was every case run?
    pub fn agrees(&self) -> bool {
        self.interruption.is_none() && self.records.iter().all(Record::agrees)
    }
}

/// Milliseconds, to the microsecond: what is finer is noise.
fn as_millis<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_micros() as f64 / 1000.0)
}

/// An object with the axes as its members, in their order.
fn as_map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(axis, value)| (axis, value)))
}
