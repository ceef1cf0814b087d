//! What was observed of a step, in words that are the same for all engines.

pub use hierlock_engine::introspection::LockKind;

use hierlock_engine::introspection::LockTarget;
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// A session of a scenario: a letter, or a longer name that begins with a capital.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionName(Arc<str>);

impl SessionName {
    /// The name, if it is one: a capital, then letters and digits.
    pub fn new(text: &str) -> Option<Self> {
        let is_name = text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.chars().all(|c| c.is_ascii_alphanumeric());
        is_name.then(|| Self(text.into()))
    }

    /// Returns the session of a letter from A to Z.
    pub(crate) fn of_letter(letter: char) -> Self {
        SessionName(letter.to_string().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for SessionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// What a statement returned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The rows, each cell as the server writes it; `None` of a statement that gives none.
    pub rows: Option<Vec<Vec<Option<String>>>>,
    pub changed: u64,
    /// `changed` counts matched rows, also where values stayed the same: MySQL and MariaDB do for updates.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_matched: bool,
}

/// How a statement failed, whatever the engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Chosen to end a deadlock.
    Deadlock,
    /// Waited as long as it was allowed to.
    TimedOut,
    /// Was not to wait, and would have had to.
    Refused,
    /// Somebody else's change came first: a serialization failure, or changed since the snapshot.
    Conflict,
    /// Ended by the lab, because it was stuck or the scenario was over.
    Cancelled,
    Other,
}

/// A statement that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// The engine's number or code, such as `1213` or `40P01`; empty where there is none.
    pub code: String,
    pub message: String,
    /// What it said besides, such as who waits for whom.
    pub detail: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, code: String::new(), message: message.into(), detail: None }
    }
}

/// What is locked: as much as the engine tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct LockedObject {
    /// Its kind; its name in JSON.
    #[serde(serialize_with = "by_name")]
    pub kind: LockKind,
    /// The table, the key, or the path of the node.
    pub object: String,
    /// The index, for a row or a gap.
    pub index: Option<String>,
    /// Which record, or the record behind the gap, such as `1` or `supremum`.
    pub record: Option<String>,
    /// The mode, in the engine's own words: `X,REC_NOT_GAP`, `AccessExclusiveLock`, `exclusive`.
    pub mode: String,
}

impl LockedObject {
    /// An object without an index or a record.
    pub fn new(kind: LockKind, object: impl ToString, mode: impl ToString) -> Self {
        let (object, mode) = (object.to_string(), mode.to_string());
        Self { kind, object, index: None, record: None, mode }
    }
}

impl fmt::Display for LockedObject {
    /// `row 1 of numbers (PRIMARY), X`, as the engine writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockedObject { kind, object, index, record, mode } = self.clone();
        LockTarget { kind, schema: None, object, index, record, mode }.fmt(f)
    }
}

fn by_name<S: Serializer>(kind: &LockKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// A session waits for others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    pub waiter: SessionName,
    /// Sessions of the scenario that are in the way, in the order of their names.
    pub blockers: Vec<SessionName>,
    /// Something outside of the scenario is in the way.
    #[serde(rename = "strangers")]
    pub has_outside_blocker: bool,
    /// For what, if the engine tells.
    #[serde(rename = "thing")]
    pub target: Option<LockedObject>,
}

/// A lock that a session has, or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Lock {
    pub session: SessionName,
    #[serde(rename = "thing")]
    pub target: LockedObject,
    /// Held, not only wanted.
    pub granted: bool,
}

/// What a step was seen to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Observation {
    Done(Answer),
    /// It waits, as the server said twice.
    Blocked(Wait),
    Failed(Failure),
    /// It neither ended nor was it seen to wait, for as long as the limit allows.
    Stuck,
}

impl Observation {
    pub fn is_deadlock(&self) -> bool {
        matches!(self, Self::Failed(Failure { kind: FailureKind::Deadlock, .. }))
    }

    pub fn is_over(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed(_))
    }
}
