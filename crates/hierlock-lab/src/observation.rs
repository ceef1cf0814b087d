//! Observations of steps, in terms that are the same for all engines.

pub use hierlock_engine::introspection::{LockKind, LockTarget};

use serde::Serialize;
use std::fmt;

/// The name of a session: a letter, or a longer name that begins with a capital.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SessionName(Box<str>);

impl SessionName {
    /// Returns the name, if it is valid: a capital, then letters and digits.
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

/// The result of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The rows, each cell as the server writes it; `None` if the statement returns no rows.
    pub rows: Option<Vec<Vec<Option<String>>>>,
    pub changed: u64,
    /// `changed` counts matched rows, even if their values stay the same: MySQL and MariaDB do so for updates.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_matched: bool,
}

/// The kind of a failure, independent of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The session is the victim of a deadlock.
    Deadlock,
    /// The limit for the wait has passed.
    TimedOut,
    /// The lock is not free, and the statement does not wait (NOWAIT).
    Refused,
    /// Another transaction's change came first: a serialization failure, or a row changed since the snapshot.
    Conflict,
    /// Cancelled by the lab, because it was stuck or the scenario was over.
    Cancelled,
    Other,
}

/// The failure of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// The engine's error number or code, such as `1213` or `40P01`; empty where there is none.
    pub code: String,
    pub message: String,
    /// The detail of the error, such as which process waits for which.
    pub detail: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, code: String::new(), message: message.into(), detail: None }
    }
}

/// A lock wait of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionWait {
    pub waiter: SessionName,
    /// The sessions of the scenario that block it, in the order of their names.
    pub blockers: Vec<SessionName>,
    /// A session outside of the scenario blocks it.
    #[serde(rename = "strangers")]
    pub has_outside_blocker: bool,
    /// The lock that it waits for, if the engine reports it.
    #[serde(rename = "thing")]
    pub target: Option<LockTarget>,
}

/// A lock that a session holds or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Lock {
    pub session: SessionName,
    #[serde(rename = "thing")]
    pub target: LockTarget,
    /// Held, not only requested.
    pub granted: bool,
}

/// What was observed of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Observation {
    Done(Answer),
    /// The statement waits, as two probes have shown.
    Blocked(SessionWait),
    Failed(Failure),
    /// The statement neither ended nor was seen to wait within the limit.
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
