//! Reports: what was run, told to people and to programs. Pure functions from a [`Report`] to text; nothing
//! here runs anything, asks a server, or knows where its text goes.
//!
//! ```text
//!   Report ─┬─► text        for a terminal; the story of every disagreement
//!           ├─► json        everything, for programs
//!           ├─► junit       for CI
//!           ├─► mermaid     one run as a sequence diagram
//!           ├─► html        one page with all of it
//!           ├─► Anomalies   which anomaly shows at which isolation level
//!           └─► Stability   what varied between the rounds of a case
//!
//!   words ◄── transcript, explain, grouping ◄── all of the above
//! ```

mod anomalies;
mod explain;
mod grouping;
mod html;
mod json;
mod junit;
mod locks;
mod mermaid;
mod paint;
mod stability;
mod text;
mod transcript;
mod words;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod hostile;

pub use anomalies::{Anomalies, Cell, Column, How, Row};
pub use html::html;
pub use json::json;
pub use junit::junit;
pub use mermaid::mermaid;
pub use stability::{Stability, Unstable, Variation, Varied};
pub use text::{Look, text};

use crate::place::Engine;
use crate::scenario::Scenario;

#[cfg(doc)]
use crate::record::Report;

/// What a scenario says of itself: what reports need of its file besides the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// Its path below `scenarios/`, without the extension.
    pub name: String,
    /// The first line of the opening comment.
    pub title: String,
    /// Why this is worth knowing.
    pub why: String,
    /// What to do about it.
    pub advice: String,
    /// Which parts of the seed documents it proves.
    pub seeds: Vec<String>,
    /// The anomaly it looks for.
    pub anomaly: Option<String>,
    /// Where it was to be run, so that an engine that is missing can be told from one it has no use for.
    pub engines: Vec<Engine>,
    /// The file as it was written.
    pub source_text: String,
}

impl Story {
    /// The story of a scenario that was to be run on these engines.
    pub fn new(scenario: &Scenario, engines: impl IntoIterator<Item = Engine>) -> Self {
        Story {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            why: scenario.why.clone(),
            advice: scenario.advice.clone(),
            seeds: scenario.seeds.clone(),
            anomaly: scenario.anomaly.clone(),
            engines: engines.into_iter().collect(),
            source_text: scenario.text.clone(),
        }
    }

    /// The first part of its name.
    pub fn topic(&self) -> &str {
        topic(&self.name)
    }
}

/// `deadlock` of `deadlock/cycle`.
fn topic(name: &str) -> &str {
    name.split_once('/').map_or(name, |(topic, _)| topic)
}
