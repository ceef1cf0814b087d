//! Reporters: pure functions from a [`Report`](crate::Report) to text. Nothing here runs a scenario, asks a
//! server or writes a file.
//!
//! ```text
//!   Report ─┬─► text             for a terminal; every disagreement with its transcript
//!           ├─► json             everything, for programs
//!           ├─► junit            for CI
//!           ├─► mermaid          one run as a sequence diagram
//!           ├─► html             one page with all of it
//!           ├─► AnomalyTable     which anomaly shows at which isolation level
//!           └─► RoundComparison  what varied between the rounds of a case
//!
//!   display ◄── transcript, explain ◄── all of the above ──► grouping
//! ```

mod anomalies;
mod display;
mod explain;
mod grouping;
mod html;
mod json;
mod junit;
mod mermaid;
mod rounds;
mod terminal;
mod text;
mod transcript;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod property_tests;

pub use anomalies::AnomalyTable;
pub use rounds::RoundComparison;
pub use text::TextStyle;

pub(crate) use display::{duration, printable, wrap};
pub(crate) use terminal::{BOLD, DIM, FAILURE, SUCCESS, TerminalText};

use crate::place::Engine;
use crate::scenario::Scenario;
use serde::Serialize;

/// What reports need of a scenario besides its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScenarioSummary {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) why: String,
    pub(crate) advice: String,
    pub(crate) anomaly: Option<String>,
    pub(crate) seeds: Vec<String>,
    /// Where it was to be run. One of them that is not there is reported as missing.
    pub(crate) engines: Vec<Engine>,
    /// The file as it was written.
    #[serde(skip)]
    pub(crate) source_text: String,
}

impl ScenarioSummary {
    /// The summary of a scenario that was to be run on these engines.
    pub fn new(scenario: &Scenario, engines: impl IntoIterator<Item = Engine>) -> Self {
        let Scenario { name, title, why, advice, anomaly, seeds, text, .. } = scenario.clone();
        let engines = engines.into_iter().collect();
        Self { name, title, why, advice, anomaly, seeds, engines, source_text: text }
    }
}

/// The first part of the name of a scenario: `deadlock` of `deadlock/cycle`.
fn topic(name: &str) -> &str {
    name.split_once('/').map_or(name, |(topic, _)| topic)
}
