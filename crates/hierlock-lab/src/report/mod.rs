//! Reporters: pure functions from a [`Report`](crate::Report) to text. Nothing here runs a scenario, queries a server
//! or writes a file.
//!
//! ```text
//!   Report ─┬─► text             for a terminal; every disagreement with its transcript
//!           ├─► json             everything, for programs
//!           ├─► junit            for CI
//!           ├─► mermaid          one run as a sequence diagram
//!           ├─► html             one page with everything
//!           ├─► deadlock_svg     the picture of a deadlock that a server has reported
//!           ├─► AnomalyTable     the anomalies by isolation level
//!           └─► RoundComparison  the differences between the rounds of a case
//!
//!   display ◄── transcript, explain ◄── all of the above ──► grouping, wait_graph
//! ```

mod anomalies;
mod deadlock_svg;
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
mod wait_graph;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod property_tests;

pub use anomalies::AnomalyTable;
pub use rounds::RoundComparison;
pub use text::TextStyle;

pub(crate) use display::{duration, printable, wrap};
pub(crate) use terminal::{BOLD, DIM, FAILURE, SUCCESS, TerminalText};

use crate::engine::Engine;
use crate::scenario::Scenario;
use serde::Serialize;

/// The parts of a scenario that reports need besides its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScenarioSummary {
    pub(crate) name: String,
    pub(crate) topic: String,
    pub(crate) title: String,
    pub(crate) why: String,
    pub(crate) advice: String,
    pub(crate) anomaly: Option<String>,
    pub(crate) seeds: Vec<String>,
    /// The engines on which it should run. An engine that is not available is reported as missing.
    pub(crate) engines: Vec<Engine>,
    /// The text of the file.
    #[serde(skip)]
    pub(crate) source_text: String,
}

impl ScenarioSummary {
    /// Makes the summary of a scenario that should run on these engines.
    pub fn new(scenario: &Scenario, engines: impl IntoIterator<Item = Engine>) -> Self {
        let Scenario { name, title, why, advice, anomaly, seeds, text, .. } = scenario.clone();
        let (topic, engines) = (scenario.topic().to_owned(), engines.into_iter().collect());
        Self { name, topic, title, why, advice, anomaly, seeds, engines, source_text: text }
    }
}

/// Returns the first part of the name of a scenario: `deadlock` of `deadlock/cycle`.
fn topic(name: &str) -> &str {
    name.split_once('/').map_or(name, |(topic, _)| topic)
}
