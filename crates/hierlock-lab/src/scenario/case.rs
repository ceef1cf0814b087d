//! A scenario made definite: one variant, at one place. This is what is run.

use super::file::{Actor, Expectation, LockDeed, Scenario, SettingValue};
use crate::observation::Name;
use crate::place::Place;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One variant of a scenario, at one place.
#[derive(Clone, Debug)]
pub struct Case {
    /// Of which scenario.
    pub scenario: Arc<Scenario>,
    /// The value of each axis.
    pub variant: Vec<(String, String)>,
    /// Where.
    pub place: Place,
    /// How long a step may neither end nor be seen to wait.
    pub limit: Duration,
    /// Into how many buckets a level is striped.
    pub buckets: u32,
    /// SQL before the sessions exist.
    pub setup: Vec<Statement>,
    /// SQL when it is all over.
    pub teardown: Vec<Statement>,
    /// Every session that does something, with its settings, in the order to apply them.
    pub sessions: BTreeMap<Name, Vec<SettingValue>>,
    /// The transcript.
    pub steps: Vec<Step>,
}

/// A statement of `setup:` or `teardown:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its line in the file.
    pub line: usize,
    /// Its text.
    pub sql: String,
}

/// One step of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its line in the file.
    pub line: usize,
    /// Whose.
    pub who: Actor,
    /// What is done.
    pub deed: CaseDeed,
    /// What must be seen; done, if the file says nothing.
    pub expected: Option<Expectation>,
    /// What would show the anomaly.
    pub signs: Vec<Expectation>,
}

/// What is done in a step of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseDeed {
    /// A statement.
    Sql(String),
    /// Something on the tree, and how it was written.
    Lock(LockDeed, String),
    /// Nothing: a look at the session's last step.
    Look,
}
